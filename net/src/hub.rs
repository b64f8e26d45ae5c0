//! The state of an endpoint: its links, and how each is driven.

mod lead;
mod lobby;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use bytes::Bytes;
use mio::{Events, Interest, Poll, Registry, Token, Waker, net::TcpListener};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::{
    Error, LeftOut, Limits, LogLimit, Party, Result, Role,
    buffer::Pool,
    endpoint::Settings,
    frame::Kind,
    hello::{Difference, Hello, Public, VERSION},
    link::{End, Link, Phase, Progress, Wire},
    parker::{Change, Parker},
    stream::Stream,
    tls::Tls,
};
pub(crate) use lobby::{Arrival, Lobby};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST_LINK: usize = 2;

/// The interval at which links are checked for silence and heartbeats.
const TICK: Duration = Duration::from_millis(100);

/// The time in which refused connections of one address and cause are logged once.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Size of the socket's own queue where both ends are on one machine. Nothing is under way there, so
/// that a longer one only means that bytes have left the cache when they are read.
const SAME_MACHINE: usize = 256 << 10;

/// The shared state of an endpoint.
pub(crate) struct Hub {
    pub(crate) limits: Limits,
    pub(crate) me: Option<Party>,
    /// Certificates of connections to come; none for plain TCP.
    tls: Option<Mutex<Tls>>,
    clients: Option<Vec<String>>,
    registry: Registry,
    waker: Waker,
    poller: Mutex<Poller>,
    listener: Mutex<Option<TcpListener>>,
    links: Mutex<Links>,
    next_token: AtomicUsize,
    /// Links with work that no event will announce.
    ready: Mutex<Vec<usize>>,
    /// Links that have more to do than fits in a turn: most have something to read, which their
    /// receiver will soon read itself.
    unfinished: Mutex<Vec<usize>>,
    /// Parties that wait for their session.
    pub(crate) parties: Lobby,
    /// Clients that wait to be accepted.
    pub(crate) visitors: Lobby,
    /// Threads that sleep though they could lead: one of them does when the leader leaves.
    candidates: Mutex<Vec<Arc<Parker>>>,
    /// Counts how often a sleeping thread was woken.
    wakes: AtomicU64,
    /// Counts how often one was that leads its next wait itself.
    woken_leaders: AtomicU64,
    /// Counts how often a waiting thread served a socket.
    turns: AtomicU64,
    polling: AtomicBool,
    /// The endpoint's thread does not sleep longer than [`LEAVE`].
    watching: AtomicBool,
    /// The endpoint's thread sleeps until the leader leaves.
    resting: AtomicBool,
    stop: AtomicBool,
    next_tick: AtomicU64,
    thread: OnceLock<Thread>,
    started: Instant,
    pool: Pool,
    refusals: LogLimit<IpAddr, String>,
    /// The connection refused last, and why.
    refused: Mutex<Option<(Instant, String)>>,
}

/// The connections of an endpoint, by token.
#[derive(Default)]
struct Links {
    all: HashMap<usize, Arc<Link>>,
    /// Accepted connections that have not proved a role, the oldest first.
    unproved: BTreeMap<usize, Arc<Link>>,
}

struct Poller {
    poll: Poll,
    events: Events,
}

/// Owns the endpoint's thread: dropping the last one ends it, after what is queued has gone out.
pub(crate) struct Engine {
    pub(crate) hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    pub(crate) fn start(settings: Settings, tls: Option<Tls>, me: Option<Party>) -> Result<Self> {
        let hub = Arc::new(Hub::new(settings, tls, me)?);
        let name = me.map_or("net".to_owned(), |me| format!("net-{}", me.0));
        let run = hub.clone();
        let thread = thread::Builder::new().name(name).spawn(move || run.run());
        let thread = thread.map_err(|error| cannot("starting the network thread", &error))?;
        // Set once, here.
        let _ = hub.thread.set(thread.thread().clone());
        Ok(Self { hub, thread: Some(thread) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.hub.stop.store(true, Ordering::SeqCst);
        self.hub.kick();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the network thread panicked");
            }
        }
    }
}

pub(crate) fn cannot(what: &str, error: &io::Error) -> Error {
    Error::Config { what: what.to_owned(), reason: error.to_string() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    fn new(settings: Settings, tls: Option<Tls>, me: Option<Party>) -> Result<Self> {
        let poll = Poll::new().map_err(|error| cannot("waiting for sockets", &error))?;
        let failed = |error: io::Error| cannot("waiting for sockets", &error);
        let registry = poll.registry().try_clone().map_err(failed)?;
        let waker = Waker::new(&registry, WAKER).map_err(failed)?;
        let listener = settings.listener.map(|listener| {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            registry.register(&mut listener, LISTENER, Interest::READABLE)?;
            Ok(listener)
        });
        let listener = listener.transpose().map_err(|error| cannot("listening", &error))?;
        Ok(Self {
            limits: settings.limits,
            me,
            tls: tls.map(Mutex::new),
            clients: settings.clients,
            registry,
            waker,
            poller: Mutex::new(Poller { poll, events: Events::with_capacity(256) }),
            listener: Mutex::new(listener),
            links: Mutex::default(),
            next_token: AtomicUsize::new(FIRST_LINK),
            ready: Mutex::default(),
            unfinished: Mutex::default(),
            parties: Lobby::default(),
            visitors: Lobby::default(),
            candidates: Mutex::default(),
            wakes: AtomicU64::new(0),
            woken_leaders: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            polling: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            next_tick: AtomicU64::new(0),
            thread: OnceLock::new(),
            started: Instant::now(),
            pool: Pool::default(),
            refusals: LogLimit::new(LOG_PAUSE),
            refused: Mutex::default(),
        })
    }

    /// True if links are under TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    fn tls(&self) -> Option<Tls> {
        self.tls.as_ref().map(|tls| lock(tls).clone())
    }

    /// Uses other certificates from now on, and ends links whose peer has one that is revoked.
    pub(crate) fn set_tls(&self, new: Tls) {
        let Some(tls) = &self.tls else { return };
        lock(tls).clone_from(&new);
        for link in self.all_links() {
            if link.certificate.get().is_some_and(|certificate| new.is_revoked(certificate)) {
                self.expel(&link, "a certificate that has been revoked");
            }
        }
    }

    /// Ends a link and sends the peer the reason.
    fn expel(&self, link: &Arc<Link>, reason: &str) {
        let peer = link.peer.get().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(peer, address = %link.address, reason, "connection ended");
        let mut wire = link.wire();
        link.post(Kind::Cancel, format!("it was refused: {peer} has {reason}").into_bytes());
        // If this does not reach the peer, it learns of it from the end of the connection.
        let _ = link.write(&mut wire, self.now());
        self.finish(link, &mut wire, End::Violation(reason.to_owned()));
    }

    /// Milliseconds since the endpoint was opened.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Drives a link as far as it goes in a turn. True if bytes have come.
    pub(crate) fn serve(&self, link: &Arc<Link>, wire: &mut Wire) -> bool {
        match self.drive(link, wire) {
            Ok(progress) => {
                self.set_unfinished(link, progress.more);
                if let Some(change) = progress.change() {
                    self.wake_user(link, change);
                }
                progress.came
            }
            Err(end) => {
                self.finish(link, wire, end);
                true
            }
        }
    }

    /// Records whether a link, whose wire the caller has locked, has more to do.
    fn set_unfinished(&self, link: &Link, more: bool) {
        if link.unfinished.swap(more, Ordering::Relaxed) != more {
            let mut unfinished = lock(&self.unfinished);
            match more {
                true => unfinished.push(link.token),
                false => unfinished.retain(|&token| token != link.token),
            }
        }
    }

    /// Sends what was just queued, unless another thread drives the link at the moment.
    pub(crate) fn push(&self, link: &Arc<Link>) {
        match link.try_wire() {
            Some(mut wire) if wire.phase != Phase::Securing => {
                match link.write(&mut wire, self.now()) {
                    Ok(Progress { more: false, .. }) => {}
                    Ok(_) => self.schedule(link),
                    Err(end) => self.finish(link, &mut wire, end),
                }
            }
            _ => self.schedule(link),
        }
    }

    fn drive(&self, link: &Arc<Link>, wire: &mut Wire) -> Result<Progress, End> {
        if wire.phase == Phase::Securing && !self.secure(link, wire)? {
            return Ok(Progress::default());
        }
        let now = self.now();
        let sent = link.write(wire, now)?;
        let read = link.read(wire, now, |phase, kind, body| self.judge(link, phase, kind, body))?;
        // The bytes that were read may have called for an answer.
        let answered = link.write(wire, now)?;
        if wire.phase == Phase::Draining
            && link.is_flushed()
            && let Some(stream) = &mut wire.stream
        {
            stream.finish();
        }
        Ok(Progress {
            arrived: read.arrived,
            room: sent.room || answered.room,
            more: read.more || answered.more,
            came: read.came,
        })
    }

    fn secure(&self, link: &Arc<Link>, wire: &mut Wire) -> Result<bool, End> {
        let Some(stream) = &mut wire.stream else { return Ok(false) };
        if !stream.handshake()? {
            return Ok(false);
        }
        link.identify(stream)?;
        self.proved(link);
        if let Some(Role::Client(name)) = link.peer.get()
            && let Some(clients) = &self.clients
            && !clients.contains(name)
        {
            return Err(End::Violation(format!("the certificate of unknown client {name}")));
        }
        link.heard.store(self.now(), Ordering::Relaxed);
        wire.phase = Phase::Greeting;
        Ok(true)
    }

    /// Takes up a frame that carries no part of a message.
    fn judge(
        &self,
        link: &Arc<Link>,
        phase: &mut Phase,
        kind: Kind,
        body: Bytes,
    ) -> Result<(), End> {
        let words =
            |body: &[u8]| String::from_utf8_lossy(body).chars().take(1000).collect::<String>();
        let text = || words(&body);
        match (kind, *phase) {
            (_, Phase::Draining) | (Kind::Ping, _) => Ok(()),
            (Kind::Hello, Phase::Greeting) => {
                let hello = Hello::decode(&body).map_err(End::Violation)?;
                self.greet(link, hello)?;
                *phase = Phase::Judging;
                Ok(())
            }
            (Kind::Close, Phase::Open) => {
                link.set_end(End::Closed);
                Ok(())
            }
            (Kind::Leave, _) => Err(End::Left(text())),
            (Kind::Cancel, _) => Err(End::Cancelled(text())),
            (Kind::Accuse, _) => {
                let missing = || End::Violation("an accusation of nobody".to_owned());
                let (&peer, reason) = body.split_first().ok_or_else(missing)?;
                Err(End::Accused(Party(usize::from(peer)), words(reason)))
            }
            (Kind::Mismatch, _) => {
                Err(End::Mismatch(Difference::decode(&body).map_err(End::Violation)?))
            }
            (kind, _) => Err(End::Violation(format!("a {kind:?} frame out of turn"))),
        }
    }

    fn greet(&self, link: &Arc<Link>, hello: Hello) -> Result<(), End> {
        self.check_role(link, &hello)?;
        if link.expected.is_some() {
            link.deliver_hello(hello);
            return Ok(());
        }
        self.proved(link);
        let lobby = match link.peer.get() {
            Some(Role::Party(_)) => &self.parties,
            _ => &self.visitors,
        };
        lobby.add(Arrival { link: link.clone(), hello })?;
        for taker in lobby.takers() {
            self.wake(&taker, Change::ARRIVED);
        }
        Ok(())
    }

    /// The hello must come from the role that the certificate proves; without certificates it is
    /// believed.
    fn check_role(&self, link: &Link, hello: &Hello) -> Result<(), End> {
        let said = match hello.party {
            Some(party) => Role::party(usize::from(party)),
            None => Role::Client("anonymous".to_owned()),
        };
        let secure = self.is_secure();
        let proved = if secure { link.peer.get() } else { link.expected.as_ref() };
        let fits = match (&said, proved) {
            (Role::Client(_), Some(Role::Client(_))) => true,
            (said, Some(proved)) => said == proved,
            (_, None) => !secure,
        };
        if !fits {
            let proved = proved.map(ToString::to_string).unwrap_or_default();
            return Err(End::Violation(format!(
                "the hello of {said} with a certificate of {proved}"
            )));
        }
        let _ = link.peer.set(said);
        Ok(())
    }

    /// The hello of a link that belongs to no session.
    pub(crate) fn plain_hello(&self) -> Hello {
        let party = self.me.map(|me| me.0 as u16);
        Hello { version: VERSION, party, job: Public::default(), fresh: [0; 32] }
    }

    /// Lets messages pass on a link whose peer has introduced itself.
    pub(crate) fn open(&self, link: &Arc<Link>, longest: u64) {
        let mut wire = link.wire();
        if wire.phase == Phase::Judging {
            wire.open(longest);
            link.heard.store(self.now(), Ordering::Relaxed);
            self.serve(link, &mut wire);
            drop(wire);
            self.hand_over();
        }
    }

    /// Gives a link up: what is queued still goes out, within the limits.
    pub(crate) fn let_go(&self, link: &Arc<Link>) {
        link.set_end(End::Dropped);
        let mut wire = link.wire();
        if wire.stream.is_none() {
            return;
        }
        if wire.phase == Phase::Securing {
            return self.finish(link, &mut wire, End::Dropped);
        }
        wire.phase = Phase::Draining;
        link.ended.store(self.now(), Ordering::Relaxed);
        self.serve(link, &mut wire);
        drop(wire);
        self.hand_over();
    }

    /// Ends a link: nothing passes any more.
    pub(crate) fn finish(&self, link: &Arc<Link>, wire: &mut Wire, end: End) {
        let accepted = link.expected.is_none();
        let unopened = matches!(wire.phase, Phase::Securing | Phase::Greeting);
        let reason = end.reason();
        if link.set_end(end) && accepted && unopened {
            self.note_refusal(link.address, reason);
        }
        if let Some(mut stream) = wire.give_up() {
            let _ = self.registry.deregister(stream.source());
            stream.finish();
        }
        self.set_unfinished(link, false);
        // Otherwise a party that closes after its peer would wait forever until its farewell has
        // left.
        link.discard();
        {
            let mut links = lock(&self.links);
            links.all.remove(&link.token);
            links.unproved.remove(&link.token);
        }
        self.wake_user(link, Change::ANY);
    }

    /// A peer has proved its role, or claimed one where that is enough.
    fn proved(&self, link: &Link) {
        lock(&self.links).unproved.remove(&link.token);
    }

    /// Adds a connection to those that are served.
    pub(crate) fn add(
        &self,
        stream: mio::net::TcpStream,
        address: SocketAddr,
        expected: Option<Role>,
    ) -> Result<Arc<Link>> {
        let tls = match (self.tls(), &expected) {
            (Some(tls), Some(role)) => Some(tls.connect(role)?),
            (Some(tls), None) => Some(tls.accept()?),
            (None, _) => None,
        };
        let failed = |error: io::Error| cannot("opening a connection", &error);
        stream.set_nodelay(true).map_err(failed)?;
        if stream.local_addr().is_ok_and(|mine| mine.ip() == address.ip()) {
            set_socket_send_buffer_size(&stream, SAME_MACHINE).map_err(|e| failed(e.into()))?;
        }
        let mut stream = Stream::new(stream, tls);
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(stream.source(), Token(token), both).map_err(failed)?;
        let pool = self.pool.clone();
        let link = Link::new(token, address, stream, expected, pool, &self.limits, self.now());
        let link = Arc::new(link);
        {
            let mut links = lock(&self.links);
            links.all.insert(token, link.clone());
            if link.expected.is_none() {
                links.unproved.insert(token, link.clone());
            }
        }
        // An event may have come before the link was known.
        self.schedule(&link);
        Ok(link)
    }

    fn accept(&self) {
        let listener = lock(&self.listener);
        let Some(listener) = &*listener else { return };
        loop {
            match listener.accept() {
                Ok((stream, address)) => {
                    if let Err(error) = self.add(stream, address, None) {
                        self.note_refusal(address, error.to_string());
                    }
                    self.drop_oldest_unproved();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of file handles, most likely: tried again at the next connection or tick.
                    if self.refusals.admits(&IpAddr::from([0; 4]), &error.to_string()) {
                        tracing::warn!(%error, "accepting a connection failed");
                    }
                    return;
                }
            }
        }
    }

    /// Stops accepting connections.
    pub(crate) fn stop_listening(&self) {
        *lock(&self.listener) = None;
    }

    fn note_refusal(&self, address: SocketAddr, cause: String) {
        *lock(&self.refused) = Some((Instant::now(), format!("{}: {cause}", address.ip())));
        if self.refusals.admits(&address.ip(), &cause) {
            tracing::warn!(%address, cause, "connection refused");
        }
    }

    /// Says how many like lines were left out of the log.
    fn log_left_out(&self) {
        for LeftOut { group, kind, lines } in self.refusals.left_out() {
            match (group, kind) {
                (Some(address), Some(cause)) => {
                    tracing::warn!(%address, cause, lines, "connections refused like the one before");
                }
                (Some(address), None) => {
                    tracing::warn!(%address, lines, "connections refused for other causes");
                }
                (None, _) => tracing::warn!(lines, "connections refused of other addresses"),
            }
        }
    }

    /// The connection refused last and why, if that was not longer ago than `period`.
    pub(crate) fn refused_within(&self, period: Duration) -> Option<String> {
        let refused = lock(&self.refused).clone();
        refused.filter(|(when, _)| when.elapsed() <= period).map(|(_, cause)| cause)
    }

    fn drop_oldest_unproved(&self) {
        let oldest: Vec<_> = {
            let links = lock(&self.links);
            let excess = links.unproved.len().saturating_sub(self.limits.pending);
            links.unproved.values().take(excess).cloned().collect()
        };
        for link in oldest {
            let reason = "too many connections have not proved who they are".to_owned();
            self.finish(&link, &mut link.wire(), End::Violation(reason));
        }
    }

    /// Looks after all links: heartbeats, silence, overdue handshakes. Does so once in a while only.
    fn tick(&self) {
        let now = self.now();
        let due = self.next_tick.load(Ordering::Relaxed);
        let next = now + TICK.as_millis() as u64;
        let set = Ordering::Relaxed;
        if now < due || self.next_tick.compare_exchange(due, next, set, set).is_err() {
            return;
        }
        // If no thread could look for long, this process was stopped or starved: its peers were not.
        let overslept = if due == 0 { 0 } else { now - due };
        let overslept = if overslept > 1000 { overslept } else { 0 };
        for link in self.all_links() {
            link.heard.fetch_add(overslept, Ordering::Relaxed);
            self.look_after(&link, now);
        }
        self.log_left_out();
        self.accept();
    }

    fn look_after(&self, link: &Arc<Link>, now: u64) {
        let age = |since: u64| Duration::from_millis(now.saturating_sub(since));
        // Somebody drives it at the moment: it is not silent.
        let Some(mut wire) = link.try_wire() else { return };
        let silent = age(link.heard.load(Ordering::Relaxed));
        match wire.phase {
            // A dialled peer answers when it comes to its own start: that limit is the caller's.
            Phase::Greeting if link.expected.is_some() => {}
            Phase::Securing | Phase::Greeting if age(link.born) > self.limits.handshake => {
                let cause = format!("did not introduce itself within {:?}", self.limits.handshake);
                self.finish(link, &mut wire, End::Failed(io::ErrorKind::TimedOut, cause));
            }
            Phase::Securing => {}
            Phase::Draining if age(link.ended.load(Ordering::Relaxed)) > self.limits.linger => {
                self.finish(link, &mut wire, End::Dropped);
            }
            Phase::Draining | Phase::Judging => {}
            _ if silent > self.limits.stall && !link.is_paused() => {
                self.finish(link, &mut wire, End::Stalled(silent));
            }
            _ => {
                let quiet = age(link.spoke.load(Ordering::Relaxed)) >= self.limits.heartbeat;
                if quiet && link.is_flushed() {
                    link.post(Kind::Ping, Bytes::new());
                    link.spoke.store(now, Ordering::Relaxed);
                    self.serve(link, &mut wire);
                }
            }
        }
    }
}
