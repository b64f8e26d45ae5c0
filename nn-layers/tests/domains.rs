//! Every operator at growing and shrinking magnitudes: its result is right, or the guard calls it out of range. Below
//! the ends that are stated it is right and quiet.

use crate::common::training::shared;
use crate::common::{Random, dense, flatten};
use crate::guard::joined;
use mpc_core::{Protocol, TestWorld};
use nn_layers::layers::{Embedding, Layer};
use nn_layers::train::{Loss, Step, TrainOptions, TrainPlan};
use nn_layers::{
    Binary, Centre, Compiled, Dim, Graph, HostTensor, Kernel, Op, PlanOptions, Pool, Reduce, Unary,
    ValueId,
};
use ring_arith::{CpuEngine, Shape, Tensor};
use rss_protocols::Rss;

/// The powers of two by which an example's numbers are multiplied, up to the largest that have an encoding.
const SIZES: std::ops::Range<i32> = -22..53;

/// An operator of examples of four numbers.
struct Case {
    name: &'static str,
    /// The powers of two between which it is asked to be right and quiet, at 20 fraction bits behind an input.
    ends: [f64; 2],
    /// Units of the last place by which the operand of the exact function may differ, where it is steep.
    units: f64,
    /// True if the function leaps where numbers differ by little.
    leaps: bool,
    make: fn(&mut Graph, ValueId) -> ValueId,
}

fn case(name: &'static str, ends: [f64; 2], make: fn(&mut Graph, ValueId) -> ValueId) -> Case {
    Case { name, ends, units: 0.0, leaps: false, make }
}

/// An operator that leaps.
fn leaping(name: &'static str, ends: [f64; 2], make: fn(&mut Graph, ValueId) -> ValueId) -> Case {
    Case { leaps: true, ..case(name, ends, make) }
}

/// An operator that is steep somewhere.
fn steep(name: &'static str, ends: [f64; 2], make: fn(&mut Graph, ValueId) -> ValueId) -> Case {
    Case { units: 1.0, ..case(name, ends, make) }
}

fn op(g: &mut Graph, op: Op, x: &[ValueId]) -> ValueId {
    g.add("function", op, x).unwrap()
}

fn unary(g: &mut Graph, f: Unary, x: ValueId) -> ValueId {
    op(g, Op::Unary(f), &[x])
}

fn binary(g: &mut Graph, f: Binary, x: ValueId, y: ValueId) -> ValueId {
    op(g, Op::Binary(f), &[x, y])
}

fn reduced(g: &mut Graph, kind: Reduce, x: ValueId) -> ValueId {
    op(g, Op::Reduce { kind, axes: vec![1], keep: true }, &[x])
}

fn magnitude(g: &mut Graph, x: ValueId) -> ValueId {
    g.add("magnitude", Op::Unary(Unary::Abs), &[x]).unwrap()
}

/// The same numbers in another order.
fn turned(g: &mut Graph, x: ValueId) -> ValueId {
    let indices = vec![2, 3, 0, 1];
    g.add("turned", Op::Gather { axis: 1, indices, squeeze: false }, &[x]).unwrap()
}

fn weight(g: &mut Graph, dims: &[usize], values: Vec<f64>) -> ValueId {
    g.weight("weight", HostTensor::new(dims, values).unwrap())
}

fn all(g: &mut Graph, value: f64) -> ValueId {
    weight(g, &[4], vec![value; 4])
}

fn public(g: &mut Graph, value: f64) -> ValueId {
    g.public("number", HostTensor::new([1], vec![value]).unwrap())
}

/// As a picture of 2 x 2.
fn picture(g: &mut Graph, x: ValueId) -> ValueId {
    let dims = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(2), Dim::Fixed(2)];
    g.add("picture", Op::Reshape(dims.to_vec()), &[x]).unwrap()
}

fn matmul(transpose_rhs: bool) -> Op {
    Op::MatMul { transpose_lhs: false, transpose_rhs }
}

/// Below every number that an input can be.
const NONE: f64 = -30.0;
/// Beyond them.
const ALL: f64 = 42.0;

fn activations() -> Vec<Case> {
    vec![
        case("relu", [NONE, ALL], |g, x| unary(g, Unary::Relu, x)),
        case("leaky", [NONE, 41.0], |g, x| unary(g, Unary::LeakyRelu(0.3), x)),
        steep("steep leaky", [NONE, 35.0], |g, x| unary(g, Unary::LeakyRelu(50.0), x)),
        case("turned leaky", [NONE, 38.0], |g, x| unary(g, Unary::LeakyRelu(-3.0), x)),
        case("clip", [NONE, ALL], |g, x| unary(g, Unary::Clip(Some(-2e6), Some(9e6)), x)),
        case("sigmoid", [NONE, ALL], |g, x| unary(g, Unary::Sigmoid, x)),
        case("tanh", [NONE, ALL], |g, x| unary(g, Unary::Tanh, x)),
        case("erf", [NONE, ALL], |g, x| unary(g, Unary::Erf, x)),
        case("gelu", [NONE, 41.0], |g, x| unary(g, Unary::Gelu, x)),
        case("gelu by tanh", [NONE, 41.0], |g, x| unary(g, Unary::GeluTanh, x)),
        case("silu", [NONE, 41.0], |g, x| unary(g, Unary::Silu, x)),
        case("hard swish", [NONE, 41.0], |g, x| unary(g, Unary::HardSwish, x)),
        case("hard sigmoid", [NONE, 41.0], |g, x| unary(g, Unary::HardSigmoid(0.2, 0.5), x)),
        case("softplus", [NONE, 41.0], |g, x| unary(g, Unary::Softplus, x)),
        case("softsign", [NONE, ALL], |g, x| unary(g, Unary::Softsign, x)),
        case("elu", [NONE, 41.0], |g, x| unary(g, Unary::Elu(1.0), x)),
        case("selu", [NONE, 41.0], |g, x| unary(g, Unary::Selu(1.7, 1.05), x)),
        case("mish", [NONE, 21.0], |g, x| {
            let y = g.add("softplus", Op::Unary(Unary::Softplus), &[x]).unwrap();
            let y = g.add("tanh", Op::Unary(Unary::Tanh), &[y]).unwrap();
            binary(g, Binary::Mul, x, y)
        }),
        case("slopes", [NONE, 21.0], |g, x| {
            let c = weight(g, &[4], vec![0.25, 0.1, -1.0, 0.9]);
            binary(g, Binary::PRelu, x, c)
        }),
        case("steep slopes", [NONE, 15.0], |g, x| {
            let c = weight(g, &[4], vec![1.5, 3.0, 40.0, -7.0]);
            binary(g, Binary::PRelu, x, c)
        }),
    ]
}

fn powers() -> Vec<Case> {
    vec![
        case("exp", [NONE, 3.0], |g, x| unary(g, Unary::Exp, x)),
        steep("log", [-16.0, ALL], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Log, x)
        }),
        steep("root", [NONE, ALL], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Sqrt, x)
        }),
        case("inverse root", [-13.0, ALL], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::InvSqrt, x)
        }),
        case("inverse", [-13.0, ALL], |g, x| unary(g, Unary::Reciprocal, x)),
        case("square", [NONE, 10.0], |g, x| unary(g, Unary::Pow(2.0), x)),
        case("cube", [NONE, 6.0], |g, x| unary(g, Unary::Pow(3.0), x)),
        case("x^4", [NONE, 5.0], |g, x| unary(g, Unary::Pow(4.0), x)),
        case("x^-2", [-6.0, 10.0], |g, x| unary(g, Unary::Pow(-2.0), x)),
        case("x^1.5", [NONE, 14.0], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Pow(1.5), x)
        }),
        steep("x^0.75", [NONE, 28.0], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Pow(0.75), x)
        }),
        steep("x^0.3", [NONE, 28.0], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Pow(0.3), x)
        }),
        case("x^2.3", [NONE, 6.5], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Pow(2.3), x)
        }),
        case("x^-1.5", [-6.0, 10.0], |g, x| {
            let x = magnitude(g, x);
            unary(g, Unary::Pow(-1.5), x)
        }),
        case("sine", [NONE, 20.0], |g, x| unary(g, Unary::Sin, x)),
        case("cosine", [NONE, 20.0], |g, x| unary(g, Unary::Cos, x)),
    ]
}

fn exact() -> Vec<Case> {
    vec![
        case("negative", [NONE, ALL], |g, x| unary(g, Unary::Neg, x)),
        case("magnitude", [NONE, ALL], magnitude),
        leaping("sign", [NONE, ALL], |g, x| unary(g, Unary::Sign, x)),
        leaping("whole part", [NONE, ALL], |g, x| unary(g, Unary::Floor, x)),
        case("sum with itself", [NONE, 40.0], |g, x| binary(g, Binary::Add, x, x)),
        case("difference", [NONE, 40.0], |g, x| {
            let minus = g.add("minus", Op::Unary(Unary::Neg), &[x]).unwrap();
            binary(g, Binary::Sub, x, minus)
        }),
        case("seven times by sums", [NONE, 38.0], |g, x| {
            let twice = g.add("twice", Op::Binary(Binary::Add), &[x, x]).unwrap();
            let four = g.add("four times", Op::Binary(Binary::Add), &[twice, twice]).unwrap();
            let eight = g.add("eight times", Op::Binary(Binary::Add), &[four, four]).unwrap();
            binary(g, Binary::Sub, eight, x)
        }),
        case("larger", [NONE, 40.0], |g, x| {
            let other = turned(g, x);
            binary(g, Binary::Max, x, other)
        }),
        case("smaller", [NONE, 40.0], |g, x| {
            let other = turned(g, x);
            binary(g, Binary::Min, x, other)
        }),
        leaping("less", [NONE, 40.0], |g, x| {
            let other = turned(g, x);
            binary(g, Binary::Less, x, other)
        }),
        leaping("choice", [NONE, 40.0], |g, x| {
            let other = turned(g, x);
            let zero = public(g, 0.0);
            let less = g.add("less", Op::Binary(Binary::Less), &[x, zero]).unwrap();
            op(g, Op::Where, &[less, x, other])
        }),
        case("mask", [NONE, ALL], |g, x| op(g, Op::Mask, &[x, x])),
        case("joined and cut", [NONE, ALL], |g, x| {
            let other = turned(g, x);
            let both = g.add("both", Op::Concat(1), &[x, other]).unwrap();
            op(g, Op::Slice { axis: 1, start: 1, end: Dim::Fixed(7), step: 2 }, &[both])
        }),
        case("largest under a window", [NONE, 40.0], |g, x| {
            let x = picture(g, x);
            op(g, Op::MaxPool(Pool::new([2, 1], [1; 2])), &[x])
        }),
        case("largest", [NONE, 40.0], |g, x| reduced(g, Reduce::Max, x)),
        case("smallest", [NONE, 40.0], |g, x| reduced(g, Reduce::Min, x)),
        leaping("position", [NONE, 40.0], |g, x| {
            op(g, Op::ArgMax { axis: 1, keep: true, min: false }, &[x])
        }),
    ]
}

fn sums() -> Vec<Case> {
    vec![
        case("sum", [NONE, 39.0], |g, x| reduced(g, Reduce::Sum, x)),
        case("mean", [NONE, 36.0], |g, x| reduced(g, Reduce::Mean, x)),
        case("mean of three", [NONE, 20.0], |g, x| {
            let three = Op::Slice { axis: 1, start: 0, end: Dim::Fixed(3), step: 1 };
            let x = g.add("three", three, &[x]).unwrap();
            reduced(g, Reduce::Mean, x)
        }),
        case("sum of magnitudes", [NONE, 39.0], |g, x| reduced(g, Reduce::L1, x)),
        case("sum of squares", [NONE, 19.0], |g, x| reduced(g, Reduce::SumSquare, x)),
        steep("length", [NONE, 19.0], |g, x| reduced(g, Reduce::L2, x)),
        case("sum under a window", [NONE, 39.0], |g, x| {
            let x = picture(g, x);
            op(g, Op::SumPool(Pool::new([2; 2], [1; 2])), &[x])
        }),
        case("mean under a window", [NONE, 36.0], |g, x| {
            let x = picture(g, x);
            let pool = Pool::new([2; 2], [1; 2]).padded([0, 0, 1, 1]);
            op(g, Op::AvgPool { pool, count_border: true }, &[x])
        }),
        case("inner product", [NONE, 9.0], |g, x| {
            let other = turned(g, x);
            op(g, Op::Dot(vec![1]), &[x, other])
        }),
        case("inner square", [NONE, 9.0], |g, x| op(g, Op::Dot(vec![1]), &[x, x])),
    ]
}

fn products() -> Vec<Case> {
    vec![
        case("product", [NONE, 10.0], |g, x| {
            let other = turned(g, x);
            binary(g, Binary::Mul, x, other)
        }),
        case("times 3", [NONE, 20.0], |g, x| {
            let c = public(g, 3.0);
            binary(g, Binary::Mul, x, c)
        }),
        steep("times 1e5", [NONE, 4.0], |g, x| {
            let c = public(g, 1e5 + 0.3);
            binary(g, Binary::Mul, x, c)
        }),
        case("times 0.7", [NONE, 20.0], |g, x| {
            let c = public(g, 0.7);
            binary(g, Binary::Mul, x, c)
        }),
        case("by a quarter", [NONE, 19.0], |g, x| {
            let c = all(g, 0.25);
            binary(g, Binary::Div, x, c)
        }),
        case("a million by it", [1.0, 19.0], |g, x| {
            let c = all(g, 1e6);
            binary(g, Binary::Div, c, x)
        }),
        case("one by it", [-13.0, 19.0], |g, x| {
            let c = all(g, 1.0);
            binary(g, Binary::Div, c, x)
        }),
        case("quotient", [-13.0, 19.0], |g, x| {
            let other = turned(g, x);
            binary(g, Binary::Div, x, other)
        }),
        case("it by 4", [NONE, 21.0], |g, x| {
            let four = all(g, 4.0);
            binary(g, Binary::Div, x, four)
        }),
        case("dense", [NONE, 19.0], |g, x| {
            let values = (0..16).map(|i| f64::from(i) / 8.0 - 1.0).collect();
            let w = weight(g, &[4, 4], values);
            op(g, matmul(false), &[x, w])
        }),
        case("dense and a relu", [NONE, 19.0], |g, x| {
            let values = (0..16).map(|i| f64::from(i) / 8.0 - 1.0).collect();
            let w = weight(g, &[4, 4], values);
            let y = op(g, matmul(false), &[x, w]);
            g.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap()
        }),
        case("product of matrices", [NONE, 9.0], |g, x| {
            let x = picture(g, x);
            op(g, matmul(true), &[x, x])
        }),
        case("convolution", [NONE, 19.0], |g, x| {
            let x = picture(g, x);
            let w = weight(g, &[1, 1, 2, 2], vec![1.0, -0.5, 0.25, 0.7]);
            op(g, Op::Conv(Kernel::new(Pool::new([2; 2], [1; 2]))), &[x, w])
        }),
        case("transposed convolution", [NONE, 19.0], |g, x| {
            let x = picture(g, x);
            let w = weight(g, &[1, 1, 2, 2], vec![1.0, -0.5, 0.25, 0.7]);
            let kernel = Kernel::new(Pool::new([2; 2], [1; 2]));
            op(g, Op::ConvTranspose { kernel, extra: [0; 2] }, &[x, w])
        }),
    ]
}

fn rows() -> Vec<Case> {
    vec![
        case("softmax", [NONE, 40.0], |g, x| op(g, Op::Softmax { axis: 1, log: false }, &[x])),
        case("log of softmax", [NONE, 40.0], |g, x| {
            op(g, Op::Softmax { axis: 1, log: true }, &[x])
        }),
        case("normalised", [NONE, 28.0], |g, x| {
            op(g, Op::Normalize { axis: 1, centre: Centre::Mean, epsilon: 1e-5 }, &[x])
        }),
        case("normalised by little", [-12.0, 28.0], |g, x| {
            op(g, Op::Normalize { axis: 1, centre: Centre::Mean, epsilon: 1e-12 }, &[x])
        }),
        case("over its root of mean squares", [NONE, 28.0], |g, x| {
            op(g, Op::Normalize { axis: 1, centre: Centre::Zero, epsilon: 1e-5 }, &[x])
        }),
        case("by its length", [-12.0, 19.0], |g, x| {
            let length =
                g.add("length", Op::Reduce { kind: Reduce::L2, axes: vec![1], keep: true }, &[x]);
            let least = Op::Unary(Unary::Clip(Some(1e-12), None));
            let length = g.add("length", least, &[length.unwrap()]).unwrap();
            binary(g, Binary::Div, x, length)
        }),
        case("over channels", [NONE, 9.0], |g, x| {
            let dims = [Dim::Batch(1), Dim::Fixed(4), Dim::Fixed(1), Dim::Fixed(1)];
            let x = g.add("picture", Op::Reshape(dims.to_vec()), &[x]).unwrap();
            op(g, Op::Lrn { size: 3, alpha: 1e-3, beta: 0.75, bias: 1.0 }, &[x])
        }),
    ]
}

/// The largest part of a result, or of 1, by which it may be off: the root of an encoding's unit is more in coarse
/// ones.
fn largest_off(frac: u32) -> f64 {
    (1.0 - f64::from(frac) / 2.0).exp2().max(0.02)
}

/// Runs an operator at all sizes as examples of several callers, behind an input or a layer of weights of 1; describes
/// what is wrong.
fn faults(
    mpc: &mut Rss<CpuEngine>,
    case: &Case,
    layer: bool,
    frac: u32,
) -> mpc_core::Result<Vec<String>> {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let mut from = x;
    if layer {
        let one = g.weight("one", HostTensor::new([4], vec![1.0; 4]).unwrap());
        from = g.add("layer", Op::Binary(Binary::Mul), &[x, one]).unwrap();
    }
    let y = (case.make)(&mut g, from);
    g.output("y", y);
    let options = PlanOptions::default().with_frac(frac);
    let Compiled { plan, weights } = Compiled::new(&g, &options).unwrap();
    let compiled = Compiled { plan: plan.with_guard(true), weights };
    // Every other one where nothing is asked to be quiet.
    let step = if frac == 20 { 1 } else { 2 };
    let sizes = SIZES.step_by(step).map(f64::from);
    let sizes: Vec<_> = sizes.filter(|size| *size <= f64::from(62 - frac)).collect();
    let unit = (-f64::from(frac)).exp2();
    // Every other example is negated. Numbers below half a unit are 0.
    let row = |(i, size): (usize, &f64)| {
        let sign = if i % 2 == 0 { size.exp2() } else { -size.exp2() };
        let values = [0.9, -0.7, 0.8, 0.55].map(|v| v * sign);
        if values.iter().all(|v| v.abs() < unit / 2.0) { [0.0; 4] } else { values }
    };
    let values: Vec<_> = sizes.iter().enumerate().flat_map(row).collect();
    // Moved away from 0, or towards it.
    let input = |moved: f64| {
        let values = values.iter().map(|v| v.signum() * (v.abs() + moved).max(0.0)).collect();
        HostTensor::new([sizes.len(), 4], values).unwrap()
    };
    let callers = vec![1; sizes.len()];
    let (words, left) = if compiled.plan.guarded().is_empty() {
        (alone(mpc, &compiled, &input(0.0))?, vec![0; sizes.len()])
    } else {
        let [words, left] = joined(mpc, &compiled, &input(0.0), &callers)?;
        (words, left)
    };
    let graph = g.for_batch(sizes.len()).unwrap();
    let exact = |moved: f64| graph.evaluate(&[input(moved)]).unwrap().remove(0);
    let right = exact(0.0);
    let moved = [-case.units, case.units].map(|units| exact(units * unit));
    let shape = Shape::new(right.dims()).unwrap();
    let result = compiled.plan.decode_output(0, &Tensor::new(shape, words)?).unwrap();
    let each = result.len() / sizes.len();
    let mut faults: Vec<(f64, f64, f64, bool)> = vec![];
    for (i, &size) in sizes.iter().enumerate() {
        if case.leaps && size.exp2() < 64.0 * unit {
            continue;
        }
        let off = (i * each..(i + 1) * each).map(|at| {
            let around = [right.floats()[at], moved[0].floats()[at], moved[1].floats()[at]];
            let low = around.into_iter().fold(f64::INFINITY, f64::min);
            let high = around.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let got = result.floats()[at];
            let off = (low - got).max(got - high).max(0.0);
            let off = off / low.abs().min(high.abs()).max(1.0);
            if right.floats()[at].is_finite() { off } else { f64::INFINITY }
        });
        let off = off.fold(0.0, f64::max);
        let called = left.chunks(sizes.len()).any(|of| of[i] != 0);
        let [least, mut most] = case.ends;
        if layer {
            most = most.min(21.0);
        }
        let asked = frac == 20 && (least..=most).contains(&size);
        if !(asked && (called || off > largest_off(frac)) || off > largest_off(frac) && !called) {
            continue;
        }
        match faults.last_mut() {
            Some((_, to, most, of)) if *to == size - step as f64 && *of == called => {
                (*to, *most) = (size, most.max(off));
            }
            _ => faults.push((size, size, off, called)),
        }
    }
    let described = faults.into_iter().map(|(from, to, off, called)| {
        let called = if called { ", called" } else { "" };
        format!("2^{from} to 2^{to} off by up to {off:.4}{called}")
    });
    Ok(described.collect())
}

/// The words of a plan's result without a guard.
fn alone(
    mpc: &mut Rss<CpuEngine>,
    compiled: &Compiled,
    input: &HostTensor,
) -> mpc_core::Result<Vec<u64>> {
    let plan = compiled.plan.clone().with_guard(false);
    crate::guard::unguarded(mpc, &Compiled { plan, weights: compiled.weights.clone() }, input)
}

#[test]
fn an_operator_is_right_within_its_domain_and_called_out_of_it_beyond() {
    let cases =
        || [activations(), powers(), exact(), sums(), products(), rows()].into_iter().flatten();
    assert_eq!(cases().count(), 84);
    let run = move |mpc: &mut Rss<CpuEngine>| {
        let mut found = vec![];
        for case in cases() {
            for (layer, frac) in [(false, 20), (true, 20), (false, 10), (false, 26)] {
                let faults = faults(mpc, &case, layer, frac)?;
                if !faults.is_empty() {
                    let behind = if layer { "a layer" } else { "an input" };
                    let list = faults.join("; ");
                    found.push(format!("{} behind {behind} at {frac} bits: {list}", case.name));
                }
            }
        }
        Ok(found)
    };
    let found: Vec<String> =
        TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run).remove(0);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn positions_beyond_a_table_are_called_out_where_the_graph_computes_them() {
    let mut g = Graph::new(1);
    let at = g.integer_input("at", &[Dim::Batch(1), Dim::Fixed(2)]).unwrap();
    let one = g.public("one", HostTensor::integers([], vec![1]).unwrap());
    let next = g.add("next", Op::Binary(Binary::Add), &[at, one]).unwrap();
    let table = HostTensor::new([5, 3], (0..15).map(f64::from).collect()).unwrap();
    let table = g.weight("table", table);
    let plain = g.add("plain", Op::Lookup, &[table, at]).unwrap();
    let rows = g.add("rows", Op::Lookup, &[table, next]).unwrap();
    g.output("rows", rows);
    g.output("plain", plain);
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let compiled = Compiled { plan: plan.with_guard(true), weights };
    // An input alone is compared with the table by its owner.
    assert_eq!(compiled.plan.guarded(), ["rows"]);
    let run = move |mpc: &mut Rss<CpuEngine>| {
        let at = HostTensor::integers([4, 2], vec![0, 3, 4, 1, -1, 2, -2, 0]).unwrap();
        joined(mpc, &compiled, &at, &[1; 4])
    };
    let [_, left] =
        TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run).remove(0);
    assert_eq!(left.iter().map(|&word| word != 0).collect::<Vec<_>>(), [false, true, false, true]);
}

#[test]
fn positions_beyond_a_table_are_called_out_in_steps_of_a_training() {
    let mut r = Random(3);
    let mut g = Graph::new(2);
    let at = g.integer_input("at", &[Dim::Batch(1), Dim::Fixed(2)]).unwrap();
    let table = Embedding { table: r.tensor(&[5, 3], 1.0).into() };
    let rows = table.forward(&mut g, "rows", at).unwrap();
    let flat = flatten(&mut g, rows);
    let output = dense(&mut g, &mut r, flat, "fc", 3);
    for trained in ["rows.weight", "fc.weight"] {
        let mut g = g.clone();
        g.train(|name| name == trained);
        let options = TrainOptions::default().with_loss(Loss::MeanSquare);
        let (plan, start) = TrainPlan::new(&g, output, &options).unwrap();
        let step = Step::new(0, 0.1);
        let names = plan.guarded(step);
        let run = move |mpc: &mut Rss<CpuEngine>| {
            let mut found = vec![];
            for positions in [[0, 4, 1, 3], [0, 5, 1, 3], [0, 4, -1, 3]] {
                let at = HostTensor::integers([2, 2], positions.to_vec()).unwrap();
                let labels = HostTensor::new([2, 3], vec![0.5; 6]).unwrap();
                let state = shared(mpc, &plan.encode_state(&start).unwrap())?;
                let mut state = plan.secret_state(state).unwrap();
                let words = shared(mpc, &plan.encode_batch(&[at, labels]).unwrap())?;
                let batch = plan.step_plan().secret_inputs(words);
                let made = plan.step_guarded(mpc, &mut state, &batch, step, 1, &mut ());
                found.push(mpc.open(&[made.unwrap().1.share()])?[0].words().to_vec());
            }
            Ok(found)
        };
        let found =
            TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run).remove(0);
        let called = found.iter().map(|words| {
            let outside = names.iter().zip(words).filter(|(_, word)| **word != 0);
            outside.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        });
        assert_eq!(called.collect::<Vec<_>>(), [vec![], vec!["rows"], vec!["rows"]], "{trained}");
    }
}

#[test]
fn the_root_of_a_negative_number_is_called_out_but_not_of_one_that_rounding_made() {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
    let one = g.weight("one", HostTensor::new([1], vec![1.0]).unwrap());
    let layer = g.add("layer", Op::Binary(Binary::Mul), &[x, one]).unwrap();
    let y = unary(&mut g, Unary::Sqrt, layer);
    g.output("y", y);
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let compiled = Compiled { plan: plan.with_guard(true), weights };
    let units = [-1.0, -2.0, 0.0, 1.0, -8.0, -1e6];
    let run = move |mpc: &mut Rss<CpuEngine>| {
        let x = units.map(|v| v / 20f64.exp2());
        joined(mpc, &compiled, &HostTensor::new([6, 1], x.to_vec()).unwrap(), &[1; 6])
    };
    let [words, left] =
        TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run).remove(0);
    for (i, unit) in units.iter().enumerate() {
        let called = left.chunks(6).any(|of| of[i] != 0);
        let off = words[i] as i64 as f64 / 20f64.exp2() - (unit.max(0.0) / 20f64.exp2()).sqrt();
        assert_eq!(called, *unit < -4.0, "{unit}");
        assert!(called || off.abs() < 2e-3, "{unit}: off by {off}");
    }
}
