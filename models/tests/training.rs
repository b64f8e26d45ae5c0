//! Whole trainings on shares against the same in floats, and what a step costs.

use std::collections::BTreeMap;

use crate::common::{data, share};
use models::architectures::{Pooling, RandomWeights, by_name};
use models::data::{Dataset, Order, digits};
use models::onnx;
use mpc_core::{Operand, Protocol, TestWorld};
use net::{Metered, Report, Session, Stats};
use nn_layers::layers::{Flatten, Layer, Linear, Sequential};
use nn_layers::train::{Optimiser, Role, Schedule, State, Step, TrainOptions, TrainPlan};
use nn_layers::{Dim, Graph, HostTensor, Unary};
use ring_arith::{CpuEngine, Engine, Tensor, View};
use rss_protocols::Rss;

const BATCH: usize = 64;
const EPOCHS: u32 = 20;
const RATE: f64 = 0.5;
const HIDDEN: usize = 128;

/// Every so many rows one is held out, so that each writer is seen: the last rows alone, the test of the
/// shipped network, are harder for a network this small.
const HELD_OUT: usize = 5;

/// Uniform numbers within the bounds of PyTorch's linear layers, from a seed that everybody knows.
fn start(dims: &[usize], inputs: usize, seed: u64) -> HostTensor {
    let bound = 1.0 / (inputs as f64).sqrt();
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    };
    let values = (0..dims.iter().product()).map(|_| next() * bound).collect();
    HostTensor::new(dims, values).unwrap()
}

fn training_plan() -> (TrainPlan, Vec<HostTensor>) {
    let layer = |outputs, inputs, seed| {
        let weight = start(&[outputs, inputs], inputs, seed);
        Linear::new(weight, start(&[outputs], inputs, seed + 1))
    };
    let network = Sequential::new()
        .then("flatten", Flatten)
        .then("fc1", layer(HIDDEN, 64, 1))
        .then("relu", Unary::Relu)
        .then("fc2", layer(10, HIDDEN, 3));
    let mut graph = Graph::new(BATCH);
    let image = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(8), Dim::Fixed(8)];
    let x = graph.input("image", &image).unwrap();
    let logits = network.forward(&mut graph, "net", x).unwrap();
    graph.train(|_| true);
    let options =
        TrainOptions::default().with_optimiser(Optimiser::sgd(0.9)).with_largest_rate(RATE);
    TrainPlan::new(&graph, logits, &options).unwrap()
}

fn schedule(order: &Order) -> Schedule {
    Schedule::cosine(RATE, EPOCHS * order.steps() as u32).warm_up(10)
}

/// Some rows of a data set.
fn rows_of(set: &Dataset, rows: &[usize]) -> Dataset {
    let labels = rows.iter().map(|&row| set.labels[row]).collect();
    Dataset::new(set.images.rows(rows).unwrap(), labels).unwrap()
}

/// Images and one-hot labels.
fn tensors(set: &Dataset) -> [HostTensor; 2] {
    let mut labels = vec![0; set.len() * 10];
    set.labels.iter().enumerate().for_each(|(row, label)| labels[row * 10 + label] = 1);
    [set.images.clone(), HostTensor::integers([set.len(), 10], labels).unwrap()]
}

fn in_floats(
    plan: &TrainPlan,
    start: &[HostTensor],
    rows: &[HostTensor; 2],
    order: &Order,
) -> Vec<HostTensor> {
    let mut state = start.to_vec();
    let schedule = schedule(order);
    for step in 0..EPOCHS * order.steps() as u32 {
        let picked = &order.epoch(step / order.steps() as u32)[step as usize % order.steps()];
        let batch = rows.each_ref().map(|x| x.rows(picked).unwrap());
        plan.step_in_the_clear(&mut state, &batch, schedule.step(step)).unwrap();
    }
    state
}

/// What each party runs: rows are shared once, and picked by public positions.
fn on_shares<P: Protocol>(
    mpc: &mut P,
    plan: &TrainPlan,
    start: &[Tensor],
    rows: &[Tensor],
    order: &Order,
) -> mpc_core::Result<Vec<Tensor>>
where
    P::Engine: Engine<Tensor = Tensor>,
{
    let shares = share(mpc, start)?;
    let mut state: State<P> = plan.secret_state(shares).unwrap();
    let rows = share(mpc, rows)?;
    let schedule = schedule(order);
    let mut step = 0;
    for epoch in 0..EPOCHS {
        for picked in order.epoch(epoch) {
            let view = View::Gather { axis: 0, indices: picked.into() };
            let view = mpc_core::Linear::View(&view);
            let batch = rows.iter().map(|x| mpc.linear(&view, x)).collect::<Result<_, _>>()?;
            let batch: Vec<Operand<P>> = plan.step_plan().secret_inputs(batch);
            plan.step(mpc, &mut state, &batch, schedule.step(step), &mut ()).unwrap();
            step += 1;
        }
    }
    mpc.open(&state.shares())
}

/// The part of the test digits that a trained network reads rightly, in percent.
fn accuracy(plan: &TrainPlan, state: &[HostTensor], test: &Dataset) -> f64 {
    let weights = plan.inference_weights(state).unwrap();
    let logits = plan.inference().evaluate(&weights, std::slice::from_ref(&test.images)).unwrap();
    let best = |row: &[f64]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let rows = logits[0].floats();
    let right = rows.chunks(10).zip(&test.labels).filter(|(row, label)| best(row) == **label);
    right.count() as f64 * 100.0 / test.len() as f64
}

#[test]
fn digits_learnt_on_shares_are_read_as_well_as_those_learnt_in_floats() {
    let all = digits(&data("digits.csv.gz")).unwrap();
    let (test, known) = (0..all.len()).partition::<Vec<_>, _>(|row| row % HELD_OUT == 0);
    let test = rows_of(&all, &test);
    let rows = tensors(&rows_of(&all, &known));
    let order = Order::new(known.len(), BATCH, 7);
    let (plan, start) = training_plan();

    let words: Vec<_> = [20, 0].iter().zip(&rows).map(|(&frac, x)| words(x, frac)).collect();
    let (shared_plan, state) = (plan.clone(), plan.encode_state(&start).unwrap());
    let begun = std::time::Instant::now();
    let opened = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| on_shares(mpc, &shared_plan, &state, &words, &order),
    );
    let seconds = begun.elapsed().as_secs_f64();
    let private = accuracy(&plan, &plan.decode_state(&opened[0]).unwrap(), &test);
    let float = accuracy(&plan, &in_floats(&plan, &start, &rows, &order), &test);
    println!("{private:.1} % on shares in {seconds:.1} s, {float:.1} % in floats");
    assert!(private >= 97.0, "{private} %");
    assert!((private - float).abs() <= 1.0, "{private} % on shares, {float} % in floats");
}

/// What a step costs: bytes that the busiest party sends, and rounds.
fn step_cost(plan: &TrainPlan, start: &[HostTensor], rate: f64) -> (u64, u32) {
    let mut words = vec![plan.encode_state(start).unwrap()];
    let shapes = plan.step_plan().input_shapes(plan.batch()).unwrap();
    let batch: Vec<_> = shapes[..2]
        .iter()
        .map(|shape| HostTensor::new(shape.dims(), vec![0.0; shape.len()]).unwrap())
        .collect();
    words.push(plan.encode_batch(&batch).unwrap());
    let plan = plan.clone();
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let shares = share(&mut mpc, &words[0])?;
        let mut state: State<_> = plan.secret_state(shares).unwrap();
        let batch = share(&mut mpc, &words[1])?;
        let batch: Vec<Operand<_>> = plan.step_plan().secret_inputs(batch);
        // All parties at one depth.
        mpc.open(&[state.shares()[0]])?;
        meter.reset();
        plan.step(&mut mpc, &mut state, &batch, Step::new(0, rate), &mut ()).unwrap();
        Ok(meter.stats())
    };
    let stats = TestWorld::new(3).try_sessions(program);
    let stats: Vec<Stats> = stats.into_iter().map(Result::unwrap).collect();
    let bytes = stats.iter().map(Stats::bytes_sent).max().unwrap();
    (bytes, Report::of(&stats).rounds)
}

#[test]
fn steps_cost_as_many_bytes_and_rounds_as_they_should() {
    let graph = by_name("lenet", Pooling::Average, &mut RandomWeights::new(1)).unwrap();
    let mut graph = graph.for_batch(128).unwrap();
    let logits = graph.only_output().unwrap();
    graph.train(|_| true);
    let options = TrainOptions::default();
    let (plan, start) = TrainPlan::new(&graph, logits, &options).unwrap();
    assert_eq!(step_cost(&plan, &start, 0.1), (27_430_032, 65), "LeNet, batch 128");
    let (plan, start) = training_plan();
    assert_eq!(step_cost(&plan, &start, RATE), (632_952, 48), "the digits, batch 64");
}

/// A tensor's words with the given fraction bits.
fn words(x: &HostTensor, frac: u32) -> Tensor {
    let word = |v: &f64| (v * f64::from(frac).exp2()).round() as i64 as u64;
    Tensor::new(x.shape().clone(), x.floats().iter().map(word).collect::<Vec<_>>()).unwrap()
}

#[test]
fn trained_weights_go_back_into_the_file_that_they_came_from() {
    let file = std::fs::read(data("digits.onnx")).unwrap();
    let graph = onnx::import(&file, &onnx::ImportOptions::default()).unwrap();
    let mut graph = graph.for_batch(BATCH).unwrap();
    let logits = graph.only_output().unwrap();
    graph.train(|_| true);
    let options = TrainOptions::default().with_optimiser(Optimiser::sgd(0.9));
    let (plan, mut state) = TrainPlan::new(&graph, logits, &options).unwrap();
    let all = digits(&data("digits.csv.gz")).unwrap();
    let rows = tensors(&rows_of(&all, &(0..BATCH).collect::<Vec<_>>()));
    plan.step_in_the_clear(&mut state, &rows, 0.05).unwrap();
    let trained = plan.state().into_iter().zip(&state);
    let trained: BTreeMap<_, _> = trained
        .filter(|(spec, _)| spec.trained && spec.role == Role::Network)
        .map(|(spec, value)| (spec.name, value.clone()))
        .collect();
    let written = onnx::with_weights(&file, None, &trained).unwrap();
    // Shapes may be written in another form, some bytes a tensor; all else is as it was.
    assert!(written.len().abs_diff(file.len()) < 10 * trained.len(), "{}", written.len());
    assert_ne!(written, file);
    let again = onnx::import(&written, &onnx::ImportOptions::default()).unwrap();
    let again = again.for_batch(BATCH).unwrap();
    let y = again.evaluate(&rows[..1]).unwrap();
    let weights = plan.finish_in_the_clear(&state).unwrap();
    let expected = plan.inference().evaluate(&weights, &rows[..1]).unwrap();
    for (a, b) in y[0].floats().iter().zip(expected[0].floats().iter()) {
        assert!((a - b).abs() < 1e-4, "{a} is not {b}");
    }
    let mut other = trained.clone();
    other.insert("no such weight".to_owned(), HostTensor::new([1], vec![0.0]).unwrap());
    let error = onnx::with_weights(&file, None, &other).unwrap_err().to_string();
    assert!(error.contains("no such weight"), "{error}");
    let name = trained.keys().next().unwrap().clone();
    let shorter = [(name, HostTensor::new([1], vec![0.0]).unwrap())].into();
    assert!(onnx::with_weights(&file, None, &shorter).is_err());
    for cut in (0..file.len() / 2).step_by(997) {
        onnx::with_weights(&file[..cut], None, &trained).unwrap_err();
    }
}
