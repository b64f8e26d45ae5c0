//! Trainings whose first layer standardises the rows, by numbers that are made of them on shares.

use crate::common::training::{BATCH, RATE, options, perceptron, run, shared};
use crate::common::{Random, distance, planned};
use mpc_core::{Protocol, TestWorld};
use nn_layers::train::{Metric, Privacy, Step, TrainPlan, TrainRequest};
use nn_layers::{Dim, Graph, HostTensor, Op};
use ring_arith::{CpuEngine, Tensor};
use rss_protocols::Rss;

/// Rows of an age, an income, a small ratio, a constant, a category, and a year.
fn rows(count: usize) -> HostTensor {
    let mut r = Random(7);
    let draws = r.tensor(&[count, 6], 1.0);
    let cell = |(at, x): (usize, &f64)| match at % 6 {
        0 => 50.0 + 30.0 * x,
        1 => 60_000.0 + 50_000.0 * x,
        2 => 0.25 + 0.01 * x,
        3 => 17.5,
        4 => f64::from(*x > 0.0),
        _ => 2000.0 + 20.0 * x,
    };
    let numbers = draws.floats().iter().enumerate().map(cell).collect();
    HostTensor::new([count, 6], numbers).unwrap()
}

/// Mean and deviation of a column.
fn moments(rows: &HostTensor, column: usize) -> [f64; 2] {
    let numbers: Vec<_> = rows.floats().iter().skip(column).step_by(6).copied().collect();
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    [mean, variance.sqrt()]
}

/// The state of a plan after its standardisation by rows on shares.
fn standardized(
    plan: &TrainPlan,
    start: &[HostTensor],
    rows: &HostTensor,
    kept: &[bool],
) -> Vec<HostTensor> {
    let words = [plan.encode_state(start).unwrap(), vec![plan.encode_rows(0, rows).unwrap()]];
    let (program, kept) = (plan.clone(), [kept.to_vec()]);
    let opened: Vec<Vec<Tensor>> = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let state = shared(mpc, &words[0])?;
            let mut state = program.secret_state(state).unwrap();
            let rows = shared(mpc, &words[1])?;
            program.standardize(mpc, &mut state, &rows, &kept).unwrap();
            mpc.open(&state.shares())
        },
    );
    plan.decode_state(&opened[0]).unwrap()
}

#[test]
fn columns_of_any_scale_are_standardised_by_all_rows() {
    let options = options().with_standardize(true);
    let (plan, start, _) = planned(BATCH, &[6], &options, &mut Random(1), perceptron);
    let find = |name: &str| plan.state().iter().position(|spec| spec.name == name).unwrap();
    for count in [3, 700] {
        let rows = rows(count);
        let kept = [false, false, false, false, true, false];
        let state = standardized(&plan, &start, &rows, &kept);
        let [mean, factor] =
            ["x.mean", "x.factor"].map(|name| state[find(name)].floats().into_owned());
        for column in [0, 1, 2, 5] {
            let [wanted, deviation] = moments(&rows, column);
            let error = (mean[column] - wanted).abs();
            assert!(error < 1e-5 * wanted.abs(), "mean {column}: {}, not {wanted}", mean[column]);
            let error = (factor[column] * deviation - 1.0).abs();
            let digits = deviation / f64::from(1 << 21);
            assert!(error < 0.002 + digits, "factor {column}: off by {error}");
        }
        assert!(
            (mean[3] - 17.5).abs() < 1e-4 && factor[3] == 1.0,
            "a constant: {mean:?}, {factor:?}"
        );
        assert_eq!([mean[4], factor[4]], [0.0, 1.0], "a category");
    }
    let all = standardized(&plan, &start, &rows(9), &[]);
    assert!(all[find("x.factor")].floats()[4] > 1.5, "categories are scaled where none is kept");
}

#[test]
fn what_is_learnt_of_standardised_rows_is_right_for_rows_as_they_are() {
    let options = options().with_standardize(true).with_metrics([Metric::Loss]);
    let (plan, start, _) = planned(BATCH, &[6], &options, &mut Random(1), perceptron);
    let all = rows(40);
    let state = standardized(&plan, &start, &all, &[]);
    let moved = |name: &str| plan.state().iter().find(|spec| spec.name == name).unwrap().trained;
    assert!(moved("x.mean") && moved("x.factor"), "they leave with the weights");
    let labels = |at: usize| (0..3).map(move |class| i64::from(at % 3 == class));
    let batch = |step: usize| {
        let picked: Vec<_> = (0..BATCH).map(|at| step * BATCH + at).collect();
        let labels = picked.iter().flat_map(|&at| labels(at)).collect();
        [all.rows(&picked).unwrap(), HostTensor::integers([BATCH, 3], labels).unwrap()]
    };
    let batches: Vec<_> = (0..4).map(batch).collect();
    let mut words = vec![plan.encode_state(&state).unwrap()];
    words.extend(batches.iter().map(|batch| plan.encode_batch(batch).unwrap()));
    let (program, words) = (plan.clone(), words);
    let mut opened = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| run(&program, RATE, mpc, &words),
    );
    let mut got = opened.swap_remove(0);
    got.truncate(plan.state().len());
    let got = plan.decode_state(&got).unwrap();
    let mut floats = state.clone();
    for (number, batch) in (0..).zip(&batches) {
        plan.step_in_the_clear(&mut floats, batch, Step::new(number, RATE)).unwrap();
    }
    for ((spec, got), wanted) in plan.state().iter().zip(&got).zip(&floats) {
        let error = distance(got, wanted);
        assert!(error < 1.0 / 1024.0, "{} is off by {error}", spec.name);
    }
    // The network for inference takes rows as they are, too.
    let weights = plan.finish_in_the_clear(&got).unwrap();
    let scores = plan.inference().evaluate(&weights, &[batches[0][0].clone()]).unwrap();
    assert!(scores[0].floats().iter().all(|score| score.abs() < 20.0), "{scores:?}");
}

#[test]
fn a_request_whose_network_does_not_standardise_is_refused() {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(6)]).unwrap();
    let y = perceptron(&mut graph, &mut Random(1), x);
    graph.train(|_| true);
    let written = |standardize| {
        let (request, _) =
            TrainRequest::new(&graph, y, &options().with_standardize(standardize)).unwrap();
        serde_json::to_value(&request).unwrap()
    };
    let mut without = written(false);
    without["options"]["standardize"] = true.into();
    let mut other = written(true);
    let tensors = other["tensors"].as_array_mut().unwrap();
    let mean = tensors.iter_mut().find(|tensor| tensor["name"] == "x.mean").unwrap();
    mean["name"] = "y.mean".into();
    for request in [without, other] {
        let request: TrainRequest = serde_json::from_value(request).unwrap();
        let text = request.derive().unwrap_err().to_string();
        assert!(text.contains("no tensor `x.mean` standardises input `x`"), "{text}");
    }
    let request: TrainRequest = serde_json::from_value(written(true)).unwrap();
    assert!(request.derive().unwrap().options().standardize);
    let private = options().with_standardize(true).with_privacy(Privacy::new(1.0, 1.0));
    let text = TrainRequest::new(&graph, y, &private).unwrap_err().to_string();
    assert!(text.contains("which no noise protects"), "{text}");
    // A network of integers alone has nothing to standardise.
    let mut integers = Graph::new(BATCH);
    let x = integers.integer_input("x", &[Dim::Batch(1), Dim::Fixed(6)]).unwrap();
    let x = integers.add("real", Op::Cast, &[x]).unwrap();
    let y = perceptron(&mut integers, &mut Random(1), x);
    integers.train(|_| true);
    let text =
        TrainPlan::new(&integers, y, &options().with_standardize(true)).unwrap_err().to_string();
    assert!(text.contains("no input of real numbers"), "{text}");
}
