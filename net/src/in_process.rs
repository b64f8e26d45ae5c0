//! All parties as threads of one process; messages change hands without being copied.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};

use crate::{
    Error, Message, PairKey, Party, Result, Session, Transport,
    life::{LastWords, Life},
    step::StepTag,
};

/// Bytes a party may have queued for one peer before its sends wait.
const BOUND: u64 = 1 << 30;

/// The weight of a message in a queue in addition to its body, so that empty messages count too.
const PACKET: u64 = 64;

/// The interval at which a waiting party checks that another party still works.
const TICK: Duration = Duration::from_millis(500);

/// The time after which a wait is reported in the log.
const REPORT: Duration = Duration::from_secs(10);

/// The value in place of a peer's number for a party that does not wait.
const BUSY: usize = usize::MAX;

/// Transports of `parties` parties of one process, in order.
///
/// A receive that can never succeed, because every party waits for another, fails within seconds
/// with [`Error::Stalled`]. A send waits only while its peer has more than 1 GiB unread and does not
/// itself wait to send.
///
/// # Panics
/// Unless `2 <= parties <= 256`.
#[must_use]
pub fn transports(parties: usize) -> Vec<InProcess> {
    assert!((2..=256).contains(&parties), "a session has 2 to 256 parties, not {parties}");
    let world = Arc::new(World::new(parties));
    let mut links: Vec<Vec<Option<Link>>> = (0..parties).map(|_| Vec::new()).collect();
    let channels: Vec<Vec<_>> =
        (0..parties).map(|_| (0..parties).map(|_| unbounded()).collect()).collect();
    for (me, links) in links.iter_mut().enumerate() {
        for peer in 0..parties {
            let link = || Link {
                outgoing: channels[me][peer].0.clone(),
                incoming: channels[peer][me].1.clone(),
                known_taken: 0,
            };
            links.push((me != peer).then(link));
        }
    }
    let party = |(me, links)| InProcess {
        me: Party(me),
        links,
        world: world.clone(),
        life: Life::new(),
        ended: false,
    };
    links.into_iter().enumerate().map(party).collect()
}

/// Sessions of `parties` parties of one process whose pair keys and id follow from a seed: for tests
/// and measurements, which must be repeatable.
///
/// # Panics
/// Unless `2 <= parties <= 256`.
#[must_use]
pub fn sessions_from_seed(parties: usize, seed: u64) -> Vec<Session> {
    let sessions = transports(parties).into_iter().map(|transport| {
        let me = transport.me.0;
        let keys = (0..parties).map(|peer| (peer != me).then(|| seeded_key(seed, me, peer)));
        Session {
            pair_keys: keys.collect(),
            id: seeded_id(seed),
            transport: Box::new(transport),
            prg: None,
        }
    });
    sessions.collect()
}

fn seeded_key(seed: u64, one: usize, other: usize) -> PairKey {
    let mut hash = blake3::Hasher::new_derive_key("trefoil net 2026 in-process pair key from seed");
    for part in [seed, one.min(other) as u64, one.max(other) as u64] {
        hash.update(&part.to_le_bytes());
    }
    PairKey(hash.finalize().into())
}

fn seeded_id(seed: u64) -> [u8; 16] {
    let hash = blake3::derive_key("trefoil net 2026 in-process session id", &seed.to_le_bytes());
    hash[..16].try_into().expect("32 bytes hold 16")
}

/// A party of a session within one process. See [`transports`].
pub struct InProcess {
    me: Party,
    links: Vec<Option<Link>>,
    world: Arc<World>,
    life: Life,
    ended: bool,
}

struct Link {
    outgoing: Sender<Packet>,
    incoming: Receiver<Packet>,
    /// The weight that the peer had received when this party last looked. Looking costs a transfer
    /// between cores, so it is done only when the bound could be reached.
    known_taken: u64,
}

enum Packet {
    Message(Message, StepTag),
    Close,
    End(Arc<LastWords>),
}

impl Packet {
    fn weight(&self) -> u64 {
        match self {
            Self::Message(message, _) => PACKET + message.body.len() as u64,
            Self::Close | Self::End(_) => PACKET,
        }
    }
}

/// A counter alone on its cache lines: one thread writes it, others seldom look.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    /// Only the counter's one writer may call this.
    fn add(&self, value: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + value, Ordering::Release);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The state that all parties see of each other.
struct World {
    /// Weight sent by `from` to `to`, at `from * parties + to`.
    sent: Vec<Counter>,
    /// Weight received by `to` from `from`, at `from * parties + to`.
    taken: Vec<Counter>,
    /// The peer for which each party waits in a receive, or [`BUSY`].
    waits_for: Vec<AtomicUsize>,
    /// The parties that wait in a send.
    sending: Vec<AtomicBool>,
}

impl World {
    fn new(parties: usize) -> Self {
        let counters = || (0..parties * parties).map(|_| Counter::default()).collect();
        Self {
            sent: counters(),
            taken: counters(),
            waits_for: (0..parties).map(|_| AtomicUsize::new(BUSY)).collect(),
            sending: (0..parties).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn queued(&self, from: usize, to: usize) -> u64 {
        let at = from * self.waits_for.len() + to;
        // Read in this order, so that the difference is never negative.
        let taken = self.taken[at].read();
        self.sent[at].read() - taken
    }

    /// The weight that was ever sent, if every party waits for a message that has not been sent.
    fn stuck(&self) -> Option<u64> {
        for (me, waits_for) in self.waits_for.iter().enumerate() {
            let from = waits_for.load(Ordering::Acquire);
            if from == BUSY || self.queued(from, me) > 0 {
                return None;
            }
        }
        Some(self.sent.iter().map(Counter::read).sum())
    }
}

impl InProcess {
    fn check(&self, peer: Party) -> Result<()> {
        self.life.check()?;
        match self.links.get(peer.0) {
            Some(Some(_)) => Ok(()),
            _ => Err(Error::no_such_peer(self.me, peer, self.links.len())),
        }
    }

    fn link(&mut self, peer: Party) -> &mut Link {
        self.links[peer.0].as_mut().expect("checked to be a peer")
    }

    fn post(&self, to: Party, packet: Packet) -> bool {
        let at = self.me.0 * self.links.len() + to.0;
        self.world.sent[at].add(packet.weight());
        let link = self.links[to.0].as_ref().expect("checked to be a peer");
        link.outgoing.send(packet).is_ok()
    }

    /// Waits while the peer has too much unread, unless the peer waits to send too: then both would
    /// deadlock.
    fn wait_for_room(&mut self, to: Party) {
        let me = self.me.0;
        let at = me * self.links.len() + to.0;
        let sent = self.world.sent[at].read();
        if sent - self.link(to).known_taken <= BOUND {
            return;
        }
        self.link(to).known_taken = self.world.taken[at].read();
        let world = &self.world;
        if world.queued(me, to.0) <= BOUND {
            return;
        }
        world.sending[me].store(true, Ordering::Release);
        while world.queued(me, to.0) > BOUND && !world.sending[to.0].load(Ordering::Acquire) {
            thread::park_timeout(Duration::from_micros(200));
        }
        world.sending[me].store(false, Ordering::Release);
    }

    fn next_packet(&mut self, from: Party) -> Result<Packet> {
        let packet = match self.link(from).incoming.try_recv() {
            Ok(packet) => packet,
            Err(TryRecvError::Empty) => self.wait_for_packet(from)?,
            Err(TryRecvError::Disconnected) => return Err(self.gone(from)),
        };
        let at = from.0 * self.links.len() + self.me.0;
        self.world.taken[at].add(packet.weight());
        Ok(packet)
    }

    fn wait_for_packet(&mut self, from: Party) -> Result<Packet> {
        let me = self.me.0;
        self.world.waits_for[me].store(from.0, Ordering::Release);
        let packet = self.wait_and_watch(from);
        self.world.waits_for[me].store(BUSY, Ordering::Release);
        packet
    }

    fn wait_and_watch(&mut self, from: Party) -> Result<Packet> {
        let began = Instant::now();
        let mut stuck_before = None;
        let mut reported = 0;
        loop {
            match self.link(from).incoming.recv_timeout(TICK) {
                Ok(packet) => return Ok(packet),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(from)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let waited = began.elapsed();
            let stuck = self.world.stuck();
            if stuck.is_some() && stuck == stuck_before {
                let step = self.life.step().to_owned();
                return Err(Error::Stalled { peer: from, step, waited });
            }
            stuck_before = stuck;
            if waited >= REPORT * (reported + 1) {
                reported += 1;
                let (me, step) = (self.me.0, self.life.step());
                tracing::warn!(me, peer = from.0, step, ?waited, "still waiting for a message");
            }
        }
    }

    /// The peer's transport is gone without a word; it always leaves one unless its thread was lost.
    fn gone(&self, peer: Party) -> Error {
        self.life.link_error(peer, std::io::ErrorKind::BrokenPipe.into())
    }

    fn receive_message(&mut self, from: Party) -> Result<Message> {
        match self.next_packet(from)? {
            Packet::Message(message, tag) => {
                self.life.check_tag(self.me, from, tag)?;
                Ok(message)
            }
            Packet::Close => Err(self.life.closed_early(from)),
            Packet::End(words) => Err((*words).clone().error(from)),
        }
    }

    fn receive_close(&mut self, from: Party) -> Result<()> {
        match self.next_packet(from)? {
            Packet::Close => Ok(()),
            Packet::Message(..) => Err(self.life.unread(from)),
            Packet::End(words) => Err((*words).clone().error(from)),
        }
    }

    fn peers(&self) -> impl Iterator<Item = Party> + use<> {
        let me = self.me.0;
        (0..self.links.len()).filter(move |&peer| peer != me).map(Party)
    }

    fn close_all(&mut self) -> Result<()> {
        self.life.check()?;
        self.ended = true;
        for peer in self.peers() {
            self.post(peer, Packet::Close);
        }
        for peer in self.peers() {
            let outcome = self.receive_close(peer);
            self.life.record(outcome)?;
        }
        Ok(())
    }
}

impl Transport for InProcess {
    fn me(&self) -> Party {
        self.me
    }

    fn parties(&self) -> usize {
        self.links.len()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        self.check(to)?;
        self.wait_for_room(to);
        if !self.post(to, Packet::Message(message, self.life.tag())) {
            // The peer's last word, if it left one, states why it has gone.
            let mut outcome = Err(self.gone(to));
            while let Ok(packet) = self.link(to).incoming.try_recv() {
                if let Packet::End(words) = packet {
                    outcome = Err((*words).clone().error(to));
                }
            }
            return self.life.record(outcome);
        }
        Ok(())
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        self.check(from)?;
        let outcome = self.receive_message(from);
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
        self.close_all()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let words = Arc::new(self.life.last_words());
        for peer in self.peers() {
            if !self.ended {
                self.post(peer, Packet::End(words.clone()));
            }
        }
        // It sends nothing more, so waiting for it is in vain; a party that waits for nothing must
        // not keep others from finding out that they are stuck.
        let anyone = self.peers().next().expect("there are two parties at least");
        self.world.waits_for[self.me.0].store(anyone.0, Ordering::Release);
    }
}
