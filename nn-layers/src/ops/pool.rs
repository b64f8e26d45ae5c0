//! Pooling.

use mpc_core::{Largest, Linear, Protocol, SecretTensor};
use ring_arith::{Shape, View, Window};

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
