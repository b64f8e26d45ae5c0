//! Powers and polynomials.

use super::{
    Multiply, add_scalar, arithmetic::encode_scalar, exp, log, mul_scalar, multiply, reciprocal,
    rescale,
};
use crate::{Error, Protocol, Result, SecretTensor};
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
        None => add_scalar(mpc, &super::sub(mpc, x, x)?, 1.0),
        Some(power) if n < 0 => reciprocal(mpc, &power),
        Some(power) => Ok(power),
    }
}

/// `x^p` for a public real exponent and positive `x`, as `e^(p ln x)`.
///
/// # Domain and error
/// `x > 0`, `|p ln x| < 2^21`; error below `(2^-15.5 + |p| 2^-17) max(1, x^p)` for results up to `2^16`,
/// where [`exp`] saturates; with fewer than 20 fraction bits a unit in the last place more, and
/// `x < 2^42`.
///
/// # Cost
/// A [`log`], a truncation and an [`exp`].
/// With replicated sharing at width 44: 36 rounds and 5729 bits for each element in all.
///
/// # Errors
/// [`Error::Invalid`] if `p` cannot be encoded.
pub fn powf<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, p: f64) -> Result<SecretTensor<P>> {
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
    rescale(mpc, &SecretTensor::new(sum, 2 * frac, 63), frac)
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
