//! GELU, and its form by the hyperbolic tangent.

use crate::functions::{
    arithmetic::fixed::{at_20, run, working_chain},
    arithmetic::poly::Undecic,
    compare::choose::clamp_parts,
    rescale,
    smooth::sines::{self, by_sines},
    smooth::tables::{GELU, GELU_TANH},
};
use crate::{Format, Protocol, Result, SecretTensor, Sum, TrigSum};

/// `x / 2 (1 + erf(x / sqrt 2))`.
///
/// # Domain and error
/// All `x`; error below `2^-16.5`. 20 fraction bits are used.
///
/// # Method
/// On `-4.95..=4.95` `x / 2` and a sum of five cosines ([`Protocol::trig_sum`]), 0 and `x` outside. Without sums of
/// cosines: clamp; `x / 2` plus `x^2` times a polynomial of degree 11 in `x^2`; the excess over the upper limit is added
/// again.
///
/// # Cost
/// With replicated sharing at width 44: 5 rounds and 1298 bits for each element in all. Without sums of cosines: two
/// comparisons with a selection that share 6 rounds, a chain of eight products in eight more.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn gelu<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let limit = 5_190_452; // 4.95
    mutant!("gelu: clamped at 3.5", limit = 7 << 19);
    gated(mpc, x, &sines::GELU, limit, &GELU)
}

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, the approximation of [`gelu`] that some networks were
/// trained with.
///
/// # Domain and error
/// All `x`; error below `2^-17`. 20 fraction bits are used.
///
/// # Method
/// As [`gelu`], with the limits `-4.8..=4.8`, another sum and another polynomial.
///
/// # Cost
/// As [`gelu`].
/// With replicated sharing at width 44: 5 rounds and 1296 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Net`] if a peer failed.
pub fn gelu_tanh<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let limit = 5_033_164; // 4.8
    gated(mpc, x, &sines::GELU_TANH, limit, &GELU_TANH)
}

/// `x / 2 (1 + gate(x))`. Up to `limit`, with 20 fraction bits, `ratio` is the polynomial of `gate(x) / (2x)` in
/// `x^2 / 16 - 1`; beyond it the gate is -1 or 1.
fn gated<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    sines: &TrigSum,
    limit: i64,
    ratio: &Undecic,
) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = at_20(mpc, x)?;
    if let Some(y) = by_sines(mpc, &x, sines, x.width() + 1)? {
        return rescale(mpc, &y, frac);
    }
    let (near, over) = clamp_parts(mpc, &x, -limit, limit)?;
    let mut chain = working_chain::<P>(mpc);
    let near = chain.input(near.share());
    // x^2 / 16 - 1 with 20 fraction bits.
    let square = chain.product(near, near, 24);
    let v = Sum::of([(1, square)], (1u64 << 20).wrapping_neg());
    let ratio = ratio.eval(&mut chain, &v, 30);
    let part = chain.product(ratio, near, 20);
    chain.set_mode(mpc.truncation());
    let share = chain.product_plus(part, near, Sum::of([(1 << 29, near)], 0), 30);
    let share = run(mpc, chain, share)?;
    let share = mpc.add(&share, over.share())?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: 20, width: x.width() + 1 }), frac)
}
