//! The messages of a checked session that are not proven yet.

use std::cell::{Cell, RefCell};

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Stream};

use super::Transcript;
use crate::runtime::roles::{Role, Roles};

/// The relations of a chunk, to be stated when they are wanted.
type Relations<E> = Box<dyn FnOnce(&mut Transcript<'_, E>) -> Result<()> + Send>;

/// A direction between two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    DealerToLeft,
    DealerToRight,
    LeftToRight,
    RightToLeft,
}

impl Link {
    /// The direction from one role to another; nobody sends to the dealer.
    pub fn between(from: Role, to: Role) -> Self {
        match (from, to) {
            (Role::Dealer, Role::Left) => Self::DealerToLeft,
            (Role::Dealer, _) => Self::DealerToRight,
            (Role::Left, _) => Self::LeftToRight,
            (Role::Right, _) => Self::RightToLeft,
        }
    }

    /// The track of a message. The dealer's are read at once, before anything runs side by side.
    pub fn track(self, track: Track) -> Track {
        if matches!(self, Self::DealerToLeft | Self::DealerToRight) { 0 } else { track }
    }

    /// The two roles: the sender, who proves, and the receiver.
    pub fn ends(self) -> [Role; 2] {
        match self {
            Self::DealerToLeft => [Role::Dealer, Role::Left],
            Self::DealerToRight => [Role::Dealer, Role::Right],
            Self::LeftToRight => [Role::Left, Role::Right],
            Self::RightToLeft => [Role::Right, Role::Left],
        }
    }
}

/// One of the parts of a chunk that run side by side: their messages are counted apart.
pub(crate) type Track = u8;

/// A message of a chunk as its sender or its receiver has it.
pub(crate) struct Recorded<T> {
    pub track: Track,
    pub link: Link,
    pub tensor: T,
}

/// A chunk's messages and streams, and what is to be stated about them.
pub(crate) struct Record<E: Engine> {
    pub roles: Roles,
    pub streams: [Option<Stream>; 4],
    pub messages: Vec<Recorded<E::Tensor>>,
    pub relations: Option<Relations<E>>,
}

/// All chunks whose messages are not proven yet, in the order in which all parties began them.
pub(crate) struct Ledger<E: Engine> {
    pub chunks: Vec<Record<E>>,
    /// The sum of the chunks' elements.
    pub elements: usize,
}

/// A chunk's place in the ledger.
pub(crate) struct Recorder<'a, E: Engine> {
    ledger: &'a RefCell<Ledger<E>>,
    chunk: usize,
    track: Cell<Track>,
}

impl<E: Engine> Default for Ledger<E> {
    fn default() -> Self {
        Self { chunks: Vec::new(), elements: 0 }
    }
}

impl<'a, E: Engine> Recorder<'a, E> {
    /// Begins a chunk.
    pub fn begin(
        ledger: &'a RefCell<Ledger<E>>,
        elements: usize,
        roles: Roles,
        streams: [Option<Stream>; 4],
    ) -> Self {
        let Ledger { chunks, elements: all } = &mut *ledger.borrow_mut();
        *all += elements;
        chunks.push(Record { roles, streams, messages: Vec::new(), relations: None });
        Self { ledger, chunk: chunks.len() - 1, track: Cell::new(0) }
    }

    /// Keeps a message.
    pub fn note(&self, link: Link, tensor: &E::Tensor) {
        if tensor.len() == 0 {
            return;
        }
        let recorded =
            Recorded { track: link.track(self.track.get()), link, tensor: tensor.clone() };
        self.ledger.borrow_mut().chunks[self.chunk].messages.push(recorded);
    }

    /// Keeps the relations of the chunk.
    pub fn owe(
        &self,
        relations: impl FnOnce(&mut Transcript<'_, E>) -> Result<()> + Send + 'static,
    ) {
        self.ledger.borrow_mut().chunks[self.chunk].relations = Some(Box::new(relations));
    }

    /// Runs a step of the first or the second of two parts that run side by side.
    pub fn beside<R>(&self, second: bool, step: impl FnOnce() -> R) -> R {
        let outer = self.track.get();
        self.track.set(side(outer, second));
        let result = step();
        self.track.set(outer);
        result
    }
}

/// The track of the first or the second of two parts that run side by side.
pub(crate) fn side(outer: Track, second: bool) -> Track {
    2 * outer + 1 + Track::from(second)
}
