//! Jobs for a protocol, as data: products with their final steps, comparisons with the uses of their
//! outcome, tournaments.

use std::{fmt, ops::Range, str::FromStr};

use ring_arith::Bilinear;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The modes of dropping the low bits of a product.
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

/// The resource that a protocol and the functions above it save where they have a choice. All parties must
/// use the same. Written as `bytes`, `balanced` and `slow-links`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Saves bytes and local work.
    Bytes,
    /// Saves a round where that costs a party at most some 32 kB more, which a fast network carries in less time than a round
    /// takes: of few elements alone. Else as [`Profile::Bytes`].
    #[default]
    Balanced,
    /// Saves rounds where that gains more time than the extra bytes cost: for links with a long
    /// round trip.
    SlowLinks,
}

impl FromStr for Profile {
    type Err = String;

    /// Reads a profile as configuration files and command lines have it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "balanced" => Ok(Self::Balanced),
            "bytes" => Ok(Self::Bytes),
            "slow-links" => Ok(Self::SlowLinks),
            _ => Err("use balanced, bytes or slow-links".to_owned()),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Balanced => "balanced",
            Self::Bytes => "bytes",
            Self::SlowLinks => "slow-links",
        })
    }
}

impl Profile {
    /// True if a form with fewer rounds and more bytes is to be taken for so many elements: at most `balanced` in one
    /// profile, at most `slow` in the other.
    pub fn saves_rounds(self, elements: usize, balanced: usize, slow: usize) -> bool {
        match self {
            Self::Bytes => false,
            Self::Balanced => elements <= balanced,
            Self::SlowLinks => elements <= slow,
        }
    }
}

/// A session's defence against a party that does not follow the protocol. All parties must use the same. Written as
/// `semi-honest` and `checked`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Nothing: all parties follow it.
    #[default]
    SemiHonest,
    /// Before anything is opened, released or kept, each party proves to both others that its messages were the
    /// prescribed ones. A lie of one party is noticed but with probability `2^-40`, and ends the session by
    /// [`Error::Cheated`](crate::Error::Cheated). Operations whose messages cannot be proven are refused.
    Checked,
}

/// Most bits that a truncation may drop. The remaining four bits leave room for the offset that
/// makes signed words positive.
pub const MOST_DROPPED: u32 = 60;

/// The final step after a sum of products. `B` is the protocol's shared bits.
#[derive(Debug)]
pub enum Finish<'a, B> {
    /// The exact sum.
    Raw,
    /// The sum divided by `2^bits`, `bits` from 1 to [`MOST_DROPPED`]; `|sum| < 2^62`.
    Truncate {
        /// Bits to drop.
        bits: u32,
        /// The truncation mode.
        mode: TruncationMode,
    },
    /// `max(0, sum / 2^bits)`; `|sum| <= 2^62 - 2^(bits+1)`. The sign is that of the rounded value.
    TruncateRelu {
        /// Bits to drop.
        bits: u32,
        /// The truncation mode.
        mode: TruncationMode,
        /// Keeps the bits that mark positive results, for [`Finish::TruncateMask`] and
        /// [`crate::Protocol::select`]. The gradient of a ReLU needs them.
        keep: bool,
    },
    /// `sum / 2^bits` where the bit is 1, 0 elsewhere; limits as [`Finish::TruncateRelu`]. Cheapest with a
    /// bit that a comparison or a ReLU kept.
    TruncateMask {
        /// Bits to drop.
        bits: u32,
        /// The truncation mode.
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

/// A sum of bilinear maps of shared tensors and of further shared tensors, and its final step.
#[derive(Debug)]
pub struct Product<'a, S, B> {
    /// Maps of one result shape, at least one. Each adds local work only: the messages depend on the
    /// sum alone.
    pub terms: Vec<Term<'a, S>>,
    /// Added before truncation, each shifted left by the given number of bits: a bias, a residual. Of the
    /// result's shape, or broadcast to it.
    pub summands: Vec<(&'a S, u32)>,
    /// The final step.
    pub finish: Finish<'a, B>,
    /// Sums of the truncated elements before a ReLU or a mask.
    pub sums: Option<Sums<'a>>,
}

/// The steps after a sum of products: a [`Product`] without its terms. `S` and `B` are the protocol's shares.
#[derive(Debug)]
pub struct Finishing<'a, S, B> {
    /// As [`Product::summands`].
    pub summands: Vec<(&'a S, u32)>,
    /// The final step.
    pub finish: Finish<'a, B>,
    /// As [`Product::sums`].
    pub sums: Option<Sums<'a>>,
}

/// Weighted sums of a product's truncated elements, modulo 2^64: one for each part of the result and each list of
/// factors. An element beyond its range, whose ReLU is wrong, may count with an error of any multiple of
/// `2^(64 - bits)`, but never as one that is in range.
#[derive(Debug, Clone, Copy)]
pub struct Sums<'a> {
    /// Public factors of the result's elements.
    pub factors: &'a [SumFactors],
    /// The number of parts: consecutive elements, as many in each.
    pub parts: usize,
}

/// Factors of a tensor's elements: that of element `(i, j, k)` of `[outer, middle, inner]` is the product of three.
#[derive(Debug, Clone)]
pub struct SumFactors {
    /// One for each index of the axes before the middle one.
    pub outer: Vec<u64>,
    /// One for each index of an axis.
    pub middle: Vec<u64>,
    /// One for each index of the axes behind it.
    pub inner: Vec<u64>,
}

/// The answer to a [`Product`].
#[derive(Debug)]
#[must_use]
pub struct Produced<S, B> {
    /// The result.
    pub share: S,
    /// `[parts, lists]`: the [`Sums`] that were asked for.
    pub sums: Option<S>,
    /// The bits that mark positive results, if [`Finish::TruncateRelu`] keeps them.
    pub kept: Option<B>,
}

/// A comparison with zero and the uses of its outcome.
#[derive(Debug)]
pub struct Compare<'a, S> {
    /// The value whose sign is taken.
    pub value: &'a S,
    /// `|value| < 2^(width - 1)`; 64 is always right, less is cheaper.
    pub width: u32,
    /// The uses of the outcome.
    pub then: Then<'a, S>,
}

/// The uses of the outcome of `value < 0`, in any combination. They are part of the comparison
/// because a protocol may send the messages for both at once.
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

/// The answer to a [`Compare`]: the results that [`Then`] asked for, in its order.
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

/// The further results of a tournament, as well as the largest elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Largest {
    /// Their positions, as words.
    pub position: bool,
    /// The winner of each comparison, as bits. The gradient of a maximum needs them.
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
    /// The winners, if they were asked for: for each level of the tournament from the elements up
    /// `[pairs, ..]`, 1 where the later element of a pair won. An element without a pair moves to the
    /// next level, where it is the last.
    pub choices: Vec<B>,
}

impl TruncationMode {
    /// Every mode.
    pub const ALL: &'static [Self] =
        &[Self::Default, Self::Early, Self::Exact, Self::Dither, Self::Aby3Local];
}

impl<B> Clone for Finish<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Finish<'_, B> {}

impl<B> Finish<'_, B> {
    /// The number of bits that are dropped and the mode; `None` for [`Finish::Raw`].
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

impl<S, B> Clone for Finishing<'_, S, B> {
    fn clone(&self) -> Self {
        Self { summands: self.summands.clone(), finish: self.finish, sums: self.sums }
    }
}

impl<'a, S, B> Finishing<'a, S, B> {
    /// A final step, without summands and sums.
    pub fn new(finish: Finish<'a, B>) -> Self {
        Self { summands: Vec::new(), finish, sums: None }
    }

    /// Adds a shared tensor, shifted left by some bits.
    #[must_use]
    pub fn plus(mut self, summand: &'a S, shift: u32) -> Self {
        self.summands.push((summand, shift));
        self
    }
}

impl<S, B> Clone for Product<'_, S, B> {
    fn clone(&self) -> Self {
        let (terms, summands) = (self.terms.clone(), self.summands.clone());
        Self { terms, summands, finish: self.finish, sums: self.sums }
    }
}

impl<'a, S, B> Product<'a, S, B> {
    /// One bilinear map and its final step.
    pub fn new(op: Bilinear, lhs: &'a S, rhs: &'a S, finish: Finish<'a, B>) -> Self {
        Self { terms: vec![Term { op, lhs, rhs }], summands: Vec::new(), finish, sums: None }
    }

    /// The steps after the sum of the terms.
    pub fn finishing(&self) -> Finishing<'a, S, B> {
        Finishing { summands: self.summands.clone(), finish: self.finish, sums: self.sums }
    }

    /// Asks for sums of the truncated elements as well.
    #[must_use]
    pub fn summed(self, sums: Sums<'a>) -> Self {
        Self { sums: Some(sums), ..self }
    }

    /// Adds a shared tensor, shifted left by some bits.
    #[must_use]
    pub fn plus(mut self, summand: &'a S, shift: u32) -> Self {
        self.summands.push((summand, shift));
        self
    }
}

impl Sums<'_> {
    /// The number of lists of factors for a result of `elements` elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless lists fit the result and parts divide it.
    pub fn lists(&self, elements: usize) -> Result<usize> {
        let &Self { factors, parts } = self;
        let fits = parts > 0
            && elements > 0
            && elements.is_multiple_of(parts)
            && !factors.is_empty()
            && factors.iter().all(|list| list.len() == elements);
        if fits {
            return Ok(factors.len());
        }
        let reason = format!(
            "{} lists of factors and {parts} parts do not fit {elements} elements",
            factors.len()
        );
        Err(Error::Invalid { op: "sums", reason })
    }

    /// The factors of a range of elements, those of one list behind the other's.
    pub fn of(&self, elements: Range<usize>) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.factors.len() * elements.len());
        self.factors.iter().for_each(|list| list.extend(&mut all, elements.clone()));
        all
    }
}

impl SumFactors {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.outer.len() * self.middle.len() * self.inner.len()
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the factors of a range of elements.
    fn extend(&self, all: &mut Vec<u64>, elements: Range<usize>) {
        // Rows are multiples of the last list that has more than one factor.
        let (before, row) = match (&self.middle[..], &self.inner[..]) {
            (&[middle], &[inner]) => (&[middle.wrapping_mul(inner)][..], &self.outer),
            (_, [_]) => (&self.inner[..], &self.middle),
            _ => (&self.middle[..], &self.inner),
        };
        let mut at = elements.start;
        while at < elements.end {
            let (index, start) = (at / row.len(), at % row.len());
            let end = row.len().min(start + elements.end - at);
            let outer = match self.middle.len() * self.inner.len() {
                1 => 1,
                _ => self.outer[index / before.len()],
            };
            let factor = outer.wrapping_mul(before[index % before.len()]);
            all.extend(row[start..end].iter().map(|own| own.wrapping_mul(factor)));
            at += end - start;
        }
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

    /// The one word that was asked for: the outcome, or the word that it selects.
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

    /// All words that were asked for: the outcome, the words where the value is negative, and those
    /// where it is not.
    pub fn into_words(self) -> Vec<S> {
        self.word.into_iter().chain(self.negative).chain(self.not_negative).collect()
    }
}

fn unasked(what: &str) -> Error {
    let reason = format!("the comparison did not ask for {what}");
    Error::Invalid { op: "compare", reason }
}
