//! Errors in reading models and data.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
        source: io::Error,
    },
    /// A file does not have the expected format.
    #[error("{what}: {reason}")]
    Format {
        /// The kind of file: `ONNX model`, `MNIST images`.
        what: &'static str,
        /// The fault, and the accepted form.
        reason: String,
    },
    /// A model uses an operator that cannot be run.
    #[error("ONNX node `{node}`: operator {operator} is not supported{}", hint(reason))]
    Unsupported {
        /// The node's name.
        node: String,
        /// The operator.
        operator: String,
        /// The unsupported use of it, if other uses are supported.
        reason: String,
    },
    /// A model's node is not valid.
    #[error("ONNX node `{node}` ({operator}): {reason}")]
    Node {
        /// The node's name.
        node: String,
        /// The operator.
        operator: String,
        /// The fault.
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

/// The most bytes that are read from a source without a length, such as a pipe or a device: some are endless.
const MAX_STREAM: u64 = 2 << 30;

/// Reads a file whole.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, MAX_STREAM).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Reads a whole file. From a source without a length it reads at most `most` bytes.
fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() {
        return std::fs::read(path);
    }
    let mut bytes = vec![];
    Read::by_ref(&mut file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("has no length, and more than {} MiB came", most >> 20);
        return Err(io::Error::other(reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_is_not_read_for_ever() {
        let error = read_up_to(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("more than 1 MiB came"), "{error}");
    }
}
