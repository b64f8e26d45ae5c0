//! The transport of a session over TCP.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bytes::Bytes;

use crate::{
    Canceller, Error, Message, Party, Result, Transport,
    frame::Kind,
    hub::Engine,
    life::{LastWords, Life},
    link::{Arrived, End, Link},
    parker::{Change, Parker},
    patience::Patience,
};

/// A party of a session over TCP.
pub(crate) struct Tcp {
    engine: Arc<Engine>,
    me: Party,
    links: Vec<Option<Arc<Link>>>,
    life: Life,
    canceller: Canceller,
    /// The parker in which its user sleeps; known to all its links.
    parker: Arc<Parker>,
    patience: Cell<Patience>,
    closed: bool,
}

impl Tcp {
    pub(crate) fn new(
        engine: Arc<Engine>,
        me: Party,
        links: Vec<Option<Arc<Link>>>,
        canceller: Canceller,
        parker: Arc<Parker>,
    ) -> Self {
        let (life, patience) = (Life::new(), Cell::default());
        Self { engine, me, links, life, canceller, parker, patience, closed: false }
    }

    fn link(&self, peer: Party) -> Result<Arc<Link>> {
        self.life.check()?;
        match self.links.get(peer.0) {
            Some(Some(link)) => Ok(link.clone()),
            _ => Err(Error::no_such_peer(self.me, peer, self.links.len())),
        }
    }

    fn peers(&self) -> impl Iterator<Item = (Party, &Arc<Link>)> {
        self.links.iter().enumerate().filter_map(|(at, link)| Some((Party(at), link.as_ref()?)))
    }

    /// Waits for an answer of `ready`, as long as the session lives. Reports waits that are long.
    fn wait<T>(
        &self,
        on: Party,
        what: &str,
        change: Change,
        mut ready: impl FnMut() -> Option<Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut report = self.engine.hub.limits.report;
        let answer = self.engine.hub.wait(&self.parker, change, None, || {
            if let Some(answer) = ready() {
                return Some(answer);
            }
            if let Err(cancelled) = self.canceller.check(self.me) {
                return Some(Err(cancelled));
            }
            if let Some(error) = self.failure() {
                return Some(Err(error));
            }
            let waited = began.elapsed();
            if waited >= report {
                report = waited * 2;
                let (me, step) = (self.me.0, self.life.step());
                tracing::warn!(me, peer = on.0, step, ?waited, "still waiting {what}");
            }
            None
        });
        answer.unwrap_or_else(|| Err(Error::Dead("the wait had no end".to_owned())))
    }

    /// The first failure of any link: no peer will go on after it.
    fn failure(&self) -> Option<Error> {
        self.peers().find_map(|(peer, link)| {
            let end = link.end()?;
            end.is_failure().then(|| end.error(peer, self.life.step()))
        })
    }

    fn wait_for_room(&self, to: Party, link: &Link) -> Result<()> {
        if link.has_room() {
            return Ok(());
        }
        let relax = |relaxed| {
            self.peers().for_each(|(_, link)| link.relaxed.store(relaxed, Ordering::Release));
        };
        relax(true);
        self.peers().for_each(|(_, link)| self.engine.hub.schedule(link));
        let room =
            self.wait(to, "to send to the peer", Change::ANY, || link.has_room().then_some(Ok(())));
        relax(false);
        room
    }

    fn send_message(&self, to: Party, link: &Arc<Link>, message: Message) -> Result<()> {
        self.canceller.check(self.me)?;
        if let Some(end) = link.end() {
            return Err(end.error(to, self.life.step()));
        }
        self.wait_for_room(to, link)?;
        link.post_message(message, self.life.tag());
        self.engine.hub.push(link);
        Ok(())
    }

    fn receive_message(&self, from: Party, link: &Arc<Link>) -> Result<Arrived> {
        let next = || {
            let (next, resume) = link.pop();
            if resume {
                self.engine.hub.schedule(link);
            }
            next.map(|next| next.map_err(|end| end.error(from, self.life.step())))
        };
        let hub = &self.engine.hub;
        let mut patience = self.patience.get();
        let mut vigil = patience.begin();
        // An answer under way is often here before this thread could fall asleep and wake up.
        loop {
            self.canceller.check(self.me)?;
            if let Some(came) = next() {
                patience.end(&vigil);
                self.patience.set(patience);
                return came;
            }
            // A thread that receives one message after the other must not forget what is to be
            // sent.
            if self.peers().any(|(_, link)| !link.is_flushed()) {
                hub.glance();
            }
            if !hub.look(link) && !patience.stay(&mut vigil) {
                break;
            }
        }
        self.patience.set(patience);
        self.wait(from, "for a message", Change::ARRIVED, next)
    }

    fn close_links(&self) -> Result<()> {
        self.life.check()?;
        for (_, link) in self.peers() {
            link.post(Kind::Close, Bytes::new());
            self.engine.hub.push(link);
        }
        for (peer, link) in self.peers() {
            self.wait(peer, "for the peer to close", Change::ANY, || match link.end() {
                _ if link.has_unread() => Some(Err(self.life.unread(peer))),
                Some(End::Closed) => link.is_flushed().then_some(Ok(())),
                Some(end) => Some(Err(end.error(peer, self.life.step()))),
                None => None,
            })?;
        }
        Ok(())
    }
}

impl Transport for Tcp {
    fn me(&self) -> Party {
        self.me
    }

    fn parties(&self) -> usize {
        self.links.len()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        let link = self.link(to)?;
        let longest = self.engine.hub.limits.message;
        if message.body.len() as u64 > longest {
            let len = message.body.len();
            return Err(Error::Misuse(format!("a message of {len} bytes, more than {longest}")));
        }
        let outcome = self.send_message(to, &link, message);
        self.life.record(outcome)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        let link = self.link(from)?;
        let outcome = self.receive_message(from, &link).and_then(|Arrived { message, step }| {
            self.life.check_tag(self.me, from, step)?;
            Ok(message)
        });
        self.life.record(outcome)
    }

    fn step(&mut self, name: &str) {
        self.life.set_step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        self.life.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.life.fail(reason);
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        let outcome = self.close_links();
        self.closed = outcome.is_ok();
        self.life.record(outcome)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        let (kind, words) = match self.life.last_words() {
            LastWords::Left(words) => (Kind::Leave, words.into_bytes()),
            LastWords::Failed(words) => (Kind::Cancel, words.into_bytes()),
            LastWords::Accused(peer, words) => {
                (Kind::Accuse, [&[peer.0 as u8], words.as_bytes()].concat())
            }
        };
        for (_, link) in self.peers() {
            if !self.closed {
                link.post(kind, words.clone());
            }
            self.engine.hub.let_go(link);
        }
    }
}
