//! Functions that keep a number or another one by a comparison with zero.

use crate::functions::{
    add,
    arithmetic::{encode_scalar, no_answer, signed_width},
    mul_scalar, neg, sub,
};
use crate::{Arg, Compare, ComparedBy, Error, Linear, Protocol, Result, SecretTensor, Then};

/// One value to be compared with zero, and the word kept where it is negative (or where it is not).
pub(in crate::functions) struct Keep<'a, P: Protocol> {
    pub value: &'a SecretTensor<P>,
    pub word: &'a SecretTensor<P>,
    pub where_negative: bool,
}

/// Comparisons with the words that they select, all in the same rounds.
pub(in crate::functions) fn keep<P: Protocol>(
    mpc: &mut P,
    jobs: &[Keep<'_, P>],
) -> Result<Vec<SecretTensor<P>>> {
    let lists: Vec<_> = jobs.iter().map(|job| [job.word.share()]).collect();
    let compares = jobs.iter().zip(&lists).map(|(job, list)| Compare {
        value: job.value.share(),
        width: job.value.width(),
        then: if job.where_negative { Then::negative(list) } else { Then::not_negative(list) },
    });
    let compares: Vec<_> = compares.collect();
    let answers = mpc.compare(&compares)?;
    if answers.len() != jobs.len() {
        return Err(no_answer("compare"));
    }
    let result = |(answer, job): (ComparedBy<P>, &Keep<'_, P>)| {
        let share = answer.into_word()?;
        Ok(SecretTensor::new(share, job.word.format()))
    };
    answers.into_iter().zip(jobs).map(result).collect()
}

/// `|x|`.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// One comparison with a selection: 6 rounds and 552 bits for each element in all with replicated
/// sharing at full width.
/// With replicated sharing at width 44: 6 rounds and 456 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn abs<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let job = Keep { value: x, word: x, where_negative: true };
    let below = keep(mpc, &[job])?.pop().ok_or_else(|| no_answer("abs"))?;
    let share = mpc.combine(&[(1, x.share()), (MINUS_TWO, below.share())], 0)?;
    Ok(SecretTensor::new(share, x.format()))
}

/// [`abs`], and the bits where `x` is negative.
pub(in crate::functions) fn magnitude_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<(SecretTensor<P>, P::Bits)> {
    let words = [x.share()];
    let then = Then { bit: true, ..Then::negative(&words) };
    let mut answer = mpc.compare_one(Compare { value: x.share(), width: x.width(), then })?;
    let bit = answer.bit.take().ok_or_else(|| no_answer("compare"))?;
    let share = mpc.combine(&[(1, x.share()), (MINUS_TWO, &answer.into_word()?)], 0)?;
    Ok((SecretTensor::new(share, x.format()), bit))
}

const MINUS_TWO: u64 = 2u64.wrapping_neg();

/// `max(0, x)`. Cost of [`abs`]; after a product take [`crate::functions::Multiply::relu`] instead.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// With replicated sharing at width 44: 6 rounds and 456 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn relu<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    relu_all(mpc, &[x])?.pop().ok_or_else(|| no_answer("relu"))
}

/// [`relu`] of several tensors in the same rounds.
///
/// # Cost
/// As [`relu`], all in the same rounds.
///
/// # Errors
/// As [`relu`].
pub fn relu_all<P: Protocol>(mpc: &mut P, xs: &[&SecretTensor<P>]) -> Result<Vec<SecretTensor<P>>> {
    let jobs = xs.iter().map(|x| Keep { value: x, word: x, where_negative: false });
    let jobs: Vec<_> = jobs.collect();
    keep(mpc, &jobs)
}

/// [`relu`], and the bits where `x` is positive, which a gradient takes.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// As [`relu`], and a bit more for each element.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn relu_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<(SecretTensor<P>, P::Bits)> {
    // A number is positive if it is not negative less one unit.
    let less = mpc.linear(&Linear::Shift(1u64.wrapping_neg()), x.share())?;
    let words = [x.share()];
    let then = Then { bit: true, ..Then::not_negative(&words) };
    let mut answer =
        mpc.compare_one(Compare { value: &less, width: (x.width() + 1).min(64), then })?;
    let bit = answer.bit.take().ok_or_else(|| no_answer("compare"))?;
    let share = answer.into_word()?;
    Ok((SecretTensor::new(share, x.format()), mpc.not(&bit)?))
}

/// `x` where a bit is 1, else 0. The bits may have another shape of the same length.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// [`Protocol::select`] of one word by each bit: 1 round and 192 bits for each element in all with replicated
/// sharing by bits that a comparison kept.
///
/// # Errors
/// [`ring_arith::Error`] if the lengths differ.
pub fn where_bits<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    bits: &P::Bits,
) -> Result<SecretTensor<P>> {
    let bits = mpc.reshape_bits(bits, x.shape())?;
    let share = mpc.select(&[(&bits, &[x.share()])])?.into_iter().flatten().next();
    let share = share.ok_or_else(|| no_answer("select"))?;
    Ok(SecretTensor::new(share, x.format()))
}

/// `x` where `y` is positive, else 0; shapes equal.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// As [`abs`].
/// With replicated sharing at width 44: 6 rounds and 456 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn where_positive<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let minus = neg(mpc, y)?;
    let job = Keep { value: &minus, word: x, where_negative: true };
    keep(mpc, &[job])?.pop().ok_or_else(|| no_answer("where positive"))
}

/// `min(0, x)`.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// As [`relu`].
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn negative_part<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let job = Keep { value: x, word: x, where_negative: true };
    keep(mpc, &[job])?.pop().ok_or_else(|| no_answer("negative part"))
}

/// `x` where it is at least 0, `slope * x` where it is negative.
///
/// # Domain and error
/// Results with an encoding; the slope and the rounding as in [`mul_scalar`].
///
/// # Cost
/// [`relu`] and a [`mul_scalar`]: 8 rounds.
/// With replicated sharing at width 44: 8 rounds and 595 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if the slope cannot be encoded.
pub fn leaky_relu<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    slope: f64,
) -> Result<SecretTensor<P>> {
    let positive = relu(mpc, x)?;
    let negative = sub(mpc, x, &positive)?.with_width(x.width());
    let scaled = mul_scalar(mpc, &negative, slope)?;
    let y = add(mpc, &positive, &scaled)?;
    // For slopes within [-1, 1] the result is no larger than the operand.
    let width = if slope.abs() <= 1.0 { x.width() } else { y.width() };
    Ok(y.with_width(width))
}

/// The larger of two numbers, broadcast: `y + max(0, x - y)`.
///
/// # Domain and error
/// Exact, for differences with an encoding.
///
/// # Cost
/// One [`relu`], of a bit more [width](SecretTensor::width).
/// With replicated sharing at width 44: 6 rounds and 458 bits for each element in all.
///
/// # Errors
/// As [`add`].
pub fn maximum<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let (x, y) = (x.into(), y.into());
    let gain = sub(mpc, x, y)?;
    let gain = relu(mpc, &gain)?;
    Ok(add(mpc, y, &gain)?.with_width(x.width().max(y.width())))
}

/// The smaller of two numbers, broadcast. As [`maximum`].
///
/// # Cost
/// As [`maximum`].
///
/// # Errors
/// As [`add`].
pub fn minimum<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let (x, y) = (x.into(), y.into());
    let gain = sub(mpc, x, y)?;
    let gain = relu(mpc, &gain)?;
    Ok(sub(mpc, x, &gain)?.with_width(x.width().max(y.width())))
}

/// `x` limited to `low..=high`; a limit that is not given is none.
///
/// # Domain and error
/// Exact, for bounds rounded to the tensor's fraction bits.
///
/// # Cost
/// A comparison with a selection for each limit; two share their 6 rounds: 1104 bits for each element in all
/// with replicated sharing at full width.
/// With replicated sharing at width 44: 6 rounds and 916 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] unless `low <= high` and both have an encoding.
pub fn clamp<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    low: Option<f64>,
    high: Option<f64>,
) -> Result<SecretTensor<P>> {
    let word = |limit: f64| encode_scalar("clamp", limit, x.frac());
    match (low.map(word).transpose()?, high.map(word).transpose()?) {
        (Some(floor), Some(ceiling)) => {
            if floor > ceiling {
                let reason = format!("the lower bound {low:?} is above the upper bound {high:?}");
                return Err(Error::Invalid { op: "clamp", reason });
            }
            clamp_words(mpc, x, floor, ceiling)
        }
        (Some(floor), None) => limit(mpc, x, floor, true),
        (None, Some(ceiling)) => limit(mpc, x, ceiling, false),
        (None, None) => Ok(x.clone()),
    }
}

/// The larger of a number and a public word, or the smaller.
fn limit<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    word: i64,
    below: bool,
) -> Result<SecretTensor<P>> {
    let difference = shifted(mpc, x, word)?;
    let job = Keep { value: &difference, word: &difference, where_negative: below };
    let excess = keep(mpc, &[job])?.pop().ok_or_else(|| no_answer("clamp"))?;
    let share = mpc.sub(x.share(), excess.share())?;
    Ok(SecretTensor::new(share, x.format().with_width(x.width().max(signed_width(word)))))
}

/// [`clamp`] to words.
pub(in crate::functions) fn clamp_words<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    floor: i64,
    ceiling: i64,
) -> Result<SecretTensor<P>> {
    Ok(clamp_parts(mpc, x, floor, ceiling)?.0)
}

/// `x` limited to a range of words, and the excess over the upper limit, or 0.
pub(in crate::functions) fn clamp_parts<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    floor: i64,
    ceiling: i64,
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let above = shifted(mpc, x, floor)?;
    let beyond = shifted(mpc, x, ceiling)?;
    let jobs = [
        Keep { value: &above, word: &above, where_negative: true },
        Keep { value: &beyond, word: &beyond, where_negative: false },
    ];
    let [under, over]: [_; 2] = keep(mpc, &jobs)?.try_into().map_err(|_| no_answer("clamp"))?;
    let terms = [(1, x.share()), (u64::MAX, under.share()), (u64::MAX, over.share())];
    let width = signed_width(floor).max(signed_width(ceiling));
    Ok((SecretTensor::new(mpc.combine(&terms, 0)?, x.format().with_width(width)), over))
}

/// `x - word`.
pub(in crate::functions) fn shifted<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    word: i64,
) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::Shift(word.wrapping_neg() as u64), x.share())?;
    let width = x.width().max(signed_width(word)) + 1;
    mutant!("shifted: a bit too narrow", width = width - 1);
    Ok(SecretTensor::new(share, x.format().with_width(width)))
}

/// `x` limited to `0..=6`. As [`clamp`].
///
/// # Cost
/// With replicated sharing at width 44: 6 rounds and 916 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn relu6<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    clamp(mpc, x, Some(0.0), Some(6.0))
}
