//! Benchmarks of operations on shares by the parties of any protocol, each with its own copy of the program.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};
use gpu_kernels::AnyEngine;
use mpc_core::{
    Compare, Finish, Format, Largest, Linear, Product, Protocol, SecretTensor, ShareTensor,
    SplitMix64, Then, TruncationMode,
    functions::{self, exp, reciprocal, sqrt},
};
use net::{Party, Session, launch as parties};
use ring_arith::{Bilinear, ConvSpec, Shape, Tensor, View, Window};
use serde::{Deserialize, Serialize};
use trefoil::protocols::{ProtocolChoice, with_protocol};

use super::party::{self, Joined, Measurable, Mpc, Setup};
use super::{Bench, Effort, Network, Timing, cpu_seconds, figures};

/// The work that a case repeats, once its inputs are shared.
pub(super) type Run<P> = Box<dyn FnMut(&mut P) -> mpc_core::Result<()>>;

/// A named operation.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) size: &'static str,
    pub(super) work: Work,
}

/// The work of an operation.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// A number of elements, and the bits that they take.
    Relu(usize, u32),
    Negative,
    TruncateRelu,
    Multiply,
    MatMul(usize),
    /// Shapes of input and weights, stride and border.
    Conv(&'static [usize], &'static [usize], usize, usize),
    Softmax([usize; 2]),
    Exp,
    Reciprocal,
    Sqrt,
    Sigmoid,
    Gelu,
    Sin,
    Sort(usize),
    Shuffle(usize),
    Uniform(usize),
    Normal(usize),
    /// Integers and their scale.
    DiscreteLaplace(usize, f64),
    /// Integers and their standard deviation.
    DiscreteNormal(usize, f64),
    /// Rows of each of two tables.
    Join(usize),
    MaxPool,
}

/// All operations. Names key a history of results.
pub(super) const OPERATIONS: &[Operation] = &[
    at("relu/1e4", "10^4", Work::Relu(10_000, 64)),
    at("relu/1e5", "10^5", Work::Relu(100_000, 64)),
    at("relu/1e6", "10^6", Work::Relu(1_000_000, 64)),
    at("relu-w32/1e6", "10^6", Work::Relu(1_000_000, 32)),
    at("ltz/1e6", "10^6", Work::Negative),
    at("trunc-relu/1e6", "10^6", Work::TruncateRelu),
    at("mul-trunc/1e6", "10^6", Work::Multiply),
    at("matmul/256", "256^3", Work::MatMul(256)),
    at("matmul/1024", "1024^3", Work::MatMul(1024)),
    at("matmul/2048", "2048^3", Work::MatMul(2048)),
    at(
        "conv/resnet-block",
        "1x64x56x56, 64 of 3x3",
        Work::Conv(&[1, 64, 56, 56], &[64, 64, 3, 3], 1, 1),
    ),
    at(
        "conv/alexnet-1",
        "1x3x224x224, 64 of 11x11 / 4",
        Work::Conv(&[1, 3, 224, 224], &[64, 3, 11, 11], 4, 2),
    ),
    at(
        "conv/batch32-11x11",
        "32x3x32x32, 64 of 11x11 / 4",
        Work::Conv(&[32, 3, 32, 32], &[64, 3, 11, 11], 4, 2),
    ),
    at("softmax/128x10", "128x10", Work::Softmax([128, 10])),
    at("softmax/128x200", "128x200", Work::Softmax([128, 200])),
    at("exp/1e5", "10^5 in -8..2", Work::Exp),
    at("reciprocal/1e5", "10^5 in 0.05..50", Work::Reciprocal),
    at("sqrt/1e5", "10^5 in 0.05..50", Work::Sqrt),
    at("sigmoid/1e5", "10^5 in -8..8", Work::Sigmoid),
    at("gelu/1e5", "10^5 in -8..8", Work::Gelu),
    at("sin/1e5", "10^5 in -8..8", Work::Sin),
    at("sort/1e3", "10^3", Work::Sort(1000)),
    at("sort/1e4", "10^4", Work::Sort(10_000)),
    at("shuffle/1e6", "10^6 words", Work::Shuffle(1_000_000)),
    at("uniform/1e5", "10^5", Work::Uniform(100_000)),
    at("normal/1e5", "10^5", Work::Normal(100_000)),
    at("discrete-laplace/1e5", "10^5 of scale 10", Work::DiscreteLaplace(100_000, 10.0)),
    at("discrete-normal/1e5", "10^5 of deviation 3", Work::DiscreteNormal(100_000, 3.0)),
    at("join/1e4", "10^4 rows and 10^4, keys of 60 bits, 2 words a row", Work::Join(10_000)),
    at("join/1e5", "10^5 rows and 10^5, keys of 60 bits, 2 words a row", Work::Join(100_000)),
    at("maxpool/112", "1x64x112x112, 2x2", Work::MaxPool),
];

/// An operation of a name and size.
pub(super) const fn at(name: &'static str, size: &'static str, work: Work) -> Operation {
    Operation { name, size, work }
}

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

/// Measures an operation as a case; of a protocol with a live dealer, beside the same of replicated sharing.
pub(super) fn run(
    bench: &mut Bench,
    name: &str,
    operation: &Operation,
    setup: Setup,
) -> Result<()> {
    bench.case(name, |case| {
        let outcome = measure(operation, setup, case.effort())?;
        let beside = setup.beside().map(|setup| measure(operation, setup, case.effort()));
        case.run_by(&outcome.names).network_of(&setup).threads(setup.threads);
        case.size(operation.size).timing(outcome.timing);
        case.bytes_per_party(outcome.bytes).rounds(outcome.rounds);
        if let Work::Join(rows) = operation.work {
            let tables = [0, rows / 2].map(|first| keys_of_rows(first, rows));
            let mut plain = || drop(black_box(join_in_the_clear(&tables)));
            let timing = case.measure_all(&mut [&mut plain])[0];
            case.times("a join in the clear", outcome.timing.median / timing.median);
        }
        if let Some(beside) = beside.transpose()? {
            case.reference("replicated sharing", beside.timing);
            eprintln!(
                "  {} B a party beside {} B of replicated sharing, {} rounds beside {}; the dealer sent {} B",
                outcome.bytes, beside.bytes, outcome.rounds, beside.rounds, outcome.dealt
            );
        }
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
    /// Of the party that sent most.
    bytes: u64,
    /// Of a live dealer.
    dealt: u64,
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
    let plays = setup.protocol.plays_tapes();
    let tapes = plays.then(|| deal(operation, setup, effort)).transpose()?;
    let plan = Plan { case: operation.name.to_owned(), setup, effort, tapes };
    let measured = match setup.network {
        Network::InProcess => {
            let all = party::threads(operation.name, &setup, |session| plan.run_any(session));
            // The process is one, so each party has counted the CPU time of all.
            all.map(|mut all| {
                all.iter_mut().skip(1).for_each(|party| party.cpu = 0.0);
                all
            })
        }
        _ => {
            let args = ["protocols".to_owned(), serde_json::to_string(&plan)?];
            party::processes(&setup, &args, &party::tapes(plan.tapes.as_ref()), |line| {
                serde_json::from_str(line).ok()
            })
        }
    };
    if let Some(tapes) = &plan.tapes {
        fs::remove_dir_all(tapes)?;
    }
    combine(setup.protocol, &measured?)
}

/// Makes the tapes of a measurement, in a separate folder.
fn deal(operation: &Operation, setup: Setup, effort: Effort) -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("trefoil-bench-tapes-{}", process::id()));
    let run = |mpc: &mut Mpc, run: &mut Run<Mpc>| run(mpc);
    let make = |mpc: &mut Mpc| operation.work.prepare(mpc);
    party::deal(&setup, &effort, &folder, WARM_UP + 1, make, run)?;
    Ok(folder)
}

fn combine(protocol: ProtocolChoice, members: &[Measured]) -> Result<Outcome> {
    let (parties, dealers) = members.split_at(protocol.parties());
    let runs = parties[0].seconds.len();
    ensure!(parties.iter().all(|party| party.seconds.len() == runs), "parties ran differently");
    // A run lasts until the last party is done.
    let slowest = |run: usize| parties.iter().map(|party| party.seconds[run]).fold(0.0, f64::max);
    let seconds: Vec<f64> = (0..runs).map(slowest).collect();
    let cpu = members.iter().map(|party| party.cpu).sum();
    let depth = |at: usize| parties.iter().map(|party| party.depth[at]).max().unwrap_or(0);
    Ok(Outcome {
        timing: Timing::from_runs(seconds.clone(), Some(cpu)),
        seconds,
        names: parties[0].names.clone(),
        bytes: parties.iter().map(|party| party.bytes).max().unwrap_or(0),
        dealt: dealers.iter().map(|dealer| dealer.bytes).sum(),
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
    /// Runs one party of the plan's protocol.
    fn run_any(&self, session: Session) -> Result<Measured> {
        with_protocol!(self.setup.protocol, P => self.run::<P>(session))
    }

    fn run<P: Measurable>(&self, session: Session) -> Result<Measured> {
        let mut party = Joined::<P>::new(session, &self.setup, self.tapes.as_deref())?;
        let mut known = OPERATIONS.iter().chain(figures::OPERATIONS);
        let operation = known.find(|known| known.name == self.case);
        let operation = operation.with_context(|| format!("no case {}", self.case))?;
        let mut run = operation.work.prepare(&mut party.mpc)?;
        for _ in 0..WARM_UP {
            party.next_run()?;
            run(&mut party.mpc)?;
        }
        party.next_run()?;
        let clock = Instant::now();
        run(&mut party.mpc)?;
        let one = clock.elapsed().as_secs_f64();
        let runs = party.agree_on_runs(&self.effort, one)?;
        let (mut seconds, mut bytes, mut depth) = (Vec::with_capacity(runs), 0, [0; 2]);
        let before = cpu_seconds().unwrap_or(0.0);
        for _ in 0..runs {
            party.next_run()?;
            let start = party.meter.stats();
            let clock = Instant::now();
            run(&mut party.mpc)?;
            party.mpc.verify()?;
            seconds.push(clock.elapsed().as_secs_f64());
            let end = party.meter.stats();
            bytes = end.bytes_sent() - start.bytes_sent();
            depth = [start.depth, end.depth];
        }
        let cpu = cpu_seconds().unwrap_or(0.0) - before;
        let names = party.names();
        drop(run);
        party.finish()?;
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
    println!("{}", serde_json::to_string(&plan.run_any(session)?)?);
    Ok(())
}

// -- the operations ----------------------------------------------------------------------------

impl Work {
    /// Shares an operation's inputs.
    pub(super) fn prepare<P: Measurable>(self, mpc: &mut P) -> mpc_core::Result<Run<P>> {
        match self {
            Self::Relu(n, width) => relu(mpc, n, width),
            Self::Negative => negative(mpc),
            Self::TruncateRelu => {
                let mode = TruncationMode::Early;
                elementwise(mpc, Finish::TruncateRelu { bits: FRAC, mode, keep: false })
            }
            Self::Multiply => elementwise(mpc, truncate()),
            Self::MatMul(n) => matmul(mpc, n),
            Self::Conv(input, weight, stride, border) => conv(mpc, input, weight, stride, border),
            Self::Softmax(dims) => {
                let x = numbers(mpc, &dims, [-8.0, 8.0])?;
                Ok(Box::new(move |mpc| functions::softmax(mpc, &x, 1).map(drop)))
            }
            Self::Exp => apply(mpc, exp, -8.0, 2.0),
            Self::Reciprocal => apply(mpc, reciprocal, 0.05, 50.0),
            Self::Sqrt => apply(mpc, sqrt, 0.05, 50.0),
            Self::Sigmoid => apply(mpc, functions::sigmoid, -8.0, 8.0),
            Self::Gelu => apply(mpc, functions::gelu, -8.0, 8.0),
            Self::Sin => apply(mpc, functions::sin, -8.0, 8.0),
            Self::Sort(n) => {
                let x = numbers(mpc, &[n], [-8.0, 8.0])?;
                Ok(Box::new(move |mpc| functions::sort(mpc, &x, 0).map(drop)))
            }
            Self::Shuffle(rows) => {
                let x = secret(mpc, &[rows], 40)?;
                Ok(Box::new(move |mpc| mpc.shuffle(&[&x], &[]).map(drop)))
            }
            Self::Uniform(n) => drawn(n, functions::uniform, FRAC),
            Self::Normal(n) => drawn(n, functions::normal, FRAC),
            Self::DiscreteLaplace(n, scale) => drawn(n, functions::discrete_laplace, scale),
            Self::DiscreteNormal(n, deviation) => drawn(n, functions::discrete_normal, deviation),
            Self::Join(rows) => join(mpc, rows),
            Self::MaxPool => max_pool(mpc),
        }
    }
}

/// A shared tensor of words below `2^bits` in magnitude.
fn secret<P: Protocol<Engine = AnyEngine>>(
    mpc: &mut P,
    dims: &[usize],
    bits: u32,
) -> mpc_core::Result<P::Share> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(dims.iter().sum::<usize>() as u64 + u64::from(bits));
    let words = (0..shape.len()).map(|_| draw.signed(bits)).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    Ok(party::input(mpc, &[shape], mine)?.remove(0))
}

/// Random numbers that no party knows, of a format or a scale.
fn drawn<P: Measurable, T: Copy + 'static>(
    n: usize,
    draw: fn(&mut P, &Shape, T) -> mpc_core::Result<SecretTensor<P>>,
    of: T,
) -> mpc_core::Result<Run<P>> {
    let shape = Shape::new([n])?;
    Ok(Box::new(move |mpc| draw(mpc, &shape, of).map(drop)))
}

fn relu<P: Measurable>(mpc: &mut P, n: usize, width: u32) -> mpc_core::Result<Run<P>> {
    let x = secret(mpc, &[n], (width - 1).min(40))?;
    Ok(Box::new(move |mpc| {
        let then = Then { not_negative: &[&x], ..Then::default() };
        mpc.compare_one(Compare { value: &x, width, then }).map(drop)
    }))
}

fn negative<P: Measurable>(mpc: &mut P) -> mpc_core::Result<Run<P>> {
    let x = secret(mpc, &[1_000_000], 40)?;
    Ok(Box::new(move |mpc| {
        mpc.compare_one(Compare { value: &x, width: 64, then: Then::word() }).map(drop)
    }))
}

/// The usual end of a product.
fn truncate<B>() -> Finish<'static, B> {
    Finish::Truncate { bits: FRAC, mode: TruncationMode::Default }
}

fn elementwise<P: Measurable>(
    mpc: &mut P,
    finish: Finish<'static, P::Bits>,
) -> mpc_core::Result<Run<P>>
where
    P::Bits: Sync,
{
    let (x, y) = (secret(mpc, &[1_000_000], 30)?, secret(mpc, &[1_000_000], 29)?);
    Ok(Box::new(move |mpc| mpc.product(Product::new(Bilinear::Mul, &x, &y, finish)).map(drop)))
}

fn matmul<P: Measurable>(mpc: &mut P, n: usize) -> mpc_core::Result<Run<P>> {
    let (x, y) = (secret(mpc, &[n, n], 24)?, secret(mpc, &[n, n], 23)?);
    Ok(Box::new(move |mpc| {
        mpc.product(Product::new(Bilinear::MATMUL, &x, &y, truncate())).map(drop)
    }))
}

fn conv<P: Measurable>(
    mpc: &mut P,
    input: &[usize],
    weight: &[usize],
    stride: usize,
    border: usize,
) -> mpc_core::Result<Run<P>> {
    let (x, y) = (secret(mpc, input, 24)?, secret(mpc, weight, 22)?);
    let window = Window::new([weight[2], weight[3]], [stride, stride]).padded([border; 4]);
    let op = Bilinear::Conv(ConvSpec::new(window));
    Ok(Box::new(move |mpc| mpc.product(Product::new(op.clone(), &x, &y, truncate())).map(drop)))
}

/// Secret numbers, uniform in a range.
fn numbers<P: Measurable>(
    mpc: &mut P,
    dims: &[usize],
    [low, high]: [f64; 2],
) -> mpc_core::Result<SecretTensor<P>> {
    let shape = Shape::new(dims)?;
    let mut draw = SplitMix64::new(17);
    let unit = f64::from(1 << FRAC);
    let words = (0..shape.len()).map(|_| (draw.real(low, high) * unit) as i64 as u64).collect();
    let mine = [Tensor::new(shape.clone(), words)?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let share = party::input(mpc, &[shape], mine)?.remove(0);
    Ok(SecretTensor::new(share, Format { frac: FRAC, width: 64 - FRAC }))
}

/// Keys of as many rows, from a number on.
fn keys_of_rows(first: usize, rows: usize) -> Vec<u64> {
    functions::join_keys(&[7; 32], (first..first + rows).map(usize::to_le_bytes))
}

/// The places of pairs of rows with one key, in the order of the keys.
fn join_in_the_clear([left, right]: &[Vec<u64>; 2]) -> Vec<(u64, [usize; 2])> {
    let places: HashMap<_, _> = right.iter().enumerate().map(|(row, key)| (key, row)).collect();
    let pair = |(row, key): (usize, &u64)| Some((*key, [row, *places.get(key)?]));
    let mut pairs: Vec<_> = left.iter().enumerate().filter_map(pair).collect();
    pairs.sort_unstable();
    pairs
}

/// An inner join of tables that have half of their keys in common, each with two columns.
fn join<P: Measurable>(mpc: &mut P, rows: usize) -> mpc_core::Result<Run<P>> {
    let shape = Shape::new([rows])?;
    let mine = [0, rows / 2].map(|first| Tensor::vector(keys_of_rows(first, rows)));
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let keys = party::input(mpc, &[shape.clone(), shape.clone()], mine)?.into_iter();
    let keys = keys
        .map(|share| SecretTensor::<P>::new(share, Format::integer(functions::JOIN_KEY_BITS + 1)));
    let keys: Vec<_> = keys.collect();
    let columns = [40, 41, 42, 43]
        .map(|bits| Ok(SecretTensor::<P>::new(secret(mpc, &[rows], bits)?, Format::words(0))));
    let columns = columns.into_iter().collect::<mpc_core::Result<Vec<_>>>()?;
    Ok(Box::new(move |mpc| {
        let [a, b, c, d] = &columns[..] else { return Err(mpc_core::Error::unanswered("input")) };
        let left = functions::Table { keys: &keys[0], columns: &[a, b] };
        let right = functions::Table { keys: &keys[1], columns: &[c, d] };
        functions::join(mpc, &left, &right, functions::JoinKind::Inner, None).map(drop)
    }))
}

/// A function of one number.
type Function<P> = fn(&mut P, &SecretTensor<P>) -> mpc_core::Result<SecretTensor<P>>;

fn apply<P: Measurable>(
    mpc: &mut P,
    function: Function<P>,
    low: f64,
    high: f64,
) -> mpc_core::Result<Run<P>> {
    let x = numbers(mpc, &[100_000], [low, high])?;
    Ok(Box::new(move |mpc| function(mpc, &x).map(drop)))
}

/// The four words of each window apart, then a tournament: values out of a truncation, 44 bits wide.
fn max_pool<P: Measurable>(mpc: &mut P) -> mpc_core::Result<Run<P>> {
    let x = secret(mpc, &[1, 64, 112, 112], 40)?;
    Ok(Box::new(move |mpc| {
        let windows = View::Windows(Window::new([2, 2], [2, 2]));
        let windows = mpc.linear(&Linear::View(&windows), &x)?;
        let first = mpc.linear(&Linear::View(&View::Permute(vec![2, 0, 1, 3, 4])), &windows)?;
        debug_assert_eq!(first.shape().dims().first(), Some(&4));
        mpc.max_first(&first, 44, Largest::default()).map(drop)
    }))
}
