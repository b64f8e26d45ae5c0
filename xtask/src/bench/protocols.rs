//! Benchmarks of operations on shares: three parties, or two with a dealer's tapes, each with its own copy of the
//! program.

use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};
use gpu_kernels::AnyTensor;
use mpc_core::{
    Compare, Deal, Finish, Largest, Linear, Product, Protocol, SecretTensor, ShareTensor,
    SplitMix64, Then, TruncationMode,
    functions::{self, exp, reciprocal, sqrt},
};
use net::{Party, Session, launch as parties};
use ring_arith::{Bilinear, ConvSpec, Shape, Tensor, View, Window};
use rss_protocols::{BitShare, Share};
use serde::{Deserialize, Serialize};

use super::party::{self, Mpc, Setup, agree_on_runs, barrier, next_place, places_left};
use super::{Bench, Effort, Network, Timing, cpu_seconds, figures};

/// The work that a case repeats, once its inputs are shared.
pub(super) type Run = Box<dyn FnMut(&mut Mpc) -> mpc_core::Result<()>>;

/// Shares an operation's inputs.
pub(super) type Make = fn(&mut Mpc) -> mpc_core::Result<Run>;

/// A named operation.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) size: &'static str,
    pub(super) make: Make,
}

/// All operations. Names key a history of results.
const OPERATIONS: &[Operation] = &[
    Operation { name: "relu/1e4", size: "10^4", make: |mpc| relu(mpc, 10_000, 64) },
    Operation { name: "relu/1e5", size: "10^5", make: |mpc| relu(mpc, 100_000, 64) },
    Operation { name: "relu/1e6", size: "10^6", make: |mpc| relu(mpc, 1_000_000, 64) },
    Operation { name: "relu-w32/1e6", size: "10^6", make: |mpc| relu(mpc, 1_000_000, 32) },
    Operation { name: "ltz/1e6", size: "10^6", make: negative },
    Operation { name: "trunc-relu/1e6", size: "10^6", make: fused },
    Operation { name: "mul-trunc/1e6", size: "10^6", make: multiply },
    Operation { name: "matmul/256", size: "256^3", make: |mpc| matmul(mpc, 256) },
    Operation { name: "matmul/1024", size: "1024^3", make: |mpc| matmul(mpc, 1024) },
    Operation { name: "matmul/2048", size: "2048^3", make: |mpc| matmul(mpc, 2048) },
    Operation {
        name: "conv/resnet-block",
        size: "1x64x56x56, 64 of 3x3",
        make: |mpc| conv(mpc, &[1, 64, 56, 56], &[64, 64, 3, 3], 1, 1),
    },
    Operation {
        name: "conv/alexnet-1",
        size: "1x3x224x224, 64 of 11x11 / 4",
        make: |mpc| conv(mpc, &[1, 3, 224, 224], &[64, 3, 11, 11], 4, 2),
    },
    Operation {
        name: "conv/batch32-11x11",
        size: "32x3x32x32, 64 of 11x11 / 4",
        make: |mpc| conv(mpc, &[32, 3, 32, 32], &[64, 3, 11, 11], 4, 2),
    },
    Operation { name: "softmax/128x10", size: "128x10", make: |mpc| softmax(mpc, [128, 10]) },
    Operation { name: "softmax/128x200", size: "128x200", make: |mpc| softmax(mpc, [128, 200]) },
    Operation { name: "exp/1e5", size: "10^5 in -8..2", make: |mpc| apply(mpc, exp, -8.0, 2.0) },
    Operation {
        name: "reciprocal/1e5",
        size: "10^5 in 0.05..50",
        make: |mpc| apply(mpc, reciprocal, 0.05, 50.0),
    },
    Operation {
        name: "sqrt/1e5",
        size: "10^5 in 0.05..50",
        make: |mpc| apply(mpc, sqrt, 0.05, 50.0),
    },
    Operation { name: "sort/1e3", size: "10^3", make: |mpc| sort(mpc, 1000) },
    Operation { name: "sort/1e4", size: "10^4", make: |mpc| sort(mpc, 10_000) },
    Operation { name: "maxpool/112", size: "1x64x112x112, 2x2", make: max_pool },
];

/// Fraction bits of the operands.
const FRAC: u32 = 20;

/// Runs before the clock counts.
const WARM_UP: usize = 2;

/// The cases of this module.
///
/// # Errors
/// If the parties cannot be started or fail.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let setup = bench.setup(Network::Tls);
    OPERATIONS.iter().try_for_each(|operation| run(bench, operation.name, operation, setup))
}

/// Measures an operation as a case.
pub(super) fn run(
    bench: &mut Bench,
    name: &str,
    operation: &Operation,
    setup: Setup,
) -> Result<()> {
    bench.case(name, |case| {
        let outcome = measure(operation, setup, case.effort())?;
        case.run_by(&outcome.names).network(setup.network).threads(setup.threads);
        case.size(operation.size).timing(outcome.timing);
        case.bytes_per_party(outcome.bytes).rounds(outcome.rounds);
        Ok(())
    })
}

/// The seconds of runs of the operation of this name.
///
/// # Errors
/// If no operation has this name, or the parties fail.
pub(super) fn seconds_of(name: &str, setup: Setup, effort: Effort) -> Result<Vec<f64>> {
    let operation = OPERATIONS.iter().find(|operation| operation.name == name);
    Ok(measure(operation.with_context(|| format!("no case {name}"))?, setup, effort)?.seconds)
}

/// The measurements of all parties together.
struct Outcome {
    timing: Timing,
    seconds: Vec<f64>,
    /// Of protocol and engine.
    names: [String; 2],
    bytes: u64,
    rounds: u64,
}

/// The measurements of one party.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    seconds: Vec<f64>,
    cpu: f64,
    bytes: u64,
    /// Causal depth before and after the last run.
    depth: [u32; 2],
    names: [String; 2],
}

fn measure(operation: &Operation, setup: Setup, effort: Effort) -> Result<Outcome> {
    let tapes = match setup.protocol {
        super::Protocol::Rss => None,
        super::Protocol::RssDealt => Some(deal(operation, setup, effort)?),
    };
    let plan = Plan { case: operation.name.to_owned(), setup, effort, tapes };
    let measured = match setup.network {
        Network::InProcess => {
            let all = party::threads(operation.name, &setup, |session| plan.run(session));
            // The process is one, so each party has counted the CPU time of all.
            all.map(|mut all| {
                all.iter_mut().skip(1).for_each(|party| party.cpu = 0.0);
                all
            })
        }
        _ => {
            let args = ["protocols".to_owned(), serde_json::to_string(&plan)?];
            party::processes(&setup, &args, |line| serde_json::from_str(line).ok())
        }
    };
    if let Some(tapes) = &plan.tapes {
        fs::remove_dir_all(tapes)?;
    }
    combine(&measured?)
}

/// Makes the tapes of a measurement, in a separate folder.
fn deal(operation: &Operation, setup: Setup, effort: Effort) -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("trefoil-bench-tapes-{}", process::id()));
    let run = |mpc: &mut Mpc, run: &mut Run| run(mpc);
    party::deal(&setup, &effort, &folder, WARM_UP + 1, operation.make, run)?;
    Ok(folder)
}

fn combine(parties: &[Measured]) -> Result<Outcome> {
    let runs = parties[0].seconds.len();
    ensure!(parties.iter().all(|party| party.seconds.len() == runs), "parties ran differently");
    // A run lasts until the last party is done.
    let slowest = |run: usize| parties.iter().map(|party| party.seconds[run]).fold(0.0, f64::max);
    let seconds: Vec<f64> = (0..runs).map(slowest).collect();
    let cpu = parties.iter().map(|party| party.cpu).sum();
    let depth = |at: usize| parties.iter().map(|party| party.depth[at]).max().unwrap_or(0);
    Ok(Outcome {
        timing: Timing::from_runs(seconds.clone(), Some(cpu)),
        seconds,
        names: parties[0].names.clone(),
        bytes: parties.iter().map(|party| party.bytes).max().unwrap_or(0),
        rounds: u64::from(depth(1) - depth(0)),
    })
}

/// The description of a measurement for every party.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    case: String,
    setup: Setup,
    effort: Effort,
    /// The folder of the parties' tapes, if a dealer made some.
    tapes: Option<PathBuf>,
}

impl Plan {
    fn run(&self, session: Session) -> Result<Measured> {
        let (mut mpc, meter, tape) = party::join_with(session, &self.setup, self.tapes.as_deref())?;
        let tape = tape.as_ref();
        let mut known = OPERATIONS.iter().chain(figures::OPERATIONS);
        let operation = known.find(|known| known.name == self.case);
        let operation = operation.with_context(|| format!("no case {}", self.case))?;
        let mut run = (operation.make)(&mut mpc)?;
        for _ in 0..WARM_UP {
            next_place(&mut mpc, tape)?;
            run(&mut mpc)?;
        }
        next_place(&mut mpc, tape)?;
        barrier(&mut mpc)?;
        let clock = Instant::now();
        run(&mut mpc)?;
        let one = clock.elapsed().as_secs_f64();
        let runs = agree_on_runs(&mut mpc, &self.effort, one)?.min(places_left(tape));
        let (mut seconds, mut bytes, mut depth) = (Vec::with_capacity(runs), 0, [0; 2]);
        let before = cpu_seconds().unwrap_or(0.0);
        for _ in 0..runs {
            next_place(&mut mpc, tape)?;
            barrier(&mut mpc)?;
            let start = meter.stats();
            let clock = Instant::now();
            run(&mut mpc)?;
            mpc.verify()?;
            seconds.push(clock.elapsed().as_secs_f64());
            let end = meter.stats();
            bytes = end.bytes_sent() - start.bytes_sent();
            depth = [start.depth, end.depth];
        }
        let cpu = cpu_seconds().unwrap_or(0.0) - before;
        let names = party::names(&mpc);
        mpc.close()?;
        Ok(Measured { seconds, cpu, bytes, depth, names })
    }
}

/// Runs this process as one party of a measurement.
///
/// # Errors
/// If the arguments are not those of [`cases`], or the party fails.
pub(super) fn party(args: &[String]) -> Result<()> {
    let plan = args.first().context("no measurement is named")?;
    let plan: Plan = serde_json::from_str(plan).context("not a measurement")?;
    let endpoint = parties::joined()?.context("not started as a party")?;
    let session = endpoint.session(&party::job(&plan.case, &plan.setup)?)?;
    println!("{}", serde_json::to_string(&plan.run(session)?)?);
    Ok(())
}

// -- the operations ----------------------------------------------------------------------------

/// A shared tensor of words below `2^bits` in magnitude.
fn secret(mpc: &mut Mpc, dims: &[usize], bits: u32) -> mpc_core::Result<Share<AnyTensor>> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(dims.iter().sum::<usize>() as u64 + u64::from(bits));
    let words = (0..shape.len()).map(|_| draw.signed(bits)).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    Ok(party::input(mpc, &[shape], mine)?.remove(0))
}

pub(super) fn relu(mpc: &mut Mpc, n: usize, width: u32) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[n], (width - 1).min(40))?;
    Ok(Box::new(move |mpc| {
        let then = Then { not_negative: &[&x], ..Then::default() };
        mpc.compare_one(Compare { value: &x, width, then }).map(drop)
    }))
}

fn negative(mpc: &mut Mpc) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[1_000_000], 40)?;
    Ok(Box::new(move |mpc| {
        mpc.compare_one(Compare { value: &x, width: 64, then: Then::word() }).map(drop)
    }))
}

fn product(
    mpc: &mut Mpc,
    op: &Bilinear,
    x: &Share<AnyTensor>,
    y: &Share<AnyTensor>,
    finish: Ending,
) -> mpc_core::Result<()> {
    mpc.product(Product::new(op.clone(), x, y, finish)).map(drop)
}

/// The final step of a product here; it does not need bits.
type Ending = Finish<'static, BitShare<AnyTensor>>;

const TRUNCATE: Ending = Finish::Truncate { bits: FRAC, mode: TruncationMode::Default };

fn multiply(mpc: &mut Mpc) -> mpc_core::Result<Run> {
    elementwise(mpc, TRUNCATE)
}

fn fused(mpc: &mut Mpc) -> mpc_core::Result<Run> {
    let mode = TruncationMode::Early;
    elementwise(mpc, Finish::TruncateRelu { bits: FRAC, mode, keep: false })
}

fn elementwise(mpc: &mut Mpc, finish: Ending) -> mpc_core::Result<Run> {
    let (x, y) = (secret(mpc, &[1_000_000], 30)?, secret(mpc, &[1_000_000], 29)?);
    Ok(Box::new(move |mpc| product(mpc, &Bilinear::Mul, &x, &y, finish)))
}

fn matmul(mpc: &mut Mpc, n: usize) -> mpc_core::Result<Run> {
    let (x, y) = (secret(mpc, &[n, n], 24)?, secret(mpc, &[n, n], 23)?);
    Ok(Box::new(move |mpc| product(mpc, &Bilinear::MATMUL, &x, &y, TRUNCATE)))
}

pub(super) fn conv(
    mpc: &mut Mpc,
    input: &[usize],
    weight: &[usize],
    stride: usize,
    border: usize,
) -> mpc_core::Result<Run> {
    let (x, y) = (secret(mpc, input, 24)?, secret(mpc, weight, 22)?);
    let window = Window::new([weight[2], weight[3]], [stride, stride]).padded([border; 4]);
    let op = Bilinear::Conv(ConvSpec::new(window));
    Ok(Box::new(move |mpc| product(mpc, &op, &x, &y, TRUNCATE)))
}

/// Secret numbers, uniform in a range.
fn numbers(
    mpc: &mut Mpc,
    dims: &[usize],
    [low, high]: [f64; 2],
) -> mpc_core::Result<SecretTensor<Mpc>> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(17);
    let unit = f64::from(1 << FRAC);
    let words = (0..shape.len()).map(|_| (draw.real(low, high) * unit) as i64 as u64).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let share = party::input(mpc, &[shape], mine)?.remove(0);
    Ok(SecretTensor::new(share, FRAC, 64 - FRAC))
}

fn softmax(mpc: &mut Mpc, dims: [usize; 2]) -> mpc_core::Result<Run> {
    let x = numbers(mpc, &dims, [-8.0, 8.0])?;
    Ok(Box::new(move |mpc| functions::softmax(mpc, &x, 1).map(drop)))
}

fn sort(mpc: &mut Mpc, n: usize) -> mpc_core::Result<Run> {
    let x = numbers(mpc, &[n], [-8.0, 8.0])?;
    Ok(Box::new(move |mpc| functions::sort(mpc, &x, 0).map(drop)))
}

/// A function of one number.
type Function = fn(&mut Mpc, &SecretTensor<Mpc>) -> mpc_core::Result<SecretTensor<Mpc>>;

fn apply(mpc: &mut Mpc, function: Function, low: f64, high: f64) -> mpc_core::Result<Run> {
    let x = numbers(mpc, &[100_000], [low, high])?;
    Ok(Box::new(move |mpc| function(mpc, &x).map(drop)))
}

/// The four words of each window apart, then a tournament: values out of a truncation, 44 bits wide.
fn max_pool(mpc: &mut Mpc) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[1, 64, 112, 112], 40)?;
    Ok(Box::new(move |mpc| {
        let windows = View::Windows(Window::new([2, 2], [2, 2]));
        let windows = mpc.linear(&Linear::View(&windows), &x)?;
        let first = mpc.linear(&Linear::View(&View::Permute(vec![2, 0, 1, 3, 4])), &windows)?;
        debug_assert_eq!(first.shape().dims().first(), Some(&4));
        mpc.max_first(&first, 44, Largest::default()).map(drop)
    }))
}
