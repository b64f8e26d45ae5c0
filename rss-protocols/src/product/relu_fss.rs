//! A linear layer, its truncation and its ReLU in two rounds, for few elements.
//!
//! As in [`mod@super::relu`] the sign is taken on the truncation's halves `A = a >> t` and `B`. The result is positive
//! where `s ^ v` is 1, for the top bit `v` of `B` and a bit `s`. This bit is a step function of the rest of `B`: its
//! threshold and its direction follow from `A`. The dealer makes DCF keys ([`crate::runtime::fss`]) of `s`, `sA` and
//! `s na` as functions of `B`. The evaluators have shares of all three as soon as they know `B`.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `A` and a key to left; `na` and the key to right | its half of `b` to right | its half of `b` to left |
//! | 2 | | its addend of component 2 to right | its addend of component 2 to left |
//!
//! Cost at `t = 20`: a key of 218 words to each evaluator, and 232 bits (`early` 212): 28,136 bits and 2 rounds.

use mpc_core::Result;
use ring_arith::{Engine, Shape, Tensor};

use super::{
    gated::{Drop, Gate, finish},
    split::{Split, Value},
    sums::{ChunkSums, SampledSums},
};
use crate::{
    kernels::{CarryShares, EarlySum, SelectEvaluator, SummedValue, WholeSum},
    runtime::{
        fss::{self, StepFunction},
        launch::whole,
        prss::{Key, Sample, Seeds},
        roles::Pair,
        rounds::Port,
    },
    share::output::Slot,
};

/// Values of the keys' function: `s`, `s A` and `s na`.
const VALUES: usize = 3;

/// The most elements for which the saved rounds outweigh the keys.
pub(crate) const MOST: usize = 1600;

/// The most elements that are one chunk.
pub(crate) const ALONE: usize = 128;

/// The keys of `n` elements, of which `t` bits are dropped.
struct Keys {
    n: usize,
    t: u32,
    /// Of left's keys and of right's.
    seeds: [Seeds; 2],
}

/// The ReLU of a value of `n` words, with sums of the value itself.
pub(crate) async fn relu_fss<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    drop: Drop,
    sums: Option<ChunkSums<E::Tensor>>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Gate<E::Tensor>> {
    let engine = p.engine;
    let t = drop.bits;
    let split = Split::sample(&mut p, value, n, drop.early());
    let keys = Keys { n, t, seeds: p.seeds_of_both(n) };
    // Right's share of A, left's of na, components 0 and 1.
    let half = p.sample(Key::Right, n);
    let na = p.sample(Key::Left, n);
    let y0 = p.sample(Key::Right, n);
    let y1 = p.sample(Key::Left, n);
    let sums = sums.map(|sums| SampledSums::sample(&mut p, sums, true));

    if p.deals() {
        let a = engine.download(&split.dealer(&p)?)?;
        let key = keys.make(&p, a.words())?;
        let left = keys.share(&p, &a, half, |a| a >> t)?;
        let right = keys.share(&p, &a, na, |a| 1 - (a >> 63))?;
        p.to_left(&left)?;
        p.bits_to_right(&right, t)?;
        p.to_left(&key)?;
        p.to_right(&key)?;
        let result = Pair(p.tensor_into(y0, slot.first())?, p.tensor_into(y1, slot.second())?);
        return Ok(Gate { result, sums: sums.map(|sums| sums.deal(&p)).transpose()? });
    }

    let own = split.send(&p)?;
    let dealt = p.dealt().await;
    let [half, na] = if p.is_left() {
        [dealt.words(n)?, p.tensor_of(na)?]
    } else {
        [p.tensor_of(half)?, dealt.bits(n, t, 0)?]
    };
    let key = dealt.words(keys.words())?;

    let halves = own.exchange(&p).await?;
    let [compared, base] = if halves.rounded() {
        p.words(&EarlySum { t }, n, halves.words(&p), &[])?
    } else {
        p.words(&WholeSum { t }, n, halves.words(&p), &[])?
    };
    let [s, product, s_na] = keys.evaluate(&p, &key, engine.download(&compared)?.words())?;
    let sources = [&compared, &na, &s_na, &half, &product].map(whole);
    let [carried, product] = p.words(&CarryShares { t }, n, sources, &[])?;
    let v = p.bits_as_words(&engine.to_planes(&compared, keys.bits() as u32, 1)?, n)?;
    let y = p.words_of(p.own([y1, y0]));
    let sources = [whole(&v), whole(&s), whole(&product), whole(&base), whole(&carried), y];
    let places = [None, slot.shared(p.role())];
    let params = [p.if_left(), 0];
    let addend = p.words_into(&SelectEvaluator, n, sources, &params, places)?;
    let sums = match sums {
        None => None,
        Some(sums) => {
            let sources = [&compared, &half, &na, &s_na, &v, &s].map(whole);
            // The result is positive where s ^ v is 1.
            let params = [p.if_left(), 1];
            let [value] = p.words(&SummedValue { t }, n, sources, &params)?;
            Some(sums.addend(&p, &value)?)
        }
    };
    finish(&p, addend, sums, &slot).await
}

impl Keys {
    /// Bits of the halves below their top bit.
    fn bits(&self) -> usize {
        63 - self.t as usize
    }

    /// Words of all keys of one evaluator.
    fn words(&self) -> usize {
        self.n * fss::words_of::<VALUES>(self.bits())
    }

    /// An evaluator's share of the dealer's value of each word, less a mask.
    fn share<E: Engine>(
        &self,
        p: &Port<'_, E>,
        a: &Tensor,
        mask: Sample,
        of: impl Fn(u64) -> u64,
    ) -> Result<E::Tensor> {
        let mask = p.download_sample(mask)?;
        let words = a.words().iter().zip(mask.words());
        let words = words.map(|(&a, mask)| of(a).wrapping_sub(*mask)).collect();
        Ok(p.engine.upload(Tensor::new(Shape::new([self.n])?, words)?)?)
    }

    /// The dealer makes the keys: the words `i` of all keys are contiguous.
    fn make<E: Engine>(&self, p: &Port<'_, E>, a: &[u64]) -> Result<E::Tensor> {
        let Self { n, t, .. } = *self;
        let bits = self.bits();
        let [left, right] = self.seeds;
        let roots = [p.roots(left)?, p.roots(right)?];
        let all = fss::interleaved(n, fss::words_of::<VALUES>(bits), |at, put| {
            let half = a[at] >> t;
            let top = a[at] >> 63;
            let values = [1, half, 1 - top];
            // s is 1 - top, and the opposite where the bits below carry.
            let low = values.map(|value| value & top.wrapping_sub(1));
            let step = values.map(|value| value.wrapping_mul((top << 1).wrapping_sub(1)));
            // The low bits of both halves carry where those of B are above the complement of A's.
            let threshold = !half & ((1 << bits) - 1);
            mutant!("relu at once: a threshold's low bits off", threshold = threshold & !7);
            let function = StepFunction { threshold, low, step };
            let [left, right] = roots.each_ref().map(|roots| roots[at]);
            let expand = |_, level, seed| fss::expand(seed, left.place, level);
            fss::make(&function, bits, [left.seed, right.seed], expand, put);
        });
        Ok(p.engine.upload(Tensor::new(Shape::new([self.words()])?, all)?)?)
    }

    /// An evaluator's shares of `s`, `s A` and `s na`, given `B` less one unit.
    fn evaluate<E: Engine>(
        &self,
        p: &Port<'_, E>,
        key: &E::Tensor,
        compared: &[u64],
    ) -> Result<[E::Tensor; VALUES]> {
        let n = self.n;
        let bits = self.bits();
        let evaluator = usize::from(!p.is_left());
        let roots = p.roots(p.own(self.seeds))?;
        let key = p.engine.download(key)?;
        let mut shares = [(); VALUES].map(|()| Vec::with_capacity(n));
        for (at, (&compared, root)) in compared.iter().zip(roots).enumerate() {
            let point = compared & ((1 << bits) - 1);
            let values =
                fss::evaluate::<VALUES>(evaluator, root, bits, point, |i| key.words()[i * n + at]);
            shares.iter_mut().zip(values).for_each(|(share, value)| share.push(value));
        }
        let shape = Shape::new([n])?;
        let [s, half, na] = shares.map(|words| p.engine.upload(Tensor::new(shape.clone(), words)?));
        Ok([s?, half?, na?])
    }
}
