//! Variances and norms.

use super::{mean, mul_scalar, sqrt, sub, sum_squares};
use crate::{Protocol, Result, SecretTensor};

/// Variances over axes, which stay with length 1: means of squared distances from the mean.
///
/// # Domain and error
/// Sums of the squared distances with an encoding, below `2^(62 - f)` at `f` fraction bits; the error of
/// [`mean`], and a unit in the last place times the distances' mean size.
///
/// # Cost
/// Two means and a [`sum_squares`].
/// With replicated sharing of a row of 16 at width 44: 6 rounds and 173 bits for each element in all.
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
    let squares = sum_squares(mpc, &distance, axes)?;
    let terms = x.shape().len() / squares.shape().len().max(1);
    mul_scalar(mpc, &squares, 1.0 / terms.max(1) as f64)
}

/// Euclidean norms over axes, which stay with length 1.
///
/// # Domain and error
/// That of [`sum_squares`] and that of [`sqrt`].
///
/// # Cost
/// A [`sum_squares`] and a [`sqrt`] of each result.
/// With replicated sharing of a row of 16 at width 44: 26 rounds and 471 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if an axis does not exist.
pub fn norm<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    let squares = sum_squares(mpc, x, axes)?;
    sqrt(mpc, &squares)
}
