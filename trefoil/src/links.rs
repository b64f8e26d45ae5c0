//! Servers and clients over the network: mutually authenticated TLS links of the crate `net`.

use std::{
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use net::{Channel as NetChannel, Endpoint, Identity, Party, Role, Security, Settings};
use ring_arith::CpuEngine;

use crate::{
    Error, Result,
    certificates::{self, CertificateEnd},
    client::Client,
    cluster::{cluster_id, identity},
    config::{ClientConfig, PARTIES, PartyConfig},
    server::Server,
    store::{Holder, Store},
    wire::{CHUNK, Channel, REQUEST},
};

/// The first pause of a client before it tries to reach a server again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a server tries to find the others before it says that they are missing.
const START: Duration = Duration::from_secs(15);

/// A connection of the crate `net`.
struct Link(NetChannel);

impl Channel for Link {
    fn send(&mut self, frame: Bytes) -> Result<()> {
        self.0.send(frame).map_err(|error| unreachable(&error))
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

/// Runs the server of one party. Returns only if it cannot start.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, [`Error::File`] if the data folder cannot.
pub fn serve(config: &PartyConfig) -> Result<()> {
    let me = config.party;
    let identity = party_identity(config)?;
    let store = open_store(config, &identity)?;
    let limits = net::Limits {
        stall: config.limits.peer_limit(),
        heartbeat: config.limits.peer_limit() / 10,
        start: START,
        client_message: CHUNK.max(REQUEST) as u64,
        ..net::Limits::default()
    };
    let settings = Settings::new(Security::Tls(identity.clone()))
        .listen(resolve("listen", &config.listen)?[0])?
        .peers(&config.servers)
        .limits(limits)
        .concurrent_sessions();
    let endpoint = Arc::new(Endpoint::open(settings)?);
    let engine = CpuEngine::new(config.threads());
    let server = Server::new(me, config.access.clone(), config.limits.clone(), store, engine);
    if let Some(reason) = config.misplaced() {
        tracing::warn!("{reason}");
    }
    tracing::info!(party = me, listen = config.listen, data = %config.data.display(), "ready");
    accept_clients(endpoint.clone(), server.clone())?;
    server.set_certificates(CertificateEnd::of(&identity)?);
    let (watched, endpoint_watched, files) = (server.clone(), endpoint.clone(), config.clone());
    start("certificates", move || certificates::watch(&files, &endpoint_watched, &watched))?;
    let checked = server.clone();
    start("store check", move || {
        if let Err(error) = checked.check_store() {
            tracing::error!(%error, "the models could not be read");
        }
    })?;
    server.keep_session(&endpoint)
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
    Store::open(&config.data, holder)
}

/// Connects a client to the three servers.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, [`Error::Unreachable`] naming the server
/// that cannot be reached.
pub fn connect(config: &ClientConfig) -> Result<Client> {
    let [zero, one, two] = dial_all(config)?;
    Ok(Client::new([zero?, one?, two?], config.silence_limit()))
}

/// A client's connections to parties 0, 1 and 2, each of which may fail on its own.
///
/// # Errors
/// [`Error::Config`] if files cannot be used.
pub fn dial_all(config: &ClientConfig) -> Result<[Result<Box<dyn Channel>>; PARTIES]> {
    let dialler = &Dialler::new(config)?;
    Ok(thread::scope(|scope| {
        [0, 1, 2].map(|party| scope.spawn(move || dialler.dial(party))).map(|thread| {
            let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
            thread.join().unwrap_or_else(lost)
        })
    }))
}

/// What a client needs to connect to its servers.
pub struct Dialler {
    endpoint: Endpoint,
    servers: [String; PARTIES],
    limit: Duration,
}

impl Dialler {
    /// From a client's configuration.
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
        Ok(Self { endpoint, servers: config.servers.clone(), limit })
    }

    /// Tries until the limit, since a server may be about to start; not again where one listened before,
    /// and refuses.
    ///
    /// # Errors
    /// [`Error::Unreachable`] that says why, and what to do.
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
    /// [`Error::Unreachable`] that says why, and what to do.
    pub fn dial_once(&self, party: usize) -> Result<Box<dyn Channel>> {
        self.attempt(party).map_err(|failed| failed.error)
    }

    /// Resolves the server's name, which may have another address than before, and tries all addresses.
    fn attempt(&self, party: usize) -> Result<Box<dyn Channel>, Attempt> {
        let name = &self.servers[party];
        let mut failed = Attempt { listens: false, error: Error::Internal(String::new()) };
        let addresses = resolve("servers", name).map_err(|error| Attempt {
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
            // Of several addresses the one where something listens says more.
            if listens || !failed.listens {
                failed = Attempt { listens: listens || failed.listens, error };
            }
        }
        Err(failed)
    }
}

/// An attempt to connect that failed.
struct Attempt {
    /// Whether something listens there all the same.
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
fn resolve(what: &str, address: &str) -> Result<Vec<SocketAddr>> {
    let bad = |reason: String| {
        let advice = "correct the name, or write the address as numbers";
        Error::config(format_args!("{what} `{address}`"), format_args!("{reason}; {advice}"))
    };
    let found: Vec<_> =
        address.to_socket_addrs().map_err(|cause| bad(cause.to_string()))?.collect();
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
