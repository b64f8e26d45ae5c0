//! What plans do to secret tensors beyond the functions of [`mpc_core::functions`]: formats that differ, and layers.

pub(crate) mod clip;
pub(crate) mod crew;
pub(crate) mod functions;
pub(crate) mod linear;

use mpc_core::{
    Format, Operand, Protocol, PublicTensor, SecretTensor, TruncationMode, functions as f,
};
use ring_arith::{Engine, EngineTensor, Shape};

use crate::host::encode;
use crate::{Error, HostTensor, Result};

/// The same elements under another shape.
pub(crate) fn reshape<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    to: &Shape,
) -> Result<SecretTensor<P>> {
    if x.shape() == to { Ok(x.clone()) } else { Ok(f::reshape(mpc, x, to)?) }
}

/// A secret tensor of a public value, or the secret one.
pub(crate) fn secret<P: Protocol>(mpc: &P, x: &Operand<P>) -> Result<SecretTensor<P>> {
    match x {
        Operand::Secret(x) => Ok(x.clone()),
        Operand::Public(x) => {
            Ok(SecretTensor::new(mpc.constant(x.words())?, Format::words(x.frac())))
        }
    }
}

/// A public tensor with the given fraction bits.
pub(crate) fn public<P: Protocol>(mpc: &P, x: &HostTensor, frac: u32) -> Result<PublicTensor<P>> {
    let words = mpc.engine().upload(encode(x, frac)?)?;
    Ok(PublicTensor::new(words, frac))
}

/// The shape of an operand.
pub(crate) fn shape_of<P: Protocol>(x: &Operand<P>) -> &Shape {
    match x {
        Operand::Secret(x) => x.shape(),
        Operand::Public(x) => x.words().shape(),
    }
}

/// Fraction bits of an operand.
pub(crate) fn frac_of<P: Protocol>(x: &Operand<P>) -> u32 {
    match x {
        Operand::Secret(x) => x.frac(),
        Operand::Public(x) => x.frac(),
    }
}

/// The truncation of a result: the protocol's setting if it has one, else the mode that is best here.
pub(crate) fn truncation<P: Protocol>(mpc: &P, best: TruncationMode) -> TruncationMode {
    match mpc.truncation() {
        TruncationMode::Default => best,
        told => told,
    }
}

/// Tensors with other fraction bits; those that lose bits share their rounds.
pub(crate) fn rescale_all<P: Protocol>(
    mpc: &mut P,
    jobs: &[(SecretTensor<P>, u32)],
) -> Result<Vec<SecretTensor<P>>> {
    let dropped: Vec<_> = jobs
        .iter()
        .filter(|(x, frac)| x.frac() > *frac)
        .map(|(x, frac)| (x.share(), x.frac() - frac))
        .collect();
    let shares =
        if dropped.is_empty() { vec![] } else { mpc.truncate(&dropped, mpc.truncation())? };
    let mut shares = shares.into_iter();
    let mut results = vec![];
    for (x, frac) in jobs {
        results.push(match x.frac().checked_sub(*frac).filter(|bits| *bits > 0) {
            None => f::rescale(mpc, x, *frac)?,
            Some(bits) => {
                let share = shares.next().ok_or_else(|| Error::invalid("cast", "unanswered"))?;
                SecretTensor::new(
                    share,
                    Format { frac: *frac, width: truncated_width(x.width(), bits) },
                )
            }
        });
    }
    Ok(results)
}

/// The width after bits are dropped: the value was below `2^62`, and rounding may add one.
fn truncated_width(width: u32, bits: u32) -> u32 {
    (width.saturating_sub(bits) + 1).min(64 - bits).max(2)
}

/// Two tensors with the fraction bits of the finer one.
pub(crate) fn alike<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
) -> Result<[SecretTensor<P>; 2]> {
    let frac = x.frac().max(y.frac());
    Ok([f::rescale(mpc, x, frac)?, f::rescale(mpc, y, frac)?])
}

/// `x * y` after broadcasting, with `frac` fraction bits unless one operand is an integer.
pub(crate) fn mul<P: Protocol>(
    mpc: &mut P,
    x: &Operand<P>,
    y: &Operand<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    let frac = product_frac(frac_of(x), frac_of(y), frac).min(frac_of(x) + frac_of(y));
    let job = f::Multiply::new(ring_arith::Bilinear::Mul, x, y).keep(frac);
    only(f::multiply(mpc, &[job])?)
}

/// The format of a product: an integer leaves the other operand's.
pub(crate) fn product_frac(x: u32, y: u32, frac: u32) -> u32 {
    match (x, y) {
        (0, other) | (other, 0) => other,
        _ => frac,
    }
}

/// Multiplies by a public number; the result has `frac` fraction bits.
pub(crate) fn scale<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
    frac: u32,
) -> Result<SecretTensor<P>> {
    // A factor with just the bits that are wanted leaves nothing to drop.
    let c = match frac.checked_sub(x.frac()) {
        Some(more @ 12..) if c != -1.0 => {
            (c * f64::from(more).exp2()).round() / f64::from(more).exp2()
        }
        _ => c,
    };
    Ok(f::mul_scalar_to(mpc, x, c, frac)?)
}

/// A public number of a step.
pub(crate) fn number<P: Protocol>(mpc: &P, number: &PublicTensor<P>) -> Result<f64> {
    match mpc.engine().download(number.words())?.words() {
        &[word] => Ok(word as i64 as f64 / f64::from(number.frac()).exp2()),
        words => Err(Error::plan(format!("{} numbers of a step in the place of one", words.len()))),
    }
}

/// A number as a word.
pub(crate) fn word_of(c: f64, frac: u32) -> Result<u64> {
    let word = (c * f64::from(frac).exp2()).round_ties_even();
    if word.abs() < f64::from(62).exp2() {
        return Ok(word as i64 as u64);
    }
    Err(Error::invalid("constant", format!("{c} does not fit {frac} fraction bits")))
}

/// The only member of a batch's answer.
pub(crate) fn only<T>(mut batch: Vec<T>) -> Result<T> {
    match (batch.pop(), batch.is_empty()) {
        (Some(x), true) => Ok(x),
        _ => Err(Error::invalid("protocol", "a batch of one was not answered with one")),
    }
}
