//! Plans: the limbs of words, the products that matter, the largest depth of an exact sum.

use std::fmt;

use crate::{Error, Result};

/// Bits of a word.
const WORD: u32 = 64;

/// The unit that multiplies the limbs and adds up the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Limbs and sums in `f64`, whose significand has 53 bits.
    F64,
    /// Limbs in `f16` (11 bits), sums in `f32` (24 bits).
    F16,
    /// Limbs in `bf16` (8 bits), sums in `f32` (24 bits).
    Bf16,
    /// Limbs in eight-bit integers, sums in 32-bit integers that wrap: `u8` and `u32` for
    /// [`Digits::Unsigned`], `i8` and `i32` for [`Digits::Balanced`].
    Int8,
}

/// The values a limb takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digits {
    /// From 0 to `2^w - 1`.
    Unsigned,
    /// From `-2^(w-1)` to `2^(w-1) - 1`; the excess above the range is carried to the next limb,
    /// and the carry of the last limb, a multiple of 2^64, is dropped. A sum of products holds four
    /// times the terms of an unsigned one, less the sign's bit.
    Balanced,
}

/// The products that share an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// None: one accumulator for each pair of limbs.
    Pairs,
    /// All products of one weight, which form a diagonal of the table of pairs. Each limb has one
    /// accumulator, and the bound on K is smaller by up to the number of limbs.
    Diagonals,
}

/// One accumulator of a plan: the products that it sums, and their common weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulator {
    /// Its sum counts `2^shift`-fold in the result.
    pub shift: u32,
    /// The limb of the left operand and the limb of the right one, for each product.
    pub pairs: Vec<(usize, usize)>,
    /// The largest inner dimension for which it is exact; `None` if it may wrap, so that every
    /// depth is exact.
    pub largest_k: Option<usize>,
}

/// A plan: splits a word of 64 bits into limbs that a unit multiplies exactly, and recombines sums
/// to a word.
///
/// Let limbs be `w` bits wide, so that a word is `x = sum_i x_i 2^(iw)` modulo 2^64 with
/// `ceil(64 / w)` limbs, the last one of `64 - w * (limbs - 1)` bits. Then
///
/// `sum_k x_k y_k = sum_(i,j) 2^((i+j)w) sum_k x_(k,i) y_(k,j)` modulo 2^64,
///
/// and pairs with `(i + j) w >= 64` are zero. Of 4 limbs of 16 bits 10 of 16 pairs matter, of 3
/// limbs of 22 bits 6 of 9, of 8 limbs of 8 bits 36 of 64.
///
/// # How deep a sum is exact
///
/// Let `X_i` be the largest magnitude of limb `i`, and `M` the sum of `X_i X_j` over the pairs of
/// one accumulator.
///
/// *Floating point with a significand of `p` bits* (53 in `f64`, 24 in `f32`). Every integer of
/// magnitude up to `2^p` is a number of the format. Each product, and each sum of some products, in
/// any order and grouping of a GEMM, is an integer of magnitude at most `K M`. So if `K M <= 2^p`,
/// additions never round, fused or not, and the result is exact: the bound is `K = floor(2^p / M)`.
/// It is tight: for `K + 1` some operands have a sum that is odd and above `2^p`, and the format
/// cannot hold such a number. (A unit that adds in `f32` must round only when it has to, as tensor
/// cores do for integers below 2^24.)
///
/// *Wrapping 32-bit integers.* The sum is known modulo 2^32, with weight `2^s`. If `s >= 32` then
/// `2^s 2^32` is a multiple of 2^64: wrapping loses nothing, and the depth is not bounded.
/// Otherwise the sum itself must fit. Unsigned, it lies in `[0, K M]`, so
/// `K = floor((2^32 - 1) / M)`. Balanced, it lies in `[-K M, K M]`. Digits that are all `-2^(w-1)`
/// reach the upper end, so `K = floor((2^31 - 1) / M)`. One step further the extreme sum is off by
/// `2^(32 + s)`, which is not a multiple of 2^64.
///
/// For 8 limbs of 8 bits on 8 diagonals the limit is the diagonal of weight 2^24, which has four
/// pairs: `floor((2^32 - 1) / (4 * 255^2)) = 16512`, balanced `floor((2^31 - 1) / (4 * 128^2)) =
/// 32767`.
///
/// The idea is that of CryptGPU (Tan, Knott, Tian and Wu, IEEE S&P 2021, section II-B), which has
/// four limbs of 16 bits in `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimbPlan {
    unit: Unit,
    limb_bits: u32,
    digits: Digits,
    merge: Merge,
}

impl LimbPlan {
    /// Four limbs of 16 bits in `f64`, ten products, exact to K = 524,304.
    pub const F64_4X16: LimbPlan = Self::unchecked(Unit::F64, 16, Digits::Unsigned);
    /// Four balanced limbs of 16 bits in `f64`, ten products, exact to K = 2^21.
    pub const F64_4X16_BALANCED: LimbPlan = Self::unchecked(Unit::F64, 16, Digits::Balanced);
    /// Three limbs of 22, 22 and 20 bits in `f64`, six products, exact to K = 256.
    pub const F64_3X22: LimbPlan = Self::unchecked(Unit::F64, 22, Digits::Unsigned);
    /// Three balanced limbs of 22, 22 and 20 bits in `f64`, six products, exact to K = 1024.
    pub const F64_3X22_BALANCED: LimbPlan = Self::unchecked(Unit::F64, 22, Digits::Balanced);
    /// Eight limbs of eight bits in `u8`, sums in `u32`, 36 products, exact to K = 16,512.
    pub const U8_8X8: LimbPlan = Self::unchecked(Unit::Int8, 8, Digits::Unsigned);
    /// Eight balanced limbs in `i8`, sums in `i32`, 36 products, exact to K = 32,767.
    pub const I8_8X8: LimbPlan = Self::unchecked(Unit::Int8, 8, Digits::Balanced);
    /// Eight balanced limbs of eight bits in `bf16`, 36 products, exact to K = 128.
    pub const BF16_8X8: LimbPlan = Self::unchecked(Unit::Bf16, 8, Digits::Balanced);
    /// Six balanced limbs of eleven bits (the last of nine) in `f16`, 21 products, exact to K = 3.
    pub const F16_6X11: LimbPlan = Self::unchecked(Unit::F16, 11, Digits::Balanced);
    /// Eight balanced limbs of eight bits in `f16`, 36 products, exact to K = 128.
    pub const F16_8X8: LimbPlan = Self::unchecked(Unit::F16, 8, Digits::Balanced);

    /// The named plans.
    pub const NAMED: [LimbPlan; 9] = [
        Self::F64_4X16,
        Self::F64_4X16_BALANCED,
        Self::F64_3X22,
        Self::F64_3X22_BALANCED,
        Self::U8_8X8,
        Self::I8_8X8,
        Self::BF16_8X8,
        Self::F16_6X11,
        Self::F16_8X8,
    ];

    const fn unchecked(unit: Unit, limb_bits: u32, digits: Digits) -> LimbPlan {
        LimbPlan { unit, limb_bits, digits, merge: Merge::Diagonals }
    }

    /// A plan for any width of limb, from one bit upwards.
    ///
    /// # Errors
    /// [`Error::TooWide`] if the unit's operands cannot hold every limb exactly;
    /// [`Error::NeverExact`] if some accumulator cannot hold the products of K = 1.
    pub fn new(unit: Unit, limb_bits: u32, digits: Digits, merge: Merge) -> Result<LimbPlan> {
        let widest = widest_limb(unit, digits);
        if limb_bits == 0 || limb_bits > widest {
            return Err(Error::TooWide { unit, limb_bits, widest });
        }
        let plan = LimbPlan { unit, limb_bits, digits, merge };
        if plan.largest_k() == 0 {
            return Err(Error::NeverExact { unit, limb_bits });
        }
        Ok(plan)
    }

    /// The same plan with products merged otherwise.
    ///
    /// # Errors
    /// [`Error::NeverExact`] if an accumulator of all products of one weight cannot hold those of
    /// K = 1.
    pub fn with_merge(self, merge: Merge) -> Result<LimbPlan> {
        Self::new(self.unit, self.limb_bits, self.digits, merge)
    }

    /// The unit that multiplies.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The values of a limb.
    pub fn digits(&self) -> Digits {
        self.digits
    }

    /// The products that share an accumulator.
    pub fn merge(&self) -> Merge {
        self.merge
    }

    /// The distance of neighbouring limbs in bits. The last limb may be narrower.
    pub fn limb_bits(&self) -> u32 {
        self.limb_bits
    }

    /// Limbs of a word.
    pub fn limbs(&self) -> usize {
        WORD.div_ceil(self.limb_bits) as usize
    }

    /// Bits of limb `i`.
    ///
    /// # Panics
    /// If `i` is not below the number of limbs.
    pub fn width(&self, i: usize) -> u32 {
        assert!(i < self.limbs(), "limb {i} of {}", self.limbs());
        self.limb_bits.min(WORD - self.limb_bits * i as u32)
    }

    /// The largest magnitude of limb `i`: `2^width - 1`, or `2^(width - 1)` of a negative balanced
    /// one.
    ///
    /// # Panics
    /// If `i` is not below the number of limbs.
    pub fn largest_limb(&self, i: usize) -> u64 {
        match self.digits {
            Digits::Unsigned => u64::MAX >> (WORD - self.width(i)),
            Digits::Balanced => 1 << (self.width(i) - 1),
        }
    }

    /// The pairs of limbs whose product matters modulo 2^64, by rising weight.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        (0..self.limbs()).flat_map(|d| (0..=d).map(move |i| (i, d - i))).collect()
    }

    /// The accumulators, by rising weight. Together they take in all [`LimbPlan::pairs`].
    pub fn accumulators(&self) -> Vec<Accumulator> {
        let pairs = self.pairs();
        let groups = match self.merge {
            Merge::Pairs => pairs.chunks(1).map(<[_]>::to_vec).collect::<Vec<_>>(),
            Merge::Diagonals => {
                pairs.chunk_by(|a, b| a.0 + a.1 == b.0 + b.1).map(<[_]>::to_vec).collect()
            }
        };
        let accumulator = |pairs: Vec<(usize, usize)>| {
            let shift = (pairs[0].0 + pairs[0].1) as u32 * self.limb_bits;
            Accumulator { shift, largest_k: self.bound(shift, &pairs), pairs }
        };
        groups.into_iter().map(accumulator).collect()
    }

    /// The largest inner dimension for which every accumulator is exact.
    pub fn largest_k(&self) -> usize {
        let bounds = self.accumulators().into_iter().filter_map(|sum| sum.largest_k);
        bounds.min().unwrap_or(usize::MAX)
    }

    /// The bound of one accumulator; see [`LimbPlan`] for the proof.
    fn bound(&self, shift: u32, pairs: &[(usize, usize)]) -> Option<usize> {
        let product = |&(i, j): &(usize, usize)| {
            u128::from(self.largest_limb(i)) * u128::from(self.largest_limb(j))
        };
        let step: u128 = pairs.iter().map(product).sum();
        let largest_sum: u128 = match (self.unit, self.digits) {
            (Unit::F64, _) => 1 << f64::MANTISSA_DIGITS,
            (Unit::F16 | Unit::Bf16, _) => 1 << f32::MANTISSA_DIGITS,
            (Unit::Int8, _) if shift >= u32::BITS => return None,
            (Unit::Int8, Digits::Unsigned) => u32::MAX.into(),
            (Unit::Int8, Digits::Balanced) => i32::MAX.unsigned_abs().into(),
        };
        Some(usize::try_from(largest_sum / step).unwrap_or(usize::MAX))
    }
}

/// Bits of the widest limb that the unit's operands hold exactly: those of the significand, and
/// one more for balanced digits, whose largest magnitude is a power of two.
fn widest_limb(unit: Unit, digits: Digits) -> u32 {
    let significand = match unit {
        Unit::F64 => f64::MANTISSA_DIGITS,
        Unit::F16 => half::f16::MANTISSA_DIGITS,
        Unit::Bf16 => half::bf16::MANTISSA_DIGITS,
        // The sign takes the bit that the power of two would give.
        Unit::Int8 => return 8,
    };
    match digits {
        Digits::Unsigned => significand,
        Digits::Balanced => significand + 1,
    }
}

/// For instance `f64 4x16 unsigned, by diagonals`.
impl fmt::Display for LimbPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match (self.unit, self.digits) {
            (Unit::F64, _) => "f64",
            (Unit::F16, _) => "f16",
            (Unit::Bf16, _) => "bf16",
            (Unit::Int8, Digits::Unsigned) => "u8",
            (Unit::Int8, Digits::Balanced) => "i8",
        };
        let digits = match self.digits {
            Digits::Unsigned => "unsigned",
            Digits::Balanced => "balanced",
        };
        let merge = match self.merge {
            Merge::Pairs => "pair by pair",
            Merge::Diagonals => "by diagonals",
        };
        write!(f, "{unit} {}x{} {digits}, {merge}", self.limbs(), self.limb_bits)
    }
}
