//! Trainings by several machines of each party.

use std::thread;

use mpc_core::{Operand, Protocol, Result as MpcResult, TruncationMode};
use net::{Meter, Metered, Party, Session};
use nn_layers::crew::{Crew, InProcessCrew};
use nn_layers::layers::{BatchNorm, Layer};
use nn_layers::train::{Metric, Optimiser, Privacy, Step, TrainOptions, TrainPlan};
use nn_layers::{Binary, Dim, Graph, Op, Pool, ValueId};
use ring_arith::{CpuEngine, Engine, Shape, ShapeEngine, Tensor};
use rss_protocols::{Options, Rss};

use crate::common::training::{labels, perceptron, shared};
use crate::common::{Random, conv, dense, flatten, planned, relu};

const BATCH: usize = 8;
const RATE: f64 = 0.25;

type Build = fn(&mut Graph, &mut Random, ValueId) -> ValueId;

/// A training's start, and batches of all machines.
struct Run {
    plan: TrainPlan,
    start: Vec<Tensor>,
    batches: Vec<Vec<Tensor>>,
}

/// The results of machines after a training, and the bytes that they sent.
struct Trained {
    /// Of each machine: the network's weights, and all metrics.
    machines: Vec<Vec<Vec<u64>>>,
    /// Bytes between the parties in all steps.
    between: u64,
    /// Bytes that all machines of party 0 sent to each other.
    inside: u64,
}

fn plan(options: &TrainOptions, dims: &[usize], build: Build, steps: usize) -> Run {
    let mut r = Random(3);
    let (plan, start, mut result) = planned(BATCH, dims, options, &mut r, build);
    let start = plan.encode_state(&start).unwrap();
    // The batches are those of one machine.
    let whole = planned(BATCH, dims, &options.clone().with_crew(1), &mut Random(3), build).0;
    result[0] = BATCH;
    let batches = (0..steps).map(|_| {
        let x = r.tensor(&[&[BATCH], dims].concat(), 1.0);
        whole.encode_batch(&[x, labels(&mut r, &options.loss, &result)]).unwrap()
    });
    let batches = batches.collect();
    Run { plan, start, batches }
}

/// All steps of one machine; opens its weights and its metrics. Also the bytes that the steps add to `sent`.
fn train<P: Protocol>(
    mpc: &mut P,
    sent: impl Fn() -> u64,
    crew: &mut dyn Crew<P::Engine>,
    Run { plan, start, batches }: &Run,
) -> MpcResult<(Vec<Vec<u64>>, u64)>
where
    P::Engine: Engine<Tensor = Tensor>,
{
    let state = shared(mpc, start)?;
    let mut state = plan.secret_state(state).unwrap();
    let mut seen = vec![];
    let mut bytes = 0;
    for (number, batch) in (0..).zip(batches) {
        let shares = shared(mpc, batch)?;
        let own = plan.batch_of_machine(mpc, crew.rank(), &shares).unwrap();
        let own: Vec<Operand<P>> = plan.step_plan().secret_inputs(own);
        let step = Step::new(number, RATE);
        let before = sent();
        seen.extend(plan.step_in_crew(mpc, crew, &mut state, &own, step, &mut ()).unwrap());
        bytes += sent() - before;
    }
    let places = plan.network_places();
    let shares = state.shares();
    let mut results: Vec<_> = places.iter().map(|&place| shares[place]).collect();
    results.extend(seen.iter().map(|x| x.share()));
    let opened = mpc.open(&results)?;
    Ok((opened.iter().map(|words| words.words().to_vec()).collect(), bytes))
}

/// Runs a program as every machine of three parties, of which those of one number meet. The program gets a session's
/// protocol and its meter.
fn machines<E: Engine, R: Send>(
    machines: usize,
    engine: &E,
    mode: TruncationMode,
    program: impl Fn(&mut Rss<E>, &Meter, &mut InProcessCrew<E>) -> R + Sync,
) -> Vec<R> {
    let mut crews: Vec<_> =
        (0..3).map(|_| InProcessCrew::new(machines).unwrap().into_iter()).collect();
    let mut members: Vec<(Session, InProcessCrew<E>)> = vec![];
    for rank in 0..machines {
        let sessions = net::in_process::sessions_from_seed(3, 7 + rank as u64);
        members.extend(sessions.into_iter().zip(&mut crews).map(|(s, c)| (s, c.next().unwrap())));
    }
    let member = |(mut session, mut crew): (Session, InProcessCrew<E>)| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let options = Options::default().truncation(mode);
        let mut mpc = Rss::with_options(session, engine.clone(), options).unwrap();
        program(&mut mpc, &meter, &mut crew)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = members.into_iter().map(|m| scope.spawn(|| member(m))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Trains by the machines that the plan is for, with replicated sharing.
fn on_shares(run: &Run, mode: TruncationMode) -> Trained {
    let crew = run.plan.options().crew;
    let done = machines(crew, &CpuEngine::new(1), mode, |mpc, meter, crew| {
        let (opened, sent) = train(mpc, || meter.bytes_sent(), crew, run).unwrap();
        (mpc.me() == Party(0), opened, sent, crew.bytes_sent())
    });
    Trained {
        between: done.iter().map(|(_, _, sent, _)| sent).sum(),
        inside: done.iter().filter(|(first, ..)| *first).map(|(.., inside)| inside).sum(),
        machines: done.into_iter().filter(|(first, ..)| *first).map(|(_, o, ..)| o).collect(),
    }
}

fn digits(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = conv(g, r, x, "conv", 5, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = relu(g, y);
    let y = flatten(g, y);
    dense(g, r, y, "fc", 3)
}

/// A convolution with batch normalisation, whose running statistics are part of the network.
fn normed(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = conv(g, r, x, "conv", 16, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let norm = BatchNorm {
        scale: r.tensor(&[16], 0.5).map(|v| v + 1.0).into(),
        shift: r.tensor(&[16], 0.2).into(),
        mean: r.tensor(&[16], 0.2).into(),
        variance: r.tensor(&[16], 0.5).map(|v| v + 1.0).into(),
        epsilon: 1e-5,
        momentum: 0.25,
    };
    let y = norm.forward(g, "norm", y).unwrap();
    let y = relu(g, y);
    let y = flatten(g, y);
    dense(g, r, y, "fc", 8)
}

#[test]
fn all_machines_have_the_same_weights_and_running_statistics() {
    let options = TrainOptions::default().with_largest_rate(RATE).with_crew(2);
    let crew = on_shares(&plan(&options, &[3, 6, 6], normed, 2), TruncationMode::Default);
    assert_eq!(crew.machines[0], crew.machines[1]);
}

#[test]
fn fifty_steps_of_two_machines_are_those_of_one() {
    let options =
        TrainOptions::default().with_largest_rate(RATE).with_optimiser(Optimiser::sgd(0.9));
    let [one, two] = [1, 2].map(|machines| {
        let options = options.clone().with_crew(machines);
        on_shares(&plan(&options, &[5], perceptron, 50), TruncationMode::Exact)
    });
    assert_eq!(one.machines[0], two.machines[0]);
    assert_eq!(one.machines[0], two.machines[1]);
}

#[test]
fn machines_send_no_more_between_parties_and_24_bytes_a_weight_inside() {
    let options =
        TrainOptions::default().with_largest_rate(RATE).with_optimiser(Optimiser::sgd(0.9));
    let steps = 2;
    let [one, two] = [1, 2].map(|machines| {
        let options = options.clone().with_crew(machines);
        on_shares(&plan(&options, &[4, 16, 16], wide, steps), TruncationMode::Default)
    });
    let tensors = one.machines[0].iter().map(|words| words.len() as u64);
    let weights: u64 = tensors.clone().sum();
    // Their gradients are sums, of which a party holds two words.
    let biases: u64 = tensors.filter(|len| *len <= 16).sum();
    let [alone, together, inside] = [one.between, two.between, two.inside];
    assert_eq!(one.inside, 0);
    // Of both machines together: 24 bytes, of which each sends a half.
    assert_eq!(inside, (24 * weights + 8 * biases) * steps as u64);
    assert!(inside / 2 <= 24 * weights * steps as u64);
    assert!(100 * together <= 102 * alone, "{together} bytes, alone {alone}");
}

/// Layers with as many elements as a plane has lanes.
fn wide(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let y = conv(g, r, x, "conv", 16, Pool::new([3; 2], [1; 2]).padded([1; 4]));
    let y = relu(g, y);
    let y = flatten(g, y);
    let y = dense(g, r, y, "fc1", 16);
    let y = relu(g, y);
    dense(g, r, y, "fc2", 8)
}

#[test]
fn a_crew_that_cannot_share_a_training_is_refused_by_name() {
    let refused = |options: TrainOptions| {
        let mut graph = Graph::new(BATCH);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
        let y = perceptron(&mut graph, &mut Random(1), x);
        graph.train(|_| true);
        TrainPlan::new(&graph, y, &options).unwrap_err().to_string()
    };
    let options = TrainOptions::default();
    for (options, reason) in [
        (options.clone().with_crew(3), "3 machines cannot have as many of 8 rows each"),
        (options.clone().with_crew(0), "0 machines cannot have as many of 8 rows each"),
        (
            options.clone().with_crew(2).with_optimiser(Optimiser::adam_by_row()),
            "each machine has a stretch",
        ),
        (options.with_crew(2).with_privacy(Privacy::new(1.0, 1.0)), "which one machine does"),
    ] {
        let error = refused(options);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn machines_of_a_party_train_to_the_last_bit_like_one() {
    let optimisers = [
        Optimiser::sgd(0.0),
        Optimiser::Sgd { momentum: 0.9, nesterov: true, decay: 0.01 },
        Optimiser::adam(),
    ];
    for optimiser in optimisers {
        let options = TrainOptions::default()
            .with_largest_rate(RATE)
            .with_optimiser(optimiser)
            .with_metrics([Metric::Loss, Metric::Right]);
        for (dims, build) in [(&[5][..], perceptron as Build), (&[2, 5, 5], digits)] {
            let one = on_shares(&plan(&options, dims, build, 3), TruncationMode::Exact);
            for machines in [2, 4] {
                let options = options.clone().with_crew(machines);
                let run = plan(&options, dims, build, 3);
                let crew = on_shares(&run, TruncationMode::Exact);
                for machine in &crew.machines {
                    assert_eq!(machine, &one.machines[0], "{machines} machines, {optimiser:?}");
                }
            }
        }
    }
}

/// ResNet-8 for pictures of 32 by 32.
fn resnet(g: &mut Graph, r: &mut Random, x: ValueId) -> ValueId {
    let kernel =
        |size: usize, stride: usize| Pool::new([size; 2], [stride; 2]).padded([size / 2; 4]);
    let mut x = conv(g, r, x, "stem", 16, kernel(3, 1));
    x = relu(g, x);
    for (channels, stride) in [(16, 1), (32, 2), (64, 2)] {
        let name = |part: &str| format!("block {channels} {part}");
        let y = conv(g, r, x, &name("first"), channels, kernel(3, stride));
        let y = relu(g, y);
        let y = conv(g, r, y, &name("second"), channels, kernel(3, 1));
        let shortcut = match stride {
            1 => x,
            _ => conv(g, r, x, &name("shortcut"), channels, kernel(1, stride)),
        };
        let sum = g.add(&name("sum"), Op::Binary(Binary::Add), &[y, shortcut]).unwrap();
        x = relu(g, sum);
    }
    let pool = Op::AvgPool { pool: Pool::new([8; 2], [8; 2]), count_border: true };
    let y = g.add("pool", pool, &[x]).unwrap();
    let y = flatten(g, y);
    dense(g, r, y, "fc", 10)
}

/// The bytes of one step between all parties, and those that one machine sends inside its party; shapes alone.
fn sent_in_a_step(machines: usize, batch: usize) -> (u64, u64, u64) {
    let options = TrainOptions::default()
        .with_largest_rate(RATE)
        .with_optimiser(Optimiser::sgd(0.9))
        .with_crew(machines);
    let plan = planned(batch, &[3, 32, 32], &options, &mut Random(1), resnet).0;
    let weights: u64 =
        plan.network_places().iter().map(|&at| plan.state()[at].shape.len() as u64).sum();
    let mode = TruncationMode::Default;
    let sent = self::machines(machines, &ShapeEngine, mode, |mpc, meter, crew| {
        let zeros = |shape: &Shape| {
            let words = mpc.engine().upload(Tensor::zeros(shape.clone())).unwrap();
            mpc.constant(&words).unwrap()
        };
        let state = plan.state().iter().map(|spec| zeros(&spec.shape)).collect();
        let own = plan.batch_shapes().unwrap().iter().map(zeros).collect();
        let mut state = plan.secret_state(state).unwrap();
        let own: Vec<Operand<_>> = plan.step_plan().secret_inputs(own);
        plan.step_in_crew(mpc, crew, &mut state, &own, Step::new(0, RATE), &mut ()).unwrap();
        (meter.bytes_sent(), crew.bytes_sent())
    });
    let between = sent.iter().map(|(between, _)| between).sum();
    (between, sent.iter().map(|(_, inside)| *inside).max().unwrap_or(0), weights)
}

#[test]
fn a_step_of_resnet_8_sends_as_much_by_two_machines_as_by_one() {
    let (alone, none, _) = sent_in_a_step(1, 64);
    let (together, inside, weights) = sent_in_a_step(2, 64);
    assert_eq!(none, 0);
    assert!(100 * together <= 102 * alone, "{together} bytes, alone {alone}");
    assert!(inside <= 24 * weights, "{inside} bytes of {weights} weights");
}

#[test]
fn a_step_of_resnet_8_by_two_machines_is_that_of_one_to_the_last_bit() {
    let options =
        TrainOptions::default().with_largest_rate(RATE).with_optimiser(Optimiser::sgd(0.9));
    let [one, two] = [1, 2].map(|machines| {
        let options = options.clone().with_crew(machines);
        on_shares(&plan(&options, &[3, 32, 32], resnet, 1), TruncationMode::Exact)
    });
    assert!(one.machines[0] == two.machines[0] && one.machines[0] == two.machines[1]);
}
