//! Starts all parties of a session on this machine, for tests, demos and measurements.

mod processes;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    panic, thread,
    time::Duration,
};

use crate::{
    Authority, Endpoint, Error, Identity, Job, Limits, Result, Role, Security, Session, Settings,
    in_process,
};

pub use processes::{Processes, Running, VARIABLE, inputs, joined};

/// The time for which certificates made on the fly are valid.
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);

/// The network that carries the messages of parties on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// Memory; pair keys follow from the given seed.
    InProcess(u64),
    /// TCP over loopback without protection.
    InsecurePlainTcp,
    /// TLS over loopback with certificates made on the fly.
    Tls,
}

/// Runs `program` once for each of `parties` parties, each in a thread of this process, and returns
/// what they returned, in their order. Pair keys follow from the seed, so a run can be repeated.
///
/// # Panics
/// If a party panics, once all have ended: the others' sessions are cancelled by it. Unless
/// `2 <= parties <= 256`.
pub fn threads<R: Send>(
    parties: usize,
    seed: u64,
    program: impl Fn(Session) -> R + Sync,
) -> Vec<R> {
    let sessions = in_process::sessions_from_seed(parties, seed);
    run_all(sessions, program)
}

/// As [`threads`], over any network. The job must be one of `parties` parties; in memory nothing of
/// it is compared, and the session takes its first generator.
///
/// # Errors
/// If the sessions cannot be started.
///
/// # Panics
/// If a party panics, once all have ended.
pub fn threads_over<R: Send>(
    network: Network,
    parties: usize,
    job: &Job,
    program: impl Fn(Session) -> R + Sync,
) -> Result<Vec<R>> {
    if let Network::InProcess(seed) = network {
        let mut sessions = in_process::sessions_from_seed(parties, seed);
        sessions.iter_mut().for_each(|session| session.prg = job.first_prg());
        return Ok(run_all(sessions, program));
    }
    let endpoints = endpoints(network, parties, &Limits::default())?;
    let run = |endpoint: Endpoint| endpoint.session(job).map(|session| (endpoint, session));
    let started = each_in_a_thread(endpoints, run).into_iter().collect::<Result<Vec<_>>>()?;
    let (endpoints, sessions): (Vec<_>, Vec<_>) = started.into_iter().unzip();
    let results = run_all(sessions, program);
    drop(endpoints);
    Ok(results)
}

/// Endpoints of `parties` parties on free loopback ports that know each other's addresses.
///
/// # Errors
/// [`Error::Config`] if ports or randomness are lacking, and [`Error::Misuse`] for
/// [`Network::InProcess`], which has none.
pub fn endpoints(network: Network, parties: usize, limits: &Limits) -> Result<Vec<Endpoint>> {
    let identities = match network {
        Network::InProcess(_) => {
            return Err(Error::Misuse("parties in one memory have no endpoints".to_owned()));
        }
        Network::InsecurePlainTcp => None,
        Network::Tls => Some(identities(parties)?),
    };
    let listeners = (0..parties).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(local_address).collect::<Result<Vec<_>>>()?;
    let endpoint = |(party, listener): (usize, TcpListener)| {
        let security = match &identities {
            Some(identities) => Security::Tls(identities[party].clone()),
            None => plain(party),
        };
        let settings = Settings::new(security).listener(listener).peers(addresses.clone());
        Endpoint::open(settings.limits(limits.clone()))
    };
    listeners.into_iter().enumerate().map(endpoint).collect()
}

fn plain(party: usize) -> Security {
    Security::InsecurePlainTcp { role: Role::party(party), beyond_loopback: false }
}

/// Certificates of all parties under a separate authority, which is forgotten at once.
fn identities(parties: usize) -> Result<Vec<Identity>> {
    let authority = Authority::generate(LIFETIME)?;
    (0..parties).map(|party| authority.issue(&Role::party(party), LIFETIME)).collect()
}

fn free_port() -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| Error::Config {
        what: "listening on a free loopback port".to_owned(),
        reason: error.to_string(),
    })
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr> {
    listener.local_addr().map_err(|error| Error::Config {
        what: "listening on a free loopback port".to_owned(),
        reason: error.to_string(),
    })
}

/// Runs `program` on each session, each in a separate thread, and returns their results.
///
/// # Panics
/// If a party panics, once all have ended.
pub fn run_all<R: Send>(sessions: Vec<Session>, program: impl Fn(Session) -> R + Sync) -> Vec<R> {
    each_in_a_thread(sessions, program)
}

fn each_in_a_thread<T: Send, R: Send>(parts: Vec<T>, program: impl Fn(T) -> R + Sync) -> Vec<R> {
    let program = &program;
    let outcomes: Vec<thread::Result<R>> = thread::scope(|scope| {
        let parties: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(at, part)| {
                let party = thread::Builder::new().name(format!("party-{at}"));
                party
                    .spawn_scoped(scope, move || program(part))
                    .expect("the system can start a thread for each party")
            })
            .collect();
        parties.into_iter().map(|party| party.join()).collect()
    });
    let unwind = |outcome: thread::Result<R>| {
        outcome.unwrap_or_else(|payload| panic::resume_unwind(payload))
    };
    outcomes.into_iter().map(unwind).collect()
}
