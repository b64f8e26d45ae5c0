//! Gradients of several steps that are added up: the same training as with their batches as one.

use crate::common::training::{
    BATCH, RATE, TOLERANCE, Training, assert_close, assert_weights_close, options, perceptron,
};
use crate::common::{Random, distance, planned};
use nn_layers::HostTensor;
use nn_layers::train::{Adam, Metric, Optimiser, Privacy, Second, Step, TrainOptions};

/// Options at which a test runs, and the learning rate.
fn trainings() -> Vec<(&'static str, TrainOptions, f64)> {
    let sgd = |momentum, nesterov, decay| Optimiser::Sgd { momentum, nesterov, decay };
    let with = |optimiser| options().with_optimiser(optimiser);
    let slow = |adam| with(Optimiser::Adam(adam)).with_largest_rate(RATE / 16.0);
    let adam = Adam { betas: [0.9, 0.99], epsilon: 1e-6, ..Adam::default() };
    vec![
        ("plain", with(sgd(0.0, false, 0.0)), RATE),
        ("decay", with(sgd(0.0, false, 0.01)), RATE),
        ("momentum", with(sgd(0.9, false, 0.0)), RATE),
        ("nesterov", with(sgd(0.9, true, 0.01)), RATE),
        ("clip", with(sgd(0.9, false, 0.0)).with_clip(0.1), RATE),
        ("adam", slow(adam), RATE / 16.0),
        ("adamw", slow(Adam { decoupled: true, decay: 0.01, ..adam }), RATE / 16.0),
        ("rows", slow(Adam { second: Second::Row, ..adam }), RATE / 16.0),
    ]
}

/// The rows of two tensors, one after the other.
fn joined(x: &HostTensor, y: &HostTensor) -> HostTensor {
    let dims = [&[2 * x.dims()[0]], &x.dims()[1..]].concat();
    let values = [x.floats(), y.floats()].concat();
    match x.is_int() {
        true => HostTensor::integers(dims, values.iter().map(|&v| v as i64).collect()).unwrap(),
        false => HostTensor::new(dims, values).unwrap(),
    }
}

#[test]
fn two_steps_that_add_up_their_gradients_are_one_of_both_batches() {
    for (name, options, rate) in trainings() {
        let halves = Training::new(&[5], &options.clone().with_accumulate(2), perceptron).at(rate);
        let mut r = Random(1);
        let (whole, start, _) = planned(2 * BATCH, &[5], &options, &mut r, perceptron);
        let mut state = start;
        for (number, pair) in (0..).zip(halves.batches.chunks(2)) {
            let batch = [0, 1].map(|at| joined(&pair[0][at], &pair[1][at]));
            whole.step_in_the_clear(&mut state, &batch, Step::new(number, rate)).unwrap();
        }
        let got = halves.in_the_clear();
        let specs = halves.plan.state();
        for (spec, value) in whole.state().iter().zip(&state) {
            let at = specs.iter().position(|own| own.name == spec.name).unwrap();
            let error = distance(&got.state[at], value);
            assert!(error < 1e-9, "{name}: {} is off by {error:e}", spec.name);
        }
    }
}

#[test]
fn gradients_that_are_added_up_in_fixed_point_follow_those_in_floats() {
    for (name, options, rate) in trainings() {
        let options = options.with_accumulate(2).with_metrics([Metric::Loss]);
        let training = Training::new(&[5], &options, perceptron).at(rate);
        let expected = training.in_the_clear();
        let got = training.in_fixed_point();
        if let Optimiser::Sgd { .. } = options.optimiser {
            assert_close(name, &got, &expected, TOLERANCE);
        } else {
            assert_weights_close(name, &training, &got, &expected, RATE / 128.0);
        }
        let on_shares = training.on_shares();
        assert_weights_close(name, &training, &on_shares, &expected, RATE / 128.0);
    }
}

#[test]
fn weights_stay_until_the_last_of_the_steps_whose_gradients_are_added_up() {
    let training = Training::new(&[5], &options().with_accumulate(3), perceptron);
    let place =
        |name: &str| training.plan.state().iter().position(|spec| spec.name == name).unwrap();
    let (weight, sum) = (place("fc1.weight"), place("fc1.weight.gradient"));
    let mut state = training.start.clone();
    let mut moves = vec![];
    for (number, batch) in (0..).zip(&training.batches) {
        let before = state[weight].clone();
        let step = Step::new(number, RATE);
        training.plan.step_in_the_clear(&mut state, batch, step).unwrap();
        let kept = state[sum].floats().iter().any(|&g| g != 0.0);
        moves.push((distance(&before, &state[weight]) > 0.0, kept));
    }
    assert_eq!(moves, [(false, true), (false, true), (true, false), (false, true)]);
    let batch = &training.batches[0];
    let error = training.plan.step_in_the_clear(&mut state, batch, RATE).unwrap_err();
    assert!(error.to_string().contains("need the number of a step"), "{error}");
}

#[test]
fn gradients_are_not_added_up_where_that_means_nothing() {
    let build = |options: TrainOptions| {
        let mut r = Random(1);
        let mut graph = nn_layers::Graph::new(BATCH);
        let x = graph.input("x", &[nn_layers::Dim::Batch(1), nn_layers::Dim::Fixed(5)]).unwrap();
        let output = perceptron(&mut graph, &mut r, x);
        graph.output("y", output);
        graph.train(|_| true);
        nn_layers::train::TrainPlan::new(&graph, output, &options).unwrap_err().to_string()
    };
    let rare = Optimiser::Adam(Adam { every: 2, ..Adam::default() });
    let noisy = options().with_privacy(Privacy::new(1.0, 1.0)).with_accumulate(2);
    for (options, wanted) in [
        (options().with_accumulate(0), "1 to 256 are possible"),
        (options().with_optimiser(rare).with_accumulate(2), "inverse roots are made every"),
        (noisy, "noise is added in every step"),
    ] {
        let text = build(options);
        assert!(text.contains(wanted), "{text}");
    }
}
