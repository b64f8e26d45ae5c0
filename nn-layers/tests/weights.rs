//! Weights that are added to values, and weights of which others are computed: both are trained as in floats.

use crate::common::{self, Random, dense};
use nn_layers::layers::{Layer, LayerNorm};
use nn_layers::train::{Loss, Optimiser, Step, TrainOptions, TrainPlan};
use nn_layers::{
    Binary, Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Reduce, Unary, ValueId,
};
use ring_arith::CpuEngine;

const BATCH: usize = 4;

/// A plan, the state at its start, and a batch of rows of `dims` for the mean square loss.
fn planned(
    dims: &[usize],
    options: &TrainOptions,
    build: impl Fn(&mut Graph, &mut Random, ValueId) -> ValueId,
) -> (TrainPlan, Vec<HostTensor>, [HostTensor; 2]) {
    let mut r = Random(5);
    let (plan, start, result) = common::planned(BATCH, dims, options, &mut r, build);
    let batch = [r.tensor(&[&[BATCH], dims].concat(), 1.0), r.tensor(&result, 1.0)];
    (plan, start, batch)
}

fn options(optimiser: Optimiser, rate: f64) -> TrainOptions {
    let options = TrainOptions::default().with_loss(Loss::MeanSquare).with_optimiser(optimiser);
    options.with_largest_rate(rate)
}

/// Words with a class token in front and positions added, one layer of attention, and a final linear layer.
fn transformer(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let add = Op::Binary(Binary::Add);
    let token = g.weight("token", r.tensor(&[1, 1, 16], 1.0));
    let dims = vec![Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(16)];
    let token = g.add("expand", Op::Broadcast(dims), &[token]).unwrap();
    let x = g.add("concat", Op::Concat(1), &[token, x]).unwrap();
    let positions = g.weight("positions", r.tensor(&[1, 5, 16], 1.0));
    let x = g.add("place", add.clone(), &[x, positions]).unwrap();
    let y = normed(g, r, x, "norm1");
    let [q, k, v] = ["q", "k", "v"].map(|name| dense(g, r, y, name, 16));
    let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
    let scores = g.add("scores", product(true), &[q, k]).unwrap();
    let weights = g.add("softmax", Op::Softmax { axis: 2, log: false }, &[scores]).unwrap();
    let y = g.add("mixed", product(false), &[weights, v]).unwrap();
    let y = dense(g, r, y, "out", 16);
    let x = g.add("residual", add.clone(), &[x, y]).unwrap();
    let y = normed(g, r, x, "norm2");
    let y = dense(g, r, y, "up", 32);
    let y = g.add("gelu", Op::Unary(Unary::Gelu), &[y]).unwrap();
    let y = dense(g, r, y, "down", 16);
    let x = g.add("residual2", add, &[x, y]).unwrap();
    let x = normed(g, r, x, "norm3");
    let first = Op::Slice { axis: 1, start: 0, end: Dim::Fixed(1), step: 1 };
    let x = g.add("first", first, &[x]).unwrap();
    let x = g.add("flat", Op::Reshape(vec![Dim::Rest, Dim::Fixed(16)]), &[x]).unwrap();
    dense(g, r, x, "head", 3)
}

fn normed(g: &mut Graph, r: &mut Random, x: ValueId, name: &str) -> ValueId {
    let scale = r.tensor(&[16], 0.3).map(|v| v + 1.0).into();
    let norm = LayerNorm { scale, shift: r.tensor(&[16], 0.1).into(), epsilon: 1e-5 };
    norm.forward(g, name, x).unwrap()
}

/// The slope of a private step's moves on those in floats, by tensor.
fn assert_moves_alike(
    name: &str,
    (plan, start, batch): &(TrainPlan, Vec<HostTensor>, [HostTensor; 2]),
    rate: f64,
) {
    let mut floats = start.clone();
    plan.step_in_the_clear(&mut floats, batch, Step::new(0, rate)).unwrap();
    let mut fixed = start.clone();
    let seen = plan.inspect(CpuEngine::new(1), &mut fixed, batch, Step::new(0, rate)).unwrap();
    assert_eq!(seen.refusal, None, "{name}");
    let state = plan.state();
    let trained: Vec<_> = (0..state.len()).filter(|&i| state[i].trained).collect();
    assert!(trained.len() >= 2, "{name}");
    for (place, spec) in trained.iter().map(|&i| (i, &state[i])) {
        let moves = |after: &HostTensor| {
            let pairs =
                after.floats().into_owned().into_iter().zip(start[place].floats().into_owned());
            pairs.map(|(a, b)| a - b).collect::<Vec<f64>>()
        };
        let (want, got) = (moves(&floats[place]), moves(&fixed[place]));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let slope = dot(&got, &want) / dot(&want, &want);
        let size = dot(&want, &want).sqrt();
        assert!(
            size < 1e-9 || (slope - 1.0).abs() < 0.02,
            "{name}: {} moves {slope} times as far",
            spec.name
        );
    }
}

#[test]
fn weights_that_are_added_to_values_leave_these_their_range() {
    for (optimiser, rate) in [
        (Optimiser::sgd(0.0), 0.1),
        (Optimiser::sgd(0.0), 0.001),
        (Optimiser::sgd(0.9), 0.01),
        (Optimiser::adam(), 0.001),
    ] {
        let planned = planned(&[4, 16], &options(optimiser, rate), transformer);
        assert_moves_alike(&format!("{optimiser:?} at {rate}"), &planned, rate);
    }
}

/// A linear layer whose weight is the sum of a product of two factors and a third tensor. A second one whose
/// rows have separate norms, and rows taken from a table at public places.
fn computed(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
    let base = g.weight("base", r.tensor(&[8, 6], 0.5));
    let low = g.weight("low", r.tensor(&[2, 6], 0.5));
    let high = g.weight("high", r.tensor(&[8, 2], 0.5));
    let both = g.add("merge", product(false), &[high, low]).unwrap();
    let merged = g.add("merge", Op::Binary(Binary::Add), &[base, both]).unwrap();
    let y = g.add("fc1", product(true), &[x, merged]).unwrap();
    let table = g.weight("table", r.tensor(&[5, 8], 0.5));
    let row = Op::Gather { axis: 0, indices: vec![3], squeeze: true };
    let row = g.add("row", row, &[table]).unwrap();
    let y = g.add("place", Op::Binary(Binary::Add), &[y, row]).unwrap();
    let direction = g.weight("direction", r.tensor(&[3, 8], 0.5));
    let length = g.weight("length", r.tensor(&[3, 1], 0.2).map(|v| v + 1.0));
    let norm = Op::Reduce { kind: Reduce::L2, axes: vec![1], keep: true };
    let norm = g.add("norm", norm, &[direction]).unwrap();
    let unit = g.add("unit", Op::Binary(Binary::Div), &[direction, norm]).unwrap();
    let weight = g.add("normed", Op::Binary(Binary::Mul), &[unit, length]).unwrap();
    g.add("fc2", product(true), &[y, weight]).unwrap()
}

#[test]
fn weights_of_which_others_are_computed_are_trained_under_their_names() {
    for (optimiser, rate) in [(Optimiser::sgd(0.0), 0.05), (Optimiser::sgd(0.9), 0.05)] {
        let planned = planned(&[6], &options(optimiser, rate), computed);
        let state = planned.0.state();
        for name in ["base", "low", "high", "table", "direction", "length"] {
            assert!(state.iter().any(|s| s.name == name && s.trained), "{name} in {state:?}");
        }
        assert_moves_alike(&format!("{optimiser:?}"), &planned, rate);
    }
}

#[test]
fn gradients_reach_weights_through_what_is_computed_of_them() {
    let rate = 2f64.powi(-10);
    let options = options(Optimiser::sgd(0.0), rate);
    let (plan, start, batch) = planned(&[6], &options, computed);
    let mut after = start.clone();
    plan.step_in_the_clear(&mut after, &batch, Step::new(0, rate)).unwrap();
    let loss = |state: &[HostTensor]| {
        let weights = plan.inference_weights(state).unwrap();
        let y = plan.inference().evaluate(&weights, &batch[..1]).unwrap().swap_remove(0);
        let pairs = y.floats().into_owned().into_iter().zip(batch[1].floats().into_owned());
        pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / batch[1].len() as f64
    };
    for (place, spec) in plan.state().iter().enumerate() {
        let mut nudged = [start.clone(), start.clone()];
        for (state, step) in nudged.iter_mut().zip([1e-5, -1e-5]) {
            let mut values = state[place].floats().into_owned();
            values[0] += step;
            state[place] = HostTensor::new(spec.shape.dims(), values).unwrap();
        }
        let slope = (loss(&nudged[0]) - loss(&nudged[1])) / 2e-5;
        let moved = after[place].floats()[0] - start[place].floats()[0];
        let error = (moved + rate * slope).abs() / rate;
        assert!(error < 1e-5, "{}: moved by {moved:e}, the slope is {slope}", spec.name);
    }
}

#[test]
fn weights_that_only_frozen_ones_make_stay_folded() {
    let mut r = Random(6);
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(6)]).unwrap();
    let y = computed(&mut graph, &mut r, x);
    graph.train(|name| ["low", "high", "length"].contains(&name));
    let (plan, _) = TrainPlan::new(&graph, y, &options(Optimiser::sgd(0.0), 0.1)).unwrap();
    let state = plan.state();
    let trained: Vec<_> = state.iter().filter(|s| s.trained).map(|s| s.name.as_str()).collect();
    assert_eq!(trained.len(), 3, "{trained:?}");
    // The rows of norm 1 are a weight, and nothing computes them in a step.
    assert!(state.iter().any(|s| s.name == "unit" && !s.trained), "{state:?}");
    assert!(!state.iter().any(|s| s.name == "direction"), "{state:?}");
}

#[test]
fn numbers_that_are_put_in_a_weights_place_are_there_under_its_other_shapes() {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(3), Dim::Fixed(2)]).unwrap();
    let bias = g.weight("bias", HostTensor::new([3], vec![0.0; 3]).unwrap());
    let shape = vec![Dim::Fixed(3), Dim::Fixed(1)];
    let column = g.add("column", Op::Reshape(shape), &[bias]).unwrap();
    let y = g.add("sum", Op::Binary(Binary::Add), &[x, column]).unwrap();
    g.output("y", y);
    g.set_start("bias", HostTensor::new([3, 1], vec![1.0, 2.0, 3.0]).unwrap()).unwrap();
    let x = HostTensor::new([1, 3, 2], vec![0.0; 6]).unwrap();
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let y = plan.evaluate(&weights, &[x]).unwrap().remove(0);
    assert_eq!(y.floats()[..], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    for (name, dims) in [("bias", [1, 3]), ("bias", [2, 1]), ("other", [3, 1])] {
        let wrong = HostTensor::new(dims, vec![0.0; dims[0] * dims[1]]).unwrap();
        assert!(g.set_start(name, wrong).is_err(), "{name} {dims:?}");
    }
}

#[test]
fn numbers_of_32_bits_are_the_same_numbers_in_half_the_memory() {
    let values = [1.5f32, -0.1, 3e-8, 7.0, 0.0, -2.5];
    let short = HostTensor::singles([2, 3], values.to_vec()).unwrap();
    let wide = HostTensor::new([2, 3], values.map(f64::from).to_vec()).unwrap();
    assert_eq!(short, wide);
    assert_ne!(short, wide.map(|v| v + 1e-12));
    assert_ne!(short, HostTensor::integers([2, 3], vec![0; 6]).unwrap());
    assert_eq!(short.rows(&[1, 1]).unwrap(), wide.rows(&[1, 1]).unwrap());
    assert_eq!(short.reshape([6]).unwrap().floats(), wide.floats());
    assert_eq!(short.map(|v| v * 0.3), wide.map(|v| v * 0.3));
    let plan = |weight: &HostTensor| {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(2)]).unwrap();
        let w = g.weight("w", weight.clone());
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add("y", product, &[x, w]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        plan.encode_weights(weights).unwrap()
    };
    assert_eq!(plan(&short), plan(&wide));
    let wild = HostTensor::singles([2], vec![1.0, f32::NAN]).unwrap();
    let error = wild.check_finite().unwrap_err().to_string();
    assert!(error.contains("element 1 of 2 is NaN"), "{error}");
}
