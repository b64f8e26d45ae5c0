//! Real numbers as fixed-point words.

use crate::{Error, Result};

/// Number of fraction bits, 1 to 40.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FracBits(u32);

impl FracBits {
    /// The default of CryptGPU: 20 bits.
    pub const DEFAULT: Self = Self(20);

    /// Checks the number of bits.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless it is 1 to 40.
    pub fn new(bits: u32) -> Result<Self> {
        match bits {
            1..=40 => Ok(Self(bits)),
            _ => Err(Error::invalid("fraction bits", format!("{bits} is not in 1..=40"))),
        }
    }

    /// The number.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// The fixed-point code with a given number of fraction bits: `x` is stored as the integer nearest
/// to `x * 2^frac`, ties to even, in two's complement; `|x * 2^frac| < 2^62`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint(pub FracBits);

impl FixedPoint {
    /// Encodes reals.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], naming the first index, for NaN, infinities and values out of range.
    pub fn encode(self, values: &[f64]) -> Result<Vec<u64>> {
        let scale = (1u64 << self.0.bits()) as f64;
        let limit = (1u64 << 62) as f64;
        let encode = |(index, &value): (usize, &f64)| {
            let scaled = (value * scale).round_ties_even();
            if scaled.abs() < limit {
                return Ok(scaled as i64 as u64);
            }
            let high = limit / scale;
            Err(Error::OutOfRange { index, value, low: -high, high, frac_bits: self.0.bits() })
        };
        values.iter().enumerate().map(encode).collect()
    }

    /// Decodes words.
    pub fn decode(self, words: &[u64]) -> Vec<f64> {
        let scale = (1u64 << self.0.bits()) as f64;
        words.iter().map(|&w| w as i64 as f64 / scale).collect()
    }
}
