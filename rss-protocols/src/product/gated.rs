//! A truncated value times a bit, without waiting for the truncation to end.
//!
//! A truncation has halves `A = a >> t`, known to the dealer, and `B`, known to both evaluators after one exchange.
//! Their sum modulo `2^(64 - t)` is the truncated value. For a bit `u ^ v` the selection takes these halves directly.
//! The carry `na nb 2^(64 - t)`, `na = not_a_msb`, `nb = not_b_msb`, does not need a separate exchange. With
//! `N = na 2^(64 - t)`, `bit z = (1 - 2v)(uA + nb uN + uB) + v (A + nb N + B)` is linear in the dealer's shares (`A`,
//! `uA`, `u`, and `na`, `u na` modulo `2^t`) once `v` and `nb` are known. The exchange of the truncation's fields (2t
//! bits) is saved, `u na` (t bits) is added.

use mpc_core::Result;
use ring_arith::{Engine, Source};

use super::{
    split::Halves,
    sums::{SampledSums, unanswered},
};
use crate::{
    compare::select::MaskShare,
    kernels::{CarryShares, EarlySum, GatedDealer, SelectEvaluator, SummedValue, WholeSum},
    runtime::{
        launch::whole,
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Incoming, Port},
    },
    share::output::{Slot, exchange},
};

/// The truncation of a value that is multiplied by a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drop {
    /// Bits dropped.
    pub bits: u32,
    /// Halves are rounded before they are sent.
    pub early: bool,
}

impl Drop {
    /// Bits that each half is rounded by before it is sent.
    pub fn early(self) -> Option<u32> {
        self.early.then_some(self.bits)
    }
}

/// The samples of a truncated value times a bit.
pub(crate) struct Gated {
    n: usize,
    t: u32,
    /// Right's shares of `A` and of `uA`.
    half: Sample,
    product: Sample,
    /// Left's shares of `na` and of `u na`.
    na: Sample,
    u_na: Sample,
    /// Components 0 and 1 of the result.
    y: [Sample; 2],
}

/// The dealer's message to an evaluator: the words for which the evaluator lacks a sample.
pub(crate) enum GatedMessage<T> {
    Left { half: T, product: T },
    Right { na: T, u_na: T },
}

/// `B`, known to both evaluators.
pub(crate) struct Known<T> {
    /// Less one unit: the planes that are compared.
    pub compared: T,
    /// Component 2 without the carry.
    base: T,
}

/// A party's two components of a truncated value times a bit, and of the truncated value's sums.
pub(crate) struct Gate<T> {
    pub result: Pair<T>,
    pub sums: Option<Pair<T>>,
}

/// An evaluator's shares of `A` and of `uA`, carry included, and component 2 without it.
pub(crate) struct Shares<T> {
    half: T,
    product: T,
    base: T,
    /// The dealt words that they are made of.
    dealt: GatedMessage<T>,
    compared: T,
}

impl Gated {
    /// For `n` elements, of which `t` bits are dropped.
    pub fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize, t: u32) -> Self {
        Self {
            n,
            t,
            half: p.sample(Key::Right, n),
            product: p.sample(Key::Right, n),
            na: p.sample(Key::Left, n),
            u_na: p.sample(Key::Left, n),
            y: [Key::Right, Key::Left].map(|key| p.sample(key, n)),
        }
    }

    /// The dealer's work, given its part and `u` as words: its two components of the result and of its sums.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        [a, u]: [&E::Tensor; 2],
        sums: Option<&SampledSums<E::Tensor>>,
        slot: &Slot<E::Tensor>,
    ) -> Result<Gate<E::Tensor>> {
        let t = self.t;
        let [half, product, na, u_na] =
            [self.half, self.product, self.na, self.u_na].map(|sample| p.words_of(sample));
        let sources = [whole(a), whole(u), half, product, na, u_na];
        let [half, product, na, u_na] = p.words(&GatedDealer { t }, self.n, sources, &[])?;
        p.to_left(&half)?;
        p.to_left(&product)?;
        p.bits_to_right(&na, t)?;
        p.bits_to_right(&u_na, t)?;
        let [y0, y1] = self.y;
        let result = Pair(p.tensor_into(y0, slot.first())?, p.tensor_into(y1, slot.second())?);
        Ok(Gate { result, sums: sums.map(|sums| sums.deal(p)).transpose()? })
    }

    /// An evaluator reads the dealer's message.
    pub fn read<E: Engine>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<GatedMessage<E::Tensor>> {
        let Self { n, t, .. } = *self;
        Ok(if p.is_left() {
            GatedMessage::Left { half: dealt.words(n)?, product: dealt.words(n)? }
        } else {
            GatedMessage::Right { na: dealt.bits(n, t, 0)?, u_na: dealt.bits(n, t, 0)? }
        })
    }

    /// Both halves are there.
    pub fn known<E: Engine>(
        &self,
        p: &Port<'_, E>,
        halves: &Halves<E::Tensor>,
    ) -> Result<Known<E::Tensor>> {
        let t = self.t;
        let [compared, base] = if halves.rounded() {
            p.words(&EarlySum { t }, self.n, halves.words(p), &[])?
        } else {
            p.words(&WholeSum { t }, self.n, halves.words(p), &[])?
        };
        Ok(Known { compared, base })
    }

    /// The shares that do not depend on the bit.
    pub fn shares<E: Engine>(
        &self,
        p: &Port<'_, E>,
        dealt: GatedMessage<E::Tensor>,
        Known { compared, base }: Known<E::Tensor>,
    ) -> Result<Shares<E::Tensor>> {
        let [na, u_na, half, product] = self.sources(p, &dealt);
        let sources = [whole(&compared), na, u_na, half, product];
        let [half, product] = p.words(&CarryShares { t: self.t }, self.n, sources, &[])?;
        Ok(Shares { half, product, base, dealt, compared })
    }

    /// Shares of `na`, `u na`, `A` and `uA`.
    fn sources<'x, E: Engine>(
        &self,
        p: &'x Port<'_, E>,
        dealt: &'x GatedMessage<E::Tensor>,
    ) -> [Source<'x, E::Tensor>; 4] {
        match dealt {
            GatedMessage::Left { half, product } => {
                [p.words_of(self.na), p.words_of(self.u_na), whole(half), whole(product)]
            }
            GatedMessage::Right { na, u_na } => {
                [whole(na), whole(u_na), p.words_of(self.half), p.words_of(self.product)]
            }
        }
    }

    /// An evaluator's two components of the result, given `v` as words, for the bit's opposite if that is asked; and
    /// those of the truncated value's sums.
    pub async fn select<E: Engine>(
        &self,
        p: &Port<'_, E>,
        u: &MaskShare<E::Tensor>,
        shares: Shares<E::Tensor>,
        (v, opposite): (E::Tensor, bool),
        sums: Option<&SampledSums<E::Tensor>>,
        slot: &Slot<E::Tensor>,
    ) -> Result<Gate<E::Tensor>> {
        let [y0, y1] = self.y;
        let y = p.words_of(p.own([y1, y0]));
        let params = [p.if_left(), u64::from(opposite)];
        let Shares { half, product, base, .. } = &shares;
        let sources = [whole(&v), u.words(p), whole(product), whole(base), whole(half), y];
        let places = [None, slot.shared(p.role())];
        let addend = p.words_into(&SelectEvaluator, self.n, sources, &params, places)?;
        let sums = match sums {
            None => None,
            Some(sums) if sums.rectified() => {
                let [na, u_na, half, _] = self.sources(p, &shares.dealt);
                let sources = [whole(&shares.compared), half, na, u_na, whole(&v), u.words(p)];
                let params = [p.if_left(), u64::from(!opposite)];
                let [value] = p.words(&SummedValue { t: self.t }, self.n, sources, &params)?;
                Some(sums.addend(p, &value)?)
            }
            Some(sums) if p.is_left() => {
                Some(sums.addend(p, &p.sum_into(&shares.half, &shares.base, None)?)?)
            }
            Some(sums) => Some(sums.addend(p, &shares.half)?),
        };
        drop((shares, v));
        finish(p, addend, sums, slot).await
    }
}

/// The evaluators exchange their addends of the result and of its sums.
pub(crate) async fn finish<E: Engine>(
    p: &Port<'_, E>,
    addend: [E::Tensor; 2],
    sums: Option<[E::Tensor; 2]>,
    slot: &Slot<E::Tensor>,
) -> Result<Gate<E::Tensor>> {
    let anywhere = Slot::anywhere();
    let addends = std::iter::once(addend).chain(sums).collect();
    let mut made = exchange(p, addends, [slot, &anywhere].into_iter()).await?.into_iter();
    let result = made.next().ok_or_else(unanswered)?;
    Ok(Gate { result, sums: made.next() })
}
