//! Benchmarks of the transports: bandwidth, small messages, round trips.

use std::thread;

use anyhow::Result;
use bytes::Bytes;
use net::launch;
use net::{Job, Limits, Message, Party, Session, Transport, in_process};

use super::net_baseline as baseline;
use super::{Bench, Case, Effort, Network};

/// Sizes of the messages of an exchange, each for a third of the bytes.
const SIZES: [usize; 3] = [16 << 10, 256 << 10, 4 << 20];

/// Bytes that a party sends beyond those that it has received: a quarter of a link's capacity. Bare
/// sockets do not have such a window: their threads write and read independently.
const AHEAD: isize = 16 << 20;

/// Round trips of one run.
const TRIPS: usize = 2000;

type Link = Box<dyn Transport>;

/// The cases of this module.
///
/// # Errors
/// If a connection fails.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let bytes = if bench.quick() { 96 << 20 } else { 1 << 30 };
    bench.case("exchange/tcp", |case| {
        exchange(case, Network::Tcp, bytes, "std::net", baseline::plain_pipe)
    })?;
    bench.case("exchange/tls", |case| {
        exchange(case, Network::Tls, bytes, "rustls", baseline::tls_pipe)
    })?;
    bench.case("exchange/in-process", small_messages)?;
    bench.case("exchange/in-process/large", |case| large_messages(case, bytes))?;
    bench.case("roundtrip/tcp", |case| {
        round_trip(case, Network::Tcp, |case, mine| {
            let mut ends = baseline::sockets()?;
            let mut raw = || baseline::round_trips(&mut ends, TRIPS);
            compare(case, "std::net", mine, &mut raw)
        })
    })?;
    bench.case("roundtrip/tls", |case| {
        round_trip(case, Network::Tls, |case, mine| {
            let (mut ends, mut sockets) = (baseline::tls_ends()?, baseline::sockets()?);
            let mut bare = || baseline::round_trips(&mut ends, TRIPS);
            compare(case, "rustls", mine, &mut bare)?;
            let mut raw = || baseline::round_trips(&mut sockets, TRIPS);
            compare(case, "std::net", mine, &mut raw)
        })
    })?;
    bench.case("roundtrip/in-process", |case| {
        round_trip(case, Network::InProcess, |case, mine| {
            let mut failure = Ok(());
            case.measure(|| failure = std::mem::replace(&mut failure, Ok(())).and(mine()));
            failure
        })
    })
}

/// Times `mine` and `other` in turn, and remembers the comparison under `name`.
fn compare(
    case: &mut Case,
    name: &str,
    mine: &mut dyn FnMut() -> Result<()>,
    other: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let (mut failed, mut failed_too) = (Ok(()), Ok(()));
    let (_, other) = case.measure_pair(
        || failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| mine()),
        || failed_too = std::mem::replace(&mut failed_too, Ok(())).and_then(|()| other()),
    );
    failed.and(failed_too)?;
    case.reference(name, other);
    Ok(())
}

/// Sessions of `parties` over loopback, or within the process.
fn sessions(network: Network, parties: usize) -> Result<Vec<Link>> {
    let network = match network {
        Network::InProcess => {
            let links = in_process::transports(parties).into_iter();
            return Ok(links.map(|link| Box::new(link) as Link).collect());
        }
        Network::Tcp => launch::Network::InsecurePlainTcp,
        Network::Tls | Network::Lan | Network::Wan => launch::Network::Tls,
    };
    let endpoints = launch::endpoints(network, parties, &Limits::default())?;
    let job = Job::new("bench").parties(u16::try_from(parties)?);
    thread::scope(|scope| {
        let start = |endpoint| {
            let job = &job;
            scope.spawn(move || net::Endpoint::session(endpoint, job))
        };
        let starting: Vec<_> = endpoints.iter().map(start).collect();
        let join = |party: thread::ScopedJoinHandle<'_, net::Result<Session>>| {
            let session = party.join().map_err(|_| anyhow::anyhow!("a party panicked"))??;
            Ok(session.transport)
        };
        starting.into_iter().map(join).collect()
    })
}

/// Runs `program` on each link, each in a thread.
fn each(links: &mut [Link], program: impl Fn(&mut Link) -> Result<()> + Sync) -> Result<()> {
    let program = &program;
    thread::scope(|scope| {
        let parties: Vec<_> =
            links.iter_mut().map(|link| scope.spawn(move || program(link))).collect();
        let join = |party: thread::ScopedJoinHandle<'_, Result<()>>| {
            party.join().map_err(|_| anyhow::anyhow!("a party panicked"))?
        };
        parties.into_iter().try_for_each(join)
    })
}

/// The lengths of messages of [`SIZES`] that make up `bytes`, well mixed.
fn mixed_sizes(bytes: usize) -> Vec<usize> {
    let share = bytes / SIZES.len();
    let mut sizes = Vec::new();
    let mut given = [0; SIZES.len()];
    while let Some((at, _)) =
        given.iter().enumerate().filter(|(_, given)| **given < share).min_by_key(|(_, g)| **g)
    {
        given[at] += SIZES[at];
        sizes.push(SIZES[at]);
    }
    sizes
}

/// Each of three parties sends `bytes` to its neighbour at once, in messages of 16 KiB to 4 MiB.
fn exchange(
    case: &mut Case,
    network: Network,
    bytes: usize,
    name: &str,
    pipe: fn() -> Result<baseline::Pipe>,
) -> Result<()> {
    let sizes = mixed_sizes(bytes);
    let total: usize = sizes.iter().sum();
    let body = Bytes::from(vec![0x5a; SIZES[SIZES.len() - 1]]);
    let mut links = sessions(network, 3)?;
    let mut ring = (0..3).map(|_| pipe()).collect::<Result<Vec<_>>>()?;
    let mut mine = || {
        each(&mut links, |link| {
            let me = link.me();
            let (mut sent, mut ahead) = (sizes.iter(), AHEAD);
            for &size in &sizes {
                while ahead > 0
                    && let Some(&size) = sent.next()
                {
                    link.send(me.after(1, 3), Message::from(body.slice(..size)))?;
                    ahead -= size as isize;
                }
                link.receive(me.after(2, 3))?;
                ahead += size as isize;
            }
            Ok(())
        })
    };
    let mut raw = || baseline::exchange(&mut ring, &sizes, &body);
    case.set_effort(Effort { min_runs: 3, max_runs: 5, ..case.effort() });
    case.network(network).size(format!("3 x {} MiB", total >> 20)).bytes_per_party(total as u64);
    compare(case, name, &mut mine, &mut raw)?;
    case.rate(3.0 * total as f64 / 1e9, "GB/s");
    Ok(())
}

/// Each of three parties sends a million empty-handed messages to its neighbour, in batches.
fn small_messages(case: &mut Case) -> Result<()> {
    const MESSAGES: usize = 1_000_000;
    const BATCH: usize = 1000;
    let mut links = sessions(Network::InProcess, 3)?;
    let body = Bytes::from_static(&[7; 8]);
    let run = || {
        each(&mut links, |link| {
            let me = link.me();
            for _ in 0..MESSAGES / BATCH {
                for _ in 0..BATCH {
                    link.send(me.after(1, 3), Message::from(body.clone()))?;
                }
                for _ in 0..BATCH {
                    link.receive(me.after(2, 3))?;
                }
            }
            Ok(())
        })
    };
    case.network(Network::InProcess).size("3 x 10^6 of 8 B");
    case.try_measure(run)?;
    case.rate(3.0 * MESSAGES as f64 / 1e6, "M messages/s");
    case.reference_rate("10 M messages/s", 10.0);
    Ok(())
}

/// Each of three parties sends `bytes` to its neighbour in messages of 4 MiB; the receiver checks
/// that the bytes are equal.
fn large_messages(case: &mut Case, bytes: usize) -> Result<()> {
    let mut links = sessions(Network::InProcess, 3)?;
    let body = Bytes::from(vec![7; 4 << 20]);
    let times = bytes / body.len();
    let run = || {
        each(&mut links, |link| {
            let me = link.me();
            for _ in 0..times {
                link.send(me.after(1, 3), Message::from(body.clone()))?;
                let got = link.receive(me.after(2, 3))?;
                anyhow::ensure!(got.body.as_ptr() == body.as_ptr(), "a message was copied");
            }
            Ok(())
        })
    };
    case.network(Network::InProcess).size(format!("3 x {} MiB", bytes >> 20));
    case.try_measure(run)?;
    case.rate(3.0 * bytes as f64 / 1e9, "GB/s");
    Ok(())
}

/// 64 bytes to a peer and back.
fn round_trip(
    case: &mut Case,
    network: Network,
    measure: impl FnOnce(&mut Case, &mut dyn FnMut() -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut links = sessions(network, 2)?;
    let mut mine = || {
        each(&mut links, |link| {
            let (me, peer) = (link.me(), link.me().after(1, 2));
            for _ in 0..TRIPS {
                let message = match me {
                    Party(0) => Message::from(Bytes::from_static(&[9; 64])),
                    _ => link.receive(peer)?,
                };
                link.send(peer, message)?;
                if me == Party(0) {
                    link.receive(peer)?;
                }
            }
            Ok(())
        })
    };
    case.network(network).size(format!("{TRIPS} of 64 B"));
    measure(case, &mut mine)?;
    case.rate(TRIPS as f64 / 1e3, "k trips/s");
    Ok(())
}
