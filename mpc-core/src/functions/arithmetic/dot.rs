//! Inner products over axes.

use ring_arith::{Bilinear, Shape, View};

use crate::functions::{arithmetic::no_answer, permute, reshape, view};
use crate::{Error, Finish, Format, Linear, Product, Protocol, Result, SecretTensor};

/// Elements of which one inner product is taken at a time.
const RUN: usize = 256;

/// Inner products over axes, which stay with length 1, with `frac` fraction bits; of `x` with itself without `y`.
///
/// Each run of 256 elements is summed and then truncated, and the runs' sums are added. A sum of squares of a
/// whole batch would leave 62 bits, and truncating every product would cost as much as the products.
///
/// # Domain and error
/// Sums of 256 products below `2^62` as words before truncation; one unit in the last place for each run.
///
/// # Cost
/// [`Protocol::products`] of one truncated word for each 256 elements.
/// With replicated sharing of 256 elements: 2 rounds and 1 bits for each element in all.
///
/// # Errors
/// [`Error::FracBits`] if products have fewer fraction bits than are wanted; [`ring_arith::Error`] if shapes
/// differ or an axis does not exist.
pub fn dot<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: Option<&SecretTensor<P>>,
    axes: &[usize],
    frac: u32,
) -> Result<SecretTensor<P>> {
    let kept = crate::functions::sum(mpc, x, axes)?.shape().clone();
    let groups = kept.len();
    let group = x.shape().len() / groups.max(1);
    let run = RUN.min(group.max(1));
    let runs = group.div_ceil(run);
    let others = (0..x.shape().rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<_> = others.chain(axes.iter().copied()).collect();
    let x_rows = runs_of(mpc, x, &order, [groups, runs, run])?;
    // A square takes one form twice.
    let y_rows = y.map(|y| runs_of(mpc, y, &order, [groups, runs, run])).transpose()?;
    let both = x.frac() + y.unwrap_or(x).frac();
    let finish = match both.checked_sub(frac) {
        None => return Err(Error::FracBits { op: "dot", lhs: both, rhs: frac }),
        Some(0) => Finish::Raw,
        Some(bits) => Finish::Truncate { bits, mode: mpc.truncation() },
    };
    let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
    let job = Product::new(op, &x_rows, y_rows.as_ref().unwrap_or(&x_rows), finish);
    let share = mpc.product(job)?.share;
    let sums = mpc.linear(&Linear::View(&View::Reshape(Shape::new([groups, runs])?)), &share)?;
    let sums = mpc.linear(&Linear::Sum(&[1]), &sums)?;
    reshape(mpc, &SecretTensor::new(sums, Format::words(frac)), &kept)
}

/// Groups as rows of runs, `[groups * runs, 1, run]`, the last run of a group filled with zeros.
fn runs_of<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    order: &[usize],
    [groups, runs, run]: [usize; 3],
) -> Result<P::Share> {
    let x = if order.is_sorted() { x.clone() } else { permute(mpc, x, order)? };
    let group = x.shape().len() / groups.max(1);
    let mut x = reshape(mpc, &x, &Shape::new([groups, group])?)?;
    let missing = (runs * run).checked_sub(group).ok_or_else(|| no_answer("dot"))?;
    if missing > 0 {
        let pad = View::Pad { before: vec![0, 0], after: vec![0, missing], value: 0 };
        x = view(mpc, &x, &pad)?;
    }
    let rows = reshape(mpc, &x, &Shape::new([groups * runs, 1, run])?)?;
    Ok(rows.share().clone())
}
