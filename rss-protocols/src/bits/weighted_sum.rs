//! Weighted sums of shared bits as words.
//!
//! Every bit is `u ^ v` as in [`crate::compare::select`], so `sum(c u (1 - 2v)) + sum(c v)` is the weighted sum.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `u - r` of each bit to right | | |
//! | 2 | | its addend of each sum's component 2 to right | the same, to left |
//!
//! The sums are local to the evaluators; components 0 and 1 are streams.
//! Cost: 64 bits for each bit and 128 for each sum. Rounds: the dealer's words leave at once, then one exchange.

use std::sync::Arc;

use mpc_core::{Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Source, Tensor};

use crate::{
    BitShare, Rss, Share,
    kernels::{LANES, LaneDealer, LaneSum, Negate, Xor},
    runtime::{
        launch::{invalid, plane_of, planes, slice, to_plane, whole},
        prss::{Key, Planes, Sample},
        roles::Pair,
        rounds::{Port, Rounds},
    },
    share::output::{Slot, exchange},
};

/// Bits, and lists of coefficients of their planes.
type BitsAndLists<'a, T> = (&'a BitShare<T>, &'a [&'a [u64]]);

/// The coefficients of sums.
struct Weights<T> {
    /// Planes of bits.
    width: usize,
    /// For each sum, the coefficients of all planes.
    lists: Vec<Vec<u64>>,
    /// For each plane, the factor that brings its bit of a word to the top.
    places: T,
}

impl<E: Engine> Rss<E> {
    /// For each tensor of bits, a share of `sum(c[j] * plane_j)` for every list `c`.
    pub(crate) fn weighted_sums(
        &mut self,
        jobs: &[BitsAndLists<'_, E::Tensor>],
    ) -> Result<Vec<Vec<Share<E::Tensor>>>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for (bits, lists) in jobs {
            let width = bits.width();
            if let Some(list) = lists.iter().find(|list| list.len() != width) {
                let reason = format!("{} coefficients for {width} planes", list.len());
                return Err(invalid("bit sums", reason));
            }
            let places = Tensor::vector((0..width).map(|j| 1 << (63 - j)).collect());
            let weights = Arc::new(Weights {
                width,
                lists: lists.iter().map(|list| list.to_vec()).collect(),
                places: self.engine.upload(places)?,
            });
            let shape = bits.shape().clone();
            let output = self.outputs(self.chunks(shape.len()), shape, lists.len());
            for chunk in &output.chunks {
                let columns = |side: &BitTensor<E::Tensor>| {
                    let end = chunk.range.end.div_ceil(64);
                    slice(&self.engine, side.planes(), 1, chunk.range.start / 64, end)
                };
                let p = self.port(chunk);
                let bits = p.roles.pair(columns(bits.mine())?, columns(bits.next())?);
                let slots = output.slots(chunk);
                rounds.add(p.role(), weighted_sum(p, bits, weights.clone(), chunk.len(), slots));
            }
            outputs.push(output);
        }
        let mut made = rounds.run(&self.links)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for output in outputs {
            let made = made.by_ref().take(output.chunks.len());
            results.push(output.shares(&self.engine, made)?);
        }
        Ok(results)
    }
}

/// Weighted sums of the planes of `n` elements.
async fn weighted_sum<E: Engine>(
    mut p: Port<'_, E>,
    bits: Pair<E::Tensor>,
    weights: Arc<Weights<E::Tensor>>,
    n: usize,
    slots: Vec<Slot<E::Tensor>>,
) -> Result<Vec<Pair<E::Tensor>>> {
    let Weights { width, lists, places } = &*weights;
    // Left's shares of every u; of each sum components 0 and 1.
    let u = p.sample(Key::Left, width * n);
    let y: Vec<_> =
        lists.iter().map(|_| [Key::Right, Key::Left].map(|key| p.sample(key, n))).collect();

    if p.deals() {
        let words = p.bits_as_words(&p.map(&Xor, [&bits.0, &bits.1], &[])?, n)?;
        let sources = vec![
            whole(&words),
            Source::PerRow { tensor: places, offset: 0 },
            p.streams.planes(u, Planes { first: 0, stride: 1, count: *width }, n),
        ];
        let targets = vec![to_plane(0, 0, 1, n)];
        let [right] = planes(p.engine, &LaneDealer, [*width, n], sources, &[], [*width], targets)?;
        p.to_right(&right)?;
        let mut results = Vec::with_capacity(y.len());
        for (&[y0, y1], slot) in y.iter().zip(&slots) {
            let first = p.tensor_into(y0, slot.first())?;
            results.push(Pair(first, p.tensor_into(y1, slot.second())?));
        }
        return Ok(results);
    }

    let v = p.bits_as_words(p.joint(&bits), n)?;
    let dealt = p.dealt().await;
    let u = if p.is_left() { Shares::Sample(u) } else { Shares::Words(dealt.words(width * n)?) };
    let mut addends = Vec::with_capacity(lists.len());
    for ((list, &[y0, y1]), slot) in lists.iter().zip(&y).zip(&slots) {
        let shared = p.tensor_into(p.own([y1, y0]), slot.shared(p.role()))?;
        let addend = addend(&p, &v, &u, list, &shared)?;
        addends.push([addend, shared]);
    }
    exchange(&p, addends, slots.iter()).await
}

/// An evaluator's shares of every `u`, a row of words each.
enum Shares<T> {
    Sample(Sample),
    Words(T),
}

/// This party's addend of a sum's component 2, masked by `y`: `v` holds a bit for each plane.
fn addend<E: Engine>(
    p: &Port<'_, E>,
    v: &E::Tensor,
    u: &Shares<E::Tensor>,
    list: &[u64],
    y: &E::Tensor,
) -> Result<E::Tensor> {
    let n = y.len();
    let mut total = p.map(&Negate, [y], &[])?;
    for (group, coefficients) in list.chunks(LANES).enumerate() {
        let first = group * LANES;
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|i| match u {
            // Without a plane its coefficient is 0, and so is its addend.
            _ if i >= coefficients.len() => p.zero(),
            Shares::Sample(u) => p.streams.planes_again(*u, Planes::one(first + i), n),
            Shares::Words(u) => plane_of(u, first + i, 0, n),
        });
        let sources = [whole(&total), whole(v), a, b, c, d, e, f, g, h];
        let mut params = vec![p.if_left()];
        params.extend((0..LANES).map(|i| coefficients.get(i).copied().unwrap_or(0)));
        let [sum] = p.words(&LaneSum { first: first as u32 }, n, sources, &params)?;
        total = sum;
    }
    Ok(total)
}
