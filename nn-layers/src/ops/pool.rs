//! Pooling.

use mpc_core::{Largest, Linear, Protocol, SecretTensor};
use ring_arith::{Bilinear, ConvSpec, Engine, Shape, Tensor, View, Window};

use super::{reshape, view};
use crate::graph::Pool;
use crate::{Error, Result};

/// The sum under each position of a window of `[.., H, W]`. Local.
pub(crate) fn sum<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    pool: &Pool,
) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::WindowSum(&pool.window()), x.share())?;
    let grown = pool.taps().max(1).next_power_of_two().trailing_zeros();
    Ok(SecretTensor::new(share, x.frac(), (x.width() + grown).min(64)))
}

/// The largest element under each position of a window of `[.., H, W]`.
///
/// Taken along rows and then along columns: the maximum of `a x b` neighbours costs at most
/// `a + b - 2` comparisons where windows do not overlap fully, instead of `a * b - 1`, in as many
/// rounds.
///
/// With `keep`, it also returns the positions of the maxima, for [`max_grad`].
///
/// # Cost
/// Two tournaments, [`Protocol::max_first`] of the window's width and then of its height.
pub(crate) fn max<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    pool: &Pool,
    keep: bool,
) -> Result<(SecretTensor<P>, Choices<P>)> {
    let x = bordered(mpc, x, pool)?;
    let [h, w] = one_dimensional(pool);
    let (x, wide) = along(mpc, &x, &w, keep)?;
    let (x, high) = along(mpc, &x, &h, keep)?;
    Ok((x, Choices { wide, high }))
}

/// The position of the maximum under each position of a window: along rows, and then along columns.
pub(crate) struct Choices<P: Protocol> {
    wide: Vec<P::Bits>,
    high: Vec<P::Bits>,
}

/// A window's height and its width alone, without a border.
fn one_dimensional(pool: &Pool) -> [Window; 2] {
    [0, 1].map(|i| {
        let mut one = Pool::new([1; 2], [1; 2]);
        one.size[i] = pool.size[i];
        one.stride[i] = pool.stride[i];
        one.dilation[i] = pool.dilation[i];
        one.window()
    })
}

/// The gradient of [`max`], whose operand had the given shape: each element of `grad` goes to the first of the
/// largest under its window.
///
/// # Cost
/// [`Protocol::max_first_gradient`] of the window's height and then of its width.
pub(crate) fn max_grad<P: Protocol>(
    mpc: &mut P,
    choices: &Choices<P>,
    shape: &Shape,
    grad: &SecretTensor<P>,
    pool: &Pool,
) -> Result<SecretTensor<P>> {
    let rank = shape.rank();
    if rank < 2 {
        return Err(Error::invalid("max-pool-grad", format!("{shape:?} is not [.., H, W]")));
    }
    let mut bordered = shape.dims().to_vec();
    for axis in 0..2 {
        bordered[rank - 2 + axis] += pool.padding[axis] + pool.padding[axis + 2];
    }
    let mut between = bordered.clone();
    between[rank - 1] = grad.shape().dims()[rank - 1];
    let [h, w] = one_dimensional(pool);
    let grad = back_along(mpc, grad, &h, &choices.high, &Shape::new(between)?)?;
    let mut grad = back_along(mpc, &grad, &w, &choices.wide, &Shape::new(bordered)?)?;
    for axis in 0..2 {
        let (at, start) = (rank - 2 + axis, pool.padding[axis]);
        let end = start + shape.dims()[at];
        if grad.shape().dims()[at] != end - start {
            grad = view(mpc, &grad, &View::Slice { axis: at, start, end, step: 1 })?;
        }
    }
    Ok(grad)
}

/// The gradient of [`along`], whose operand had the given shape.
fn back_along<P: Protocol>(
    mpc: &mut P,
    grad: &SecretTensor<P>,
    window: &Window,
    choices: &[P::Bits],
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    if is_trivial(window) {
        return Ok(grad.clone());
    }
    let wide = is_wide(window);
    let taps = window.kernel[usize::from(wide)];
    let [h, w] = [shape.dims()[shape.rank() - 2], shape.dims()[shape.rank() - 1]];
    let planes = shape.len() / (h * w).max(1);
    // Along rows all planes are one, as in the tournament.
    let [planes, h] = if wide { [1, planes * h] } else { [planes, h] };
    let [oh, ow] = if wide {
        [h, grad.shape().dims()[shape.rank() - 1]]
    } else {
        [grad.shape().dims()[shape.rank() - 2], w]
    };
    let first =
        Shape::new(if wide { vec![1, oh, ow] } else { [&[1], grad.shape().dims()].concat() })?;
    let first = reshape(mpc, grad, &first)?;
    let share = mpc.max_first_gradient(first.share(), choices)?;
    let parts = SecretTensor::new(share, grad.frac(), grad.width());
    let parts = reshape(mpc, &parts, &Shape::new([taps, planes, oh, ow])?)?;
    let axis = usize::from(wide);
    let tiles = window.stride[axis] == taps && window.dilation[axis] == 1;
    if tiles && [oh, ow][axis] * taps == [h, w][axis] {
        // Windows lie side by side: the taps go back between their neighbours.
        let order = if wide { vec![1, 2, 3, 0] } else { vec![1, 2, 0, 3] };
        let parts = view(mpc, &parts, &View::Permute(order))?;
        return reshape(mpc, &parts, shape);
    }
    let parts = view(mpc, &parts, &View::Permute(vec![1, 0, 2, 3]))?;
    // Every part goes back to where its tap was read.
    let spread = Bilinear::ConvInputGrad { spec: ConvSpec::new(*window), input: [h, w] };
    let code = mpc.engine().upload(one_tap_each(window)?)?;
    let share = mpc.linear(&Linear::TimesPublic(&spread, &code), parts.share())?;
    reshape(mpc, &SecretTensor::new(share, grad.frac(), 64), shape)
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

/// The maximum under a window that is one element high or wide, without border, and who won.
fn along<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: &Window,
    keep: bool,
) -> Result<(SecretTensor<P>, Vec<P::Bits>)> {
    if is_trivial(window) {
        return Ok((x.clone(), vec![]));
    }
    let windows = View::Windows(*window);
    let mut out = windows.output_shape(x.shape())?.dims().to_vec();
    out.remove(out.len() - 3);
    // A window along rows sees the rows of all channels alike: its taps come first then, as they should.
    let x = match x.shape().dims().last() {
        Some(&width) if is_wide(window) => {
            reshape(mpc, x, &Shape::new([x.shape().len() / width, width])?)?
        }
        _ => x.clone(),
    };
    // [.., taps, OH, OW] to [taps, .., OH, OW].
    let windows = view(mpc, &x, &windows)?;
    let rank = windows.shape().rank();
    let order = [rank - 3].into_iter().chain(0..rank - 3).chain([rank - 2, rank - 1]).collect();
    let taps = view(mpc, &windows, &View::Permute(order))?;
    drop(windows);
    let want = Largest { choices: keep, ..Largest::default() };
    let found = mpc.max_first(taps.share(), (x.width() + 1).min(64), want)?;
    let best = mpc.linear(&Linear::View(&View::Reshape(Shape::new(out)?)), &found.largest)?;
    Ok((SecretTensor::new(best, x.frac(), x.width()), found.choices))
}

/// The input with a border that never wins.
fn bordered<P: Protocol>(mpc: &P, x: &SecretTensor<P>, pool: &Pool) -> Result<SecretTensor<P>> {
    let [top, left, bottom, right] = pool.padding;
    if pool.padding == [0; 4] {
        return Ok(x.clone());
    }
    let rank = x.shape().rank();
    if rank < 2 {
        return Err(Error::invalid("max-pool", format!("{:?} is not [.., H, W]", x.shape())));
    }
    let sides = |h: usize, w: usize| {
        let mut sides = vec![0; rank];
        sides[rank - 2] = h;
        sides[rank - 1] = w;
        sides
    };
    let lowest = 0u64.wrapping_sub((1 << (x.width().min(63) - 1)) - 1);
    let (before, after) = (sides(top, left), sides(bottom, right));
    view(mpc, x, &View::Pad { before, after, value: lowest })
}
