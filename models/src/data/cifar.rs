//! CIFAR-10, binary version.

use std::path::Path;

use nn_layers::HostTensor;

use super::Dataset;
use super::bytes::read_unpacked;
use crate::{Error, Result};

/// Bytes of one image: red, green and blue planes of 32 x 32.
const IMAGE: usize = 3 * 32 * 32;

const WHAT: &str = "CIFAR-10 file";

/// Reads a file of CIFAR-10's binary version, for instance `test_batch.bin`, plain or gzip.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`cifar10`].
pub fn read_cifar10(path: &Path) -> Result<Dataset> {
    cifar10(&read_unpacked(WHAT, path)?)
}

/// Reads records of a label and an image; pixels are divided by 255.
///
/// # Errors
/// [`Error::Format`] if the length is not a whole number of records or a label is above 9.
pub fn cifar10(bytes: &[u8]) -> Result<Dataset> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(IMAGE + 1) {
        let reason = format!("{} bytes are no records of {}", bytes.len(), IMAGE + 1);
        return Err(Error::format(WHAT, reason));
    }
    let (mut labels, mut pixels) = (vec![], Vec::with_capacity(bytes.len()));
    for (i, record) in bytes.chunks_exact(IMAGE + 1).enumerate() {
        if record[0] > 9 {
            return Err(Error::format(WHAT, format!("record {i} has label {}", record[0])));
        }
        labels.push(record[0].into());
        pixels.extend(record[1..].iter().map(|&p| f64::from(p) / 255.0));
    }
    Dataset::new(HostTensor::new([labels.len(), 3, 32, 32], pixels)?, labels)
}
