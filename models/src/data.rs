//! Data sets and single inputs: MNIST, CIFAR-10, folders of images, NumPy files, tables.

mod bytes;
mod cifar;
mod csv;
mod digits;
mod images;
mod mnist;
mod npy;
mod order;
mod parquet;

use std::path::Path;

use nn_layers::HostTensor;

pub use cifar::{cifar10, read_cifar10};
pub use csv::{Table, TableFormat, from_csv, read_csv};
pub use digits::{DIGITS, DIGITS_MODEL, TEST_DIGITS, digits, digits_from_csv};
pub use images::{Preprocessing, from_image, read_folder, read_image};
pub use mnist::{from_idx, mnist, read_idx};
pub use npy::{from_npy, read_npy, to_npy, write_npy};
pub use order::Order;

use crate::{Error, Result};

/// Images with their labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The images, `[N, C, H, W]`.
    pub images: HostTensor,
    /// One label for each.
    pub labels: Vec<usize>,
}

impl Dataset {
    /// Checks that there is one label for each image.
    ///
    /// # Errors
    /// [`Error::Format`] if there is not.
    pub fn new(images: HostTensor, labels: Vec<usize>) -> Result<Self> {
        if images.dims().first() == Some(&labels.len()) {
            return Ok(Self { images, labels });
        }
        let reason = format!("{:?} images have {} labels", images.dims().first(), labels.len());
        Err(Error::format("data set", reason))
    }

    /// Number of images.
    #[allow(clippy::len_without_is_empty)] // emptiness is no case of its own
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Some images with their labels, in the order of `rows`.
    ///
    /// # Errors
    /// [`Error::Format`] if a row does not exist.
    pub fn rows(&self, rows: &[usize]) -> Result<Self> {
        if let Some(row) = rows.iter().find(|row| **row >= self.len()) {
            let reason = format!("there is no row {row} among {}", self.len());
            return Err(Error::format("data set", reason));
        }
        let labels = rows.iter().map(|&row| self.labels[row]).collect();
        Self::new(self.images.rows(rows)?, labels)
    }

    /// The labels as `[N, classes]` integers: 1 at each label, 0 elsewhere.
    ///
    /// # Errors
    /// [`Error::Format`] if a label is not below `classes`.
    pub fn one_hot(&self, classes: usize) -> Result<HostTensor> {
        let mut places = vec![0; self.len() * classes];
        for (row, &label) in self.labels.iter().enumerate() {
            if label >= classes {
                let reason = format!("row {row} has label {label}, of {classes} classes");
                return Err(Error::format("data set", reason));
            }
            places[row * classes + label] = 1;
        }
        Ok(HostTensor::integers([self.len(), classes], places)?)
    }

    /// Images `start..end` with their labels.
    ///
    /// # Errors
    /// [`Error::Format`] if there are not as many.
    pub fn range(&self, start: usize, end: usize) -> Result<Self> {
        if start > end || end > self.len() {
            let reason = format!("{start}..{end} is not within {} images", self.len());
            return Err(Error::format("data set", reason));
        }
        let dims = self.images.dims();
        let one: usize = dims[1..].iter().product();
        let values = self.images.floats()[start * one..end * one].to_vec();
        let images = HostTensor::new([&[end - start], &dims[1..]].concat(), values)?;
        Ok(Self { images, labels: self.labels[start..end].to_vec() })
    }
}

/// Reads an input tensor by the kind of file: `.npy`, `.csv` (rows of numbers), or an image, which
/// is prepared as for ImageNet.
///
/// # Errors
/// [`Error::Io`] or [`Error::Format`] if the file cannot be read or is not of the kind that its
/// name indicates.
pub fn read_input(path: &Path) -> Result<HostTensor> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_lowercase();
    if name.ends_with(".npy") {
        read_npy(path)
    } else if name.ends_with(".csv") || name.ends_with(".csv.gz") {
        read_csv(path)
    } else {
        read_image(path, &Preprocessing::imagenet())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_picked_with_their_labels_which_become_ones_in_their_places() {
        let images = HostTensor::new([3, 1, 1, 1], vec![0.0, 1.0, 2.0]).unwrap();
        let all = Dataset::new(images, vec![2, 0, 1]).unwrap();
        let some = all.rows(&[2, 0]).unwrap();
        assert_eq!(some.images.floats()[..], [2.0, 0.0]);
        assert_eq!(some.one_hot(3).unwrap().as_ints().unwrap()[..], [0, 1, 0, 0, 0, 1]);
        assert!(all.rows(&[3]).unwrap_err().to_string().contains("no row 3"));
        assert!(all.one_hot(2).unwrap_err().to_string().contains("label 2"));
    }
}
