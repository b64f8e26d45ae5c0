//! Largest and smallest elements, and their places.

use crate::functions::{neg, permute};
use crate::{Error, Format, Largest, Protocol, Result, SecretTensor};

/// The largest elements along an axis, which stays with length 1.
///
/// # Domain and error
/// Exact, for words below 2^62 in magnitude.
///
/// # Cost
/// A tournament of `k - 1` comparisons for `k` elements: `1 + 5 ceil(log2 k)` rounds and `552 (k - 1)`
/// bits for each result in all with replicated sharing at full width (456 at width 44).
/// With replicated sharing of a row of 16 at width 44: 21 rounds and 429 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist or is empty.
pub fn max<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<SecretTensor<P>> {
    Ok(tournament(mpc, x, axis, false)?.0)
}

/// The smallest elements along an axis. As [`max`].
///
/// # Cost
/// As [`max`].
///
/// # Errors
/// As [`max`].
pub fn min<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<SecretTensor<P>> {
    let largest = max(mpc, &neg(mpc, x)?, axis)?;
    neg(mpc, &largest)
}

/// The places of the largest elements along an axis, the lowest among equals, as integers.
///
/// # Domain and error
/// As [`max`].
///
/// # Cost
/// As [`max`], and one more selected word in each comparison.
/// With replicated sharing of a row of 16 at width 44: 21 rounds and 609 bits for each element in all.
///
/// # Errors
/// As [`max`].
pub fn argmax<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    Ok(top1(mpc, x, axis)?.1)
}

/// The places of the smallest elements along an axis.
///
/// # Cost
/// As [`argmax`].
///
/// # Errors
/// As [`max`].
pub fn argmin<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    argmax(mpc, &neg(mpc, x)?, axis)
}

/// [`max`] and [`argmax`] at once.
///
/// # Cost
/// As [`argmax`].
///
/// # Errors
/// As [`max`].
pub fn top1<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let (largest, place) = tournament(mpc, x, axis, true)?;
    Ok((largest, place.ok_or_else(|| crate::functions::arithmetic::no_answer("argmax"))?))
}

/// [`Protocol::max_first`] along any axis.
fn tournament<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    index: bool,
) -> Result<(SecretTensor<P>, Option<SecretTensor<P>>)> {
    let dims = x.shape().dims();
    if dims.get(axis).is_none_or(|&k| k == 0) {
        let reason = format!("shape {:?} has no elements along axis {axis}", x.shape());
        return Err(Error::Invalid { op: "max", reason });
    }
    let k = dims[axis];
    let mut order: Vec<_> = (0..dims.len()).collect();
    order.swap(0, axis);
    let turned = if axis == 0 { x.clone() } else { permute(mpc, x, &order)? };
    let want = Largest { position: index, choices: false };
    let width = (x.width() + 1).min(64);
    mutant!("max: differences as wide as numbers", width = x.width());
    let found = mpc.max_first(turned.share(), width, want)?;
    let back = |share, format| {
        let y = SecretTensor::new(share, format);
        if axis == 0 { Ok(y) } else { permute(mpc, &y, &order) }
    };
    let place_width = usize::BITS - k.leading_zeros() + 1;
    let place =
        found.position.map(|place| back(place, Format::integer(place_width))).transpose()?;
    Ok((back(found.largest, x.format())?, place))
}
