//! Sums of squares and normalisation of rows, in two limbs: a square alone would leave 62 bits.

use ring_arith::{Bilinear, Shape, View};
use serde::{Deserialize, Serialize};

use crate::functions::{
    arithmetic::fixed::{product, working_chain},
    arithmetic::{no_answer, truncated},
    broadcast, permute, reshape, slice,
    smooth::exponent::{Exponent, argument, look_up},
    smooth::tables::INV_SQRT,
    sub, sum,
};
use crate::{
    Error, Finish, Format, Linear, Product, Protocol, Result, SecretTensor, ShareTensor, Sum,
};

/// Words as `high * 2^cut + low`, the low limb up to `2^cut` and of either sign.
struct Limbs<P: Protocol> {
    high: P::Share,
    low: P::Share,
}

impl<P: Protocol> Limbs<P> {
    fn of(mpc: &mut P, x: &P::Share, cut: u32) -> Result<Self> {
        let high = truncated(mpc, &[(x, cut)])?.remove(0);
        Self::below(mpc, x, high, cut)
    }

    /// The limbs of words whose high limb is known.
    fn below(mpc: &P, x: &P::Share, high: P::Share, cut: u32) -> Result<Self> {
        let low = mpc.combine(&[(1, x), ((1u64 << cut).wrapping_neg(), &high)], 0)?;
        Ok(Self { high, low })
    }
}

/// Sums of squares over axes, which stay with length 1.
///
/// # Domain and error
/// Sums with an encoding, `sum(x^2) < 2^(62 - f)` at `f` fraction bits; one unit in the last place.
///
/// # Cost
/// One truncation of each element and three inner products of each row: 4 rounds.
/// With replicated sharing of a row of 16 at width 44: 4 rounds and 164 bits for each element in all.
///
/// # Errors
/// [`ring_arith::Error::Invalid`] if an axis does not exist.
pub fn sum_squares<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
) -> Result<SecretTensor<P>> {
    halved_squares(mpc, x, axes, 0)
}

/// Sums of squares over axes, which stay with length 1, divided by `2^halvings`: at most as many as there are fraction
/// bits. Quotients need an encoding, sums do not.
pub(in crate::functions) fn halved_squares<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axes: &[usize],
    halvings: u32,
) -> Result<SecretTensor<P>> {
    let kept = sum(mpc, x, axes)?.shape().clone();
    let others = (0..x.shape().rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<_> = others.chain(axes.iter().copied()).collect();
    let turned = permute(mpc, x, &order)?;
    let groups = kept.len();
    let rows = Shape::new([groups, x.shape().len() / groups.max(1)])?;
    let rows = reshape(mpc, &turned, &rows)?;
    let f = x.frac();
    let share = if f == 0 {
        inner(mpc, &[(rows.share(), rows.share(), 0)])?.remove(0)
    } else {
        let Limbs { high, low } = Limbs::of(mpc, rows.share(), f)?;
        // The mixed product counts twice.
        let (times, dropped) = halvings.checked_sub(1).map_or((2, 0), |dropped| (1, dropped));
        mutant!("sum of squares: a mixed product once", times = 1);
        let jobs = [(&high, &high, 0), (&high, &low, dropped), (&low, &low, f + halvings)];
        let [high, mixed, low] = three(inner(mpc, &jobs)?)?;
        let high = mpc.linear(&Linear::Scale(1 << (f - halvings)), &high)?;
        let rest = mpc.combine(&[(times, &mixed), (1, &low)], 0)?;
        mpc.add(&high, &rest)?
    };
    reshape(mpc, &SecretTensor::new(share, Format { frac: f, width: 63 }), &kept)
}

/// The bit from which on [`normalize`] cuts words.
const CUT: u32 = 19;

/// Sums of squares with at least this many high digits count as large: in units of `2^38` they have 22 bits.
const LARGE: u32 = 5;

/// Fraction bits of the inverse root's polynomial and of its table.
const ROOT: u32 = 26;

/// Epsilons below this, in squared units of the last place, leave rows of small distances to the rounding of their
/// numbers.
const FAINT_EPSILON: f64 = 4096.0;

/// The least epsilon that [`normalize`] takes as it is, in squared units of the last place.
fn least_epsilon(frac: u32) -> f64 {
    (f64::from(frac) - 5.0).min(8.0).exp2()
}

/// The mean of a row's squared distances and epsilon, in squared units of the last place, from which on rounding and
/// [`least_epsilon`] change the row by at most a fiftieth.
fn clear(least: f64) -> f64 {
    25.0 * least + 1024.0
}

/// The number from which the distances of a row are taken. A plan says it as `mean` or `zero`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Centre {
    /// The row's mean, as layer normalisation does.
    #[default]
    Mean,
    /// 0: rows are divided by the root of their mean of squares.
    Zero,
}

/// `(x - mean) / sqrt(variance + epsilon)`, mean and variance taken over the axes from `axis` on.
///
/// # Domain and error
/// `f` fraction bits, `n` numbers in a row: `|x| < 2^(50 - f)`, and the root of the sum of the squared distances
/// from the mean `d < 2^(50 - f)`. Error below `(2^-18 + 2^(f - 58) d) |y|` and three units in the last place,
/// the mean's: 2^-20 of it over the deviation, and that of the operand's rounding: a unit over the root of variance
/// and epsilon. An epsilon below `2^(8 - 2f)`, or `2^(-f - 5)` if that is less, counts as that; then rows of
/// deviations below `2^(6.4 - f)` come out too small: see [`normalize_watched`].
///
/// # Method
/// The sum of squares, of up to 100 bits, as three inner products of limbs; of its exact low bits and of its
/// high bits the one is normalised that has the digits, by the bits that are looked up in any case. Where rounds are saved, rows
/// of numbers that are known to be small take the place of their distances with a multiple of these that needs no mean.
///
/// # Cost
/// A truncation and a product of each element; an inverse root and the rest for each row.
/// With replicated sharing of a row of 16 at width 44: 31 rounds and 1128 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist, or for an epsilon that leaves rows no room.
pub fn normalize<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    epsilon: f64,
) -> Result<SecretTensor<P>> {
    Ok(normalize_watched(mpc, x, axis, Centre::Mean, epsilon)?.rows)
}

/// Normalised rows, and words by which those of too small numbers can be told.
#[derive(Debug)]
pub struct Normalized<P: Protocol> {
    /// The rows.
    pub rows: SecretTensor<P>,
    /// For each row a word of each, `[rows, 1]`. The first alone is negative if the row's distances from its mean are
    /// not 0 and so small that rounding changes the result by more than a fiftieth. `None` where epsilon is so large
    /// that this cannot be.
    pub faint: Option<[SecretTensor<P>; 2]>,
}

/// True if rows of small numbers can be too small for [`normalize`] with this epsilon, at `frac` fraction bits.
pub fn leaves_rows_faint(epsilon: f64, frac: u32) -> bool {
    epsilon * f64::from(2 * frac).exp2() < FAINT_EPSILON
}

/// [`normalize`], or `x / sqrt(mean(x^2) + epsilon)` for distances from 0, with words that tell rows of too small
/// numbers.
///
/// # Domain and error
/// As [`normalize`], with 0 for the mean.
///
/// # Cost
/// As [`normalize`]. From 0, with replicated sharing of a row of 16 at width 44: 29 rounds and 1104 bits for each
/// element in all.
///
/// # Errors
/// As [`normalize`].
pub fn normalize_watched<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    axis: usize,
    centre: Centre,
    epsilon: f64,
) -> Result<Normalized<P>> {
    let dims = x.shape().dims();
    if axis >= dims.len() {
        let reason = format!("shape {:?} has no axis {axis}", x.shape());
        return Err(Error::Invalid { op: "normalize", reason });
    }
    let count = dims[axis..].iter().product::<usize>().max(1);
    let rows = reshape(mpc, x, &Shape::new([x.shape().len() / count, count])?)?;
    let Centred { distance, limbs, gain } = match centre {
        Centre::Zero => {
            let limbs = Limbs::of(mpc, rows.share(), CUT)?;
            Centred { distance: rows.clone(), limbs, gain: 1.0 }
        }
        Centre::Mean if at_once(mpc, &rows, count) => centred_at_once(mpc, &rows, count)?,
        Centre::Mean => centred(mpc, &rows, count)?,
    };
    // sqrt(n) = ratio 2^half.
    let half = count.next_power_of_two().ilog2().div_ceil(2);
    let ratio = (count as f64).sqrt() / f64::from(half).exp2();
    let square = f64::from(2 * x.frac()).exp2();
    let least = (epsilon * square).max(least_epsilon(x.frac()));
    let sums = Sums::new(mpc, &limbs, least / square * gain * gain, count, x.frac())?;
    let factor = factor(mpc, &sums, ratio)?;
    let faint = if leaves_rows_faint(epsilon, x.frac()) {
        // Rows whose mean of squares is 1/64 are rows of zeros.
        let ends = [least + 1.0 / 64.0, clear(least)];
        let beyond = |mean: f64| -> Result<SecretTensor<P>> {
            let end = ratio * f64::from(61).exp2() / (mean * count as f64).sqrt() / gain;
            let word = mpc.linear(&Linear::Shift((end as u64).wrapping_neg()), &factor)?;
            Ok(SecretTensor::new(word, Format::integer(63)))
        };
        Some([beyond(ends[0])?, beyond(ends[1])?])
    } else {
        None
    };
    let wide = broadcast(mpc, &SecretTensor::new(factor, Format::integer(62)), rows.shape())?;
    let share = product(mpc, distance.share(), wide.share(), 61 - half - x.frac())?;
    let rows = SecretTensor::new(share, x.format().with_width(x.frac() + half + 3));
    Ok(Normalized { rows: reshape(mpc, &rows, x.shape())?, faint })
}

/// Distances from each row's centre.
struct Centred<P: Protocol> {
    /// Times the gain.
    distance: SecretTensor<P>,
    /// Those of the distances times the gain.
    limbs: Limbs<P>,
    gain: f64,
}

/// The most words that are centred without a mean in the balanced profile.
const FEW: usize = 1 << 13;

/// True if rows are centred without a mean, which saves rounds, and no value leaves its range.
fn at_once<P: Protocol>(mpc: &P, rows: &SecretTensor<P>, count: usize) -> bool {
    let log = count.next_power_of_two().ilog2();
    // n times a word and less a sum of n; the root of the sum of the squares of distances times at most 2.
    let fits = rows.width() + log <= 61 && rows.width() + log.div_ceil(2) <= 50;
    count > 1 && fits && mpc.profile().saves_rounds(rows.shape().len(), FEW, usize::MAX)
}

/// `n x - sum(x)`, exactly; the bits that `n` has added are dropped but one. Two rounds fewer than with a mean, for
/// one truncation of each element more.
fn centred_at_once<P: Protocol>(
    mpc: &mut P,
    rows: &SecretTensor<P>,
    count: usize,
) -> Result<Centred<P>> {
    let total = broadcast(mpc, &sum(mpc, rows, &[1])?, rows.shape())?;
    let scaled = [(count as u64, rows.share()), (u64::MAX, total.share())];
    let scaled = mpc.combine(&scaled, 0)?;
    let drop = count.next_power_of_two().ilog2() - 1;
    let gain = count as f64 / f64::from(drop).exp2();
    let (distance, high) = if drop == 0 {
        let high = truncated(mpc, &[(&scaled, CUT)])?.remove(0);
        (scaled, high)
    } else {
        let mut both = truncated(mpc, &[(&scaled, drop), (&scaled, drop + CUT)])?;
        let high = both.pop().ok_or_else(|| no_answer("truncate"))?;
        (both.remove(0), high)
    };
    let limbs = Limbs::below(mpc, &distance, high, CUT)?;
    let distance = SecretTensor::new(distance, rows.format().with_width(rows.width() + 2));
    Ok(Centred { distance, limbs, gain })
}

/// Distances from each row's rounded mean.
fn centred<P: Protocol>(mpc: &mut P, rows: &SecretTensor<P>, count: usize) -> Result<Centred<P>> {
    let Limbs { high, low } = Limbs::of(mpc, rows.share(), CUT)?;
    let log = count.next_power_of_two().ilog2();
    // A factor of 1 / n for sums of high limbs below 2^(width - 19) n.
    let digits = (61 - rows.width().min(51) + CUT).saturating_sub(log).clamp(1, 24);
    let drop = (digits + count.ilog2()).max(CUT + 1);
    let factor = Linear::Scale((f64::from(drop).exp2() / count as f64).round() as u64);
    let total = |mpc: &P, limb| mpc.linear(&factor, &mpc.linear(&Linear::Sum(&[1]), limb)?);
    let (high_total, low_total) = (total(mpc, &high)?, total(mpc, &low)?);
    let jobs = [(&high_total, drop - CUT), (&low_total, drop), (&high_total, drop)];
    let [most, rest, high_mean] = three(truncated(mpc, &jobs)?)?;
    let mean =
        SecretTensor::new(mpc.add(&most, &rest)?, rows.format().with_width(rows.width() + 1));
    let distance = sub(mpc, rows, &mean)?;
    let high_mean =
        broadcast(mpc, &SecretTensor::new(high_mean, Format::integer(64)), rows.shape())?;
    let high = mpc.sub(&high, high_mean.share())?;
    let limbs = Limbs::below(mpc, distance.share(), high, CUT)?;
    Ok(Centred { distance, limbs, gain: 1.0 })
}

/// The sum of the squares of each row and epsilon, in two ranges, as `[groups, 1]`.
struct Sums<P: Protocol> {
    /// As it is, modulo 2^64: right below 2^62.
    fine: SecretTensor<P>,
    /// Divided by `2^38`.
    coarse: SecretTensor<P>,
}

impl<P: Protocol> Sums<P> {
    fn new(mpc: &mut P, limbs: &Limbs<P>, epsilon: f64, count: usize, frac: u32) -> Result<Self> {
        let constant = epsilon * count as f64 * f64::from(2 * frac).exp2();
        if constant >= f64::from(60).exp2() {
            let reason = format!("epsilon {epsilon} is too large for rows of {count}");
            return Err(Error::Invalid { op: "normalize", reason });
        }
        let Limbs { high, low } = limbs;
        let jobs = [
            (high, high, 0),
            (high, low, 0),
            (low, low, 0),
            (high, low, CUT - 1),
            (low, low, 2 * CUT),
        ];
        let Ok([h, m, l, coarse_m, coarse_l]) = <[_; 5]>::try_from(inner(mpc, &jobs)?) else {
            return Err(no_answer("products"));
        };
        let mixed = CUT + 1;
        mutant!("normalize: a mixed product once", mixed = CUT);
        let terms = [(1 << (2 * CUT), &h), (1 << mixed, &m), (1, &l)];
        let fine = mpc.combine(&terms, constant.round() as u64)?;
        let terms = [(1, &h), (1, &coarse_m), (1, &coarse_l)];
        let constant = constant / f64::from(2 * CUT).exp2();
        // Two of the terms may be rounded down: a negative sum would count as large.
        let coarse = mpc.combine(&terms, constant.round() as u64 + 3)?;
        let [fine, coarse] =
            [fine, coarse].map(|share| SecretTensor::new(share, Format::integer(63)));
        Ok(Self { fine, coarse })
    }
}

/// `ratio * 2^61 / sqrt(sum)`.
fn factor<P: Protocol>(mpc: &mut P, sums: &Sums<P>, ratio: f64) -> Result<P::Share> {
    let groups = sums.fine.shape().dims()[0];
    let both = crate::functions::concat(mpc, &[&sums.fine, &sums.coarse], 0)?;
    let root = |b: u32| (ratio * (f64::from(b) / 2.0 + f64::from(ROOT)).exp2()).round() as u64;
    let wanted = Exponent {
        planes: 62,
        wraps: true,
        signed: false,
        top: 62,
        low: &[&|b| 1 << b, &root],
        high: &[&|a| 1 << (8 * a), &|a| 1 << (4 * a), &|a| u64::from(a < LARGE)],
        sizes: &[],
    };
    let looked = look_up(mpc, both.share(), &wanted)?;
    let ([s0, r0], [s1, r1, large]) = (&looked.low[..], &looked.high[..]) else {
        return Err(no_answer("bit sums"));
    };
    let part = |mpc: &P, x: &P::Share, start| -> Result<P::Share> {
        let x = SecretTensor::new(x.clone(), Format::integer(64));
        Ok(slice(mpc, &x, 0, start, start + groups, 1)?.share().clone())
    };
    let large = part(mpc, large, groups)?;
    // If the sum is large, the values for its high bits.
    let mut fine = Vec::with_capacity(5);
    let mut gains = Vec::with_capacity(5);
    for x in [both.share(), s0, s1, r0, r1] {
        let [low, high] = [part(mpc, x, 0)?, part(mpc, x, groups)?];
        gains.push(mpc.combine(&[(1, &high), (u64::MAX, &low)], 0)?);
        fine.push(low);
    }
    let results = mpc.truncation();
    let mut chain = working_chain::<P>(mpc);
    let large = chain.input(&large);
    let mut chosen = Vec::with_capacity(5);
    for (fine, gain) in fine.iter().zip(&gains) {
        let [fine, gain] = [fine, gain].map(|x| chain.input(x));
        chosen.push(chain.product_plus(large, gain, fine, 0));
    }
    let [sum, s0, s1, r0, r1] = chosen[..] else { return Err(no_answer("product")) };
    let scale = chain.product(s0, s1, 0);
    let r1_large = chain.product(r1, large, 0);
    let r1_small = Sum::of([(1 << 4, r1), ((1u64 << 4).wrapping_neg(), r1_large)], 0);
    let v = argument(&mut chain, sum, scale, 62, results);
    let r = INV_SQRT.eval(&mut chain, &v, ROOT);
    let r = chain.product(r, r0, ROOT);
    let small = chain.product(r, r1_small, 0);
    let large = chain.product(r, r1_large, CUT - 4);
    let both = mpc.chain(&chain.giving([small, large]))?;
    let [small, large] = &both[..] else { return Err(no_answer("chain")) };
    mpc.add(small, large)
}

/// Inner products of rows `[groups, n]`, as `[groups, 1]`, some bits dropped of each; all in the same rounds.
fn inner<P: Protocol>(mpc: &mut P, jobs: &[(&P::Share, &P::Share, u32)]) -> Result<Vec<P::Share>> {
    let mode = mpc.truncation();
    let mut rows = Vec::with_capacity(jobs.len());
    for (x, y, _) in jobs {
        let &[groups, count] = x.shape().dims() else { return Err(no_answer("rows")) };
        let view = View::Reshape(Shape::new([groups, 1, count])?);
        let row = |x: &P::Share| mpc.linear(&Linear::View(&view), x);
        rows.push((row(x)?, row(y)?, Shape::new([groups, 1])?));
    }
    let members = rows.iter().zip(jobs).map(|((lhs, rhs, _), &(.., bits))| {
        let op = Bilinear::MatMul { transpose_lhs: false, transpose_rhs: true };
        let finish = if bits == 0 { Finish::Raw } else { Finish::Truncate { bits, mode } };
        Product::new(op, lhs, rhs, finish)
    });
    let mut results = Vec::with_capacity(jobs.len());
    for (product, (.., shape)) in mpc.products(&members.collect::<Vec<_>>())?.iter().zip(&rows) {
        let flat = View::Reshape(shape.clone());
        results.push(mpc.linear(&Linear::View(&flat), &product.share)?);
    }
    Ok(results)
}

fn three<S>(shares: Vec<S>) -> Result<[S; 3]> {
    shares.try_into().map_err(|_| no_answer("truncate"))
}
