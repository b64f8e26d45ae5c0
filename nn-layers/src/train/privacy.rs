//! Differential privacy of a training's rows: gradients clipped for each example, and noise on their sum.

pub(super) mod accountant;
pub(super) mod gradients;

use serde::{Deserialize, Serialize};

use self::accountant::Accountant;
use crate::{Error, Result};

/// DP-SGD ([ACG+16]). The gradient of each example, over all trained tensors together, is scaled down to a norm
/// of at most `clip`. Gaussian noise is added to the sum of a step.
///
/// No server and no client knows the noise: every server draws a part of it
/// ([`mpc_core::functions::gaussian`]). The noise of any two of three servers has a standard deviation of
/// `noise * clip`; the noise of all has `sqrt(3/2)` times as much.
///
/// # Sensitivity
/// A unit adds words with a norm of at most `clip` to the sum. This holds for any gradient, also one whose
/// values left their range. Clipping at `127/128` of `clip` accounts for roundings. A unit whose gradient is
/// more than 4096 times as long as `clip` adds nothing. The noise is added to the exact words of the sum,
/// before anything is rounded.
///
/// [ACG+16]: https://arxiv.org/abs/1607.00133
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Privacy {
    /// The largest norm of a unit's gradient.
    pub clip: f64,
    /// The noise multiplier: the standard deviation of the noise over `clip`.
    pub noise: f64,
    /// Rows of a unit, one after the other in a batch, whose mean gradient is clipped: 1 for each example.
    /// Larger units cost less where weights are many, but one row can turn its unit's whole gradient around: it
    /// is protected as with half the noise.
    #[serde(default = "one")]
    pub rows: usize,
    /// The delta at which epsilon is stated.
    #[serde(default = "delta")]
    pub delta: f64,
}

fn one() -> usize {
    1
}

fn delta() -> f64 {
    1e-5
}

/// A unit is clipped at this part of the limit; with all roundings it stays below the limit: `1 + 2^-17 + 2^-10`
/// for the factor (`ops/clip.rs`) and `2^-8` for the rounding of its operand are below `128 / 127`.
const ROUNDED: f64 = 127.0 / 128.0;

/// The most units of a step, whose sum and noise must have an encoding.
const MOST_UNITS: usize = 1 << 14;

/// The limits of the noise multiplier.
const NOISE: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// The limits of the clip norm.
const CLIP: std::ops::RangeInclusive<f64> = 1e-4..=1024.0;

/// The most that a step may move a weight, with ten deviations of noise.
const LARGEST_STEP: f64 = 32.0;

impl Privacy {
    /// Each example's gradient clipped to a norm, and this noise multiplier; epsilon is stated at a delta of
    /// `1e-5`.
    pub fn new(clip: f64, noise: f64) -> Self {
        Self { clip, noise, rows: one(), delta: delta() }
    }

    /// The same with epsilon stated at another delta.
    #[must_use]
    pub fn with_delta(self, delta: f64) -> Self {
        Self { delta, ..self }
    }

    /// The privacy loss of a row that takes part in `uses` steps, at most once in each; everybody may know in
    /// which.
    ///
    /// # Errors
    /// As [`Accountant::add_known`].
    pub fn accountant(&self, uses: u32) -> Result<Accountant> {
        let mut accountant = Accountant::default();
        accountant.add_known(self.multiplier(), uses)?;
        Ok(accountant)
    }

    /// Epsilon of [`Privacy::accountant`].
    ///
    /// # Errors
    /// As [`Accountant::add_known`] and [`Accountant::epsilon`].
    pub fn epsilon(&self, uses: u32) -> Result<f64> {
        self.accountant(uses)?.epsilon(self.delta)
    }

    /// The same for the mean gradients of several rows one after the other.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// The noise multiplier that protects a row: the noise of the sum over the norm by which one row can change
    /// the sum. Without a row, the rest of a larger unit remains, and its gradient may point anywhere.
    pub fn multiplier(&self) -> f64 {
        if self.rows == 1 { self.noise } else { self.noise / 2.0 }
    }

    /// Units of a batch.
    pub(super) fn units(&self, batch: usize) -> usize {
        batch / self.rows.max(1)
    }

    /// The standard deviation of the noise that any two servers add, in units of the sum.
    pub(super) fn deviation(&self) -> f64 {
        self.noise / ROUNDED
    }

    /// The gradient of the sum of the batch's losses that a unit of the sum is.
    pub(super) fn unit(&self) -> f64 {
        ROUNDED * self.clip * self.rows as f64
    }

    /// Bits by which gradients have fewer fraction bits, so that those of a small limit keep their range.
    pub(super) fn shift(&self) -> i32 {
        self.unit().log2().floor() as i32
    }

    pub(super) fn check(&self, batch: usize, largest_rate: f64) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("privacy", reason));
        let Self { clip, noise, rows, delta } = *self;
        if !(delta > 0.0 && delta < 1.0) {
            return invalid(format!("a delta of {delta} is not between 0 and 1"));
        }
        if !CLIP.contains(&clip) || !NOISE.contains(&noise) {
            return invalid(format!(
                "a clip norm of {clip} and a noise multiplier of {noise}; {CLIP:?} and {NOISE:?} are possible"
            ));
        }
        if rows == 0 || !batch.is_multiple_of(rows) || batch / rows > MOST_UNITS {
            return invalid(format!(
                "units of {rows} rows do not divide a batch of {batch} into 1 to {MOST_UNITS}"
            ));
        }
        let step = largest_rate * clip * (1.0 + 10.0 * noise / self.units(batch) as f64);
        if step > LARGEST_STEP {
            return invalid(format!(
                "a step at the learning rate {largest_rate} may be {step:.0} long, more than {LARGEST_STEP}: take \
                 a smaller rate, less noise or a larger batch"
            ));
        }
        Ok(())
    }
}
