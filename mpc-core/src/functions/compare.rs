//! Comparisons, and functions that choose by them. Outcomes are integers 0 or 1, without fraction
//! bits.

use ring_arith::Bilinear;

use super::{
    Multiply, add,
    arithmetic::{encode_scalar, no_answer, signed_width},
    mul, mul_scalar,
    multiply::multiply,
    neg, sub,
};
use crate::{
    Arg, Compare, Compared, ComparedBy, Error, Linear, Protocol, Result, SecretTensor, Then,
};

/// `x < y`, broadcast.
///
/// # Domain and error
/// Exact for all numbers whose words are below 2^62 in magnitude.
///
/// # Cost
/// One comparison: 6 rounds and 488 bits for each element in all with replicated sharing at full width;
/// less for tensors of smaller [width](SecretTensor::width).
/// With replicated sharing at width 44: 6 rounds and 394 bits for each element in all.
///
/// # Errors
/// As [`add`].
pub fn lt<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let difference = sub(mpc, x, y)?;
    is_negative(mpc, &difference)
}

/// `x > y`, broadcast. As [`lt`].
///
/// # Cost
/// As [`lt`].
///
/// # Errors
/// As [`add`].
pub fn gt<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    lt(mpc, y, x)
}

/// `x <= y`, broadcast. As [`lt`].
///
/// # Cost
/// As [`lt`].
///
/// # Errors
/// As [`add`].
pub fn le<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let greater = gt(mpc, x, y)?;
    not(mpc, &greater)
}

/// `x >= y`, broadcast. As [`lt`].
///
/// # Cost
/// As [`lt`].
///
/// # Errors
/// As [`add`].
pub fn ge<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    le(mpc, y, x)
}

/// `x = y`, broadcast.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// One test for zero and one conversion: 6 or 7 rounds and 447 bits for each element in all with
/// replicated sharing at full width.
/// With replicated sharing at width 44: 7 rounds and 369 bits for each element in all.
///
/// # Errors
/// As [`add`].
pub fn eq<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let difference = sub(mpc, x, y)?;
    let zero = mpc.is_zero(&[(difference.share(), difference.width())])?;
    let zero: Vec<_> = zero.iter().collect();
    let words = mpc.bits_to_words(&zero)?.into_iter().flatten().next();
    Ok(SecretTensor::new(words.ok_or_else(|| no_answer("eq"))?, 0, 2))
}

/// `x != y`, broadcast. As [`eq`].
///
/// # Cost
/// As [`eq`].
///
/// # Errors
/// As [`add`].
pub fn ne<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    let equal = eq(mpc, x, y)?;
    not(mpc, &equal)
}

/// `1 - x` of an outcome: its negation. Nothing is sent.
///
/// # Errors
/// [`Error::FracBits`] if `x` is not an integer.
pub fn not<P: Protocol>(mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    integer("not", x)?;
    Ok(SecretTensor::new(mpc.combine(&[(u64::MAX, x.share())], 1)?, 0, 2))
}

fn integer<P: Protocol>(op: &'static str, x: &SecretTensor<P>) -> Result<()> {
    match x.frac() {
        0 => Ok(()),
        lhs => Err(Error::FracBits { op, lhs, rhs: 0 }),
    }
}

/// `x < 0`. As [`lt`].
///
/// # Cost
/// As [`lt`].
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn is_negative<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let job = Compare { value: x.share(), width: x.width(), then: Then::word() };
    Ok(SecretTensor::new(mpc.compare_one(job)?.into_word()?, 0, 2))
}

/// -1, 0 or 1, an integer.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// Two comparisons that share their 6 rounds.
/// With replicated sharing at width 44: 6 rounds and 784 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn sign<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let minus = neg(mpc, x)?;
    let job = |value| Compare { value, width: x.width(), then: Then::word() };
    let answers = mpc.compare(&[job(x.share()), job(minus.share())])?.into_iter();
    let answers = answers.map(Compared::into_word).collect::<Result<Vec<_>>>()?;
    let [below, above] = answers.try_into().map_err(|_| no_answer("compare"))?;
    Ok(SecretTensor::new(mpc.sub(&above, &below)?, 0, 2))
}

/// `x` where `condition` is 1, `y` where it is 0; `x` and `y` broadcast to the condition or it to them.
///
/// # Cost
/// One product without truncation: 1 round and 192 bits for each element in all with replicated sharing.
/// With replicated sharing at width 44: 1 round and 192 bits for each element in all.
///
/// # Errors
/// [`Error::FracBits`] if `condition` is not an integer or `x` and `y` differ; as [`add`].
pub fn select<'a, P: Protocol>(
    mpc: &mut P,
    condition: &SecretTensor<P>,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    integer("select", condition)?;
    let (x, y) = (x.into(), y.into());
    let width = x.width().max(y.width());
    let gain = sub(mpc, x, y)?;
    let kept = multiply(mpc, &[Multiply::new(Bilinear::Mul, condition, &gain)])?;
    let kept = kept.into_iter().next().ok_or_else(|| no_answer("select"))?;
    let chosen = add(mpc, &kept, y)?;
    Ok(SecretTensor::new(chosen.share().clone(), chosen.frac(), width))
}

/// One value to be compared with zero, and the word kept where it is negative (or where it is not).
pub(super) struct Keep<'a, P: Protocol> {
    pub value: &'a SecretTensor<P>,
    pub word: &'a SecretTensor<P>,
    pub where_negative: bool,
}

/// Comparisons with the words that they select, all in the same rounds.
pub(super) fn keep<P: Protocol>(mpc: &mut P, jobs: &[Keep<'_, P>]) -> Result<Vec<SecretTensor<P>>> {
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
        Ok(SecretTensor::new(share, job.word.frac(), job.word.width()))
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
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// [`abs`], and the bits where `x` is negative.
pub(super) fn magnitude_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<(SecretTensor<P>, P::Bits)> {
    let words = [x.share()];
    let then = Then { bit: true, ..Then::negative(&words) };
    let mut answer = mpc.compare_one(Compare { value: x.share(), width: x.width(), then })?;
    let bit = answer.bit.take().ok_or_else(|| no_answer("compare"))?;
    let share = mpc.combine(&[(1, x.share()), (MINUS_TWO, &answer.into_word()?)], 0)?;
    Ok((SecretTensor::new(share, x.frac(), x.width()), bit))
}

const MINUS_TWO: u64 = 2u64.wrapping_neg();

/// `max(0, x)`. Cost of [`abs`]; after a product take [`Multiply::relu`] instead.
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
    Ok((SecretTensor::new(share, x.frac(), x.width()), mpc.not(&bit)?))
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
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `x` where `y` is positive, else 0; shapes equal.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// As [`abs`].
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

/// `x and y`, `x or y`, `x xor y` of outcomes.
///
/// # Domain and error
/// Exact, for integers 0 and 1.
///
/// # Cost
/// One product without truncation: 1 round and 192 bits for each element in all with replicated sharing.
///
/// # Errors
/// [`Error::FracBits`] if an operand is not an integer; as [`add`].
pub fn logical<P: Protocol>(
    mpc: &mut P,
    logic: Logic,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    integer("logic", x)?;
    integer("logic", y)?;
    let both = mul(mpc, x, y)?;
    let y = match logic {
        Logic::And => both,
        Logic::Or => sub(mpc, &add(mpc, x, y)?, &both)?,
        Logic::Xor => {
            let twice = add(mpc, &both, &both)?;
            sub(mpc, &add(mpc, x, y)?, &twice)?
        }
    };
    Ok(y.with_width(2))
}

/// A function of two outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logic {
    /// Both are 1.
    And,
    /// At least one is 1.
    Or,
    /// One of them is 1.
    Xor,
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
    Ok(SecretTensor::new(share, x.frac(), x.width().max(signed_width(word))))
}

/// [`clamp`] to words.
pub(super) fn clamp_words<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    floor: i64,
    ceiling: i64,
) -> Result<SecretTensor<P>> {
    Ok(clamp_parts(mpc, x, floor, ceiling)?.0)
}

/// `x` limited to a range of words, and the excess over the upper limit, or 0.
pub(super) fn clamp_parts<P: Protocol>(
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
    Ok((SecretTensor::new(mpc.combine(&terms, 0)?, x.frac(), width), over))
}

/// `x - word`.
pub(super) fn shifted<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    word: i64,
) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::Shift(word.wrapping_neg() as u64), x.share())?;
    let width = x.width().max(signed_width(word)) + 1;
    mutant!("shifted: a bit too narrow", width = width - 1);
    Ok(SecretTensor::new(share, x.frac(), width))
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

/// For secret integers, a new last axis of `classes` places with 1 at the integer and 0 elsewhere;
/// all 0 for an integer that is none of `0..classes`.
///
/// # Domain and error
/// Exact.
///
/// # Cost
/// `classes` tests for zero that share their rounds, and a conversion each. For integers of known
/// size, give their [width](SecretTensor::with_width): the tests need as many bits.
/// With replicated sharing for 16 classes and labels of width 6: 5 rounds and 3504 bits for each element in all.
///
/// # Errors
/// [`Error::FracBits`] if `x` is not an integer, [`Error::Invalid`] for 0 classes.
pub fn one_hot<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    classes: usize,
) -> Result<SecretTensor<P>> {
    integer("one-hot", x)?;
    if classes == 0 {
        let reason = "there must be at least one class".to_owned();
        return Err(Error::Invalid { op: "one-hot", reason });
    }
    let column = [x.shape().dims(), &[1]].concat();
    let column = super::reshape(mpc, x, &column.as_slice().try_into()?)?;
    let labels: Vec<i64> = (0..classes as i64).collect();
    let labels = super::encode_integers(mpc, &[classes].try_into()?, &labels)?;
    eq(mpc, &column, &labels)
}
