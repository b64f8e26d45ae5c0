//! Products computed a second time, with fewer bits, and compared with their results.

use mpc_core::{Finish, Linear, Product, Protocol, ShareTensor, Term, TruncationMode};
use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

use super::factors::SUMS;
use super::fold::{Fold, Right};
use crate::{Error, Result};

/// Bits that are dropped from operands. A result that wrapped around `k` times goes unnoticed if `2^12` divides `k`.
pub(super) const COARSER: u32 = 12;

/// Half of the least difference that shows a wrong result.
pub(super) const BOUND: u64 = 1 << (63 - COARSER);

/// The sums of one value of one caller, and those made of its operands.
pub(super) struct Recheck<P: Protocol> {
    pub own: Coarse<P>,
    pub terms: Vec<Coarse<P>>,
}

/// Two factors of sums: of the first some bits are dropped, or the product is raised by some.
pub(super) struct Coarse<P: Protocol> {
    pub fold: Fold<P>,
    pub drop: u32,
    pub up: u32,
}

impl<P: Protocol> std::fmt::Debug for Recheck<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recheck({} terms)", self.terms.len())
    }
}

/// The number of failed checks of each product, given the differences below minus the bound, and those below
/// the bound.
pub(super) fn failed<P: Protocol>(mpc: &P, below: &P::Share, products: usize) -> Result<P::Share> {
    let shape = Shape::new([products, 2, SUMS])?;
    let below = mpc.linear(&Linear::View(&View::Reshape(shape)), below)?;
    let all = mpc.linear(&Linear::Sum(&[2]), &below)?;
    let all = mpc.linear(&Linear::View(&View::Reshape(Shape::new([products, 2])?)), &all)?;
    let signs = Tensor::new(Shape::new([2, 1])?, vec![1, 1u64.wrapping_neg()])?;
    let signs = mpc.engine().upload(signs)?;
    let outside = mpc.linear(&Linear::TimesPublic(&Bilinear::MATMUL, &signs), &all)?;
    let outside = mpc.linear(&Linear::Shift(SUMS as u64), &outside)?;
    flat(mpc, &outside)
}

/// The sums less their expected values, `[SUMS]` of each. Three rounds.
pub(super) fn differences<'a, P: Protocol>(
    mpc: &mut P,
    rechecks: &'a [Recheck<P>],
) -> Result<Vec<P::Share>> {
    let all = |recheck: &'a Recheck<P>| std::iter::once(&recheck.own).chain(&recheck.terms);
    let dropped = rechecks.iter().flat_map(all).map(|sums| (&sums.fold.left, sums.drop));
    let dropped: Vec<_> = dropped.filter(|(_, bits)| *bits > 0).collect();
    let mut coarse = if dropped.is_empty() {
        vec![].into_iter()
    } else {
        // The rounding here does not change any result.
        mpc.truncate(&dropped, TruncationMode::Default)?.into_iter()
    };
    let unanswered = || Error::invalid("guard", "the protocol left a product unanswered");
    let mut factors = vec![];
    let mut differences = vec![];
    for recheck in rechecks {
        let mut secret = vec![];
        let mut sum = None;
        for sums in all(recheck) {
            let left = match sums.drop {
                0 => sums.fold.left.clone(),
                _ => coarse.next().ok_or_else(unanswered)?,
            };
            let made = match &sums.fold.right {
                Right::None => left,
                Right::Secret(right) => {
                    secret.push(operands(mpc, &left, right, sums.up)?);
                    continue;
                }
                Right::Public(right) => {
                    let times = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
                    flat(mpc, &mpc.linear(&Linear::TimesPublic(&times, right), &left)?)?
                }
            };
            // These words are meant to wrap around.
            let factor = 1u64 << sums.up;
            sum = Some(match sum {
                None => mpc.combine(&[(factor, &made)], 0)?,
                Some(sum) => mpc.combine(&[(1, &sum), (factor.wrapping_neg(), &made)], 0)?,
            });
        }
        let sum = sum.ok_or_else(|| Error::plan("a guarded value has no sums"))?;
        factors.push(secret);
        differences.push(sum);
    }
    let jobs = factors.iter().filter(|terms| !terms.is_empty()).map(|terms| Product {
        terms: terms.iter().map(|[lhs, rhs]| Term { op: Bilinear::MATMUL, lhs, rhs }).collect(),
        summands: vec![],
        finish: Finish::Raw,
        sums: None,
    });
    let jobs: Vec<_> = jobs.collect();
    let mut products = if jobs.is_empty() { vec![] } else { mpc.products(&jobs)? }.into_iter();
    for (sum, terms) in differences.iter_mut().zip(&factors) {
        if !terms.is_empty() {
            let product = flat(mpc, &products.next().ok_or_else(unanswered)?.share)?;
            *sum = mpc.combine(&[(1, sum), (1u64.wrapping_neg(), &product)], 0)?;
        }
    }
    Ok(differences)
}

/// The factors of inner products for all sums, `[SUMS, 1, 1]` as a product of matrices.
fn operands<P: Protocol>(
    mpc: &P,
    left: &P::Share,
    right: &P::Share,
    up: u32,
) -> Result<[P::Share; 2]> {
    let shaped = |x: &P::Share, last: bool| {
        let &[rows, k] = x.shape().dims() else { return Err(Error::plan("sums have no rows")) };
        let mut dims = if last { vec![k, 1] } else { vec![1, k] };
        if rows > 1 {
            dims.insert(0, rows);
        }
        Ok(mpc.linear(&Linear::View(&View::Reshape(Shape::new(dims)?)), x)?)
    };
    let right = mpc.combine(&[(1 << up, right)], 0)?;
    Ok([shaped(left, false)?, shaped(&right, true)?])
}

/// A tensor of one axis.
pub(super) fn flat<P: Protocol>(mpc: &P, x: &P::Share) -> Result<P::Share> {
    let shape = Shape::new([x.shape().len()])?;
    Ok(mpc.linear(&Linear::View(&View::Reshape(shape)), x)?)
}
