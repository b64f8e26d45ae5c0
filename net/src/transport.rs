//! The seam between protocols and the network.

use std::fmt;

use bytes::Bytes;
use zeroize::ZeroizeOnDrop;

use crate::{Error, Result};

/// A party of a session, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub usize);

impl Party {
    /// The party `offset` places after this one in a ring of `parties`.
    #[must_use]
    pub fn after(self, offset: usize, parties: usize) -> Self {
        Self((self.0 + offset) % parties)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "party {}", self.0)
    }
}

/// A message from one party to another.
#[derive(Clone)]
pub struct Message {
    /// The bytes.
    pub body: Bytes,
    /// Causal depth: how many messages, each sent after the one before was received, led to this
    /// one. Set and read by the `Metered` wrapper, which counts rounds with it; others pass it on.
    pub depth: u32,
}

impl From<Bytes> for Message {
    fn from(body: Bytes) -> Self {
        Self { body, depth: 0 }
    }
}

/// Shows the length alone: messages carry shares.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes, depth {})", self.body.len(), self.depth)
    }
}

/// Ordered messages between the parties of one session.
///
/// Messages between two parties arrive whole and in the order of their sending. A party runs a
/// straight-line program, so the order of calls is the order of messages. Dropping a transport
/// cancels its session; [`Transport::close`] ends it in order.
pub trait Transport: Send {
    /// This party.
    fn me(&self) -> Party;

    /// Number of parties, this one included.
    fn parties(&self) -> usize;

    /// Queues a message and returns. Waits only while more than the link's bound is queued.
    ///
    /// # Errors
    /// See [`crate::Error`]. Sending to oneself or to an unknown party is a misuse.
    fn send(&mut self, to: Party, message: Message) -> Result<()>;

    /// Waits for the next message from a peer.
    ///
    /// # Errors
    /// See [`crate::Error`].
    fn receive(&mut self, from: Party) -> Result<Message>;

    /// True if a peer ran before this session, so that its messages are played from a tape: see
    /// [`crate::tape`]. Playing does not count as a message or a round of the session.
    fn on_tape(&self, _peer: Party) -> bool {
        false
    }

    /// Names the step that follows, for metering, stall reports and errors. Names are public
    /// constants such as `layer3/conv/truncate`, never values.
    fn step(&mut self, name: &str);

    /// Ends the session because of what a peer sent, found by the code that reads its messages. The
    /// other peers get the name of the peer and the reason, and every later call fails. Returns the
    /// error to pass on.
    fn accuse(&mut self, peer: Party, reason: &str) -> Error;

    /// Ends the session because this party cannot go on, through no fault of a peer. The peers get the reason, which
    /// must not name secrets, unless the session has failed already; every later call fails.
    fn fail(&mut self, reason: &str);

    /// Sends what is queued, waits until every peer has closed too, and ends the session.
    ///
    /// # Errors
    /// See [`crate::Error`].
    fn close(self: Box<Self>) -> Result<()>;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn me(&self) -> Party {
        (**self).me()
    }

    fn parties(&self) -> usize {
        (**self).parties()
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        (**self).send(to, message)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        (**self).receive(from)
    }

    fn on_tape(&self, peer: Party) -> bool {
        (**self).on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        (**self).step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        (**self).accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        (**self).fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        (*self).close()
    }
}

/// A key that only two parties hold in common. `Debug` shows nothing of it.
#[derive(Clone, ZeroizeOnDrop)]
pub struct PairKey(pub [u8; 32]);

impl fmt::Debug for PairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairKey(..)")
    }
}

/// A started session: its transport and the keys agreed with each peer.
pub struct Session {
    /// The links.
    pub transport: Box<dyn Transport>,
    /// Entry `p` is the key shared with party `p`; `None` at this party's own place.
    pub pair_keys: Vec<Option<PairKey>>,
    /// Distinguishes this session from every other under the same certificates; equal on all parties.
    pub id: [u8; 16],
    /// The generator of common randomness that all parties agreed on, if they named any: see
    /// [`crate::Job::prgs`].
    pub prg: Option<String>,
}
