//! A linear layer, its truncation and its ReLU in one.
//!
//! The sign is taken on the truncation's halves while the dealer's words are still on their way, and the selection
//! takes the halves directly ([`super::gated`]). The sign is that of the result less one unit, so that the bit marks
//! positive results; at 0 the selection does not matter.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | the circuit's message ([`crate::circuit::evaluate`]); `u - r` to right; `A`, `uA` to left; `na`, `u na` to right | its half of `b` to right | its half of `b` to left |
//! | 2..5 | | factors of products; the sign, masked | the same |
//! | 6 | | its addend of component 2 to right | its addend of component 2 to left |
//!
//! Cost at `t = 20`, `early` or not: 648 or 688 bits in all and 6 rounds, 20 fewer than truncating and selecting one
//! after the other; 1 bit more where the sign is kept.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::Engine;

use super::{
    gated::{Drop, Gate, Gated},
    split::{Split, Value},
    sums::{ChunkSums, SampledSums},
};
use crate::{
    circuit::schedule::Circuit,
    compare::{Comparison, MaskedBit, SharedMask, select::MaskWords},
    runtime::rounds::{Port, both},
    share::{output::Slot, reusable::OpenedBit},
};

/// The ReLU of a value of `n` words, with sums of the value itself; where it is *not* positive, as a bit, if the sign is
/// kept.
pub(crate) async fn relu<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    (drop, keep): (Drop, bool),
    circuit: Arc<Circuit>,
    sums: Option<ChunkSums<E::Tensor>>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<(Gate<E::Tensor>, Option<OpenedBit<E::Tensor>>)> {
    let split = Split::sample(&mut p, value, n, drop.early());
    let sign = MaskedBit::sample(&mut p, Comparison { circuit, top: true, low: drop.bits }, n);
    let bit = keep.then(|| SharedMask::sample(&mut p, n));
    let u = MaskWords::sample(&mut p, n);
    let gated = Gated::sample(&mut p, n, drop.bits);
    let sums = sums.map(|sums| SampledSums::sample(&mut p, sums, true));

    if p.deals() {
        let a = split.dealer(&p)?;
        let known = sign.deal(&p, &a)?;
        let components = bit.map(|bit| bit.deal(&p, &known)).transpose()?;
        // Words that the sign's opposite selects have the sign's u.
        let words = p.bits_as_words(&known, n)?;
        let share = Some(u.deal(&p, &words)?);
        let result = gated.deal(&p, [&a, &words], sums.as_ref(), &slot)?;
        let opened = components.map(|components| OpenedBit { components, known, share });
        return Ok((result, opened));
    }

    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    let circuit = sign.read(&p, &dealt)?;
    let bit = bit.map(|bit| bit.read(&p, &dealt)).transpose()?;
    let u = u.read(p.role(), &dealt)?;
    let dealt = gated.read(&p, &dealt)?;

    let b = gated.known(&p, &half.exchange(&p).await?)?;
    let compared = b.compared.clone();
    // While the first factors are on their way, the shares are made that do not depend on the sign.
    let shares = async { gated.shares(&p, dealt, b) };
    let (known, shares) = both(&p, sign.open(&p, circuit, compared), shares).await?;

    let v = p.bits_as_words(&known, n)?;
    let result = gated.select(&p, &u, shares, (v, true), sums.as_ref(), &slot).await?;
    let Some(shared) = bit else { return Ok((result, None)) };
    let components = p.pair(shared, known.clone());
    Ok((result, Some(OpenedBit { components, known, share: Some(u.for_reuse(&p)?) })))
}
