//! Comparisons and what is made of their outcomes, which are integers 0 or 1, without fraction bits.

pub(super) mod choose;
pub(super) mod extrema;
pub(super) mod pool;

use ring_arith::Bilinear;

use crate::functions::{
    Multiply, add, arithmetic::multiply::multiply, arithmetic::no_answer, mul, neg, sub,
};
use crate::{
    Arg, Compare, Compared, Error, Format, Protocol, Result, SecretTensor, Then, tensor::same_frac,
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
    Ok(SecretTensor::new(words.ok_or_else(|| no_answer("eq"))?, Format::integer(2)))
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
    same_frac("not", x.frac(), 0)?;
    Ok(SecretTensor::new(mpc.combine(&[(u64::MAX, x.share())], 1)?, Format::integer(2)))
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
    Ok(SecretTensor::new(mpc.compare_one(job)?.into_word()?, Format::integer(2)))
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
    Ok(SecretTensor::new(mpc.sub(&above, &below)?, Format::integer(2)))
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
    same_frac("select", condition.frac(), 0)?;
    let (x, y) = (x.into(), y.into());
    let width = x.width().max(y.width());
    let gain = sub(mpc, x, y)?;
    let kept = multiply(mpc, &[Multiply::new(Bilinear::Mul, condition, &gain)])?;
    let kept = kept.into_iter().next().ok_or_else(|| no_answer("select"))?;
    let chosen = add(mpc, &kept, y)?;
    Ok(SecretTensor::new(chosen.share().clone(), chosen.format().with_width(width)))
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
    same_frac("logic", x.frac(), 0)?;
    same_frac("logic", y.frac(), 0)?;
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
    same_frac("one-hot", x.frac(), 0)?;
    if classes == 0 {
        let reason = "there must be at least one class".to_owned();
        return Err(Error::Invalid { op: "one-hot", reason });
    }
    let column = [x.shape().dims(), &[1]].concat();
    let column = crate::functions::reshape(mpc, x, &column.as_slice().try_into()?)?;
    let labels: Vec<i64> = (0..classes as i64).collect();
    let labels = crate::functions::encode_integers(mpc, &[classes].try_into()?, &labels)?;
    eq(mpc, &column, &labels)
}
