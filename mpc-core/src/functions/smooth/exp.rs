//! The exponential function.

use crate::functions::{
    arithmetic::fixed::{at_20, run, working_chain},
    compare::choose::{Keep, keep, shifted},
    smooth::tables::{EXP, EXP_NONPOSITIVE, EXP_OF_MANY},
};
use crate::{
    Chain, Format, Protocol, Result, SecretTensor, ShareTensor, Sum, TruncationMode, Value,
};

/// Below `-14.5` the result is less than one unit of 20 fraction bits, which the polynomial's own error of
/// up to four units covers.
const LOWEST: i64 = -29 << 19;

/// Below `-20` it is less than one unit of 28 fraction bits.
const VANISHED: i64 = -20 << 20;

/// Below `-25` it is less than one unit of 36 fraction bits.
const VANISHED_OF_MANY: i64 = -25 << 20;

/// `16 ln 2` at 20 fraction bits: larger arguments are replaced by it.
const HIGHEST: i64 = 11_629_080;

/// `e^x`.
///
/// # Domain and error
/// All `x`. The error is below `2^-16 max(1, e^x) + 2^-18` up to `x = 16 ln 2 = 11.09`; above, the result
/// saturates at `2^16`. Below `-14.5` it is within `2^-17` of 0. 20 fraction bits are used.
///
/// # Method
/// Clamp, a polynomial of degree 6 for `e^(x/8)`, three squarings at falling precision.
///
/// # Cost
/// Two comparisons with a selection that share their 6 rounds, and a chain of six products in seven more.
/// Comparisons that the tensor's [width](SecretTensor::width) makes needless are left out.
/// With replicated sharing at width 44: 13 rounds and 2164 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn exp<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    let [lowest, highest] = [LOWEST, HIGHEST];
    mutant!("exp: clamped at -10", lowest = -10 << 20);
    mutant!("exp: one e beyond its ceiling", highest = highest + (1 << 20));
    // |x| < 8 needs no clamp.
    let x = if x.width() <= 24 {
        x
    } else {
        crate::functions::compare::choose::clamp_words(mpc, &x, lowest, highest)?
    };
    // The same words are x / 16 with 24 fraction bits.
    let mut chain = working_chain::<P>(mpc);
    let x = chain.input(x.share());
    let root = EXP.eval(&mut chain, &x.into(), 28);
    let root = chain.product(root, root, 30);
    let root = chain.product(root, root, 30);
    chain.set_mode(mpc.truncation());
    let power = chain.product(root, root, 44 - frac.min(40));
    let power = run(mpc, chain, power)?;
    Ok(SecretTensor::new(power, Format { frac: frac.min(40), width: frac.min(40) + 18 }))
}

/// `e^x` for `x` that is known to be at most 0, as after subtracting a maximum.
///
/// # Domain and error
/// `x <= 0`: error below `2^-19 max(2^-10, e^x)` and a unit in the last place. For positive `x` the result
/// is wrong.
///
/// # Method
/// As [`exp`], with other coefficients: small results have small errors, so that sums of many stay good.
///
/// # Cost
/// One comparison with a selection in 6 rounds, and a chain of six products in seven more.
/// With replicated sharing at width 44: 13 rounds and 1754 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn exp_nonpositive<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac().min(28);
    let x = at_20(mpc, x)?;
    exp_nonpositive_to(mpc, &x, frac, Tail::Cut)
}

/// The treatment of very small exponentials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::functions) enum Tail {
    /// Those below `e^-20 = 2^-28.8` become that, and errors are up to `2^-29.3`.
    Cut,
    /// Those below `e^-25 = 2^-36` become that, and errors are up to `2^-38.7`: for sums of many. One product
    /// more.
    Long,
}

/// [`exp_nonpositive`] of numbers with 20 fraction bits, to other fraction bits.
pub(in crate::functions) fn exp_nonpositive_to<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
    tail: Tail,
) -> Result<SecretTensor<P>> {
    let lowest = match tail {
        Tail::Cut => VANISHED,
        Tail::Long => VANISHED_OF_MANY,
    };
    let above = shifted(mpc, x, lowest)?;
    let job = Keep { value: &above, word: &above, where_negative: false };
    let above = keep(mpc, &[job])?.remove(0);
    let mut chain = working_chain::<P>(mpc);
    let above = chain.input(above.share());
    let results = mpc.truncation();
    let power = match tail {
        Tail::Cut => exp_from_vanished(&mut chain, above, frac, results),
        Tail::Long => {
            let v = Sum::of([(1, above)], (lowest / 2) as u64);
            let root = EXP_OF_MANY.eval(&mut chain, &v, 30);
            eighth_power(&mut chain, root, frac, results)
        }
    };
    let power = run(mpc, chain, power)?;
    Ok(SecretTensor::new(power, Format { frac, width: frac + 2 }))
}

/// `e^(d - 20)` for `d` in `0..=20` with 20 fraction bits; the last product drops bits in its own mode.
pub(in crate::functions) fn exp_from_vanished<S: ShareTensor>(
    chain: &mut Chain<'_, S>,
    above: Value,
    out: u32,
    last: TruncationMode,
) -> Value {
    // (d - 10) / 8: the same words with 23 fraction bits.
    let v = Sum::of([(1, above)], (VANISHED / 2) as u64);
    let root = EXP_NONPOSITIVE.eval(chain, &v, 30);
    eighth_power(chain, root, out, last)
}

/// The eighth power of numbers with 30 fraction bits.
fn eighth_power<S: ShareTensor>(
    chain: &mut Chain<'_, S>,
    root: Value,
    out: u32,
    last: TruncationMode,
) -> Value {
    let root = chain.product(root, root, 30);
    let root = chain.product(root, root, 30);
    chain.set_mode(last);
    chain.product(root, root, 60 - out)
}
