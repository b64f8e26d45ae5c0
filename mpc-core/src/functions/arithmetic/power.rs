//! Powers and polynomials.

use crate::functions::{
    Multiply, add_scalar, arithmetic::encode_scalar, exp, inv_sqrt, log, mul, mul_scalar, multiply,
    reciprocal, rescale, sqrt, where_positive,
};
use crate::{Error, Format, Protocol, Result, SecretTensor};
use ring_arith::Bilinear;

/// `x^n` for a public integer.
///
/// # Domain and error
/// Every intermediate power is a product and must stay below `2^(62 - 2f)` at `f` fraction bits, `2^22` at 20;
/// a unit in the last place times `n |x|^(n-1)` for `n > 0`. For `n < 0` the power's [`reciprocal`].
///
/// # Cost
/// At most `2 log2 |n|` products in `ceil(log2 |n|)` levels of two rounds.
/// With replicated sharing for `n = 3` at width 44: 4 rounds and 504 bits for each element in all.
///
/// # Errors
/// [`Error::Net`] if a peer failed.
pub fn pow<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, n: i32) -> Result<SecretTensor<P>> {
    let mut left = n.unsigned_abs();
    let mut square = x.clone();
    let mut result: Option<SecretTensor<P>> = None;
    while left > 0 {
        let odd = left & 1 == 1;
        left >>= 1;
        let mut jobs = vec![];
        if let Some(result) = result.as_ref().filter(|_| odd) {
            jobs.push(Multiply::new(Bilinear::Mul, result, &square));
        }
        if left > 0 {
            jobs.push(Multiply::new(Bilinear::Mul, &square, &square));
        }
        let mut products = multiply(mpc, &jobs)?;
        let next = if left > 0 { products.pop() } else { None };
        result = match (odd, products.pop()) {
            (true, Some(product)) => Some(product),
            (true, None) => Some(square.clone()),
            (false, _) => result,
        };
        square = next.unwrap_or(square);
    }
    match result {
        None => add_scalar(mpc, &crate::functions::sub(mpc, x, x)?, 1.0),
        Some(power) if n < 0 => reciprocal(mpc, &power),
        Some(power) => Ok(power),
    }
}

/// Whole exponents up to this magnitude are products.
const MOST_PRODUCTS: f64 = 64.0;

/// `x^p` for a public real exponent: whole ones by [`pow`], halves and quarters by roots, others as `e^(p ln x)`.
///
/// # Domain and error
/// Whole exponents, up to 64 in magnitude: as [`pow`]. Halves, and quarters below 1: `x >= 0`, and above 0 for a
/// negative exponent; the error of [`sqrt`] or [`inv_sqrt`], once or twice, and that of [`pow`]. Others: `x >= 0`,
/// above 0 for a negative exponent, `|p ln x| < 2^21`; error below `(2^-15.5 + |p| 2^-17) max(1, x^p)` for results
/// up to `2^16`, where [`exp`] saturates; with fewer than 20 fraction bits a unit in the last place more, and
/// `x < 2^42`.
///
/// # Cost
/// That of the functions that are named. For other exponents a [`log`], a truncation and an [`exp`], and a
/// comparison with a selection for positive ones, since a logarithm of 0 is some number.
/// With replicated sharing at exponent 0.3 and width 44: 42 rounds and 6249 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if `p` cannot be encoded, or for whole exponents beyond 64.
pub fn powf<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, p: f64) -> Result<SecretTensor<P>> {
    let (whole, rest) = (p.abs().floor(), p.abs().fract());
    if rest == 0.0 {
        if whole > MOST_PRODUCTS {
            let reason = format!("{p} is not an exponent up to {MOST_PRODUCTS}");
            return Err(Error::Invalid { op: "pow", reason });
        }
        return pow(mpc, x, p as i32);
    }
    if whole == 0.0 && [0.25, 0.5, 0.75].contains(&rest) {
        let root = if p < 0.0 { inv_sqrt(mpc, x)? } else { sqrt(mpc, x)? };
        return match rest {
            0.5 => Ok(root),
            0.25 => sqrt(mpc, &root),
            _ => {
                let fourth = sqrt(mpc, &root)?;
                mul(mpc, &fourth, &root)
            }
        };
    }
    if rest == 0.5 && whole <= MOST_PRODUCTS {
        let root = sqrt(mpc, x)?;
        let power = pow(mpc, x, p.floor() as i32)?;
        return mul(mpc, &power, &root);
    }
    let power = by_logarithm(mpc, x, p)?;
    if p > 0.0 { where_positive(mpc, &power, x) } else { Ok(power) }
}

/// `e^(p ln x)`.
fn by_logarithm<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, p: f64) -> Result<SecretTensor<P>> {
    // An error of the logarithm is a relative one of the result: it needs 20 fraction bits.
    let fine = rescale(mpc, x, x.frac().max(20))?;
    let logs = log(mpc, &fine)?;
    let scaled = mul_scalar(mpc, &logs, p)?;
    let power = exp(mpc, &scaled)?;
    rescale(mpc, &power, x.frac())
}

/// `c[0] + c[1] x + c[2] x^2 + ..` for public real coefficients.
///
/// # Domain and error
/// Powers of `x` below `2^(62 - 2f)` at `f` fraction bits, `2^22` at 20, and the sum of all terms too; coefficients are rounded
/// to the fraction bits, powers to a unit in the last place times their degree.
///
/// # Cost
/// One product for each power above the first, in `ceil(log2 degree)` levels of two rounds, and one
/// truncation.
/// With replicated sharing at degree 4 at width 44: 6 rounds and 880 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] without coefficients, or if one cannot be encoded.
pub fn polynomial<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    coefficients: &[f64],
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let words = coefficients.iter().map(|&c| encode_scalar("polynomial", c, frac));
    let words = words.collect::<Result<Vec<_>>>()?;
    let Some((&constant, rest)) = words.split_first() else {
        let reason = "a polynomial needs at least one coefficient".to_owned();
        return Err(Error::Invalid { op: "polynomial", reason });
    };
    let powers = powers(mpc, x, rest.len().max(1))?;
    let terms: Vec<_> = match rest.is_empty() {
        true => vec![(0, x.share())],
        false => rest.iter().zip(&powers).map(|(&c, p)| (c as u64, p.share())).collect(),
    };
    let sum = mpc.combine(&terms, (constant as u64) << frac)?;
    rescale(mpc, &SecretTensor::new(sum, Format { frac: 2 * frac, width: 63 }), frac)
}

/// `x, x^2, .., x^n`: each level multiplies the highest power so far with all of them.
fn powers<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, n: usize) -> Result<Vec<SecretTensor<P>>> {
    let mut powers = vec![x.clone()];
    while powers.len() < n {
        let top = powers.last().expect("the first power is there").clone();
        let jobs = powers.iter().take(n - powers.len());
        let jobs: Vec<_> = jobs.map(|p| Multiply::new(Bilinear::Mul, &top, p)).collect();
        let more = multiply(mpc, &jobs)?;
        powers.extend(more);
    }
    Ok(powers)
}
