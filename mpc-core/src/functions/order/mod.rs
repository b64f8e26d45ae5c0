//! Order: sorting, joins, shuffles, rows at secret places. Here are numbers at public places of the order, the largest few,
//! medians and quantiles, and how many are distinct.

pub(super) mod join;
pub(super) mod network;
pub(super) mod places;
pub(super) mod radix;
pub(super) mod shuffle;
pub(super) mod sort;
mod stages;
pub(super) mod unique;

use ring_arith::{FracBits, Shape};

use crate::functions::{
    add, encode, mul, mul_scalar, neg,
    order::network::{chosen, length, ordered},
    slice, sort, sub, sum,
};
use crate::{Error, Protocol, Result, SecretTensor};

/// The numbers along an axis that have the given places in rising order; place 0 has the smallest. The axis gets one
/// place for each, in the order of `places`.
///
/// # Domain and error
/// As [`sort`].
///
/// # Cost
/// As [`sort`], without the comparisons that the places do not depend on. For one end of the order this is a
/// tournament, for a median of 1000 numbers most of the network.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist, or a place is not below its length.
pub fn order_statistics<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    places: &[usize],
    axis: usize,
) -> Result<SecretTensor<P>> {
    let k = length("order statistics", x, axis)?;
    if let Some(place) = places.iter().find(|place| **place >= k) {
        let reason = format!("there is no place {place} among {k} numbers");
        return Err(Error::Invalid { op: "order statistics", reason });
    }
    chosen(mpc, x, axis, places)
}

/// The `k` largest numbers along an axis, the largest first, and their places as integers. Of equal numbers the first
/// come first.
///
/// # Domain and error
/// As [`sort`].
///
/// # Cost
/// As [`crate::functions::argsort`], without the comparisons that the results do not depend on.
/// With replicated sharing of a row of 16 at width 44, the four largest:
/// 61 rounds and 1559 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist, or `k` is above its length.
pub fn top_k<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    k: usize,
    axis: usize,
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let n = length("top k", x, axis)?;
    if k > n {
        let reason = format!("there are no {k} largest of {n} numbers");
        return Err(Error::Invalid { op: "top k", reason });
    }
    let first: Vec<_> = (0..k).collect();
    let found = ordered(mpc, &neg(mpc, x)?, &[], axis, &first)?;
    Ok((neg(mpc, &found.keys)?, found.places))
}

/// Medians along an axis, which stays with length 1. Of an even number of numbers: the mean of the middle two.
///
/// # Domain and error
/// As [`sort`]. Exact for an odd number of numbers. For an even one a unit in the last place, and sums of two numbers
/// must have an encoding, below 2^62.
///
/// # Cost
/// [`order_statistics`] of the middle, and a [`mul_scalar`] of each result.
/// With replicated sharing of a row of 16 at width 44: 59 rounds and 1521 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist or is empty.
pub fn median<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    let k = filled("median", x, axis)?;
    if k % 2 == 1 {
        return order_statistics(mpc, x, &[k / 2], axis);
    }
    let middle = order_statistics(mpc, x, &[k / 2 - 1, k / 2], axis)?;
    let both = sum(mpc, &middle, &[axis])?;
    Ok(mul_scalar(mpc, &both, 0.5)?.with_width(x.width() + 1))
}

/// Quantiles along an axis, which gets one place for each of `q`: linear between the numbers at the places below and
/// above `q (k - 1)`, as NumPy's method `linear`.
///
/// # Domain and error
/// As [`sort`]; distances between neighbours below `2^(62 - 2f)` at `f` fraction bits. The share of the distance is
/// rounded to `f` bits: an error of `2^-(f + 1)` of the distance, and one unit in the last place.
///
/// # Cost
/// [`order_statistics`] of up to two places for each, and a product with public numbers.
/// With replicated sharing of a row of 16 at width 44, one quantile:
/// 56 rounds and 1239 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist or is empty, if a number of `q` is not in `0..=1`, or if `x` has no
/// fraction bits and a quantile lies between two numbers.
pub fn quantile<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    q: &[f64],
    axis: usize,
) -> Result<SecretTensor<P>> {
    let invalid = |reason| Error::Invalid { op: "quantile", reason };
    let k = filled("quantile", x, axis)?;
    if let Some(q) = q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
        return Err(invalid(format!("{q} is not between 0 and 1")));
    }
    let at: Vec<_> = q.iter().map(|q| q * (k - 1) as f64).collect();
    let below: Vec<_> = at.iter().map(|at| at.floor() as usize).collect();
    let shares: Vec<_> = at.iter().map(|at| at - at.floor()).collect();
    if shares.iter().all(|share| *share == 0.0) {
        return order_statistics(mpc, x, &below, axis);
    }
    if x.frac() == 0 {
        return Err(invalid("integers have no numbers between them: take fraction bits".into()));
    }
    let above = below.iter().map(|place| (place + 1).min(k - 1));
    let places: Vec<_> = below.iter().copied().chain(above).collect();
    let ends = order_statistics(mpc, x, &places, axis)?;
    let low = slice(mpc, &ends, axis, 0, q.len(), 1)?;
    let high = slice(mpc, &ends, axis, q.len(), 2 * q.len(), 1)?;
    let mut dims = vec![1; x.shape().rank()];
    dims[axis] = q.len();
    let shares = encode(mpc, &Shape::new(dims)?, &shares, FracBits::new(x.frac())?)?;
    let gap = sub(mpc, &high, &low)?;
    let part = mul(mpc, &gap, &shares)?;
    Ok(add(mpc, &low, &part)?.with_width(x.width() + 1))
}

/// The number of distinct numbers along an axis, which stays with length 1, as integers.
///
/// # Domain and error
/// As [`sort`].
///
/// # Cost
/// A [`sort`], and a [`crate::functions::eq`] of each number.
/// With replicated sharing of a row of 16 at width 44: 67 rounds and 2149 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist or is empty.
pub fn distinct<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    let k = filled("distinct", x, axis)?;
    let sorted = sort(mpc, x, axis)?;
    let one = crate::functions::constant(
        mpc,
        &crate::functions::encode_integers(mpc, &[1].try_into()?, &[1])?,
    )?;
    if k == 1 {
        return crate::functions::broadcast(mpc, &one, x.shape());
    }
    let before = slice(mpc, &sorted, axis, 0, k - 1, 1)?;
    let behind = slice(mpc, &sorted, axis, 1, k, 1)?;
    let new = crate::functions::ne(mpc, &before, &behind)?;
    add(mpc, &sum(mpc, &new, &[axis])?, &one)
}

/// The length of an axis that has numbers.
fn filled<P: Protocol>(op: &'static str, x: &SecretTensor<P>, axis: usize) -> Result<usize> {
    match length(op, x, axis)? {
        0 => {
            let reason = format!("shape {:?} has no elements along axis {axis}", x.shape());
            Err(Error::Invalid { op, reason })
        }
        k => Ok(k),
    }
}
