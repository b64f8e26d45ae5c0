//! Benchmarks of operations on shares: three parties, each with its own copy of the program.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mpc_core::{
    Compare, Finish, Linear, Product, Protocol, SecretTensor, ShareTensor, SplitMix64, Then,
    TruncationMode,
    functions::{self, exp, reciprocal, sqrt},
};
use net::{Job, Metered, Party, Session, Shaped, launch as parties};
use ring_arith::{Bilinear, ConvSpec, CpuEngine, Shape, Tensor, View, Window};
use rss_protocols::{Rss, Share};

use super::launch::PARTY;
use super::models::LONG;
use super::{Bench, Effort, Network, Timing, cpu_seconds, figures};

/// What a case runs again and again, once its inputs are shared.
pub(super) type Run = Box<dyn FnMut(&mut Rss<CpuEngine>) -> mpc_core::Result<()>>;

/// Shares an operation's inputs.
pub(super) type Make = fn(&mut Rss<CpuEngine>) -> mpc_core::Result<Run>;

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
    let network = bench.network_or(Network::Tls);
    OPERATIONS.iter().try_for_each(|operation| run(bench, operation.name, operation, network))
}

/// Measures an operation as a case.
pub(super) fn run(
    bench: &mut Bench,
    name: &str,
    operation: &Operation,
    network: Network,
) -> Result<()> {
    let threads = bench.threads_or(1);
    bench.case(name, |case| {
        let outcome = measure(operation, network, threads, case.effort())?;
        case.protocol("rss").engine(&outcome.engine).network(network).threads(threads);
        case.size(operation.size).timing(outcome.timing);
        case.bytes_per_party(outcome.bytes).rounds(outcome.rounds);
        Ok(())
    })
}

/// What the parties measured together.
struct Outcome {
    timing: Timing,
    engine: String,
    bytes: u64,
    rounds: u64,
}

/// What one party measured.
#[derive(Debug, Clone)]
struct Measured {
    seconds: Vec<f64>,
    cpu: f64,
    bytes: u64,
    /// Causal depth before and after the last run.
    depth: [u32; 2],
    engine: String,
}

fn measure(
    operation: &Operation,
    network: Network,
    threads: usize,
    effort: Effort,
) -> Result<Outcome> {
    let plan = Plan { case: operation.name.to_owned(), network, threads, effort };
    let measured = match network {
        Network::InProcess => {
            let all = parties::threads(3, 1, |session| plan.run(session));
            let mut all = all.into_iter().collect::<Result<Vec<_>>>()?;
            // The process is one, so each party has counted the CPU time of all.
            all.iter_mut().skip(1).for_each(|party| party.cpu = 0.0);
            all
        }
        _ => plan.run_processes()?,
    };
    combine(&measured)
}

fn combine(parties: &[Measured]) -> Result<Outcome> {
    let runs = parties[0].seconds.len();
    ensure!(parties.iter().all(|party| party.seconds.len() == runs), "parties ran differently");
    // A run lasts until the last party is done.
    let slowest = |run: usize| parties.iter().map(|party| party.seconds[run]).fold(0.0, f64::max);
    let seconds = (0..runs).map(slowest).collect();
    let cpu = parties.iter().map(|party| party.cpu).sum();
    let depth = |at: usize| parties.iter().map(|party| party.depth[at]).max().unwrap_or(0);
    Ok(Outcome {
        timing: Timing::from_runs(seconds, Some(cpu)),
        engine: parties[0].engine.clone(),
        bytes: parties.iter().map(|party| party.bytes).max().unwrap_or(0),
        rounds: u64::from(depth(1) - depth(0)),
    })
}

/// What every party must know of a measurement.
#[derive(Debug, Clone)]
struct Plan {
    case: String,
    network: Network,
    threads: usize,
    effort: Effort,
}

impl Plan {
    fn run_processes(&self) -> Result<Vec<Measured>> {
        let link = match self.network {
            Network::Tcp => parties::Network::InsecurePlainTcp,
            _ => parties::Network::Tls,
        };
        let effort = self.effort;
        let args = [
            PARTY.to_owned(),
            "protocols".to_owned(),
            self.case.clone(),
            self.network.name().to_owned(),
            self.threads.to_string(),
            effort.total.as_millis().to_string(),
            effort.min_runs.to_string(),
            effort.max_runs.to_string(),
        ];
        let mut running = parties::Processes::new(3, link).args(args).start()?;
        let mut measured = Vec::with_capacity(3);
        for party in 0..3 {
            let (status, lines) = running.wait(party, Duration::from_secs(300))?;
            let result = lines.iter().find_map(|line| Measured::read(line));
            match result {
                Some(result) if status.success() => measured.push(result),
                _ => bail!("party {party} ended with {status}: {lines:?}"),
            }
        }
        Ok(measured)
    }

    fn read(args: &[String]) -> Option<Self> {
        let [case, network, threads, total, min_runs, max_runs] = args else { return None };
        let all = [Network::Tcp, Network::Tls, Network::Lan, Network::Wan];
        let network = all.into_iter().find(|known| known.name() == network)?;
        let effort = Effort {
            warm_up: Duration::ZERO,
            total: Duration::from_millis(total.parse().ok()?),
            min_runs: min_runs.parse().ok()?,
            max_runs: max_runs.parse().ok()?,
        };
        Some(Self { case: case.clone(), network, threads: threads.parse().ok()?, effort })
    }

    fn run(&self, mut session: Session) -> Result<Measured> {
        let shape = match self.network {
            Network::Lan => Some(net::Shape::LAN_1G),
            Network::Wan => Some(net::Shape::WAN_100M),
            _ => None,
        };
        if let Some(shape) = shape {
            session.transport = Box::new(Shaped::new(session.transport, shape));
        }
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(self.threads))?;
        let mut known = OPERATIONS.iter().chain(figures::OPERATIONS);
        let operation = known.find(|known| known.name == self.case);
        let operation = operation.with_context(|| format!("no case {}", self.case))?;
        let mut run = (operation.make)(&mut mpc)?;
        for _ in 0..WARM_UP {
            run(&mut mpc)?;
        }
        let runs = self.agree(&mut mpc, &mut run)?;
        let (mut seconds, mut bytes, mut depth) = (Vec::with_capacity(runs), 0, [0; 2]);
        let before = cpu_seconds().unwrap_or(0.0);
        for _ in 0..runs {
            barrier(&mut mpc)?;
            let start = meter.stats();
            let clock = Instant::now();
            run(&mut mpc)?;
            seconds.push(clock.elapsed().as_secs_f64());
            let end = meter.stats();
            bytes = end.bytes_sent() - start.bytes_sent();
            depth = [start.depth, end.depth];
        }
        let cpu = cpu_seconds().unwrap_or(0.0) - before;
        let engine = ring_arith::Engine::name(mpc.engine());
        mpc.close()?;
        Ok(Measured { seconds, cpu, bytes, depth, engine })
    }

    /// How many runs all parties take: party 0 decides from the time of one.
    fn agree(&self, mpc: &mut Rss<CpuEngine>, run: &mut Run) -> Result<usize> {
        barrier(mpc)?;
        let clock = Instant::now();
        run(mpc)?;
        let one = clock.elapsed().as_secs_f64().max(1e-6);
        let runs = (self.effort.total.as_secs_f64() / one) as usize;
        let least = if one > LONG { self.effort.min_runs.min(2) } else { self.effort.min_runs };
        let runs = runs.clamp(least, self.effort.max_runs) as u64;
        let mine = [Tensor::of(Vec::new(), &[runs])?];
        let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
        let shared = mpc.input(Party(0), &[Shape::default()], mine)?;
        Ok(mpc.open(&[&shared[0]])?[0].words()[0] as usize)
    }
}

impl Measured {
    fn write(&self) -> String {
        let seconds: Vec<_> = self.seconds.iter().map(f64::to_string).collect();
        let [before, after] = self.depth;
        format!(
            "measured {} {} {} {before} {after} {}",
            seconds.join(","),
            self.cpu,
            self.bytes,
            self.engine
        )
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("measured ")?.split(' ');
        let seconds: Result<Vec<f64>, _> = words.next()?.split(',').map(str::parse).collect();
        let (cpu, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let depth = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        let engine = words.next()?.to_owned();
        Some(Self { seconds: seconds.ok()?, cpu, bytes, depth, engine })
    }
}

/// Runs this process as one party of a measurement.
///
/// # Errors
/// If the arguments are not those of [`cases`], or the party fails.
pub(super) fn party(args: &[String]) -> Result<()> {
    let plan = Plan::read(args).with_context(|| format!("not a measurement: {args:?}"))?;
    let endpoint = parties::joined()?.context("not started as a party")?;
    let session = endpoint.session(&Job::new(&plan.case))?;
    println!("{}", plan.run(session)?.write());
    Ok(())
}

/// Waits until all parties are here.
fn barrier(mpc: &mut Rss<CpuEngine>) -> mpc_core::Result<()> {
    let zero = mpc.constant(&Tensor::of([1], &[0])?)?;
    mpc.open(&[&zero]).map(drop)
}

// -- the operations ----------------------------------------------------------------------------

/// A shared tensor of words below `2^bits` in magnitude.
fn secret(mpc: &mut Rss<CpuEngine>, dims: &[usize], bits: u32) -> mpc_core::Result<Share<Tensor>> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(dims.iter().sum::<usize>() as u64 + u64::from(bits));
    let words = (0..shape.len()).map(|_| draw.signed(bits)).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    Ok(mpc.input(Party(0), &[shape], mine)?.remove(0))
}

pub(super) fn relu(mpc: &mut Rss<CpuEngine>, n: usize, width: u32) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[n], (width - 1).min(40))?;
    Ok(Box::new(move |mpc| {
        let then = Then::NonNegative(&[&x]);
        mpc.compare(&[Compare { value: &x, width, then }]).map(drop)
    }))
}

fn negative(mpc: &mut Rss<CpuEngine>) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[1_000_000], 40)?;
    Ok(Box::new(move |mpc| {
        mpc.compare(&[Compare { value: &x, width: 64, then: Then::Arithmetic }]).map(drop)
    }))
}

fn product(
    mpc: &mut Rss<CpuEngine>,
    op: &Bilinear,
    x: &Share<Tensor>,
    y: &Share<Tensor>,
    finish: Finish,
) -> mpc_core::Result<()> {
    let job = Product { op: op.clone(), lhs: x, rhs: y, summand: None, finish };
    mpc.products(&[job]).map(drop)
}

const TRUNCATE: Finish = Finish::Truncate { bits: FRAC, mode: TruncationMode::Default };

fn multiply(mpc: &mut Rss<CpuEngine>) -> mpc_core::Result<Run> {
    elementwise(mpc, TRUNCATE)
}

fn fused(mpc: &mut Rss<CpuEngine>) -> mpc_core::Result<Run> {
    elementwise(mpc, Finish::TruncateRelu { bits: FRAC })
}

fn elementwise(mpc: &mut Rss<CpuEngine>, finish: Finish) -> mpc_core::Result<Run> {
    let (x, y) = (secret(mpc, &[1_000_000], 30)?, secret(mpc, &[1_000_000], 29)?);
    Ok(Box::new(move |mpc| product(mpc, &Bilinear::Mul, &x, &y, finish)))
}

fn matmul(mpc: &mut Rss<CpuEngine>, n: usize) -> mpc_core::Result<Run> {
    let (x, y) = (secret(mpc, &[n, n], 24)?, secret(mpc, &[n, n], 23)?);
    Ok(Box::new(move |mpc| product(mpc, &Bilinear::MATMUL, &x, &y, TRUNCATE)))
}

pub(super) fn conv(
    mpc: &mut Rss<CpuEngine>,
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
    mpc: &mut Rss<CpuEngine>,
    dims: &[usize],
    [low, high]: [f64; 2],
) -> mpc_core::Result<SecretTensor<Rss<CpuEngine>>> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(17);
    let unit = f64::from(1 << FRAC);
    let words = (0..shape.len()).map(|_| (draw.real(low, high) * unit) as i64 as u64).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let share = mpc.input(Party(0), &[shape], mine)?.remove(0);
    Ok(SecretTensor::new(share, FRAC, 64 - FRAC))
}

fn softmax(mpc: &mut Rss<CpuEngine>, dims: [usize; 2]) -> mpc_core::Result<Run> {
    let x = numbers(mpc, &dims, [-8.0, 8.0])?;
    Ok(Box::new(move |mpc| functions::softmax(mpc, &x, 1).map(drop)))
}

/// A function of one number.
type Function = fn(
    &mut Rss<CpuEngine>,
    &SecretTensor<Rss<CpuEngine>>,
) -> mpc_core::Result<SecretTensor<Rss<CpuEngine>>>;

fn apply(
    mpc: &mut Rss<CpuEngine>,
    function: Function,
    low: f64,
    high: f64,
) -> mpc_core::Result<Run> {
    let x = numbers(mpc, &[100_000], [low, high])?;
    Ok(Box::new(move |mpc| function(mpc, &x).map(drop)))
}

/// Windows as rows of four, then a tournament: values out of a truncation, 44 bits wide.
fn max_pool(mpc: &mut Rss<CpuEngine>) -> mpc_core::Result<Run> {
    let x = secret(mpc, &[1, 64, 112, 112], 40)?;
    Ok(Box::new(move |mpc| {
        let windows = View::Windows(Window::new([2, 2], [2, 2]));
        let rows = mpc.linear(&Linear::View(&windows), &x)?;
        let last = mpc.linear(&Linear::View(&View::Permute(vec![0, 1, 3, 4, 2])), &rows)?;
        debug_assert_eq!(last.shape().dims().last(), Some(&4));
        mpc.max_last(&last, 44, false).map(drop)
    }))
}
