//! The guard notices that values have left their range, at any layer, and has its stated cost.

use crate::common::{Random, conv, dense, distance, flatten, image, relu};
use mpc_core::{Error, Operand, Plaintext, Profile, Protocol, TestWorld, TruncationMode};
use net::Party;
use nn_layers::{
    Binary, Centre, Compiled, Dim, Graph, HostTensor, Kernel, Op, Plan, PlanOptions, Pool, Unary,
    ValueId,
};
use ring_arith::{CpuEngine, Engine, EngineTensor, Tensor};
use rss_protocols::{Options, Rss};

pub(crate) type Party3 = Rss<CpuEngine>;

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

/// Runs a guarded plan; returns the guard's word for each layer.
fn guarded<P: Protocol>(
    mpc: &mut P,
    plan: &Plan,
    weights: &[Tensor],
    input: &HostTensor,
    seed: u64,
) -> mpc_core::Result<Vec<u64>> {
    Ok(guarded_all(mpc, plan, weights, std::slice::from_ref(input), seed)?.0)
}

/// The same with several inputs; and the first result.
fn guarded_all<P: Protocol>(
    mpc: &mut P,
    plan: &Plan,
    weights: &[Tensor],
    inputs: &[HostTensor],
    seed: u64,
) -> mpc_core::Result<(Vec<u64>, HostTensor)> {
    let weights = share(mpc, weights)?;
    let batch = inputs[0].dims()[0];
    let words = inputs.iter().enumerate().map(|(i, x)| plan.encode_input(i, batch, x));
    let words = words.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let inputs = share(mpc, &words)?;
    let weights: Vec<Operand<P>> = plan.secret_weights(weights);
    let inputs = plan.secret_inputs(inputs);
    let (results, left) =
        plan.run_guarded(mpc, &weights, &inputs, seed, &mut ()).map_err(failed)?;
    let opened = mpc.open(&[left.share(), results[0].share()])?;
    let result = plan.decode_output(0, &mpc.engine().download(&opened[1])?).map_err(failed)?;
    Ok((mpc.engine().download(&opened[0])?.words().to_vec(), result))
}

/// The weights, those of one layer larger by a factor. Biases stay as they are.
fn larger(Compiled { plan, weights }: &Compiled, layer: &str, factor: f64) -> Vec<HostTensor> {
    let of_layer = format!("{layer}.weight");
    let larger = weights.iter().zip(plan.weights()).map(|(value, spec)| {
        if spec.name.starts_with(&of_layer) { value.map(|v| v * factor) } else { value.clone() }
    });
    larger.collect()
}

#[test]
fn an_overflow_at_any_layer_is_caught_in_999_of_1000_runs() {
    const RUNS: u64 = 250;
    let compiled = network();
    assert_eq!(compiled.plan.guarded(), LAYERS);
    let count = move |mpc: &mut Party3| {
        let mut draw = Random(17);
        let mut counts = [[0; 3]; 4];
        for (at, layer) in LAYERS.iter().enumerate() {
            for seed in 0..RUNS {
                // Sums reach 2^23 to 2^40; an encoding has room for 2^42.
                let factor = (25.0 + 6.0 * (1.0 + draw.next())).exp2();
                let weights = larger(&compiled, layer, factor);
                let words = compiled.plan.encode_weights(&weights).unwrap();
                let input = [draw.tensor(&[1, 1, 8, 8], 1.0)];
                let (left, result) = guarded_all(mpc, &compiled.plan, &words, &input, seed)?;
                let right = compiled.plan.evaluate(&weights, &input).unwrap().remove(0);
                let largest = right.floats().iter().fold(0.0, |most: f64, v| v.abs().max(most));
                let wrong = distance(&result, &right) > largest / 1e3;
                let first = left.iter().position(|&word| word != 0);
                counts[at][0] += u64::from(wrong);
                counts[at][1] += u64::from(wrong && first.is_some());
                counts[at][2] += u64::from(wrong && first == Some(at));
            }
        }
        Ok(counts)
    };
    let world = TestWorld::new(3).with_seed(5);
    let counts = world.run(|session| Rss::new(session, CpuEngine::new(1)), count)[0];
    println!("of {RUNS} runs at each layer, [wrong, caught, caught at that layer]: {counts:?}");
    let sum = |i: usize| counts.iter().map(|count| count[i]).sum::<u64>();
    assert!(sum(0) > 4 * RUNS * 9 / 10 && sum(1) * 1000 >= sum(0) * 999, "{counts:?}");
    assert!(counts.iter().all(|[wrong, _, there]| there * 100 >= wrong * 99), "{counts:?}");
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

/// A dense layer without a bias, with a ReLU or without.
fn layer(weights: HostTensor, rectified: bool) -> Compiled {
    layer_of(weights, rectified, 20)
}

/// The same with other fraction bits.
fn layer_of(weights: HostTensor, rectified: bool, frac: u32) -> Compiled {
    let k = weights.dims()[1];
    let mut g = Graph::new(1);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(k)]).unwrap();
    let w = g.weight("w", weights);
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = g.add("layer", op, &[x, w]).unwrap();
    let y = if rectified { relu(&mut g, y) } else { y };
    g.output("y", y);
    let options = PlanOptions::default().with_frac(frac);
    let Compiled { plan, weights } = Compiled::new(&g, &options).unwrap();
    Compiled { plan: plan.with_guard(true), weights }
}

#[test]
fn one_number_alone_that_leaves_its_range_is_caught_behind_a_relu_and_without() {
    const LAYERS: u64 = 500;
    let run = |mpc: &mut Party3| {
        let mut draw = Random(41);
        let (mut wrong, mut caught) = (0, 0);
        for layer_at in 0..2 * LAYERS {
            let frac = if layer_at < LAYERS { 20 } else { 8 };
            let compiled = layer_of(draw.tensor(&[6, 8], 1.0), layer_at % 2 == 0, frac);
            // One row alone is larger: its sum reaches the limit to 2^14 times as much, or 2^6 times, of either sign.
            let [limit, most] = if frac == 20 { [22.2, 14.0] } else { [46.2, 6.0] };
            let size = (limit + most / 2.0 * (1.0 + draw.next())).exp2();
            let input = draw.tensor(&[1, 8], if frac == 20 { 1.0 } else { 30f64.exp2() });
            let row = (layer_at % 6) as usize;
            let square: f64 = input.floats().iter().map(|x| x * x).sum();
            let mut values = compiled.weights[0].floats().into_owned();
            for (w, x) in values[8 * row..].iter_mut().zip(input.floats().iter()) {
                *w = size * x / square;
            }
            let values = values.into_iter().map(|w| w * [1.0, -1.0][(layer_at / 6 % 2) as usize]);
            let weights = HostTensor::new([6, 8], values.collect()).unwrap();
            let words = compiled.plan.encode_weights(std::slice::from_ref(&weights)).unwrap();
            let inputs = std::slice::from_ref(&input);
            let (left, result) = guarded_all(mpc, &compiled.plan, &words, inputs, layer_at)?;
            let right = compiled.plan.evaluate(&[weights], inputs).unwrap().remove(0);
            if distance(&result, &right) > size / 1e3 {
                wrong += 1;
                caught += u64::from(left[0] != 0);
            }
        }
        Ok([wrong, caught])
    };
    let world = TestWorld::new(3).with_seed(9);
    let [wrong, caught] = world.run(|session| Rss::new(session, CpuEngine::new(1)), run)[0];
    println!("{caught} of {wrong} wrong answers caught");
    assert!(wrong > LAYERS);
    assert!(caught * 1000 >= wrong * 999, "{caught} of {wrong}");
}

#[test]
fn a_relu_hides_no_overflow_in_any_mode_or_profile() {
    let run = |mpc: &mut Party3| {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
        let first = g.weight("first", HostTensor::new([4, 1], vec![1000.0; 4]).unwrap());
        let y =
            g.add("first", Op::MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, first]);
        let y = relu(&mut g, y.unwrap());
        let second = g.weight("second", HostTensor::new([1, 1], vec![1e-6]).unwrap());
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add("second", op, &[y, second]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        let plan = plan.with_guard(true);
        let words = plan.encode_weights(&weights).unwrap();
        for profile in [Profile::Bytes, Profile::SlowLinks] {
            mpc.set_profile(profile);
            for (large, sum) in [(3000.0, 9.001), (1000.0, 3.001)] {
                let values = vec![large, large, large, 1.0];
                let input = HostTensor::new([1, 4], values).unwrap();
                for seed in 0..10 {
                    let inputs = std::slice::from_ref(&input);
                    let (left, result) = guarded_all(mpc, &plan, &words, inputs, seed)?;
                    let right = (result.floats()[0] - sum).abs() < 1e-3;
                    // No wrong result passes, and a result within the range is right and not reported.
                    assert!(right || left[0] != 0, "{profile:?} {large}: {result:?}");
                    assert!(
                        large > 2000.0 || right && left == [0, 0],
                        "{profile:?} {large}: {left:?}"
                    );
                }
            }
        }
        Ok(())
    };
    for mode in [TruncationMode::Default, TruncationMode::Exact, TruncationMode::Dither] {
        let options = Options::default().truncation(mode);
        let party = move |session| Rss::with_options(session, CpuEngine::new(1), options);
        TestWorld::new(3).run(party, run);
    }
}

#[test]
fn numbers_below_half_of_the_limit_are_never_called_out_of_range() {
    const PICTURES: u64 = 2;
    let run = |mpc: &mut Party3| {
        let mut draw = Random(43);
        for (rows, columns, rectified) in
            [(16, 768, true), (1, 10, false), (1, 1, false), (1, 1, true)]
        {
            // Every number is just below 2^21, of either sign.
            let signs = draw.tensor(&[columns, 4], 1.0).map(|v| (19f64.exp2() - 1.0) * v.signum());
            let compiled = layer(signs, rectified);
            let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
            let input = HostTensor::new([rows, 4], vec![1.0; 4 * rows]).unwrap();
            for seed in 0..20 {
                assert_eq!(guarded(mpc, &compiled.plan, &words, &input, seed)?, [0], "{seed}");
            }
        }
        // Of these the guard drops bits itself: they are added up after that, or their sum would leave its range.
        for frac in [8, 11] {
            let most = (29.5 - f64::from(frac)).exp2().floor();
            let signs = draw.tensor(&[768, 4], 1.0).map(|v| most * v.signum());
            let compiled = layer_of(signs, false, frac);
            let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
            let input = HostTensor::new([16, 4], vec![most; 64]).unwrap();
            for seed in 0..4 {
                assert_eq!(guarded(mpc, &compiled.plan, &words, &input, seed)?, [0], "{seed}");
            }
        }
        // A picture's layer of 64 x 112 x 112 such numbers.
        let mut g = Graph::new(1);
        let x = image(&mut g, 1, 112);
        let w = draw.tensor(&[64, 1, 1, 1], 1.0).map(|v| (11f64.exp2() - 1.0) * v.signum());
        let w = g.weight("w", w);
        let kernel = Kernel::new(Pool::new([1; 2], [1; 2]));
        let y = g.add("conv", Op::Conv(kernel), &[x, w]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        let plan = plan.with_guard(true);
        let words = plan.encode_weights(&weights).unwrap();
        for seed in 0..PICTURES {
            let x = draw.tensor(&[1, 1, 112, 112], 1.0).map(|v| 10f64.exp2() * v.signum());
            assert_eq!(guarded(mpc, &plan, &words, &x, seed)?, [0], "{seed}");
        }
        // Prices up to 20 million, at the fraction bits that leave them room.
        let prices = layer_of(HostTensor::new([1, 4], vec![5e6; 4]).unwrap(), false, 18);
        let words = prices.plan.encode_weights(&prices.weights).unwrap();
        for seed in 0..20 {
            let x = [HostTensor::new([1, 4], vec![1.0, 1.0, 1.0, seed as f64 / 20.0]).unwrap()];
            let (left, result) = guarded_all(mpc, &prices.plan, &words, &x, seed)?;
            let right = prices.plan.evaluate(&prices.weights, &x).unwrap().remove(0);
            assert!(left == [0] && distance(&result, &right) < 20.0, "{seed}: {result:?}");
        }
        Ok(())
    };
    TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run);
}

/// Networks of one product of every kind, with their inputs.
fn products() -> Vec<(&'static str, Compiled, Vec<HostTensor>)> {
    let mut draw = Random(47);
    let mut all = vec![];
    let mut add =
        |name, dims: &[&[usize]], make: &dyn Fn(&mut Graph, &mut Random, &[ValueId]) -> ValueId| {
            let mut g = Graph::new(1);
            let mut xs = vec![];
            for (i, dims) in dims.iter().enumerate() {
                let own = dims[1..].iter().map(|&size| Dim::Fixed(size));
                let own: Vec<_> = std::iter::once(Dim::Batch(1)).chain(own).collect();
                xs.push(g.input(&format!("x{i}"), &own).unwrap());
            }
            let y = make(&mut g, &mut draw, &xs);
            g.output("y", y);
            let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
            let inputs = dims.iter().map(|dims| draw.tensor(dims, 30.0)).collect();
            all.push((name, Compiled { plan: plan.with_guard(true), weights }, inputs));
        };
    let matmul = |transpose_lhs, transpose_rhs| Op::MatMul { transpose_lhs, transpose_rhs };
    add("grouped", &[&[2, 4, 7, 6]], &|g, r, x| {
        let window = Pool { dilation: [2, 1], ..Pool::new([3, 2], [2, 1]).padded([1, 0, 2, 1]) };
        let kernel = Kernel { groups: 2, ..Kernel::new(window) };
        let w = g.weight("w", r.tensor(&[6, 2, 3, 2], 1.0));
        let y = g.add("conv", Op::Conv(kernel), &[x[0], w]).unwrap();
        let b = g.weight("b", r.tensor(&[6, 1, 1], 100.0));
        let y = g.add("bias", Op::Binary(Binary::Add), &[y, b]).unwrap();
        relu(g, y)
    });
    add("shortcut", &[&[1, 3, 5, 5]], &|g, r, x| {
        let y = conv(g, r, x[0], "wide", 4, Pool::new([3; 2], [2; 2]).padded([1; 4]));
        let z = conv(g, r, x[0], "short", 4, Pool::new([1; 2], [2; 2]));
        let y = g.add("sum", Op::Binary(Binary::Add), &[y, z]).unwrap();
        relu(g, y)
    });
    add("residual", &[&[1, 3, 4, 4]], &|g, r, x| {
        let y = conv(g, r, x[0], "conv", 3, Pool::new([3; 2], [1; 2]).padded([1; 4]));
        let y = g.add("sum", Op::Binary(Binary::Add), &[y, x[0]]).unwrap();
        relu(g, y)
    });
    add("transposed", &[&[2, 4, 3, 4]], &|g, r, x| {
        let kernel =
            Kernel { groups: 2, ..Kernel::new(Pool::new([3, 2], [2, 1]).padded([1, 0, 0, 1])) };
        let w = g.weight("w", r.tensor(&[4, 3, 3, 2], 1.0));
        g.add("transposed", Op::ConvTranspose { kernel, extra: [1, 0] }, &[x[0], w]).unwrap()
    });
    add("weight gradient", &[&[2, 4, 5, 5], &[2, 6, 3, 3]], &|g, _, x| {
        let kernel = Kernel { groups: 2, ..Kernel::new(Pool::new([3; 2], [1; 2])) };
        g.add("gradient", Op::ConvWeightGrad(kernel), x).unwrap()
    });
    add("dense", &[&[3, 5]], &|g, r, x| {
        let y = dense(g, r, x[0], "dense", 7);
        relu(g, y)
    });
    add("attention", &[&[2, 3, 4, 5], &[2, 3, 6, 5]], &|g, _, x| {
        g.add("scores", matmul(false, true), x).unwrap()
    });
    add("transposed matrices", &[&[2, 4, 3], &[2, 4, 6]], &|g, _, x| {
        g.add("product", matmul(true, false), x).unwrap()
    });
    add("a row of each", &[&[4, 1, 5], &[4, 5, 6]], &|g, _, x| {
        g.add("product", matmul(false, false), x).unwrap()
    });
    add("one matrix first", &[&[4, 5, 6]], &|g, r, x| {
        let w = g.weight("w", r.tensor(&[3, 5], 1.0));
        g.add("product", matmul(false, false), &[w, x[0]]).unwrap()
    });
    add("elementwise", &[&[3, 5], &[3, 5]], &|g, _, x| {
        g.add("product", Op::Binary(Binary::Mul), x).unwrap()
    });
    add("gate", &[&[2, 3, 4, 4], &[2, 3, 1, 1]], &|g, _, x| {
        g.add("product", Op::Binary(Binary::Mul), &[x[1], x[0]]).unwrap()
    });
    add("outer", &[&[2, 6, 1], &[2, 1, 5]], &|g, _, x| {
        g.add("product", Op::Binary(Binary::Mul), x).unwrap()
    });
    add("public factors", &[&[2, 3, 6]], &|g, r, x| {
        let c = g.public("c", r.tensor(&[3, 1], 2.0));
        g.add("product", Op::Binary(Binary::Mul), &[x[0], c]).unwrap()
    });
    all
}

#[test]
fn products_of_every_kind_are_right_below_the_limit_and_caught_beyond_it() {
    let run = |mpc: &mut Party3| {
        for (name, Compiled { plan, weights }, inputs) in products() {
            assert!(!plan.guarded().is_empty(), "{name}");
            let words = plan.encode_weights(&weights).unwrap();
            // Products of two inputs grow with both.
            let most = if inputs.len() == 2 { 1e3 } else { 3e5 };
            for seed in 0..8 {
                let (left, _) = guarded_all(mpc, &plan, &words, &inputs, seed)?;
                assert!(left.iter().all(|&word| word == 0), "{name}: {left:?}");
                let larger: Vec<_> = inputs.iter().map(|x| x.map(|v| v * most)).collect();
                let (left, _) = guarded_all(mpc, &plan, &words, &larger, seed)?;
                assert!(left.iter().any(|&word| word != 0), "{name}: {left:?}");
            }
        }
        Ok(())
    };
    TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), run);
}

#[test]
fn functions_that_a_layer_keeps_in_their_domain_are_not_watched() {
    let mut g = Graph::new(1);
    let mut r = Random(5);
    let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(8)]).unwrap();
    let mut x = dense(&mut g, &mut r, x, "first", 8);
    for (name, op) in [
        ("gelu", Op::Unary(Unary::Gelu)),
        ("norm", Op::Normalize { axis: 1, centre: Centre::Mean, epsilon: 1e-5 }),
        ("exp of a sigmoid", Op::Unary(Unary::Sigmoid)),
        ("exp", Op::Unary(Unary::Exp)),
        ("softmax", Op::Softmax { axis: 1, log: false }),
    ] {
        x = g.add(name, op, &[x]).unwrap();
    }
    g.output("y", x);
    let plan = Compiled::new(&g, &PlanOptions::default()).unwrap().plan.with_guard(true);
    assert_eq!(plan.guarded(), ["first"]);
}

/// Runs a guarded plan for several callers: the words of the result, and the guard's words.
pub(crate) fn joined(
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

/// The words of a plan's result, without a guard.
pub(crate) fn unguarded(
    mpc: &mut Party3,
    Compiled { plan, weights }: &Compiled,
    input: &HostTensor,
) -> mpc_core::Result<Vec<u64>> {
    let words = plan.encode_weights(weights).map_err(failed)?;
    let weights = plan.secret_weights(share(mpc, &words)?);
    let words = plan.encode_input(0, input.dims()[0], input).map_err(failed)?;
    let inputs = plan.secret_inputs(share(mpc, &[words])?);
    let results = plan.run(mpc, &weights, &inputs, &mut ()).map_err(failed)?;
    let opened = mpc.open(&[results[0].share()])?;
    Ok(mpc.engine().download(&opened[0])?.words().to_vec())
}

#[test]
fn examples_of_several_callers_run_as_one_batch_and_the_guard_tells_each_of_its_own() {
    let mut draw = Random(31);
    let callers = [1, 3, 2];
    let mut inputs = callers.map(|examples| draw.tensor(&[examples, 1, 8, 8], 30.0));
    // The second caller's last example is far beyond the network's range.
    let wild = inputs[1].len() - 64;
    let larger = |(i, value): (usize, &f64)| value * if i < wild { 1.0 } else { 1e7 };
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
fn products_that_drop_bits_are_guarded_and_sums_that_grow_and_a_plan_keeps_its_guard_when_written()
{
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
    // A sum of inputs and a product with any integers can be too large.
    assert_eq!(plan.guarded(), ["sum", "square", "picked"]);
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
}

/// Bytes of all parties together and rounds of a plan with its guard, and without.
fn cost(compiled: &Compiled, input: &HostTensor) -> [(u64, u32); 2] {
    let words = compiled.plan.encode_weights(&compiled.weights).unwrap();
    [true, false].map(|guard| {
        let (plan, words, input) = (compiled.plan.clone(), words.clone(), input.clone());
        let run = move |mpc: &mut Party3| {
            let shares = share(mpc, &words)?;
            let weights: Vec<Operand<_>> = plan.secret_weights(shares);
            let batch = input.dims()[0];
            let shares = share(mpc, &[plan.encode_input(0, batch, &input).map_err(failed)?])?;
            let inputs = plan.secret_inputs(shares);
            let results = if guard {
                plan.run_guarded(mpc, &weights, &inputs, 1, &mut ()).map(|(results, _)| results)
            } else {
                plan.run(mpc, &weights, &inputs, &mut ())
            };
            results.map_err(failed).map(|results| results.len())
        };
        let world = TestWorld::new(3);
        let (_, sent) = world.run_metered(|session| Rss::new(session, CpuEngine::new(1)), run);
        (sent.bytes, sent.rounds)
    })
}

#[test]
fn the_guard_takes_seven_rounds_and_some_bytes_for_each_sum() {
    let mut draw = Random(2);
    // Words that a sum is made of, results of a row, rows; bytes of all parties, of which sums before a ReLU are 48.
    for (k, n, rows, bytes) in [(1, 1, 1, 2880), (64, 10, 1, 3384), (64, 10, 5, 4984)] {
        for rectified in [false, true] {
            let compiled = layer(draw.tensor(&[n, k], 0.1), rectified);
            let [(with, rounds), (without, before)] =
                cost(&compiled, &draw.tensor(&[rows, k], 1.0));
            let bytes = bytes + if rectified { 48 } else { 0 };
            assert_eq!((with - without, rounds - before), (bytes, 7), "{k} {n} {rows} {rectified}");
        }
    }
    // Two comparisons of each operand that can leave its function's domain, one of an exponential.
    for (f, bytes) in [(Unary::Exp, 61_888), (Unary::Sin, 123_776)] {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(1000)]).unwrap();
        let y = g.add("function", Op::Unary(f), &[x]).unwrap();
        g.output("y", y);
        let Compiled { plan, weights } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        let compiled = Compiled { plan: plan.with_guard(true), weights };
        let [(with, rounds), (without, before)] = cost(&compiled, &draw.tensor(&[1, 1000], 1.0));
        assert_eq!((with - without, rounds - before), (bytes, 5), "{f:?}");
    }
    // Four layers together.
    let [(with, rounds), (without, before)] = cost(&network(), &draw.tensor(&[1, 1, 8, 8], 1.0));
    assert_eq!((with - without, rounds - before), (7912, 7));
}
