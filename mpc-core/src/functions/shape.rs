//! Moving words, and sums: everything that costs no communication.

use std::sync::Arc;

use ring_arith::{Shape, View, Window};

use crate::{Error, Linear, Protocol, Result, SecretTensor, tensor::same_frac};

/// Any [`View`] of a secret tensor. The border of [`View::Pad`] is a public word of the tensor's
/// fraction bits.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn view<P: Protocol>(mpc: &P, x: &SecretTensor<P>, view: &View) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::View(view), x.share())?;
    Ok(SecretTensor::new(share, x.format()))
}

/// The same numbers under another shape of equal length.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// [`ring_arith::Error`] if the lengths differ. The functions below also fail only if their
/// arguments do not fit the shape.
pub fn reshape<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    view(mpc, x, &View::Reshape(shape.clone()))
}

/// Axis `i` of the result is axis `axes[i]`.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn permute<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    view(mpc, x, &View::Permute(axes.to_vec()))
}

/// Exchanges the last two axes.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn transpose<P: Protocol>(mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let rank = x.shape().rank();
    if rank < 2 {
        let reason = format!("shape {:?} has no two axes to exchange", x.shape());
        return Err(Error::Invalid { op: "transpose", reason });
    }
    let mut axes: Vec<_> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    permute(mpc, x, &axes)
}

/// Indices `start, start + step, ..` below `end` of one axis.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn slice<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    axis: usize,
    start: usize,
    end: usize,
    step: usize,
) -> Result<SecretTensor<P>> {
    view(mpc, x, &View::Slice { axis, start, end, step })
}

/// The given (public) indices of one axis, in the given order.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn gather<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    axis: usize,
    indices: &[usize],
) -> Result<SecretTensor<P>> {
    view(mpc, x, &View::Gather { axis, indices: Arc::from(indices) })
}

/// A border of zeros: `before[i]` and `after[i]` elements on axis `i`.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn pad<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    before: &[usize],
    after: &[usize],
) -> Result<SecretTensor<P>> {
    let (before, after) = (before.to_vec(), after.to_vec());
    view(mpc, x, &View::Pad { before, after, value: 0 })
}

/// Repeats axes of length 1, and new leading axes, to the given shape.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn broadcast<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    match x.shape() == shape {
        true => Ok(x.clone()),
        false => view(mpc, x, &View::Broadcast(shape.clone())),
    }
}

/// `[.., H, W]` to `[.., kh * kw, OH, OW]`: the elements under each position of a window.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn windows<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    window: Window,
) -> Result<SecretTensor<P>> {
    view(mpc, x, &View::Windows(window))
}

/// Concatenates along an axis.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// [`Error::FracBits`] if fraction bits differ; as [`reshape`].
pub fn concat<P: Protocol>(
    mpc: &P,
    xs: &[&SecretTensor<P>],
    axis: usize,
) -> Result<SecretTensor<P>> {
    let Some((first, rest)) = xs.split_first() else {
        let reason = "nothing to concatenate".to_owned();
        return Err(Error::Invalid { op: "concat", reason });
    };
    for x in rest {
        same_frac("concat", first.frac(), x.frac())?;
    }
    let shares: Vec<_> = xs.iter().map(|x| x.share()).collect();
    let width = xs.iter().map(|x| x.width()).max().unwrap_or(64);
    Ok(SecretTensor::new(mpc.concat(&shares, axis)?, first.format().with_width(width)))
}

/// Sums over axes, which stay with length 1.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn sum<P: Protocol>(mpc: &P, x: &SecretTensor<P>, axes: &[usize]) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::Sum(axes), x.share())?;
    let terms = axes.iter().filter_map(|&a| x.shape().dims().get(a)).product();
    Ok(SecretTensor::new(share, x.format().with_width(x.width() + doublings(terms))))
}

/// `[.., H, W]` to `[.., OH, OW]`: sums under each position of a window.
///
/// # Cost
/// None: nothing is sent.
///
/// # Errors
/// As [`reshape`].
pub fn window_sum<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    window: Window,
) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::WindowSum(&window), x.share())?;
    let terms = window.kernel.iter().product();
    Ok(SecretTensor::new(share, x.format().with_width(x.width() + doublings(terms))))
}

/// Bits that a sum of `terms` terms needs beyond one term's.
pub(super) fn doublings(terms: usize) -> u32 {
    let bits = terms.max(1).next_power_of_two().trailing_zeros();
    mutant!("sums: a bit too narrow", bits = bits.saturating_sub(1));
    bits
}
