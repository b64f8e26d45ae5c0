//! Reciprocal, division, square root and inverse square root, accurate over all magnitudes.

use crate::functions::{
    arithmetic::fixed::{LEAST, run, working, working_chain},
    arithmetic::no_answer,
    rescale,
    smooth::exponent::{Exponent, Table, argument, look_up},
    smooth::tables::{INV_SQRT, RECIPROCAL, SQRT},
};
use crate::{Arg, Error, Format, Protocol, Result, SecretTensor};

/// `1 / x`.
///
/// # Domain and error
/// All `x` but 0 and minus one unit in the last place, for which the result is 0. Relative error below
/// `2^-19.5`, and two units in the last place; at `f` fraction bits, numbers from `2^f` on give 0.
///
/// # Method
/// Normalisation by the highest set bit, a polynomial of degree 8 on `[1/2, 1]`, and the same power of
/// two again.
///
/// # Cost
/// With replicated sharing see `rss_protocols::costs`; numbers known to be small ([`SecretTensor::with_bound`])
/// cost less, and those known to be positive too: see [`reciprocal_positive`]. With replicated sharing at
/// width 44: 24 rounds and 3897 bits for each element in all. One round more for more than 20 fraction
/// bits, whose results and a power of two do not fit one word.
///
/// # Errors
/// [`crate::Error::Invalid`] for more than 30 fraction bits; [`crate::Error::Net`] if a peer failed.
pub fn reciprocal<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    inverse(mpc, x, true)
}

/// `1 / x` for `x` that is known to be at least 0. As [`reciprocal`], without the handling of signs;
/// negative `x` gives a wrong result.
///
/// # Cost
/// With replicated sharing at width 44: 23 rounds and 3543 bits for each element in all.
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
/// [`reciprocal`] and one more product: one round. Fewer than 20 fraction bits are padded.
/// With replicated sharing at width 44: 25 rounds and 4086 bits for each element in all.
///
/// # Errors
/// As [`crate::functions::add`]; [`crate::Error::Invalid`] for more than 30 fraction bits.
pub fn div<'a, P: Protocol>(
    mpc: &mut P,
    x: impl Into<Arg<'a, P>>,
    y: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    let x = x.into();
    crate::tensor::same_frac("div", x.frac(), y.frac())?;
    let shape = x.shape().broadcast(y.shape(), "div")?;
    let x = crate::functions::broadcast(mpc, &crate::functions::values::secret(mpc, x)?, &shape)?;
    let y = crate::functions::broadcast(mpc, y, &shape)?;
    quotient(mpc, &x, &y)
}

/// Most fraction bits of a reciprocal: that of one unit, `2^(2f)` as a word, must fit.
const MOST: u32 = 30;

/// Most fraction bits at which a reciprocal is one product of the polynomial's value, with 21 fraction
/// bits, and a power of two: it must stay below 2^62.
const NARROW: u32 = 20;

/// Magnitudes of 2^42 and more cannot be divided.
const NUMERATOR: u32 = 42;

/// Powers of two that bring a number's highest bit to a fixed place, looked up in parts.
struct Scale<P: Protocol> {
    /// The product of both is `2^(2f - 1 - j)`, with the sign of the operand, for its highest set bit `j`.
    low: P::Share,
    high: P::Share,
    /// Two factors of the high part, the first at most `2^24` and with the sign.
    split: Option<[P::Share; 2]>,
}

/// The powers of two that normalise words of `2^(2f)` at most; for 0 and for larger words they are
/// 0.
fn scale_of<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    signed: bool,
    split: bool,
) -> Result<Scale<P>> {
    const FIRST: u32 = 3;
    let f = x.frac();
    let top = 2 * f;
    mutant!("reciprocal: large numbers count as 0", top = top - 1);
    let high: [Table<'_>; 2] = [&|a| 1 << (8 * a), &|a| 1 << (8 * a.min(FIRST))];
    let count = if split { 2 } else { 1 };
    let wanted = Exponent {
        planes: x.width().min(63) - 1,
        wraps: false,
        signed,
        top,
        low: &[&|b| 1 << b],
        high: &high[..count],
        sizes: if split { &[&|a: u32| 1 << (8 * a.saturating_sub(FIRST))] } else { &[] },
    };
    let looked = look_up(mpc, x.share(), &wanted)?;
    let low = looked.low[0].clone();
    match (&looked.high[..], &looked.sizes[..]) {
        ([high, first], [second]) => {
            Ok(Scale { low, high: high.clone(), split: Some([first.clone(), second.clone()]) })
        }
        ([high], []) => Ok(Scale { low, high: high.clone(), split: None }),
        _ => Err(no_answer("bit sums")),
    }
}

/// `1 / x`.
fn inverse<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, signed: bool) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = working(mpc, "reciprocal", x, MOST)?;
    let f = x.frac();
    let parts = scale_of(mpc, &x, signed, f > NARROW)?;
    let results = mpc.truncation();
    let mut chain = working_chain::<P>(mpc);
    let [number, low, high] = [x.share(), &parts.low, &parts.high].map(|x| chain.input(x));
    let scale = chain.product(low, high, 0);
    let v = argument(&mut chain, number, scale, 2 * f, results);
    let y = match &parts.split {
        None => {
            // r * scale < 2^(bits + 2f) must stay below 2^62.
            let bits = (61 - 2 * f).min(28);
            let r = RECIPROCAL.eval(&mut chain, &v, bits);
            chain.set_mode(results);
            chain.product(r, scale, bits)
        }
        Some(split) => {
            let [first, second] = split.each_ref().map(|x| chain.input(x));
            let first = chain.product(low, first, 0);
            let r = RECIPROCAL.eval(&mut chain, &v, 28);
            chain.set_mode(results);
            let part = chain.product(r, first, 28);
            chain.product(part, second, 0)
        }
    };
    let share = run(mpc, chain, y)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: f, width: 2 * f + 3 }), frac)
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
    let parts = scale_of(mpc, &x, true, false)?;
    let size = (numerator.width() - 1).min(NUMERATOR);
    mutant!("div: numerators of 40 bits", size = size.min(40));
    let bits = (60 - size).min(28);
    let results = mpc.truncation();
    let mut chain = working_chain::<P>(mpc);
    let [number, low, high] = [x.share(), &parts.low, &parts.high].map(|x| chain.input(x));
    let scale = chain.product(low, high, 0);
    let v = argument(&mut chain, number, scale, 2 * f, results);
    let r = RECIPROCAL.eval(&mut chain, &v, bits);
    let numerator = chain.input(numerator.share());
    let part = chain.product(numerator, r, bits);
    chain.set_mode(results);
    let y = chain.product(part, scale, f);
    let share = run(mpc, chain, y)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: f, width: 64 - f }), frac)
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
/// With replicated sharing see `rss_protocols::costs`.
/// With replicated sharing at width 44: 24 rounds and 4055 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn sqrt<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let in_format = working(mpc, "sqrt", x, 40)?;
    let y = root(mpc, &in_format, false, in_format.frac())?;
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
/// With replicated sharing at width 44: 24 rounds and 4058 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn inv_sqrt<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    inv_sqrt_to(mpc, x, x.frac())
}

/// [`inv_sqrt`] with `frac` fraction bits: an operand near 0 needs more of them than its root.
///
/// # Cost
/// As [`inv_sqrt`].
///
/// # Errors
/// [`crate::Error::Invalid`] for more than 38 fraction bits of operand or result;
/// [`crate::Error::Net`] if a peer failed.
pub fn inv_sqrt_to<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let in_format = working(mpc, "inv_sqrt", x, INVERSE_MOST)?;
    if frac > INVERSE_MOST {
        let reason = format!("{frac} fraction bits of the result, at most {INVERSE_MOST} work");
        return Err(Error::Invalid { op: "inv_sqrt", reason });
    }
    let y = root(mpc, &in_format, true, frac.max(LEAST))?;
    rescale(mpc, &y, frac)
}

/// The root, or its inverse, with `out` fraction bits.
fn root<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    inverse: bool,
    out: u32,
) -> Result<SecretTensor<P>> {
    let f = x.frac();
    // At least 24 planes, so that the exponents below stay in range, and the bits dropped positive.
    let least = if inverse { (f + 2 * out).saturating_sub(2 * INVERSE_BITS) } else { 0 };
    let n = (x.width().min(63) - 1).max(24).max(least);
    let plan = Halved::new(n, [f, out], inverse);
    let wanted = Exponent {
        planes: n,
        wraps: false,
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
    let results = mpc.truncation();
    let mut chain = working_chain::<P>(mpc);
    let [number, s0, s1, r0, r1] = [x.share(), s0, s1, r0, r1].map(|x| chain.input(x));
    let scale = chain.product(s0, s1, 0);
    let v = argument(&mut chain, number, scale, n, results);
    let poly = if inverse { INV_SQRT } else { SQRT };
    let r = poly.eval(&mut chain, &v, plan.bits);
    let r = chain.product(r, r0, TABLE);
    chain.set_mode(results);
    let y = chain.product(r, r1, plan.drop);
    let share = run(mpc, chain, y)?;
    let width = if inverse { out + f.div_ceil(2) + 3 } else { (n + f).div_ceil(2) + 2 };
    Ok(SecretTensor::new(share, Format { frac: out, width }))
}

/// Most fraction bits of an inverse root and of its operand.
const INVERSE_MOST: u32 = 38;

/// Fraction bits of the inverse root's polynomial.
const INVERSE_BITS: u32 = 26;

/// Fraction bits of the table of roots of small powers of two.
const TABLE: u32 = 26;

/// The parts of a power of two with half the exponent.
///
/// With `m = x 2^e / 2^n` in `[1/2, 1)` and `x = word / 2^f`, the root's word is
/// `sqrt(m) 2^((n - f - e) / 2 + f)` and the inverse root's `1 / sqrt(m) 2^((f - n + e) / 2 + f)`;
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
    /// For words below `2^n`, with the fraction bits of operand and result.
    fn new(n: u32, [f, out]: [u32; 2], inverse: bool) -> Self {
        let last = (n - 1) / 8;
        let (bits, up) =
            if inverse { (INVERSE_BITS, f as i32 - n as i32) } else { (28, n as i32 - f as i32) };
        let twice = up + 2 * out as i32;
        let half = twice.div_euclid(2);
        mutant!("roots: half an exponent rounded to zero", half = twice / 2);
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
