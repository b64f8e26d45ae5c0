//! A linear layer, its truncation and its ReLU in one, of which every message can be proven.
//!
//! [`super::truncate_checked`], a comparison of its halves and a selection, side by side. The dealer knows its components
//! of the quotient at once, so all its words leave in round 1; the codes of the comparison are the bits of `hi` that the
//! truncation would share. The sign is that of the quotient less one unit, as in [`super::relu`].
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | the truncation's message, with the top bit of `hi` alone; the circuit's; `u - r` to right, `u a - d` to left | its half of `b` to right | its half of `b` to left |
//! | 2..5 | | the truncation's field; factors of products; the sign, masked | the same |
//! | 6 | | its addend of component 2 to right | its addend of component 2 to left |
//!
//! Cost at `t = 20`: 729 bits and 6 rounds.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::Engine;

use super::{
    gated::Gate,
    split::{Split, Value},
    sums::ChunkSums,
    truncate_checked::CheckedTruncation,
};
use crate::{
    circuit::schedule::Circuit,
    compare::{
        Comparison, MaskedBit, SharedMask,
        select::{Factor, MaskWords, Selected, Selection},
    },
    kernels::CheckedCompared,
    proofs::{Bits, Transcript},
    runtime::{
        roles::Pair,
        rounds::{Port, both},
    },
    share::{output::Slot, reusable::OpenedBit},
};

/// The samples of a checked ReLU.
#[derive(Clone)]
struct Samples<T> {
    n: usize,
    truncation: CheckedTruncation,
    sign: MaskedBit,
    bit: Option<SharedMask>,
    u: MaskWords<T>,
    selection: Selection,
}

/// The ReLU of a value of `n` words, of which `t` bits are dropped, and sums of the quotient; where it is *not* positive,
/// as a bit, if the sign is kept.
pub(crate) async fn relu_checked<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    (t, keep): (u32, bool),
    circuit: Arc<Circuit>,
    sums: Option<ChunkSums<E::Tensor>>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<(Gate<E::Tensor>, Option<OpenedBit<E::Tensor>>)> {
    let split = Split::sample(&mut p, value, n, None);
    let samples = Samples {
        n,
        truncation: CheckedTruncation::sample(&mut p, &split, n, t, 1),
        sign: MaskedBit::sample(&mut p, Comparison { circuit, top: true, low: 0 }, n),
        bit: keep.then(|| SharedMask::sample(&mut p, n)),
        u: MaskWords::sample(&mut p, n),
        selection: Selection::sample(&mut p, n, 1),
    };
    let Samples { truncation, sign, bit, u, selection, .. } = &samples;
    // The quotient where the sign's opposite is 1.
    let selected = |quotient: &Pair<E::Tensor>, slot| {
        let factor = Factor::Word(quotient.clone());
        [Selected { factor, opposite: true, slot }]
    };

    if p.deals() {
        let (quotient, hi) = truncation.deal(&p, split.clone(), &Slot::anywhere())?;
        let known = sign.deal(&p, &hi)?;
        let components = bit.map(|bit| bit.deal(&p, &known)).transpose()?;
        let words = p.bits_as_words(&known, n)?;
        let share = Some(u.deal(&p, &words)?);
        let selected = selected(&quotient, slot);
        samples.owe(&p, split, &selected[0]);
        let result = selection.deal(&p, &words, &selected)?;
        let opened = components.map(|components| OpenedBit { components, known, share });
        return Ok((gate(&p, result, &quotient, sums)?, opened));
    }

    let shared = split.shared(&p);
    let half = split.clone().send(&p)?;
    let dealt = p.dealt().await;
    let message = truncation.read(&p, shared, &dealt)?;
    let circuit = sign.read(&p, &dealt)?;
    let bit = bit.map(|bit| bit.read(&p, &dealt)).transpose()?;
    let u = u.read(p.role(), &dealt)?;
    let products = selection.read(p.role(), &dealt, 1)?;

    let halves = half.exchange(&p).await?;
    let [compared] = p.words(&CheckedCompared { t }, n, halves.words(&p), &[])?;
    let anywhere = Slot::anywhere();
    let quotient = truncation.finish(&p, halves, message, &anywhere);
    let (known, quotient) = both(&p, sign.open(&p, circuit, compared), quotient).await?;
    let v = p.bits_as_words(&known, n)?;
    let selected = selected(&quotient, slot);
    samples.owe(&p, split, &selected[0]);
    let result = selection.select(&p, &u, products, v, &selected).await?;
    let result = gate(&p, result, &quotient, sums)?;
    let Some(shared) = bit else { return Ok((result, None)) };
    let components = p.pair(shared, known.clone());
    Ok((result, Some(OpenedBit { components, known, share: Some(u.for_reuse(&p)?) })))
}

/// The only result of a selection, with sums of the quotient, whose components are at hand.
fn gate<E: Engine>(
    p: &Port<'_, E>,
    mut result: Vec<Pair<E::Tensor>>,
    quotient: &Pair<E::Tensor>,
    sums: Option<ChunkSums<E::Tensor>>,
) -> Result<Gate<E::Tensor>> {
    let of = |sums: ChunkSums<E::Tensor>| quotient.try_map(|x| sums.of_addend(p.engine, x));
    Ok(Gate { result: result.swap_remove(0), sums: sums.map(of).transpose()? })
}

impl<T: ring_arith::EngineTensor> Samples<T> {
    /// Keeps what all owe, given the selected quotient.
    fn owe<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, split: Split<T>, quotient: &Selected<T>) {
        let samples = self.clone();
        let quotient = quotient.stated();
        p.owe(move |t| {
            let Samples { n, truncation, sign, bit, u, selection } = &samples;
            let messages = truncation.messages(t, &split)?;
            let codes = sign.code_relations(t, *n)?;
            let h = [0, 1].map(|at| stacked(*n, [&codes.bits[at], &messages.bits[at]]));
            let (b, top) = truncation.rounding(t, &split, &messages, &h)?;
            let compared = truncation.compared(&b);
            let bit_of =
                |t: &mut Transcript<'_, E>| sign.relations(t, *n, (&codes, top), &compared);
            let opened = t.beside(false, bit_of)?;
            t.beside(true, |t| truncation.fields(t, &messages, &b))?;
            if let Some(bit) = bit {
                bit.relations(t, *n, &opened.u)?;
            }
            let k = u.relations(t, *n, &opened.u)?;
            selection.relations(t, &k, &opened.v, &[quotient]).map(drop)
        });
    }
}

/// Planes of `n` bits, one after the other.
fn stacked(n: usize, planes: [&Bits; 2]) -> Bits {
    Bits::stacked(n.div_ceil(64), &planes)
}
