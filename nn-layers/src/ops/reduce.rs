//! Reductions over axes, and functions built of them.

use mpc_core::{Finish, Largest, Linear, Product, Protocol, SecretTensor, ShareTensor};
use ring_arith::{Bilinear, Shape, View};

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
    // Reductions of integers are integers.
    if x.frac() == 0 { Ok(squares) } else { align(mpc, &squares, frac) }
}

/// Elements of which one inner product is taken at a time.
const RUN: usize = 256;

/// Inner products over axes, which stay with length 1, with `frac` fraction bits; of `x` with itself without `y`.
///
/// Each run of 256 elements is summed and then truncated, and the runs' sums are added. A sum of squares of a
/// whole batch would leave 62 bits, and truncating every product would cost as much as the products.
///
/// # Cost
/// [`Protocol::products`] of one truncated word for each 256 elements.
pub(crate) fn dot<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: Option<&SecretTensor<P>>,
    axes: &[usize],
    frac: u32,
) -> Result<SecretTensor<P>> {
    let (others, [groups, group]) = kept::<P>(x, axes);
    let mut dims = x.shape().dims().to_vec();
    axes.iter().for_each(|&axis| dims[axis] = 1);
    let out = Shape::new(dims)?;
    let run = RUN.min(group.max(1));
    let runs = group.div_ceil(run);
    let order: Vec<_> = others.iter().chain(axes).copied().collect();
    let x_rows = runs_of(mpc, x, &order, [groups, runs, run])?;
    // A square takes one form twice.
    let y_rows = y.map(|y| runs_of(mpc, y, &order, [groups, runs, run])).transpose()?;
    let sum = x.frac() + y.unwrap_or(x).frac();
    let bits = sum.checked_sub(frac).ok_or_else(|| {
        Error::invalid("dot", format!("products have {sum} fraction bits, {frac} are needed"))
    })?;
    let finish = match bits {
        0 => Finish::Raw,
        _ => Finish::Truncate { bits, mode: mpc.truncation() },
    };
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let job = Product::new(op, &x_rows, y_rows.as_ref().unwrap_or(&x_rows), finish);
    let share = mpc.product(job)?.share;
    let sums = mpc.linear(&Linear::View(&View::Reshape(Shape::new([groups, runs])?)), &share)?;
    let sums = mpc.linear(&Linear::Sum(&[1]), &sums)?;
    reshape(mpc, &SecretTensor::new(sums, frac, 64), &out)
}

/// Groups as rows of runs, `[groups * runs, 1, run]`, the last run of a group filled with zeros.
fn runs_of<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    order: &[usize],
    [groups, runs, run]: [usize; 3],
) -> Result<P::Share> {
    let x = ordered(mpc, x, order.to_vec())?;
    let group = x.shape().len() / groups.max(1);
    let mut x = reshape(mpc, &x, &Shape::new([groups, group])?)?;
    let missing = runs * run - group;
    if missing > 0 {
        let pad = View::Pad { before: vec![0, 0], after: vec![0, missing], value: 0 };
        x = view(mpc, &x, &pad)?;
    }
    let rows = reshape(mpc, &x, &Shape::new([groups * runs, 1, run])?)?;
    Ok(rows.share().clone())
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
