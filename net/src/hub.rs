//! The state of an endpoint: its links, and how each is driven.

mod accept;
mod lead;
mod lobby;
mod meet;
mod rest;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use mio::{Events, Interest, Poll, Registry, Token, Waker, net::TcpListener};

use crate::{
    Error, Limits, LogLimit, Party, Result,
    buffer::Pool,
    endpoint::Settings,
    frame::Kind,
    link::{End, Link, Phase, Progress, Wire},
    parker::{Change, Parker},
    tls::Tls,
};
pub(crate) use lobby::{Arrival, Lobby};
use rest::Rest;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST_LINK: usize = 2;

/// The interval at which links are checked for silence and heartbeats.
const TICK: Duration = Duration::from_millis(100);

/// The time in which refused connections of one address and cause are logged once.
const LOG_PAUSE: Duration = Duration::from_secs(60);

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
    /// The endpoint's thread, and its sleep while another thread leads.
    rest: Rest,
    stop: AtomicBool,
    next_tick: AtomicU64,
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
        hub.rest.set_thread(thread.thread().clone());
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
            rest: Rest::default(),
            stop: AtomicBool::new(false),
            next_tick: AtomicU64::new(0),
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
