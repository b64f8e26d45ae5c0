//! Cutting tensors into parts with different pivots.

use std::ops::Range;

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, EngineTensor, Place, Shape, View};

use crate::{
    runtime::launch::slice,
    runtime::roles::{Role, Roles},
};

/// Below this many elements an operation is one part: three would only send more messages.
pub(crate) const SMALL: usize = 4096;

/// Elements that are worked on at once: what a step reads and writes then stays in a core's cache,
/// and the next piece is computed while this one travels.
const PIECE: usize = 1 << 16;

/// After how many elements of small operations the pivot changes. Until then it runs ahead, since it
/// receives nothing, and only the other two wait for each other.
const TURN: usize = 1 << 16;

/// How large operations are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Parts {
    /// Three parts, a pivot each: all parties send and receive the same.
    #[default]
    Three,
    /// Six: the second three with the roles of the others exchanged, so that every direction of every
    /// link carries the same.
    Six,
    /// One, whose pivot is always [`DEALER`]. A pivot receives nothing but inputs and openings, so that
    /// party can be done before the others begin: see [`crate::Rss::dealt`].
    Pinned,
}

/// The pivot of everything where parts are pinned, and the one whose messages are a tape where two parties
/// compute.
pub const DEALER: Party = Party(2);

/// Consecutive elements with one pivot.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub range: Range<usize>,
    pub pivot: Party,
    pub swapped: bool,
}

/// Who is the pivot of small operations.
#[derive(Debug)]
pub(crate) struct Rotation {
    pivot: usize,
    done: usize,
    /// The first pivot stays.
    pinned: bool,
}

impl Rotation {
    pub fn new(parts: Parts) -> Self {
        let pinned = parts == Parts::Pinned;
        Self { pivot: if pinned { DEALER.0 } else { 0 }, done: 0, pinned }
    }

    /// Begins with another pivot.
    #[cfg(test)]
    pub fn starting_at(pivot: usize) -> Self {
        Self { pivot, done: 0, pinned: false }
    }

    /// The pivot of a small operation on so many elements.
    pub fn next(&mut self, elements: usize) -> Party {
        if self.done > TURN && !self.pinned {
            (self.pivot, self.done) = ((self.pivot + 1) % 3, 0);
        }
        self.done += elements.max(1);
        Party(self.pivot)
    }
}

impl Piece {
    /// One piece for all.
    pub fn whole(len: usize, pivot: Party) -> Self {
        Self { range: 0..len, pivot, swapped: false }
    }

    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn roles(&self, me: Party) -> Roles {
        Roles::new(me, self.pivot, self.swapped)
    }
}

impl Parts {
    fn count(self) -> usize {
        match self {
            Self::Three => 3,
            Self::Six => 6,
            Self::Pinned => 1,
        }
    }

    /// The pivot of a part.
    fn pivot(self, part: usize) -> Party {
        if self == Self::Pinned { DEALER } else { Party(part % 3) }
    }

    /// `len` items in parts, each of a multiple of `unit` items but for the last.
    pub(crate) fn parts(self, len: usize, unit: usize) -> Vec<Piece> {
        let (count, units) = (self.count(), len.div_ceil(unit));
        let bound = |i: usize| ((units * i + count / 2) / count * unit).min(len);
        let part = |i: usize| Piece {
            range: bound(i)..bound(i + 1),
            pivot: self.pivot(i),
            swapped: i >= 3,
        };
        (0..count).map(part).filter(|part| part.len() > 0).collect()
    }
}

/// Elements of a large operation: parts, cut into pieces that fit a cache, a piece of each part in turn.
pub(crate) fn elements(parts: Parts, len: usize) -> Vec<Piece> {
    let parts = parts.parts(len, 64);
    let longest = parts.iter().map(Piece::len).max().unwrap_or(0);
    let count = longest.div_ceil(PIECE).max(1);
    let mut pieces = Vec::with_capacity(count * parts.len());
    for i in 0..count {
        for part in &parts {
            let words = part.len().div_ceil(64);
            let bound = |i: usize| part.range.start + (words * i / count * 64).min(part.len());
            let range = bound(i)..bound(i + 1);
            if !range.is_empty() {
                pieces.push(Piece { range, ..part.clone() });
            }
        }
    }
    pieces
}

/// A piece of a tensor of one axis.
pub(crate) fn take<E: Engine>(engine: &E, x: &E::Tensor, piece: &Piece) -> Result<E::Tensor> {
    if piece.len() == x.len() {
        return Ok(x.clone());
    }
    Ok(slice(engine, x, 0, piece.range.start, piece.range.end)?)
}

/// Room for both components of a result, in which its pieces lie behind one another; none if there is
/// one piece, or they do not.
pub(crate) struct Rooms<T: EngineTensor>(Option<[T::Room; 2]>);

/// Where a piece's components are made, in the role's order.
pub(crate) struct Spots<T: EngineTensor> {
    rooms: Option<(T::Room, T::Room)>,
    start: usize,
    /// Words of the piece.
    pub len: usize,
}

impl<T: EngineTensor> Rooms<T> {
    /// Room for a result of `len` words.
    pub fn new<E: Engine<Tensor = T>>(engine: &E, len: usize, pieces: &[Piece]) -> Self {
        if pieces.len() < 2 {
            return Self(None);
        }
        Self(engine.room(len).zip(engine.room(len)).map(|(mine, next)| [mine, next]))
    }

    /// For pieces that do not lie behind one another.
    pub fn none() -> Self {
        Self(None)
    }

    /// Where the components of a piece of `len` words from `start` on belong.
    pub fn spots(&self, roles: &Roles, start: usize, len: usize) -> Spots<T> {
        let rooms = self.0.clone().map(|[mine, next]| roles.order(mine, next));
        Spots { rooms, start, len }
    }

    /// As [`Rooms::spots`], for a piece of elements.
    pub fn spots_of(&self, piece: &Piece, roles: &Roles) -> Spots<T> {
        self.spots(roles, piece.range.start, piece.len())
    }

    /// Puts the pieces of both components together, each in any order, along an axis and under a shape.
    pub fn assemble<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        [mine, next]: [Vec<(usize, T)>; 2],
        axis: usize,
        shape: &Shape,
    ) -> Result<[T; 2]> {
        let [room, other] = match &self.0 {
            Some([mine, next]) => [Some(mine), Some(next)],
            None => [None, None],
        };
        let mine = assemble(engine, room, mine, axis, shape)?;
        Ok([mine, assemble(engine, other, next, axis, shape)?])
    }
}

impl<T: EngineTensor> Spots<T> {
    /// Anywhere.
    pub fn none(len: usize) -> Self {
        Self { rooms: None, start: 0, len }
    }

    /// The first component's.
    pub fn first(&self) -> Option<Place<'_, T>> {
        self.rooms.as_ref().map(|(room, _)| Place { room, start: self.start })
    }

    /// The second component's.
    pub fn second(&self) -> Option<Place<'_, T>> {
        self.rooms.as_ref().map(|(_, room)| Place { room, start: self.start })
    }

    /// At the second or the third, that of the component shared with the pivot.
    pub fn shared(&self, roles: &Roles) -> Option<Place<'_, T>> {
        if roles.role == Role::Left { self.first() } else { self.second() }
    }

    /// At the second or the third, that of the component they share.
    pub fn joint(&self, roles: &Roles) -> Option<Place<'_, T>> {
        if roles.role == Role::Left { self.second() } else { self.first() }
    }
}

/// Puts pieces of one tensor, in any order, together along an axis and under a shape.
pub(crate) fn assemble<E: Engine>(
    engine: &E,
    room: Option<&<E::Tensor as EngineTensor>::Room>,
    mut pieces: Vec<(usize, E::Tensor)>,
    axis: usize,
    shape: &Shape,
) -> Result<E::Tensor> {
    pieces.sort_by_key(|(start, _)| *start);
    let parts: Vec<_> = pieces.iter().map(|(_, piece)| piece).collect();
    let whole = match (&parts[..], room.and_then(|room| engine.seal(room, &parts, shape))) {
        (_, Some(whole)) => whole,
        (&[only], None) => only.clone(),
        _ => engine.concat(&parts, axis)?,
    };
    if whole.shape() == shape {
        return Ok(whole);
    }
    Ok(engine.view(&whole, &View::Reshape(shape.clone()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_tensor_once_and_parts_are_alike() {
        for parts in [Parts::Three, Parts::Six] {
            for len in [4096, 5000, 65_536, 1_000_000] {
                let mut pieces = elements(parts, len);
                pieces.sort_by_key(|piece| piece.range.start);
                let mut end = 0;
                for piece in &pieces {
                    assert_eq!(piece.range.start, end);
                    assert!(end % 64 == 0 && piece.len() <= PIECE + 64);
                    end = piece.range.end;
                }
                assert_eq!(end, len);
                for pivot in 0..3 {
                    let mine = pieces.iter().filter(|piece| piece.pivot == Party(pivot));
                    let sum: usize = mine.map(Piece::len).sum();
                    assert!(sum.abs_diff(len / 3) <= 130, "{sum} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_pivot_of_small_operations_stays_for_a_while() {
        let mut rotation = Rotation::new(Parts::Three);
        let first = rotation.next(100);
        assert_eq!(rotation.next(100), first);
        rotation.next(TURN);
        assert_ne!(rotation.next(1), first);
    }

    #[test]
    fn a_pinned_pivot_stays_for_ever() {
        let mut rotation = Rotation::new(Parts::Pinned);
        assert!((0..4).all(|_| rotation.next(2 * TURN) == DEALER));
        for len in [4096, 5000, 1_000_000] {
            let pieces = elements(Parts::Pinned, len);
            assert!(pieces.iter().all(|piece| piece.pivot == DEALER && !piece.swapped));
            assert_eq!(pieces.iter().map(Piece::len).sum::<usize>(), len);
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE + 64));
        }
    }
}
