//! Errors of building, planning or running a network.

/// The result of work on a network.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a network: it was refused, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The protocol below failed.
    #[error(transparent)]
    Mpc(#[from] mpc_core::Error),
    /// Local arithmetic refused its operands.
    #[error(transparent)]
    Ring(#[from] ring_arith::Error),
    /// One node of a network is not acceptable.
    #[error("node `{node}`: {reason}")]
    Node {
        /// The node's name.
        node: String,
        /// The fault, and the correct form.
        reason: String,
    },
    /// An operation refused its operands or attributes.
    #[error("{op}: {reason}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// The fault, and the correct form.
        reason: String,
    },
    /// A plan that was read from outside does not hold together.
    #[error("plan: {reason}")]
    Plan {
        /// The mismatch.
        reason: String,
    },
    /// A machine of a party's crew is missing, or does something else than this one.
    #[error("machine {rank} of the crew {reason}")]
    Crew {
        /// The machine's number.
        rank: usize,
        /// The fault, and the correct form.
        reason: String,
    },
    /// An argument of a caller does not fit the plan.
    #[error("{what} `{name}`: {reason}")]
    Argument {
        /// `input`, `weight` or `output`.
        what: &'static str,
        /// Its name in the plan.
        name: String,
        /// The mismatch.
        reason: String,
    },
}

impl Error {
    /// An [`Error::Invalid`] with its reason.
    pub fn invalid(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { op, reason: reason.into() }
    }

    /// An [`Error::Plan`] with its reason.
    pub(crate) fn plan(reason: impl Into<String>) -> Self {
        Self::Plan { reason: reason.into() }
    }

    /// The same error with the node that caused it, unless it already names one.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        let node = node.to_owned();
        match self {
            Self::Invalid { op, reason } => Self::Node { node, reason: format!("{op}: {reason}") },
            Self::Ring(e) => Self::Node { node, reason: e.to_string() },
            other => other,
        }
    }
}
