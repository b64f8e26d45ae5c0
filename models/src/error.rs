//! What can go wrong in reading models and data.

use std::path::PathBuf;

/// The result of reading a model or data.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model or a data file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{what}: {reason}")]
    Format {
        /// The kind of file: `ONNX model`, `MNIST images`.
        what: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A model uses an operator that cannot be run.
    #[error("ONNX node `{node}`: operator {operator} is not supported{}", hint(reason))]
    Unsupported {
        /// The node's name.
        node: String,
        /// The operator.
        operator: String,
        /// Which use of it, if others are supported.
        reason: String,
    },
    /// A model's node is not valid.
    #[error("ONNX node `{node}` ({operator}): {reason}")]
    Node {
        /// The node's name.
        node: String,
        /// The operator.
        operator: String,
        /// What is wrong.
        reason: String,
    },
    /// The network could not be built or planned.
    #[error(transparent)]
    Network(#[from] nn_layers::Error),
}

impl Error {
    /// An [`Error::Format`] with its reason.
    pub fn format(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Format { what, reason: reason.into() }
    }
}

fn hint(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" {reason}") }
}

/// Reads a file whole.
pub(crate) fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}
