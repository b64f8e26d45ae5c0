//! MNIST and its like: files of type IDX, plain or gzip.

use std::path::Path;

use nn_layers::HostTensor;

use super::Dataset;
use super::bytes::{read_unpacked, unpack};
use crate::{Error, Result};

const WHAT: &str = "IDX file";

/// Reads images and labels in IDX files; pixels are divided by 255.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, [`Error::Format`] if it is damaged or the two do not fit.
pub fn mnist(images: &Path, labels: &Path) -> Result<Dataset> {
    let images = read_idx(images)?;
    let &[n, h, w] = images.dims() else {
        let reason = format!("images should have three dimensions, these have {:?}", images.dims());
        return Err(Error::format(WHAT, reason));
    };
    let labels = read_idx(labels)?;
    let &[_] = labels.dims() else {
        return Err(Error::format(WHAT, format!("labels have shape {:?}", labels.dims())));
    };
    let labels = labels.floats().iter().map(|&l| l as usize).collect();
    let pixels = images.to_float().map(|p| p / 255.0).reshape([n, 1, h, w])?;
    Dataset::new(pixels, labels)
}

/// Reads an IDX file of bytes, plain or gzip, as integers.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and those of [`from_idx`].
pub fn read_idx(path: &Path) -> Result<HostTensor> {
    from_idx(&read_unpacked(WHAT, path)?)
}

/// Reads an IDX file of bytes in memory, plain or gzip.
///
/// # Errors
/// [`Error::Format`] if it is not an IDX file, or its size differs from the one in its header.
pub fn from_idx(bytes: &[u8]) -> Result<HostTensor> {
    let bytes = unpack(WHAT, bytes.to_vec())?;
    let (&[zero, one, kind, rank], mut rest) =
        bytes.split_first_chunk::<4>().ok_or_else(|| Error::format(WHAT, "it is too short"))?;
    if (zero, one, kind) != (0, 0, 8) {
        return Err(Error::format(WHAT, "it does not begin as an IDX file of bytes does"));
    }
    let mut dims = vec![];
    for _ in 0..rank {
        let (size, tail) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| Error::format(WHAT, "its head is cut off"))?;
        dims.push(u32::from_be_bytes(*size) as usize);
        rest = tail;
    }
    let len = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if len != Some(rest.len()) {
        let reason = format!("{} bytes do not fill shape {dims:?}", rest.len());
        return Err(Error::format(WHAT, reason));
    }
    Ok(HostTensor::integers(dims, rest.iter().map(|&b| b.into()).collect())?)
}
