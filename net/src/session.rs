//! Starting a session over TCP.

mod job;

use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use crate::{
    Error, PairKey, Party, Result, Role, Security, Session,
    endpoint::Resolver,
    frame::Kind,
    hello::{Difference, Hello, SESSION_ID, VERSION, agreed},
    hub::{Arrival, Engine, Hub, cannot},
    link::{End, Link},
    parker::{Change, Parker},
    tcp::Tcp,
};

pub use job::{Canceller, Job};

/// First pause before a party is tried again, and the longest; each is twice the one before.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The longest time for one attempt to reach a party.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The time for which the start continues after a difference was found, so that every party learns
/// of it from the odd one itself.
const GRACE: Duration = Duration::from_secs(3);

/// The addresses of a session's parties.
pub(crate) struct Peers {
    /// `host:port` of each, in their order.
    names: Vec<String>,
    security: Security,
    resolver: Resolver,
}

impl Peers {
    /// Checks that names differ, and that those given as numbers are allowed.
    pub(crate) fn new(
        names: Vec<String>,
        security: &Security,
        resolver: &Resolver,
    ) -> Result<Self> {
        let bad = |reason: &str| Error::Config {
            what: "addresses of the parties".to_owned(),
            reason: reason.to_owned(),
        };
        if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
            return Err(bad("two parties have the same address"));
        }
        for name in &names {
            if let Ok(address) = name.parse() {
                security.check(address)?;
            } else if !name.contains(':') {
                return Err(bad("write host:port"));
            }
        }
        Ok(Self { names, security: security.clone(), resolver: resolver.clone() })
    }

    /// Connects to a party. Its name is resolved again each time, since addresses change, and all its
    /// addresses are tried.
    fn connect(&self, peer: Party) -> io::Result<(TcpStream, SocketAddr)> {
        let name = &self.names[peer.0];
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let mut last = io::Error::other("the name has no address");
        for address in (self.resolver)(name).map_err(failed)? {
            let allowed = self.security.check(address).map_err(io::Error::other);
            match allowed.and_then(|()| TcpStream::connect_timeout(&address, ATTEMPT)) {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(last)
    }
}

/// Starts a session; see [`crate::Endpoint::session`].
pub(crate) fn start(
    engine: &Arc<Engine>,
    peers: &Peers,
    concurrent: bool,
    job: &Job,
) -> Result<Session> {
    let me = job.check(engine.hub.me, peers.names.len())?;
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| Error::Config {
        what: "the system's randomness".to_owned(),
        reason: error.to_string(),
    })?;
    let hello =
        Hello { version: VERSION, party: Some(me.0 as u16), job: job.public.clone(), fresh };
    let parties = usize::from(job.public.parties);
    let parker = Arc::new(Parker::leading());
    let _taker = engine.hub.parties.attend(&parker);
    let mut starter = Starter {
        hub: &engine.hub,
        peers,
        parker,
        me,
        hello,
        concurrent,
        canceller: &job.canceller,
        joins: (0..parties).filter(|&peer| peer != me.0).map(Join::new).collect(),
        deadline: Instant::now() + engine.hub.limits.start,
        difference: None,
    };
    match starter.run().and_then(|()| starter.prg()) {
        Ok(prg) => starter.session(engine, prg),
        Err(error) => {
            starter.give_up(&error);
            Err(error)
        }
    }
}

/// A session that is being started.
struct Starter<'a> {
    hub: &'a Hub,
    peers: &'a Peers,
    /// The parker in which its thread sleeps; known to the links from their beginning.
    parker: Arc<Parker>,
    me: Party,
    hello: Hello,
    concurrent: bool,
    canceller: &'a Canceller,
    joins: Vec<Join>,
    deadline: Instant,
    /// The first difference found, and the time until which others still learn of it.
    difference: Option<(Difference, Instant)>,
}

/// The way to one peer.
struct Join {
    peer: Party,
    link: Option<Arc<Link>>,
    /// The peer's hello, once it agrees with ours.
    joined: Option<Hello>,
    judged: bool,
    pause: Duration,
    next: Instant,
    last: String,
}

impl Join {
    fn new(peer: usize) -> Self {
        Self {
            peer: Party(peer),
            link: None,
            joined: None,
            judged: false,
            pause: BACK_OFF.0,
            next: Instant::now(),
            last: "it has not connected".to_owned(),
        }
    }

    fn retry_later(&mut self, cause: String) {
        (self.link, self.joined) = (None, None);
        self.last = cause;
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(BACK_OFF.1);
    }
}

impl Starter<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            self.canceller.check(self.me)?;
            for at in 0..self.joins.len() {
                self.advance(at)?;
            }
            let all_judged = self.joins.iter().all(|join| join.judged);
            let now = Instant::now();
            match &self.difference {
                Some((difference, until)) if all_judged || now >= *until => {
                    return Err(difference.error(self.me.0 as u16, &self.hello));
                }
                None if self.joins.iter().all(|join| join.joined.is_some()) => return Ok(()),
                _ if now >= self.deadline => return Err(self.overdue()),
                _ => self.nap(now),
            }
        }
    }

    /// Waits for news of a link, for a peer's arrival, or until a peer is to be tried again.
    fn nap(&self, now: Instant) {
        let dials = self.joins.iter().filter(|join| join.link.is_none() && join.peer < self.me);
        let next = dials.map(|join| join.next).min();
        let until = next.unwrap_or(now + BACK_OFF.1).clamp(now, now + BACK_OFF.1);
        let news = || self.joins.iter().any(|join| self.has_news(join)).then_some(());
        self.hub.wait(&self.parker, Change::ARRIVED, Some(until), news);
    }

    /// True if [`Self::advance`] would find something to do before the next attempt.
    fn has_news(&self, join: &Join) -> bool {
        let Some(link) = &join.link else {
            let wanted = !(join.judged && self.difference.is_some());
            let fits = |arrival: &Arrival| self.fits(join.peer, arrival).then_some(());
            return wanted && self.hub.parties.find(fits).is_some();
        };
        let over = link.end().is_some_and(|end| join.joined.is_none() || end.is_failure());
        over || link.has_hello()
    }

    /// True if an arrival is the peer's for this session. An arrival for another session fits only
    /// if this endpoint runs one session at a time.
    fn fits(&self, peer: Party, arrival: &Arrival) -> bool {
        let hello = &arrival.hello;
        let same = hello.version != VERSION || hello.job.session == self.hello.job.session;
        arrival.link.peer.get() == Some(&Role::Party(peer)) && (same || !self.concurrent)
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        let join = &mut self.joins[at];
        if let Some(link) = join.link.clone() {
            if let Some(theirs) = link.take_hello() {
                return self.judge(at, &link, theirs);
            }
            return match link.end() {
                // The peer has started, and may even be done: what it sent is still to be received.
                Some(end) if join.joined.is_some() && !end.is_failure() => Ok(()),
                Some(end) => self.lost(at, end),
                None => Ok(()),
            };
        }
        if join.judged && self.difference.is_some() {
            return Ok(());
        }
        if join.peer < self.me {
            if Instant::now() >= join.next
                && let Err(cause) = self.dial(at)?
            {
                self.joins[at].retry_later(cause.to_string());
            }
            return Ok(());
        }
        let peer = self.joins[at].peer;
        match self.hub.parties.take(|arrival| self.fits(peer, arrival)) {
            Some(Arrival { link, hello: theirs }) => {
                let _ = link.parker.set(self.parker.clone());
                link.post(Kind::Hello, self.hello.encode());
                self.joins[at].link = Some(link.clone());
                self.judge(at, &link, theirs)
            }
            None => Ok(()),
        }
    }

    fn dial(&mut self, at: usize) -> Result<io::Result<()>> {
        let join = &mut self.joins[at];
        let (stream, address) = match self.peers.connect(join.peer) {
            Ok(connected) => connected,
            Err(error) => return Ok(Err(error)),
        };
        stream.set_nonblocking(true).map_err(|error| cannot("opening a connection", &error))?;
        let stream = mio::net::TcpStream::from_std(stream);
        let link = self.hub.add(stream, address, Some(Role::Party(join.peer)))?;
        let _ = link.parker.set(self.parker.clone());
        link.post(Kind::Hello, self.hello.encode());
        self.hub.schedule(&link);
        join.link = Some(link);
        Ok(Ok(()))
    }

    fn judge(&mut self, at: usize, link: &Arc<Link>, theirs: Hello) -> Result<()> {
        let join = &mut self.joins[at];
        join.judged = true;
        let (me, peer) = (self.me.0 as u16, join.peer.0 as u16);
        match Difference::between(me, &self.hello, peer, &theirs) {
            Some(difference) => self.note(difference),
            None => {
                join.joined = Some(theirs);
                self.hub.open(link, self.hub.limits.message);
            }
        }
        // On a link that is not opened, this sends the peer the hello with the difference.
        self.hub.push(link);
        Ok(())
    }

    fn note(&mut self, difference: Difference) {
        let until = (Instant::now() + GRACE).min(self.deadline);
        self.difference.get_or_insert((difference, until));
    }

    /// A link ended before the session started.
    fn lost(&mut self, at: usize, end: End) -> Result<()> {
        let peer = self.joins[at].peer;
        match end {
            End::Mismatch(difference) => {
                self.joins[at].judged = true;
                self.note(difference);
                self.joins[at].retry_later("it was started for another job".to_owned());
                Ok(())
            }
            // Not the network but what the peer is: trying again would not help.
            End::Failed(io::ErrorKind::InvalidData, _)
            | End::Violation(_)
            | End::Cancelled(_)
            | End::Accused(..) => Err(end.error(peer, "start")),
            end => {
                self.joins[at].retry_later(end.reason());
                Ok(())
            }
        }
    }

    fn overdue(&self) -> Error {
        let Some(join) = self.joins.iter().find(|join| join.joined.is_none()) else {
            return Error::Misuse("a session that has started cannot be overdue".to_owned());
        };
        self.other_session(join).unwrap_or_else(|| {
            let mut cause = format!("not found within {:?}: {}", self.hub.limits.start, join.last);
            // A peer that cannot prove its role is known only by its address. It gives up at once, perhaps before
            // this party has started.
            if let Some(refused) = self.hub.refused_within(2 * self.hub.limits.start) {
                cause += &format!("; a connection from {refused}");
            }
            let cause = io::Error::new(io::ErrorKind::TimedOut, cause);
            Error::Link { peer: join.peer, step: "start".to_owned(), cause }
        })
    }

    /// The error if the peer did come, but for another session.
    fn other_session(&self, join: &Join) -> Option<Error> {
        let (me, peer) = (self.me.0 as u16, join.peer.0 as u16);
        let difference = self.hub.parties.find(|arrival| {
            let from_peer = arrival.link.peer.get() == Some(&Role::Party(join.peer));
            let between = || Difference::between(me, &self.hello, peer, &arrival.hello);
            from_peer.then(between).flatten()
        })?;
        (difference.field == SESSION_ID).then(|| difference.error(me, &self.hello))
    }

    /// Tells the peers why there will be no session.
    fn give_up(&mut self, error: &Error) {
        for join in &mut self.joins {
            let Some(link) = join.link.take() else { continue };
            match &self.difference {
                Some((difference, _)) => link.post(Kind::Mismatch, difference.encode()),
                None => link.post(Kind::Cancel, format!("did not start: {error}").into_bytes()),
            }
            self.hub.let_go(&link);
        }
    }

    /// All parties' hellos, in order, once all have joined.
    fn hellos(&self) -> Vec<&Hello> {
        let mut hellos: Vec<_> =
            self.joins.iter().filter_map(|join| join.joined.as_ref()).collect();
        hellos.insert(self.me.0, &self.hello);
        hellos
    }

    /// The generator that all agree on, if any was named.
    fn prg(&self) -> Result<Option<String>> {
        let hellos = self.hellos();
        if let Some(name) = agreed(hellos.iter().copied()) {
            return Ok((!name.is_empty()).then(|| name.to_owned()));
        }
        let lists = hellos.iter().enumerate();
        let lists: Vec<_> =
            lists.map(|(party, hello)| format!("party {party}: {}", hello.job.prgs)).collect();
        Err(Error::Misuse(format!("no PRG is named by all parties ({})", lists.join("; "))))
    }

    fn session(self, engine: &Arc<Engine>, prg: Option<String>) -> Result<Session> {
        let fresh: Vec<_> = self.hellos().iter().map(|hello| hello.fresh).collect();
        let parties = fresh.len();
        let id = session_id(&self.hello.job.session, &fresh);
        let mut links: Vec<Option<Arc<Link>>> = vec![None; parties];
        let mut pair_keys = vec![None; parties];
        for join in self.joins {
            let Some(link) = join.link else { continue };
            let (low, high) = (self.me.min(join.peer), self.me.max(join.peer));
            let secret = if engine.hub.is_secure() {
                tls_secret(link.secret.get(), join.peer)?
            } else {
                INSECURE_SECRET
            };
            pair_keys[join.peer.0] = Some(pair_key(secret, &id, [fresh[low.0], fresh[high.0]]));
            links[join.peer.0] = Some(link);
        }
        let transport =
            Tcp::new(engine.clone(), self.me, links, self.canceller.clone(), self.parker);
        Ok(Session { transport: Box::new(transport), pair_keys, id, prg })
    }
}

/// Equal on all parties, and never the same twice: every party has contributed fresh bytes.
fn session_id(name: &[u8; 16], fresh: &[[u8; 32]]) -> [u8; 16] {
    let mut hash = blake3::Hasher::new_derive_key("trefoil net 2026 session id");
    hash.update(name);
    for fresh in fresh {
        hash.update(fresh);
    }
    hash.finalize().as_bytes()[..16].try_into().expect("32 bytes hold 16")
}

/// The value that replaces a link's secret without TLS: any listener that saw the hellos then knows
/// the keys, as `Security::InsecurePlainTcp` states.
const INSECURE_SECRET: &[u8; 32] = &[0; 32];

/// The secret of a link's TLS connection.
///
/// # Errors
/// [`Error::Link`] if it has none: no key is made without one.
fn tls_secret(secret: Option<&Zeroizing<[u8; 32]>>, peer: Party) -> Result<&[u8; 32]> {
    match secret {
        Some(secret) => Ok(secret),
        None => {
            let cause = io::Error::other("its TLS connection has no secret to derive keys from");
            Err(Error::Link { peer, step: "start".to_owned(), cause })
        }
    }
}

/// A key from a link's secret and what both sides contributed.
fn pair_key(secret: &[u8; 32], id: &[u8; 16], fresh: [[u8; 32]; 2]) -> PairKey {
    let mut hash = blake3::Hasher::new_derive_key("trefoil net 2026 pair key");
    hash.update(secret).update(id).update(&fresh[0]).update(&fresh[1]);
    PairKey(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_a_tls_secret_makes_no_key() {
        let secret = Zeroizing::new([7; 32]);
        assert_eq!(tls_secret(Some(&secret), Party(1)).unwrap(), &[7; 32]);
        let error = tls_secret(None, Party(1)).unwrap_err();
        assert!(matches!(error, Error::Link { peer: Party(1), .. }), "{error}");
    }
}
