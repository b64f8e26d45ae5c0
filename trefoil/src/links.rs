//! Servers and clients over the network: mutually authenticated TLS links of the crate `net`.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gpu_kernels::AnyEngine;
use net::{
    Channel as NetChannel, Endpoint, Identity, Party, Resolver, Role, Security, Settings,
    system_resolver,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    audit::{Audit, Event},
    base::{Error, Result, log, memory},
    certificates,
    client::{Client, halt_at},
    cluster::{CertificateEnd, cluster_id, identity, trust},
    config::{ClientConfig, PartyConfig},
    observe, rebuild,
    server::{Server, check_revocations},
    store::{Holder, Store},
    training::Halt,
    wire::{CHUNK, Channel, REQUEST},
};

/// The first pause of a client before it tries to reach a server again.
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which a server that ends lets clients read what they were sent.
const FAREWELL: Duration = Duration::from_secs(5);

/// The time for which a server tries to find the others before it reports that they are missing.
const START: Duration = Duration::from_secs(15);

/// A connection of the crate `net`.
struct Link(NetChannel);

impl Channel for Link {
    fn send(&mut self, frame: Bytes) -> Result<()> {
        self.0.send(frame).map_err(|error| unreachable(&error))
    }

    fn send_within(&mut self, frame: Bytes, limit: Duration) -> Result<()> {
        self.0.send_within(frame, limit).map_err(|error| unreachable(&error))
    }

    fn receive(&mut self, limit: Duration) -> Result<Bytes> {
        match self.0.receive(limit) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(Error::Unreachable {
                server: self.0.peer().to_string(),
                reason: format!("said nothing for {} s; see its log", limit.as_secs()),
            }),
            Err(error) => Err(unreachable(&error)),
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// Runs the server of one party until it is asked to stop, by SIGTERM or an interrupt. Then it takes no new jobs and
/// ends those that it has, for at most [`crate::config::Limits::drain_seconds`]. A second signal ends it at once.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, [`Error::File`] if the data folder cannot.
pub fn serve(config: &PartyConfig) -> Result<()> {
    let me = config.party;
    config.log.as_deref().map_or(Ok(()), log::set)?;
    memory::keep_private()?;
    // As the first process of a container it would otherwise not get the signals at all.
    let signals = stop_signals()?;
    let (identity, store) = open_party(config)?;
    let endpoint =
        Arc::new(Endpoint::open(settings(config, &identity, START)?.concurrent_sessions())?);
    let observed = config.observe.as_deref().map(listen_for_operators).transpose()?;
    let engine = open_engine(config)?;
    let (access, limits) = (config.access.clone(), config.limits.clone());
    let audit = Audit::open(me, config.audit.as_ref())?;
    let server = Server::new(me, access, limits, store, engine, config.computing(), audit);
    server.record_start();
    if let Some(reason) = config.misplaced() {
        tracing::warn!("{reason}");
    }
    if let Some(reason) = memory::of_machine().and_then(|bytes| config.limits.oversized(bytes)) {
        tracing::warn!("{reason}");
    }
    let engine = server.engine();
    tracing::info!(party = me, engine, listen = config.listen, data = %config.data.display(), "ready");
    accept_clients(endpoint.clone(), server.clone())?;
    if let Some(listener) = observed {
        let observed = server.clone();
        let hosts = config.observe_names();
        start("metrics", move || observe::serve(&listener, &observed, &hosts))?;
    }
    server.set_certificates(CertificateEnd::of(&identity)?);
    server.trust(trust(&config.files())?);
    let (watched, endpoint_watched, files) = (server.clone(), endpoint.clone(), config.clone());
    start("certificates", move || certificates::watch(&files, &endpoint_watched, &watched))?;
    let checked = server.clone();
    start("store check", move || {
        if let Err(error) = checked.check_store() {
            tracing::error!(%error, "the models could not be read");
        }
    })?;
    let stopped = server.clone();
    start("signals", move || obey(signals, &stopped))?;
    tell_service_manager(true);
    server.keep_session(|job| endpoint.session(job));
    endpoint.close(FAREWELL);
    tracing::info!("stopped");
    Ok(())
}

/// A server's identity and its store, which has used no newer list of revoked certificates.
fn open_party(config: &PartyConfig) -> Result<(Identity, Store)> {
    let identity = party_identity(config)?;
    let store = open_store(config, &identity)?;
    check_revocations(&store, &identity)?;
    Ok((identity, store))
}

/// The settings of a server's links: it looks for the others for `start`.
fn settings(config: &PartyConfig, identity: &Identity, start: Duration) -> Result<Settings> {
    let limits = net::Limits {
        stall: config.limits.peer_limit(),
        heartbeat: config.limits.peer_limit() / 10,
        start,
        client_message: CHUNK.max(REQUEST) as u64,
        ..net::Limits::default()
    };
    let listen = resolve(&system_resolver(), "listen", &config.listen)?[0];
    let settings = Settings::new(Security::Tls(identity.clone())).listen(listen)?;
    Ok(settings.peers(&config.servers).limits(limits))
}

/// Rebuilds what server `lost` has lost, or helps to. It waits at most `wait` for the two others to do the same.
/// Their operators consent to it by running it. `progress` gets the number of names that are done, and of all.
///
/// # Errors
/// As [`rebuild::rebuild`]; [`Error::Config`] if files or addresses cannot be used or this server runs.
pub fn rebuild(
    config: &PartyConfig,
    lost: usize,
    wait: Duration,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<rebuild::Report> {
    let sharing = config.protocol.sharing();
    rebuild::check(sharing, lost)?;
    memory::keep_private()?;
    let (identity, store) = open_party(config)?;
    let audit = Audit::open(config.party, config.audit.as_ref())?;
    let endpoint = Endpoint::open(settings(config, &identity, wait)?)?;
    let what = format!("{} {lost}", crate::base::PROGRAM);
    let job =
        net::Job::new(rebuild::SESSION).parties(sharing.servers() as u16).config(what.as_bytes());
    let mut transport = endpoint.session(&job)?.transport;
    let report = rebuild::rebuild(&store, sharing, &mut *transport, lost, progress)
        .inspect_err(|error| transport.fail(&error.to_string()))?;
    for name in &report.rebuilt {
        audit.record(&Event::Rebuilt { of: lost, name });
    }
    transport.close()?;
    endpoint.close(FAREWELL);
    Ok(report)
}

/// Reports to systemd that this server takes clients, or that it ends; does nothing if systemd did not start it.
fn tell_service_manager(serving: bool) {
    #[cfg(unix)]
    {
        let state =
            if serving { sd_notify::NotifyState::Ready } else { sd_notify::NotifyState::Stopping };
        if let Err(error) = sd_notify::notify(&[state]) {
            tracing::warn!(%error, "systemd cannot be told how this server is");
        }
    }
}

/// Signals that ask a process to end.
pub(crate) fn stop_signals() -> Result<Signals> {
    let failed = |cause| Error::File { what: "waiting for signals".to_owned(), cause };
    Signals::new([SIGTERM, SIGINT]).map_err(failed)
}

/// Stops the server at the first signal, and the process at the second.
fn obey(mut signals: Signals, server: &Server) {
    let mut begun = false;
    for signal in signals.forever() {
        if begun {
            tracing::warn!("a second signal: ending without waiting for jobs");
            process::exit(128 + signal);
        }
        begun = true;
        tell_service_manager(false);
        tracing::info!(
            "asked to stop: no new jobs, those taken go on; a second signal ends them too"
        );
        let server = server.clone();
        let drain = move || {
            let left = server.stop();
            if left > 0 {
                tracing::warn!(
                    jobs = left,
                    "stopping before all jobs have ended (limits.drain_seconds)"
                );
            }
        };
        if let Err(error) = start("drain", drain) {
            tracing::error!(%error, "ending without waiting for jobs");
            process::exit(128 + signal);
        }
    }
}

/// The listener at which operators ask for a server's state.
///
/// # Errors
/// [`Error::Config`] if the address cannot be used.
fn listen_for_operators(address: &str) -> Result<TcpListener> {
    let addresses = resolve(&system_resolver(), "observe", address)?;
    TcpListener::bind(addresses.as_slice())
        .map_err(|cause| Error::config(format_args!("observe `{address}`"), cause))
}

/// The engine on which a server computes.
///
/// # Errors
/// [`Error::Config`] if it is a device that cannot be used.
fn open_engine(config: &PartyConfig) -> Result<AnyEngine> {
    let choice = config.engine;
    let unusable = |reason| {
        Error::config(format_args!("`engine = \"{choice}\"` of party {}", config.party), reason)
    };
    let (engine, instead) = choice.open(config.threads()).map_err(unusable)?;
    if let Some(reason) = instead {
        tracing::info!(%reason, "computing on the CPU");
    }
    Ok(engine)
}

/// A server's certificate and key.
///
/// # Errors
/// [`Error::Config`] if the files cannot be used.
pub fn party_identity(config: &PartyConfig) -> Result<Identity> {
    identity(&Role::party(config.party), &config.files())
}

/// A server's models.
///
/// # Errors
/// As [`Store::open`].
pub fn open_store(config: &PartyConfig, identity: &Identity) -> Result<Store> {
    let holder = Holder { cluster: cluster_id(identity)?, party: config.party };
    Store::open(&config.data, holder, config.store_key()?)
}

/// Connects a client to the servers.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, or if the client asks for servers that prove their messages
/// and one does not; [`Error::Unreachable`] naming the server that cannot be reached.
pub fn connect(config: &ClientConfig) -> Result<Client> {
    let channels = dial_all(config)?.into_iter().collect::<Result<_>>()?;
    let mut client = Client::new(channels, config.protocol.sharing(), config.silence_limit());
    if config.security == mpc_core::Security::Checked {
        client.require_proofs()?;
    }
    Ok(client)
}

/// A client's connections to the servers, in their order, each of which may fail on its own.
///
/// # Errors
/// [`Error::Config`] if files cannot be used.
pub fn dial_all(config: &ClientConfig) -> Result<Vec<Result<Box<dyn Channel>>>> {
    let dialler = &Dialler::new(config)?;
    Ok(thread::scope(|scope| {
        let dial = |party| scope.spawn(move || dialler.dial(party));
        let attempts: Vec<_> = (0..config.servers.len()).map(dial).collect();
        let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
        attempts.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    }))
}

/// Halts a run at each server separately, all at once: one server that gets it is enough. Returns the result at each.
///
/// # Errors
/// [`Error::Config`] if files cannot be used.
pub fn halt(config: &ClientConfig, name: &str, halt: Halt) -> Result<Vec<Result<()>>> {
    let dialler = &Dialler::new(config)?;
    Ok(thread::scope(|scope| {
        let tell = |party| {
            scope.spawn(move || {
                let mut channel = dialler.dial(party)?;
                halt_at(&mut *channel, name, halt, config.silence_limit())
            })
        };
        let told: Vec<_> = (0..config.servers.len()).map(tell).collect();
        let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
        told.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    }))
}

/// The settings with which a client connects to its servers.
pub struct Dialler {
    endpoint: Endpoint,
    servers: Vec<String>,
    limit: Duration,
    resolver: Resolver,
}

impl Dialler {
    /// Reads a client's configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if files cannot be used.
    pub fn new(config: &ClientConfig) -> Result<Self> {
        let role = Role::client(&config.name)?;
        let identity = identity(&role, &config.files())?;
        let limit = config.connect_limit();
        let limits =
            net::Limits { handshake: limit, stall: config.silence_limit(), ..Default::default() };
        let endpoint = Endpoint::open(Settings::new(Security::Tls(identity)).limits(limits))?;
        let resolver = system_resolver();
        Ok(Self { endpoint, servers: config.servers.clone(), limit, resolver })
    }

    /// Tries until the limit, since a server may be about to start; not again where one listened before,
    /// and refuses.
    ///
    /// # Errors
    /// [`Error::Unreachable`] that states why, and what to do.
    pub fn dial(&self, party: usize) -> Result<Box<dyn Channel>> {
        let (began, mut pause, mut listened) = (Instant::now(), PAUSE, false);
        loop {
            let failed = match self.attempt(party) {
                Ok(channel) => return Ok(channel),
                Err(failed) => failed,
            };
            if (failed.listens && listened) || began.elapsed() + pause >= self.limit {
                return Err(failed.error);
            }
            // It may have begun to listen after the attempt.
            listened = failed.listens;
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Tries once.
    ///
    /// # Errors
    /// [`Error::Unreachable`] that states why, and what to do.
    pub fn dial_once(&self, party: usize) -> Result<Box<dyn Channel>> {
        self.attempt(party).map_err(|failed| failed.error)
    }

    /// Resolves the server's name, which may have another address than before, and tries all addresses.
    fn attempt(&self, party: usize) -> Result<Box<dyn Channel>, Attempt> {
        let name = &self.servers[party];
        let mut failed = Attempt { listens: false, error: Error::Internal(String::new()) };
        let addresses = resolve(&self.resolver, "servers", name).map_err(|error| Attempt {
            listens: false,
            error: Error::Unreachable {
                server: format!("party {party}"),
                reason: error.to_string(),
            },
        })?;
        for address in addresses {
            let error = match self.endpoint.dial(Party(party), address) {
                Ok(channel) => return Ok(Box::new(Link(channel))),
                Err(error) => error,
            };
            let listens = TcpStream::connect_timeout(&address, PAUSE).is_ok();
            let advice = if listens {
                "are address, configuration and certificates those of the same cluster?".to_owned()
            } else {
                format!("is it running (trefoil party --config party-{party}/party.toml)?")
            };
            let error = Error::Unreachable {
                server: format!("party {party} at {address}"),
                reason: format!("{error}; {advice}"),
            };
            // Of several addresses, the error of one that listens explains more.
            if listens || !failed.listens {
                failed = Attempt { listens: listens || failed.listens, error };
            }
        }
        Err(failed)
    }
}

/// An attempt to connect that failed.
struct Attempt {
    /// True if something listens there all the same.
    listens: bool,
    error: Error,
}

fn accept_clients(endpoint: Arc<Endpoint>, server: Server) -> Result<()> {
    let accept = move || loop {
        let Some(channel) = endpoint.accept(Duration::from_secs(60)) else { continue };
        let Role::Client(name) = channel.peer().clone() else { continue };
        let server = server.clone();
        let serve = move || server.serve_client(&mut Link(channel), &name);
        if let Err(error) = start("client", serve) {
            tracing::error!(%error, "no thread for a client");
        }
    };
    start("clients", accept)
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|cause| Error::File { what: format!("a thread `{name}`"), cause })
}

/// All addresses of a name; at least one.
fn resolve(resolver: &Resolver, what: &str, address: &str) -> Result<Vec<SocketAddr>> {
    let bad = |reason: String| {
        let advice = "correct the name, or write the address as numbers";
        Error::config(format_args!("{what} `{address}`"), format_args!("{reason}; {advice}"))
    };
    let found = resolver(address).map_err(|cause| bad(cause.to_string()))?;
    if found.is_empty() { Err(bad("the name has no address".to_owned())) } else { Ok(found) }
}

fn unreachable(error: &net::Error) -> Error {
    match error {
        net::Error::Channel { with, reason } => {
            Error::Unreachable { server: with.clone(), reason: reason.clone() }
        }
        other => Error::Unreachable { server: "server".to_owned(), reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// A server of party 0 that greets each client and then hangs up, until the answer is dropped.
    fn server() -> (SocketAddr, mpsc::Sender<()>) {
        let role = Role::party(0);
        let security = Security::InsecurePlainTcp { role, beyond_loopback: false };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::open(Settings::new(security).listener(listener)).unwrap();
        let address = endpoint.address().unwrap();
        let (running, over) = mpsc::channel();
        thread::spawn(move || {
            while over.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                drop(endpoint.accept(Duration::from_millis(20)));
            }
        });
        (address, running)
    }

    #[test]
    fn a_server_is_found_again_after_its_name_got_another_address() {
        let role = Role::client("alice").unwrap();
        let security = Security::InsecurePlainTcp { role, beyond_loopback: false };
        let known: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let table = known.clone();
        let dialler = Dialler {
            endpoint: Endpoint::open(Settings::new(security)).unwrap(),
            servers: vec!["zero.example:7100".to_owned()],
            limit: Duration::from_secs(20),
            resolver: Arc::new(move |name| {
                assert_eq!(name, "zero.example:7100");
                Ok(table.lock().unwrap().clone())
            }),
        };
        let text = dialler.dial_once(0).map(drop).unwrap_err().to_string();
        assert!(text.contains("the name has no address"), "{text}");
        let (first, running) = server();
        *known.lock().unwrap() = vec![first];
        dialler.dial_once(0).unwrap();
        drop(running);
        while TcpStream::connect_timeout(&first, PAUSE).is_ok() {
            thread::yield_now();
        }
        // The old address does not answer any more; the name changes while the client still tries.
        let (second, _running) = server();
        let moves = thread::spawn(move || {
            thread::sleep(3 * PAUSE);
            // Of several addresses those that do not answer are passed over.
            *known.lock().unwrap() = vec![first, second];
        });
        dialler.dial(0).unwrap();
        moves.join().unwrap();
    }
}
