//! Partitions of tensors among the three roles.

use std::ops::Range;

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, EngineTensor, Shape, View};

use super::{
    launch::{flat, slice},
    roles::Roles,
};

/// Below this many elements an operation is one chunk: three would only send more messages.
pub(crate) const SMALL: usize = 4096;

/// Elements of a chunk: the words that a step reads and writes then stay in a core's cache. The next chunk is
/// computed while this one is sent.
const CHUNK: usize = 1 << 16;

/// The number of elements of small operations after which the dealer changes. Until then it runs ahead, since
/// it receives nothing, and only the evaluators wait for each other.
const TURN: usize = 1 << 16;

/// The partition of large operations among the parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Partition {
    /// Three parts, each with another dealer: all parties send and receive the same.
    #[default]
    Three,
    /// Six parts, three of them with left and right exchanged, so that every direction of every link carries the same.
    Six,
    /// One part, whose dealer is always [`DEALER`]. A dealer receives only inputs and openings, so that party
    /// can finish before the others begin: see [`crate::Rss::dealt`].
    Pinned,
}

/// The dealer of everything where the dealer is pinned, and the one whose messages are a tape where two parties
/// compute.
pub const DEALER: Party = Party(2);

/// Consecutive elements with one dealer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub range: Range<usize>,
    pub dealer: Party,
    pub swapped: bool,
}

/// The dealers of small operations, in turn.
#[derive(Debug)]
pub(crate) struct Rotation {
    dealer: usize,
    done: usize,
    /// The first one stays.
    pinned: bool,
    /// Left and right are exchanged.
    #[cfg(test)]
    pub swapped: bool,
}

impl Rotation {
    pub fn new(parts: Partition) -> Self {
        let pinned = parts == Partition::Pinned;
        Self {
            dealer: if pinned { DEALER.0 } else { 0 },
            done: 0,
            pinned,
            #[cfg(test)]
            swapped: false,
        }
    }

    /// Begins with another dealer.
    #[cfg(test)]
    pub fn starting_at(dealer: usize, swapped: bool) -> Self {
        Self { dealer, done: 0, pinned: false, swapped }
    }

    /// The dealer of a small operation, given its number of elements.
    pub fn next(&mut self, elements: usize) -> Party {
        if self.done > TURN && !self.pinned {
            (self.dealer, self.done) = ((self.dealer + 1) % 3, 0);
        }
        self.done += elements.max(1);
        Party(self.dealer)
    }
}

impl Chunk {
    /// All elements.
    pub fn whole(len: usize, dealer: Party) -> Self {
        Self { range: 0..len, dealer, swapped: false }
    }

    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn roles(&self, me: Party) -> Roles {
        Roles::new(me, self.dealer, self.swapped)
    }
}

impl Partition {
    fn count(self) -> usize {
        match self {
            Self::Three => 3,
            Self::Six => 6,
            Self::Pinned => 1,
        }
    }

    /// The dealer of a part.
    fn dealer(self, part: usize) -> Party {
        if self == Self::Pinned { DEALER } else { Party(part % 3) }
    }

    /// `len` elements in parts, each of a multiple of `unit` elements but for the last.
    pub(crate) fn parts(self, len: usize, unit: usize) -> Vec<Chunk> {
        let (count, units) = (self.count(), len.div_ceil(unit));
        let bound = |i: usize| ((units * i + count / 2) / count * unit).min(len);
        let mut parts = Vec::with_capacity(count);
        for i in 0..count {
            let range = bound(i)..bound(i + 1);
            if !range.is_empty() {
                parts.push(Chunk { range, dealer: self.dealer(i), swapped: i >= 3 });
            }
        }
        parts
    }
}

/// Elements of a large operation: parts in chunks that fit a cache, a chunk of each part in turn.
pub(crate) fn elements(partition: Partition, len: usize) -> Vec<Chunk> {
    let parts = partition.parts(len, 64);
    let longest = parts.iter().map(Chunk::len).max().unwrap_or(0);
    let count = longest.div_ceil(CHUNK).max(1);
    let mut chunks = Vec::with_capacity(count * parts.len());
    for i in 0..count {
        for part in &parts {
            let words = part.len().div_ceil(64);
            let bound = |i: usize| part.range.start + (words * i / count * 64).min(part.len());
            let range = bound(i)..bound(i + 1);
            if !range.is_empty() {
                chunks.push(Chunk { range, ..part.clone() });
            }
        }
    }
    chunks
}

/// The layout of chunks in a tensor: its elements are `[rows, len / rows]`, and chunks are ranges of the
/// second axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub rows: usize,
}

impl Layout {
    /// Chunks of consecutive elements.
    pub const FLAT: Self = Self { rows: 1 };

    /// The words of a tensor of one axis that belong to a chunk.
    pub fn take<E: Engine>(self, engine: &E, x: &E::Tensor, chunk: &Chunk) -> Result<E::Tensor> {
        let Range { start, end } = chunk.range;
        if self.len(chunk) == x.len() {
            return Ok(x.clone());
        }
        if self == Self::FLAT {
            return Ok(slice(engine, x, 0, start, end)?);
        }
        let rows = engine.view(x, &View::Reshape(self.shape(x.len())?))?;
        Ok(flat(engine, &slice(engine, &rows, 1, start, end)?)?)
    }

    /// Words of a chunk.
    pub fn len(self, chunk: &Chunk) -> usize {
        self.rows * chunk.len()
    }

    /// The shape of `len` words.
    pub fn shape(self, len: usize) -> Result<Shape> {
        Ok(Shape::new([self.rows, len / self.rows.max(1)])?)
    }
}

/// A chunk of a tensor of one axis.
pub(crate) fn take<E: Engine>(engine: &E, x: &E::Tensor, chunk: &Chunk) -> Result<E::Tensor> {
    Layout::FLAT.take(engine, x, chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_tensor_once_and_parts_are_alike() {
        for parts in [Partition::Three, Partition::Six] {
            for len in [4096, 5000, 65_536, 1_000_000] {
                let mut chunks = elements(parts, len);
                chunks.sort_by_key(|chunk| chunk.range.start);
                let mut end = 0;
                for chunk in &chunks {
                    assert_eq!(chunk.range.start, end);
                    assert!(end % 64 == 0 && chunk.len() <= CHUNK + 64);
                    end = chunk.range.end;
                }
                assert_eq!(end, len);
                for dealer in 0..3 {
                    let mine = chunks.iter().filter(|chunk| chunk.dealer == Party(dealer));
                    let sum: usize = mine.map(Chunk::len).sum();
                    assert!(sum.abs_diff(len / 3) <= 130, "{sum} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_dealer_of_small_operations_stays_for_a_while() {
        let mut rotation = Rotation::new(Partition::Three);
        let first = rotation.next(100);
        assert_eq!(rotation.next(100), first);
        rotation.next(TURN);
        assert_ne!(rotation.next(1), first);
    }

    #[test]
    fn a_pinned_dealer_stays_for_ever() {
        let mut rotation = Rotation::new(Partition::Pinned);
        assert!((0..4).all(|_| rotation.next(2 * TURN) == DEALER));
        for len in [4096, 5000, 1_000_000] {
            let chunks = elements(Partition::Pinned, len);
            assert!(chunks.iter().all(|chunk| chunk.dealer == DEALER && !chunk.swapped));
            assert_eq!(chunks.iter().map(Chunk::len).sum::<usize>(), len);
            assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK + 64));
        }
    }
}
