//! An endpoint: everything one process has to do with the network.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    Error, Identity, Job, Limits, Message, Party, Result, Role, Session,
    frame::Kind,
    hub::{Arrival, Engine, cannot},
    link::Link,
    parker::{Change, Parker},
    session::{self, Peers},
    step::StepTag,
    tls::Tls,
};

/// The protection of links.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Security {
    /// TLS 1.3, both sides proving their roles with certificates of the cluster's authority.
    Tls(Identity),
    /// No protection: any process that reaches the address is believed, and any listener on the
    /// wire reads the shares and the keys. For benchmarks.
    InsecurePlainTcp {
        /// The role that this side claims.
        role: Role,
        /// True to also reach addresses other than this machine's own.
        beyond_loopback: bool,
    },
}

impl Security {
    fn role(&self) -> &Role {
        match self {
            Self::Tls(identity) => identity.role(),
            Self::InsecurePlainTcp { role, .. } => role,
        }
    }

    pub(crate) fn check(&self, address: SocketAddr) -> Result<()> {
        match self {
            Self::InsecurePlainTcp { beyond_loopback: false, .. }
                if !address.ip().is_loopback() =>
            {
                let reason = "plain TCP is limited to this machine; use TLS".to_owned();
                Err(Error::Config { what: format!("address {address}"), reason })
            }
            _ => Ok(()),
        }
    }
}

/// Finds the addresses of a `host:port`, all of them. Asked again at each attempt to connect.
pub type Resolver = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The system's way to find addresses: its files and name servers.
#[must_use]
pub fn system_resolver() -> Resolver {
    Arc::new(|name| name.to_socket_addrs().map(Iterator::collect))
}

/// The settings of an endpoint.
pub struct Settings {
    pub(crate) security: Security,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) peers: Vec<String>,
    pub(crate) clients: Option<Vec<String>>,
    pub(crate) limits: Limits,
    pub(crate) concurrent: bool,
    resolver: Resolver,
}

impl Settings {
    /// An endpoint that knows no addresses yet.
    #[must_use]
    pub fn new(security: Security) -> Self {
        let limits = Limits::default();
        let (listener, peers, clients) = (None, Vec::new(), None);
        let resolver = system_resolver();
        Self { security, listener, peers, clients, limits, concurrent: false, resolver }
    }

    /// Accepts connections at this address. Port 0 takes a free one; see [`Endpoint::address`].
    ///
    /// # Errors
    /// [`Error::Config`] if the address cannot be used.
    pub fn listen(self, address: SocketAddr) -> Result<Self> {
        let what = format!("listening on {address}");
        let listener = TcpListener::bind(address).map_err(|error| cannot(&what, &error))?;
        Ok(self.listener(listener))
    }

    /// Accepts connections of a socket that listens already.
    #[must_use]
    pub fn listener(mut self, listener: TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The addresses of all parties, in their order, as `host:port`; a party's own is not used.
    /// Names are resolved again at each attempt to connect.
    #[must_use]
    pub fn peers(mut self, peers: impl IntoIterator<Item: ToString>) -> Self {
        self.peers = peers.into_iter().map(|peer| peer.to_string()).collect();
        self
    }

    /// Finds the peers' addresses in another way than the system's: [`system_resolver`].
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Accepts these clients only, instead of all that the authority has certified.
    #[must_use]
    pub fn clients(mut self, names: Vec<String>) -> Self {
        self.clients = Some(names);
        self
    }

    /// Bounds other than the default.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// For servers, which run several sessions. A party that asks for a session that this side has
    /// not started waits for it. Without this setting, both get the error that their session ids
    /// differ.
    #[must_use]
    pub fn concurrent_sessions(mut self) -> Self {
        self.concurrent = true;
        self
    }
}

/// The network side of one process: its listener, its links and the thread that serves them.
///
/// It starts any number of [`Session`]s, one after the other or at once from several threads, and
/// accepts [`Channel`]s from clients meanwhile. When the endpoint and all its sessions and channels
/// are dropped, what is queued goes out and its thread ends.
pub struct Endpoint {
    engine: Arc<Engine>,
    security: Security,
    address: Option<SocketAddr>,
    peers: Peers,
    resolver: Resolver,
    concurrent: bool,
}

impl Endpoint {
    /// Opens an endpoint and starts its thread.
    ///
    /// # Errors
    /// [`Error::Config`] if certificates or addresses cannot be used.
    pub fn open(settings: Settings) -> Result<Self> {
        let security = settings.security.clone();
        let tls = match &security {
            Security::Tls(identity) => Some(Tls::new(identity)?),
            Security::InsecurePlainTcp { .. } => None,
        };
        let local = settings.listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = local.map_err(|error| cannot("listening", &error))?;
        if let Some(address) = address {
            security.check(address)?;
        }
        let resolver = settings.resolver.clone();
        let peers = Peers::new(settings.peers.clone(), &security, &resolver)?;
        let me = match security.role() {
            Role::Party(me) => Some(*me),
            Role::Client(_) => None,
            role @ Role::Dealer(_) => {
                let reason = format!("{role} signs tapes; its certificate opens no connection");
                return Err(Error::Misuse(reason));
            }
        };
        let concurrent = settings.concurrent;
        let engine = Arc::new(Engine::start(settings, tls, me)?);
        Ok(Self { engine, security, address, peers, resolver, concurrent })
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The address at which this endpoint accepts connections.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Proves its role with another certificate, and accepts peers by its authority and its list of
    /// revoked certificates, from now on. Links that there are go on, but for those whose peer's
    /// certificate is on the list.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be used, or is of another role; all is as before then.
    pub fn set_identity(&self, identity: &Identity) -> Result<()> {
        if identity.role() != self.security.role() {
            let reason = format!("this endpoint is of {}", self.security.role());
            return Err(Error::Config {
                what: format!("certificate of {}", identity.role()),
                reason,
            });
        }
        self.engine.hub.set_tls(Tls::new(identity)?);
        Ok(())
    }

    /// Tells the addresses of all parties, where they were not known when the endpoint was opened.
    ///
    /// # Errors
    /// [`Error::Config`] if an address cannot be used.
    pub fn set_peers(&mut self, peers: impl IntoIterator<Item: ToString>) -> Result<()> {
        let names = peers.into_iter().map(|peer| peer.to_string()).collect();
        self.peers = Peers::new(names, &self.security, &self.resolver)?;
        Ok(())
    }

    /// Starts a session with all other parties, waiting until every one has joined.
    ///
    /// Parties may start in any order. Each tries to reach those of lower number again and again, up
    /// to [`Limits::start`].
    ///
    /// # Errors
    /// [`Error::Mismatch`] if a party was started for another job. [`Error::Link`] if one was not
    /// found in time or failed to prove its role. [`Error::Cancelled`]. [`Error::Misuse`] if this
    /// endpoint is not a party or knows too few addresses.
    ///
    /// # Cost
    /// A TCP and a TLS handshake and one message each way on each link, about four one-way delays.
    pub fn session(&self, job: &Job) -> Result<Session> {
        session::start(&self.engine, &self.peers, self.concurrent, job)
    }

    /// The next client that has connected, or `None` if none does within `wait`.
    #[must_use]
    pub fn accept(&self, wait: Duration) -> Option<Channel> {
        let hub = &self.engine.hub;
        let parker = Arc::new(Parker::sleeping());
        let until = Some(Instant::now() + wait);
        let _taker = hub.visitors.attend(&parker);
        let next = || hub.visitors.take(|_| true);
        let Arrival { link, .. } = hub.wait(&parker, Change::ARRIVED, until, next)?;
        let parker = Arc::new(Parker::sleeping());
        let _ = link.parker.set(parker.clone());
        link.post(Kind::Hello, hub.plain_hello().encode());
        link.limit_queue(hub.limits.client_queue);
        hub.open(&link, hub.limits.client_message);
        let peer = link.peer.get().cloned().unwrap_or_else(|| Role::Client("unknown".into()));
        Some(Channel { engine: self.engine.clone(), link, peer, parker })
    }

    /// Stops listening, ends all links after their queues have gone out, and waits until none is
    /// left or `limit` is over. Channels and sessions of this endpoint that are still in use return
    /// errors.
    pub fn close(&self, limit: Duration) {
        let hub = &self.engine.hub;
        hub.stop_listening();
        for link in hub.all_links() {
            link.post(Kind::Close, Bytes::new());
            hub.let_go(&link);
        }
        let parker = Arc::new(Parker::leading());
        let until = Some(Instant::now() + limit);
        hub.wait(&parker, Change::ANY, until, || hub.all_links().is_empty().then_some(()));
    }

    /// As a client: connects to a party's server. Fails unless the other side proves that role.
    ///
    /// # Errors
    /// [`Error::Channel`] if it cannot be reached within [`Limits::handshake`] or refuses, and
    /// [`Error::Misuse`] if this endpoint is a party.
    pub fn dial(&self, party: Party, address: SocketAddr) -> Result<Channel> {
        if self.engine.hub.me.is_some() {
            return Err(Error::Misuse("a party joins sessions; only clients dial".to_owned()));
        }
        self.security.check(address)?;
        let peer = Role::Party(party);
        let failed =
            |reason: String| Error::Channel { with: format!("{peer} at {address}"), reason };
        let hub = &self.engine.hub;
        let limit = hub.limits.handshake;
        let stream = TcpStream::connect_timeout(&address, limit);
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        stream.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
        let stream = mio::net::TcpStream::from_std(stream);
        let link = hub.add(stream, address, Some(peer.clone()))?;
        let parker = Arc::new(Parker::leading());
        let _ = link.parker.set(parker.clone());
        let channel = Channel {
            engine: self.engine.clone(),
            link: link.clone(),
            peer: peer.clone(),
            parker: parker.clone(),
        };
        link.post(Kind::Hello, hub.plain_hello().encode());
        hub.schedule(&link);
        let until = Some(Instant::now() + limit);
        let greeted = hub.wait(&parker, Change::ARRIVED, until, || match link.take_hello() {
            Some(_) => Some(Ok(())),
            None => link.end().map(|end| Err(failed(end.reason()))),
        });
        greeted.unwrap_or_else(|| Err(failed(format!("no answer within {limit:?}"))))?;
        hub.open(&link, hub.limits.message);
        Ok(channel)
    }
}

/// A link between a client and a party's server: messages either way.
///
/// Dropping it sends what is queued and ends it.
pub struct Channel {
    engine: Arc<Engine>,
    link: Arc<Link>,
    peer: Role,
    parker: Arc<Parker>,
}

impl Channel {
    #[cfg(test)]
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The role of the other end, as its certificate states it. Without TLS, the role that it
    /// claims.
    #[must_use]
    pub fn peer(&self) -> &Role {
        &self.peer
    }

    /// Queues a message. Waits only while more than [`Limits::queue`] is queued, with a client more than
    /// [`Limits::client_queue`].
    ///
    /// # Errors
    /// [`Error::Channel`] if the other side has gone.
    pub fn send(&mut self, body: Bytes) -> Result<()> {
        self.wait_for_room(None)?;
        self.post(body);
        Ok(())
    }

    /// As [`Channel::send`], for a peer that may never read: waits at most `limit`.
    ///
    /// # Errors
    /// [`Error::Channel`] if the other side has gone, or has read too little to make room in that time.
    pub fn send_within(&mut self, body: Bytes, limit: Duration) -> Result<()> {
        self.wait_for_room(Some(limit))?;
        self.post(body);
        Ok(())
    }

    fn wait_for_room(&self, limit: Option<Duration>) -> Result<()> {
        let (hub, link) = (&self.engine.hub, &self.link);
        let room = || match link.end() {
            Some(end) => Some(Err(self.error(end.reason()))),
            None => link.has_room().then_some(Ok(())),
        };
        // A client that does not read must not make this side hold more.
        let stretches = !matches!(self.peer, Role::Client(_));
        link.relaxed.store(stretches, std::sync::atomic::Ordering::Release);
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let room = hub.wait(&self.parker, Change::ANY, until, room);
        link.relaxed.store(false, std::sync::atomic::Ordering::Release);
        match (room, limit) {
            (Some(room), _) => room,
            (None, Some(limit)) => {
                Err(self.error(format!("has not read what was sent to it for {limit:?}")))
            }
            (None, None) => Ok(()),
        }
    }

    fn post(&self, body: Bytes) {
        self.link.post_message(Message::from(body), StepTag::NONE);
        self.engine.hub.push(&self.link);
    }

    /// The next message, or `None` if none comes within `wait`.
    ///
    /// # Errors
    /// [`Error::Channel`] if the other side has closed or gone.
    pub fn receive(&mut self, wait: Duration) -> Result<Option<Bytes>> {
        let (hub, link) = (&self.engine.hub, &self.link);
        let mut resume = false;
        let until = Some(Instant::now() + wait);
        let came = hub.wait(&self.parker, Change::ARRIVED, until, || {
            let (next, paused) = link.pop();
            resume |= paused;
            next
        });
        if resume {
            hub.schedule(link);
        }
        match came {
            Some(Ok(arrived)) => Ok(Some(arrived.message.body)),
            Some(Err(end)) => Err(self.error(end.reason())),
            None => Ok(None),
        }
    }

    /// True if the other side has gone; what it sent before can still be received.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.link.end().is_some()
    }

    fn error(&self, reason: String) -> Error {
        Error::Channel { with: format!("{} at {}", self.peer, self.link.address), reason }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.link.post(Kind::Close, Bytes::new());
        self.engine.hub.let_go(&self.link);
    }
}
