//! Every gradient against central differences, and planted faults that this notices.

use crate::common::Random;
use nn_layers::{
    Binary, Centre, Dim, Error, Graph, HostTensor, Kernel, Op, Pool, Reduce, Result, Unary, ValueId,
};

/// Step of the central differences.
const STEP: f64 = 1e-5;

/// A graph with operands of the given shapes as inputs, and the result that `build` makes of them.
struct Case {
    graph: Graph,
    operands: Vec<ValueId>,
    values: Vec<HostTensor>,
}

impl Case {
    fn new(values: &[HostTensor]) -> Self {
        let mut graph = Graph::new(1);
        let input = |(i, x): (usize, &HostTensor)| {
            let dims: Vec<_> = x.dims().iter().map(|&d| Dim::Fixed(d)).collect();
            graph.input(&format!("x{i}"), &dims).unwrap()
        };
        let operands = values.iter().enumerate().map(input).collect();
        Self { graph, operands, values: values.to_vec() }
    }

    /// Largest difference, relative to the largest gradient, of the graph's gradients by the operands in
    /// `by` and central differences of `sum(seed * y)` for a random seed.
    fn error(mut self, y: ValueId, by: &[usize]) -> f64 {
        let seed = Random(99).tensor(self.graph.shape(y).dims(), 1.0);
        let seed_id = self.graph.public("seed", seed.clone());
        let by_ids: Vec<_> = by.iter().map(|&i| self.operands[i]).collect();
        let grads = self.graph.gradients(y, seed_id, &by_ids).unwrap();
        self.graph.output("y", y);
        grads.iter().for_each(|&g| self.graph.output("grad", g));
        let results = self.graph.evaluate(&self.values).unwrap();
        let mut worst: f64 = 0.0;
        for (&i, grad) in by.iter().zip(&results[1..]) {
            assert_eq!(grad.dims(), self.values[i].dims());
            let expected: Vec<_> = (0..grad.len()).map(|k| self.difference(i, k, &seed)).collect();
            let scale = expected.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
            let pairs =
                grad.floats().iter().zip(&expected).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>();
            worst = pairs
                .into_iter()
                .map(|d| if d.is_nan() { f64::INFINITY } else { d / scale })
                .fold(worst, f64::max);
        }
        worst
    }

    /// The slope of `sum(seed * y)` by one element.
    fn difference(&self, operand: usize, element: usize, seed: &HostTensor) -> f64 {
        let at = |step: f64| {
            let mut values = self.values.clone();
            let mut moved = values[operand].floats().into_owned();
            moved[element] += step;
            values[operand] = HostTensor::new(values[operand].dims(), moved).unwrap();
            let y = self.graph.evaluate(&values).unwrap().swap_remove(0);
            y.floats().iter().zip(seed.floats().iter()).map(|(a, b)| a * b).sum::<f64>()
        };
        (at(STEP) - at(-STEP)) / (2.0 * STEP)
    }
}

/// Checks one operation by all of its operands.
fn check(op: Op, values: &[HostTensor]) {
    let all: Vec<_> = (0..values.len()).collect();
    check_by(op, values, &all);
}

fn check_by(op: Op, values: &[HostTensor], by: &[usize]) {
    let mut case = Case::new(values);
    let y = case.graph.add("node", op.clone(), &case.operands).unwrap();
    let error = case.error(y, by);
    assert!(error < 1e-6, "{op:?} of {values:?}: the gradient is off by {error:e}");
}

/// Numbers that keep away from corners at 0 and 1.
fn away_from_corners(r: &mut Random, dims: &[usize]) -> HostTensor {
    r.tensor(dims, 2.0).map(|v| if v.fract().abs() < 0.01 || v.abs() > 1.98 { 0.37 } else { v })
}

fn positive(r: &mut Random, dims: &[usize]) -> HostTensor {
    r.tensor(dims, 1.0).map(|v| v.abs() + 0.5)
}

/// Distinct numbers far enough apart that the largest does not change under a step.
fn distinct(r: &mut Random, dims: &[usize]) -> HostTensor {
    let len = dims.iter().product::<usize>();
    let mut values: Vec<_> = (0..len).map(|i| i as f64 * 0.1 - 1.0).collect();
    for i in (1..len).rev() {
        let j = ((r.next() + 1.0) / 2.0 * (i + 1) as f64) as usize;
        values.swap(i, j.min(i));
    }
    HostTensor::new(dims, values).unwrap()
}

#[test]
fn convolutions_with_steps_borders_dilation_and_groups() {
    let mut r = Random(1);
    for (size, stride, padding, dilation, groups) in [
        ([3, 3], [1, 1], [0; 4], [1, 1], 1),
        ([3, 2], [2, 3], [1, 0, 2, 1], [1, 1], 1),
        ([2, 3], [1, 2], [2, 1, 0, 1], [2, 1], 2),
        ([1, 1], [2, 2], [0; 4], [1, 1], 4),
    ] {
        let window = Pool { size, stride, padding, dilation };
        let kernel = Kernel { window, groups };
        let x = r.tensor(&[2, 4, 7, 6], 1.0);
        let w = r.tensor(&[8, 4 / groups, size[0], size[1]], 1.0);
        check(Op::Conv(kernel), &[x, w]);
        let x = r.tensor(&[2, 8, 3, 4], 1.0);
        let w = r.tensor(&[8, 4 / groups, size[0], size[1]], 1.0);
        let extra = [stride[0] - 1, 0];
        check(Op::ConvTranspose { kernel, extra }, &[x, w]);
    }
}

#[test]
fn matrix_products_in_all_transpositions_and_with_one_matrix_for_all_batches() {
    let mut r = Random(2);
    for (transpose_lhs, transpose_rhs) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let matrix = |r: &mut Random, lead: &[usize], m: usize, n: usize, t: bool| {
            let last = if t { [n, m] } else { [m, n] };
            r.tensor(&[lead, &last].concat(), 1.0)
        };
        for leads in [[&[][..], &[]], [&[2, 3], &[2, 3]], [&[2, 3], &[]], [&[], &[2]]] {
            let a = matrix(&mut r, leads[0], 3, 4, transpose_lhs);
            let b = matrix(&mut r, leads[1], 4, 2, transpose_rhs);
            check(Op::MatMul { transpose_lhs, transpose_rhs }, &[a, b]);
        }
    }
}

#[test]
fn functions_of_single_elements() {
    let mut r = Random(3);
    for f in [
        Unary::Relu,
        Unary::LeakyRelu(0.2),
        Unary::Clip(Some(-1.0), Some(1.0)),
        Unary::Clip(None, Some(1.0)),
        Unary::Clip(Some(0.0), None),
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Erf,
        Unary::Gelu,
        Unary::Silu,
        Unary::HardSwish,
        Unary::HardSigmoid(0.25, 0.5),
        Unary::Elu(0.7),
        Unary::Selu(1.6, 1.1),
        Unary::Softplus,
        Unary::Softsign,
        Unary::Exp,
        Unary::Neg,
        Unary::Abs,
        Unary::Sin,
        Unary::Cos,
        Unary::Pow(3.0),
    ] {
        check(Op::Unary(f), &[away_from_corners(&mut r, &[3, 5])]);
    }
    for f in [Unary::Log, Unary::Sqrt, Unary::InvSqrt, Unary::Reciprocal, Unary::Pow(1.5)] {
        check(Op::Unary(f), &[positive(&mut r, &[3, 5])]);
    }
    check(Op::Scale(-0.7), &[r.tensor(&[4], 1.0)]);
}

#[test]
fn functions_of_two_operands_sum_over_what_they_broadcast() {
    let mut r = Random(4);
    for (a, b) in [
        (&[2, 3][..], &[2, 3][..]),
        (&[2, 3], &[3]),
        (&[3], &[2, 3]),
        (&[2, 1, 3], &[4, 1]),
        (&[2, 3], &[1, 1]),
        (&[], &[2, 2]),
    ] {
        for f in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min] {
            check(Op::Binary(f), &[r.tensor(a, 1.0), r.tensor(b, 1.0)]);
        }
        check(Op::Binary(Binary::Div), &[r.tensor(a, 1.0), positive(&mut r, b)]);
        let c = HostTensor::integers(
            b,
            (0..b.iter().product::<usize>() as i64).map(|i| i % 2).collect(),
        );
        check_by(Op::Where, &[c.unwrap().to_float(), r.tensor(a, 1.0), r.tensor(b, 1.0)], &[1, 2]);
    }
    check(
        Op::Binary(Binary::PRelu),
        &[away_from_corners(&mut r, &[2, 3, 4]), r.tensor(&[3, 1], 1.0)],
    );
}

#[test]
fn pools_of_any_window() {
    let mut r = Random(5);
    for pool in [
        Pool::new([2; 2], [2; 2]),
        Pool::new([3, 2], [1, 2]),
        Pool::new([3; 2], [2; 2]).padded([1, 0, 1, 1]),
        Pool { dilation: [2, 1], ..Pool::new([2, 3], [2, 1]) },
    ] {
        for dims in [&[2, 3, 7, 6][..], &[7, 6]] {
            check(Op::SumPool(pool), &[r.tensor(dims, 1.0)]);
            check(Op::MaxPool(pool), &[distinct(&mut r, dims)]);
            for count_border in [true, false] {
                check(Op::AvgPool { pool, count_border }, &[r.tensor(dims, 1.0)]);
            }
        }
    }
}

#[test]
fn reductions_and_what_is_built_of_them() {
    let mut r = Random(6);
    for kind in [Reduce::Sum, Reduce::Mean, Reduce::SumSquare, Reduce::L2, Reduce::L1] {
        for (axes, keep) in [(vec![1], true), (vec![0, 2], false), (vec![0, 1, 2], false)] {
            check(Op::Reduce { kind, axes, keep }, &[away_from_corners(&mut r, &[2, 3, 4])]);
        }
    }
    for axis in [0, 1, 2] {
        for log in [false, true] {
            check(Op::Softmax { axis, log }, &[r.tensor(&[2, 3, 4], 2.0)]);
        }
        for centre in [Centre::Mean, Centre::Zero] {
            check(Op::Normalize { axis, centre, epsilon: 1e-3 }, &[r.tensor(&[2, 3, 4], 2.0)]);
        }
    }
}

#[test]
fn operations_that_move_elements() {
    let mut r = Random(7);
    let x = r.tensor(&[2, 5, 3], 1.0);
    check(Op::Reshape(vec![Dim::Fixed(6), Dim::Rest]), std::slice::from_ref(&x));
    check(Op::Permute(vec![2, 0, 1]), std::slice::from_ref(&x));
    check(Op::Broadcast([4, 2, 5, 3].map(Dim::Fixed).to_vec()), std::slice::from_ref(&x));
    for (start, end, step) in [(0, 5, 1), (1, 4, 1), (1, 5, 2), (0, 5, 3), (4, 5, 7)] {
        let op = Op::Slice { axis: 1, start, end: Dim::Fixed(end), step };
        check(op, std::slice::from_ref(&x));
    }
    for (axis, indices, squeeze) in
        [(1, vec![3, 0, 3], false), (2, vec![1], true), (0, vec![1, 1], false)]
    {
        check(Op::Gather { axis, indices, squeeze }, std::slice::from_ref(&x));
    }
    check(
        Op::Pad { before: vec![1, 0, 2], after: vec![0, 1, 3], value: 0.5 },
        std::slice::from_ref(&x),
    );
    let parts = [x, r.tensor(&[2, 1, 3], 1.0), r.tensor(&[2, 2, 3], 1.0)];
    check(Op::Concat(1), &parts);
}

#[test]
fn rows_of_a_table_get_the_gradients_of_all_places_that_took_them() {
    let mut r = Random(12);
    let places = HostTensor::new([2, 3], vec![1.0, 4.0, 1.0, 0.0, 1.0, 4.0]).unwrap();
    for row in [&[2][..], &[2, 3]] {
        let table = r.tensor(&[&[5], row].concat(), 1.0);
        let mut case = Case::new(&[table, places.clone()]);
        let y = case.graph.add("lookup", Op::Lookup, &case.operands).unwrap();
        let error = case.error(y, &[0]);
        assert!(error < 1e-6, "off by {error:e}");
    }
}

#[test]
fn inner_products_by_both_operands_and_of_a_value_with_itself() {
    let mut r = Random(13);
    let x = r.tensor(&[2, 3, 4], 1.0);
    check(Op::Dot(vec![0, 2]), &[x.clone(), r.tensor(&[2, 3, 4], 1.0)]);
    let mut case = Case::new(&[x]);
    let y = case.graph.add("square", Op::Dot(vec![1]), &[case.operands[0]; 2]).unwrap();
    let error = case.error(y, &[0]);
    assert!(error < 1e-6, "off by {error:e}");
}

#[test]
fn a_value_with_several_users_gets_the_sum_of_their_gradients() {
    let mut r = Random(8);
    let mut case = Case::new(&[r.tensor(&[2, 3], 1.0), r.tensor(&[3, 3], 1.0)]);
    let (x, w) = (case.operands[0], case.operands[1]);
    let g = &mut case.graph;
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add("once", product.clone(), &[x, w]).unwrap();
    let y = g.add("tanh", Op::Unary(Unary::Tanh), &[y]).unwrap();
    let z = g.add("twice", product, &[y, w]).unwrap();
    let z = g.add("sum", Op::Binary(Binary::Add), &[z, x]).unwrap();
    let z = g.add("square", Op::Binary(Binary::Mul), &[z, z]).unwrap();
    let error = case.error(z, &[0, 1]);
    assert!(error < 1e-6, "off by {error:e}");
}

/// Differentiates by hand with one fault, and returns the deviation.
fn fault(plant: impl Fn(&mut Graph, [ValueId; 3], ValueId) -> Result<ValueId>) -> f64 {
    let mut r = Random(9);
    let values = [r.tensor(&[4, 3], 1.0), r.tensor(&[3, 3], 1.0), r.tensor(&[3], 1.0)];
    let mut case = Case::new(&values);
    let ids = [case.operands[0], case.operands[1], case.operands[2]];
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = case.graph.add("product", product, &ids[..2]).unwrap();
    let y = case.graph.add("bias", Op::Binary(Binary::Add), &[y, ids[2]]).unwrap();
    case.graph.output("y", y);
    let seed = r.tensor(&[4, 3], 1.0);
    let seed_id = case.graph.public("seed", seed.clone());
    let grad = plant(&mut case.graph, ids, seed_id).unwrap();
    case.graph.output("grad", grad);
    let got = case.graph.evaluate(&values).unwrap().swap_remove(1);
    let operand = values.iter().position(|v| v.dims() == got.dims()).unwrap();
    let off = |k: usize| (got.floats()[k] - case.difference(operand, k, &seed)).abs();
    (0..got.len()).map(off).fold(0.0, f64::max)
}

#[test]
fn a_swapped_transposition_a_dropped_sum_and_a_dropped_part_are_noticed() {
    let product = |transpose_lhs, transpose_rhs| Op::MatMul { transpose_lhs, transpose_rhs };
    let right = fault(|g, [x, _, _], seed| g.add("dw", product(true, false), &[x, seed]));
    assert!(right < 1e-6, "the right gradient is off by {right:e}");
    // By the weight: transposed although it is square.
    let swapped = fault(|g, [x, _, _], seed| {
        let grad = g.add("dw", product(true, false), &[x, seed])?;
        g.add("swapped", Op::Permute(vec![1, 0]), &[grad])
    });
    // By the value: the weight not transposed.
    let untransposed = fault(|g, [_, w, _], seed| g.add("dx", product(false, false), &[seed, w]));
    // By the bias: the first row instead of the sum over rows.
    let unsummed = fault(|g, _, seed| {
        g.add("db", Op::Gather { axis: 0, indices: vec![0], squeeze: true }, &[seed])
    });
    for (name, off) in
        [("swapped", swapped), ("untransposed", untransposed), ("unsummed", unsummed)]
    {
        assert!(off > 1e-3, "{name}: off by {off:e} only");
    }
}

#[test]
fn an_operation_without_a_gradient_is_named_before_anything_is_added() {
    let mut case = Case::new(&[Random(10).tensor(&[1, 2, 3], 1.0)]);
    let g = &mut case.graph;
    let op = Op::Lrn { size: 2, alpha: 1.0, beta: 0.5, bias: 1.0 };
    let y = g.add("local", op, &[case.operands[0]]).unwrap();
    let y = g.add("behind", Op::Unary(Unary::Relu), &[y]).unwrap();
    let seed = g.public("seed", HostTensor::new([1, 2, 3], vec![1.0; 6]).unwrap());
    let before = format!("{g:?}");
    let error = g.gradients(y, seed, &case.operands).unwrap_err();
    assert!(matches!(&error, Error::Node { node, .. } if node == "local"), "{error}");
    assert_eq!(format!("{g:?}"), before);
}

#[test]
fn signs_whole_parts_comparisons_and_positions_pass_no_gradient() {
    let mut r = Random(12);
    let x = r.tensor(&[2, 3], 2.0);
    let mul = Op::Binary(Binary::Mul);
    for f in [Unary::Sign, Unary::Floor] {
        let mut case = Case::new(std::slice::from_ref(&x));
        let (g, x) = (&mut case.graph, case.operands[0]);
        let flat = g.add("flat", Op::Unary(f), &[x]).unwrap();
        let y = g.add("y", mul.clone(), &[flat, x]).unwrap();
        assert!(case.error(y, &[0]) < 1e-6, "{f:?}");
    }
    let mut case = Case::new(std::slice::from_ref(&x));
    let (g, x) = (&mut case.graph, case.operands[0]);
    let limit = g.public("limit", HostTensor::scalar(0.1));
    let larger = g.add("larger", Op::Binary(Binary::Greater), &[x, limit]).unwrap();
    let square = g.add("square", mul, &[x, x]).unwrap();
    let y = g.add("where", Op::Where, &[larger, x, square]).unwrap();
    // A value that depends on inputs only through a comparison does not get a gradient at all.
    let seed = g.public("seed", HostTensor::new([2, 3], vec![1.0; 6]).unwrap());
    let error = g.gradients(larger, seed, &[x]).unwrap_err().to_string();
    assert!(error.contains("does not depend on"), "{error}");
    assert!(case.error(y, &[0]) < 1e-6);
}

#[test]
fn extremes_pass_their_gradient_to_those_that_are_one_in_equal_parts() {
    let mut r = Random(13);
    for kind in [Reduce::Max, Reduce::Min] {
        for (axes, keep) in [(vec![1], false), (vec![0, 2], true), (vec![0, 1, 2], false)] {
            check(Op::Reduce { kind, axes, keep }, &[distinct(&mut r, &[2, 3, 4])]);
        }
    }
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Fixed(5)]).unwrap();
    let op = Op::Reduce { kind: Reduce::Max, axes: vec![0], keep: true };
    let y = g.add("max", op, &[x]).unwrap();
    let seed = g.public("seed", HostTensor::new([1], vec![6.0]).unwrap());
    let grad = g.gradients(y, seed, &[x]).unwrap()[0];
    g.output("grad", grad);
    let x = HostTensor::new([5], vec![2.0, 1.0, 2.0, 2.0, 0.0]).unwrap();
    assert_eq!(g.evaluate(&[x]).unwrap()[0].floats().to_vec(), [2.0, 0.0, 2.0, 2.0, 0.0]);
}

#[test]
fn nothing_is_added_for_what_is_not_wanted() {
    let mut r = Random(11);
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Fixed(2), Dim::Fixed(3)]).unwrap();
    let frozen = g.weight("frozen", r.tensor(&[3, 3], 1.0));
    let trained = g.weight("trained", r.tensor(&[3, 3], 1.0));
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    // A position along the way lacks a gradient, but it is not requested either.
    let y = g.add("first", product.clone(), &[x, frozen]).unwrap();
    let y = g.add("floor", Op::Unary(Unary::Floor), &[y]).unwrap();
    assert_eq!(g.train(|name| name == "trained"), [trained]);
    let y = g.add("second", product, &[y, trained]).unwrap();
    let seed = g.public("seed", r.tensor(&[2, 3], 1.0));
    let before = format!("{g:?}").matches("Node {").count();
    let grads = g.gradients(y, seed, &[trained]).unwrap();
    assert_eq!(g.shape(grads[0]).dims(), [3, 3]);
    assert_eq!(
        format!("{g:?}").matches("Node {").count(),
        before + 1,
        "one product for one weight"
    );
}
