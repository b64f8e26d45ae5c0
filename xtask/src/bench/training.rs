//! Benchmarks of training steps: three parties, network, images and labels secret, random weights. Each step is
//! timed in turn with its comparison, so that a drifting clock does not affect the ratio.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use models::architectures::{Pooling, RandomWeights, by_name};
use mpc_core::{Deal, Operand, Protocol, ServerProtocol};
use net::{Meter, Party, Session, launch as parties};
use nn_layers::train::{
    self, Optimiser, Privacy, State, Step, TrainOptions, TrainPlan, TrainRequest,
};
use nn_layers::{Compiled, Graph, HostTensor, Plan, PlanOptions};
use ring_arith::Tensor;
use serde::{Deserialize, Serialize};

use super::models::Profile;
use super::party::{self, JOB, Mpc, Setup, agree_on_runs, barrier};
use super::{Bench, Effort, Network, Timing};

/// A network whose training step is measured, and its comparison.
pub(super) struct Training {
    pub(super) case: &'static str,
    network: &'static str,
    batch: usize,
    how: How,
    against: Against,
}

/// The optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Gradient descent.
    Sgd,
    /// Adam with second moments by row.
    AdamByRow,
    /// Gradient descent with clipped gradients and noise.
    Private,
}

/// The comparison that is timed in turn with a step, on the same batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// The network's plan for inference.
    Inference,
    /// The forward pass alone, by the batch's statistics.
    Forward,
    /// A step of gradient descent.
    Sgd,
}

/// All cases, CryptGPU's networks with average pooling. Names key a history of results.
pub(super) const TRAININGS: &[Training] = &[
    Training {
        case: "lenet/128",
        network: "lenet",
        batch: 128,
        how: How::Sgd,
        against: Against::Inference,
    },
    Training {
        case: "lenet/128/adam-row",
        network: "lenet",
        batch: 128,
        how: How::AdamByRow,
        against: Against::Sgd,
    },
    Training {
        case: "lenet/128/private",
        network: "lenet",
        batch: 128,
        how: How::Private,
        against: Against::Sgd,
    },
    Training {
        case: "small-cnn/128/private",
        network: "small-cnn",
        batch: 128,
        how: How::Private,
        against: Against::Sgd,
    },
    Training {
        case: "alexnet-cifar/128",
        network: "alexnet-cifar",
        batch: 128,
        how: How::Sgd,
        against: Against::Inference,
    },
    Training {
        case: "vgg16-cifar/32",
        network: "vgg16-cifar",
        batch: 32,
        how: How::Sgd,
        against: Against::Inference,
    },
    Training {
        case: "resnet8/64",
        network: "resnet8",
        batch: 64,
        how: How::Sgd,
        against: Against::Forward,
    },
];

/// Seed of the random weights and inputs.
const SEED: u64 = 2021;

/// The learning rate of every step.
pub(super) const RATE: f64 = 0.01;

/// The cases of this module.
///
/// # Errors
/// If a network cannot be trained, or the parties cannot be started or fail.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let setup = bench.setup(Network::Tls);
    for training in TRAININGS {
        bench.case(training.case, |case| {
            let measured = measure(training, setup, case.effort())?;
            let [step, other] = &measured;
            case.run_by(&step.names).network_of(&setup).threads(setup.threads);
            case.size(format!("batch {}", training.batch)).timing(step.timing);
            case.bytes_per_party(step.bytes).rounds(step.rounds);
            case.times(training.against.name(), step.timing.median / other.timing.median);
            eprintln!(
                "  {}: {:.3} s, {:.2} MB a party, {} rounds; {:.2} times its bytes",
                training.against.name(),
                other.timing.median,
                other.bytes as f64 / 1e6,
                other.rounds,
                step.bytes as f64 / other.bytes as f64,
            );
            for (name, kind, seconds) in &step.slowest {
                eprintln!("  {:8.1} ms  {name} ({kind})", seconds * 1e3);
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Self::Inference => "own inference",
            Self::Forward => "own forward pass",
            Self::Sgd => "own step of gradient descent",
        }
    }
}

/// The step and its comparison, with the numbers that only party 0 needs.
pub(super) struct Pair {
    request: TrainRequest,
    pub(super) step: TrainPlan,
    start: Vec<HostTensor>,
    other: Other,
    other_start: Vec<HostTensor>,
}

/// The public part of a step's comparison.
#[derive(Clone, Serialize, Deserialize)]
enum Other {
    Plan(Box<Plan>),
    Step(Box<TrainRequest>),
}

impl Training {
    fn graph(&self) -> Result<Graph> {
        let graph = by_name(self.network, Pooling::Average, &mut RandomWeights::new(SEED))?;
        let mut graph = graph.for_batch(self.batch)?;
        graph.train(|_| true);
        Ok(graph)
    }

    fn plan(&self, how: How) -> Result<(TrainRequest, TrainPlan, Vec<HostTensor>)> {
        let graph = self.graph()?;
        let options = TrainOptions::default().with_largest_rate(RATE);
        let options = match how {
            How::Sgd => options.with_optimiser(Optimiser::sgd(0.0)),
            How::AdamByRow => options.with_optimiser(Optimiser::adam_by_row()),
            How::Private => options.with_privacy(Privacy::new(1.0, 1.0)),
        };
        Ok(TrainPlan::with_request(&graph, graph.only_output()?, &options)?)
    }

    pub(super) fn pair(&self) -> Result<Pair> {
        let (request, step, start) = self.plan(self.how)?;
        let (other, other_start) = match self.against {
            Against::Sgd => {
                let (request, _, start) = self.plan(How::Sgd)?;
                (Other::Step(Box::new(request)), start)
            }
            Against::Inference => {
                let graph = by_name(self.network, Pooling::Average, &mut RandomWeights::new(SEED))?;
                let Compiled { plan, weights } = Compiled::new(&graph, &PlanOptions::default())?;
                (Other::Plan(Box::new(plan)), weights)
            }
            Against::Forward => {
                let graph = self.graph()?;
                let output = graph.only_output()?;
                let Compiled { plan, weights } =
                    train::forward(&graph, output, &TrainOptions::default())?;
                (Other::Plan(Box::new(plan)), weights)
            }
        };
        Ok(Pair { request, step, start, other, other_start })
    }

    /// Images, and one-hot labels.
    fn rows(&self, plan: &TrainPlan) -> Result<[HostTensor; 2]> {
        let shapes = plan.step_plan().input_shapes(self.batch)?;
        let images = RandomWeights::new(SEED + 1).around(shapes[0].dims(), 0.0, 1.0)?;
        let classes = shapes[1].dims()[1];
        let labels =
            (0..self.batch * classes).map(|i| i64::from(i / classes * 7 % classes == i % classes));
        Ok([images, HostTensor::integers([self.batch, classes], labels.collect())?])
    }
}

/// The description of a measurement for every party.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    case: String,
    setup: Setup,
    effort: Effort,
    plans: PathBuf,
}

/// One party's measurements of a step or of its comparison.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Measured {
    seconds: Vec<f64>,
    bytes: u64,
    /// Causal depth before and after the last run.
    depth: [u32; 2],
    names: [String; 2],
    /// Name, kind and seconds of the slowest parts of the last run.
    slowest: Vec<(String, String, f64)>,
}

/// The measurements of all parties together.
struct Outcome {
    timing: Timing,
    names: [String; 2],
    bytes: u64,
    rounds: u64,
    slowest: Vec<(String, String, f64)>,
}

fn measure(training: &Training, setup: Setup, effort: Effort) -> Result<[Outcome; 2]> {
    let folder = std::env::temp_dir().join(format!("trefoil-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let plans = folder.join("plans.json");
    let Pair { request, other, .. } = training.pair()?;
    fs::write(&plans, serde_json::to_vec(&(request, other))?)?;
    let task = Task { case: training.case.to_owned(), setup, effort, plans };
    let measured = match setup.network {
        Network::InProcess => party::threads(training.case, &setup, |session| task.run(session)),
        _ => {
            let args = ["training".to_owned(), serde_json::to_string(&task)?];
            party::processes(&setup, &args, std::slice::from_ref(&task.plans), |line| {
                serde_json::from_str(line).ok()
            })
        }
    };
    fs::remove_dir_all(&folder)?;
    let measured = measured?;
    Ok([combine(&measured, 0)?, combine(&measured, 1)?])
}

fn combine(parties: &[[Measured; 2]], which: usize) -> Result<Outcome> {
    let parties: Vec<_> = parties.iter().map(|both| &both[which]).collect();
    let runs = parties[0].seconds.len();
    ensure!(parties.iter().all(|party| party.seconds.len() == runs), "parties ran differently");
    // A run lasts until the last party is done.
    let slowest = |run: usize| parties.iter().map(|party| party.seconds[run]).fold(0.0, f64::max);
    let depth = |at: usize| parties.iter().map(|party| party.depth[at]).max().unwrap_or(0);
    Ok(Outcome {
        timing: Timing::from_runs((0..runs).map(slowest).collect(), None),
        names: parties[0].names.clone(),
        bytes: parties.iter().map(|party| party.bytes).max().unwrap_or(0),
        rounds: u64::from(depth(1) - depth(0)),
        slowest: parties[0].slowest.clone(),
    })
}

/// A program that a party runs in turn.
enum Running {
    Plan { plan: Box<Plan>, weights: Vec<Operand<Mpc>>, x: Vec<Operand<Mpc>> },
    Step { plan: Box<TrainPlan>, state: State<Mpc>, batch: Vec<Operand<Mpc>>, number: u32 },
}

impl Running {
    fn run(&mut self, mpc: &mut Mpc, profile: &mut Profile) -> Result<()> {
        match self {
            Self::Plan { plan, weights, x } => drop(plan.run(mpc, weights, x, profile)?),
            Self::Step { plan, state, batch, number } => {
                plan.step(mpc, state, batch, Step::new(*number, RATE), profile)?;
                *number += 1;
            }
        }
        mpc.verify()?;
        Ok(())
    }
}

impl Task {
    fn run(&self, session: Session) -> Result<[Measured; 2]> {
        let (mut mpc, meter) = party::join(session, &self.setup)?;
        let mut pair = self.running(&mut mpc)?;
        let mut one = 0.0;
        for _ in 0..2 {
            barrier(&mut mpc)?;
            let clock = Instant::now();
            for running in &mut pair {
                running.run(&mut mpc, &mut Profile::default())?;
            }
            one = clock.elapsed().as_secs_f64();
        }
        let runs = agree_on_runs(&mut mpc, &self.effort, one / 2.0)?;
        let mut measured = [Measured::default(), Measured::default()];
        for _ in 0..runs {
            for (running, measured) in pair.iter_mut().zip(&mut measured) {
                once(&mut mpc, &meter, running, measured)?;
            }
        }
        let names = party::names(&mpc);
        measured.iter_mut().for_each(|measured| measured.names = names.clone());
        drop(pair);
        mpc.close()?;
        Ok(measured)
    }

    /// Shares both models and the rows, all of which party 0 holds.
    fn running(&self, mpc: &mut Mpc) -> Result<[Running; 2]> {
        let training = TRAININGS.iter().find(|known| known.case == self.case);
        let training = training.with_context(|| format!("no case {}", self.case))?;
        let (request, other): (TrainRequest, Other) = read(&self.plans)?;
        let step = request.derive()?;
        let mut words: [Option<Vec<Tensor>>; 3] = [None, None, None];
        if mpc.me() == Party(0) {
            let pair = training.pair()?;
            ensure!(pair.step == step, "the plan is not the one that was written");
            let rows = training.rows(&step)?;
            let other_words = match &other {
                Other::Plan(plan) => plan.encode_weights(&pair.other_start)?,
                Other::Step(request) => request.derive()?.encode_state(&pair.other_start)?,
            };
            words = [
                Some(step.encode_state(&pair.start)?),
                Some(other_words),
                Some(step.encode_batch(&rows)?),
            ];
        }
        let shapes = step.step_plan().input_shapes(training.batch)?;
        let rows = party::input(mpc, &shapes[..2], words[2].as_deref())?;
        let batch: Vec<Operand<Mpc>> = step.step_plan().secret_inputs(rows);
        let shapes: Vec<_> = step.state().into_iter().map(|spec| spec.shape).collect();
        let shares = party::input(mpc, &shapes, words[0].as_deref())?;
        let state = step.secret_state(shares)?;
        let other = match other {
            Other::Plan(plan) => {
                let shapes: Vec<_> = plan.weights().into_iter().map(|w| w.shape).collect();
                let shares = party::input(mpc, &shapes, words[1].as_deref())?;
                let weights = plan.secret_weights(shares);
                Running::Plan { plan, weights, x: batch[..1].to_vec() }
            }
            Other::Step(request) => {
                let plan = Box::new(request.derive()?);
                let shapes: Vec<_> = plan.state().into_iter().map(|spec| spec.shape).collect();
                let shares = party::input(mpc, &shapes, words[1].as_deref())?;
                let state = plan.secret_state(shares)?;
                Running::Step { plan, state, batch: batch.clone(), number: 0 }
            }
        };
        Ok([Running::Step { plan: Box::new(step), state, batch, number: 0 }, other])
    }
}

/// Times one run.
fn once(mpc: &mut Mpc, meter: &Meter, running: &mut Running, into: &mut Measured) -> Result<()> {
    let mut profile = Profile::default();
    mpc.begin_job(&JOB)?;
    barrier(mpc)?;
    let start = meter.stats();
    let clock = Instant::now();
    running.run(mpc, &mut profile)?;
    into.seconds.push(clock.elapsed().as_secs_f64());
    let end = meter.stats();
    into.bytes = end.bytes_sent() - start.bytes_sent();
    into.depth = [start.depth, end.depth];
    into.slowest = profile.slowest(8);
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Runs this process as one party of a measurement.
///
/// # Errors
/// If the arguments are not those of [`cases`], or the party fails.
pub(super) fn party(args: &[String]) -> Result<()> {
    let Some(task) = args.first() else { bail!("no measurement is named") };
    let task: Task = serde_json::from_str(task).context("not a measurement")?;
    let endpoint = parties::joined()?.context("not started as a party")?;
    let session = endpoint.session(&party::job(&task.case, &task.setup)?)?;
    println!("{}", serde_json::to_string(&task.run(session)?)?);
    Ok(())
}
