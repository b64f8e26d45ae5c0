//! Integers of discrete Laplace and normal distributions, and coins of public chances, which no party knows.
//!
//! Canonne, Kamath and Steinke ([The discrete Gaussian for differential privacy], 2020) draw them exactly, by rejections, whose
//! number depends on secrets. Here all is of one length: shared random bits are compared with tables of 64 binary digits.
//! The distance to the exact distributions follows from where the tables are cut and rounded.
//!
//! [The discrete Gaussian for differential privacy]: https://arxiv.org/abs/2004.00010

use ring_arith::{Shape, View};

use super::chances::{LARGEST_DIRECT, geometric_digits, normal_digits, of_float};
use crate::functions::{arithmetic::no_answer, compare::choose::where_bits, mul_scalar};
use crate::{Error, Format, Linear, Protocol, Result, SecretTensor, ShareBits};

/// Binary digits of a chance.
const DIGITS: usize = 64;

/// The least width of the normal distributions that are added up in [`discrete_normal`].
const SMOOTH: f64 = 1.53;

/// Independent integers of the discrete Laplace distribution: `n` in proportion to `exp(-|n| / scale)`. No party knows any part
/// of them.
///
/// Such an integer is the difference of two geometric ones, whose binary digits are independent.
///
/// # Distribution and error
/// The distance from the exact distribution, in total variation, is at most [`discrete_laplace_distance`] for each integer:
/// `(k + 1) 2^-64` for `k = ceil(log2(46 scale))` digits, which is below `2^-58` up to a scale of a million. For each of two
/// geometric numbers, digits above the `k`-th have together a chance below `2^-66`. The chance of a digit is rounded by at
/// most `2^-65`, and computed with an error below `2^-72`.
///
/// # Cost
/// With replicated sharing at scale 10, of 9 digits: 8 rounds and 8030 bits for each integer in all.
///
/// # Errors
/// [`Error::Invalid`] unless the scale is from `2^-5` to `2^40`; [`Error::Net`] if a peer failed.
pub fn discrete_laplace<P: Protocol>(
    mpc: &mut P,
    shape: &Shape,
    scale: f64,
) -> Result<SecretTensor<P>> {
    within("discrete Laplace", "scale", scale, [-5, 40])?;
    let digits = geometric_digits(scale);
    mutant!("discrete Laplace: the lowest digit left out", digits = digits[1..].to_vec());
    let coins = biased(mpc, shape, &digits.repeat(2))?;
    // A tensor has at most 64 planes.
    let groups =
        coins.chunks(DIGITS).map(|group| mpc.join_planes(&group.iter().collect::<Vec<_>>()));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let weight = |at: usize| {
        if at < digits.len() { 1 << at } else { (1u64 << (at - digits.len())).wrapping_neg() }
    };
    let weights: Vec<_> = (0..coins.len()).map(weight).collect();
    let share = sum_of(mpc, &groups, &weights)?;
    Ok(SecretTensor::new(share, Format::integer(digits.len() as u32 + 1)))
}

/// The bound on the distance of [`discrete_laplace`], in total variation and for each integer.
#[must_use]
pub fn discrete_laplace_distance(scale: f64) -> f64 {
    let digits = geometric_digits(scale).len();
    (digits + 1) as f64 * (-64f64).exp2()
}

/// Independent integers of the discrete normal distribution: `n` in proportion to `exp(-n^2 / (2 deviation^2))`. No party knows
/// any part of them.
///
/// Up to a deviation of 13 a size of at most 7 binary digits is drawn, each digit with the chance that it has after those
/// before it, and a sign. A larger deviation is that of `y = a + k b` for two integers of the smaller deviation
/// `s = deviation / sqrt(1 + k^2)`.
///
/// # Distribution and error
/// The distance from the exact distribution, in total variation, is at most [`discrete_normal_distance`] for each integer: `5
/// m 2^-64` for a sum of `m` integers, of which there are one up to a deviation of 13, 4 for a thousand and 8 for a million.
/// One of them has 7 digits, whose chances are rounded by at most `2^-65`, and a chance below `2^-66` of a size that was
/// cut off. For a sum, `exp(-(a^2 + b^2) / (2 s^2))` is `exp(-y^2 / (2 deviation^2)) exp(-(b - c)^2 / (2 t^2))` with
/// `t = s / sqrt(1 + k^2)` and some real `c`. By Poisson's formula the sum over `b` of the second factor is `t sqrt(2 pi)` to
/// within `2.1 exp(-2 pi^2 t^2)` of itself, which is below `2^-65` for `t >= 1.53`.
///
/// # Cost
/// With replicated sharing at deviation 3, of 5 digits: 16 rounds and 4473 bits for each integer in all.
///
/// # Errors
/// [`Error::Invalid`] unless the deviation is from `2^-3` to `2^20`; [`Error::Net`] if a peer failed.
pub fn discrete_normal<P: Protocol>(
    mpc: &mut P,
    shape: &Shape,
    deviation: f64,
) -> Result<SecretTensor<P>> {
    within("discrete normal", "standard deviation", deviation, [-3, 20])?;
    let factors = factors(deviation);
    let squares = factors.iter().map(|k| 1 + k * k).product();
    let levels = normal_digits(deviation, squares);
    let parts = 1 << factors.len();
    let all = Shape::new([&[parts], shape.dims()].concat())?;
    let drawn = signed_sizes(mpc, &all, &levels)?;
    let factor = |part: usize| {
        let taken = factors.iter().enumerate().filter(|(at, _)| part >> at & 1 == 1);
        taken.map(|(_, &k)| k).product::<u64>()
    };
    let factors: Vec<u64> = (0..parts).map(factor).collect();
    let mut of_parts = Vec::with_capacity(parts);
    for part in 0..parts {
        let view = View::Slice { axis: 0, start: part, end: part + 1, step: 1 };
        let one = mpc.linear(&Linear::View(&view), &drawn)?;
        of_parts.push(mpc.linear(&Linear::View(&View::Reshape(shape.clone())), &one)?);
    }
    let terms: Vec<_> = factors.iter().copied().zip(&of_parts).collect();
    let share = mpc.combine(&terms, 0)?;
    let largest = factors.iter().sum::<u64>() << levels.len();
    Ok(SecretTensor::new(share, Format::integer(65 - largest.leading_zeros())))
}

/// The bound on the distance of [`discrete_normal`], in total variation and for each integer.
#[must_use]
pub fn discrete_normal_distance(deviation: f64) -> f64 {
    5.0 * (factors(deviation).len() as f64 - 64.0).exp2()
}

/// The factors `k` by which integers of one deviation become those of the next larger one; the last is applied first.
fn factors(deviation: f64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut deviation = deviation;
    while deviation > LARGEST_DIRECT {
        // The largest of which the sum is smooth.
        let k = (deviation / SMOOTH - 1.0).sqrt().floor();
        deviation /= (1.0 + k * k).sqrt();
        factors.push(k as u64);
    }
    factors
}

/// Independent integers, 1 with the public probability `p` and 0 else. No party knows them.
///
/// # Distribution and error
/// The probability is rounded down to a multiple of `2^-64`.
///
/// # Cost
/// With replicated sharing: 8 rounds and 567 bits for each integer in all.
///
/// # Errors
/// [`Error::Invalid`] unless `p` is from 0 to 1; [`Error::Net`] if a peer failed.
pub fn coins<P: Protocol>(mpc: &mut P, shape: &Shape, p: f64) -> Result<SecretTensor<P>> {
    let coins = coin_bits(mpc, shape, p)?;
    let share = sum_of(mpc, &[coins], &[1])?;
    Ok(SecretTensor::new(share, Format::integer(2)))
}

/// `x` with each element 0 with probability `p`, and `1 / (1 - p)` times itself else. No party knows which.
///
/// # Distribution and error
/// That of [`coins`]; the error of [`mul_scalar`].
///
/// # Cost
/// Coins, and a selection by them. With replicated sharing at 20 fraction bits and `p = 0.3`: 10 rounds and 761 bits for
/// each element in all.
///
/// # Errors
/// [`Error::Invalid`] unless `p` is from 0 to below 1; else those of [`mul_scalar`].
pub fn dropout<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, p: f64) -> Result<SecretTensor<P>> {
    if !(0.0..1.0).contains(&p) {
        let reason = format!("a probability of {p}; 0 to below 1 are possible");
        return Err(Error::Invalid { op: "dropout", reason });
    }
    let kept = coin_bits(mpc, x.shape(), 1.0 - p)?;
    let kept = where_bits(mpc, x, &kept)?;
    mul_scalar(mpc, &kept, 1.0 / (1.0 - p))
}

fn within(op: &'static str, what: &str, value: f64, [low, high]: [i32; 2]) -> Result<()> {
    if (f64::from(low).exp2()..=f64::from(high).exp2()).contains(&value) {
        return Ok(());
    }
    let reason = format!("a {what} of {value}; 2^{low} to 2^{high} are possible");
    Err(Error::Invalid { op, reason })
}

/// Bits that are 1 with the probability `p`.
fn coin_bits<P: Protocol>(mpc: &mut P, shape: &Shape, p: f64) -> Result<P::Bits> {
    if !(0.0..=1.0).contains(&p) {
        let reason = format!("a probability of {p}; 0 to 1 are possible");
        return Err(Error::Invalid { op: "coins", reason });
    }
    if p < 1.0 {
        return biased(mpc, shape, &[of_float(p)])?.pop().ok_or_else(|| no_answer("and"));
    }
    let coin = mpc.random_bits(shape, 1)?;
    mpc.not(&mpc.pick_planes(&coin, &[None])?)
}

/// For each chance, a tensor of bits that are 1 with that chance, times `2^-64`.
///
/// Of 64 random bits the first that is 1 chooses a binary digit of the chance: the first digit in one of two cases, the second
/// in one of four. A tree finds the chosen digit: of two neighbouring groups of bits the second one counts where the first
/// has no 1. 125 products of bits in 6 rounds.
fn biased<P: Protocol>(mpc: &mut P, shape: &Shape, chances: &[u64]) -> Result<Vec<P::Bits>> {
    let mut groups = Vec::with_capacity(chances.len());
    for &chance in chances {
        let ones = mpc.random_bits(shape, DIGITS)?;
        let digit = |at: u32| (chance >> (DIGITS as u32 - 1 - at) & 1 == 1).then_some(at);
        let digits: Vec<_> = (0..DIGITS as u32).map(digit).collect();
        groups.push(Groups { hit: mpc.pick_planes(&ones, &digits)?, missed: mpc.not(&ones)? });
    }
    for half in [32, 16, 8, 4, 2, 1] {
        let mut pairs = Vec::with_capacity(groups.len());
        for group in &groups {
            let first: Vec<_> = (0..half).map(|at| Some(2 * at)).collect();
            let second: Vec<_> = (0..half).map(|at| Some(2 * at + 1)).collect();
            let pick = |planes: &P::Bits, which: &[Option<u32>]| mpc.pick_planes(planes, which);
            let seconds = [pick(&group.hit, &second)?, pick(&group.missed, &second)?];
            let missed = pick(&group.missed, &first)?;
            pairs.push(Pairs { hit: pick(&group.hit, &first)?, missed, seconds });
        }
        let last = half == 1;
        let wanted = if last { 1 } else { 2 };
        let jobs = pairs
            .iter()
            .flat_map(|pair| pair.seconds[..wanted].iter().map(|it| (&pair.missed, it)));
        let products = mpc.and(&jobs.collect::<Vec<_>>())?;
        groups = Vec::with_capacity(chances.len());
        for (pair, products) in pairs.iter().zip(products.chunks(wanted)) {
            let hit = mpc.xor(&pair.hit, &products[0])?;
            let missed = products.get(1).unwrap_or(&pair.missed).clone();
            groups.push(Groups { hit, missed });
        }
    }
    Ok(groups.into_iter().map(|group| group.hit).collect())
}

/// Groups of random bits, a plane for each.
struct Groups<B> {
    /// The digit that the first 1 chooses; 0 without a 1.
    hit: B,
    /// No bit of the group is 1.
    missed: B,
}

/// Pairs of neighbouring groups.
struct Pairs<B> {
    hit: B,
    missed: B,
    seconds: [B; 2],
}

/// Signed integers whose sizes have binary digits of these chances, from the highest on: each list has those of a digit after
/// all that can stand before it.
fn signed_sizes<P: Protocol>(mpc: &mut P, shape: &Shape, levels: &[Vec<u64>]) -> Result<P::Share> {
    let chosen = first_ones(mpc, shape, levels.len())?;
    let mut digits: Vec<P::Bits> = Vec::with_capacity(levels.len());
    // Plane `a`: the digits so far are those of `a`.
    let mut before: Option<P::Bits> = None;
    for (level, (chances, chosen)) in levels.iter().zip(&chosen).enumerate() {
        let digit = match &before {
            None => mpc.parity(&mpc.pick_planes(chosen, &planes_of(chances[0], None))?)?,
            Some(before) => {
                let table = looked_up(mpc, before, chances)?;
                let products = one(mpc.and(&[(chosen, &table)])?)?;
                mpc.parity(&products)?
            }
        };
        let last = level + 1 == levels.len();
        before = match &before {
            _ if last => None,
            None => Some(mpc.join_planes(&[&mpc.not(&digit)?, &digit])?),
            Some(before) => {
                let width = chances.len() as u32;
                let digit = mpc.pick_planes(&digit, &vec![Some(0); width as usize])?;
                let ones = one(mpc.and(&[(before, &digit)])?)?;
                let both = mpc.join_planes(&[&mpc.xor(before, &ones)?, &ones])?;
                let order: Vec<_> =
                    (0..width).flat_map(|at| [Some(at), Some(at + width)]).collect();
                Some(mpc.pick_planes(&both, &order)?)
            }
        };
        digits.push(digit);
    }
    let digits = mpc.join_planes(&digits.iter().collect::<Vec<_>>())?;
    let sign = mpc.random_bits(shape, 1)?;
    let sign = mpc.pick_planes(&sign, &vec![Some(0); levels.len()])?;
    let negative = one(mpc.and(&[(&digits, &sign)])?)?;
    let weights: Vec<u64> = (0..levels.len()).rev().map(|digit| 1 << digit).collect();
    let twice: Vec<u64> = weights.iter().map(|weight| (2 * weight).wrapping_neg()).collect();
    mutant!("discrete normal: no sign", twice = vec![0; twice.len()]);
    let both = mpc.join_planes(&[&digits, &negative])?;
    sum_of(mpc, &[both], &[weights, twice].concat())
}

/// For each of several lists of 64 random bits, their first 1, as a plane for each place: plane 63 is the first.
fn first_ones<P: Protocol>(mpc: &mut P, shape: &Shape, count: usize) -> Result<Vec<P::Bits>> {
    let random = (0..count).map(|_| mpc.random_bits(shape, DIGITS)).collect::<Result<Vec<_>>>()?;
    let seen = mpc.prefix_or(&random.iter().collect::<Vec<_>>())?;
    let first = |seen: &P::Bits| {
        let above: Vec<_> =
            (1..=DIGITS as u32).map(|at| (at < DIGITS as u32).then_some(at)).collect();
        mpc.xor(seen, &mpc.pick_planes(seen, &above)?)
    };
    seen.iter().map(first).collect()
}

/// The digits of a chance as planes: all of `from`, or each its own.
fn planes_of(chance: u64, from: Option<u32>) -> Vec<Option<u32>> {
    let plane = |at: u32| (chance >> at & 1 == 1).then_some(from.unwrap_or(at));
    (0..DIGITS as u32).map(plane).collect()
}

/// The digits of the chance whose place has a 1 among the planes of `place`.
fn looked_up<P: Protocol>(mpc: &P, place: &P::Bits, chances: &[u64]) -> Result<P::Bits> {
    let mut table = mpc.pick_planes(place, &planes_of(chances[0], Some(0)))?;
    for (at, &chance) in (0..).zip(chances).skip(1).filter(|(_, chance)| **chance > 0) {
        table = mpc.xor(&table, &mpc.pick_planes(place, &planes_of(chance, Some(at)))?)?;
    }
    Ok(table)
}

/// The weighted sum of the planes of several tensors, as words.
fn sum_of<P: Protocol>(mpc: &mut P, bits: &[P::Bits], weights: &[u64]) -> Result<P::Share> {
    let mut lists = Vec::with_capacity(bits.len());
    let mut weights = weights;
    for planes in bits {
        let (own, others) = weights.split_at(planes.width());
        lists.push([own]);
        weights = others;
    }
    let jobs: Vec<_> = bits.iter().zip(&lists).map(|(bits, list)| (bits, &list[..])).collect();
    let sums: Vec<_> = mpc.bit_sums(&jobs)?.into_iter().flatten().collect();
    let terms: Vec<_> = sums.iter().map(|sum| (1, sum)).collect();
    if sums.len() == 1 { one(sums) } else { mpc.combine(&terms, 0) }
}

/// The only answer.
fn one<T>(mut answers: Vec<T>) -> Result<T> {
    answers.pop().ok_or_else(|| no_answer("bits"))
}

#[cfg(test)]
mod tests {
    use ring_arith::CpuEngine;

    use super::*;
    use crate::{Plaintext, functions::reveal, testing::goodness::chi_square};

    const DRAWS: usize = 30_000;

    fn drawn(
        draw: impl Fn(&mut Plaintext<CpuEngine>, &Shape) -> Result<SecretTensor<Plaintext<CpuEngine>>>,
    ) -> Vec<i64> {
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let integers = draw(&mut mpc, &Shape::new([DRAWS]).unwrap()).unwrap();
        assert_eq!(integers.frac(), 0);
        let values = reveal(&mut mpc, &integers).unwrap();
        let least = f64::from(integers.width() - 1).exp2();
        assert!(values.iter().all(|value| value.abs() < least));
        values.into_iter().map(|value| value as i64).collect()
    }

    /// A right sampler fails once in a million times.
    fn check(values: &[i64], scale: f64, weight: impl Fn(i64) -> f64) {
        let [statistic, limit] = chi_square(values, (scale * 60.0) as i64 + 2, weight);
        assert!(statistic < limit, "{scale}: {statistic}, and the limit is {limit}");
    }

    #[test]
    fn integers_of_every_scale_are_those_of_their_distributions() {
        for scale in [0.4, 3.5, 200.0] {
            let values = drawn(|mpc, shape| discrete_laplace(mpc, shape, scale));
            check(&values, scale, |n| (-(n.unsigned_abs() as f64) / scale).exp());
        }
        for deviation in [0.5, 13.0, 60.0] {
            let values = drawn(|mpc, shape| discrete_normal(mpc, shape, deviation));
            check(&values, deviation, |n| {
                (-((n * n) as f64) / (2.0 * deviation * deviation)).exp()
            });
        }
    }

    #[test]
    fn sums_of_integers_have_the_deviation_that_is_asked_for_and_are_smooth() {
        for deviation in [13.1, 60.0, 1000.0, f64::from(1 << 20)] {
            let mut own = deviation;
            for k in factors(deviation) {
                assert!(k >= 2, "{deviation}");
                own /= ((1 + k * k) as f64).sqrt();
                assert!(own / ((1 + k * k) as f64).sqrt() >= SMOOTH, "{deviation}: {k}");
            }
            assert!(own <= LARGEST_DIRECT && own > 4.0, "{deviation}: {own}");
        }
        // The part of the bound that a sum adds: 2.1 exp(-2 pi^2 t^2).
        let added = 2.1 * (-2.0 * std::f64::consts::PI.powi(2) * SMOOTH * SMOOTH).exp();
        assert!(added < (-65f64).exp2(), "{added}");
        assert_eq!([13.0, 1000.0, 1e6].map(|s| factors(s).len()), [0, 2, 3]);
        let unit = (-64f64).exp2();
        assert_eq!([13.0, 1000.0].map(discrete_normal_distance), [5.0 * unit, 20.0 * unit]);
        assert_eq!(discrete_laplace_distance(10.0), 10.0 * unit);
        assert!(discrete_laplace_distance(1e6) < (-58f64).exp2());
    }

    #[test]
    fn arguments_without_a_distribution_are_refused() {
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let shape = Shape::new([2]).unwrap();
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e15] {
            assert!(discrete_laplace(&mut mpc, &shape, wrong).is_err(), "{wrong}");
            assert!(discrete_normal(&mut mpc, &shape, wrong).is_err(), "{wrong}");
            assert!(wrong == 0.0 || coins(&mut mpc, &shape, wrong).is_err(), "{wrong}");
        }
    }
}
