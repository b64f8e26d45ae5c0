//! Connecting to the servers: finding them, and trying again while they start.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use net::{Endpoint, Party, Resolver, Role, Security, Settings, system_resolver};

use super::{Client, halt_at};
use crate::{
    base::{Error, Result},
    cluster::identity,
    config::ClientConfig,
    training::Halt,
    wire::{Channel, Connection, resolve},
};

/// The first pause of a client before it tries to reach a server again.
const PAUSE: Duration = Duration::from_millis(100);

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
        sync::{Arc, Mutex, mpsc},
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
