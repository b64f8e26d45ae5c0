//! Operations on secret tensors that layers and plans share.

pub(crate) mod clip;
pub(crate) mod elementwise;
pub(crate) mod functions;
pub(crate) mod linear;
pub(crate) mod pool;
pub(crate) mod reduce;

use mpc_core::{Linear, Operand, Protocol, PublicTensor, SecretTensor, TruncationMode};
use ring_arith::{Engine, EngineTensor, Shape, View};

use crate::plan::encode;
use crate::{Error, HostTensor, Result};

/// Moves words; the format stays.
pub(crate) fn view<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    view: &View,
) -> Result<SecretTensor<P>> {
    let share = mpc.linear(&Linear::View(view), x.share())?;
    Ok(SecretTensor::new(share, x.frac(), x.width()))
}

/// The same elements under another shape.
pub(crate) fn reshape<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    to: &Shape,
) -> Result<SecretTensor<P>> {
    if x.shape() == to { Ok(x.clone()) } else { view(mpc, x, &View::Reshape(to.clone())) }
}

/// Repeats axes of length 1, and new leading axes.
pub(crate) fn broadcast<P: Protocol>(
    mpc: &P,
    x: &SecretTensor<P>,
    to: &Shape,
) -> Result<SecretTensor<P>> {
    if x.shape() == to { Ok(x.clone()) } else { view(mpc, x, &View::Broadcast(to.clone())) }
}

/// A secret tensor of a public value, or the secret one.
pub(crate) fn secret<P: Protocol>(mpc: &P, x: &Operand<P>) -> Result<SecretTensor<P>> {
    match x {
        Operand::Secret(x) => Ok(x.clone()),
        Operand::Public(x) => Ok(SecretTensor::new(mpc.constant(x.words())?, x.frac(), 64)),
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

/// The same numbers with other fraction bits. More are a local factor; fewer cost a truncation.
pub(crate) fn align<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    frac: u32,
) -> Result<SecretTensor<P>> {
    if frac == x.frac() {
        return Ok(x.clone());
    }
    if frac > x.frac() {
        let up = frac - x.frac();
        if up >= 63 {
            return Err(Error::invalid("align", format!("{up} more fraction bits do not fit")));
        }
        let share = mpc.linear(&Linear::Scale(1 << up), x.share())?;
        return Ok(SecretTensor::new(share, frac, (x.width() + up).min(64)));
    }
    let bits = x.frac() - frac;
    let share = only(mpc.truncate(&[(x.share(), bits)], mpc.truncation())?)?;
    Ok(SecretTensor::new(share, frac, truncated_width(x.width(), bits)))
}

/// The truncation of a result: the protocol's setting if it has one, else the mode that is best here.
pub(crate) fn truncation<P: Protocol>(mpc: &P, best: TruncationMode) -> TruncationMode {
    match mpc.truncation() {
        TruncationMode::Default => best,
        told => told,
    }
}

/// [`align`] of several tensors; those that lose bits share their rounds.
pub(crate) fn align_all<P: Protocol>(
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
            None => align(mpc, x, *frac)?,
            Some(bits) => {
                let share = shares.next().ok_or_else(|| Error::invalid("cast", "unanswered"))?;
                SecretTensor::new(share, *frac, truncated_width(x.width(), bits))
            }
        });
    }
    Ok(results)
}

/// The width after bits are dropped: the value was below `2^62`, and rounding may add one.
pub(crate) fn truncated_width(width: u32, bits: u32) -> u32 {
    (width.saturating_sub(bits) + 1).min(64 - bits).max(2)
}

/// `x + y` after broadcasting, with the fraction bits of the finer one.
pub(crate) fn add<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    y: &SecretTensor<P>,
    minus: bool,
) -> Result<SecretTensor<P>> {
    let shape = x.shape().broadcast(y.shape(), if minus { "sub" } else { "add" })?;
    let frac = x.frac().max(y.frac());
    let (x, y) = (align(mpc, x, frac)?, align(mpc, y, frac)?);
    let width = (x.width().max(y.width()) + 1).min(64);
    let (x, y) = (broadcast(mpc, &x, &shape)?, broadcast(mpc, &y, &shape)?);
    let share = if minus { mpc.sub(x.share(), y.share())? } else { mpc.add(x.share(), y.share())? };
    Ok(SecretTensor::new(share, frac, width))
}

/// Multiplies by a public number; the result has `frac` fraction bits.
pub(crate) fn scale<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    c: f64,
    frac: u32,
) -> Result<SecretTensor<P>> {
    use crate::plan::check::power_of_two;
    if c == -1.0 {
        let share = mpc.linear(&Linear::Negate, x.share())?;
        return align(mpc, &SecretTensor::new(share, x.frac(), x.width()), frac);
    }
    if let Some(k) = power_of_two(c)
        && k <= 0
        && x.frac() > 0
    {
        // The same words, read with the point elsewhere.
        let moved = SecretTensor::new(x.share().clone(), x.frac() + k.unsigned_abs(), x.width());
        return align(mpc, &moved, frac);
    }
    // A factor with just the bits that are wanted leaves nothing to drop.
    let c = match frac.checked_sub(x.frac()) {
        Some(more @ 12..) => (c * f64::from(more).exp2()).round() / f64::from(more).exp2(),
        _ => c,
    };
    Ok(mpc_core::functions::mul_scalar_to(mpc, x, c, frac)?)
}

/// Adds a public number.
pub(crate) fn shift<P: Protocol>(mpc: &P, x: &SecretTensor<P>, c: f64) -> Result<SecretTensor<P>> {
    let word = word_of(c, x.frac())?;
    let share = mpc.linear(&Linear::Shift(word), x.share())?;
    let width = x.width().max(65 - (word as i64).unsigned_abs().leading_zeros() + 1);
    Ok(SecretTensor::new(share, x.frac(), (width + 1).min(64)))
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
