//! Reductions over axes, and what is built of them.

use mpc_core::{
    Finish, Largest, Linear, Operand, Product, Protocol, SecretTensor, ShareTensor, TruncationMode,
};
use ring_arith::{Bilinear, Shape, View};

use super::{add, align, elementwise, reshape, scale, view};
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

/// Groups as rows: the reduced axes last, flattened to one.
fn rows<P: Protocol>(mpc: &P, x: &SecretTensor<P>, axes: &[usize]) -> Result<SecretTensor<P>> {
    let (kept, [groups, group]) = kept(x, axes);
    let order = kept.iter().chain(axes).copied().collect();
    let x = ordered(mpc, x, order)?;
    reshape(mpc, &x, &Shape::new([groups, group])?)
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

/// The sum of the squares of each group: one inner product each.
fn squares<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
    frac: u32,
) -> Result<SecretTensor<P>> {
    let rows = rows(mpc, x, axes)?;
    let &[groups, group] = rows.shape().dims() else {
        return Err(Error::invalid("reduce", "rows have two axes"));
    };
    let lhs = reshape(mpc, &rows, &Shape::new([groups, 1, group])?)?;
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let bits = (2 * x.frac()).saturating_sub(frac);
    let finish = match bits {
        0 => Finish::Raw,
        _ => Finish::Truncate { bits, mode: TruncationMode::Default },
    };
    let share = mpc.product(Product::new(op, lhs.share(), lhs.share(), finish))?.share;
    Ok(SecretTensor::new(share, 2 * x.frac() - bits, 64 - bits))
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

/// Fraction bits that a variance has beyond the format's.
const FINE: u32 = 10;
/// Fraction bits that one over its root has beyond the format's.
const FACTOR: u32 = 4;

/// `(x - mean) / sqrt(variance + epsilon)` over the axes from `axis` on.
///
/// # Cost
/// One inner product and one inverse square root for each row, one product for each element. The variance
/// has more fraction bits than the format, so that rows that hardly vary keep their precision.
pub(crate) fn normalize<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    epsilon: f64,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let shape = x.shape().clone();
    let axes: Vec<_> = (axis..shape.rank()).collect();
    let rows = rows(mpc, x, &axes)?;
    let group = rows.shape().dims()[1].max(1);
    let total = sum(mpc, &rows, &[1])?;
    let mean = scale(mpc, &total, 1.0 / group as f64, frac)?;
    let centred = add(mpc, &rows, &mean, true)?;
    let centred = align(mpc, &centred, frac)?;
    // With `4^half <= group`, the sum of squares is read as `4^half` times less, for nothing; the
    // rest of the mean's factor, below 4, is left to its root. Small variances need more fraction
    // bits than the format has.
    let half = group.ilog2() / 2;
    let rest = group as f64 / f64::from(2 * half).exp2();
    let fine = (frac + FINE).saturating_sub(2 * half).clamp(frac, 2 * frac);
    let squares = squares(mpc, &centred, &[1], fine)?;
    let squares = reshape(mpc, &squares, &Shape::new([shape_rows(&rows), 1])?)?;
    let width = squares.width();
    let variance = SecretTensor::new(squares.share().clone(), fine + 2 * half, width);
    // An epsilon below the noise of a constant row would make that row's result large.
    let epsilon = epsilon.max((-f64::from(frac + FINE / 2)).exp2());
    let variance = super::shift(mpc, &variance, epsilon * rest)?;
    let factor = super::functions::inverse_sqrt_to(mpc, &variance, frac + FACTOR)?;
    let factor =
        if rest == 1.0 { factor } else { scale(mpc, &factor, rest.sqrt(), frac + FACTOR)? };
    let y = elementwise::mul(mpc, &Operand::Secret(centred), &Operand::Secret(factor), frac)?;
    reshape(mpc, &y, &shape)
}

fn shape_rows<P: Protocol>(rows: &SecretTensor<P>) -> usize {
    rows.shape().dims()[0]
}
