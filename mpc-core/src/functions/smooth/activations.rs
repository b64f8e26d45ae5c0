//! Activations of networks that other functions are put together to.

use crate::functions::{
    add, add_scalar, clamp,
    compare::choose::{clamp_parts, magnitude_keeping},
    exp_nonpositive, log, mul, mul_scalar, neg, negative_part, reciprocal_positive, rescale, sub,
    where_bits,
};
use crate::{Protocol, Result, SecretTensor};

/// `log(1 + e^x)`, as `max(x, 0) + log(1 + e^-|x|)`.
///
/// # Domain and error
/// All `x`; below `2^-18` and four units in the last place.
///
/// # Cost
/// One comparison with a selection, an [`exp_nonpositive`] and a [`log`].
/// With replicated sharing at width 44: 39 rounds and 5014 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn softplus<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let negative = negative_part(mpc, x)?;
    let positive = sub(mpc, x, &negative)?;
    let minus_magnitude = sub(mpc, &negative, &positive)?.with_width(x.width());
    let power = exp_nonpositive(mpc, &minus_magnitude)?;
    let power = rescale(mpc, &power, x.frac())?;
    let above_one = add_scalar(mpc, &power, 1.0)?;
    let rest = log(mpc, &above_one)?;
    Ok(add(mpc, &positive, &rest)?.with_width(x.width() + 1))
}

/// `x / (1 + |x|)`, as `1 - 1 / (1 + |x|)` with the sign of `x`: a product of a large number and its inverse would
/// have few digits.
///
/// # Domain and error
/// All `x` whose magnitude plus one has an encoding; below `2^-19.5` and two units in the last place.
///
/// # Cost
/// One comparison with a selection, a [`reciprocal_positive`] and one selection.
/// With replicated sharing at width 44: 31 rounds and 4223 bits for each element in all.
///
/// # Errors
/// As [`reciprocal_positive`].
pub fn softsign<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (magnitude, negative) = magnitude_keeping(mpc, x)?;
    let below = add_scalar(mpc, &magnitude, 1.0)?;
    let inverse = reciprocal_positive(mpc, &below)?;
    let rest = add_scalar(mpc, &neg(mpc, &inverse)?, 1.0)?;
    let turned = where_bits(mpc, &rest, &negative)?;
    let terms = [(1, rest.share()), (2u64.wrapping_neg(), turned.share())];
    Ok(SecretTensor::new(mpc.combine(&terms, 0)?, rest.format().with_width(rest.frac() + 2)))
}

/// `x` where it is at least 0, `alpha (e^x - 1)` where it is negative.
///
/// # Domain and error
/// All `x`; below `|alpha| 2^-18` and three units in the last place.
///
/// # Cost
/// One comparison with a selection, an [`exp_nonpositive`] and a [`mul_scalar`].
/// With replicated sharing at width 44: 21 rounds and 2346 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Invalid`] if `alpha` cannot be encoded.
pub fn elu<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, alpha: f64) -> Result<SecretTensor<P>> {
    let negative = negative_part(mpc, x)?;
    let positive = sub(mpc, x, &negative)?;
    // e^0 - 1 = 0 where the number is positive.
    let power = exp_nonpositive(mpc, &negative)?;
    let power = rescale(mpc, &power, x.frac())?;
    let power = add_scalar(mpc, &power, -1.0)?;
    let power = mul_scalar(mpc, &power, alpha)?;
    let y = add(mpc, &positive, &power)?;
    let width = y.width().min(x.width() + 1);
    Ok(y.with_width(width))
}

/// `a x + b` limited to `0..=1`.
///
/// # Domain and error
/// All `x` with `a x + b` of an encoding; that of [`mul_scalar`].
///
/// # Cost
/// A [`mul_scalar`] and a [`clamp`].
/// With replicated sharing at width 44: 8 rounds and 1039 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Invalid`] if `a` or `b` cannot be encoded.
pub fn hard_sigmoid<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    a: f64,
    b: f64,
) -> Result<SecretTensor<P>> {
    let y = mul_scalar(mpc, x, a)?;
    let y = add_scalar(mpc, &y, b)?;
    clamp(mpc, &y, Some(0.0), Some(1.0))
}

/// Beyond this magnitude a hard swish is `max(x, 0)`.
const HARD_SWISH_END: f64 = 3.0;

/// `x` times `x / 6 + 1 / 2` limited to `0..=1`: `x (x + 3) / 6` of limited numbers, and the excess.
///
/// # Domain and error
/// All `x`; two units in the last place.
///
/// # Cost
/// Two comparisons with a selection that share their rounds, a product and a [`mul_scalar`].
/// With replicated sharing at width 44: 10 rounds and 1310 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn hard_swish<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let (near, over) = limited(mpc, x, HARD_SWISH_END)?;
    let above = add_scalar(mpc, &near, HARD_SWISH_END)?;
    let sixfold = mul(mpc, &near, &above)?.with_width(x.frac() + 6);
    let bent = mul_scalar(mpc, &sixfold, 1.0 / 6.0)?;
    add(mpc, &bent, &over)
}

/// `x` limited to `-end..=end`, and the excess over `end`, or 0.
fn limited<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    end: f64,
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let word = crate::functions::arithmetic::encode_scalar("clamp", end, x.frac())?;
    clamp_parts(mpc, x, -word, word)
}
