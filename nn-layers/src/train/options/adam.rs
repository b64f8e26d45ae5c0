//! Adam's options.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Adam as in PyTorch, with one difference. Gradients below about `2^-21` are mostly rounding, so that their weights
/// move by less than in floats. [`crate::train::TrainPlan::inspect`] shows by how much.
///
/// First moments are kept times a public factor near 1 that changes from step to step, so that the part that
/// continues is always a multiple of 1/32. The gradient can then be found in the new first moment without another
/// truncation, and any first decay costs the same (`update/adam/moment_factors.rs`).
///
/// Gradients of the batch's mean loss above 20 in magnitude leave the range of their squares, which a guard notices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// The parts of first and second moment that go on. The first is 0 or from 1/32 to below 1.
    pub betas: [f64; 2],
    /// Keeps the smallest second moments from making large steps.
    pub epsilon: f64,
    /// Times the weight: added to the gradient, or taken from the weight if `decoupled`.
    pub decay: f64,
    /// True if the decay leaves the moments alone, as in AdamW.
    pub decoupled: bool,
    /// The gradients that share a second moment.
    pub second: Second,
    /// Steps from one inverse root of the second moments to the next; in the first 16, steps 1, 2, 4 and 8 have
    /// one as well. A gradient whose second moment was 0 at the last root is divided by `epsilon` alone, which
    /// should not be small then.
    pub every: u32,
    /// True if steps follow the largest second moment so far, as in AMSGrad.
    pub amsgrad: bool,
}

/// The gradients that share a second moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Second {
    /// Each weight has a separate one, as published. An inverse root for each weight is by far the largest part
    /// of a step.
    Weight,
    /// All weights of an output neuron or of a filter; vectors, such as biases, element by element.
    Row,
}

impl Default for Adam {
    /// PyTorch's numbers.
    fn default() -> Self {
        Self {
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: 0.0,
            decoupled: false,
            second: Second::Weight,
            every: 1,
            amsgrad: false,
        }
    }
}

/// Fraction bits by which the part of a first moment that continues exceeds it: their difference is the
/// gradient.
pub(in crate::train) const BETA_BITS: u32 = 5;

/// The parts of first moments that continue are multiples of one over this number.
pub(in crate::train) const PARTS: f64 = (1 << BETA_BITS) as f64;

/// The factor of a gradient of the batch's mean loss in the first moment, in addition to `1 - beta`. Its square
/// is summed over 256 weights, and the mean stays below 1 up to gradients of 2.6.
const UNIT: f64 = 4.0;

impl Adam {
    pub(in crate::train) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("optimiser", reason));
        let [first, second] = self.betas;
        if !(0.0..1.0).contains(&first) || !(0.0..1.0).contains(&second) {
            return invalid(format!("betas are from 0 to below 1, not {:?}", self.betas));
        }
        if first > 0.0 && first < 1.0 / PARTS {
            return invalid(format!("the first beta is 0 or at least 1/32, not {first}"));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0 && (0.0..=1.0).contains(&self.decay)) {
            return invalid(format!(
                "epsilon {} is not between 0 and 1, or decay {} not up to 1",
                self.epsilon, self.decay
            ));
        }
        if self.every == 0 {
            return invalid("roots are made every 0 steps; 1 is for each".to_owned());
        }
        Ok(())
    }

    /// Fraction bits of first moments. A row's sum of squares needs room.
    pub(in crate::train) fn first_frac(&self) -> u32 {
        match self.second {
            Second::Weight => 23,
            Second::Row => 22,
        }
    }

    /// Fraction bits of the part of a first moment that continues.
    pub(in crate::train) fn kept_frac(&self) -> u32 {
        self.first_frac() + BETA_BITS
    }

    /// The factor of gradients of the batch's mean loss, which a step multiplies by that of its first moments.
    pub(in crate::train) fn unit(&self) -> f64 {
        let nearest = (self.betas[0] * PARTS).round().min(PARTS - 1.0) / PARTS;
        (1.0 - nearest) * UNIT
    }

    /// True if a step computes new inverse roots.
    pub(in crate::train) fn refreshes(&self, number: u32) -> bool {
        self.last_refresh(number) == number
    }

    /// The last step up to this one in which the inverse roots are made.
    pub(in crate::train) fn last_refresh(&self, number: u32) -> u32 {
        let count = number + 1;
        let regular = count / self.every * self.every;
        let early = 1 << count.min(8).ilog2();
        regular.max(early) - 1
    }
}
