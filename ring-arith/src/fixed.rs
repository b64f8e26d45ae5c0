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
        self.encode_all(values)
    }

    /// Encodes reals of single precision.
    ///
    /// # Errors
    /// As [`FixedPoint::encode`].
    pub fn encode_f32(self, values: &[f32]) -> Result<Vec<u64>> {
        self.encode_all(values)
    }

    /// Decodes words. Exact for the words that [`FixedPoint::encode`] makes; words of more than 53
    /// bits are rounded to the nearest.
    pub fn decode(self, words: &[u64]) -> Vec<f64> {
        let unit = 1.0 / (1u64 << self.0.bits()) as f64;
        words.iter().map(|&w| w as i64 as f64 * unit).collect()
    }

    /// Decodes words to the nearest reals of single precision.
    pub fn decode_f32(self, words: &[u64]) -> Vec<f32> {
        // Rounded once, by the conversion: a power of two only moves the exponent.
        let unit = 1.0 / (1u64 << self.0.bits()) as f32;
        words.iter().map(|&w| w as i64 as f32 * unit).collect()
    }

    /// Every real number of single precision is one of double precision.
    fn encode_all<F: Copy + Into<f64>>(self, values: &[F]) -> Result<Vec<u64>> {
        let scale = (1u64 << self.0.bits()) as f64;
        let limit = (1u64 << 62) as f64;
        let mut words = Vec::with_capacity(values.len());
        for (index, &value) in values.iter().enumerate() {
            let value = value.into();
            // Exact before it is rounded, since the scale is a power of two.
            let scaled = rounded(value * scale);
            // NaN is not below the limit.
            if scaled.abs() < limit {
                words.push(scaled as i64 as u64);
            } else {
                let (high, frac_bits) = (limit / scale, self.0.bits());
                return Err(Error::OutOfRange { index, value, low: -high, high, frac_bits });
            }
        }
        Ok(words)
    }
}

/// [`f64::round_ties_even`], which calls a function where the processor may lack the instruction.
fn rounded(value: f64) -> f64 {
    // Neighbours of 1.5 * 2^52 are whole numbers, so the sum is rounded to one.
    const WHOLE: f64 = 1.5 * (1u64 << 52) as f64;
    const EXACT: f64 = (1u64 << 51) as f64;
    if value.abs() <= EXACT { (value + WHOLE) - WHOLE } else { value.round_ties_even() }
}
