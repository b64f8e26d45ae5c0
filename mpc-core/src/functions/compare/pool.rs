//! Max pooling and its gradient.

use ring_arith::{Bilinear, ConvSpec, Engine, Shape, Tensor, View, Window};

use crate::functions::{permute, reshape, slice, windows};
use crate::{Error, Format, Largest, Linear, Protocol, Result, SecretTensor};

/// The largest element under each position of a window: `[.., H, W]` to `[.., OH, OW]`. A border
/// never wins.
///
/// The maximum is taken along rows and then along columns: with steps of `s` rows, `s (kw - 1) + kh - 1`
/// comparisons for each result instead of `kh kw - 1`.
///
/// # Domain and error
/// As [`crate::functions::max`].
///
/// # Cost
/// Two tournaments, [`crate::functions::max`] of the window's width for each row of the operand and of its height for
/// each result: `2 + 5 (ceil(log2 kw) + ceil(log2 kh))` rounds with replicated sharing.
/// With replicated sharing of windows of 3x3 by steps of 2 at width 44: 22 rounds and 716 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if the window does not fit; [`Error::Invalid`] if some position of
/// the window covers only border.
pub fn max_pool<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: Window,
) -> Result<SecretTensor<P>> {
    Ok(pooled(mpc, x, window, false)?.0)
}

/// [`max_pool`], and where the largest elements are, for [`max_pool_gradient`].
///
/// # Cost
/// As [`max_pool`], and a bit more in each comparison.
///
/// # Errors
/// As [`max_pool`].
pub fn max_pool_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: Window,
) -> Result<(SecretTensor<P>, Winners<P>)> {
    pooled(mpc, x, window, true)
}

/// Where the largest element under each position of a window is: in its row, and then in its column.
#[derive(Debug)]
pub struct Winners<P: Protocol> {
    in_rows: Vec<P::Bits>,
    in_columns: Vec<P::Bits>,
}

/// The gradient of [`max_pool`] for an operand of a shape: each element of `gradient` goes to the first of the
/// largest under its window.
///
/// # Cost
/// [`Protocol::max_first_gradient`] of the window's height and then of its width: with replicated sharing
/// `2 + ceil(log2 kh) + ceil(log2 kw)` rounds and 192 bits for each tap but one of either.
///
/// # Errors
/// [`Error::Invalid`] if the shape has no height and width; as [`reshape`].
pub fn max_pool_gradient<P: Protocol>(
    mpc: &mut P,
    winners: &Winners<P>,
    shape: &Shape,
    gradient: &SecretTensor<P>,
    window: Window,
) -> Result<SecretTensor<P>> {
    let rank = checked_rank(shape)?;
    let mut bordered = shape.dims().to_vec();
    for axis in 0..2 {
        bordered[rank - 2 + axis] += window.padding[axis] + window.padding[axis + 2];
    }
    let mut between = bordered.clone();
    between[rank - 1] = gradient.shape().dims()[rank - 1];
    let [high, wide] = one_dimensional(window);
    let between = Shape::new(between)?;
    let gradient = back_along(mpc, gradient, &high, &winners.in_columns, &between)?;
    let bordered = Shape::new(bordered)?;
    let mut gradient = back_along(mpc, &gradient, &wide, &winners.in_rows, &bordered)?;
    for axis in 0..2 {
        let (at, start) = (rank - 2 + axis, window.padding[axis]);
        let end = start + shape.dims()[at];
        if gradient.shape().dims()[at] != end - start {
            gradient = slice(mpc, &gradient, at, start, end, 1)?;
        }
    }
    Ok(gradient)
}

fn pooled<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: Window,
    keep: bool,
) -> Result<(SecretTensor<P>, Winners<P>)> {
    let x = bordered(mpc, x, window)?;
    let [high, wide] = one_dimensional(window);
    let (x, in_rows) = along(mpc, &x, &wide, keep)?;
    let (x, in_columns) = along(mpc, &x, &high, keep)?;
    Ok((x, Winners { in_rows, in_columns }))
}

fn checked_rank(shape: &Shape) -> Result<usize> {
    if shape.rank() < 2 {
        let reason = format!("shape {shape:?} has no height and width");
        return Err(Error::Invalid { op: "max pool", reason });
    }
    Ok(shape.rank())
}

/// A window's height alone and its width alone, without a border.
fn one_dimensional(window: Window) -> [Window; 2] {
    [0, 1].map(|axis| {
        let one = |dims: [usize; 2]| {
            let mut ones = [1; 2];
            ones[axis] = dims[axis];
            ones
        };
        Window {
            kernel: one(window.kernel),
            stride: one(window.stride),
            padding: [0; 4],
            dilation: one(window.dilation),
        }
    })
}

/// The operand with a border that never wins.
fn bordered<P: Protocol>(mpc: &P, x: &SecretTensor<P>, window: Window) -> Result<SecretTensor<P>> {
    let rank = checked_rank(x.shape())?;
    let [top, left, bottom, right] = window.padding;
    let reach = |i: usize| window.kernel[i].saturating_sub(1) * window.dilation[i] + 1;
    if top.max(bottom) >= reach(0) || left.max(right) >= reach(1) {
        let reason =
            format!("a border of {:?} hides the window {:?}", window.padding, window.kernel);
        return Err(Error::Invalid { op: "max pool", reason });
    }
    if window.padding == [0; 4] {
        return Ok(x.clone());
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    (before[rank - 2], before[rank - 1]) = (top, left);
    (after[rank - 2], after[rank - 1]) = (bottom, right);
    // No word of the tensor is below it, and differences to it still fit.
    let value = (1u64 << (x.width().min(63) - 1)).wrapping_neg();
    mutant!("max pool: a border of zeros", value = 0);
    let share = mpc.linear(&Linear::View(&View::Pad { before, after, value }), x.share())?;
    Ok(SecretTensor::new(share, x.format()))
}

/// The maximum under a window that is one element high or wide, and who won.
fn along<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: &Window,
    keep: bool,
) -> Result<(SecretTensor<P>, Vec<P::Bits>)> {
    if is_trivial(window) {
        return Ok((x.clone(), vec![]));
    }
    let mut out = View::Windows(*window).output_shape(x.shape())?.dims().to_vec();
    out.remove(out.len() - 3);
    // A window along rows sees the rows of all planes alike: as one plane, their taps need not be moved.
    let x = match x.shape().dims().last() {
        Some(&width) if is_wide(window) => {
            reshape(mpc, x, &Shape::new([x.shape().len() / width, width])?)?
        }
        _ => x.clone(),
    };
    // [.., taps, OH, OW] to [taps, .., OH, OW].
    let taps = windows(mpc, &x, *window)?;
    let rank = taps.shape().rank();
    let order = [rank - 3].into_iter().chain(0..rank - 3).chain([rank - 2, rank - 1]);
    let taps = permute(mpc, &taps, &order.collect::<Vec<_>>())?;
    let want = Largest { choices: keep, ..Largest::default() };
    let found = mpc.max_first(taps.share(), (x.width() + 1).min(64), want)?;
    let best = mpc.linear(&Linear::View(&View::Reshape(Shape::new(out)?)), &found.largest)?;
    Ok((SecretTensor::new(best, x.format()), found.choices))
}

/// The gradient of [`along`] for an operand of a shape.
fn back_along<P: Protocol>(
    mpc: &mut P,
    gradient: &SecretTensor<P>,
    window: &Window,
    winners: &[P::Bits],
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    if is_trivial(window) {
        return Ok(gradient.clone());
    }
    let wide = is_wide(window);
    let taps = window.kernel[usize::from(wide)];
    let rank = shape.rank();
    let [h, w] = [shape.dims()[rank - 2], shape.dims()[rank - 1]];
    let planes = shape.len() / (h * w).max(1);
    // Along rows all planes are one, as in the tournament.
    let [planes, h] = if wide { [1, planes * h] } else { [planes, h] };
    let dims = gradient.shape().dims();
    let [oh, ow] = if wide { [h, dims[rank - 1]] } else { [dims[rank - 2], w] };
    let first = Shape::new(if wide { vec![1, oh, ow] } else { [&[1], dims].concat() })?;
    let first = reshape(mpc, gradient, &first)?;
    let share = mpc.max_first_gradient(first.share(), winners)?;
    let parts = SecretTensor::new(share, gradient.format());
    let parts = reshape(mpc, &parts, &Shape::new([taps, planes, oh, ow])?)?;
    let axis = usize::from(wide);
    let tiles = window.stride[axis] == taps && window.dilation[axis] == 1;
    if tiles && [oh, ow][axis] * taps == [h, w][axis] {
        // Windows lie side by side: the taps go back between their neighbours.
        let parts = permute(mpc, &parts, if wide { &[1, 2, 3, 0] } else { &[1, 2, 0, 3] })?;
        return reshape(mpc, &parts, shape);
    }
    let parts = permute(mpc, &parts, &[1, 0, 2, 3])?;
    // Every part goes back to where its tap was read.
    let spread = Bilinear::ConvInputGrad { spec: ConvSpec::new(*window), input: [h, w] };
    let code = mpc.engine().upload(one_tap_each(window)?)?;
    let share = mpc.linear(&Linear::TimesPublic(&spread, &code), parts.share())?;
    reshape(mpc, &SecretTensor::new(share, Format::words(gradient.frac())), shape)
}

/// Kernels `[taps, 1, kh, kw]` of which each has one tap.
fn one_tap_each(window: &Window) -> Result<Tensor> {
    let [high, wide] = window.kernel;
    let taps = high * wide;
    let words = (0..taps * taps).map(|i| u64::from(i / taps == i % taps)).collect::<Vec<_>>();
    Ok(Tensor::new(Shape::new([taps, 1, high, wide])?, words)?)
}

/// True if a window is a single element.
fn is_trivial(window: &Window) -> bool {
    window.kernel == [1; 2] && window.stride == [1; 2]
}

/// True if a window goes along rows.
fn is_wide(window: &Window) -> bool {
    window.kernel[0] == 1 && window.stride[0] == 1
}
