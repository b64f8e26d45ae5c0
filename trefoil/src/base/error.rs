//! Errors, sorted by who has to act on them.

use std::{fmt::Display, io, path::Path, process::ExitCode};

/// The result of anything this program does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed. The kind decides the exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or argument that the user passed is not usable. Exit code 3.
    #[error("{what}: {reason}")]
    Input {
        /// The file or argument.
        what: String,
        /// The fault and the right form.
        reason: String,
    },
    /// A model's numbers do not fit the fraction bits with which it was planned; others may do. Exit code 3.
    #[error("{what}: {reason}")]
    Format {
        /// The model.
        what: String,
        /// The numbers that do not fit, and where.
        reason: String,
    },
    /// A configuration file, certificate or key is not usable. Exit code 4.
    #[error("{what}: {reason}")]
    Config {
        /// The file or setting.
        what: String,
        /// The fault and its remedy.
        reason: String,
    },
    /// A server does not answer. Exit code 5.
    #[error("{server}: {reason}")]
    Unreachable {
        /// The server and its address.
        server: String,
        /// The event and its remedy.
        reason: String,
    },
    /// A server is being stopped and takes no new jobs. Nothing was done. Exit code 5.
    #[error(
        "party {party}: it is being stopped and takes no new jobs; it does again once its operator has started it"
    )]
    Stopping {
        /// The number of the server.
        party: usize,
    },
    /// The servers answered that they will not, or could not, do the job. Exit code 6.
    #[error("{by}: {reason}")]
    Refused {
        /// Who refused.
        by: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Servers that prove their messages found that one of them did not follow the protocol. Nothing was revealed.
    /// Exit code 7.
    #[error("{}. Nothing was revealed. Ask the operators of these parties: they must find out which of them did it", said(.0))]
    Cheated(Vec<Accusation>),
    /// The guard of an answer shows that its numbers are wrong. Exit code 6.
    #[error(
        "values at layer `{layer}`{} left the range in which it is right: they are too large for fixed-point numbers, or \
         too small to be divided by. So the answer would be wrong; are the inputs such as the model was made for? Its \
         owner finds out with `trefoil model check`",
        also(*others)
    )]
    OutOfRange {
        /// The first such layer.
        layer: String,
        /// The number of further layers.
        others: usize,
    },
    /// The guard of a training shows that its numbers are wrong. Exit code 6.
    #[error(
        "values left the range of fixed-point numbers at `{layer}`{} by step {step}: the training has diverged; \
         begin again with a smaller rate, or with weights and data of a usual size",
        also(*others)
    )]
    Diverged {
        /// The step that was looked at, from 0.
        step: u32,
        /// The first value outside.
        layer: String,
        /// The number of further values.
        others: usize,
    },
    /// Files of a server's store, or of a copy of it, are damaged. Exit code 8.
    #[error("{what}: {reason}")]
    Damaged {
        /// The store or the copy.
        what: String,
        /// The names that are damaged, and what to do.
        reason: String,
    },
    /// This machine failed us: no room, no permission. Exit code 1.
    #[error("{what}: {cause}")]
    File {
        /// The file.
        what: String,
        /// The error from the operating system.
        cause: io::Error,
    },
    /// A session between the servers failed. Exit code 1.
    #[error(transparent)]
    Net(#[from] net::Error),
    /// Work on shares failed. Exit code 1.
    #[error(transparent)]
    Mpc(#[from] mpc_core::Error),
    /// A model's layer failed. Exit code 1.
    #[error(transparent)]
    Nn(#[from] nn_layers::Error),
    /// Local arithmetic failed. Exit code 1.
    #[error(transparent)]
    Ring(#[from] ring_arith::Error),
    /// Something that should not happen. Exit code 1.
    #[error("{0}")]
    Internal(String),
}

/// A server's word that one of two parties did not follow the protocol. It may be the one that lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accusation {
    /// The server that says so.
    pub by: usize,
    /// The parties of which it suspects one.
    pub suspects: [usize; 2],
    /// The check that showed it.
    pub step: String,
}

impl Error {
    /// An [`Error::Format`].
    pub fn format(what: impl Display, reason: impl Display) -> Self {
        Self::Format { what: what.to_string(), reason: reason.to_string() }
    }

    /// An [`Error::Input`].
    pub fn input(what: impl Display, reason: impl Display) -> Self {
        Self::Input { what: what.to_string(), reason: reason.to_string() }
    }

    /// An [`Error::Config`].
    pub fn config(what: impl Display, reason: impl Display) -> Self {
        Self::Config { what: what.to_string(), reason: reason.to_string() }
    }

    /// An [`Error::Refused`].
    pub fn refused(by: impl Display, reason: impl Display) -> Self {
        Self::Refused { by: by.to_string(), reason: reason.to_string() }
    }

    /// An [`Error::Damaged`].
    pub fn damaged(what: impl Display, reason: impl Display) -> Self {
        Self::Damaged { what: what.to_string(), reason: reason.to_string() }
    }

    /// The error of another member's parcel or release: an [`Error::Refused`] with the reason alone.
    pub(crate) fn refused_parcel(by: impl Display, error: mpc_core::Error) -> Self {
        match error {
            mpc_core::Error::Invalid { reason, .. } => Self::refused(by, reason),
            other => other.into(),
        }
    }

    /// An [`Error::File`] that names the path.
    pub fn file(path: &Path, cause: io::Error) -> Self {
        Self::File { what: path.display().to_string(), cause }
    }

    /// The word that `--json` shows for this kind of error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Input { .. } | Self::Format { .. } => "input",
            Self::Config { .. } | Self::Net(net::Error::Config { .. }) => "config",
            Self::Unreachable { .. } | Self::Stopping { .. } => "unreachable",
            Self::Refused { .. } => "refused",
            Self::Cheated(_) => "cheated",
            Self::Damaged { .. } => "damaged",
            Self::OutOfRange { .. } | Self::Diverged { .. } => "out-of-range",
            _ => "failed",
        }
    }

    /// The number that the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input { .. } | Self::Format { .. } => 3,
            Self::Config { .. } | Self::Net(net::Error::Config { .. }) => 4,
            Self::Unreachable { .. } | Self::Stopping { .. } => 5,
            Self::Refused { .. } | Self::OutOfRange { .. } | Self::Diverged { .. } => 6,
            Self::Cheated(_) => 7,
            Self::Damaged { .. } => 8,
            _ => 1,
        }
    }
}

fn said(accusations: &[Accusation]) -> String {
    let one = |Accusation { by, suspects: [first, second], step }: &Accusation| {
        format!(
            "party {by} says that party {first} or party {second} did not follow the protocol ({step})"
        )
    };
    accusations.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn also(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and one more".to_owned(),
        many => format!(" and {many} more"),
    }
}

impl From<&Error> for ExitCode {
    fn from(error: &Error) -> Self {
        Self::from(error.exit_code())
    }
}
