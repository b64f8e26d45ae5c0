//! `trefoil demo --train`: a network learns handwritten digits that no party sees.

use std::{sync::Mutex, time::Instant};

use models::{
    architectures::RandomWeights,
    data::{DIGITS, Dataset, digits_from_csv},
};
use nn_layers::{
    Dim, Graph, HostTensor, Unary,
    layers::{Flatten, Layer, Linear, Sequential},
    train::{Metric, Optimiser, Schedule, TrainOptions, TrainPlan},
};
use serde::Serialize;

use super::{SIDE, best, number};
use crate::{
    base::{
        Error, Result,
        format::{bytes, seconds},
    },
    cli::{arguments::Demo, output::Output},
    client::Total,
    local::{self, Epoch},
    model::Program,
    training::{Augment, Course, Training},
};

/// Rows of a step.
const BATCH: usize = 64;

/// Neurons between the pixels and the digits.
const HIDDEN: usize = 128;

/// The largest learning rate, to which it rises, and from which it falls to 0.
const RATE: f64 = 0.5;

/// One of every `HELD_OUT` images is held out: writers come one after the other, and each is seen.
const HELD_OUT: usize = 5;

/// The seed of the network's start and of the rows' order.
const SEED: u64 = 7;

/// The digits.
const CLASSES: usize = 10;

/// A network at its start, and the data.
struct Task {
    training: Training,
    start: Vec<HostTensor>,
    /// Images and one-hot labels.
    rows: [HostTensor; 2],
    test: Dataset,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    epoch: u32,
    loss_private: f64,
    loss_plaintext: f64,
    right_private: f64,
    right_plaintext: f64,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    images: usize,
    held_out: usize,
    steps: u32,
    accuracy_private: f64,
    accuracy_plaintext: f64,
    seconds_training: f64,
    seconds_all: f64,
    seconds_per_step: f64,
    bytes_per_step: u64,
    rounds_per_step: u32,
    curve: Vec<Point>,
}

pub(super) fn run(arguments: &Demo, output: Output) -> Result<()> {
    local::check_trains(arguments.protocol)?;
    let began = Instant::now();
    let task = Task::new(arguments.epochs)?;
    let (training, plan) = (&task.training, task.training.plan());
    output.remark(format!(
        "{} parties in this process train a network of {} weights on {} images of handwritten digits,\n\
         {} at a time. Each party sees random words only: of the images, of their labels, of the weights, and of\n\
         how well it goes. Beside it, the same training in the clear, in 64-bit floats.\n",
        number(arguments.protocol.servers()),
        task.start.iter().map(HostTensor::len).sum::<usize>() / 2,
        task.rows[0].dims()[0],
        plan.batch(),
    ))?;
    let (plaintext, clear) = task.in_the_clear()?;
    let [images, labels] = &task.rows;
    let rows = [plan.encode_rows(0, images)?, plan.encode_rows(1, labels)?];
    let start = plan.encode_state(&task.start)?;
    output.remark("epoch       loss   in the clear      right   in the clear       time")?;
    let curve = Mutex::new(Vec::new());
    let mut total: Mutex<Option<Total>> = Mutex::new(None);
    let watch = |epoch: Epoch| {
        let cost = Total::of(&epoch.costs);
        let point = point(&epoch, &clear[epoch.number as usize], cost.seconds);
        // A line that cannot be printed does not stop the training; the report at the end repeats
        // it.
        let _ = output.remark(point.line());
        if let (Ok(mut curve), Ok(mut total)) = (curve.lock(), total.lock()) {
            curve.push(point);
            match &mut *total {
                Some(sum) => sum.add(&cost),
                None => *total = Some(cost),
            }
        }
    };
    let state =
        local::train(arguments.protocol, training, &start, &rows, arguments.engine, &watch)?;
    let none = || Error::Internal("a training without epochs".to_owned());
    let cost = total.get_mut().ok().and_then(Option::take).ok_or_else(none)?;
    let accuracy_private = task.on_shares(&state, arguments)?;
    let steps = training.steps();
    let report = Report {
        images: task.rows[0].dims()[0],
        held_out: task.test.len(),
        steps,
        accuracy_private,
        accuracy_plaintext: task.read_in_the_clear(&plaintext)?,
        seconds_training: cost.seconds,
        seconds_all: began.elapsed().as_secs_f64(),
        seconds_per_step: cost.seconds / f64::from(steps),
        bytes_per_step: cost.bytes / u64::from(steps),
        rounds_per_step: cost.rounds / steps,
        curve: curve.into_inner().unwrap_or_default(),
    };
    output.remark("")?;
    output.result(&report, || text(&report))?;
    if arguments.profile {
        output.remark(format!("\n{}", cost.layer_table(None)))?;
    }
    Ok(())
}

impl Task {
    fn new(epochs: u32) -> Result<Self> {
        let broken = |cause| Error::Internal(format!("shipped images: {cause}"));
        let all = digits_from_csv(DIGITS).map_err(broken)?;
        let (test, known) = (0..all.len()).partition::<Vec<_>, _>(|row| row % HELD_OUT == 0);
        let pick = |rows: &[usize]| {
            let labels = rows.iter().map(|&row| all.labels[row]).collect();
            Dataset::new(all.images.rows(rows)?, labels).map_err(broken)
        };
        let known = pick(&known)?;
        let (plan, start) = network()?;
        let steps = epochs * (known.len() / BATCH) as u32;
        let schedule = Schedule::cosine(RATE, steps).warm_up(10);
        let course = Course { epochs, seed: SEED, schedule, augment: Augment::default() };
        let training = Training::of_epochs(plan, course, known.len())?;
        let mut labels = vec![0; known.len() * CLASSES];
        known.labels.iter().enumerate().for_each(|(row, digit)| labels[row * CLASSES + digit] = 1);
        let labels = HostTensor::integers([known.len(), CLASSES], labels)?;
        Ok(Self { training, start, rows: [known.images, labels], test: pick(&test)? })
    }

    /// The same training in 64-bit floats: the last state, and loss and right answers of each epoch.
    fn in_the_clear(&self) -> Result<(Vec<HostTensor>, Vec<Vec<f64>>)> {
        let mut state = self.start.clone();
        let steps = self.training.epoch_steps();
        let rows = self.training.rows_of(steps) as f64;
        let epoch = |epoch: u32| {
            let steps = epoch * steps..(epoch + 1) * steps;
            let sums = self.training.run_in_the_clear(&mut state, &self.rows, steps)?;
            Ok(sums.iter().map(|sum| sum / rows).collect())
        };
        let curve = (0..self.training.course().epochs).map(epoch).collect::<Result<_>>()?;
        Ok((state, curve))
    }

    /// The part of the held-out images that the trained network reads rightly: on shares, of which the
    /// answers alone are added up.
    fn on_shares(&self, state: &[ring_arith::Tensor], arguments: &Demo) -> Result<f64> {
        let plan = self.training.plan();
        let program = Program::new(plan.inference().clone())?;
        let weights = plan.inference_weights(state)?;
        let input = program.plan().encode_input(0, self.test.len(), &self.test.images)?;
        let answer =
            local::infer(arguments.protocol, &program, &weights, &input, arguments.engine)?;
        let logits = program.plan().decode_output(0, &answer.outputs[0])?;
        Ok(self.right(&logits.floats()))
    }

    fn read_in_the_clear(&self, state: &[HostTensor]) -> Result<f64> {
        let plan = self.training.plan();
        let weights = plan.inference_weights(state)?;
        let inputs = std::slice::from_ref(&self.test.images);
        let logits = plan.inference().evaluate(&weights, inputs)?;
        Ok(self.right(&logits[0].floats()))
    }

    fn right(&self, logits: &[f64]) -> f64 {
        let rows = logits.chunks(CLASSES).zip(&self.test.labels);
        let right = rows.filter(|(row, digit)| best(row) == **digit).count();
        right as f64 / self.test.len() as f64
    }
}

/// A small network for images of digits, and how it is trained. Its start is within the bounds of PyTorch's linear
/// layers, from a public seed.
fn network() -> Result<(TrainPlan, Vec<HostTensor>)> {
    let mut source = RandomWeights::new(SEED);
    let mut layer = |outputs: usize, inputs: usize| -> Result<Linear> {
        let bound = 1.0 / (inputs as f64).sqrt();
        let mut tensor = |dims: &[usize]| {
            let drawn = source.around(dims, 0.0, bound);
            drawn.map_err(|cause| Error::Internal(format!("the demo's network: {cause}")))
        };
        let weight = tensor(&[outputs, inputs])?;
        Ok(Linear::new(weight, tensor(&[outputs])?))
    };
    let network = Sequential::new()
        .then("flatten", Flatten)
        .then("fc1", layer(HIDDEN, SIDE * SIDE)?)
        .then("relu", Unary::Relu)
        .then("fc2", layer(CLASSES, HIDDEN)?);
    let mut graph = Graph::new(BATCH);
    let image = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(SIDE), Dim::Fixed(SIDE)];
    let x = graph.input("image", &image)?;
    let logits = network.forward(&mut graph, "net", x)?;
    graph.train(|_| true);
    let options = TrainOptions::default()
        .with_optimiser(Optimiser::sgd(0.9))
        .with_largest_rate(RATE)
        .with_metrics([Metric::Loss, Metric::Right]);
    Ok(TrainPlan::new(&graph, logits, &options)?)
}

fn point(epoch: &Epoch, clear: &[f64], seconds: f64) -> Point {
    let of = |metrics: &[f64], at: usize| metrics.get(at).copied().unwrap_or(f64::NAN);
    Point {
        epoch: epoch.number + 1,
        loss_private: of(&epoch.metrics, 0),
        loss_plaintext: of(clear, 0),
        right_private: of(&epoch.metrics, 1),
        right_plaintext: of(clear, 1),
        seconds,
    }
}

impl Point {
    fn line(&self) -> String {
        format!(
            "{:>5} {:>10.4} {:>14.4} {:>8.1} % {:>12.1} % {:>10}",
            self.epoch,
            self.loss_private,
            self.loss_plaintext,
            100.0 * self.right_private,
            100.0 * self.right_plaintext,
            seconds(self.seconds),
        )
    }
}

fn text(report: &Report) -> String {
    format!(
        "held out   {} images: {:.2} % read rightly by the network trained on shares, {:.2} % by that in the clear\n\
         training   {} for {} steps\n\
         a step     {}, {} between all parties, {} rounds",
        report.held_out,
        100.0 * report.accuracy_private,
        100.0 * report.accuracy_plaintext,
        seconds(report.seconds_training),
        report.steps,
        seconds(report.seconds_per_step),
        bytes(report.bytes_per_step),
        report.rounds_per_step
    )
}
