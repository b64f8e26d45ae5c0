//! Reciprocal, division, square root and inverse square root, accurate over all magnitudes.

use super::{
    arithmetic::no_answer,
    exponent::{Exponent, argument, exact_product, look_up},
    fixed::{product, products, working},
    rescale,
    tables::{INV_SQRT, RECIPROCAL, SQRT},
};
use crate::{Arg, Error, Protocol, Result, SecretTensor};

/// `1 / x`.
///
/// # Domain and error
/// All `x` but 0 and minus one unit in the last place, for which the result is 0. Relative error below
/// `2^-19.5`, and two units in the last place; at 20 fraction bits, what is `2^20` and above gives 0.
///
/// # Method
/// Normalisation by the highest set bit, a polynomial of degree 8 on `[1/2, 1]`, and the same power of
/// two again.
///
/// # Cost
/// With replicated sharing see [`super::costs`]; numbers known to be small
/// ([`SecretTensor::with_bound`]) cost less, and those known to be positive too: see
/// [`reciprocal_positive`].
/// With replicated sharing at width 44: 28 rounds and 3936 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn reciprocal<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    inverse(mpc, x, true, None)
}

/// `1 / x` for `x` that is known to be at least 0. As [`reciprocal`], without the handling of signs;
/// negative `x` gives a wrong result.
///
/// # Cost
/// With replicated sharing at width 44: 27 rounds and 3582 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn reciprocal_positive<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    inverse(mpc, x, false, None)
}

/// `x / y`, broadcast.
///
/// # Domain and error
/// `|x| < 2^22`, `|x / y| < 2^21` and `|y| < 2^20` at 20 fraction bits; for larger `|y|` the result is 0,
/// and also for `y = 0`. Error below `2^-17 |x / y| + 2^-20 (1 + 2 / |y|)`.
///
/// # Cost
/// [`reciprocal`] and one more product: 2 rounds.
/// With replicated sharing at width 44: 30 rounds and 4146 bits for each element in all.
///
/// # Errors
/// As [`super::add`].
pub fn div<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let x = x.into();
    super::arithmetic::same_frac("div", x.frac(), y.frac())?;
    let shape = x.shape().broadcast(y.shape(), "div")?;
    let x = super::broadcast(mpc, &super::values::secret(mpc, x)?, &shape)?;
    let y = super::broadcast(mpc, y, &shape)?;
    inverse(mpc, &y, true, Some(&x))
}

/// `numerator / x`, or `1 / x`.
fn inverse<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    signed: bool,
    numerator: Option<&SecretTensor<P>>,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = working(mpc, x)?;
    let f = x.frac();
    let wanted = Exponent {
        planes: x.width().min(63) - 1,
        signed,
        top: 2 * f,
        low: &[&|b| 1 << b],
        high: &[&|a| 1 << (8 * a)],
    };
    let looked = look_up(mpc, x.share(), &wanted)?;
    // 2^(2f - 1 - j), with the sign of x, for the highest set bit j.
    let scale = exact_product(mpc, &looked.low[0], &looked.high[0])?;
    let v = argument(mpc, x.share(), &scale, 2 * f)?;
    let share = match numerator {
        None => {
            // r * scale < 2^(bits + 2f) must stay below 2^62.
            let bits = (61 - 2 * f).min(28);
            let r = RECIPROCAL.eval(mpc, &v, bits)?;
            product(mpc, &r, &scale, bits)?
        }
        Some(numerator) => {
            let numerator = working(mpc, numerator)?;
            // |numerator| < 2^42, or less where its width says so.
            let size = (numerator.width() - 1).min(f + 22);
            let bits = (60 - size).min(28);
            let r = RECIPROCAL.eval(mpc, &v, bits)?;
            let [part] = products(mpc, [(numerator.share(), &r, bits)])?;
            product(mpc, &part, &scale, f)?
        }
    };
    let width = if numerator.is_none() { 2 * f + 3 } else { 64 - f };
    rescale(mpc, &SecretTensor::new(share, f, width), frac)
}

/// `sqrt(x)`.
///
/// # Domain and error
/// `x >= 0`. Relative error below `2^-19`, and one unit in the last place; 0 for 0. For negative `x` the
/// result is meaningless.
///
/// # Method
/// As [`reciprocal`], with two powers of two: one for the operand, one with half the exponent.
///
/// # Cost
/// With replicated sharing see [`super::costs`].
/// With replicated sharing at width 44: 29 rounds and 4113 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn sqrt<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let in_format = working(mpc, x)?;
    let y = root(mpc, &in_format, in_format.frac(), false)?;
    rescale(mpc, &y, x.frac())
}

/// `1 / sqrt(x)`.
///
/// # Domain and error
/// `x > 0`. Relative error below `2^-19`, and one unit in the last place; 0 for 0. For negative `x` the
/// result is meaningless.
///
/// # Cost
/// That of [`sqrt`].
/// With replicated sharing at width 44: 29 rounds and 4117 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn inv_sqrt<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let in_format = working(mpc, x)?;
    let y = root(mpc, &in_format, in_format.frac(), true)?;
    rescale(mpc, &y, x.frac())
}

/// `1 / sqrt(x)` with `frac` fraction bits, whatever the operand has: small numbers keep their
/// precision where the operand has many.
///
/// # Domain and error
/// As [`inv_sqrt`]; the unit in the last place is that of `frac`.
///
/// # Cost
/// That of [`inv_sqrt`] for an operand of the same width.
/// With replicated sharing at width 44: 29 rounds and 4105 bits for each element in all.
///
/// # Errors
/// [`Error::Overflow`] if the root of the operand's unit does not fit 62 bits; [`Error::Net`] if a
/// peer failed.
pub fn inv_sqrt_to<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let bits = inverse_width(x.frac(), frac);
    if bits > 62 {
        return Err(Error::Overflow { op: "inv_sqrt_to", bits, limit: 62 });
    }
    root(mpc, x, frac, true)
}

/// Bits of the largest inverse root with `to` fraction bits of words with `from` of them.
fn inverse_width(from: u32, to: u32) -> u32 {
    to + from.div_ceil(2) + 3
}

/// The root, or its inverse, with `to` fraction bits.
fn root<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    to: u32,
    inverse: bool,
) -> Result<SecretTensor<P>> {
    let f = x.frac();
    // At least 24 planes, so that the exponents below stay in range, and the bits dropped positive.
    let least = if inverse { (f + 2 * to).saturating_sub(2 * INVERSE_BITS) } else { 0 };
    let n = (x.width().min(63) - 1).max(24).max(least);
    let plan = Halved::new(n, f, to, inverse);
    let wanted = Exponent {
        planes: n,
        signed: false,
        top: n,
        low: &[&|b| 1 << b, &|b| plan.low(b)],
        high: &[&|a| 1 << (8 * a), &|a| plan.high(a)],
    };
    let looked = look_up(mpc, x.share(), &wanted)?;
    let ([s0, r0], [s1, r1]) = (&looked.low[..], &looked.high[..]) else {
        return Err(no_answer("bit sums"));
    };
    let scale = exact_product(mpc, s0, s1)?;
    let v = argument(mpc, x.share(), &scale, n)?;
    let poly = if inverse { INV_SQRT } else { SQRT };
    let r = poly.eval(mpc, &v, plan.bits)?;
    let [r] = products(mpc, [(&r, r0, TABLE)])?;
    let share = product(mpc, &r, r1, plan.drop)?;
    let width = if inverse { inverse_width(f, to) } else { (n + 2 * to - f).div_ceil(2) + 2 };
    Ok(SecretTensor::new(share, to, width))
}

/// Fraction bits of the inverse root's polynomial.
const INVERSE_BITS: u32 = 26;

/// Fraction bits of the table of roots of small powers of two.
const TABLE: u32 = 26;

/// How a power of two with half the exponent is put together.
///
/// With `m = x 2^e / 2^n` in `[1/2, 1)` and `x = word / 2^f`, the root's word with `to` fraction bits is
/// `sqrt(m) 2^((n - f - e) / 2 + to)` and the inverse root's `1 / sqrt(m) 2^((f - n + e) / 2 + to)`;
/// `e = 8a + b`.
struct Halved {
    /// Fraction bits of the polynomial's value.
    bits: u32,
    /// Bits dropped at the end.
    drop: u32,
    /// Of the exponent's half at `e = 0`: its odd remainder.
    odd: bool,
    /// Largest `a`.
    last: u32,
    inverse: bool,
}

impl Halved {
    fn new(n: u32, f: u32, to: u32, inverse: bool) -> Self {
        let last = (n - 1) / 8;
        let (bits, up) =
            if inverse { (INVERSE_BITS, f as i32 - n as i32) } else { (28, n as i32 - f as i32) };
        let twice = up + 2 * to as i32;
        let half = twice.div_euclid(2);
        // high(a) is 2^(4a) or 2^(4 (last - a)).
        let offset = if inverse { 0 } else { 4 * last as i32 };
        let drop = (bits as i32 + offset - half) as u32;
        Self { bits, drop, odd: twice.rem_euclid(2) == 1, last, inverse }
    }

    fn low(&self, b: u32) -> u64 {
        let exponent = if self.inverse { f64::from(b) } else { -f64::from(b) };
        let exponent = (exponent + f64::from(u8::from(self.odd))) / 2.0;
        2f64.powf(exponent + f64::from(TABLE)).round() as u64
    }

    fn high(&self, a: u32) -> u64 {
        1 << (4 * if self.inverse { a } else { self.last - a })
    }
}
