//! Softmax and its logarithm.

use std::f64::consts::LN_2;

use super::{
    broadcast,
    compare::shifted,
    exp::{Tail, exp_nonpositive_to},
    exponent::argument,
    fixed::{at_20, product, products},
    max, rescale,
    shape::doublings,
    sub, sum,
    tables::{LOG, RECIPROCAL},
};
use crate::{Compare, Compared, Protocol, Result, SecretTensor, Then};

/// Fraction bits of one over a row's sum of one term, and of the reciprocal's polynomial.
const INVERSE: u32 = 28;

/// Rows of more terms than this need better exponentials: errors of small ones add up.
const FEW: usize = 1024;

/// How the exponentials of a row are computed.
struct Terms {
    /// Their fraction bits.
    frac: u32,
    /// Fraction bits of one over their sum: a product of both must stay below 2^62.
    inverse: u32,
    tail: Tail,
}

impl Terms {
    fn of(count: usize) -> Self {
        if count <= FEW {
            Self { frac: 28, inverse: INVERSE, tail: Tail::Cut }
        } else {
            Self { frac: 36, inverse: 25, tail: Tail::Long }
        }
    }
}

/// `e^x / sum(e^x)` along an axis.
///
/// # Domain and error
/// `|x| < 2^41`, rows of up to 200,000; error below `2^-17`. 20 fraction bits are used.
///
/// # Method
/// Subtract the maximum; [`super::exp_nonpositive`] at 28 fraction bits; one reciprocal for each row, of a sum that
/// is known to lie between 1 and the row's length `n`, so that comparisons with the powers of two up to
/// `n` normalise it.
///
/// # Cost
/// [`max`], [`super::exp_nonpositive`], `ceil(log2 n)` comparisons that share 6 rounds and six products for each
/// row, one product for each element: `37 + 5 ceil(log2 n)` rounds. In rows of more than 1024 one product more
/// for each element, of 189 bits.
/// With replicated sharing of a row of 16 at width 44: 57 rounds and 2744 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Invalid`] if the axis does not exist or is empty.
pub fn softmax<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    let row = Row::new(mpc, &x, axis)?;
    let power = row.powers;
    let r = RECIPROCAL.eval(mpc, &row.argument, INVERSE)?;
    let terms = Terms::of(x.shape().dims()[axis]);
    // 1 / sum = r * scale / 2^(power + 1)
    let drop = power + 1 + INVERSE - terms.inverse;
    let [inverse] = products(mpc, [(&r, &row.scale, drop)])?;
    let inverse = SecretTensor::new(inverse, terms.inverse, terms.inverse + 2);
    let inverse = broadcast(mpc, &inverse, x.shape())?;
    let out = frac.min(terms.inverse);
    let drop = terms.frac + terms.inverse - out;
    let share = product(mpc, row.exponentials.share(), inverse.share(), drop)?;
    rescale(mpc, &SecretTensor::new(share, out, out + 2), frac)
}

/// `x - ln(sum(e^x))` along an axis, without taking the logarithm of a softmax.
///
/// # Domain and error
/// As [`softmax`]; error below `2^-17`.
///
/// # Cost
/// As [`softmax`], with two products fewer for each row and none for the elements.
/// With replicated sharing of a row of 16 at width 44: 53 rounds and 2433 bits for each element in all.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    let row = Row::new(mpc, &x, axis)?;
    // ln(sum) = ln(m) + (1 + number of powers of two that the sum reaches) ln 2. Multiples of ln 2 are rounded
    // one by one, so that their errors do not add up.
    let multiple = |n: u32| (f64::from(n) * LN_2 * 2f64.powi(20)).round() as u64;
    let m = LOG.eval(mpc, &row.argument, 20)?;
    let step = |k: u32| multiple(k).wrapping_sub(multiple(k + 1));
    let missed = (1..).zip(&row.missed).map(|(k, missed)| (step(k), missed));
    let terms: Vec<_> = std::iter::once((1, &m)).chain(missed).collect();
    let share = mpc.combine(&terms, multiple(1 + row.powers))?;
    let logs = SecretTensor::new(share, 20, 27);
    let share = sub(mpc, &row.distance, &logs)?;
    rescale(mpc, &share, frac)
}

/// What both functions need of each row.
struct Row<P: Protocol> {
    /// `x - max(x)`, 20 fraction bits.
    distance: SecretTensor<P>,
    /// `e^(x - max(x))`, with the fraction bits of its [`Terms`].
    exponentials: SecretTensor<P>,
    /// `ceil(log2 n)`.
    powers: u32,
    /// Which of `2, 4, .., 2^powers` the sum does not reach.
    missed: Vec<P::Share>,
    /// `2^powers` over the largest power of two that the sum reaches.
    scale: P::Share,
    /// The argument of normalised functions for `sum * scale / 2^(powers + 1)`.
    argument: P::Share,
}

impl<P: Protocol> Row<P> {
    fn new(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<Self> {
        let largest = max(mpc, x, axis)?;
        let distance = sub(mpc, x, &largest)?;
        let count = x.shape().dims()[axis];
        let Terms { frac, tail, .. } = Terms::of(count);
        let exponentials = exp_nonpositive_to(mpc, &distance, frac, tail)?;
        let total = sum(mpc, &exponentials, &[axis])?;
        let powers = doublings(count);
        let (scale, missed) = scale_of(mpc, &total, powers)?;
        let argument = argument(mpc, total.share(), &scale, frac + powers + 1)?;
        Ok(Self { distance, exponentials, powers, missed, scale, argument })
    }
}

/// Compares sums with `2, 4, .., 2^powers`: the power of two that brings them to `2^powers` and more, and
/// which they do not reach.
fn scale_of<P: Protocol>(
    mpc: &mut P,
    total: &SecretTensor<P>,
    powers: u32,
) -> Result<(P::Share, Vec<P::Share>)> {
    let mut distances = Vec::with_capacity(powers as usize);
    for k in 1..=powers {
        distances.push(shifted(mpc, total, 1 << (total.frac() + k))?);
    }
    if distances.is_empty() {
        return Ok((mpc.combine(&[(0, total.share())], 1)?, Vec::new()));
    }
    let jobs = distances.iter().map(|distance| Compare {
        value: distance.share(),
        width: distance.width(),
        then: Then::word(),
    });
    let answers = mpc.compare(&jobs.collect::<Vec<_>>())?;
    let below = answers.into_iter().map(Compared::into_word).collect::<Result<Vec<_>>>()?;
    let weighted: Vec<_> =
        below.iter().enumerate().map(|(i, b)| (1 << (powers - 1 - i as u32), b)).collect();
    Ok((mpc.combine(&weighted, 1)?, below))
}
