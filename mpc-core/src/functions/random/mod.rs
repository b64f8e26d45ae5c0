//! Random numbers that no party knows.
//!
//! All of them come from [`Protocol::random_words`] and [`Protocol::random_bits`]. Each call draws new ones; all parties make
//! the same call. With `frac` fraction bits a number in `[0, 1)` is a multiple of `2^-frac`, and everything that is made of
//! it is as fine.

mod chances;
pub(super) mod discrete;
pub(super) mod gaussian;

use ring_arith::Shape;

use crate::functions::{
    add, add_scalar, arithmetic::fixed::LEAST, arithmetic::no_answer, broadcast, compare::lt, log,
    mul, neg, not, order::radix::prefix_sums, reshape, slice, smooth::trig::sines_of_turns, sqrt,
    sub, sum,
};
use crate::{Error, Format, Protocol, Result, SecretTensor};

/// Independent numbers, uniform among the multiples of `2^-frac` in `[0, 1)`.
///
/// # Cost
/// A sum of `frac` shared bits for each number. With replicated sharing at 20 fraction bits: 2 rounds and 1,408 bits for each
/// number in all.
///
/// # Errors
/// [`Error::Invalid`] unless `frac` is from 1 to 40; [`Error::Net`] if a peer failed.
pub fn uniform<P: Protocol>(mpc: &mut P, shape: &Shape, frac: u32) -> Result<SecretTensor<P>> {
    if !(1..=40).contains(&frac) {
        let reason = format!("{frac} fraction bits; 1 to 40 are possible");
        return Err(Error::Invalid { op: "uniform", reason });
    }
    let width = frac;
    mutant!("uniform: one bit short", width = width - 1);
    let bits = mpc.random_bits(shape, width as usize)?;
    let weights: Vec<u64> = (0..width).map(|bit| 1 << bit).collect();
    let sums = mpc.bit_sums(&[(&bits, &[&weights[..]])])?;
    let share = sums.into_iter().flatten().next().ok_or_else(|| no_answer("bit sums"))?;
    Ok(SecretTensor::new(share, Format { frac, width: frac + 1 }))
}

/// Independent integers, 1 with the probability that `p` has at the same place, and 0 else. A `p` of at most 0 is never, one of
/// at least 1 always.
///
/// # Cost
/// One [`uniform`] number and one comparison each. With replicated sharing at 20 fraction bits and width 40: 8 rounds and 1786
/// bits for each number in all.
///
/// # Errors
/// As [`uniform`].
pub fn bernoulli<P: Protocol>(mpc: &mut P, p: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let drawn = uniform(mpc, p.shape(), p.frac())?;
    lt(mpc, &drawn, p)
}

/// Independent exponential numbers of mean 1: `-ln u` for uniform `u` in `(0, 1]`, at most `frac ln 2`.
///
/// # Distribution and error
/// The error of [`log`]; above `13.8` at 20 fraction bits there is nothing, where the exponential distribution has a
/// millionth.
///
/// # Cost
/// One [`uniform`] number and one [`log`] each. With replicated sharing at 20 fraction bits: 22 rounds and 4212 bits for each
/// number in all.
///
/// # Errors
/// As [`uniform`].
pub fn exponential<P: Protocol>(mpc: &mut P, shape: &Shape, frac: u32) -> Result<SecretTensor<P>> {
    let drawn = uniform(mpc, shape, frac)?;
    // 1 - u: logarithms of 0 do not exist.
    let left = neg(mpc, &drawn)?;
    let left = add_scalar(mpc, &left, 1.0)?;
    let logarithm = log(mpc, &left)?;
    neg(mpc, &logarithm)
}

/// Independent numbers of the Laplace distribution of scale 1 (variance 2): the difference of two exponential numbers.
///
/// # Cost
/// Two [`exponential`] numbers each. With replicated sharing at 20 fraction bits: 22 rounds and 8424 bits for each number in
/// all.
///
/// # Errors
/// As [`uniform`].
pub fn laplace<P: Protocol>(mpc: &mut P, shape: &Shape, frac: u32) -> Result<SecretTensor<P>> {
    let both = exponential(mpc, &pair_of(shape)?, frac)?;
    let [one, other] = halves(mpc, &both, shape)?;
    sub(mpc, &one, &other)
}

/// Independent normal numbers of mean 0 and variance 1, by the method of Box and Muller (Ann. Math. Stat. 29, 1958): the
/// square root of twice an exponential number, times sine and cosine of a uniform angle.
///
/// # Distribution and error
/// Nothing lies beyond `sqrt(2 frac ln 2)`, 5.27 at 20 fraction bits, where the normal distribution has 1.4e-7.
///
/// # Cost
/// For two numbers one [`exponential`], one [`sqrt`], a sine and a cosine of a random word, and two products. With replicated
/// sharing at 20 fraction bits: 60 rounds and 5735.5 bits for each number in all.
///
/// # Errors
/// As [`uniform`].
pub fn normal<P: Protocol>(mpc: &mut P, shape: &Shape, frac: u32) -> Result<SecretTensor<P>> {
    let pairs = Shape::new([shape.len().div_ceil(2)])?;
    let square = exponential(mpc, &pairs, frac)?;
    let square = add(mpc, &square, &square)?;
    let radius = sqrt(mpc, &square)?;
    let angle = mpc.random_words(&[pairs])?.pop().ok_or_else(|| no_answer("random words"))?;
    let [sine, cosine] = sines_of_turns(mpc, &angle, frac)?;
    let [first, second] = [mul(mpc, &radius, &sine)?, mul(mpc, &radius, &cosine)?];
    let all = crate::functions::concat(mpc, &[&first, &second], 0)?;
    let cut = slice(mpc, &all, 0, 0, shape.len(), 1)?;
    reshape(mpc, &cut, shape)
}

/// Positions along the last axis, each drawn with a probability that is its weight's part of their sum: `[.., n]` to `[..]`,
/// integers. Weights are not negative, and their sum is not 0.
///
/// A uniform number times the sum is compared with all running sums.
///
/// # Distribution and error
/// A probability is right to `2^(1 - f)` over the sum, at `f` fraction bits: small sums have coarse probabilities.
///
/// # Cost
/// One [`uniform`] number and one product for each row, and `n - 1` comparisons. With replicated sharing at 20 fraction bits
/// and width 40: 10 rounds, and for rows of four weights 709 bits for each weight in all.
///
/// # Errors
/// [`Error::Invalid`] without a last axis, or if it is empty; else as [`uniform`].
pub fn weighted_index<P: Protocol>(
    mpc: &mut P,
    weights: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let dims = weights.shape().dims().to_vec();
    let Some((&n, rows)) = dims.split_last().filter(|(n, _)| **n > 0) else {
        let reason =
            format!("weights of shape {:?} have no positions to choose from", weights.shape());
        return Err(Error::Invalid { op: "weighted index", reason });
    };
    let axis = rows.len();
    let sums = running_sums(mpc, weights)?;
    let total = slice(mpc, &sums, axis, n - 1, n, 1)?;
    let drawn = uniform(mpc, total.shape(), weights.frac().clamp(LEAST, 40))?;
    let place = mul(mpc, &total, &drawn)?;
    let place = crate::functions::rescale(mpc, &place, weights.frac())?;
    // The last sum is beyond every place.
    let sums = slice(mpc, &sums, axis, 0, n - 1, 1)?;
    let place = broadcast(mpc, &place, sums.shape())?;
    let beyond = lt(mpc, &place, &sums)?;
    let passed = not(mpc, &beyond)?;
    let index = sum(mpc, &passed, &[axis])?;
    reshape(mpc, &index, &Shape::new(rows)?)
}

/// The sums of each element and all before it along the last axis. Nothing is sent.
fn running_sums<P: Protocol>(mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let n = x.shape().dims().last().copied().unwrap_or(1);
    let lines = reshape(mpc, x, &Shape::new([x.shape().len() / n.max(1), n])?)?;
    let sums = prefix_sums(mpc, lines.share())?;
    let width = x.width() + n.next_power_of_two().trailing_zeros();
    reshape(mpc, &SecretTensor::new(sums, x.format().with_width(width.min(64))), x.shape())
}

/// The shape of two tensors of a shape, one after the other.
fn pair_of(shape: &Shape) -> Result<Shape> {
    Ok(Shape::new([&[2], shape.dims()].concat())?)
}

fn halves<P: Protocol>(
    mpc: &P,
    both: &SecretTensor<P>,
    shape: &Shape,
) -> Result<[SecretTensor<P>; 2]> {
    let half = |at: usize| reshape(mpc, &slice(mpc, both, 0, at, at + 1, 1)?, shape);
    Ok([half(0)?, half(1)?])
}
