//! Softmax and its logarithm.

use std::f64::consts::LN_2;

use super::{
    broadcast,
    compare::shifted,
    exp::exp_nonpositive_to,
    exponent::argument,
    fixed::{at_20, product, products},
    max, rescale,
    shape::doublings,
    sub, sum,
    tables::{LOG, RECIPROCAL},
};
use crate::{Compare, Compared, Protocol, Result, SecretTensor, Then};

/// Fraction bits of exponentials before they are normalised.
const FINE: u32 = 28;

/// `e^x / sum(e^x)` along an axis.
///
/// # Domain and error
/// `|x| < 2^41` at 20 fraction bits; error below `2^-17`. More than 20 fraction bits are not used.
///
/// # Method
/// Subtract the maximum; [`super::exp_nonpositive`] at 28 fraction bits; one reciprocal for each row, of a sum that
/// is known to lie between 1 and the row's length `n`, so that comparisons with the powers of two up to
/// `n` normalise it.
///
/// # Cost
/// [`max`], [`super::exp_nonpositive`], `ceil(log2 n)` comparisons that share 6 rounds and six products for each
/// row, one product for each element: `37 + 5 ceil(log2 n)` rounds.
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
    let r = RECIPROCAL.eval(mpc, &row.argument, FINE)?;
    // 1 / sum = r * scale / 2^(power + 1)
    let [inverse] = products(mpc, [(&r, &row.scale, power + 1)])?;
    let inverse = SecretTensor::new(inverse, FINE, FINE + 2);
    let inverse = broadcast(mpc, &inverse, x.shape())?;
    let out = frac.min(FINE);
    let share = product(mpc, row.exponentials.share(), inverse.share(), 2 * FINE - out)?;
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
    // ln(sum) = ln(m) + (1 + number of powers of two that the sum reaches) ln 2.
    let ln2 = (LN_2 * 2f64.powi(20)).round() as u64;
    let m = LOG.eval(mpc, &row.argument, 20)?;
    let most = ((1.0 + f64::from(row.powers)) * LN_2 * 2f64.powi(20)).round() as u64;
    let share = match &row.missed {
        Some(missed) => mpc.combine(&[(1, &m), (ln2.wrapping_neg(), missed)], most)?,
        None => mpc.combine(&[(1, &m)], most)?,
    };
    let logs = SecretTensor::new(share, 20, 27);
    let share = sub(mpc, &row.distance, &logs)?;
    rescale(mpc, &share, frac)
}

/// What both functions need of each row.
struct Row<P: Protocol> {
    /// `x - max(x)`, 20 fraction bits.
    distance: SecretTensor<P>,
    /// `e^(x - max(x))`, [`FINE`] fraction bits.
    exponentials: SecretTensor<P>,
    /// `ceil(log2 n)`.
    powers: u32,
    /// How many of `2, 4, .., 2^powers` the sum does not reach.
    missed: Option<P::Share>,
    /// `2^powers` over the largest power of two that the sum reaches.
    scale: P::Share,
    /// The argument of normalised functions for `sum * scale / 2^(powers + 1)`.
    argument: P::Share,
}

impl<P: Protocol> Row<P> {
    fn new(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<Self> {
        let largest = max(mpc, x, axis)?;
        let distance = sub(mpc, x, &largest)?;
        let exponentials = exp_nonpositive_to(mpc, &distance, FINE)?;
        let total = sum(mpc, &exponentials, &[axis])?;
        let powers = doublings(x.shape().dims()[axis]);
        let (scale, missed) = scale_of(mpc, &total, powers)?;
        let argument = argument(mpc, total.share(), &scale, FINE + powers + 1)?;
        Ok(Self { distance, exponentials, powers, missed, scale, argument })
    }
}

/// Compares sums with `2, 4, .., 2^powers`: the power of two that brings them to `2^powers` and more, and
/// how many they do not reach.
fn scale_of<P: Protocol>(
    mpc: &mut P,
    total: &SecretTensor<P>,
    powers: u32,
) -> Result<(P::Share, Option<P::Share>)> {
    let mut distances = Vec::with_capacity(powers as usize);
    for k in 1..=powers {
        distances.push(shifted(mpc, total, 1 << (FINE + k))?);
    }
    if distances.is_empty() {
        return Ok((mpc.combine(&[(0, total.share())], 1)?, None));
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
    let counted: Vec<_> = below.iter().map(|b| (1, b)).collect();
    Ok((mpc.combine(&weighted, 1)?, Some(mpc.combine(&counted, 0)?)))
}
