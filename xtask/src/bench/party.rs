//! One party of a measurement, and how all of them are run.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpu_kernels::{AnyEngine, AnyTensor, EngineChoice};
use mpc_core::{Protocol as _, Security};
use net::{Job, Meter, Metered, Party, Session, Shaped, launch};
use ring_arith::{Engine, Generator, Shape, Tensor};
use rss_protocols::{Dealer, Options, Rss, Share, Tape};
use serde::{Deserialize, Serialize};

use super::launch::PARTY;
use super::{Effort, Network, Protocol};

/// The type of a measured party.
pub(crate) type Mpc = Rss<AnyEngine>;

/// The network, threads, engine, protocol and security of the parties.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) network: Network,
    /// Threads of each party.
    pub(crate) threads: usize,
    pub(crate) engine: EngineChoice,
    pub(crate) protocol: Protocol,
    pub(crate) security: Security,
}

impl Setup {
    /// Three parties of replicated sharing in one process, on the CPU, without proofs.
    pub(crate) fn in_process(threads: usize) -> Self {
        Self {
            network: Network::InProcess,
            threads,
            engine: EngineChoice::Cpu,
            protocol: Protocol::Rss,
            security: Security::SemiHonest,
        }
    }
}

/// A case that takes longer than this many seconds, in our system or another one, runs only twice.
pub(super) const LONG: f64 = 2.0;

/// A case that takes longer than this many seconds runs only once after the run that shows it.
const VERY_LONG: f64 = 20.0;

/// The session's job, with the generators that are fast on the parties' engine.
pub(super) fn job(name: &str, setup: &Setup) -> Result<Job> {
    let (engine, _) = setup.engine.open(1)?;
    let job = Job::new(name).parties(setup.protocol.parties() as u16);
    Ok(job.prgs(engine.generators().into_iter().map(Generator::name)))
}

/// The transport of the parties' messages; [`join`] adds delay and bandwidth.
pub(super) fn link(network: Network) -> launch::Network {
    match network {
        Network::InProcess => launch::Network::InProcess(1),
        Network::Tcp => launch::Network::InsecurePlainTcp,
        Network::Tls | Network::Lan | Network::Wan => launch::Network::Tls,
    }
}

/// A party of a session, slowed down as the network asks for, and the meter of its messages.
pub(crate) fn join(session: Session, setup: &Setup) -> Result<(Mpc, Meter)> {
    let (session, meter) = watched(session, setup, None)?;
    let (engine, _) = setup.engine.open(setup.threads)?;
    let options = Options::default().security(setup.security);
    Ok((Rss::with_options(session, engine, options)?, meter))
}

/// As [`join`], for a party that may have a tape in a folder.
pub(super) fn join_with(
    session: Session,
    setup: &Setup,
    tapes: Option<&Path>,
) -> Result<(Mpc, Meter, Option<Tape>)> {
    let Some(tapes) = tapes else {
        let (mpc, meter) = join(session, setup)?;
        return Ok((mpc, meter, None));
    };
    let tape = Tape::open(&tape_path(tapes, session.transport.me().0), None)?;
    let (session, meter) = watched(session, setup, Some(&tape))?;
    let (engine, _) = setup.engine.open(setup.threads)?;
    let mut mpc = Rss::dealt(session, engine, Options::default())?;
    tape.set_up(&mut mpc, &VERSION)?;
    Ok((mpc, meter, Some(tape)))
}

/// Spends the next place of a tape, if the session has one.
pub(super) fn next_place(mpc: &mut Mpc, tape: Option<&Tape>) -> Result<()> {
    if let Some(tape) = tape {
        tape.begin(mpc)?;
    }
    Ok(())
}

/// Remaining places of the tape, if the session has one.
pub(super) fn places_left(tape: Option<&Tape>) -> usize {
    tape.map_or(usize::MAX, |tape| tape.left()[0] as usize)
}

/// The version in the tapes of a measurement.
const VERSION: [u8; 32] = [1; 32];

fn tape_path(folder: &Path, party: usize) -> PathBuf {
    folder.join(format!("{party}.tape"))
}

/// Makes the tapes of both parties, with as many places as a measurement of this effort needs in addition to
/// those for warming up; prints the time.
pub(super) fn deal<S>(
    setup: &Setup,
    effort: &Effort,
    folder: &Path,
    warm_up: usize,
    set_up: impl FnOnce(&mut Mpc) -> mpc_core::Result<S>,
    mut run: impl FnMut(&mut Mpc, &mut S) -> mpc_core::Result<()>,
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let create = |party| File::create(tape_path(folder, party)).map(BufWriter::new);
    let (engine, _) = setup.engine.open(setup.threads)?;
    let generator = *engine.generators().first().context("an engine has a generator")?;
    // These values do not protect real secrets, so they may be known.
    let (secret, digest, options) = ([7; 32], [0; 32], Options::default());
    let files = [create(0)?, create(1)?];
    let mut dealer = Dealer::new(engine, options, generator, &secret, digest, files)?;
    let mut state = dealer.set_up(set_up)?;
    let clock = Instant::now();
    dealer.deal(|mpc| run(mpc, &mut state))?;
    let seconds = clock.elapsed().as_secs_f64();
    let runs = if seconds > LONG { 2 } else { effort.min_runs };
    for _ in 1..warm_up + runs {
        dealer.deal(|mpc| run(mpc, &mut state))?;
    }
    let bytes = dealer.place_bytes().unwrap_or_default();
    dealer.finish()?;
    let [zero, one] = bytes.map(|bytes| bytes as f64 / 1e6);
    eprintln!("  tapes for one run: {zero:.3} and {one:.3} MB, made in {:.1} ms", seconds * 1e3);
    Ok(())
}

/// A session that is slowed down, plays a tape if it has one, and is metered.
fn watched(mut session: Session, setup: &Setup, tape: Option<&Tape>) -> Result<(Session, Meter)> {
    let shape = match setup.network {
        Network::Lan => Some(net::Shape::LAN_1G),
        Network::Wan => Some(net::Shape::WAN_100M),
        Network::InProcess | Network::Tcp | Network::Tls => None,
    };
    if let Some(shape) = shape {
        session.transport = Box::new(Shaped::new(session.transport, shape));
    }
    if let Some(tape) = tape {
        session = tape.session(session)?;
    }
    let metered = Metered::new(session.transport);
    let meter = metered.meter();
    session.transport = Box::new(metered);
    Ok((session, meter))
}

/// Protocol with its generator, and engine, as the results name them.
pub(crate) fn names(mpc: &Mpc) -> [String; 2] {
    let checked = if mpc.is_checked() { "/checked" } else { "" };
    [format!("{}/{}{checked}", mpc.info().name, mpc.generator().name()), mpc.engine().name()]
}

/// Runs `program` as the threads of this process, one for each party.
pub(crate) fn threads<R: Send>(
    name: &str,
    setup: &Setup,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (job, parties) = (job(name, setup)?, setup.protocol.parties());
    launch::threads_over(link(Network::InProcess), parties, &job, program)?.into_iter().collect()
}

/// Runs this program as a process for each party and reads their output.
pub(super) fn processes<R>(
    setup: &Setup,
    args: &[String],
    read: impl Fn(&str) -> Option<R>,
) -> Result<Vec<R>> {
    let args = std::iter::once(PARTY).chain(args.iter().map(String::as_str));
    let parties = setup.protocol.parties();
    let mut running = launch::Processes::new(parties, link(setup.network)).args(args).start()?;
    let mut results = Vec::with_capacity(parties);
    for party in 0..parties {
        let (status, lines) = running.wait(party, Duration::from_secs(1200))?;
        match lines.iter().find_map(|line| read(line)) {
            Some(result) if status.success() => results.push(result),
            _ => bail!("party {party} ended with {status}: {lines:?}"),
        }
    }
    Ok(results)
}

/// Shares tensors that party 0 holds in the host's memory.
pub(crate) fn input(
    mpc: &mut Mpc,
    shapes: &[Shape],
    mine: Option<&[Tensor]>,
) -> mpc_core::Result<Vec<Share<AnyTensor>>> {
    let upload = |tensor: &Tensor| mpc.engine().upload(tensor.clone());
    let mine = mine.map(|mine| mine.iter().map(upload).collect::<Result<Vec<_>, _>>());
    mpc.input(Party(0), shapes, mine.transpose()?.as_deref())
}

/// Reveals tensors to all parties, in the host's memory.
pub(crate) fn open(mpc: &mut Mpc, shares: &[&Share<AnyTensor>]) -> mpc_core::Result<Vec<Tensor>> {
    let opened = mpc.open(shares)?;
    Ok(opened.iter().map(|tensor| mpc.engine().download(tensor)).collect::<Result<_, _>>()?)
}

/// Waits until all parties are here.
pub(crate) fn barrier(mpc: &mut Mpc) -> mpc_core::Result<()> {
    let zero = mpc.engine().upload(Tensor::of([1], &[0])?)?;
    let zero = mpc.constant(&zero)?;
    mpc.open(&[&zero]).map(drop)
}

/// The number of runs of all parties: party 0 decides from the seconds of one run.
pub(super) fn agree_on_runs(mpc: &mut Mpc, effort: &Effort, one: f64) -> Result<usize> {
    let one = one.max(1e-6);
    let least = match one {
        one if one > VERY_LONG => 1,
        one if one > LONG => effort.min_runs.min(2),
        _ => effort.min_runs,
    };
    let runs = (effort.total.as_secs_f64() / one) as usize;
    let mine = [Tensor::of(Vec::new(), &[runs.clamp(least, effort.max_runs) as u64])?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let shared = input(mpc, &[Shape::default()], mine)?;
    Ok(open(mpc, &[&shared[0]])?[0].words()[0] as usize)
}
