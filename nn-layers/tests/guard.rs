//! The guard notices that values have left their range, whichever layer they leave it at, and costs what it
//! says.

mod common;

use common::{Random, conv, dense, flatten, image, relu};
use mpc_core::{Error, Operand, Plaintext, Protocol, SecretTensor, TestWorld};
use net::Party;
use nn_layers::{Binary, Compiled, Dim, Graph, Guard, HostTensor, Op, Plan, PlanOptions, Pool};
use ring_arith::{CpuEngine, Engine, EngineTensor, Shape, Tensor};
use rss_protocols::Rss;

type Party3 = Rss<CpuEngine>;

/// The layers of [`network`].
const LAYERS: [&str; 4] = ["conv1", "conv2", "fc1", "fc2"];

/// Two convolutions and two dense layers, ReLU between them.
fn network() -> Compiled {
    let mut r = Random(3);
    let mut g = Graph::new(1);
    let x = image(&mut g, 1, 8);
    let x = conv(&mut g, &mut r, x, "conv1", 4, Pool::new([3; 2], [1; 2]));
    let x = relu(&mut g, x);
    let x = conv(&mut g, &mut r, x, "conv2", 6, Pool::new([3; 2], [2; 2]));
    let x = relu(&mut g, x);
    let x = flatten(&mut g, x);
    let x = dense(&mut g, &mut r, x, "fc1", 32);
    let x = relu(&mut g, x);
    let y = dense(&mut g, &mut r, x, "fc2", 10);
    g.output("scores", y);
    let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
    Compiled { plan: plan.with_guard(true), weights }
}

fn share<P: Protocol>(mpc: &mut P, tensors: &[Tensor]) -> mpc_core::Result<Vec<P::Share>> {
    let shapes: Vec<_> = tensors.iter().map(|t| t.shape().clone()).collect();
    let words = tensors.iter().map(|t| mpc.engine().upload(t.clone()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(words.as_slice()))
}

fn failed(e: nn_layers::Error) -> Error {
    Error::Invalid { op: "plan", reason: e.to_string() }
}

/// Runs a guarded plan; what the guard says of each layer.
fn guarded<P: Protocol>(
    mpc: &mut P,
    plan: &Plan,
    weights: &[Tensor],
    input: &HostTensor,
    seed: u64,
) -> mpc_core::Result<Vec<u64>> {
    let weights = share(mpc, weights)?;
    let words = plan.encode_input(0, 1, input).map_err(failed)?;
    let inputs = share(mpc, &[words])?;
    let (weights, inputs): (Vec<Operand<P>>, _) =
        (plan.secret_weights(weights), plan.secret_inputs(inputs));
    let (_, left) = plan.run_guarded(mpc, &weights, &inputs, seed, &mut ()).map_err(failed)?;
    let words = mpc.open(&[left.share()])?;
    Ok(mpc.engine().download(&words[0])?.words().to_vec())
}

/// The words of the weights, those of one layer larger by a factor. Biases have no part in it.
fn overflowing(Compiled { plan, weights }: &Compiled, layer: &str, factor: f64) -> Vec<Tensor> {
    let of_layer = format!("{layer}.weight");
    let larger = weights.iter().zip(plan.weights()).map(|(value, spec)| {
        if spec.name.starts_with(&of_layer) { value.map(|v| v * factor) } else { value.clone() }
    });
    plan.encode_weights(&larger.collect::<Vec<_>>()).unwrap()
}

#[test]
fn an_overflow_at_any_layer_is_caught_in_999_of_1000_runs() {
    const RUNS: u64 = 250;
    let compiled = network();
    assert_eq!(compiled.plan.guarded(), LAYERS);
    let count = move |mpc: &mut Party3| {
        let mut draw = Random(17);
        let mut caught = [[0; 2]; 4];
        for (at, layer) in LAYERS.iter().enumerate() {
            for seed in 0..RUNS {
                // Sums reach 2^23 to 2^40; an encoding has room for 2^42.
                let factor = (25.0 + 6.0 * (1.0 + draw.next())).exp2();
                let weights = overflowing(&compiled, layer, factor);
                let input = draw.tensor(&[1, 1, 8, 8], 1.0);
                let left = guarded(mpc, &compiled.plan, &weights, &input, seed)?;
                let first = left.iter().position(|&word| word != 0);
                caught[at][0] += u64::from(first.is_some());
                caught[at][1] += u64::from(first == Some(at));
            }
        }
        Ok(caught)
    };
    let world = TestWorld::new(3).with_seed(5);
    let caught = world.run(|session| Rss::new(session, CpuEngine::new(1)), count)[0];
    println!("of {RUNS} runs at each layer, [caught, caught at that layer]: {caught:?}");
    let all: u64 = caught.iter().map(|[any, _]| any).sum();
    assert!(all >= 4 * RUNS * 999 / 1000, "{caught:?}");
    assert!(caught.iter().all(|[_, there]| *there >= RUNS * 99 / 100), "{caught:?}");
}

#[test]
fn an_honest_network_never_sets_the_guard_on_shares_or_in_the_clear() {
    let compiled = network();
    let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
    let plan = compiled.plan.clone();
    let run = move |mpc: &mut Party3| {
        let mut draw = Random(23);
        for seed in 0..200 {
            let input = draw.tensor(&[1, 1, 8, 8], 30.0);
            assert_eq!(guarded(mpc, &plan, &words, &input, seed)?, [0; 4]);
        }
        Ok(())
    };
    TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run);
    let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let input = Random(29).tensor(&[1, 1, 8, 8], 30.0);
    assert_eq!(guarded(&mut mpc, &compiled.plan, &words, &input, 1).unwrap(), [0; 4]);
}

/// What the guard says of words of which 20 bits were dropped.
fn watched(words: Vec<i64>) -> u64 {
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let shape = Shape::new([words.len()]).unwrap();
    let tensor = Tensor::new(shape, words.into_iter().map(|w| w as u64).collect()).unwrap();
    let share = mpc.constant(&tensor).unwrap();
    let mut guard = Guard::new(7);
    guard.watch(&mut mpc, &SecretTensor::new(share, 20, 44), 20).unwrap();
    let left = guard.finish(&mut mpc).unwrap();
    mpc.open(&[left.share()]).unwrap()[0].words()[0]
}

#[test]
fn an_element_sets_the_guard_from_its_bound_on_and_not_before() {
    let bound = 1i64 << 37;
    for (words, left) in [
        (vec![bound - 1, -bound, 0], 0),
        (vec![0, bound], 1),
        (vec![-bound - 1, 0], 1),
        (vec![bound, -bound - 1, 5], 2),
        (vec![0; 100], 0),
    ] {
        assert_eq!(watched(words.clone()), left, "{words:?}");
    }
    // In rows of several elements one that is wild is seen wherever it is.
    for at in [0, 1, 50, 99, 70_000] {
        let mut words = vec![1 << 20; 70_001];
        words[at] = -3 * bound;
        assert_eq!(watched(words), 1, "{at}");
    }
    // Equal values nearly cancel: their signs are random.
    assert_eq!(watched(vec![bound >> 9; 65_536]), 0);
}

/// Runs a guarded plan for several callers: the words of the result, and what the guard says.
fn joined(
    mpc: &mut Party3,
    Compiled { plan, weights }: &Compiled,
    input: &HostTensor,
    callers: &[usize],
) -> mpc_core::Result<[Vec<u64>; 2]> {
    let words = plan.encode_weights(weights).map_err(failed)?;
    let weights = plan.secret_weights(share(mpc, &words)?);
    let words = plan.encode_input(0, input.dims()[0], input).map_err(failed)?;
    let inputs = plan.secret_inputs(share(mpc, &[words])?);
    let (results, left) =
        plan.run_joined(mpc, &weights, &inputs, (callers, 3), &mut ()).map_err(failed)?;
    let opened = mpc.open(&[results[0].share(), left.share()])?;
    let words = |i: usize| Ok::<_, Error>(mpc.engine().download(&opened[i])?.words().to_vec());
    Ok([words(0)?, words(1)?])
}

#[test]
fn examples_of_several_callers_run_as_one_batch_and_the_guard_tells_each_of_its_own() {
    let mut draw = Random(31);
    let callers = [1, 3, 2];
    let mut inputs = callers.map(|examples| draw.tensor(&[examples, 1, 8, 8], 30.0));
    // The second caller's last example is far beyond what the network is made for.
    let wild = inputs[1].len() - 64;
    let larger = |(i, value): (usize, &f64)| value * if i < wild { 1.0 } else { 1e5 };
    let larger = inputs[1].floats().iter().enumerate().map(larger).collect();
    inputs[1] = HostTensor::new([3, 1, 8, 8], larger).unwrap();
    let all: Vec<f64> = inputs.iter().flat_map(|input| input.floats().to_vec()).collect();
    let all = HostTensor::new([6, 1, 8, 8], all).unwrap();
    let run = move |mpc: &mut Party3| {
        let compiled = network();
        let together = joined(mpc, &compiled, &all, &callers)?;
        let each = inputs.iter().zip(callers);
        let alone = each.map(|(input, examples)| joined(mpc, &compiled, input, &[examples]));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        let wrong = joined(mpc, &compiled, &all, &[1, 3]).unwrap_err().to_string();
        Ok((together, alone, wrong))
    };
    let ended = TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run);
    let ([together, left], alone, wrong) = &ended[0];
    // For each layer a word for each caller.
    assert_eq!(left.len(), 4 * callers.len());
    assert!(left.chunks(3).all(|of| of[0] == 0 && of[2] == 0), "{left:?}");
    assert!(left.chunks(3).any(|of| of[1] != 0), "{left:?}");
    let mut at = 0;
    for (caller, [words, left]) in alone.iter().enumerate() {
        let same = &together[at..at + words.len()];
        at += words.len();
        assert_eq!(left.iter().any(|&word| word != 0), caller == 1);
        let far = |(x, y): (&u64, &u64)| (x.wrapping_sub(*y) as i64).abs() >= 1 << 6;
        assert!(caller == 1 || !words.iter().zip(same).any(far), "{words:?} {same:?}");
    }
    assert_eq!(at, together.len());
    assert!(wrong.contains("cannot be run together"), "{wrong}");
}

#[test]
fn only_products_that_drop_bits_are_guarded_and_a_plan_keeps_its_guard_when_written() {
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let flags = g.integer_input("flags", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let sum = g.add("sum", Op::Binary(Binary::Add), &[x, x]).unwrap();
    let square = g.add("square", Op::Binary(Binary::Mul), &[sum, x]).unwrap();
    let picked = g.add("picked", Op::Binary(Binary::Mul), &[square, flags]).unwrap();
    g.output("y", picked);
    let plan = Compiled::new(&g, &PlanOptions::default()).unwrap().plan;
    assert_eq!(plan.guarded(), [""; 0]);
    assert!(!serde_json::to_string(&plan).unwrap().contains("guard"));
    let plan = plan.with_guard(true);
    assert_eq!(plan.guarded(), ["square"]);
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
}

/// Bytes of all parties together and rounds of a guard over tensors of so many elements.
fn cost(lengths: &'static [usize]) -> (u64, u32) {
    let run = move |mpc: &mut Party3| {
        let mut guard = Guard::new(1);
        for &length in lengths {
            let share = mpc.constant(&Tensor::zeros(Shape::new([length])?))?;
            guard.watch(mpc, &SecretTensor::new(share, 20, 44), 20).map_err(failed)?;
        }
        guard.finish(mpc).map_err(failed)
    };
    let world = TestWorld::new(3);
    let (_, sent) = world.run_metered(|session| Rss::new(session, CpuEngine::new(1)), run);
    (sent.bytes, sent.rounds)
}

#[test]
fn the_guard_takes_six_rounds_and_two_comparisons_a_row() {
    // A row for each element, 16 rows, rows of 4096; layers share the words in which their bits are sent.
    for (lengths, bytes) in [
        (&[1][..], 1768),
        (&[16], 2488),
        (&[1000], 2720),
        (&[65_536], 2960),
        (&[1 << 20], 29_824),
        (&[1000; 10], 17_440),
        (&[16, 1000, 70_000], 6784),
    ] {
        assert_eq!(cost(lengths), (bytes, 6), "{lengths:?}");
    }
}

#[test]
fn a_guarded_plan_sends_what_the_plan_and_the_guard_send() {
    let compiled = network();
    let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
    let input = Random(2).tensor(&[1, 1, 8, 8], 1.0);
    let sent = |guard: bool| {
        let (plan, words, input) = (compiled.plan.clone(), words.clone(), input.clone());
        let run = move |mpc: &mut Party3| {
            let shares = share(mpc, &words)?;
            let weights: Vec<Operand<_>> = plan.secret_weights(shares);
            let shares = share(mpc, &[plan.encode_input(0, 1, &input).map_err(failed)?])?;
            let inputs = plan.secret_inputs(shares);
            let results = if guard {
                plan.run_guarded(mpc, &weights, &inputs, 1, &mut ()).map(|(results, _)| results)
            } else {
                plan.run(mpc, &weights, &inputs, &mut ())
            };
            results.map_err(failed).map(|results| results.len())
        };
        TestWorld::new(3).run_metered(|session| Rss::new(session, CpuEngine::new(1)), run).1.bytes
    };
    let (guard, _) = cost(&[144, 24, 32, 10]);
    assert_eq!(sent(true) - sent(false), guard);
}
