//! Pooling.

use mpc_core::{Largest, Linear, Operand, Protocol, SecretTensor, functions};
use ring_arith::{Bilinear, ConvSpec, Engine, Shape, Tensor, View, Window};

use super::{elementwise, reshape, view};
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
/// # Cost
/// Two tournaments, [`Protocol::max_first`] of the window's width and then of its height.
pub(crate) fn max<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    pool: &Pool,
) -> Result<SecretTensor<P>> {
    let x = bordered(mpc, x, pool)?;
    let [h, w] = [0, 1].map(|i| {
        let mut one = Pool::new([1; 2], [1; 2]);
        one.size[i] = pool.size[i];
        one.stride[i] = pool.stride[i];
        one.dilation[i] = pool.dilation[i];
        one.window()
    });
    let x = along(mpc, &x, &w)?;
    along(mpc, &x, &h)
}

/// The gradient of [`max`]: each element of `grad` goes to the first of the largest under its window.
///
/// # Cost
/// A tournament with positions over the taps, their one-hot code and one product for each tap and window.
pub(crate) fn max_grad<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    grad: &SecretTensor<P>,
    pool: &Pool,
) -> Result<SecretTensor<P>> {
    let bordered = bordered(mpc, x, pool)?;
    let misfit = || Error::invalid("max-pool-grad", format!("{:?} is not [.., H, W]", x.shape()));
    let &[h, w] = bordered.shape().dims().last_chunk::<2>().ok_or_else(misfit)?;
    let window = Pool { padding: [0; 4], ..*pool }.window();
    let (taps, count) = (pool.taps(), grad.shape().len());
    let planes = bordered.shape().len() / (h * w).max(1);
    let flat = reshape(mpc, &bordered, &Shape::new([planes, h, w])?)?;
    // [planes, taps, OH, OW], the taps first for the tournament.
    let windows = view(mpc, &flat, &View::Windows(window))?;
    let first = view(mpc, &windows, &View::Permute(vec![1, 0, 2, 3]))?;
    let want = Largest { position: true, ..Largest::default() };
    let found = mpc.max_first(first.share(), (x.width() + 1).min(64), want)?;
    let position =
        found.position.ok_or_else(|| Error::invalid("max-pool-grad", "no position came"))?;
    let width = usize::BITS - taps.leading_zeros() + 2;
    let position = reshape(mpc, &SecretTensor::new(position, 0, width), &Shape::new([count])?)?;
    let code = functions::one_hot(mpc, &position, taps)?;
    let column = reshape(mpc, grad, &Shape::new([count, 1])?)?;
    let parts =
        elementwise::mul(mpc, &Operand::Secret(code), &Operand::Secret(column), grad.frac())?;
    // Every part goes back to where its tap was read.
    let &[_, _, oh, ow] = windows.shape().dims() else { return Err(misfit()) };
    let parts = reshape(mpc, &parts, &Shape::new([planes, oh * ow, taps])?)?;
    let parts = view(mpc, &parts, &View::Permute(vec![0, 2, 1]))?;
    let parts = reshape(mpc, &parts, &Shape::new([planes, taps, oh, ow])?)?;
    let spread = Bilinear::ConvInputGrad { spec: ConvSpec::new(window), input: [h, w] };
    let taps = mpc.engine().upload(one_tap_each(pool)?)?;
    let share = mpc.linear(&Linear::TimesPublic(&spread, &taps), parts.share())?;
    let whole = SecretTensor::new(share, grad.frac(), 64);
    without_border(mpc, &whole, x.shape(), pool)
}

/// Kernels `[taps, 1, kh, kw]` of which each has one tap.
fn one_tap_each(pool: &Pool) -> Result<Tensor> {
    let taps = pool.taps();
    let words = (0..taps * taps).map(|i| u64::from(i / taps == i % taps)).collect::<Vec<_>>();
    Ok(Tensor::new(Shape::new([taps, 1, pool.size[0], pool.size[1]])?, words)?)
}

/// `[planes, 1, H, W]` with its border as the shape that it had without.
fn without_border<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    shape: &Shape,
    pool: &Pool,
) -> Result<SecretTensor<P>> {
    let rank = shape.rank();
    let mut inner = x.clone();
    for (axis, len) in [(2, shape.dims()[rank - 2]), (3, shape.dims()[rank - 1])] {
        let start = pool.padding[axis - 2];
        let slice = View::Slice { axis, start, end: start + len, step: 1 };
        inner = view(mpc, &inner, &slice)?;
    }
    reshape(mpc, &inner, shape)
}

/// The maximum under a window that is one element high or wide, without border.
fn along<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    window: &Window,
) -> Result<SecretTensor<P>> {
    if window.kernel == [1; 2] && window.stride == [1; 2] {
        return Ok(x.clone());
    }
    let windows = View::Windows(*window);
    let mut out = windows.output_shape(x.shape())?.dims().to_vec();
    out.remove(out.len() - 3);
    // A window along rows sees the rows of all channels alike: its taps come first then, as they should.
    let wide = window.kernel[0] == 1 && window.stride[0] == 1;
    let x = match x.shape().dims().last() {
        Some(&width) if wide => reshape(mpc, x, &Shape::new([x.shape().len() / width, width])?)?,
        _ => x.clone(),
    };
    // [.., taps, OH, OW] to [taps, .., OH, OW].
    let windows = view(mpc, &x, &windows)?;
    let rank = windows.shape().rank();
    let order = [rank - 3].into_iter().chain(0..rank - 3).chain([rank - 2, rank - 1]).collect();
    let taps = view(mpc, &windows, &View::Permute(order))?;
    drop(windows);
    let found = mpc.max_first(taps.share(), (x.width() + 1).min(64), Largest::default())?;
    let best = mpc.linear(&Linear::View(&View::Reshape(Shape::new(out)?)), &found.largest)?;
    Ok(SecretTensor::new(best, x.frac(), x.width()))
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
