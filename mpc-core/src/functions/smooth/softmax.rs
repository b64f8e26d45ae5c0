//! Softmax and its logarithm.

use std::f64::consts::LN_2;

use ring_arith::{Bilinear, Engine, Shape, Tensor};

use crate::functions::{
    arithmetic::fixed::{at_20, product, run, working_chain},
    broadcast,
    compare::choose::shifted,
    gather, max, permute, rescale, reshape,
    shape::doublings,
    smooth::exp::{Tail, exp_nonpositive_to},
    smooth::exponent::argument,
    smooth::tables::{LOG, RECIPROCAL},
    sub, sum,
};
use crate::{
    Chain, Compare, Compared, Format, Linear, Profile, Protocol, Result, SecretTensor, Sum, Then,
    TruncationMode, Value,
};

/// Fraction bits of one over a row's sum of one term, and of the reciprocal's polynomial.
const INVERSE: u32 = 28;

/// Rows of more terms than this need better exponentials: errors of small ones add up.
const FEW: usize = 1024;

/// The method for the exponentials of a row.
struct Terms {
    /// Their fraction bits.
    frac: u32,
    /// Fraction bits of one over their sum: a product of both must stay below 2^62.
    inverse: u32,
    tail: Tail,
}

impl Terms {
    fn of(count: usize) -> Self {
        let few = FEW;
        mutant!("softmax: long rows as short ones", few = usize::MAX);
        if count <= few {
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
/// Subtract the maximum; [`crate::functions::exp_nonpositive`] at 28 fraction bits; one reciprocal for each row. The sum lies
/// between 1 and the row's length `n`, so comparisons with the powers of two below `n` normalise it.
///
/// # Cost
/// [`max`], [`crate::functions::exp_nonpositive`], `ceil(log2 n) - 1` comparisons that share 6 rounds and six products for each
/// row, one product for each element: `28 + 5 ceil(log2 n)` rounds. In rows of more than 1024 one product more
/// for each element, of 189 bits.
/// With replicated sharing of a row of 16 at width 44: 48 rounds and 2606 bits for each element in all. Of a few
/// rows of up to 16 terms the maximum takes 11 rounds instead.
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
    let terms = Terms::of(x.shape().dims()[axis]);
    let mut chain = working_chain::<P>(mpc);
    let [total, scale] = [row.total.share(), &row.scale].map(|x| chain.input(x));
    let v = row.argument(&mut chain, total, scale, mpc.truncation());
    let r = RECIPROCAL.eval(&mut chain, &v, INVERSE);
    // 1 / sum = r * scale / 2^(powers + 1)
    let inverse = chain.product(r, scale, row.powers + 1 + INVERSE - terms.inverse);
    let inverse = run(mpc, chain, inverse)?;
    let inverse =
        SecretTensor::new(inverse, Format { frac: terms.inverse, width: terms.inverse + 2 });
    let inverse = broadcast(mpc, &inverse, x.shape())?;
    let out = frac.min(terms.inverse);
    let drop = terms.frac + terms.inverse - out;
    let share = product(mpc, row.exponentials.share(), inverse.share(), drop)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: out, width: out + 2 }), frac)
}

/// `x - ln(sum(e^x))` along an axis, without taking the logarithm of a softmax.
///
/// # Domain and error
/// As [`softmax`]; error below `2^-17`.
///
/// # Cost
/// As [`softmax`], with two products fewer for each row and none for the elements.
/// With replicated sharing of a row of 16 at width 44: 45 rounds and 2296 bits for each element in all.
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
    let ln_2 = LN_2;
    mutant!("log-softmax: ln 2 to four digits", ln_2 = ln_2 - 1e-4);
    let multiple = |n: u32| (f64::from(n) * ln_2 * 2f64.powi(20)).round() as u64;
    let mut chain = working_chain::<P>(mpc);
    let [total, scale] = [row.total.share(), &row.scale].map(|x| chain.input(x));
    let v = row.argument(&mut chain, total, scale, mpc.truncation());
    let m = LOG.eval(&mut chain, &v, 20);
    let m = run(mpc, chain, m)?;
    let step = |k: u32| multiple(k).wrapping_sub(multiple(k + 1));
    let missed = (1..).zip(&row.missed).map(|(k, missed)| (step(k), missed));
    let terms: Vec<_> = std::iter::once((1, &m)).chain(missed).collect();
    let share = mpc.combine(&terms, multiple(1 + row.powers))?;
    let logs = SecretTensor::new(share, Format { frac: 20, width: 27 });
    let share = sub(mpc, &row.distance, &logs)?;
    rescale(mpc, &share, frac)
}

/// The values of each row that both functions need.
struct Row<P: Protocol> {
    /// `x - max(x)`, 20 fraction bits.
    distance: SecretTensor<P>,
    /// `e^(x - max(x))`, with the fraction bits of its [`Terms`].
    exponentials: SecretTensor<P>,
    /// The number of powers of two from 2 on that are below `n`.
    powers: u32,
    /// For each of `2, 4, .., 2^powers`: 1 if the sum does not reach it.
    missed: Vec<P::Share>,
    /// `2^powers` over the largest power of two that the sum reaches.
    scale: P::Share,
    /// The sum of the exponentials.
    total: SecretTensor<P>,
}

impl<P: Protocol> Row<P> {
    fn new(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<Self> {
        let largest = largest(mpc, x, axis)?;
        let distance = sub(mpc, x, &largest)?;
        let count = x.shape().dims()[axis];
        let Terms { frac, tail, .. } = Terms::of(count);
        let exponentials = exp_nonpositive_to(mpc, &distance, frac, tail)?;
        let total = sum(mpc, &exponentials, &[axis])?;
        // The sum may equal the next power of two, and normalised words may equal 1.
        let powers = doublings(count).saturating_sub(1);
        mutant!("softmax: a power of two missed", powers = powers.saturating_sub(1));
        let (scale, missed) = scale_of(mpc, &total, powers)?;
        Ok(Self { distance, exponentials, powers, missed, scale, total })
    }

    /// The argument of normalised functions for `total * scale / 2^(powers + 1)`.
    fn argument(
        &self,
        chain: &mut Chain<'_, P::Share>,
        total: Value,
        scale: Value,
        mode: TruncationMode,
    ) -> Sum {
        argument(chain, total, scale, self.total.frac() + self.powers + 1, mode)
    }
}

/// The most comparisons in which rows are compared pair by pair: rounds then cost more than bytes.
const FEW_PAIRS: usize = 1 << 14;

/// The most terms of such a row.
const FEW_TERMS: usize = 16;

/// The largest term of each row: of short rows, if there are few, in two comparisons one after the other.
fn largest<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, axis: usize) -> Result<SecretTensor<P>> {
    let dims = x.shape().dims();
    let Some(&terms) = dims.get(axis).filter(|k| (3..=FEW_TERMS).contains(*k)) else {
        return max(mpc, x, axis);
    };
    // A tournament that saves rounds takes no more.
    let many = x.shape().len() * (terms - 1) / 2 > FEW_PAIRS;
    if many || mpc.profile() != Profile::Bytes {
        return max(mpc, x, axis);
    }
    let mut order: Vec<_> = (0..dims.len()).collect();
    order.swap(0, axis);
    let turned = permute(mpc, x, &order)?;
    let rows = reshape(mpc, &turned, &Shape::new([terms, x.shape().len() / terms])?)?;
    let largest = pair_by_pair(mpc, &rows)?;
    let mut back = turned.shape().dims().to_vec();
    back[0] = 1;
    permute(mpc, &reshape(mpc, &largest, &Shape::new(back)?)?, &order)
}

/// `[k, n]` to `[1, n]`: the largest of each column. Only the first of the largest is greater than all before
/// it, and greater than or equal to all after it.
fn pair_by_pair<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (terms, columns) = (x.shape().dims()[0], x.shape().dims()[1]);
    let pairs: Vec<_> = (0..terms).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
    let earlier = gather(mpc, x, 0, &pairs.iter().map(|pair| pair.0).collect::<Vec<_>>())?;
    let later = gather(mpc, x, 0, &pairs.iter().map(|pair| pair.1).collect::<Vec<_>>())?;
    let difference = sub(mpc, &earlier, &later)?;
    let then = Then::word();
    let job = Compare { value: difference.share(), width: difference.width(), then };
    let beaten = mpc.compare_one(job)?.into_word()?;
    // Less than the number of terms by one where a term has won against all: 0 then, below 0 elsewhere.
    let mut counts = vec![0; terms * pairs.len()];
    for (at, &(earlier, later)) in pairs.iter().enumerate() {
        counts[earlier * pairs.len() + at] = u64::MAX;
        counts[later * pairs.len() + at] = 1;
    }
    let counts = Tensor::new(Shape::new([terms, pairs.len()])?, counts)?;
    let counts = mpc.engine().upload(counts)?;
    let won = mpc.linear(&Linear::PublicTimes(&Bilinear::MATMUL, &counts), &beaten)?;
    let before = (0..terms * columns).map(|i| ((i / columns) as u64).wrapping_neg()).collect();
    let before = Tensor::new(Shape::new([terms, columns])?, before)?;
    let before = mpc.engine().upload(before)?;
    let won = mpc.linear(&Linear::AddPublic(&before), &won)?;
    let width = usize::BITS - terms.leading_zeros() + 1;
    let words = [x.share()];
    let job = Compare { value: &won, width, then: Then::not_negative(&words) };
    let chosen = mpc.compare_one(job)?.into_word()?;
    let share = mpc.linear(&Linear::Sum(&[0]), &chosen)?;
    Ok(SecretTensor::new(share, x.format()))
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
