//! Bits that selections can use again: data that a comparison leaves in addition to its bit.
//!
//! A comparison's outcome is `u ^ v`, `u` known to the dealer and `v` to both evaluators. If words are selected by
//! it, the dealer shares `u` as a word between the evaluators; that share is two thirds of the bits sent for a
//! selection's bit. It serves any number of selections: each masks its results with fresh streams, and a second use
//! of the shares reveals nothing new.

use std::sync::Arc;

use ring_arith::EngineTensor;

use super::BitShare;
use crate::runtime::{
    chunks::{Chunk, Layout},
    roles::Pair,
};

/// An opened bit of every element of a tensor, as one party holds it.
pub(crate) struct ReusableBit<T> {
    pub layout: Layout,
    pub chunks: Arc<[ReusableChunk<T>]>,
    /// The bit is `u ^ v ^ 1`.
    pub negated: bool,
}

/// A chunk of an opened bit.
pub(crate) struct ReusableChunk<T> {
    pub chunk: Chunk,
    /// The plane of `u` at the dealer, of `v` at the evaluators.
    pub known: T,
    pub share: WordShare<T>,
}

/// A party's share of the dealer's `u` as words, which is shared between the evaluators.
#[derive(Clone)]
pub(crate) enum WordShare<T> {
    /// The dealer, which knows `u`, holds no share of it.
    Dealer,
    /// The dealer of a checked session keeps both, left's and right's: later selections are proven with them.
    Both([T; 2]),
    /// An evaluator's share.
    Evaluator(T),
}

/// A bit that was opened, as one party holds it.
pub(crate) struct OpenedBit<T> {
    /// The role's two components of the shared bit.
    pub components: Pair<T>,
    /// The plane of `u` at the dealer, of `v` at the evaluators.
    pub known: T,
    /// This party's share of `u` as words, if words were selected by it.
    pub share: Option<WordShare<T>>,
}

/// A bit of one chunk: `u ^ v`, or the opposite.
pub(crate) struct Bit<T> {
    /// The plane of `u` at the dealer, of `v` at the evaluators.
    pub known: T,
    pub opposite: bool,
    pub origin: Origin<T>,
}

/// The origin of a bit.
#[derive(Clone)]
pub(crate) enum Origin<T> {
    /// It is shared: the role's two components.
    Shared(Pair<T>),
    /// It was opened, and `u` was shared as words: this party's share.
    Opened(WordShare<T>),
}

impl<T> Clone for ReusableBit<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), ..*self }
    }
}

/// The reusable bit, if its chunks are such that products can have the same.
pub(crate) fn flat<T: EngineTensor>(bits: &BitShare<T>) -> Option<&ReusableBit<T>> {
    bits.reusable().filter(|bit| bit.layout == Layout::FLAT)
}
