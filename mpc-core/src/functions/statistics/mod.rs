//! Means, variances and norms.

pub(super) mod rows;

use self::rows::halved_squares;
use crate::functions::{mul_scalar, sqrt, sub, sum, sum_squares};
use crate::{Protocol, Result, SecretTensor};

/// Means over axes, which stay with length 1.
///
/// # Domain and error
/// Sums with an encoding: `|sum| < 2^(62 - f)` at `f` fraction bits. Relative error `2^-19` and two units in the
/// last place; one unit alone if the number of terms is a power of two.
///
/// # Cost
/// One truncation of the result (two rounds), none if the number of terms is 1; three and two rounds more
/// for a sum whose width is above 44, as [`mul_scalar`].
/// With replicated sharing of a row of 16 at width 44: 1 round and 5 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if an axis does not exist.
pub fn mean<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    let total = sum(mpc, x, axes)?;
    let terms = x.shape().len() / total.shape().len().max(1);
    let mean = mul_scalar(mpc, &total, 1.0 / terms.max(1) as f64)?;
    let width = mean.width().min(x.width() + 1);
    Ok(mean.with_width(width))
}

/// Variances over axes, which stay with length 1: means of squared distances from the mean.
///
/// # Domain and error
/// That of [`mean`], and variances with an encoding, below `2^(61 - f)` at `f` fraction bits; of more than `2^f` numbers,
/// sums of the squared distances below `2^(61 + f)` besides. The error of [`mean`], two units in the last place, and a unit
/// times the distances' mean size.
///
/// # Cost
/// A [`mean`], a [`sum_squares`], and [`mul_scalar`] of each result unless the number of terms is a power of two.
/// With replicated sharing of a row of 16 at width 44: 5 rounds and 170 bits for each element in all.
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
    let terms = (x.shape().len() / middle.shape().len().max(1)).max(1);
    // The sum may leave the range where the mean does not.
    let halvings = terms.ilog2().min(x.frac());
    let squares = halved_squares(mpc, &distance, axes, halvings)?;
    mul_scalar(mpc, &squares, f64::from(1 << halvings) / terms as f64)
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
