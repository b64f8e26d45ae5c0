//! The fraction bits of a network's values.

use serde::{Deserialize, Serialize};

/// The fraction bits that an operation leaves where it rounds. [`Formats`] has the number for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// Those of inputs and activations.
    #[default]
    Value,
    /// Those of values, less this number.
    CoarserValue(u32),
    /// Those of weights that are trained.
    Weight,
    /// Those of weights, less this number.
    Coarser(u32),
    /// Those of gradients.
    Gradient,
    /// Those of gradients, less this number.
    CoarserGradient(u32),
    /// Exactly this number.
    Fixed(u32),
    /// All that the operation has: nothing is rounded.
    Exact,
}

impl Format {
    /// The format that becomes this one when the point moves by `bits` bits.
    pub(crate) fn coarser(self, bits: u32) -> Option<Self> {
        match (self, bits) {
            (same, 0) => Some(same),
            (Self::Weight, bits) if bits <= 8 => Some(Self::Coarser(bits)),
            (Self::Fixed(own), bits) if bits <= 8 => Some(Self::Fixed(own.saturating_sub(bits))),
            _ => None,
        }
    }
}

/// Fraction bits of the tensors of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Formats {
    /// Fraction bits of inputs and activations.
    pub values: u32,
    /// Fraction bits of weights and momenta.
    pub weights: u32,
    /// Fraction bits of gradients of the sum of the batch's losses. The plan's gradients are these times the
    /// learning rate and have more, by as much as the rate makes them smaller.
    pub gradients: u32,
}

impl Default for Formats {
    fn default() -> Self {
        Self { values: 20, weights: 26, gradients: 24 }
    }
}

impl Formats {
    /// The same fraction bits for all, as in inference.
    pub(crate) fn of_values(frac: u32) -> Self {
        Self { values: frac, weights: frac, gradients: frac }
    }
}
