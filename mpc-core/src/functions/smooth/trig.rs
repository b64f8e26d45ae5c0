//! Sine and cosine.

use crate::functions::{
    arithmetic::fixed::{LEAST, run, working, working_chain},
    arithmetic::no_answer,
    rescale,
    smooth::sines::sine,
    smooth::tables::SIN,
};
use crate::{Compare, Format, Protocol, Result, SecretTensor, ShareTensor, Then};

/// `sin(x)`.
///
/// # Domain and error
/// All `x`; error below `2^-18 + 2^(f - 61) |x|` at `f` fraction bits, and a unit in the last place. So large
/// numbers have few right digits: at 20 fraction bits `2^-18` more at `2^23`.
///
/// # Method
/// `x` as a part of a turn modulo one turn costs nothing: a turn is 2^64. [`Protocol::trig_sum`] of one term. Without
/// it, one comparison folds the turn to `[-1/4, 1/4]`; a truncation, and an odd polynomial of degree 7.
///
/// # Cost
/// With replicated sharing at width 44: 3 rounds and 408 bits for each element in all. Without sums of sines: one
/// comparison with a selection, one truncation and a chain of four products, in 12 rounds.
///
/// # Errors
/// [`crate::Error::Invalid`] for more than 40 fraction bits; [`crate::Error::Net`] if a peer failed.
pub fn sin<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    turned(mpc, x, 0)
}

/// `cos(x)`. As [`sin`].
///
/// # Cost
/// With replicated sharing at width 44: 3 rounds and 408 bits for each element in all.
///
/// # Errors
/// As [`sin`].
pub fn cos<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    turned(mpc, x, COSINE)
}

/// A quarter turn, less one unit of 2^-64: the ends of the folded range must not be met.
const COSINE: u64 = (1 << 62) - 1;

/// `sin` of `x` and a public part of a turn, in units of 2^-64.
fn turned<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>, ahead: u64) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = working(mpc, "sine", x, 40)?;
    let f = x.frac();
    let unit = (2f64.powi(64 - f as i32) / std::f64::consts::TAU).round() as u64;
    let turn = mpc.combine(&[(unit, x.share())], ahead)?;
    sine_of_turns(mpc, &turn, f, frac)
}

/// Sines and cosines of parts of a turn in units of 2^-64, `[n]` each, with `frac` fraction bits.
pub(in crate::functions) fn sines_of_turns<P: Protocol>(
    mpc: &mut P,
    turns: &P::Share,
    frac: u32,
) -> Result<[SecretTensor<P>; 2]> {
    let ahead = mpc.combine(&[(1, turns)], COSINE)?;
    let both = mpc.concat(&[turns, &ahead], 0)?;
    let sines = sine_of_turns(mpc, &both, frac.max(LEAST), frac)?;
    let n = turns.shape().len();
    Ok([
        crate::functions::slice(mpc, &sines, 0, 0, n, 1)?,
        crate::functions::slice(mpc, &sines, 0, n, 2 * n, 1)?,
    ])
}

/// Sines of parts of a turn in units of 2^-64, with `frac` fraction bits, computed with `f`.
fn sine_of_turns<P: Protocol>(
    mpc: &mut P,
    turn: &P::Share,
    f: u32,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let mode = mpc.truncation();
    if let Some(share) = mpc.trig_sum(turn, 64, &sine(f, mode))? {
        return rescale(mpc, &SecretTensor::new(share, Format { frac: f, width: f + 3 }), frac);
    }
    const QUARTER: u64 = 1 << 62;
    // Where |turn| > 1/4: sin(1/2 - turn) instead, which is turn - (2 turn + 1/2).
    let quarter = QUARTER;
    mutant!("sine: folded at an eighth", quarter = quarter / 2);
    let ahead = mpc.combine(&[(1, turn)], quarter)?;
    let gap = mpc.combine(&[(2, turn)], 1 << 63)?;
    let words = [&gap];
    let job = Compare { value: &ahead, width: 64, then: Then::negative(&words) };
    let gap = mpc.compare_one(job)?.into_word()?;
    let folded = mpc.combine(&[(1, turn), (u64::MAX, &gap)], 0)?;
    // A quarter turn is 1, with 24 fraction bits.
    let folded =
        mpc.truncate(&[(&folded, 38)], mode)?.pop().ok_or_else(|| no_answer("truncate"))?;
    let mut chain = working_chain::<P>(mpc);
    let folded = chain.input(&folded);
    let share = SIN.eval(&mut chain, &folded.into(), f, mode);
    let share = run(mpc, chain, share)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: f, width: f + 3 }), frac)
}
