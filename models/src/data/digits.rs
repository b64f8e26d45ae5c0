//! The handwritten digits that ship with the crate.

use std::path::Path;

use nn_layers::HostTensor;

use super::{Dataset, from_csv};
use crate::error::read;
use crate::{Error, Result};

/// The shipped network as an ONNX file, trained by `models/scripts/train_digits.py`.
pub const DIGITS_MODEL: &[u8] = include_bytes!("../../data/digits.onnx");

/// The shipped images, for [`digits_from_csv`]: UCI's handwritten digits, <https://doi.org/10.24432/C50P49>, CC BY 4.0.
pub const DIGITS: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// The number of test images, the last of the digits: the shipped network was not trained on them.
pub const TEST_DIGITS: usize = 360;

/// Reads `digits.csv.gz`: images `[N, 1, 8, 8]` with pixels from 0 to 1.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`digits_from_csv`].
pub fn digits(path: &Path) -> Result<Dataset> {
    digits_from_csv(&read(path)?)
}

/// Reads rows of 64 pixels, 0 to 16, and a label; plain or gzip.
///
/// # Errors
/// [`Error::Format`] if rows have another length or a label is not a digit.
pub fn digits_from_csv(bytes: &[u8]) -> Result<Dataset> {
    let table = from_csv(bytes)?;
    let wrong = |reason: String| Error::format("digits", reason);
    let &[rows, 65] = table.dims() else {
        return Err(wrong(format!("rows should have 65 numbers, the table is {:?}", table.dims())));
    };
    let (mut labels, mut pixels) = (vec![], Vec::with_capacity(rows * 64));
    for (i, row) in table.floats().chunks_exact(65).enumerate() {
        let label = row[64];
        if !(0.0..=9.0).contains(&label) || label.fract() != 0.0 {
            return Err(wrong(format!("row {} has label {label}", i + 1)));
        }
        labels.push(label as usize);
        pixels.extend(row[..64].iter().map(|p| p / 16.0));
    }
    Dataset::new(HostTensor::new([rows, 1, 8, 8], pixels)?, labels)
}
