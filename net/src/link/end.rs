//! The ways in which a connection ends.

use std::{io, time::Duration};

use crate::{
    Error, Party,
    hello::Difference,
    life::{self, LastWords},
};

/// The ways in which a link ends.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// The peer closed in order.
    Closed,
    /// The peer left without a local error.
    Left(String),
    /// The peer ended the session.
    Cancelled(String),
    /// The peer ended the session since a party, named by number, broke the protocol.
    Accused(Party, String),
    /// The peer knows of two parties that were started for different jobs.
    Mismatch(Difference),
    /// The network failed.
    Failed(io::ErrorKind, String),
    /// Nothing came for this time.
    Stalled(Duration),
    /// The peer sent what no correct peer sends.
    Violation(String),
    /// This side ended it.
    Dropped,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let what = "the peer's process ended or dropped the connection";
                Self::Failed(io::ErrorKind::UnexpectedEof, what.to_owned())
            }
            kind => Self::Failed(kind, error.to_string()),
        }
    }
}

impl End {
    /// True if the whole session is over, and not this link alone.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, Self::Closed | Self::Left(_))
    }

    /// The error for a party of a session.
    pub(crate) fn error(self, peer: Party, step: &str) -> Error {
        let step = step.to_owned();
        match self {
            Self::Closed => Error::Violation { peer, step, reason: life::CLOSED_EARLY.to_owned() },
            Self::Left(reason) | Self::Cancelled(reason) => Error::Cancelled { by: peer, reason },
            Self::Accused(accused, reason) => LastWords::Accused(accused, reason).error(peer),
            Self::Mismatch(difference) => {
                let reason = format!("{difference:?} after the start");
                Error::Violation { peer, step, reason }
            }
            Self::Failed(kind, cause) => {
                Error::Link { peer, step, cause: io::Error::new(kind, cause) }
            }
            Self::Stalled(waited) => Error::Stalled { peer, step, waited },
            Self::Violation(reason) => Error::Violation { peer, step, reason },
            Self::Dropped => Error::Dead("this party has dropped the link".to_owned()),
        }
    }

    /// The reason alone, for logs and for channels.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Closed => "closed by the other side".to_owned(),
            Self::Left(reason) | Self::Cancelled(reason) | Self::Accused(_, reason) => {
                reason.clone()
            }
            Self::Mismatch(_) => "parties were started for different jobs".to_owned(),
            Self::Failed(_, cause) => cause.clone(),
            Self::Stalled(waited) => format!("nothing came for {waited:?}"),
            Self::Violation(reason) => format!("sent {reason}"),
            Self::Dropped => "dropped by this side".to_owned(),
        }
    }
}
