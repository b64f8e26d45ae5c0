//! A linear layer, its truncation and a bit that is shared already, in one: the gradient through a ReLU.
//!
//! [`mod@super::relu`] without its circuit. With `u`'s shares and `v` from the comparison that opened the bit, the dealer
//! shares `A`, `uA` and, modulo `2^t`, `na` and `u na`; the evaluators exchange halves and then their addends.
//!
//! Cost at `t = 20`: 424 bits in all, `early` 384, and 2 rounds; with a bit that is only shared 64 more.

use mpc_core::Result;
use ring_arith::Engine;

use super::{
    gated::{Drop, Gate, Gated},
    split::{Split, Value},
    sums::{ChunkSums, SampledSums},
};
use crate::{
    compare::select::MaskWords,
    runtime::rounds::Port,
    share::{output::Slot, reusable::Bit},
};

/// A value of `n` words, truncated, where a bit is 1; and sums of it everywhere.
pub(crate) async fn mask<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    drop: Drop,
    Bit { known, opposite, origin }: Bit<E::Tensor>,
    sums: Option<ChunkSums<E::Tensor>>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Gate<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, drop.early());
    let u = MaskWords::sample_or_reuse(&mut p, &origin, n);
    let gated = Gated::sample(&mut p, n, drop.bits);
    let sums = sums.map(|sums| SampledSums::sample(&mut p, sums, false));
    if p.deals() {
        let a = split.dealer(&p)?;
        let words = p.bits_as_words(&known, n)?;
        u.deal(&p, &words)?;
        return gated.deal(&p, [&a, &words], sums.as_ref(), &slot);
    }
    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    let u = u.read(p.role(), &dealt)?;
    let dealt = gated.read(&p, &dealt)?;
    let b = gated.known(&p, &half.exchange(&p).await?)?;
    let shares = gated.shares(&p, dealt, b)?;
    let v = p.bits_as_words(&known, n)?;
    mutant!("masked product: by the bit's opposite", opposite = !opposite);
    gated.select(&p, &u, shares, (v, opposite), sums.as_ref(), &slot).await
}
