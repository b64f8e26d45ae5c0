//! Functions of single elements.

use mpc_core::{
    Compare, Compared, Finish, Linear, Operand, Product, Protocol, SecretTensor, Then,
    TruncationMode,
};
use ring_arith::Bilinear;

use super::{add, align, broadcast, only, scale, secret, shift};
use crate::graph::Binary;
use crate::{Error, Result};

/// `max(x, 0)`.
pub(crate) fn relu<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let then = Then { not_negative: &[x.share()], ..Then::default() };
    let job = Compare { value: x.share(), width: x.width(), then };
    let share = mpc.compare_one(job)?.into_word()?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `max(x, 0)`, and the bits where it is positive.
pub(crate) fn relu_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<(SecretTensor<P>, P::Bits)> {
    // A number is positive if it is not negative less one unit.
    let less = mpc.linear(&Linear::Shift(1u64.wrapping_neg()), x.share())?;
    let words = [x.share()];
    let then = Then { bit: true, ..Then::not_negative(&words) };
    let job = Compare { value: &less, width: (x.width() + 1).min(64), then };
    let mut answer = mpc.compare_one(job)?;
    let (bit, share) = (answer.bit.take(), answer.into_word()?);
    let positive = mpc.not(&bit.ok_or_else(unanswered)?)?;
    Ok((SecretTensor::new(share, x.frac(), x.width()), positive))
}

/// `x` where a bit is 1, else 0; the bits may have another shape of the same length.
pub(crate) fn where_kept<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    bits: &P::Bits,
) -> Result<SecretTensor<P>> {
    let bits = mpc.reshape_bits(bits, x.shape())?;
    let share = only(only(mpc.select(&[(&bits, &[x.share()])])?)?)?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `x` where it is negative, else 0.
pub(crate) fn negative_part<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let then = Then { negative: &[x.share()], ..Then::default() };
    let job = Compare { value: x.share(), width: x.width(), then };
    let share = mpc.compare_one(job)?.into_word()?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `x` where `y` is positive, else 0; shapes equal.
pub(crate) fn where_positive<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let minus = mpc.linear(&Linear::Negate, y.share())?;
    let words = [x.share()];
    let job = Compare { value: &minus, width: y.width(), then: Then::negative(&words) };
    let share = mpc.compare_one(job)?.into_word()?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `x`, or `slope * x` where negative.
pub(crate) fn leaky_relu<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    slope: f64,
) -> Result<SecretTensor<P>> {
    let negative = negative_part(mpc, x)?;
    let less = scale(mpc, &negative, slope - 1.0, x.frac())?;
    let y = add(mpc, x, &less, false)?;
    // For slopes within [-1, 1] the result is no larger than the value.
    let width = if slope.abs() <= 1.0 { x.width() } else { y.width() };
    Ok(SecretTensor::new(y.share().clone(), y.frac(), width))
}

/// `min(max(x, low), high)`: both comparisons share their rounds.
pub(crate) fn clip<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    low: Option<f64>,
    high: Option<f64>,
) -> Result<SecretTensor<P>> {
    if let (Some(l), Some(h)) = (low, high)
        && l > h
    {
        return Err(Error::invalid("clip", format!("the limits {l} and {h} are exchanged")));
    }
    let over = low.map(|l| shift(mpc, x, -l)).transpose()?;
    let past = high.map(|h| shift(mpc, x, -h)).transpose()?;
    let parts: Vec<_> = over.iter().chain(&past).collect();
    let mut answers = positive_parts(mpc, &parts)?.into_iter();
    // low + relu(x - low) - relu(x - high)
    let base = match low {
        Some(_) => answers.next().ok_or_else(unanswered)?,
        None => x.share().clone(),
    };
    let share = match high {
        Some(_) => mpc.sub(&base, &answers.next().ok_or_else(unanswered)?)?,
        None => base,
    };
    let y = SecretTensor::new(share, x.frac(), x.width());
    match low {
        Some(l) => {
            let y = shift(mpc, &y, l)?;
            Ok(SecretTensor::new(y.share().clone(), y.frac(), y.width().min(x.width() + 1)))
        }
        None => Ok(y),
    }
}

/// `max(x, 0)` of several numbers, whose comparisons share their rounds.
fn positive_parts<P: Protocol>(mpc: &mut P, parts: &[&SecretTensor<P>]) -> Result<Vec<P::Share>> {
    let words: Vec<_> = parts.iter().map(|p| [p.share()]).collect();
    let jobs: Vec<_> = parts
        .iter()
        .zip(&words)
        .map(|(p, w)| Compare { value: p.share(), width: p.width(), then: Then::not_negative(w) })
        .collect();
    Ok(mpc.compare(&jobs)?.into_iter().map(Compared::into_word).collect::<Result<_, _>>()?)
}

/// `min(max(x, -end), end)`, and `max(x - end, 0)`: both comparisons share their rounds.
pub(crate) fn clamp<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    end: f64,
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let parts = [shift(mpc, x, end)?, shift(mpc, x, -end)?];
    let mut answers = positive_parts(mpc, &parts.each_ref())?.into_iter();
    let above = answers.next().ok_or_else(unanswered)?;
    let over = answers.next().ok_or_else(unanswered)?;
    let near = SecretTensor::new(mpc.sub(&above, &over)?, x.frac(), x.width());
    let near = shift(mpc, &near, -end)?;
    let near = SecretTensor::new(near.share().clone(), x.frac(), x.width());
    Ok((near, SecretTensor::new(over, x.frac(), x.width())))
}

/// The comparison `x < 0`, as 0 or 1.
pub(crate) fn is_negative<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let job = Compare { value: x.share(), width: x.width(), then: Then::word() };
    Ok(SecretTensor::new(mpc.compare_one(job)?.into_word()?, 0, 2))
}

/// `|x|`.
pub(crate) fn abs<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    // |x| = x - 2 * min(x, 0)
    let negative = negative_part(mpc, x)?;
    let twice = mpc.linear(&Linear::Scale(2), negative.share())?;
    let share = mpc.sub(x.share(), &twice)?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `|x|`, and the bits where `x` is negative.
pub(crate) fn abs_keeping<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<(SecretTensor<P>, P::Bits)> {
    let words = [x.share()];
    let then = Then { bit: true, ..Then::negative(&words) };
    let mut answer = mpc.compare_one(Compare { value: x.share(), width: x.width(), then })?;
    let bit = answer.bit.take().ok_or_else(unanswered)?;
    let twice = mpc.linear(&Linear::Scale(2), &answer.into_word()?)?;
    let share = mpc.sub(x.share(), &twice)?;
    Ok((SecretTensor::new(share, x.frac(), x.width()), bit))
}

/// -1, 0 or 1.
pub(crate) fn sign<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let minus = mpc.linear(&Linear::Negate, x.share())?;
    let jobs =
        [x.share(), &minus].map(|value| Compare { value, width: x.width(), then: Then::word() });
    let mut answers = mpc.compare(&jobs)?.into_iter().map(Compared::into_word);
    let below = answers.next().ok_or_else(unanswered)??;
    let above = answers.next().ok_or_else(unanswered)??;
    Ok(SecretTensor::new(mpc.sub(&above, &below)?, 0, 2))
}

/// The whole part, rounded down, as an integer.
pub(crate) fn floor<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    if x.frac() == 0 {
        return Ok(x.clone());
    }
    let share = only(mpc.truncate(&[(x.share(), x.frac())], TruncationMode::Exact)?)?;
    Ok(SecretTensor::new(share, 0, super::truncated_width(x.width(), x.frac())))
}

/// `1 - x` for truth values.
pub(crate) fn not<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let minus = mpc.linear(&Linear::Negate, x.share())?;
    let one = 1u64 << x.frac();
    Ok(SecretTensor::new(mpc.linear(&Linear::Shift(one), &minus)?, x.frac(), x.width()))
}

/// `x * y` after broadcasting, with `frac` fraction bits unless one operand is an integer.
pub(crate) fn mul<P: Protocol>(
    mpc: &mut P,
    x: &Operand<P>,
    y: &Operand<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let (x, y) = match (x, y) {
        (Operand::Public(p), s) | (s, Operand::Public(p)) => {
            return mul_public(mpc, &secret(mpc, s)?, p, frac);
        }
        (Operand::Secret(x), Operand::Secret(y)) => (x, y),
    };
    let shape = x.shape().broadcast(y.shape(), "mul")?;
    let (x, y) = (broadcast(mpc, x, &shape)?, broadcast(mpc, y, &shape)?);
    let sum = x.frac() + y.frac();
    let target = product_frac(x.frac(), y.frac(), frac);
    let bits = sum.saturating_sub(target);
    let finish = match bits {
        0 => Finish::Raw,
        _ => Finish::Truncate { bits, mode: mpc.truncation() },
    };
    let job = Product::new(Bilinear::Mul, x.share(), y.share(), finish);
    let share = mpc.product(job)?.share;
    let width = (x.width() + y.width()).min(64).saturating_sub(bits).max(2);
    Ok(SecretTensor::new(share, sum - bits, width.min(64 - bits)))
}

/// The format of a product: an integer leaves the other operand's.
pub(crate) fn product_frac(x: u32, y: u32, frac: u32) -> u32 {
    match (x, y) {
        (0, f) | (f, 0) => f,
        _ => frac,
    }
}

fn mul_public<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &mpc_core::PublicTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    use ring_arith::{Engine, EngineTensor, View};
    let shape = x.shape().broadcast(y.words().shape(), "mul")?;
    let x = broadcast(mpc, x, &shape)?;
    let words = mpc.engine().view(y.words(), &View::Broadcast(shape))?;
    let share = mpc.linear(&Linear::TimesPublic(&Bilinear::Mul, &words), x.share())?;
    let target = product_frac(x.frac(), y.frac(), frac);
    let product = SecretTensor::new(share, x.frac() + y.frac(), 64);
    align(mpc, &product, target)
}

/// A comparison or a function of truth values, as 0 or 1.
pub(crate) fn truth<P: Protocol>(
    mpc: &mut P,
    f: Binary,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    match f {
        Binary::Less => {
            let d = add(mpc, x, y, true)?;
            is_negative(mpc, &d)
        }
        Binary::Greater => truth(mpc, Binary::Less, y, x),
        Binary::GreaterEqual => {
            let less = truth(mpc, Binary::Less, x, y)?;
            not(mpc, &less)
        }
        Binary::LessEqual => truth(mpc, Binary::GreaterEqual, y, x),
        Binary::Equal => {
            let d = add(mpc, x, y, true)?;
            let bits = only(mpc.is_zero(&[(d.share(), d.width())])?)?;
            let words = only(only(mpc.bits_to_words(&[&bits])?)?)?;
            Ok(SecretTensor::new(words, 0, 2))
        }
        Binary::And | Binary::Or | Binary::Xor => {
            if x.frac() != 0 || y.frac() != 0 {
                return Err(Error::invalid(f.name(), "the operands are not truth values"));
            }
            let both = mul(mpc, &Operand::Secret(x.clone()), &Operand::Secret(y.clone()), 0)?;
            let once = add(mpc, x, y, false)?;
            let y = match f {
                Binary::And => return Ok(both),
                Binary::Or => add(mpc, &once, &both, true)?,
                _ => {
                    let twice = add(mpc, &both, &both, false)?;
                    add(mpc, &once, &twice, true)?
                }
            };
            Ok(SecretTensor::new(y.share().clone(), 0, 2))
        }
        _ => Err(Error::invalid(f.name(), "is not a truth value")),
    }
}

/// The larger or the smaller of two.
pub(crate) fn extreme<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
    min: bool,
) -> Result<SecretTensor<P>> {
    let width = x.width().max(y.width());
    // max(x, y) = y + relu(x - y), min(x, y) = x - relu(x - y)
    let d = add(mpc, x, y, true)?;
    let gain = relu(mpc, &d)?;
    let z = if min { add(mpc, x, &gain, true)? } else { add(mpc, y, &gain, false)? };
    Ok(SecretTensor::new(z.share().clone(), z.frac(), width.min(z.width())))
}

/// `y + c * (x - y)` for truth values `c`.
pub(crate) fn choose<P: Protocol>(
    mpc: &mut P,
    c: &SecretTensor<P>,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    if c.frac() != 0 {
        return Err(Error::invalid("where", "the condition is not a truth value"));
    }
    let width = x.width().max(y.width()) + x.frac().abs_diff(y.frac());
    let d = add(mpc, x, y, true)?;
    let chosen = mul(mpc, &Operand::Secret(c.clone()), &Operand::Secret(d), 0)?;
    let z = add(mpc, y, &chosen, false)?;
    Ok(SecretTensor::new(z.share().clone(), z.frac(), width.min(64)))
}

fn unanswered() -> Error {
    Error::invalid("compare", "the protocol did not answer with words")
}
