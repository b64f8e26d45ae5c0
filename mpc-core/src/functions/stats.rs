//! Means, variances, norms.

use super::{mean, sqrt, square, sub, sum};
use crate::{Protocol, Result, SecretTensor};

/// Variances over axes, which stay with length 1: means of squared distances from the mean.
///
/// # Domain and error
/// Distances below 2^10.5 at 20 fraction bits, and sums of their squares below 2^22; a few units in
/// the last place times the distances.
///
/// # Cost
/// Two means and a square: 6 rounds.
/// With replicated sharing of a row of 16 at width 44: 5 rounds and 262 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if an axis does not exist.
pub fn var<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    let middle = mean(mpc, x, axes)?;
    let distance = sub(mpc, x, &middle)?;
    let squares = square(mpc, &distance)?;
    mean(mpc, &squares, axes)
}

/// Euclidean norms over axes, which stay with length 1.
///
/// # Domain and error
/// Sums of squares below 2^22 at 20 fraction bits; that of [`sqrt`] beside the square's own rounding.
///
/// # Cost
/// A square and a [`sqrt`] of each result.
/// With replicated sharing of a row of 16 at width 44: 30 rounds and 518 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if an axis does not exist.
pub fn norm<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    let squares = square(mpc, x)?;
    let total = sum(mpc, &squares, axes)?;
    sqrt(mpc, &total)
}
