//! One party of a measurement, and how three of them are run.

use std::time::Duration;

use anyhow::{Result, bail};
use mpc_core::Protocol;
use net::{Job, Meter, Metered, Party, Session, Shaped, launch};
use ring_arith::{CpuEngine, Engine, Generator, Shape, Tensor};
use rss_protocols::Rss;

use super::launch::PARTY;
use super::{Effort, Network};

/// A party as it is measured.
pub(super) type Mpc = Rss<CpuEngine>;

/// What takes longer than this many seconds, ours or a rival's, is run twice only.
pub(super) const LONG: f64 = 2.0;

/// What the parties start for, with the generators that are quick here.
pub(super) fn job(name: &str) -> Job {
    Job::new(name).prgs(CpuEngine::new(1).generators().into_iter().map(Generator::name))
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
pub(super) fn join(mut session: Session, network: Network, threads: usize) -> Result<(Mpc, Meter)> {
    let shape = match network {
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
    Ok((Rss::new(session, CpuEngine::new(threads))?, meter))
}

/// Protocol with its generator, and engine, as the results name them.
pub(super) fn names(mpc: &Mpc) -> [String; 2] {
    [format!("rss/{}", mpc.generator().name()), mpc.engine().name()]
}

/// Runs `program` as the three threads of this process.
pub(super) fn threads<R: Send>(
    name: &str,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    launch::threads_over(link(Network::InProcess), 3, &job(name), program)?.into_iter().collect()
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

/// Waits until all parties are here.
pub(super) fn barrier(mpc: &mut Mpc) -> mpc_core::Result<()> {
    let zero = mpc.constant(&Tensor::of([1], &[0])?)?;
    mpc.open(&[&zero]).map(drop)
}

/// How many runs all parties take: party 0 decides from the seconds of one.
pub(super) fn agree_on_runs(mpc: &mut Mpc, effort: &Effort, one: f64) -> Result<usize> {
    let one = one.max(1e-6);
    let least = if one > LONG { effort.min_runs.min(2) } else { effort.min_runs };
    let runs = (effort.total.as_secs_f64() / one) as usize;
    let mine = [Tensor::of(Vec::new(), &[runs.clamp(least, effort.max_runs) as u64])?];
    let mine = (mpc.me() == Party(0)).then_some(&mine[..]);
    let shared = mpc.input(Party(0), &[Shape::default()], mine)?;
    Ok(mpc.open(&[&shared[0]])?[0].words()[0] as usize)
}
