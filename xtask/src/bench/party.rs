//! One party of a measurement, and how three of them are run.

use std::time::Duration;

use anyhow::{Result, bail};
use gpu_kernels::{AnyEngine, AnyTensor, EngineChoice};
use mpc_core::Protocol;
use net::{Job, Meter, Metered, Party, Session, Shaped, launch};
use ring_arith::{Engine, Generator, Shape, Tensor};
use rss_protocols::{Rss, Share};
use serde::{Deserialize, Serialize};

use super::launch::PARTY;
use super::{Effort, Network};

/// A party as it is measured.
pub(super) type Mpc = Rss<AnyEngine>;

/// How parties are joined and what they compute on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) network: Network,
    /// Threads of each party.
    pub(super) threads: usize,
    pub(super) engine: EngineChoice,
}

/// What takes longer than this many seconds, ours or a rival's, is run twice only.
pub(super) const LONG: f64 = 2.0;

/// What the parties start for, with the generators that are quick on their engine.
pub(super) fn job(name: &str, engine: EngineChoice) -> Result<Job> {
    let (engine, _) = engine.open(1)?;
    Ok(Job::new(name).prgs(engine.generators().into_iter().map(Generator::name)))
}

/// What carries the parties' messages; delay and bandwidth come with [`join`].
pub(super) fn link(network: Network) -> launch::Network {
    match network {
        Network::InProcess => launch::Network::InProcess(1),
        Network::Tcp => launch::Network::InsecurePlainTcp,
        Network::Tls | Network::Lan | Network::Wan => launch::Network::Tls,
    }
}

/// A party of a session, slowed down as the network asks for, and what counts its messages.
pub(super) fn join(mut session: Session, setup: &Setup) -> Result<(Mpc, Meter)> {
    let shape = match setup.network {
        Network::Lan => Some(net::Shape::LAN_1G),
        Network::Wan => Some(net::Shape::WAN_100M),
        Network::InProcess | Network::Tcp | Network::Tls => None,
    };
    if let Some(shape) = shape {
        session.transport = Box::new(Shaped::new(session.transport, shape));
    }
    let metered = Metered::new(session.transport);
    let meter = metered.meter();
    session.transport = Box::new(metered);
    let (engine, _) = setup.engine.open(setup.threads)?;
    Ok((Rss::new(session, engine)?, meter))
}

/// Protocol with its generator, and engine, as the results name them.
pub(super) fn names(mpc: &Mpc) -> [String; 2] {
    [format!("rss/{}", mpc.generator().name()), mpc.engine().name()]
}

/// Runs `program` as the three threads of this process.
pub(super) fn threads<R: Send>(
    name: &str,
    engine: EngineChoice,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let job = job(name, engine)?;
    launch::threads_over(link(Network::InProcess), 3, &job, program)?.into_iter().collect()
}

/// Runs this program as three processes and reads what each prints.
pub(super) fn processes<R>(
    network: Network,
    args: &[String],
    read: impl Fn(&str) -> Option<R>,
) -> Result<Vec<R>> {
    let args = std::iter::once(PARTY).chain(args.iter().map(String::as_str));
    let mut running = launch::Processes::new(3, link(network)).args(args).start()?;
    let mut results = Vec::with_capacity(3);
    for party in 0..3 {
        let (status, lines) = running.wait(party, Duration::from_secs(300))?;
        match lines.iter().find_map(|line| read(line)) {
            Some(result) if status.success() => results.push(result),
            _ => bail!("party {party} ended with {status}: {lines:?}"),
        }
    }
    Ok(results)
}

/// Shares tensors that party 0 holds in the host's memory.
pub(super) fn input(
    mpc: &mut Mpc,
    shapes: &[Shape],
    mine: Option<&[Tensor]>,
) -> mpc_core::Result<Vec<Share<AnyTensor>>> {
    let upload = |tensor: &Tensor| mpc.engine().upload(tensor.clone());
    let mine = mine.map(|mine| mine.iter().map(upload).collect::<Result<Vec<_>, _>>());
    mpc.input(Party(0), shapes, mine.transpose()?.as_deref())
}

/// Reveals tensors to all parties, in the host's memory.
pub(super) fn open(mpc: &mut Mpc, shares: &[&Share<AnyTensor>]) -> mpc_core::Result<Vec<Tensor>> {
    let opened = mpc.open(shares)?;
    Ok(opened.iter().map(|tensor| mpc.engine().download(tensor)).collect::<Result<_, _>>()?)
}

/// Waits until all parties are here.
pub(super) fn barrier(mpc: &mut Mpc) -> mpc_core::Result<()> {
    let zero = mpc.engine().upload(Tensor::of([1], &[0])?)?;
    let zero = mpc.constant(&zero)?;
    mpc.open(&[&zero]).map(drop)
}

/// How many runs all parties take: party 0 decides from the seconds of one.
pub(super) fn agree_on_runs(mpc: &mut Mpc, effort: &Effort, one: f64) -> Result<usize> {
    let one = one.max(1e-6);
    let least = if one > LONG { effort.min_runs.min(2) } else { effort.min_runs };
    let runs = (effort.total.as_secs_f64() / one) as usize;
    let mine = [Tensor::of(Vec::new(), &[runs.clamp(least, effort.max_runs) as u64])?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let shared = input(mpc, &[Shape::default()], mine)?;
    Ok(open(mpc, &[&shared[0]])?[0].words()[0] as usize)
}
