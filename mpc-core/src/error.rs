//! The errors of work on shares.

use net::Party;
use ring_arith::Shape;

/// The result of an operation on shares.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on shares failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Local arithmetic refused its operands.
    #[error(transparent)]
    Ring(#[from] ring_arith::Error),
    /// The network or a peer failed; the session is dead.
    #[error(transparent)]
    Net(#[from] net::Error),
    /// A peer did not follow the protocol; the session is dead. One of two lied.
    #[error("{} or {} did not follow the protocol: {step}", .suspects[0], .suspects[1])]
    Cheated {
        /// The parties of which one lied.
        suspects: [Party; 2],
        /// The check that showed it.
        step: String,
    },
    /// Operands have different fraction bits.
    #[error("{op}: operands have {lhs} and {rhs} fraction bits; rescale one of them")]
    FracBits {
        /// The operation.
        op: &'static str,
        /// The first operand's.
        lhs: u32,
        /// The second operand's.
        rhs: u32,
    },
    /// The result may not fit the ring.
    #[error("{op}: a result of {bits} bits does not fit; at most {limit} do")]
    Overflow {
        /// The operation.
        op: &'static str,
        /// Bits the result may have, sign included.
        bits: u32,
        /// Bits it may have at most.
        limit: u32,
    },
    /// An attribute or shape is not acceptable.
    #[error("{op}: {reason}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// The wrong value and the expected one.
        reason: String,
    },
    /// The protocol, or a session with its options, lacks the operation.
    #[error("{protocol}: {op} is not supported: {reason}")]
    Unsupported {
        /// The protocol's name.
        protocol: &'static str,
        /// The operation.
        op: &'static str,
        /// Why, and what to do instead.
        reason: &'static str,
    },
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
}

impl Error {
    /// A protocol answered with fewer tensors than it was asked for.
    pub fn unanswered(op: &'static str) -> Self {
        let reason = "the protocol answered with fewer tensors than asked for".into();
        Self::Invalid { op, reason }
    }
}
