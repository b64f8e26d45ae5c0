//! Steps of training on the plaintext protocol and on shares, against the same plan in floats.

use crate::common::training::{
    BATCH, RATE, TOLERANCE, Training, assert_close, assert_weights_close, labels, options,
    perceptron, shared,
};
use crate::common::{self, Random, conv, dense, distance, flatten, image, relu};
use mpc_core::{Protocol, TestWorld};
use net::{Metered, Report, Session, Stats};
use nn_layers::layers::{BatchNorm, Layer, LayerNorm};
use nn_layers::train::{Adam, Formats, Loss, Metric, Optimiser, Second, Step, TrainPlan};
use nn_layers::{Binary, Compiled, Dim, Graph, HostTensor, Op, PlanOptions, Pool, Unary, ValueId};
use ring_arith::CpuEngine;
use rss_protocols::Rss;

#[test]
fn every_optimiser_in_fixed_point_follows_the_same_plan_in_floats() {
    for (momentum, nesterov, decay) in [
        (0.0, false, 0.0),
        (0.9, false, 0.0),
        (0.5, true, 0.0),
        (0.0, false, 0.01),
        (0.9, true, 0.01),
    ] {
        let optimiser = Optimiser::Sgd { momentum, nesterov, decay };
        let training = Training::new(&[5], &options().with_optimiser(optimiser), perceptron);
        let expected = training.in_the_clear();
        let moved = distance(&expected.state[0], &training.start[0]);
        assert!(moved > 100.0 * TOLERANCE, "{optimiser:?} moved a weight by {moved} only");
        assert_close(&format!("{optimiser:?}"), &training.in_fixed_point(), &expected, TOLERANCE);
    }
}

/// Adam in all its forms, with first decays that are no multiples of 1/32.
fn adams() -> Vec<Adam> {
    let adam = Adam { betas: [0.9, 0.99], epsilon: 1e-6, ..Adam::default() };
    let row = Adam { second: Second::Row, ..adam };
    vec![
        adam,
        row,
        Adam { every: 3, betas: [0.85, 0.99], ..row },
        Adam { amsgrad: true, decay: 0.01, ..row },
        Adam { decoupled: true, decay: 0.01, every: 2, ..adam },
    ]
}

#[test]
fn every_adam_in_fixed_point_follows_the_same_plan_in_floats() {
    for adam in adams() {
        let options =
            options().with_optimiser(Optimiser::Adam(adam)).with_largest_rate(RATE / 16.0);
        let training = Training::new(&[5], &options, perceptron).at(RATE / 16.0);
        let expected = training.in_the_clear();
        let weight =
            training.plan.state().iter().position(|spec| spec.name == "fc1.weight").unwrap();
        let moved = distance(&expected.state[weight], &training.start[weight]);
        assert!(moved > RATE / 16.0, "{adam:?} moved a weight by {moved} only");
        // Moments and roots of another size are compared by their effect.
        let got = training.in_fixed_point();
        assert_weights_close(&format!("{adam:?}"), &training, &got, &expected, RATE / 128.0);
    }
}

#[test]
fn adam_by_row_on_shares_follows_the_same_plan_in_floats() {
    let options =
        options().with_optimiser(Optimiser::Adam(adams()[2])).with_largest_rate(RATE / 16.0);
    let training = Training::new(&[2, 6, 6], &options, networks()[0].2).at(RATE / 16.0);
    let (got, expected) = (training.on_shares(), training.in_the_clear());
    assert_weights_close("rows", &training, &got, &expected, RATE / 128.0);
}

/// Bytes of all servers and rounds of a step, without a guard and with one.
fn cost(optimiser: Optimiser, build: Build) -> [(u64, u32); 2] {
    [false, true].map(|guarded| {
        let program = move |mut session: Session| {
            let metered = Metered::new(session.transport);
            let meter = metered.meter();
            session.transport = Box::new(metered);
            let mut mpc = Rss::new(session, CpuEngine::new(1))?;
            let training = Training::new(&[2, 6, 6], &options().with_optimiser(optimiser), build);
            let (plan, words) = (&training.plan, training.words());
            let state = shared(&mut mpc, &words[0])?;
            let mut state = plan.secret_state(state).unwrap();
            let shares = shared(&mut mpc, &words[1])?;
            let batch = plan.step_plan().secret_inputs(shares);
            meter.reset();
            let step = Step::new(0, RATE);
            if guarded {
                plan.step_guarded(&mut mpc, &mut state, &batch, step, 1, &mut ()).map(drop)
            } else {
                plan.step(&mut mpc, &mut state, &batch, step, &mut ()).map(drop)
            }
            .unwrap();
            Ok(meter.stats())
        };
        let stats = TestWorld::new(3).try_sessions(program);
        let stats: Vec<Stats> = stats.into_iter().map(|stats| stats.unwrap()).collect();
        (stats.iter().map(Stats::bytes_sent).sum(), Report::of(&stats).rounds)
    })
}

#[test]
fn a_step_of_adam_sends_what_is_stated_for_decays_between_32nds_as_well() {
    let build = networks()[0].2;
    let adam = |first| Optimiser::Adam(Adam { betas: [first, 0.999], ..Adam::default() });
    let wanted = [(203_672, 78), (311_328, 85)];
    for first in [0.9, 0.906_25, 0.91] {
        assert_eq!(cost(adam(first), build), wanted, "{first}");
    }
}

#[test]
fn decays_that_adam_cannot_follow_are_refused() {
    for (adam, wanted) in [
        (Adam { betas: [1.0, 0.999], ..Adam::default() }, "below 1"),
        (Adam { betas: [0.9, 1.0], ..Adam::default() }, "below 1"),
        (Adam { betas: [0.03, 0.999], ..Adam::default() }, "at least 1/32, not 0.03"),
    ] {
        let options = options().with_optimiser(Optimiser::Adam(adam));
        let mut graph = Graph::new(BATCH);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
        let output = perceptron(&mut graph, &mut Random(1), x);
        graph.train(|_| true);
        let error = TrainPlan::new(&graph, output, &options).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn steps_of_adam_need_their_number() {
    let options = options().with_optimiser(Optimiser::adam());
    let training = Training::new(&[5], &options, perceptron);
    let mut state = training.start.clone();
    let error =
        training.plan.step_in_the_clear(&mut state, &training.batches[0], RATE).unwrap_err();
    assert!(error.to_string().contains("Step::new"), "{error}");
}

#[test]
fn gradients_with_a_large_norm_are_scaled_down_and_others_are_not() {
    for limit in [0.125, 64.0] {
        let plain = Training::new(&[5], &options(), perceptron);
        let clipped = Training::new(&[5], &options().with_clip(limit), perceptron);
        let (mut a, mut b) = (plain.start.clone(), clipped.start.clone());
        plain.plan.step_in_the_clear(&mut a, &plain.batches[0], RATE).unwrap();
        clipped.plan.step_in_the_clear(&mut b, &clipped.batches[0], RATE).unwrap();
        let norm = |training: &Training, after: &[HostTensor]| {
            let squares = training.start.iter().zip(after).map(|(x, y)| {
                let (x, y) = (x.floats().into_owned(), y.floats().into_owned());
                x.iter().zip(&y).map(|(x, y)| (x - y) * (x - y)).sum::<f64>()
            });
            squares.sum::<f64>().sqrt() / RATE
        };
        let expected = norm(&plain, &a).min(limit);
        let got = norm(&clipped, &b);
        assert!((got - expected).abs() < 1e-4, "norm {got}, not {expected}");
        let name = format!("clipped at {limit}");
        assert_close(&name, &clipped.in_fixed_point(), &clipped.in_the_clear(), TOLERANCE);
    }
}

/// Convolutions and a product with batch norms, one of them after a pool.
fn normed(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let norm = |g: &mut Graph, r: &mut Random, name: &str, x: ValueId| {
        let c = g.shape(x).dims()[1];
        let norm = BatchNorm {
            scale: r.tensor(&[c], 0.5).map(|v| v + 1.0).into(),
            shift: r.tensor(&[c], 0.2).into(),
            mean: r.tensor(&[c], 0.2).into(),
            variance: r.tensor(&[c], 0.5).map(|v| v + 1.0).into(),
            epsilon: 1e-5,
            momentum: 0.25,
        };
        norm.forward(g, name, x).unwrap()
    };
    let y = conv(g, r, x, "conv", 4, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = norm(g, r, "bn1", y);
    let y = relu(g, y);
    let y = g.add("pool", Op::MaxPool(Pool::new([2; 2], [1; 2])), &[y]).unwrap();
    let y = norm(g, r, "bn2", y);
    let y = flatten(g, y);
    let y = dense(g, r, y, "fc1", 6);
    let y = norm(g, r, "bn3", y);
    let y = relu(g, y);
    dense(g, r, y, "fc2", 3)
}

#[test]
fn a_trained_network_with_batch_norms_is_finished_for_inference() {
    let training = Training::new(&[2, 5, 5], &options(), normed);
    let x = &training.batches[0][0];
    // At the start: the same as the network with the running statistics that it came with.
    let weights = training.plan.finish_in_the_clear(&training.start).unwrap();
    let y = training.plan.inference().evaluate(&weights, std::slice::from_ref(x)).unwrap();
    let mut r = Random(1);
    let mut graph = Graph::new(BATCH);
    let dims = [Dim::Batch(1), Dim::Fixed(2), Dim::Fixed(5), Dim::Fixed(5)];
    let input = graph.input("x", &dims).unwrap();
    let out = normed(&mut graph, &mut r, input);
    graph.output("y", out);
    let expected = graph.evaluate(std::slice::from_ref(x)).unwrap();
    assert!(distance(&y[0], &expected[0]) < 1e-9);
    // After the last step, on shares.
    let state = training.in_the_clear().state;
    let weights = training.plan.finish_in_the_clear(&state).unwrap();
    let expected = training.plan.inference().evaluate(&weights, std::slice::from_ref(x)).unwrap();
    assert!(distance(&y[0], &expected[0]) > 0.01);
    let (plan, words) = (training.plan.clone(), training.plan.encode_state(&state).unwrap());
    let input = training.plan.inference().encode_input(0, BATCH, x).unwrap();
    let opened = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let shares = shared(mpc, &words)?;
            let state = plan.secret_state(shares).unwrap();
            let weights = plan.finish(mpc, &state).unwrap();
            let x = shared(mpc, std::slice::from_ref(&input))?;
            let x = plan.inference().secret_inputs(x);
            let y = plan.inference().run(mpc, &weights, &x, &mut ()).unwrap();
            mpc.open(&[y[0].share()])
        },
    );
    let got = training.plan.inference().decode_output(0, &opened[0][0]).unwrap();
    assert!(distance(&got, &expected[0]) < 4.0 * TOLERANCE);
}

#[test]
fn batch_norms_whose_numbers_are_not_trained_keep_their_statistics() {
    let mut r = Random(1);
    let mut graph = Graph::new(BATCH);
    let x = image(&mut graph, 2, 5);
    let y = normed(&mut graph, &mut r, x);
    graph.train(|name| name.starts_with("fc"));
    let (plan, _) = TrainPlan::new(&graph, y, &options()).unwrap();
    let names: Vec<_> = plan.state().into_iter().map(|spec| spec.name).collect();
    assert!(names.iter().all(|name| !name.ends_with("mean")), "{names:?}");
}

#[test]
fn losses_and_momenta_are_those_of_their_definitions() {
    // One weight, one row: y = w x, and all by hand.
    let options = options()
        .with_loss(Loss::MeanSquare)
        .with_optimiser(Optimiser::Sgd { momentum: 0.5, nesterov: false, decay: 0.125 })
        .with_metrics([Metric::Loss]);
    let mut graph = Graph::new(2);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(1)]).unwrap();
    let w = graph.weight("w", HostTensor::new([1, 1], vec![1.0]).unwrap());
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = graph.add("y", op, &[x, w]).unwrap();
    graph.train(|name| name == "w");
    let (plan, mut state) = TrainPlan::new(&graph, y, &options).unwrap();
    let column = |a: f64, b: f64| HostTensor::new([2, 1], vec![a, b]).unwrap();
    let batch = [column(1.0, 2.0), column(0.5, 1.0)];
    // The momentum is kept times the learning rate.
    let (mut weight, mut velocity, mut last) = (1.0, 0.0, 0.25);
    for (number, rate) in [0.25, 0.125, 0.25, 0.0].into_iter().enumerate() {
        let errors = [weight - 0.5, 2.0 * weight - 1.0];
        let gradient = (2.0 * errors[0] + 2.0 * errors[1] * 2.0) / 2.0 + 0.125 * weight;
        let loss = errors[0] * errors[0] + errors[1] * errors[1];
        let step = Step::new(number as u32, rate).after(last);
        let seen = plan.step_in_the_clear(&mut state, &batch, step).unwrap();
        velocity = 0.5 * velocity + gradient;
        weight -= rate * velocity;
        last = rate;
        assert!((seen[0].single().unwrap() - loss).abs() < 1e-12);
        assert!((state[0].floats()[0] - weight).abs() < 1e-12, "{:?}", state[0].floats());
        assert!((state[1].floats()[0] - rate * velocity).abs() < 1e-12);
    }
    let mut refused = |step: Step, why: &str| {
        let error = plan.step_in_the_clear(&mut state, &batch, step).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(Step::new(4, 0.5), "largest of the options");
    refused(Step::new(4, 0.125).after(0.0), "rise over more steps");
    refused(Step::new(4, 0.25).after(1e-4), "rise over more steps");
}

/// Adds a network to a graph.
type Build = fn(&mut Graph, &mut Random, ValueId) -> ValueId;

/// Networks that use most operations with a gradient.
fn networks() -> Vec<(&'static str, Vec<usize>, Build)> {
    vec![
        ("average pool", vec![2, 6, 6], |g, r, x| {
            let y = conv(g, r, x, "conv", 4, Pool::new([3; 2], [1; 2]).padded([1; 4]));
            let pool = Op::AvgPool { pool: Pool::new([2; 2], [2; 2]), count_border: true };
            let y = g.add("pool", pool, &[y]).unwrap();
            let y = relu(g, y);
            let y = flatten(g, y);
            dense(g, r, y, "fc", 3)
        }),
        ("max pool", vec![2, 7, 7], |g, r, x| {
            let y = conv(g, r, x, "conv", 4, Pool::new([3; 2], [2; 2]));
            let y = relu(g, y);
            let y = g.add("pool", Op::MaxPool(Pool::new([2; 2], [1; 2])), &[y]).unwrap();
            let y = conv(g, r, y, "conv2", 3, Pool::new([2; 2], [1; 2]));
            let y = g
                .add(
                    "mean",
                    Op::Reduce { kind: nn_layers::Reduce::Mean, axes: vec![2, 3], keep: false },
                    &[y],
                )
                .unwrap();
            dense(g, r, y, "fc", 3)
        }),
        ("residual", vec![3, 5, 5], |g, r, x| {
            let same = Pool::new([3; 2], [1; 2]).padded([1; 4]);
            let y = conv(g, r, x, "a", 3, same);
            let y = relu(g, y);
            let y = conv(g, r, y, "b", 3, same);
            let y = g.add("sum", Op::Binary(Binary::Add), &[y, x]).unwrap();
            let y = relu(g, y);
            let z = conv(g, r, y, "c", 3, same);
            let y = g.add("again", Op::Binary(Binary::Add), &[z, y]).unwrap();
            let y = flatten(g, y);
            dense(g, r, y, "fc", 3)
        }),
        ("layer norm", vec![6], |g, r, x| {
            let y = dense(g, r, x, "fc1", 8);
            let ones = HostTensor::new([8], vec![1.0; 8]).unwrap();
            let norm = LayerNorm {
                scale: ones.clone().into(),
                shift: ones.map(|_| 0.0).into(),
                epsilon: 1e-5,
            };
            let y = norm.forward(g, "norm", y).unwrap();
            let y = g.add("gelu", Op::Unary(Unary::Gelu), &[y]).unwrap();
            let y = dense(g, r, y, "fc2", 8);
            let y = g.add("tanh", Op::Unary(Unary::Tanh), &[y]).unwrap();
            dense(g, r, y, "fc3", 3)
        }),
    ]
}

#[test]
fn networks_in_fixed_point_follow_the_same_plan_in_floats() {
    for (name, dims, build) in networks() {
        let options = options().with_metrics([Metric::Loss, Metric::Right]);
        let training = Training::new(&dims, &options, build);
        assert_close(name, &training.in_fixed_point(), &training.in_the_clear(), TOLERANCE);
    }
}

#[test]
fn networks_on_shares_follow_the_same_plan_in_floats() {
    for (name, dims, build) in networks() {
        let options = options()
            .with_optimiser(Optimiser::sgd(0.9))
            .with_metrics([Metric::Loss, Metric::Right]);
        let training = Training::new(&dims, &options, build);
        assert_close(name, &training.on_shares(), &training.in_the_clear(), TOLERANCE);
    }
}

#[test]
fn a_trained_network_is_applied_by_the_plan_for_inference() {
    let training = Training::new(&[2, 6, 6], &options(), networks()[0].2);
    let state = training.in_the_clear().state;
    let weights = training.plan.inference_weights(&state).unwrap();
    let x = &training.batches[0][0];
    let y = training.plan.inference().evaluate(&weights, std::slice::from_ref(x)).unwrap();
    // The same by a graph whose weights are the trained ones.
    let mut r = Random(1);
    let mut graph = Graph::new(BATCH);
    let input = image(&mut graph, 2, 6);
    let out = networks()[0].2(&mut graph, &mut r, input);
    graph.output("y", out);
    let untrained = graph.evaluate(std::slice::from_ref(x)).unwrap();
    assert!(distance(&y[0], &untrained[0]) > 0.01);
    let before = training.plan.inference_weights(&training.start).unwrap();
    let same = training.plan.inference().evaluate(&before, std::slice::from_ref(x)).unwrap();
    assert!(distance(&same[0], &untrained[0]) < 1e-9);
    assert_eq!(training.plan.inference().fixed_batch(), None);
}

#[test]
fn frozen_layers_are_folded_and_stay_as_they_are() {
    let mut r = Random(2);
    let mut graph = Graph::new(BATCH);
    let x = image(&mut graph, 2, 6);
    let y = conv(&mut graph, &mut r, x, "frozen", 4, Pool::new([3; 2], [1; 2]));
    let y = common::norm(&mut graph, &mut r, y, "norm");
    let y = relu(&mut graph, y);
    let y = flatten(&mut graph, y);
    let y = dense(&mut graph, &mut r, y, "fc", 3);
    graph.train(|name| name.starts_with("fc"));
    let (plan, start) = TrainPlan::new(&graph, y, &options()).unwrap();
    let trained: Vec<_> = plan.state().into_iter().map(|s| (s.name, s.trained)).collect();
    // The norm is gone into the convolution.
    let expected =
        [("fc.weight", true), ("fc.bias", true), ("frozen.weight", false), ("frozen.bias", false)];
    for (name, is_trained) in expected {
        assert!(trained.contains(&(name.to_owned(), is_trained)), "{name} in {trained:?}");
    }
    assert_eq!(trained.len(), expected.len());
    let mut state = start.clone();
    let batch = [r.tensor(&[BATCH, 2, 6, 6], 1.0), labels(&mut r, &Loss::default(), &[BATCH, 3])];
    plan.step_in_the_clear(&mut state, &batch, Step::new(0, RATE)).unwrap();
    for ((before, after), spec) in start.iter().zip(&state).zip(plan.state()) {
        assert_eq!(distance(before, after) > 0.0, spec.trained, "{}", spec.name);
    }
}

#[test]
fn what_cannot_be_trained_is_said_before_anything_runs() {
    let mut r = Random(3);
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
    let y = dense(&mut graph, &mut r, x, "fc1", 4);
    let y = graph.add("steps", Op::Unary(Unary::Floor), &[y]).unwrap();
    let y = dense(&mut graph, &mut r, y, "fc2", 3);
    let error = TrainPlan::new(&graph, y, &options()).unwrap_err().to_string();
    assert!(error.contains("Graph::train"), "{error}");
    let mut last = graph.clone();
    last.train(|name| name.starts_with("fc2"));
    TrainPlan::new(&last, y, &options()).unwrap();
    graph.train(|_| true);
    let error = TrainPlan::new(&graph, y, &options()).unwrap_err().to_string();
    assert!(error.contains("does not depend on `fc1.weight`"), "{error}");
    for wrong in [
        options().with_largest_rate(f64::NAN),
        options().with_loss(Loss::Huber(-1.0)),
        options().with_optimiser(Optimiser::sgd(1.0)),
        options().with_formats(Formats { weights: 60, ..Formats::default() }),
    ] {
        TrainPlan::new(&last, y, &wrong).unwrap_err();
    }
}

#[test]
fn a_graph_with_parameters_compiles_for_inference_as_well() {
    let mut r = Random(4);
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
    let y = perceptron(&mut graph, &mut r, x);
    graph.output("y", y);
    graph.train(|_| true);
    let x = r.tensor(&[BATCH, 5], 1.0);
    let Compiled { plan, weights } = Compiled::new(&graph, &PlanOptions::default()).unwrap();
    assert_eq!(plan.steps(), 2, "bias and ReLU join their products");
    let got = plan.evaluate(&weights, std::slice::from_ref(&x)).unwrap();
    assert!(distance(&got[0], &graph.evaluate(&[x]).unwrap()[0]) < 1e-9);
}

#[test]
fn a_step_whose_values_leave_their_range_says_in_which_layer() {
    let training = Training::new(&[5], &options(), perceptron);
    let step = Step::new(0, RATE);
    let names = training.plan.guarded(step);
    let place = training.plan.state().iter().position(|s| s.name == "fc1.weight").unwrap();
    let left = |factor: f64| {
        let mut start = training.start.clone();
        start[place] = start[place].map(|v| v * factor);
        let state = training.plan.encode_state(&start).unwrap();
        let batch = training.plan.encode_batch(&training.batches[0]).unwrap();
        let plan = training.plan.clone();
        let opened = TestWorld::new(3).run(
            |session| Rss::new(session, CpuEngine::new(1)),
            move |mpc| {
                let shares = shared(mpc, &state)?;
                let mut state = plan.secret_state(shares).unwrap();
                let batch = plan.step_plan().secret_inputs(shared(mpc, &batch)?);
                let step = Step::new(0, RATE);
                let (_, left) =
                    plan.step_guarded(mpc, &mut state, &batch, step, 7, &mut ()).unwrap();
                mpc.open(&[left.share()])
            },
        );
        let words = opened[0][0].words().to_vec();
        assert_eq!(words.len(), names.len());
        let wild = names.iter().zip(words).filter(|(_, word)| *word != 0);
        wild.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(left(1.0), Vec::<String>::new());
    // Products of 46 fraction bits: 2^20 in magnitude leaves the words.
    let wild = left(4e6);
    assert!(wild.iter().any(|name| name.starts_with("fc1")), "{wild:?}");
}

#[test]
fn dropout_leaves_out_other_units_in_every_step_and_none_for_inference() {
    let build: Build = |g, r, x| {
        let y = dense(g, r, x, "fc1", 16);
        let y = relu(g, y);
        let y = g.add("half", Op::Dropout(0.5), &[y]).unwrap();
        let y = dense(g, r, y, "fc2", 8);
        let y = relu(g, y);
        let y = g.add("some", Op::Dropout(0.25), &[y]).unwrap();
        dense(g, r, y, "fc3", 3)
    };
    let options = options().with_seed(3).with_metrics([Metric::Loss]);
    let training = Training::new(&[5], &options, build);
    assert_close("dropout", &training.in_fixed_point(), &training.in_the_clear(), TOLERANCE);
    assert_close("dropout", &training.on_shares(), &training.in_the_clear(), TOLERANCE);
    let loss = |number: u32| {
        let mut state = training.start.clone();
        let step = Step::new(number, 0.0);
        let seen = training.plan.step_in_the_clear(&mut state, &training.batches[0], step);
        seen.unwrap()[0].single().unwrap()
    };
    assert_eq!(loss(4), loss(4));
    assert_ne!(loss(4), loss(5));
    let mut state = training.start.clone();
    let error =
        training.plan.step_in_the_clear(&mut state, &training.batches[0], RATE).unwrap_err();
    assert!(error.to_string().contains("Step::new"), "{error}");
    assert_eq!(training.plan.inference().inputs().len(), 1);
}
