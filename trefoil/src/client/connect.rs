//! Connecting to the servers: finding them, and trying again while they start.

use std::{
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use net::{Endpoint, Party, Resolver, Role, Security, Settings, system_resolver};

use super::{Client, cells::Cells, halt_at};
use crate::{
    base::{Error, Result},
    cluster::identity,
    config::ClientConfig,
    training::Halt,
    wire::{Channel, Connection, resolve},
};

/// The first pause of a client before it tries to reach a server again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Connects a client to the servers, or to those of a cell that has little to do.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, or if the client asks for servers that prove their messages
/// and one does not; [`Error::Unreachable`] naming the server that cannot be reached.
pub fn connect(config: &ClientConfig) -> Result<Client> {
    let mut cells = config.cells.map(|count| Cells::new(config, count)).transpose()?;
    let channels = match &mut cells {
        Some(cells) => cells.connect()?,
        None => dial_all(config)?.into_iter().collect::<Result<_>>()?,
    };
    let new = Client::new(channels, config.protocol.sharing(), config.silence_limit());
    let mut client = Client { cells, ..new };
    if config.security == mpc_core::Security::Checked {
        client.require_proofs()?;
    }
    Ok(client)
}

/// Connects a client to the servers of one cell, which it does not leave; where there are no cells, to the servers.
///
/// # Errors
/// As [`connect`].
pub fn connect_to(config: &ClientConfig, cell: Option<u16>) -> Result<Client> {
    let servers = config.addresses(cell);
    connect(&ClientConfig { servers, cells: None, ..config.clone() })
}

/// A client's connections to the servers, in their order, each of which may fail on its own. Of cells it is the first.
///
/// # Errors
/// [`Error::Config`] if files cannot be used.
pub fn dial_all(config: &ClientConfig) -> Result<Vec<Result<Box<dyn Channel>>>> {
    Ok(open_all(&Dialler::new(config)?, Dialler::dial))
}

/// Connections to all servers, at once.
pub(super) fn open_all(
    dialler: &Dialler,
    dial: impl Fn(&Dialler, usize) -> Result<Box<dyn Channel>> + Sync,
) -> Vec<Result<Box<dyn Channel>>> {
    let dial = &dial;
    thread::scope(|scope| {
        let dial = |party| scope.spawn(move || dial(dialler, party));
        let attempts: Vec<_> = (0..dialler.servers.len()).map(dial).collect();
        let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
        attempts.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    })
}

/// Halts a run at each server separately, all at once: one server that gets it is enough. Returns the result at each. Where
/// there are cells, one of a server's workers is enough, and all are told.
///
/// # Errors
/// [`Error::Config`] if files cannot be used.
pub fn halt(config: &ClientConfig, name: &str, halt: Halt) -> Result<Vec<Result<()>>> {
    let (dialler, silence) = (&Dialler::new(config)?, config.silence_limit());
    let tell = |cell: Option<u16>, party: usize| {
        let dialler = dialler.of(config.addresses(cell));
        let mut channel = dialler.dial(party)?;
        halt_at(&mut *channel, name, halt, silence)
    };
    let tell = &tell;
    Ok(thread::scope(|scope| {
        let threads = (0..config.servers.len()).map(|party| {
            let cells = config.each_cell();
            cells.map(|cell| scope.spawn(move || tell(cell, party))).collect::<Vec<_>>()
        });
        let threads: Vec<_> = threads.collect();
        let lost = |_| Err(Error::Internal("a connection attempt was lost".to_owned()));
        let best = |told: Vec<thread::ScopedJoinHandle<'_, Result<()>>>| {
            let told = told.into_iter().map(|thread| thread.join().unwrap_or_else(lost));
            told.reduce(Result::or).unwrap_or_else(|| lost(Box::new(())))
        };
        threads.into_iter().map(best).collect()
    }))
}

/// The settings with which a client connects to its servers.
pub struct Dialler {
    endpoint: Arc<Endpoint>,
    servers: Vec<String>,
    limit: Duration,
    resolver: Resolver,
}

impl Dialler {
    /// Reads a client's configuration. Of cells it is for the first.
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
        let (endpoint, resolver) = (Arc::new(endpoint), system_resolver());
        let servers = config.addresses(config.each_cell().next().flatten());
        Ok(Self { endpoint, servers, limit, resolver })
    }

    /// The same for servers at other addresses.
    #[must_use]
    pub(crate) fn of(&self, servers: Vec<String>) -> Self {
        let (endpoint, resolver) = (self.endpoint.clone(), self.resolver.clone());
        Self { endpoint, servers, limit: self.limit, resolver }
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
                Ok(channel) => return Ok(Box::new(Connection(channel))),
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

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener},
        sync::{Mutex, mpsc},
    };

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
            endpoint: Arc::new(Endpoint::open(Settings::new(security)).unwrap()),
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
