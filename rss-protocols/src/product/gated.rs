//! A truncated value times a bit, without waiting for the truncation to end.
//!
//! The halves `A = a >> t` and `B` of a truncation, known to the dealer and to both evaluators after one exchange, have
//! the truncated value as their sum modulo `2^(64 - t)`. For a bit `u ^ v` the selection takes the halves as they are:
//! the carry `na nb 2^(64 - t)`, `na = not_a_msb`, `nb = not_b_msb`, needs no exchange of its own, since
//! `bit z = (1 - 2v)(uA + nb uN + uB) + v (A + nb N + B)` with `N = na 2^(64 - t)` is linear in what the dealer shares
//! (`A`, `uA`, `u`, and `na`, `u na` modulo `2^t`) once `v` and `nb` are known.
//! The exchange of the truncation's fields (2t bits) goes, `u na` (t bits) comes.

use mpc_core::Result;
use ring_arith::Engine;

use super::split::Halves;
use crate::{
    compare::select::MaskShare,
    kernels::{CarryShares, EarlySum, GatedDealer, SelectEvaluator, WholeSum},
    runtime::{
        launch::whole,
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Incoming, Port},
    },
    share::output::Slot,
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

/// The dealer's message to an evaluator: what it has no sample of.
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

/// An evaluator's shares of `A` and of `uA`, carry included, and component 2 without it.
pub(crate) struct Shares<T> {
    half: T,
    product: T,
    base: T,
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

    /// The dealer's work, given its part and `u` as words: its two components of the result.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        [a, u]: [&E::Tensor; 2],
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
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
        Ok(Pair(p.tensor_into(y0, slot.first())?, p.tensor_into(y1, slot.second())?))
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
        let [na, u_na, half, product] = match &dealt {
            GatedMessage::Left { half, product } => {
                [p.words_of(self.na), p.words_of(self.u_na), whole(half), whole(product)]
            }
            GatedMessage::Right { na, u_na } => {
                [whole(na), whole(u_na), p.words_of(self.half), p.words_of(self.product)]
            }
        };
        let sources = [whole(&compared), na, u_na, half, product];
        let [half, product] = p.words(&CarryShares { t: self.t }, self.n, sources, &[])?;
        Ok(Shares { half, product, base })
    }

    /// An evaluator's two components of the result, given `v` as words; for the bit's opposite if that is asked.
    pub async fn select<E: Engine>(
        &self,
        p: &Port<'_, E>,
        u: &MaskShare<E::Tensor>,
        shares: Shares<E::Tensor>,
        (v, opposite): (E::Tensor, bool),
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let [y0, y1] = self.y;
        let y = p.words_of(p.own([y1, y0]));
        let params = [p.if_left(), u64::from(opposite)];
        let Shares { half, product, base } = &shares;
        let sources = [whole(&v), u.words(p), whole(product), whole(base), whole(half), y];
        let places = [None, slot.shared(p.role())];
        let addend = p.words_into(&SelectEvaluator, self.n, sources, &params, places)?;
        drop((shares, v));
        slot.exchange(p, addend).await
    }
}
