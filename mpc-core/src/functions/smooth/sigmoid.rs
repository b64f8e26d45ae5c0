//! Sigmoid and its relatives, and erf.

use crate::functions::{
    arithmetic::fixed::{at_20, run, working_chain},
    compare::choose::shifted,
    rescale,
    smooth::exp::exp_from_vanished,
    smooth::sines::{self, by_sines},
    smooth::tables::{ERF, RECIPROCAL},
};
use crate::{
    Chain, Compare, Compared, Format, Protocol, Result, SecretTensor, Sum, Then, TruncationMode,
    Value,
};

/// Beyond 20 the logistic function is at its limits.
const FAR: i64 = 20 << 20;

/// `1 / (1 + e^-x)`.
///
/// # Domain and error
/// All `x`; error below `2^-17`. 20 fraction bits are used.
///
/// # Method
/// On `-12.4..=12.4` a sum of ten sines ([`Protocol::trig_sum`]), 0 and 1 outside. Without sums of sines: the magnitude,
/// clamped, through [`crate::functions::exp_nonpositive`]'s polynomial and that of the reciprocal on `[1, 2]`; the sign selects the
/// result or its complement.
///
/// # Cost
/// With replicated sharing at width 44: 5 rounds and 1668 bits for each element in all. Without sums of sines: three
/// comparisons that share 6 rounds, a chain of eleven products in ten more.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn sigmoid<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    if let Some(y) = by_sines(mpc, &x, &sines::SIGMOID, 22)? {
        return rescale(mpc, &y, frac);
    }
    let parts = magnitude(mpc, &x, 1)?;
    let mut chain = working_chain::<P>(mpc);
    let half = upper_half(&mut chain, &parts, 20, mpc.truncation()).into();
    // where negative: 1 - s
    let flipped = Sum::combined([(MINUS_TWO, &half)], 1 << 20);
    let share = plus_where(&mut chain, half, &parts, flipped);
    let share = run(mpc, chain, share)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: 20, width: 22 }), frac)
}

/// `tanh(x)`.
///
/// # Domain and error
/// All `x`; error below `2^-16`. 20 fraction bits are used.
///
/// # Method
/// `2 sigmoid(2x) - 1`.
///
/// # Cost
/// As [`sigmoid`].
/// With replicated sharing at width 44: 5 rounds and 1696 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn tanh<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    if let Some(y) = by_sines(mpc, &x, &sines::TANH, 22)? {
        return rescale(mpc, &y, frac);
    }
    let parts = magnitude(mpc, &x, 2)?;
    let mut chain = working_chain::<P>(mpc);
    let half = upper_half(&mut chain, &parts, 21, mpc.truncation());
    // The word of s with 21 fraction bits is that of 2s with 20.
    let positive = Sum::of([(1, half)], (1u64 << 20).wrapping_neg());
    let flipped = Sum::combined([(MINUS_TWO, &positive)], 0);
    let share = plus_where(&mut chain, positive, &parts, flipped);
    let share = run(mpc, chain, share)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: 20, width: 22 }), frac)
}

/// `x sigmoid(x)`.
///
/// # Domain and error
/// All `x`; error below `2^-15`. 20 fraction bits are used.
///
/// # Method
/// On `-14.1..=14.1` `x / 2` and a sum of eleven cosines ([`Protocol::trig_sum`]), 0 and `x` outside. Without sums of
/// cosines: `x` times [`sigmoid`].
///
/// # Cost
/// With replicated sharing at width 44: 5 rounds and 1799 bits for each element in all. Without sums of cosines: as
/// [`sigmoid`] and one more product.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn silu<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    if let Some(y) = by_sines(mpc, &x, &sines::SILU, x.width() + 1)? {
        return rescale(mpc, &y, frac);
    }
    let parts = magnitude(mpc, &x, 1)?;
    // More bits than the result has: the product with x costs four.
    let bits = 26;
    mutant!("silu: eight bits fewer", bits = 18);
    let mut chain = working_chain::<P>(mpc);
    let half = upper_half(&mut chain, &parts, bits, mpc.truncation()).into();
    let flipped = Sum::combined([(MINUS_TWO, &half)], 1 << bits);
    let logistic = plus_where(&mut chain, half, &parts, flipped);
    let near = chain.input(&parts.near);
    chain.set_mode(mpc.truncation());
    let near = chain.product(logistic, near, bits);
    let near = run(mpc, chain, near)?;
    let share = mpc.add(&near, &parts.over)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: 20, width: x.width() + 1 }), frac)
}

const MINUS_TWO: u64 = 2u64.wrapping_neg();

/// The parts of a number that the functions of this file need.
struct Magnitude<P: Protocol> {
    /// 1 if it is negative, else 0, as a word.
    negative: P::Share,
    /// `20 - gain |x|`, at least 0.
    from_far: P::Share,
    /// The number clamped to `-20..=20`, or to a smaller range with a gain.
    near: P::Share,
    /// The excess beyond `near`'s range, or 0.
    over: P::Share,
}

/// Three comparisons in the same rounds. `gain` is a power of two: it multiplies the number after clamping,
/// since the whole product would not fit.
fn magnitude<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, gain: u64) -> Result<Magnitude<P>> {
    let far = FAR / gain as i64;
    mutant!("tanh: clamped as if not doubled", far = FAR);
    let above = shifted(mpc, x, far)?;
    let below = shifted(mpc, x, -far)?;
    let one = mpc.combine(&[(0, x.share())], 1)?;
    let (signed, over, under) = ([&one, x.share()], [above.share()], [below.share()]);
    let job = |value: &'_ SecretTensor<P>| (value.share().clone(), value.width());
    let values = [job(x), job(&above), job(&below)];
    let jobs = [
        Compare { value: &values[0].0, width: values[0].1, then: Then::negative(&signed) },
        Compare { value: &values[1].0, width: values[1].1, then: Then::not_negative(&over) },
        Compare { value: &values[2].0, width: values[2].1, then: Then::negative(&under) },
    ];
    let words: Vec<_> = mpc.compare(&jobs)?.into_iter().flat_map(Compared::into_words).collect();
    let Ok([negative, minus, over, under]) = <[P::Share; 4]>::try_from(words) else {
        return Err(crate::functions::arithmetic::no_answer("compare"));
    };
    let less = u64::MAX;
    let near = mpc.combine(&[(1, x.share()), (less, &over), (less, &under)], 0)?;
    // |x| = x - 2 minus, clamped: - over + under.
    let signs = [(less, x.share()), (2, &minus), (1, &over), (less, &under)];
    let terms = signs.map(|(sign, part)| (sign.wrapping_mul(gain), part));
    let from_far = mpc.combine(&terms, FAR as u64)?;
    Ok(Magnitude { negative, from_far, near, over })
}

/// `1 / (1 + e^-m)` for `m = 20 - from_far` in `0..=20`; the exponential drops bits in the mode of results.
fn upper_half<'a, P: Protocol>(
    chain: &mut Chain<'a, P::Share>,
    parts: &'a Magnitude<P>,
    out: u32,
    results: TruncationMode,
) -> Value {
    let working = chain.mode();
    let from_far = chain.input(&parts.from_far);
    // v = 4 (1 + e) / 2 - 3 = 2 e - 1, with 22 fraction bits: the word of e with 23.
    let e = exp_from_vanished(chain, from_far, 23, results);
    let v = Sum::of([(1, e)], (1u64 << 22).wrapping_neg());
    chain.set_mode(working);
    // 1 / ((1 + e) / 2) is twice the result.
    RECIPROCAL.eval(chain, &v, out - 1)
}

/// `x` and, where the number is negative, the gain.
fn plus_where<'a, P: Protocol>(
    chain: &mut Chain<'a, P::Share>,
    x: Sum,
    parts: &'a Magnitude<P>,
    gain: Sum,
) -> Value {
    let negative = chain.input(&parts.negative);
    chain.product_plus(negative, gain, x, 0)
}

/// The error function.
///
/// # Domain and error
/// All `x`; error below `2^-17`. 20 fraction bits are used.
///
/// # Method
/// On `-3.45..=3.45` a sum of five sines ([`Protocol::trig_sum`]), -1 and 1 outside. Without sums of sines: clamp to
/// `-3.5..=3.5`, where the function is within `2^-20` of its limits; `x` times a polynomial of degree 11 in `x^2`.
///
/// # Cost
/// With replicated sharing at width 44: 5 rounds and 1308 bits for each element in all. Without sums of sines: two
/// comparisons with a selection that share 6 rounds, a chain of seven products in seven more.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn erf<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    const LIMIT: i64 = 7 << 19;
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    if let Some(y) = by_sines(mpc, &x, &sines::ERF, 23)? {
        return rescale(mpc, &y, frac);
    }
    let limit = LIMIT;
    mutant!("erf: clamped at 2.5", limit = 5 << 19);
    let near = crate::functions::compare::choose::clamp_words(mpc, &x, -limit, limit)?;
    let mut chain = working_chain::<P>(mpc);
    let near = chain.input(near.share());
    // x^2 / 8 - 1 with 20 fraction bits.
    let square = chain.product(near, near, 23);
    let v = Sum::of([(1, square)], (1u64 << 20).wrapping_neg());
    let ratio = ERF.eval(&mut chain, &v, 30);
    chain.set_mode(mpc.truncation());
    let share = chain.product(ratio, near, 30);
    let share = run(mpc, chain, share)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: 20, width: 23 }), frac)
}
