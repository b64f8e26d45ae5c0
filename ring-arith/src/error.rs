//! The errors of local ring arithmetic.

use crate::Shape;

/// The result of a local operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a local operation was refused. Nothing is computed when one of these is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands do not fit together.
    #[error("{op}: shapes {lhs:?} and {rhs:?} do not fit")]
    Shapes {
        /// The operation.
        op: &'static str,
        /// The first operand's shape.
        lhs: Shape,
        /// The second operand's shape.
        rhs: Shape,
    },
    /// One operand, or an attribute of the operation, is not acceptable.
    #[error("{op}: {reason}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// The wrong value and the expected one.
        reason: String,
    },
    /// A real number that cannot be encoded in fixed point.
    #[error(
        "element {index} is {value}, outside the range [{low}, {high}] of {frac_bits} fraction bits"
    )]
    OutOfRange {
        /// Position in the flattened input.
        index: usize,
        /// The offending value; NaN and infinities are refused too.
        value: f64,
        /// Smallest value that can be encoded.
        low: f64,
        /// Largest value that can be encoded.
        high: f64,
        /// Fraction bits of the encoding.
        frac_bits: u32,
    },
    /// The device failed; the text names the call and a remedy.
    #[error("{device}: {reason}")]
    Device {
        /// The device.
        device: String,
        /// The failed call.
        reason: String,
    },
}

impl Error {
    /// An [`Error::Invalid`] with its reason.
    pub fn invalid(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { op, reason: reason.into() }
    }
}
