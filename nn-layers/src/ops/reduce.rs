//! Reductions over axes, and what is built of them.

use mpc_core::{Largest, Linear, Protocol, SecretTensor, ShareTensor};
use ring_arith::{Shape, View};

use super::{align, elementwise, reshape, scale, view};
use crate::graph::Reduce;
use crate::{Error, Result};

/// Sums, means and extremes over axes; `shape` is the result's.
pub(crate) fn reduce<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    kind: Reduce,
    axes: &[usize],
    shape: &Shape,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let count: usize = axes.iter().map(|&a| x.shape().dims()[a]).product();
    let y = match kind {
        Reduce::Sum => sum(mpc, x, axes)?,
        Reduce::Mean => {
            let sum = sum(mpc, x, axes)?;
            scale(mpc, &sum, 1.0 / count.max(1) as f64, frac)?
        }
        Reduce::L1 => {
            let magnitude = elementwise::abs(mpc, x)?;
            sum(mpc, &magnitude, axes)?
        }
        Reduce::SumSquare => squares(mpc, x, axes, frac)?,
        Reduce::L2 => {
            let squares = squares(mpc, x, axes, frac)?;
            super::functions::sqrt(mpc, &squares)?
        }
        Reduce::Max | Reduce::Min => extreme(mpc, x, axes, kind == Reduce::Min, false)?,
    };
    reshape(mpc, &y, shape)
}

/// The position of the largest or smallest element along an axis, as an integer.
pub(crate) fn position<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    min: bool,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    let y = extreme(mpc, x, &[axis], min, true)?;
    reshape(mpc, &y, shape)
}

/// Sums over axes, which stay with length 1. Local.
pub(crate) fn sum<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    let count: usize = axes.iter().map(|&a| x.shape().dims()[a]).product();
    let share = mpc.linear(&Linear::Sum(axes), x.share())?;
    let grown = count.max(1).next_power_of_two().trailing_zeros();
    Ok(SecretTensor::new(share, x.frac(), (x.width() + grown).min(64)))
}

/// Groups as columns: the reduced axes first, flattened to one.
fn columns<P: Protocol>(mpc: &P, x: &SecretTensor<P>, axes: &[usize]) -> Result<SecretTensor<P>> {
    let (kept, [groups, group]) = kept(x, axes);
    let order = axes.iter().chain(&kept).copied().collect();
    let x = ordered(mpc, x, order)?;
    reshape(mpc, &x, &Shape::new([group, groups])?)
}

/// The axes that are not reduced, the number of groups, and the length of each.
fn kept<P: Protocol>(x: &SecretTensor<P>, axes: &[usize]) -> (Vec<usize>, [usize; 2]) {
    let dims = x.shape().dims();
    let kept: Vec<_> = (0..dims.len()).filter(|a| !axes.contains(a)).collect();
    let count = |axes: &[usize]| axes.iter().map(|&a| dims[a]).product();
    let counts = [count(&kept), count(axes)];
    (kept, counts)
}

fn ordered<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    order: Vec<usize>,
) -> Result<SecretTensor<P>> {
    if order.is_sorted() { Ok(x.clone()) } else { view(mpc, x, &View::Permute(order)) }
}

/// The sum of the squares of each group.
fn squares<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
    frac: u32,
) -> Result<SecretTensor<P>> {
    let squares = mpc_core::functions::sum_squares(mpc, x, axes)?;
    // Those of integers are integers.
    if x.frac() == 0 { Ok(squares) } else { align(mpc, &squares, frac) }
}

/// The largest or smallest of each group, or its position.
fn extreme<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
    min: bool,
    index: bool,
) -> Result<SecretTensor<P>> {
    let columns = columns(mpc, x, axes)?;
    let negate = |mpc: &P, s: &P::Share| mpc.linear(&Linear::Negate, s);
    let values = if min { negate(mpc, columns.share())? } else { columns.share().clone() };
    let want = Largest { position: index, ..Largest::default() };
    let found = mpc.max_first(&values, (x.width() + 1).min(64), want)?;
    if index {
        let position =
            found.position.ok_or_else(|| Error::invalid("argmax", "no position came"))?;
        let width = usize::BITS - values.shape().dims()[0].leading_zeros() + 2;
        return Ok(SecretTensor::new(position, 0, width));
    }
    let best = if min { negate(mpc, &found.largest)? } else { found.largest };
    Ok(SecretTensor::new(best, x.frac(), x.width()))
}

/// `(x - mean) / sqrt(variance + epsilon)` over the axes from `axis` on.
pub(crate) fn normalize<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    epsilon: f64,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let x = align(mpc, x, frac)?;
    Ok(mpc_core::functions::normalize(mpc, &x, axis, epsilon)?)
}
