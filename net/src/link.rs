//! One connection: what is to be sent, what has come, and how it ended.

mod end;

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::{
    Limits, Message, Role,
    buffer::Pool,
    frame::{HEAD, Head, Kind},
    hello::Hello,
    limits::CHUNK,
    parker::{Change, Parker},
    parse::{Event, Fault, Parser},
    step::StepTag,
    stream::Stream,
    tls,
};

pub(crate) use end::End;

/// The weight of a message in a queue in addition to its body, so that empty messages count too.
const PACKET: usize = 64;

/// The number of bytes that one link reads before the other links have their turn. Bytes that no
/// receiver has asked for yet stay in the socket: memory that was received into a moment ago is
/// still in the cache.
const TURN: usize = 16 << 10;

/// Pieces handed to the socket at once.
const PIECES: usize = 64;

/// The phases of a link, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// TLS is being negotiated.
    Securing,
    /// The peer's role is known, its hello is awaited.
    Greeting,
    /// The peer's hello has come and is being judged; nothing is read meanwhile.
    Judging,
    /// Messages pass.
    Open,
    /// This side has ended it: what is queued goes out, what comes in is ignored.
    Draining,
}

/// One connection, shared by the threads that use it.
pub(crate) struct Link {
    pub(crate) token: usize,
    pub(crate) address: SocketAddr,
    /// The role a dialled peer must have; `None` where the peer dialled.
    pub(crate) expected: Option<Role>,
    pub(crate) peer: OnceLock<Role>,
    /// The certificate by which the peer has proved its role.
    pub(crate) certificate: OnceLock<CertificateDer<'static>>,
    /// The parker of the thread that uses the link, once a thread does.
    pub(crate) parker: OnceLock<Arc<Parker>>,
    /// A secret that this connection has in common with the peer's end of it alone; none without TLS.
    pub(crate) secret: OnceLock<Zeroizing<[u8; 32]>>,
    wire: Mutex<Wire>,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
    /// Set while this side waits to send: it must continue to read, or both sides may deadlock.
    pub(crate) relaxed: AtomicBool,
    /// There is more to do than was done in its last turn. Changes under the lock of `wire`.
    pub(crate) unfinished: AtomicBool,
    /// Bytes that may wait in each direction: see [`Limits::queue`].
    queue: AtomicUsize,
    /// Milliseconds of the endpoint's clock.
    pub(crate) born: u64,
    pub(crate) heard: AtomicU64,
    /// The time at which this side gave it up.
    pub(crate) ended: AtomicU64,
    pub(crate) spoke: AtomicU64,
}

/// The connection itself. The thread that holds its lock drives it.
pub(crate) struct Wire {
    pub(crate) stream: Option<Stream>,
    pub(crate) phase: Phase,
    parser: Parser,
    writing: VecDeque<Frame>,
    /// Bytes of the first frame in `writing` that are gone.
    gone: usize,
}

struct Frame {
    head: [u8; HEAD],
    body: Bytes,
}

impl Frame {
    fn len(&self) -> usize {
        HEAD + self.body.len()
    }
}

#[derive(Default)]
struct Outbox {
    frames: VecDeque<Frame>,
    sequence: u32,
    /// Weight of all frames that are not yet with the socket.
    bytes: usize,
    /// Nothing more may follow.
    finished: bool,
}

/// A message that has come, and the step it was sent in.
pub(crate) struct Arrived {
    pub(crate) message: Message,
    pub(crate) step: StepTag,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Arrived>,
    bytes: usize,
    hello: Option<Hello>,
    end: Option<End>,
    /// Reading has stopped because too much has not been received yet.
    paused: bool,
}

/// The results of driving a link.
#[derive(Default)]
pub(crate) struct Progress {
    /// Something has come that its receiver may wait for.
    pub(crate) arrived: bool,
    /// There is room to send that was not there before, or all has been sent.
    pub(crate) room: bool,
    /// There is more to do at once.
    pub(crate) more: bool,
    /// Bytes have come.
    pub(crate) came: bool,
}

impl Progress {
    /// The change that the user of the link may wait for.
    pub(crate) fn change(&self) -> Option<Change> {
        match (self.arrived, self.room) {
            (true, true) => Some(Change::ANY),
            (true, false) => Some(Change::ARRIVED),
            (false, true) => Some(Change::ROOM),
            (false, false) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics may leave a link that does not parse, which then ends.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new(
        token: usize,
        address: SocketAddr,
        stream: Stream,
        expected: Option<Role>,
        pool: Pool,
        limits: &Limits,
        now: u64,
    ) -> Self {
        let wire = Wire {
            stream: Some(stream),
            phase: Phase::Securing,
            parser: Parser::new(pool),
            writing: VecDeque::new(),
            gone: 0,
        };
        Self {
            token,
            address,
            expected,
            peer: OnceLock::new(),
            certificate: OnceLock::new(),
            parker: OnceLock::new(),
            secret: OnceLock::new(),
            wire: Mutex::new(wire),
            outbox: Mutex::default(),
            inbox: Mutex::default(),
            relaxed: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            queue: AtomicUsize::new(limits.queue),
            born: now,
            heard: AtomicU64::new(now),
            ended: AtomicU64::new(now),
            spoke: AtomicU64::new(now),
        }
    }

    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    pub(crate) fn try_wire(&self) -> Option<MutexGuard<'_, Wire>> {
        match self.wire.try_lock() {
            Ok(wire) => Some(wire),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Queues a frame without a part of a message.
    pub(crate) fn post(&self, kind: Kind, body: impl Into<Bytes>) {
        let body = body.into();
        let mut outbox = lock(&self.outbox);
        outbox.push(Head::control(kind, body.len()), body);
        outbox.finished |= !matches!(kind, Kind::Hello | Kind::Ping);
    }

    /// Queues a message in parts between which other frames can pass.
    pub(crate) fn post_message(&self, message: Message, step: StepTag) {
        let Message { body, depth } = message;
        let total = body.len() as u64;
        let head = |kind, len| Head { depth, total, step, ..Head::control(kind, len) };
        let mut outbox = lock(&self.outbox);
        let first = body.len().min(CHUNK);
        outbox.push(head(Kind::First, first), body.slice(..first));
        let mut at = first;
        while at < body.len() {
            let len = (body.len() - at).min(CHUNK);
            outbox.push(head(Kind::More, len), body.slice(at..at + len));
            at += len;
        }
    }

    /// Lets other bytes wait in each direction than those of [`Limits::queue`]. Called before the link is
    /// opened for messages.
    pub(crate) fn limit_queue(&self, bytes: usize) {
        self.queue.store(bytes, Ordering::Relaxed);
    }

    fn queue(&self) -> usize {
        self.queue.load(Ordering::Relaxed)
    }

    /// True if a further message may be queued.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.outbox).bytes <= self.queue()
    }

    /// Forgets what is queued and takes nothing more: the connection is gone.
    pub(crate) fn discard(&self) {
        let mut outbox = lock(&self.outbox);
        outbox.frames.clear();
        outbox.bytes = 0;
        outbox.finished = true;
    }

    /// True if nothing that was queued waits for the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        lock(&self.outbox).bytes == 0
    }

    /// The next message, or how the link ended if none is left. The flag is true if reading had
    /// stopped and must start again.
    pub(crate) fn pop(&self) -> (Option<Result<Arrived, End>>, bool) {
        let mut inbox = lock(&self.inbox);
        let Some(arrived) = inbox.messages.pop_front() else {
            return (inbox.end.clone().map(Err), false);
        };
        inbox.bytes -= PACKET + arrived.message.body.len();
        let resume = inbox.paused && inbox.bytes <= self.queue() / 2;
        inbox.paused &= !resume;
        (Some(Ok(arrived)), resume)
    }

    /// Bytes of messages that have come and were not received, and whether reading has stopped.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (usize, bool) {
        let inbox = lock(&self.inbox);
        (inbox.bytes, inbox.paused)
    }

    /// True if messages have come that were not received yet.
    pub(crate) fn has_unread(&self) -> bool {
        !lock(&self.inbox).messages.is_empty()
    }

    pub(crate) fn end(&self) -> Option<End> {
        lock(&self.inbox).end.clone()
    }

    pub(crate) fn take_hello(&self) -> Option<Hello> {
        lock(&self.inbox).hello.take()
    }

    pub(crate) fn has_hello(&self) -> bool {
        lock(&self.inbox).hello.is_some()
    }

    pub(crate) fn is_paused(&self) -> bool {
        lock(&self.inbox).paused
    }

    /// Records how the link ended, unless that is known already. True if it was not.
    pub(crate) fn set_end(&self, end: End) -> bool {
        let mut inbox = lock(&self.inbox);
        let first = inbox.end.is_none();
        if first {
            inbox.end = Some(end);
        }
        first
    }

    /// Checks whether reading must stop because too much waits to be received, and sets `paused`.
    fn pause(&self) -> bool {
        let relaxed = self.relaxed.load(Ordering::Acquire);
        let bound = if relaxed { self.queue().saturating_mul(64) } else { self.queue() };
        let mut inbox = lock(&self.inbox);
        inbox.paused = inbox.bytes > bound;
        inbox.paused
    }

    /// Sends what the socket takes.
    pub(crate) fn write(&self, wire: &mut Wire, now: u64) -> Result<Progress, End> {
        let Wire { stream: Some(stream), writing, gone, .. } = wire else {
            return Ok(Progress::default());
        };
        let mut progress = Progress::default();
        loop {
            if writing.len() < PIECES / 2 {
                let mut outbox = lock(&self.outbox);
                let some = outbox.frames.len().min(PIECES);
                writing.extend(outbox.frames.drain(..some));
            }
            if writing.is_empty() || !stream.can_write() {
                let flushed = stream.flush()?;
                return Ok(Progress { more: !flushed && stream.can_write(), ..progress });
            }
            match stream.write(&pieces(writing, *gone)) {
                Ok(taken) => {
                    self.spoke.store(now, Ordering::Relaxed);
                    progress.room |= self.advance(writing, gone, taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes away what the socket has taken. True if that made room to send, or nothing is left.
    fn advance(&self, writing: &mut VecDeque<Frame>, gone: &mut usize, taken: usize) -> bool {
        *gone += taken;
        let mut freed = 0;
        while let Some(frame) = writing.front()
            && *gone >= frame.len()
        {
            *gone -= frame.len();
            freed += frame.len();
            writing.pop_front();
        }
        if freed == 0 {
            return false;
        }
        let mut outbox = lock(&self.outbox);
        let was_full = outbox.bytes > self.queue();
        outbox.bytes -= freed;
        outbox.bytes == 0 || was_full && outbox.bytes <= self.queue()
    }

    /// Reads what the socket has. `judge` gets every frame that is not part of a message.
    pub(crate) fn read(
        &self,
        wire: &mut Wire,
        now: u64,
        mut judge: impl FnMut(&mut Phase, Kind, Bytes) -> Result<(), End>,
    ) -> Result<Progress, End> {
        let Wire { stream: Some(stream), parser, phase, .. } = wire else {
            return Ok(Progress::default());
        };
        let mut progress = Progress::default();
        let mut read = 0;
        while stream.can_read() {
            if read >= TURN {
                progress.more = true;
                break;
            }
            if *phase == Phase::Judging || *phase == Phase::Open && self.pause() {
                break;
            }
            let before = read;
            let event = parser.next(|buf| {
                let len = stream.read(buf)?;
                read += len;
                Ok(len)
            });
            if read > before {
                self.heard.store(now, Ordering::Relaxed);
                progress.came = true;
            }
            match event {
                Ok(Event::Message(message, step)) if *phase == Phase::Open => {
                    self.deliver(message, step);
                    progress.arrived = true;
                }
                Ok(Event::Message(..)) => {}
                Ok(Event::Control(kind, body)) => {
                    judge(phase, kind, body)?;
                    progress.arrived |= kind != Kind::Ping;
                }
                Err(Fault::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(Fault::Io(error)) => return Err(error.into()),
                Err(Fault::Violation(reason)) => return Err(End::Violation(reason)),
            }
        }
        Ok(progress)
    }

    fn deliver(&self, message: Message, step: StepTag) {
        let mut inbox = lock(&self.inbox);
        inbox.bytes += PACKET + message.body.len();
        inbox.messages.push_back(Arrived { message, step });
    }

    pub(crate) fn deliver_hello(&self, hello: Hello) {
        lock(&self.inbox).hello = Some(hello);
    }

    /// Takes the role that the peer has proved and a secret in common with it, once TLS is agreed.
    pub(crate) fn identify(&self, stream: &Stream) -> Result<(), End> {
        let Some(connection) = &stream.tls else { return Ok(()) };
        let (role, certificate) = tls::peer_role(connection).map_err(End::Violation)?;
        let secret = Zeroizing::new([0; 32]);
        let secret = connection
            .export_keying_material(secret, b"EXPORTER-trefoil-net-pair", None)
            .map_err(|error| End::Failed(io::ErrorKind::InvalidData, error.to_string()))?;
        if let Some(expected) = &self.expected
            && *expected != role
        {
            return Err(End::Violation(format!("a certificate of {role} for {expected}")));
        }
        let _ = self.peer.set(role);
        let _ = self.certificate.set(certificate);
        let _ = self.secret.set(secret);
        Ok(())
    }
}

impl Wire {
    /// Messages of up to `longest` bytes pass from now on.
    pub(crate) fn open(&mut self, longest: u64) {
        self.phase = Phase::Open;
        self.parser.allow_messages(longest);
    }

    /// Forgets what was queued and gives up the connection.
    pub(crate) fn give_up(&mut self) -> Option<Stream> {
        self.writing.clear();
        self.gone = 0;
        self.stream.take()
    }
}

impl Outbox {
    fn push(&mut self, mut head: Head, body: Bytes) {
        if self.finished {
            return;
        }
        head.sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let frame = Frame { head: head.encode(), body };
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }
}

/// The unsent rest of the frames, head and body apart.
fn pieces(writing: &VecDeque<Frame>, mut gone: usize) -> Vec<IoSlice<'_>> {
    let mut pieces = Vec::with_capacity(PIECES);
    for frame in writing {
        for part in [&frame.head[..], &frame.body[..]] {
            let skip = gone.min(part.len());
            gone -= skip;
            if skip < part.len() {
                pieces.push(IoSlice::new(&part[skip..]));
            }
        }
        if pieces.len() + 2 > PIECES {
            break;
        }
    }
    pieces
}
