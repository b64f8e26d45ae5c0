//! Reciprocal, division, square root and inverse square root, accurate over all magnitudes.

use super::{
    arithmetic::no_answer,
    exponent::{Exponent, Table, argument, exact_product, look_up},
    fixed::{product, products, working},
    rescale,
    tables::{INV_SQRT, RECIPROCAL, SQRT},
};
use crate::{Arg, Error, Protocol, Result, SecretTensor};

/// `1 / x`.
///
/// # Domain and error
/// All `x` but 0 and minus one unit in the last place, for which the result is 0. Relative error below
/// `2^-19.5`, and two units in the last place; at `f` fraction bits, what is `2^f` and above gives 0.
///
/// # Method
/// Normalisation by the highest set bit, a polynomial of degree 8 on `[1/2, 1]`, and the same power of
/// two again.
///
/// # Cost
/// With replicated sharing see [`super::costs`]; numbers known to be small
/// ([`SecretTensor::with_bound`]) cost less, and those known to be positive too: see
/// [`reciprocal_positive`].
/// With replicated sharing at width 44: 28 rounds and 3936 bits for each element in all. One round more for
/// more than 20 fraction bits, whose results do not fit beside a power of two.
///
/// # Errors
/// [`Error::Invalid`] for more than 30 fraction bits; [`Error::Net`] if a peer failed.
pub fn reciprocal<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    inverse(mpc, x, true)
}

/// `1 / x` for `x` that is known to be at least 0. As [`reciprocal`], without the handling of signs;
/// negative `x` gives a wrong result.
///
/// # Cost
/// With replicated sharing at width 44: 27 rounds and 3582 bits for each element in all.
///
/// # Errors
/// As [`reciprocal`].
pub fn reciprocal_positive<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    inverse(mpc, x, false)
}

/// `x / y`, broadcast.
///
/// # Domain and error
/// Up to 20 fraction bits `|x| < 2^22`, `|x / y| < 2^21` and `|y| < 2^20`; for larger `|y|` the result is
/// 0, and also for `y = 0`. Error below `2^-17 |x / y| + 2^-20 (1 + 2 / |y|)`, and a unit in the last
/// place with fewer than 20. With `f` of 21 to 30 fraction bits `|x| < 2^(42 - f)`, `|x / y| < 2^(61 - 2f)`,
/// `|y| < 2^f`, and units are `2^-f`.
///
/// # Cost
/// [`reciprocal`] and one more product: 2 rounds. Fewer than 20 fraction bits are padded.
/// With replicated sharing at width 44: 30 rounds and 4146 bits for each element in all.
///
/// # Errors
/// As [`super::add`]; [`Error::Invalid`] for more than 30 fraction bits.
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
    quotient(mpc, &x, &y)
}

/// Most fraction bits of a reciprocal: that of one unit, `2^(2f)` as a word, must fit.
const MOST: u32 = 30;

/// Most fraction bits at which a reciprocal is one product of the polynomial's value, with 21 fraction
/// bits, and a power of two: it must stay below 2^62.
const NARROW: u32 = 20;

/// Magnitudes of 2^42 and more cannot be divided.
const NUMERATOR: u32 = 42;

/// The reciprocal of a normalised number's argument, and powers of two that bring it back.
struct Normalised<P: Protocol> {
    argument: P::Share,
    /// `2^(2f - 1 - j)`, with the sign of the operand, for its highest set bit `j`.
    scale: P::Share,
    /// Two powers of two with the same product, the first at most `2^31` and with the sign.
    split: Option<[P::Share; 2]>,
}

/// Normalises words of `2^(2f)` at most; for 0 and above, powers of two are 0.
fn normalise<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    signed: bool,
    split: bool,
) -> Result<Normalised<P>> {
    const FIRST: u32 = 3;
    let f = x.frac();
    let high: [Table<'_>; 2] = [&|a| 1 << (8 * a), &|a| 1 << (8 * a.min(FIRST))];
    let count = if split { 2 } else { 1 };
    let wanted = Exponent {
        planes: x.width().min(63) - 1,
        signed,
        top: 2 * f,
        low: &[&|b| 1 << b],
        high: &high[..count],
        sizes: if split { &[&|a: u32| 1 << (8 * a.saturating_sub(FIRST))] } else { &[] },
    };
    let looked = look_up(mpc, x.share(), &wanted)?;
    let low = &looked.low[0];
    let (scale, split) = match (&looked.high[..], &looked.sizes[..]) {
        ([high, first], [second]) => {
            let [scale, first] = products(mpc, [(low, high, 0), (low, first, 0)])?;
            (scale, Some([first, second.clone()]))
        }
        ([high], []) => (exact_product(mpc, low, high)?, None),
        _ => return Err(no_answer("bit sums")),
    };
    let argument = argument(mpc, x.share(), &scale, 2 * f)?;
    Ok(Normalised { argument, scale, split })
}

/// `1 / x`.
fn inverse<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, signed: bool) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = working(mpc, "reciprocal", x, MOST)?;
    let f = x.frac();
    let Normalised { argument, scale, split } = normalise(mpc, &x, signed, f > NARROW)?;
    let share = match split {
        None => {
            // r * scale < 2^(bits + 2f) must stay below 2^62.
            let bits = (61 - 2 * f).min(28);
            let r = RECIPROCAL.eval(mpc, &argument, bits)?;
            product(mpc, &r, &scale, bits)?
        }
        Some([first, second]) => {
            let r = RECIPROCAL.eval(mpc, &argument, 28)?;
            let part = product(mpc, &r, &first, 28)?;
            exact_product(mpc, &part, &second)?
        }
    };
    rescale(mpc, &SecretTensor::new(share, f, 2 * f + 3), frac)
}

/// `numerator / x`.
fn quotient<P: Protocol>(
    mpc: &mut P,
    numerator: &SecretTensor<P>,
    x: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    // Divisors of 2^f and more count as 0: with fewer bits than 20 their range would be small.
    let f = frac.max(20);
    let [x, numerator] = [rescale(mpc, x, f)?, rescale(mpc, numerator, f)?];
    let x = working(mpc, "div", &x, MOST)?;
    let Normalised { argument, scale, .. } = normalise(mpc, &x, true, false)?;
    let size = (numerator.width() - 1).min(NUMERATOR);
    let bits = (60 - size).min(28);
    let r = RECIPROCAL.eval(mpc, &argument, bits)?;
    let [part] = products(mpc, [(numerator.share(), &r, bits)])?;
    let share = product(mpc, &part, &scale, f)?;
    rescale(mpc, &SecretTensor::new(share, f, 64 - f), frac)
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
    let in_format = working(mpc, "sqrt", x, 40)?;
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
    let in_format = working(mpc, "inv_sqrt", x, 38)?;
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
        sizes: &[],
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
