//! Values that leave the range of fixed point are known before anything runs on shares: from a run in the
//! clear, and from bounds.

use crate::common::{Random, dense, relu};
use mpc_core::{Plaintext, Protocol};
use nn_layers::{Binary, Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Reduce, Unary};
use ring_arith::{CpuEngine, Engine};

/// Two dense layers with the weights of the second larger by a factor.
fn network(factor: f64, frac: u32) -> Compiled {
    let mut r = Random(3);
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(16)]).unwrap();
    let y = dense(&mut g, &mut r, x, "fc1", 16);
    let y = relu(&mut g, y);
    let y = dense(&mut g, &mut r, y, "fc2", 4);
    g.output("y", y);
    let compiled = Compiled::new(&g, &PlanOptions::default().with_frac(frac)).unwrap();
    let names = compiled.plan.weights();
    let larger = compiled.weights.iter().zip(names).map(|(value, spec)| {
        if spec.name.starts_with("fc2.weight") { value.map(|v| v * factor) } else { value.clone() }
    });
    Compiled { weights: larger.collect(), plan: compiled.plan }
}

fn input() -> HostTensor {
    Random(4).tensor(&[1, 16], 1.0)
}

#[test]
fn a_run_in_the_clear_says_how_large_values_are_and_how_much_room_is_left() {
    let Compiled { plan, weights } = network(1.0, 20);
    let seen = plan.inspect(CpuEngine::new(1), &weights, &[input()]).unwrap();
    assert_eq!(seen.refusal, None);
    let names: Vec<_> = seen.values.iter().map(|v| (v.name.as_str(), v.kind)).collect();
    assert_eq!(names, [("fc1", "linear+relu"), ("fc2", "linear")]);
    let exact = plan.evaluate(&weights, &[input()]).unwrap();
    let largest = exact[0].floats().iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let last = &seen.values[1];
    assert!((last.largest - largest).abs() <= last.error + 1e-12, "{last:?}");
    assert!(last.error > 0.0 && last.error < 1e-4, "{last:?}");
    // A number of 22 bits before the point is the largest there is.
    assert!((last.room.unwrap() - (22.0 - largest.log2())).abs() < 0.01, "{last:?}");
    let Compiled { plan, weights } = network(8.0, 20);
    let louder = plan.inspect(CpuEngine::new(1), &weights, &[input()]).unwrap();
    let (last, louder) = (last, &louder.values[1]);
    assert!(louder.largest > 2.0 * last.largest);
    let together = [last, louder].map(|seen| seen.room.unwrap() + seen.largest.log2());
    assert!((together[0] - together[1]).abs() < 0.01, "{together:?}");
}

#[test]
fn a_run_in_the_clear_ends_where_a_value_leaves_its_range_and_names_the_layer() {
    let Compiled { plan, weights } = network(2f64.powi(26), 20);
    let seen = plan.inspect(CpuEngine::new(1), &weights, &[input()]).unwrap();
    let refusal = seen.refusal.unwrap();
    assert_eq!(refusal.name, "fc2");
    assert!(refusal.reason.contains("below 2^62"), "{refusal:?}");
    assert_eq!(seen.values.len(), 1);
    // With fewer fraction bits it fits.
    let Compiled { plan, weights } = network(2f64.powi(26), 12);
    assert_eq!(plan.inspect(CpuEngine::new(1), &weights, &[input()]).unwrap().refusal, None);
}

#[test]
fn a_run_in_the_clear_within_domains_refuses_what_on_shares_would_be_a_wrong_number() {
    for (function, inside, outside) in [
        (Unary::Log, 0.5, 0.0),
        (Unary::Reciprocal, -0.5, 0.0),
        (Unary::Sqrt, 0.0, -1.0),
        (Unary::Exp, 10.0, 12.0),
    ] {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(2)]).unwrap();
        let y = g.add("function", Op::Unary(function), &[x]).unwrap();
        g.output("y", y);
        let Compiled { plan, .. } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        let run = |value: f64| {
            let mut mpc = Plaintext::new(CpuEngine::new(1));
            let x = HostTensor::new([1, 2], vec![0.25, value]).unwrap();
            let words = mpc.engine().upload(plan.encode_input(0, 1, &x).unwrap()).unwrap();
            let inputs = plan.secret_inputs(vec![mpc.constant(&words).unwrap()]);
            plan.run_within_domains(&mut mpc, &[], &inputs, &mut ()).map(|made| made.len())
        };
        assert_eq!(run(inside).unwrap(), 1, "{function:?}");
        let text = run(outside).unwrap_err().to_string();
        assert!(text.contains("`function`") && text.contains("its operand"), "{text}");
    }
}

#[test]
fn a_function_whose_operand_leaves_its_domain_has_less_than_no_room() {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(2)]).unwrap();
    let y = g.add("exp", Op::Unary(Unary::Exp), &[x]).unwrap();
    g.output("y", y);
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    for (value, inside) in [(10.0, true), (12.0, false)] {
        let x = HostTensor::new([1, 2], vec![-40.0, value]).unwrap();
        let seen = plan.inspect(CpuEngine::new(1), &weights, &[x]).unwrap();
        assert_eq!(seen.values[0].room.unwrap() > 0.0, inside, "{value}");
        let found = plan.excesses(&weights, &[(-40.0, value)]).unwrap();
        assert_eq!(found.is_empty(), inside, "{value}");
    }
}

#[test]
fn what_overflows_in_the_clear_was_named_by_the_bounds_with_bits_that_help() {
    let quiet = network(1.0, 20);
    assert_eq!(quiet.plan.excesses(&quiet.weights, &[(-1.0, 1.0)]).unwrap(), []);
    for bits in [22, 24, 30] {
        let Compiled { plan, weights } = network(2f64.powi(bits), 20);
        let refused =
            plan.inspect(CpuEngine::new(1), &weights, &[input()]).unwrap().refusal.is_some();
        let found = plan.excesses(&weights, &[(-1.0, 1.0)]).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "fc2");
        assert!(refused || bits < 24, "{bits}");
        let fits = found[0].fits_at.unwrap();
        let Compiled { plan, weights } = network(2f64.powi(bits), fits);
        assert_eq!(plan.excesses(&weights, &[(-1.0, 1.0)]).unwrap(), [], "{fits} fraction bits");
        let Compiled { plan, weights } = network(2f64.powi(bits), fits + 1);
        assert_eq!(
            plan.excesses(&weights, &[(-1.0, 1.0)]).unwrap().len(),
            1,
            "{fits} and one more"
        );
    }
}

/// One layer with a weight of one element, applied to numbers.
fn times(weight: f64, bias: f64, x: &[f64]) -> (Compiled, Vec<f64>) {
    let mut g = Graph::new(1);
    let input = g.input("x", &[Dim::Batch(1), Dim::Fixed(x.len())]).unwrap();
    let w = g.weight("scale", HostTensor::new([1], vec![weight]).unwrap());
    let b = g.weight("shift", HostTensor::new([1], vec![bias]).unwrap());
    let y = g.add("scaled", Op::Binary(Binary::Mul), &[input, w]).unwrap();
    let y = g.add("shifted", Op::Binary(Binary::Add), &[y, b]).unwrap();
    g.output("y", y);
    let compiled = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let x = HostTensor::new([1, x.len()], x.to_vec()).unwrap();
    let seen = compiled.plan.inspect(CpuEngine::new(1), &compiled.weights, &[x]).unwrap();
    assert_eq!(seen.refusal, None);
    let errors = seen.values.iter().map(|value| value.error).collect();
    (compiled, errors)
}

#[test]
fn small_weights_keep_three_digits_and_large_biases_their_room() {
    for (weight, bias) in [(1e-6, 0.0), (3e-5, 0.25), (1e-6, 100.0), (-7e-4, -3.0), (0.5, 1e5)] {
        let (compiled, errors) = times(weight, bias, &[1e6, -2.5e5, 3e6]);
        let largest = 3e6 * f64::abs(weight);
        assert!(errors.iter().all(|error| *error < 1e-3 * largest.max(1.0)), "{weight} {errors:?}");
        assert!(compiled.plan.rounding(&compiled.weights).unwrap().iter().all(|off| *off < 1e-3));
    }
}

#[test]
fn the_formats_of_small_weights_leave_room_for_the_largest_values_and_are_told() {
    let mut r = Random(7);
    for (k, factor) in [(4, 1e-4), (4, 1e-7), (1000, 1e-4), (64, 0.3)] {
        for transpose_rhs in [false, true] {
            let mut g = Graph::new(1);
            let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(k)]).unwrap();
            let dims = if transpose_rhs { [3, k] } else { [k, 3] };
            let w = g.weight("w", r.tensor(&dims, 1.0).map(|v| factor * v.signum()));
            let op = Op::MatMul { transpose_lhs: false, transpose_rhs };
            let y = g.add("layer", op, &[x, w]).unwrap();
            let y = relu(&mut g, y);
            g.output("y", y);
            let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
            let told = plan.operations().next().unwrap();
            assert_eq!((told.name, told.frac), ("layer", 20));
            // The results of another layer, up to 2^22, leave it room.
            let limit = told.limit.unwrap();
            let largest = k as f64 * factor * 22f64.exp2();
            assert!(limit >= largest || limit == 22f64.exp2(), "{k} {factor}: {limit}");
            // And the limit is where a run in the clear ends.
            for (part, runs) in [(0.99, true), (1.01, false)] {
                let of_column = |i: usize| {
                    let values = weights[0].floats();
                    let sign = values[if transpose_rhs { i } else { 3 * i }].signum();
                    sign * part * limit / (k as f64 * factor)
                };
                let x = HostTensor::new([1, k], (0..k).map(of_column).collect()).unwrap();
                let seen = plan.inspect(CpuEngine::new(1), &weights, &[x]).unwrap();
                assert_eq!(seen.refusal.is_none(), runs, "{k} {factor} {part} {:?}", seen.refusal);
            }
        }
    }
}

#[test]
fn formats_of_small_weights_follow_from_the_stated_range() {
    let compiled = |range: Option<(f64, f64)>| {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
        let w = g.weight("w", HostTensor::new([4, 1], vec![1e-4; 4]).unwrap());
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add("layer", op, &[x, w]).unwrap();
        let y = relu(&mut g, y);
        g.output("y", y);
        Compiled::new(&g, &PlanOptions::default().with_ranges(vec![range])).unwrap()
    };
    let x = [HostTensor::new([1, 4], vec![1e9, -7e8, 3e8, 9e8]).unwrap()];
    let seen = |Compiled { plan, weights }: &Compiled| {
        plan.inspect(CpuEngine::new(1), weights, &x).unwrap()
    };
    // An input without a stated range does not fit such numbers, and is refused.
    assert!(seen(&compiled(None)).refusal.is_some());
    let stated = compiled(Some((-1e9, 1e9)));
    let seen = seen(&stated);
    assert_eq!(seen.refusal, None);
    assert!((seen.results[0].floats()[0] - 150_000.0).abs() < 300.0, "{:?}", seen.results);
    // Small inputs leave room for more bits of the weights.
    let rounding = |range| {
        let Compiled { plan, weights } = compiled(range);
        plan.rounding(&weights).unwrap()[0]
    };
    assert!(rounding(Some((-1.0, 1.0))) <= rounding(None));
}

#[test]
fn the_rounding_of_a_weight_is_that_of_its_worst_column() {
    let off = |raw: bool| {
        let mut g = Graph::new(1);
        let mut x = g.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
        if !raw {
            x = g.add("sigmoid", Op::Unary(Unary::Sigmoid), &[x]).unwrap();
        }
        let w = HostTensor::new([2, 3], vec![0.5, 1e-6, 0.25, 1.0, 1.3e-6, 0.125]).unwrap();
        let w = g.weight("w", w);
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        let y = g.add("fc", op, &[x, w]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        plan.rounding(&weights).unwrap()[0]
    };
    assert!((0.01..1.0).contains(&off(false)), "{}", off(false));
    // Columns of inputs are evened out.
    assert!(off(true) < 1e-4, "{}", off(true));
}

/// The bits of room that the fullest value has left, and the largest error as a part of the largest result.
fn fit(graph: &Graph, samples: &[Vec<HostTensor>], input: &HostTensor) -> (f64, f64) {
    let options = PlanOptions::default().with_samples(samples.to_vec());
    let Compiled { plan, weights } = Compiled::new(graph, &options).unwrap();
    let input = std::slice::from_ref(input);
    let seen = plan.inspect(CpuEngine::new(1), &weights, input).unwrap();
    if seen.refusal.is_some() || seen.values.iter().any(|value| value.outside.is_some()) {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let room = seen.values.iter().filter_map(|value| value.room).fold(f64::INFINITY, f64::min);
    let exact = graph.evaluate(input).unwrap();
    let (exact, made) = (exact[0].floats(), seen.results[0].floats());
    let largest = exact.iter().fold(0.0, |most: f64, v| v.abs().max(most));
    let error = exact.iter().zip(made.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    (room, error / largest)
}

#[test]
fn layers_with_large_numbers_get_fewer_fraction_bits_and_the_others_keep_theirs() {
    let sized = |high: f64| {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(16)]).unwrap();
        (g, x, Random(5).tensor(&[1, 16], high))
    };
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let weigh = |g: &mut Graph, x, name: &str, factor: f64| {
        let weight = g.weight(name, Random(6).tensor(&[16, 16], factor));
        g.add(name, product.clone(), &[x, weight]).unwrap()
    };
    // Small weights of large inputs.
    let (mut g, x, large) = sized(1e9);
    let y = weigh(&mut g, x, "small", 1e-4);
    let y = relu(&mut g, y);
    g.output("y", y);
    let mut cases = vec![("inputs", g, large)];
    // A layer of large weights between others.
    let (mut g, x, one) = sized(1.0);
    let y = weigh(&mut g, x, "usual", 1.0);
    let y = weigh(&mut g, y, "large", 1e8);
    let y = relu(&mut g, y);
    let y = weigh(&mut g, y, "small", 1e-8);
    let y = weigh(&mut g, y, "last", 1.0);
    g.output("y", y);
    cases.push(("layer", g, one));
    // A product of secrets, and a sum with a value of its own format.
    let (mut g, x, large) = sized(1e5);
    let y = weigh(&mut g, x, "fc", 1.0);
    let z = g.add("product", Op::Binary(Binary::Mul), &[x, y]).unwrap();
    let z = g.add("sum", Op::Binary(Binary::Add), &[z, x]).unwrap();
    g.output("z", z);
    cases.push(("product", g, large));
    // Squares, in a sum and in a power.
    let (mut g, x, large) = sized(1e6);
    let norm = Op::Reduce { kind: Reduce::L2, axes: vec![1], keep: true };
    let norm = g.add("norm", norm, &[x]).unwrap();
    let y = g.add("square", Op::Unary(Unary::Pow(2.0)), &[x]).unwrap();
    let y = g.add("sum", Op::Binary(Binary::Add), &[y, norm]).unwrap();
    g.output("y", y);
    cases.push(("squares", g, large));
    for (name, graph, input) in cases {
        let (room, _) = fit(&graph, &[], &input);
        assert!(room < 0.0, "{name}: all at 20 bits have room {room}");
        let (room, error) = fit(&graph, &[vec![input.clone()]], &input);
        assert!(room >= 1.0 && error < 1e-4, "{name}: room {room}, error {error:e}");
    }
}
