//! What callers ask of a protocol, as data: products with what follows them, comparisons with what is
//! made of their outcome, tournaments.

use ring_arith::Bilinear;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How the low bits of a product are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TruncationMode {
    /// The protocol's best without a large-error event: floor, or floor + 1.
    #[default]
    Default,
    /// Error below 1.5 units and mean 0, for fewer bytes. Magnitudes up to `2^62 - 2^(bits + 1)`.
    Early,
    /// Exactly the floor.
    Exact,
    /// Stochastic rounding with a coin independent of every party's view.
    Dither,
    /// The local truncation of ABY3, SecureML and CryptGPU. It fails by `2^(64-t)` with probability
    /// `2^(bits+1-64)` per element: for comparison with published systems only.
    Aby3Local,
}

/// What a protocol and the functions above it spare where they have a choice. All parties must use the same.
/// Written as `bytes` and `slow-links`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Bytes and local work.
    #[default]
    Bytes,
    /// Rounds, as long as they are worth more than the bytes: for links with a long round trip.
    SlowLinks,
}

/// Most bits that a truncation may drop. With fewer than four bits left the offset that keeps signed
/// words apart would not fit beside them.
pub const MOST_DROPPED: u32 = 60;

/// What follows a sum of products. `B` is the protocol's shared bits.
#[derive(Debug)]
pub enum Finish<'a, B> {
    /// The sum as it is.
    Raw,
    /// The sum divided by `2^bits`, `bits` from 1 to [`MOST_DROPPED`]; `|sum| < 2^62`.
    Truncate {
        /// Bits to drop.
        bits: u32,
        /// How.
        mode: TruncationMode,
    },
    /// `max(0, sum / 2^bits)`; `|sum| <= 2^62 - 2^(bits+1)`. The sign is that of the rounded value.
    TruncateRelu {
        /// Bits to drop.
        bits: u32,
        /// How.
        mode: TruncationMode,
        /// Whether the bits where the result is positive come with it, for [`Finish::TruncateMask`] and
        /// [`crate::Protocol::select`]: what a gradient needs of a ReLU.
        keep: bool,
    },
    /// `sum / 2^bits` where the bit is 1, 0 elsewhere; limits as [`Finish::TruncateRelu`]. Cheapest with a
    /// bit that a comparison or a ReLU kept.
    TruncateMask {
        /// Bits to drop.
        bits: u32,
        /// How.
        mode: TruncationMode,
        /// A bit (width 1) for each element.
        mask: &'a B,
    },
}

/// A bilinear map of two shared tensors: one term of a [`Product`].
#[derive(Debug)]
pub struct Term<'a, S> {
    /// The map.
    pub op: Bilinear,
    /// Its first operand.
    pub lhs: &'a S,
    /// Its second operand. Clones of a share may carry prepared forms of it: pass the same share
    /// again rather than an equal one.
    pub rhs: &'a S,
}

/// The sum of bilinear maps of shared tensors and of shared tensors, and what follows.
#[derive(Debug)]
pub struct Product<'a, S, B> {
    /// Maps of one result shape, at least one. Each has its own costs in local work only: what is sent
    /// depends on the sum alone.
    pub terms: Vec<Term<'a, S>>,
    /// Added before truncation, each shifted left by the given number of bits: a bias, a residual. Of the
    /// result's shape, or broadcast to it.
    pub summands: Vec<(&'a S, u32)>,
    /// What follows.
    pub finish: Finish<'a, B>,
}

/// The answer to a [`Product`].
#[derive(Debug)]
#[must_use]
pub struct Produced<S, B> {
    /// The result.
    pub share: S,
    /// Where it is positive, if [`Finish::TruncateRelu`] was to keep that.
    pub kept: Option<B>,
}

/// A comparison with zero and what its outcome is for.
#[derive(Debug)]
pub struct Compare<'a, S> {
    /// The value whose sign is taken.
    pub value: &'a S,
    /// `|value| < 2^(width - 1)`; 64 is always right, less is cheaper.
    pub width: u32,
    /// What is made of the outcome.
    pub then: Then<'a, S>,
}

/// What is made of the outcome of `value < 0`: any of it together. Asked for with the comparison,
/// because a protocol may send what it needs for both at once.
#[derive(Debug)]
pub struct Then<'a, S> {
    /// The outcome as a shared bit. With words selected as well, a later
    /// [`crate::Protocol::select`] by it may cost less.
    pub bit: bool,
    /// The outcome as a shared word, 0 or 1.
    pub word: bool,
    /// Each word of these, all of the value's shape, where the value is negative; 0 elsewhere.
    pub negative: &'a [&'a S],
    /// Each word of these where the value is not negative; 0 elsewhere. With the value itself: ReLU.
    pub not_negative: &'a [&'a S],
}

/// The answer to a [`Compare`]: what [`Then`] asked for, in its order.
#[derive(Debug)]
#[must_use]
pub struct Compared<S, B> {
    /// The outcome as a bit.
    pub bit: Option<B>,
    /// The outcome as a word.
    pub word: Option<S>,
    /// Words kept where the value is negative.
    pub negative: Vec<S>,
    /// Words kept where it is not.
    pub not_negative: Vec<S>,
}

/// What is wanted of a tournament besides the largest elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Largest {
    /// Their positions, as words.
    pub position: bool,
    /// Who won each comparison, as bits: what a gradient needs of a maximum.
    pub choices: bool,
}

/// The answer to a tournament along a first axis of `k` elements.
#[derive(Debug)]
#[must_use]
pub struct Found<S, B> {
    /// `[1, ..]`: the largest elements.
    pub largest: S,
    /// `[1, ..]`: the positions, the lowest among equals, where they were asked for.
    pub position: Option<S>,
    /// Where they were asked for, for each level of the tournament from the elements up: `[pairs, ..]`, 1
    /// where the later element of a pair won. An element without a pair goes on to the next level, where
    /// it is the last.
    pub choices: Vec<B>,
}

impl<B> Clone for Finish<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Finish<'_, B> {}

impl<B> Finish<'_, B> {
    /// How many bits are dropped, and how; `None` for [`Finish::Raw`].
    pub fn truncation(&self) -> Option<(u32, TruncationMode)> {
        match *self {
            Self::Raw => None,
            Self::Truncate { bits, mode }
            | Self::TruncateRelu { bits, mode, .. }
            | Self::TruncateMask { bits, mode, .. } => Some((bits, mode)),
        }
    }
}

impl<S> Clone for Term<'_, S> {
    fn clone(&self) -> Self {
        Self { op: self.op.clone(), lhs: self.lhs, rhs: self.rhs }
    }
}

impl<S, B> Clone for Product<'_, S, B> {
    fn clone(&self) -> Self {
        let (terms, summands) = (self.terms.clone(), self.summands.clone());
        Self { terms, summands, finish: self.finish }
    }
}

impl<'a, S, B> Product<'a, S, B> {
    /// One bilinear map, and what follows it.
    pub fn new(op: Bilinear, lhs: &'a S, rhs: &'a S, finish: Finish<'a, B>) -> Self {
        Self { terms: vec![Term { op, lhs, rhs }], summands: Vec::new(), finish }
    }

    /// Adds a shared tensor, shifted left by some bits.
    #[must_use]
    pub fn plus(mut self, summand: &'a S, shift: u32) -> Self {
        self.summands.push((summand, shift));
        self
    }
}

impl<S> Default for Then<'_, S> {
    fn default() -> Self {
        Self { bit: false, word: false, negative: &[], not_negative: &[] }
    }
}

impl<'a, S> Then<'a, S> {
    /// The outcome as a bit.
    pub fn bit() -> Self {
        Self { bit: true, ..Self::default() }
    }

    /// The outcome as a word.
    pub fn word() -> Self {
        Self { word: true, ..Self::default() }
    }

    /// Words where the value is negative.
    pub fn negative(words: &'a [&'a S]) -> Self {
        Self { negative: words, ..Self::default() }
    }

    /// Words where the value is not negative.
    pub fn not_negative(words: &'a [&'a S]) -> Self {
        Self { not_negative: words, ..Self::default() }
    }

    /// The outcome as a bit as well.
    #[must_use]
    pub fn and_bit(self) -> Self {
        Self { bit: true, ..self }
    }
}

impl<S> Clone for Then<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Then<'_, S> {}

impl<S> Clone for Compare<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Compare<'_, S> {}

impl<S, B> Compared<S, B> {
    /// The outcome as a bit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was not asked for.
    pub fn into_bit(self) -> Result<B> {
        self.bit.ok_or_else(|| unasked("a bit"))
    }

    /// The one word that was asked for: the outcome, or what it selects.
    ///
    /// # Errors
    /// [`Error::Invalid`] if none or several were.
    pub fn into_word(self) -> Result<S> {
        let mut words = self.into_words().into_iter();
        match (words.next(), words.next()) {
            (Some(word), None) => Ok(word),
            _ => Err(unasked("one word")),
        }
    }

    /// All words that were asked for: the outcome, what it selects where the value is negative, and
    /// where it is not.
    pub fn into_words(self) -> Vec<S> {
        self.word.into_iter().chain(self.negative).chain(self.not_negative).collect()
    }
}

fn unasked(what: &str) -> Error {
    let reason = format!("{what} is expected where the comparison was for something else");
    Error::Invalid { op: "compare", reason }
}
