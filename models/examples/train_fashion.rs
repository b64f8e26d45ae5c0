//! Three parties learn to tell clothes apart on pictures that none of them sees: each party is a thread of this
//! program. Weights stay shared until the end, when they are opened to try them.

use std::path::Path;

use models::architectures::RandomWeights;
use models::data::{Dataset, Order, mnist};
use mpc_core::{Operand, Protocol, TestWorld};
use net::Party;
use nn_layers::layers::{Flatten, Layer, Linear, Sequential};
use nn_layers::train::{Optimiser, Schedule, State, TrainOptions, TrainPlan};
use nn_layers::{Dim, Graph, HostTensor, Unary};
use ring_arith::{CpuEngine, EngineTensor, Tensor};
use rss_protocols::Rss;

const BATCH: usize = 64;
const EPOCHS: u32 = 2;
const RATE: f64 = 0.1;
const HIDDEN: usize = 32;
const CLASSES: usize = 10;
const SEED: u64 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let known = clothes("train")?;
    let (plan, start) = network()?;
    let order = Order::new(known.len(), BATCH, SEED);
    let mut batches = vec![];
    for rows in (0..EPOCHS).flat_map(|epoch| order.epoch(epoch)) {
        let some = known.rows(&rows)?;
        batches.push([some.images.clone(), some.one_hot(CLASSES)?]);
    }
    let schedule = Schedule::cosine(RATE, batches.len() as u32).warm_up(5);

    // Who owns the pictures encodes them, batch by batch. Party 0 plays all owners here.
    let words = batches.iter().map(|b| plan.encode_batch(b)).collect::<Result<Vec<_>, _>>()?;
    let state = plan.encode_state(&start)?;
    let shared_plan = plan.clone();
    let opened = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| train(mpc, &shared_plan, &schedule, &state, &words),
    );
    let private = plan.decode_state(&opened[0])?;

    let mut floats = start;
    for (step, batch) in (0..).zip(&batches) {
        plan.step_in_the_clear(&mut floats, batch, schedule.step(step))?;
    }
    let unseen = clothes("test")?;
    for (how, state) in [("on shares", private), ("in floats", floats)] {
        let weights = plan.finish_in_the_clear(&state)?;
        let images = std::slice::from_ref(&unseen.images);
        let logits = plan.inference().evaluate(&weights, images)?;
        let best = |row: &[f64]| (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b]));
        let logits = logits[0].floats();
        let rows = logits.chunks(CLASSES).zip(&unseen.labels);
        let right = rows.filter(|(row, label)| best(row) == Some(**label)).count();
        println!("trained {how}: {right} of {} pictures told rightly", unseen.len());
    }
    Ok(())
}

/// A part of the excerpt of Fashion-MNIST.
fn clothes(part: &str) -> models::Result<Dataset> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let file = |what: &str| folder.join(format!("fashion-{part}-{what}.idx.gz"));
    mnist(&file("images"), &file("labels"))
}

/// What each party runs.
fn train(
    mpc: &mut Rss<CpuEngine>,
    plan: &TrainPlan,
    schedule: &Schedule,
    state: &[Tensor],
    batches: &[Vec<Tensor>],
) -> mpc_core::Result<Vec<Tensor>> {
    let shares = share(mpc, state)?;
    let mut state: State<_> =
        plan.secret_state(shares).expect("the shares are those of the plan's state");
    for (step, batch) in (0..).zip(batches) {
        let shares = share(mpc, batch)?;
        let batch: Vec<Operand<_>> = plan.step_plan().secret_inputs(shares);
        plan.step(mpc, &mut state, &batch, schedule.step(step), &mut ())
            .expect("a plan that was made runs on shares of its state");
    }
    mpc.open(&state.shares())
}

/// Shares tensors that party 0 has.
fn share(
    mpc: &mut Rss<CpuEngine>,
    words: &[Tensor],
) -> mpc_core::Result<Vec<<Rss<CpuEngine> as Protocol>::Share>> {
    let shapes: Vec<_> = words.iter().map(|word| word.shape().clone()).collect();
    let mine = mpc.me() == Party(0);
    mpc.input(Party(0), &shapes, mine.then_some(words))
}

/// Two dense layers, their start from a seed that everybody knows.
fn network() -> Result<(TrainPlan, Vec<HostTensor>), Box<dyn std::error::Error>> {
    let mut source = RandomWeights::new(SEED);
    let mut layer = |outputs: usize, inputs: usize| -> models::Result<Linear> {
        let bound = 1.0 / (inputs as f64).sqrt();
        let weight = source.around(&[outputs, inputs], 0.0, bound)?;
        Ok(Linear::new(weight, source.around(&[outputs], 0.0, bound)?))
    };
    let network = Sequential::new()
        .then("flatten", Flatten)
        .then("fc1", layer(HIDDEN, 28 * 28)?)
        .then("relu", Unary::Relu)
        .then("fc2", layer(CLASSES, HIDDEN)?);
    let mut graph = Graph::new(BATCH);
    let image = [Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(28), Dim::Fixed(28)];
    let x = graph.input("image", &image)?;
    let logits = network.forward(&mut graph, "net", x)?;
    graph.train(|_| true);
    let options =
        TrainOptions::default().with_optimiser(Optimiser::sgd(0.9)).with_largest_rate(RATE);
    Ok(TrainPlan::new(&graph, logits, &options)?)
}
