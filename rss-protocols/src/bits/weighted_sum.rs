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
    proofs::{Bits, Transcript, Words, bit_as_word},
    runtime::{
        launch::{invalid, plane_of, planes, slice, to_plane, whole},
        prss::{Key, Planes, Sample},
        roles::{Pair, Role},
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

    p.owe({
        let bits = bits.clone();
        let weights = weights.clone();
        let y = y.clone();
        move |t| relations(t, n, &bits, &weights.lists, u, &y)
    });

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

/// The relations that all owe for [`weighted_sum`]: the dealer its bits as words, the evaluators their addends of each sum.
fn relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    n: usize,
    bits: &Pair<E::Tensor>,
    lists: &[Vec<u64>],
    u: Sample,
    y: &[[Sample; 2]],
) -> Result<()> {
    let cols = n.div_ceil(64);
    let width = u.len() / n.max(1);
    let [x0, x1, v]: [Bits; 3] = t.components(bits)?;
    let [left, right]: [Words; 2] = [t.sample(u), t.dealt_right(width, n)?];
    let mut shares = Vec::with_capacity(width);
    for j in 0..width {
        let k = [left.picked(n, [j]), right.picked(n, [j])];
        let bit = x0.picked(cols, [j]) + x1.picked(cols, [j]);
        bit_as_word(t, n, &k.each_ref().map(|k| k.planes(0, 64)), &bit)?;
        let v = v.picked(cols, [j]).words(n);
        shares.push((k, v));
    }
    for (list, &[y0, y1]) in lists.iter().zip(y) {
        let sum = |side: usize| -> Words {
            let terms = shares.iter().zip(list);
            terms
                .map(|((k, v), &c)| &k[side] * v.map(|v| c.wrapping_mul(1u64.wrapping_sub(2 * v))))
                .sum()
        };
        let known: Words = shares.iter().zip(list).map(|((_, v), &c)| v.scaled(c)).sum();
        let sent = t.exchanged(1, n)?;
        t.words(Role::Left, 64, &(sum(0) + known - t.sample::<_>(y1) - &sent[0]))?;
        t.words(Role::Right, 64, &(sum(1) - t.sample::<_>(y0) - &sent[1]))?;
    }
    Ok(())
}
