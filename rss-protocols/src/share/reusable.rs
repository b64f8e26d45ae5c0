//! Bits that stay opened: what later selections by them need, kept from the comparison that opened them.
//!
//! A comparison's outcome is `u ^ v`, `u` known to the pivot and `v` to both others. Where words are selected
//! by it, the pivot shares `u` as a word between the others; that share is two thirds of what is sent
//! for a selection's bit. It is good for any number of selections: each masks its results with streams of
//! its own, and shares that are used twice tell no more than once.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, View};

use crate::{
    BitShare, Rss,
    compare::protocol::OpenedBit,
    compare::select::WordShare,
    runtime::chunks::{Piece, assemble, take},
    runtime::launch::{flat, slice},
    runtime::roles::Roles,
};

/// An opened bit of every element of a tensor, as one party holds it.
pub(crate) struct Kept<T> {
    pub layout: Layout,
    pub pieces: Arc<[KeptPiece<T>]>,
    /// The bit is `u ^ v ^ 1`.
    pub negated: bool,
}

/// How pieces of one operation make up a tensor: its elements are `[rows, len / rows]`, and pieces are
/// ranges of the second axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub rows: usize,
}

/// A piece of an opened bit.
pub(crate) struct KeptPiece<T> {
    pub piece: Piece,
    /// The plane of `u` at the pivot, of `v` at the others.
    pub known: T,
    /// What this party holds of `u` as words.
    pub share: WordShare<T>,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self { pieces: self.pieces.clone(), ..*self }
    }
}

impl Layout {
    /// Pieces of consecutive elements.
    pub const FLAT: Self = Self { rows: 1 };

    /// The part of a tensor of one axis that belongs to a piece.
    pub fn take<E: Engine>(self, engine: &E, x: &E::Tensor, piece: &Piece) -> Result<E::Tensor> {
        if self == Self::FLAT {
            return take(engine, x, piece);
        }
        let rows = engine.view(x, &View::Reshape(self.shape(x.len())?))?;
        Ok(flat(engine, &slice(engine, &rows, 1, piece.range.start, piece.range.end)?)?)
    }

    /// Puts pieces of one axis together under a shape.
    pub fn assemble<E: Engine>(
        self,
        engine: &E,
        pieces: Vec<(usize, E::Tensor)>,
        shape: &Shape,
    ) -> Result<E::Tensor> {
        if self == Self::FLAT {
            return assemble(engine, None, pieces, 0, shape);
        }
        let rows = |(start, piece): (usize, E::Tensor)| -> Result<_> {
            let view = View::Reshape(self.shape(piece.len())?);
            Ok((start, engine.view(&piece, &view)?))
        };
        let pieces = pieces.into_iter().map(rows).collect::<Result<_>>()?;
        assemble(engine, None, pieces, 1, shape)
    }

    /// Words of a piece.
    pub fn len(self, piece: &Piece) -> usize {
        self.rows * piece.len()
    }

    fn shape(self, len: usize) -> Result<Shape> {
        Ok(Shape::new([self.rows, len / self.rows.max(1)])?)
    }
}

impl<E: Engine> Rss<E> {
    /// Puts the pieces of an opened bit together; what was kept of them stays with it.
    pub(crate) fn collect_bit(
        &self,
        pieces: Vec<(Piece, Roles, OpenedBit<E::Tensor>)>,
        layout: Layout,
        shape: &Shape,
    ) -> Result<BitShare<E::Tensor>> {
        let (mut mine, mut next, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for (piece, roles, bit) in pieces {
            let (one, two) = roles.order(bit.components.0, bit.components.1);
            mine.push((piece.clone(), one));
            next.push((piece.clone(), two));
            if let Some(share) = bit.kept {
                kept.push(KeptPiece { piece, known: bit.known, share });
            }
        }
        let complete = kept.len() == mine.len();
        let bits = BitShare::new(
            self.join_pieces(mine, layout, shape)?,
            self.join_pieces(next, layout, shape)?,
        )?;
        let kept = Kept { layout, pieces: kept.into(), negated: false };
        Ok(if complete { bits.keeping(kept) } else { bits })
    }

    /// One plane of its pieces' planes.
    fn join_pieces(
        &self,
        pieces: Vec<(Piece, E::Tensor)>,
        layout: Layout,
        shape: &Shape,
    ) -> Result<BitTensor<E::Tensor>> {
        let engine = &self.engine;
        let plane = Shape::new([1, shape.len().div_ceil(64)])?;
        // Planes lie behind one another if each piece begins with a word of its own.
        let aligned = layout == Layout::FLAT
            && pieces.iter().all(|(piece, _)| piece.range.start.is_multiple_of(64));
        planted!("kept: pieces joined as if aligned", aligned = true);
        if aligned || pieces.len() == 1 {
            let pieces = pieces.into_iter().map(|(piece, bits)| (piece.range.start, bits));
            let planes = assemble(engine, None, pieces.collect(), 1, &plane)?;
            return Ok(BitTensor::new(shape.clone(), planes)?);
        }
        let words = |(piece, bits): (Piece, E::Tensor)| -> Result<_> {
            let words = engine.from_planes(&bits, 0, &Shape::new([layout.len(&piece)])?)?;
            Ok((piece.range.start, words))
        };
        let words = pieces.into_iter().map(words).collect::<Result<_>>()?;
        let words = layout.assemble(engine, words, &Shape::new([shape.len()])?)?;
        Ok(BitTensor::new(shape.clone(), engine.to_planes(&words, 0, 1)?)?)
    }
}

/// Whether the pieces of a kept bit are such that products can be cut alike.
pub(crate) fn flat_pieces<T: EngineTensor>(bits: &BitShare<T>) -> Option<&Kept<T>> {
    bits.kept().filter(|kept| kept.layout == Layout::FLAT)
}
