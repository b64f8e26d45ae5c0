//! Errors: plans that the unit cannot compute exactly, operands that do not fit.

use crate::{LimbPlan, Unit};

/// Errors of this crate.
#[derive(Debug, thiserror::Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The limbs are too wide for the unit's operands.
    #[error("{unit:?} holds at most {widest} bits of these digits exactly, not {limb_bits}")]
    TooWide {
        /// The unit.
        unit: Unit,
        /// The width asked for.
        limb_bits: u32,
        /// The widest limb the unit can hold.
        widest: u32,
    },

    /// The accumulators cannot hold even one product exactly.
    #[error("a plan of {limb_bits}-bit limbs on {unit:?} is not exact for any inner dimension")]
    NeverExact {
        /// The unit.
        unit: Unit,
        /// The width asked for.
        limb_bits: u32,
    },

    /// Operands whose shapes cannot be multiplied.
    #[error("the product of shapes {lhs:?} and {rhs:?} is not defined; need [m, k] and [k, n]")]
    Shapes {
        /// Dimensions of the left operand.
        lhs: Vec<usize>,
        /// Dimensions of the right operand.
        rhs: Vec<usize>,
    },

    /// The number of words is not that of the matrix.
    #[error("{words} words do not fill a matrix of {rows} x {columns}")]
    Length {
        /// Words given.
        words: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
    },

    /// Limbs that were split by another plan.
    #[error("limbs of {found} meet limbs of {expected}")]
    Plans {
        /// The plan of the left operand.
        expected: LimbPlan,
        /// The plan of the right operand.
        found: LimbPlan,
    },

    /// An inner dimension past the bound of exactness.
    #[error("{plan} is exact up to an inner dimension of {largest}, not {k}; cut it into chunks")]
    TooDeep {
        /// The plan.
        plan: LimbPlan,
        /// The inner dimension asked for.
        k: usize,
        /// The bound.
        largest: usize,
    },

    /// The result cannot be a tensor.
    #[error(transparent)]
    Ring(#[from] ring_arith::Error),
}

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;
