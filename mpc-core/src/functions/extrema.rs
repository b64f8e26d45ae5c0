//! Largest and smallest elements, their places, and max pooling.

use ring_arith::{View, Window};

use super::{neg, permute};
use crate::{Error, Largest, Linear, Protocol, Result, SecretTensor};

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
    Ok((largest, place.ok_or_else(|| super::arithmetic::no_answer("argmax"))?))
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
    let back = |share, frac, width| {
        let y = SecretTensor::new(share, frac, width);
        if axis == 0 { Ok(y) } else { permute(mpc, &y, &order) }
    };
    let place_width = usize::BITS - k.leading_zeros() + 1;
    let place = found.position.map(|place| back(place, 0, place_width)).transpose()?;
    Ok((back(found.largest, x.frac(), x.width())?, place))
}

/// The largest element under each position of a window: `[.., H, W]` to `[.., OH, OW]`. A border
/// never wins.
///
/// # Domain and error
/// As [`max`].
///
/// # Cost
/// As [`max`] for each result, `k` being the window's number of elements.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if the window does not fit; [`Error::Invalid`] if some position of
/// the window covers only border.
pub fn max_pool<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: Window,
) -> Result<SecretTensor<P>> {
    let rank = x.shape().rank();
    if rank < 2 {
        let reason = format!("shape {:?} has no height and width", x.shape());
        return Err(Error::Invalid { op: "max pool", reason });
    }
    let [top, left, bottom, right] = window.padding;
    let reach = |i: usize| window.kernel[i].saturating_sub(1) * window.dilation[i] + 1;
    if top.max(bottom) >= reach(0) || left.max(right) >= reach(1) {
        let reason =
            format!("a border of {:?} hides the window {:?}", window.padding, window.kernel);
        return Err(Error::Invalid { op: "max pool", reason });
    }
    let bordered = if window.padding == [0; 4] {
        x.clone()
    } else {
        let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
        (before[rank - 2], before[rank - 1]) = (top, left);
        (after[rank - 2], after[rank - 1]) = (bottom, right);
        // No word of the tensor is below it, and differences to it still fit.
        let value = (1u64 << (x.width().min(63) - 1)).wrapping_neg();
        mutant!("max pool: a border of zeros", value = 0);
        let share = mpc.linear(&Linear::View(&View::Pad { before, after, value }), x.share())?;
        SecretTensor::new(share, x.frac(), x.width())
    };
    let taps = super::windows(mpc, &bordered, Window { padding: [0; 4], ..window })?;
    // [.., taps, OH, OW]
    let axis = taps.shape().rank() - 3;
    let largest = max(mpc, &taps, axis)?;
    let mut dims = largest.shape().dims().to_vec();
    dims.remove(axis);
    super::reshape(mpc, &largest, &dims.as_slice().try_into()?)
}
