//! Sums, differences, and products with public numbers.

use super::{shape::broadcast, values::secret};
use crate::{Arg, Error, Linear, Protocol, Result, SecretTensor};

/// Fraction bits that agree.
pub(super) fn same_frac(op: &'static str, lhs: u32, rhs: u32) -> Result<u32> {
    if lhs == rhs { Ok(lhs) } else { Err(Error::FracBits { op, lhs, rhs }) }
}

/// `x + y`, broadcast. Nothing is sent.
///
/// # Errors
/// [`Error::FracBits`] or [`ring_arith::Error::Shapes`] if the operands do not fit together. The same
/// holds for every function of two operands.
pub fn add<'a, P: Protocol>(
    mpc: &P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    sum_of("add", mpc, x.into(), y.into(), false)
}

/// `x - y`, broadcast. Nothing is sent.
///
/// # Errors
/// As [`add`].
pub fn sub<'a, P: Protocol>(
    mpc: &P,
    x: impl Into<Arg<'a, P>>,
    y: impl Into<Arg<'a, P>>,
) -> Result<SecretTensor<P>> {
    sum_of("sub", mpc, x.into(), y.into(), true)
}

fn sum_of<P: Protocol>(
    op: &'static str,
    mpc: &P,
    x: Arg<'_, P>,
    y: Arg<'_, P>,
    negate: bool,
) -> Result<SecretTensor<P>> {
    let frac = same_frac(op, x.frac(), y.frac())?;
    let shape = x.shape().broadcast(y.shape(), op)?;
    let width = x.width().max(y.width()) + 1;
    let share = match (x, y) {
        (Arg::Secret(x), Arg::Public(y)) if !negate && y.shape() == &shape => {
            let x = broadcast(mpc, x, &shape)?;
            mpc.linear(&Linear::AddPublic(y.words()), x.share())?
        }
        _ => {
            let x = broadcast(mpc, &secret(mpc, x)?, &shape)?;
            let y = broadcast(mpc, &secret(mpc, y)?, &shape)?;
            match negate {
                true => mpc.sub(x.share(), y.share())?,
                false => mpc.add(x.share(), y.share())?,
            }
        }
    };
    Ok(SecretTensor::new(share, frac, width))
}

/// `-x`. Nothing is sent.
///
/// # Errors
/// [`Error::Ring`] if the engine failed.
pub fn neg<P: Protocol>(mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::Negate, x.share())?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// `x + c`. Nothing is sent.
///
/// # Errors
/// [`Error::Invalid`] if `c` has no encoding in the tensor's fraction bits.
pub fn add_scalar<P: Protocol>(mpc: &P, x: &SecretTensor<P>, c: f64) -> Result<SecretTensor<P>> {
    let word = encode_scalar("add", c, x.frac())?;
    let share = mpc.linear(&Linear::Shift(word as u64), x.share())?;
    let width = x.width().max(signed_width(word)) + 1;
    Ok(SecretTensor::new(share, x.frac(), width))
}

/// `x * c`. Nothing is sent if `c` is an integer; else the product is truncated.
///
/// # Cost
/// Two rounds and `3t` bits for each element in all with replicated sharing, `t` being the fraction
/// bits that `c` needs, at most the tensor's own or 20, whichever is more.
///
/// # Errors
/// [`Error::Invalid`] if `c` is not finite or too large.
pub fn mul_scalar<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
) -> Result<SecretTensor<P>> {
    let most = x.frac().max(20);
    // A number that does not grow needs no more room than it had, so a factor below 1 keeps as many
    // significant bits as fit: means over many terms would lose accuracy otherwise.
    let small = if c == 0.0 || !c.is_finite() { 0.0 } else { (-c.abs().log2()).clamp(0.0, 16.0) };
    let most = (most + small as u32).min(40);
    let bits = (0..=most)
        .find(|&b| {
            let scaled = c * 2f64.powi(b as i32);
            scaled == scaled.round()
        })
        .unwrap_or(most);
    let word = encode_scalar("mul", c, bits)?;
    let share = mpc.linear(&Linear::Scale(word as u64), x.share())?;
    let grown = (x.width() + signed_width(word)).saturating_sub(1).min(64);
    if bits == 0 {
        return Ok(SecretTensor::new(share, x.frac(), grown));
    }
    let raw = SecretTensor::new(share, x.frac() + bits, grown);
    rescale(mpc, &raw, x.frac())
}

/// `x / c` for a public `c`, with the error of [`mul_scalar`]; dividing by a power of two loses nothing
/// but the bits it drops.
///
/// # Cost
/// As [`mul_scalar`].
///
/// # Errors
/// [`Error::Invalid`] if `c` is 0, not finite or too small.
pub fn div_scalar<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
) -> Result<SecretTensor<P>> {
    mul_scalar(mpc, x, 1.0 / c)
}

/// The integer nearest to `c * 2^frac`, below 2^62.
pub(super) fn encode_scalar(op: &'static str, c: f64, frac: u32) -> Result<i64> {
    let scaled = (c * 2f64.powi(frac as i32)).round_ties_even();
    if scaled.abs() < 2f64.powi(62) {
        return Ok(scaled as i64);
    }
    let reason = format!("the number {c} does not fit {frac} fraction bits");
    Err(Error::Invalid { op, reason })
}

/// Width of one word.
pub(super) fn signed_width(word: i64) -> u32 {
    65 - word.unsigned_abs().leading_zeros()
}

/// The same numbers with other fraction bits. More bits cost nothing; fewer are a truncation.
///
/// # Cost
/// Two rounds and 60 bits for each element in all with replicated sharing at 20 dropped bits, in the
/// protocol's default mode.
///
/// # Errors
/// [`Error::Overflow`] if more bits do not fit.
pub fn rescale<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    if frac >= x.frac() {
        let up = frac - x.frac();
        if up == 0 {
            return Ok(x.clone());
        }
        if up > 40 {
            return Err(Error::Overflow { op: "rescale", bits: 22 + up, limit: 62 });
        }
        let share = mpc.linear(&Linear::Scale(1 << up), x.share())?;
        return Ok(SecretTensor::new(share, frac, x.width() + up));
    }
    let drop = x.frac() - frac;
    let mode = mpc.truncation();
    let share = mpc.truncate(&[(x.share(), drop)], mode)?;
    let share = share.into_iter().next().ok_or_else(|| no_answer("rescale"))?;
    Ok(SecretTensor::new(share, frac, dropped(x.width(), drop)))
}

/// Width of `word / 2^drop`, rounded either way, for words of the given width below 2^62.
pub(super) fn dropped(width: u32, drop: u32) -> u32 {
    (width.min(63) + 1).saturating_sub(drop).max(2)
}

/// A protocol that breaks its contract.
pub(super) fn no_answer(op: &'static str) -> Error {
    Error::unanswered(op)
}
