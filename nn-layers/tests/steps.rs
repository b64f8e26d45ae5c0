//! Networks that run step by step on shares that stay: the same as at once, for the cost of the new positions.

use crate::common::Random;
use mpc_core::{Format, Operand, Profile, Protocol, Result, SecretTensor, TestWorld};
use net::{Metered, Party, Report, Session};
use nn_layers::{
    Binary, Caches, Compiled, Dim, Graph, HostTensor, Op, Plan, PlanOptions, Sizes, ValueId,
};
use ring_arith::{CpuEngine, Engine, EngineTensor, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};

const WIDTH: usize = 16;
const HEADS: usize = 4;
const DEPTH: usize = WIDTH / HEADS;
const ROWS: usize = 256;

/// One position for each that is cached, and `more`.
fn past(more: usize) -> Dim {
    Dim::Past { times: 1, more }
}

/// A dense layer with random weights.
fn dense(g: &mut Graph, r: &mut Random, name: &str, x: ValueId) -> ValueId {
    let weight = g.weight(&format!("{name}.weight"), r.tensor(&[WIDTH, WIDTH], 0.4));
    let bias = g.weight(&format!("{name}.bias"), r.tensor(&[WIDTH], 0.4));
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add(name, product, &[x, weight]).unwrap();
    g.add(name, Op::Binary(Binary::Add), &[y, bias]).unwrap()
}

/// Two blocks of causal attention over `[1, new, WIDTH]`, with a table of positions and angles that turn queries.
fn network(new: usize, cached: usize) -> Graph {
    let mut r = Random(5);
    let mut g = Graph::new(1).with_past(cached);
    let mut x = g.input("x", &[Dim::Fixed(1), Dim::Fixed(new), Dim::Fixed(WIDTH)]).unwrap();
    let table = g.weight("positions", r.tensor(&[ROWS, WIDTH], 0.5));
    let rows = Op::Window { axis: 0, start: past(0), end: past(new) };
    let rows = g.add("rows", rows, &[table]).unwrap();
    x = g.add("placed", Op::Binary(Binary::Add), &[x, rows]).unwrap();
    let at = g.add("at", Op::Positions { from: past(0), to: past(new) }, &[]).unwrap();
    let at = g.add("at", Op::Reshape(vec![Dim::Fixed(new), Dim::Fixed(1)]), &[at]).unwrap();
    let speed = g.public("speed", HostTensor::new([DEPTH], vec![0.3, 0.1, 0.03, 0.01]).unwrap());
    let angle = g.add("angle", Op::Binary(Binary::Mul), &[at, speed]).unwrap();
    let angle = g.add("cosines", Op::Unary(nn_layers::Unary::Cos), &[angle]).unwrap();
    for block in ["first", "second"] {
        let heads = |g: &mut Graph, r: &mut Random, part: &str| {
            let name = format!("{block}.{part}");
            let y = dense(g, r, &name, x);
            let dims = [1, new, HEADS, DEPTH].map(Dim::Fixed).to_vec();
            let y = g.add(&name, Op::Reshape(dims), &[y]).unwrap();
            g.add(&name, Op::Permute(vec![0, 2, 1, 3]), &[y]).unwrap()
        };
        let [q, k, v] = ["query", "key", "value"].map(|part| heads(&mut g, &mut r, part));
        let q = g.add("turned", Op::Binary(Binary::Mul), &[q, angle]).unwrap();
        let dims = [1, HEADS, 0, DEPTH].map(Dim::Fixed);
        let [k, v] = [("key", k), ("value", v)].map(|(part, by)| {
            let state = g.state(&format!("past.{block}.{part}"), &dims, 2).unwrap();
            g.extend(&format!("present.{block}.{part}"), state, by).unwrap()
        });
        let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
        let scores = g.add("scores", product(true), &[q, k]).unwrap();
        let mut scores = g.add("scaled", Op::Scale(0.5), &[scores]).unwrap();
        if new > 1 {
            let hidden = (0..new * new).map(|i| if i % new > i / new { -1000.0 } else { 0.0 });
            let hidden = HostTensor::new([new, new], hidden.collect()).unwrap();
            let hidden = g.public("later", hidden);
            let none = g.public("earlier", HostTensor::new([1, 1], vec![0.0]).unwrap());
            let dims = vec![Dim::Fixed(new), past(0)];
            let none = g.add("earlier", Op::Broadcast(dims), &[none]).unwrap();
            let mask = g.add("mask", Op::Concat(1), &[none, hidden]).unwrap();
            scores = g.add("masked", Op::Binary(Binary::Add), &[scores, mask]).unwrap();
        }
        let weights = g.add("weights", Op::Softmax { axis: 3, log: false }, &[scores]).unwrap();
        let y = g.add("gathered", product(false), &[weights, v]).unwrap();
        let y = g.add("joined", Op::Permute(vec![0, 2, 1, 3]), &[y]).unwrap();
        let dims = [1, new, WIDTH].map(Dim::Fixed).to_vec();
        let y = g.add("joined", Op::Reshape(dims), &[y]).unwrap();
        let y = dense(&mut g, &mut r, &format!("{block}.output"), y);
        x = g.add("sum", Op::Binary(Binary::Add), &[x, y]).unwrap();
    }
    g.output("y", x);
    g
}

fn compiled(new: usize) -> Compiled {
    Compiled::new(&network(new, 2), &PlanOptions::default()).unwrap()
}

/// Rows `from..to` of `[1, time, WIDTH]`.
fn rows(x: &HostTensor, from: usize, to: usize) -> HostTensor {
    let values = x.floats()[from * WIDTH..to * WIDTH].to_vec();
    HostTensor::new([1, to - from, WIDTH], values).unwrap()
}

/// All of `x` in steps of these lengths, in the clear.
fn in_the_clear(x: &HostTensor, steps: &[usize]) -> Vec<f64> {
    let (mut caches, mut all) = (Caches::new(), vec![]);
    for &new in steps {
        let Compiled { plan, weights } = compiled(new);
        let at = caches.past();
        let y = plan.evaluate_step(&weights, &mut caches, &[rows(x, at, at + new)]).unwrap();
        assert_eq!(y.len(), 1);
        all.extend_from_slice(&y[0].floats());
    }
    assert_eq!(caches.past(), steps.iter().sum::<usize>());
    all
}

fn share<P: Protocol>(mpc: &mut P, tensors: &[Tensor]) -> Result<Vec<P::Share>> {
    let shapes: Vec<_> = tensors.iter().map(|x| x.shape().clone()).collect();
    let words = tensors.iter().map(|x| mpc.engine().upload(x.clone()));
    let words = words.collect::<ring_arith::Result<Vec<_>>>()?;
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(&words))
}

/// A step on shares; the result is opened.
fn step<P: Protocol>(
    mpc: &mut P,
    compiled: &Compiled,
    weights: &[Operand<P>],
    caches: &mut Caches<SecretTensor<P>>,
    x: &HostTensor,
) -> Result<Vec<f64>> {
    let plan = &compiled.plan;
    let sizes = Sizes { batch: 1, past: caches.past() };
    let place = plan.inputs().iter().position(|input| input.name == "x").unwrap();
    let words = plan.encode_input(place, sizes, x).unwrap();
    let input = share(mpc, &[words])?.remove(0);
    let input = Operand::Secret(SecretTensor::new(input, Format::words(plan.frac())));
    let y = plan.step(mpc, weights, caches, &[input], &mut ()).unwrap();
    let words = mpc.open(&[y[0].share()])?.remove(0);
    let words = mpc.engine().download(&words)?;
    let unit = (-f64::from(y[0].frac())).exp2();
    Ok(words.words().iter().map(|&w| w as i64 as f64 * unit).collect())
}

fn largest_difference(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn steps_in_the_clear_are_the_whole_at_once() {
    let x = Random(9).tensor(&[1, 20, WIDTH], 1.0);
    let whole = in_the_clear(&x, &[20]);
    for steps in [vec![1; 20], vec![8, 8, 1, 1, 1, 1], vec![1, 3, 16]] {
        let error = largest_difference(&in_the_clear(&x, &steps), &whole);
        assert!(error < 1e-9, "{steps:?}: {error}");
    }
    // Positions and what is cached count.
    let mut other = x.floats().to_vec();
    other[0] += 0.5;
    let other = HostTensor::new([1, 20, WIDTH], other).unwrap();
    let last = 19 * WIDTH;
    let moved = in_the_clear(&other, &[1; 20]);
    assert!(largest_difference(&moved[last..], &whole[last..]) > 1e-3);
}

#[test]
fn steps_on_shares_are_the_whole_at_once() {
    let x = Random(11).tensor(&[1, 20, WIDTH], 1.0);
    let whole = in_the_clear(&x, &[20]);
    let program = move |session: Session| -> Result<_> {
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let plans = [compiled(8), compiled(1)];
        let words = plans[0].plan.encode_weights(&plans[0].weights).unwrap();
        let shares = share(&mut mpc, &words)?;
        let weights = plans[0].plan.secret_weights(shares);
        // Plans for other numbers of positions take the same weights.
        assert_eq!(plans[0].plan.weights(), plans[1].plan.weights());
        let mut caches = Caches::new();
        let mut all = vec![];
        for new in [8, 1, 1, 8, 1, 1] {
            let own = &plans[usize::from(new == 1)];
            let at = caches.past();
            all.extend(step(&mut mpc, own, &weights, &mut caches, &rows(&x, at, at + new))?);
        }
        // Positions are forgotten, and come again.
        plans[1].plan.rewind(&mpc, &mut caches, 19).unwrap();
        assert_eq!(caches.past(), 19);
        let again = step(&mut mpc, &plans[1], &weights, &mut caches, &rows(&x, 19, 20))?;
        assert!(plans[1].plan.rewind(&mpc, &mut caches, 21).is_err());
        Ok((all, again))
    };
    for outcome in TestWorld::new(3).try_sessions(program) {
        let (all, again) = outcome.unwrap();
        let error = largest_difference(&all, &whole);
        assert!(error < f64::from(-12).exp2(), "{error}");
        let error = largest_difference(&again, &whole[19 * WIDTH..]);
        assert!(error < f64::from(-12).exp2(), "{error}");
    }
}

#[test]
fn steps_are_guarded_and_inspected() {
    let program = |session: Session| -> Result<_> {
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let Compiled { plan, weights } = compiled(2);
        let plan = plan.with_guard(true);
        let words = plan.encode_weights(&weights).unwrap();
        let shares = share(&mut mpc, &words)?;
        let weights = plan.secret_weights(shares);
        let mut caches = Caches::new();
        let mut found = vec![];
        // The last step's numbers leave the range of products.
        for scale in [1.0, 1.0, 500_000.0] {
            let x = Random(7).tensor(&[1, 2, WIDTH], scale);
            let sizes = Sizes { batch: 1, past: caches.past() };
            let words = plan.encode_input(0, sizes, &x).unwrap();
            let input = share(&mut mpc, &[words])?.remove(0);
            let inputs = [Operand::Secret(SecretTensor::new(input, Format::words(plan.frac())))];
            let given = (&inputs[..], 7);
            let (y, left) =
                plan.step_guarded(&mut mpc, &weights, &mut caches, given, &mut ()).unwrap();
            assert_eq!(y.len(), 1);
            let left = mpc.open(&[left.share()])?.remove(0);
            let left = mpc.engine().download(&left)?;
            assert_eq!(left.words().len(), plan.guarded().len());
            found.push(left.words().iter().any(|&word| word != 0));
        }
        assert_eq!(caches.past(), 6);
        Ok(found)
    };
    for outcome in TestWorld::new(3).try_sessions(program) {
        assert_eq!(outcome.unwrap(), [false, false, true]);
    }
    let Compiled { plan, weights } = compiled(2);
    let mut r = Random(4);
    let shapes = plan.input_shapes(Sizes { batch: 1, past: 7 }).unwrap();
    let inputs: Vec<_> = shapes.iter().map(|shape| r.tensor(shape.dims(), 1.0)).collect();
    let seen = plan.inspect(CpuEngine::new(1), &weights, &inputs).unwrap();
    assert_eq!(seen.refusal, None);
    let expected = plan.evaluate(&weights, &inputs).unwrap();
    for (got, expected) in seen.results.iter().zip(&expected) {
        assert!(largest_difference(&got.floats(), &expected.floats()) < 1e-4);
    }
    let ranges = vec![(-1.0, 1.0); plan.inputs().len()];
    assert!(plan.excesses(&weights, &ranges).is_ok());
}

/// Bytes that the three parties send together, and rounds, of a run of a plan with inputs of these sizes.
fn cost(plan: &Plan, sizes: Sizes) -> (u64, u32) {
    let plan = plan.clone();
    let program = move |mut session: Session| -> Result<_> {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::with_options(session, ShapeEngine, Options::default())?;
        mpc.set_profile(Profile::Bytes);
        let zeros = |shapes: Vec<Shape>| shapes.into_iter().map(Tensor::zeros).collect::<Vec<_>>();
        let weights = plan.weights().into_iter().map(|weight| weight.shape).collect();
        let weights = share(&mut mpc, &zeros(weights))?;
        let inputs = share(&mut mpc, &zeros(plan.input_shapes(sizes).unwrap()))?;
        meter.reset();
        let (weights, inputs) = (plan.secret_weights(weights), plan.secret_inputs(inputs));
        plan.run(&mut mpc, &weights, &inputs, &mut ()).unwrap();
        Ok(meter.stats())
    };
    let stats = TestWorld::new(3).try_sessions(program).into_iter().map(Result::unwrap);
    let report = Report::of(&stats.collect::<Vec<_>>());
    (report.bytes, report.rounds)
}

/// Bytes of softmax and the products before and after it, for one query of each head.
fn attention(keys: usize) -> u64 {
    let mut g = Graph::new(1);
    let [q, k, v] = [1, keys, keys].map(|time| {
        let dims = [1, HEADS, time, DEPTH].map(Dim::Fixed);
        g.input("x", &dims).unwrap()
    });
    let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
    let scores = g.add("scores", product(true), &[q, k]).unwrap();
    let scores = g.add("scaled", Op::Scale(0.5), &[scores]).unwrap();
    let weights = g.add("weights", Op::Softmax { axis: 3, log: false }, &[scores]).unwrap();
    let y = g.add("gathered", product(false), &[weights, v]).unwrap();
    g.output("y", y);
    let plan = Compiled::new(&g, &PlanOptions::default()).unwrap().plan;
    cost(&plan, 1.into()).0
}

#[test]
fn a_step_takes_the_bytes_and_rounds_stated() {
    let plan = compiled(1).plan;
    let costs = [63, 127].map(|past| cost(&plan, Sizes { batch: 1, past }));
    assert_eq!(costs, [(220_800, 128), (399_952, 138)]);
}

#[test]
fn a_tokens_bytes_grow_by_softmax_and_two_products_for_each_position() {
    let plan = compiled(1).plan;
    let token = |past: usize| cost(&plan, Sizes { batch: 1, past }).0;
    let mut before = None;
    for past in [15, 63, 127, 191] {
        let rest = token(past) - 2 * attention(past + 1);
        assert_eq!(*before.get_or_insert(rest), rest, "{past} cached positions");
    }
    let values = |keys: usize| {
        let mut g = Graph::new(1);
        let weights = [1, HEADS, 1, keys].map(Dim::Fixed);
        let weights = g.input("weights", &weights).unwrap();
        let v = g.input("values", &[1, HEADS, keys, DEPTH].map(Dim::Fixed)).unwrap();
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add("gathered", product, &[weights, v]).unwrap();
        g.output("y", y);
        cost(&Compiled::new(&g, &PlanOptions::default()).unwrap().plan, 1.into()).0
    };
    // One number of each head and depth is truncated, over however many positions its sum goes.
    assert_eq!(values(16), values(192));
}

#[test]
fn a_plan_with_states_is_written_and_read() {
    let plan = compiled(1).plan;
    assert_eq!(plan.states().len(), 4);
    assert_eq!(plan.new_positions(), Some(1));
    assert!(!plan.keeps_examples_apart());
    let words = plan.state_words(Sizes { batch: 1, past: 100 }).unwrap();
    assert_eq!(words, 4 * 100 * WIDTH);
    let text = serde_json::to_value(&plan).unwrap();
    assert_eq!(serde_json::from_value::<Plan>(text.clone()).unwrap(), plan);
    for (key, value) in [("input", 0), ("output", 4), ("output", 9), ("axis", 1), ("axis", 7)] {
        let mut damaged = text.clone();
        damaged["states"][0][key] = value.into();
        assert!(serde_json::from_value::<Plan>(damaged).is_err(), "{key} {value}");
    }
    let mut twice = text.clone();
    twice["states"][1] = twice["states"][0].clone();
    assert!(serde_json::from_value::<Plan>(twice).is_err());
}

#[test]
fn steps_that_do_not_fit_are_errors() {
    let Compiled { plan, weights } = compiled(1);
    let x = Random(3).tensor(&[1, 1, WIDTH], 1.0);
    let mut caches = Caches::new();
    let none = plan.evaluate_step(&weights, &mut caches, &[]).unwrap_err();
    assert!(none.to_string().contains("0 inputs of a step, 1 "), "{none}");
    let wide = Random(3).tensor(&[1, 2, WIDTH], 1.0);
    assert!(plan.evaluate_step(&weights, &mut caches, &[wide]).is_err());
    assert_eq!(caches.past(), 0);
    for _ in 0..ROWS {
        plan.evaluate_step(&weights, &mut caches, std::slice::from_ref(&x)).unwrap();
    }
    // The table of positions ends.
    let over = plan.evaluate_step(&weights, &mut caches, std::slice::from_ref(&x)).unwrap_err();
    assert!(over.to_string().contains("256..257 is not within axis 0"), "{over}");
    assert_eq!(caches.past(), ROWS);
    // Another network's caches.
    let mut g = Graph::new(1).with_past(0);
    let state = g.state("past", &[Dim::Fixed(0), Dim::Fixed(WIDTH)], 0).unwrap();
    let new = g.input("x", &[Dim::Fixed(1), Dim::Fixed(WIDTH)]).unwrap();
    assert!(g.extend("present", new, new).is_err());
    assert!(Compiled::new(&g, &PlanOptions::default()).is_err());
    g.extend("present", state, new).unwrap();
    assert!(g.extend("again", state, new).is_err());
    let other = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let row = Random(3).tensor(&[1, WIDTH], 1.0);
    let error = other.plan.evaluate_step(&[], &mut caches, &[row]).unwrap_err();
    assert!(error.to_string().contains("caches of 4 states, the plan has 1"), "{error}");
    assert!(Graph::new(1).state("past", &[Dim::Fixed(0)], 0).is_err());
}

#[test]
fn texts_of_a_batch_take_their_steps_together() {
    let mut g = Graph::new(1).with_past(2);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(2)]).unwrap();
    let state = g.state("seen", &[Dim::Batch(1), Dim::Fixed(0), Dim::Fixed(2)], 1).unwrap();
    let seen = g.extend("present", state, x).unwrap();
    let kind = nn_layers::Reduce::Sum;
    let sum = g.add("sum", Op::Reduce { kind, axes: vec![1], keep: false }, &[seen]).unwrap();
    g.output("sum", sum);
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    let mut caches = Caches::new();
    let x = Random(2).tensor(&[3, 1, 2], 1.0);
    for step in 1..4 {
        let y = plan.evaluate_step(&weights, &mut caches, std::slice::from_ref(&x)).unwrap();
        let expected: Vec<_> = x.floats().iter().map(|v| v * f64::from(step)).collect();
        assert!(largest_difference(&y[0].floats(), &expected) < 1e-12);
    }
    // Another batch size than that of the caches.
    let other = Random(2).tensor(&[2, 1, 2], 1.0);
    assert!(plan.evaluate_step(&weights, &mut caches, &[other]).is_err());
    assert_eq!(caches.past(), 3);
}

/// The network as an importer builds it, for one number of cached positions; `square` makes it grow in a way that
/// cannot be followed.
fn built_for(cached: usize, square: bool) -> Graph {
    let new = 2;
    let mut g = Graph::new(1).with_past(cached);
    let state = g.state("past", &[Dim::Fixed(0), Dim::Fixed(3)], 0).unwrap();
    let x = g.input("x", &[Dim::Fixed(new), Dim::Fixed(3)]).unwrap();
    let all = g.add("all", Op::Concat(0), &[state, x]).unwrap();
    g.grow("present", state, all).unwrap();
    let places = (0..new).map(|i| (cached + i) as i64).collect();
    let places = g.public("places", HostTensor::integers([new, 1], places).unwrap());
    let real = g.add("real", Op::Scale(0.25), &[places]).unwrap();
    let waves = g.add("waves", Op::Unary(nn_layers::Unary::Sin), &[real]).unwrap();
    let total = cached + new;
    let sees = (0..new * total).map(|i| i64::from(i % total <= i / total + cached)).collect();
    let sees = g.public("sees", HostTensor::integers([new, total], sees).unwrap());
    let counts = (0..total).map(|i| 3 * i as i64 + 1).collect();
    let counts = g.public("counts", HostTensor::integers([1, total], counts).unwrap());
    let turned = Op::Reshape(vec![Dim::Fixed(total), Dim::Fixed(1)]);
    let counts = g.add("turned", turned, &[counts]).unwrap();
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let counted = g.add("counted", Op::Binary(Binary::Mul), &[all, counts]).unwrap();
    let sums = g.add("sums", product, &[sees, counted]).unwrap();
    let y = g.add("y", Op::Binary(Binary::Mul), &[sums, waves]).unwrap();
    let last = Op::Slice { axis: 0, start: total - 1, end: Dim::Fixed(total), step: 1 };
    let last = g.add("last", last, &[all]).unwrap();
    let mut y = g.add("z", Op::Binary(Binary::Add), &[y, last]).unwrap();
    if square {
        let area = HostTensor::integers([1, 1], vec![(cached * cached) as i64]).unwrap();
        let area = g.public("area", area);
        y = g.add("w", Op::Binary(Binary::Add), &[y, area]).unwrap();
    }
    g.output("y", y);
    g.sweep();
    g
}

#[test]
fn networks_built_for_three_lengths_are_joined_into_one_for_every_length() {
    let graphs = [4, 6, 9].map(|cached| built_for(cached, false));
    let [first, second, third] = graphs;
    let joined = first.unify_past([&second, &third]).unwrap();
    let mut r = Random(8);
    for cached in [0, 1, 5, 30] {
        let inputs = [r.tensor(&[cached, 3], 1.0), r.tensor(&[2, 3], 1.0)];
        let expected = built_for(cached, false).evaluate(&inputs).unwrap();
        let own = joined.clone().for_past(cached).unwrap();
        assert_eq!(own.evaluate(&inputs).unwrap(), expected);
        let Compiled { plan, weights } = Compiled::new(&joined, &PlanOptions::default()).unwrap();
        let got = plan.evaluate(&weights, &inputs).unwrap();
        let error = largest_difference(&got[1].floats(), &expected[1].floats());
        assert!(error < 1e-9, "{cached}: {error}");
    }
    let [first, second, third] = [4, 6, 9].map(|cached| built_for(cached, true));
    let error = first.unify_past([&second, &third]).unwrap_err();
    assert!(error.to_string().contains("cached positions"), "{error}");
}
