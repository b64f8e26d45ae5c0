//! Division by a power of two: exact, or rounded with a coin that no party's view determines.
//!
//! `z = a + b` as in [`super::truncate`]; a comparison circuit gives the carry of the low `t` bits into the rest. It is
//! opened under a mask of the dealer and added as an arithmetic bit in the message with the rest. The result is exactly
//! the floor: 489 bits and 5 rounds at `t = 20`. With a coin `r = r_dealer + r_peers mod 2^t`, the first known to the
//! dealer and the second to both evaluators, it is stochastic rounding, independent of every view: 638 bits.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, Source};

use super::split::{Split, Value};
use crate::{
    circuit::{evaluate::CircuitMessage, schedule::Circuit},
    compare::{
        Comparison, MaskedBit,
        select::{MaskShare, MaskWords},
    },
    kernels::{Coin, ExactDealer, ExactEvaluator, TakeCarry, WithCoin},
    runtime::{
        launch::whole,
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Incoming, Port, both},
    },
    share::output::Slot,
};

/// The samples of a carry that is opened, and of the words that its mask becomes.
struct Carry<T> {
    bit: MaskedBit,
    u: MaskWords<T>,
}

/// The dealer's message about a carry.
struct CarryMessage<T> {
    circuit: CircuitMessage<T>,
    u: MaskShare<T>,
}

impl<T: ring_arith::EngineTensor> Carry<T> {
    fn sample<E: Engine<Tensor = T>>(p: &mut Port<'_, E>, circuit: Arc<Circuit>, n: usize) -> Self {
        let bit = MaskedBit::sample(p, Comparison { circuit, top: false, low: 0 }, n);
        Self { bit, u: MaskWords::sample(p, n) }
    }

    fn deal<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, a: &T) -> Result<()> {
        let u = self.bit.deal(p, a)?;
        self.u.deal(p, &p.bits_as_words(&u, a.len())?)
    }

    fn read<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<CarryMessage<T>> {
        Ok(CarryMessage { circuit: self.bit.read(p, dealt)?, u: self.u.read(p.role(), dealt)? })
    }

    /// The carry's `v` as words.
    async fn open<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        circuit: CircuitMessage<T>,
        b: &T,
    ) -> Result<T> {
        let v = self.bit.open(p, circuit, b.clone()).await?;
        p.bits_as_words(&v, b.len())
    }
}

/// `floor(z / 2^t)`.
pub(crate) async fn truncate_exact<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    t: u32,
    circuit: Arc<Circuit>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, None);
    let carry = Carry::sample(&mut p, circuit, n);
    let end = End::sample(&mut p, n, t);
    if p.deals() {
        let a = split.dealer(&p)?;
        carry.deal(&p, &a)?;
        return end.deal(&p, &a, &slot);
    }
    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    let CarryMessage { circuit, u } = carry.read(&p, &dealt)?;
    let dealt = end.read(&p, &dealt)?;
    let halves = half.exchange(&p).await?;
    let [own, other] = halves.words(&p);
    let [b] = p.words(&WithCoin { t }, n, [own, other, p.zero()], &[])?;
    let v = carry.open(&p, circuit, &b).await?;
    let [addend, shared] = end.addend(&p, &b, &dealt, [u.words(&p), whole(&v)], &slot)?;
    slot.exchange(&p, [addend, shared]).await
}

/// `floor((z + r) / 2^t)`, for a uniform `r < 2^t` that no party knows.
pub(crate) async fn truncate_dithered<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    t: u32,
    circuit: Arc<Circuit>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, None);
    let carry = Carry::sample(&mut p, circuit.clone(), n);
    // The coin's two parts carry too, which is taken off again.
    let coin_carry = Carry::sample(&mut p, circuit, n);
    let coins = [Key::Own, Key::Peers].map(|key| p.sample(key, n));
    let end = End::sample(&mut p, n, t);
    if p.deals() {
        let a = split.dealer(&p)?;
        let [a, coin] = p.words(&Coin { t }, n, [whole(&a), p.words_of(coins[0])], &[])?;
        carry.deal(&p, &a)?;
        coin_carry.deal(&p, &coin)?;
        return end.deal(&p, &a, &slot);
    }
    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    let of_sum = carry.read(&p, &dealt)?;
    let of_coin = coin_carry.read(&p, &dealt)?;
    let dealt = end.read(&p, &dealt)?;
    let halves = half.exchange(&p).await?;
    let [own, other] = halves.words(&p);
    let [b] = p.words(&WithCoin { t }, n, [own, other, p.words_of(coins[1])], &[])?;
    let coin = p.tensor_of(coins[1])?;
    let (v, coin_v) =
        both(carry.open(&p, of_sum.circuit, &b), coin_carry.open(&p, of_coin.circuit, &coin))
            .await?;
    let [mut addend, shared] =
        end.addend(&p, &b, &dealt, [of_sum.u.words(&p), whole(&v)], &slot)?;
    let stays = false;
    mutant!("dither: the coin's carry stays", stays = true);
    if !stays {
        let sources = [whole(&addend), of_coin.u.words(&p), whole(&coin_v)];
        [addend] = p.words(&TakeCarry, n, sources, &[p.if_left()])?;
    }
    slot.exchange(&p, [addend, shared]).await
}

/// The samples of the steps after the carries.
struct End {
    n: usize,
    t: u32,
    /// Left's share of `not_a_msb`.
    e: Sample,
    /// Masks of the evaluators' addends, and component 0.
    m_left: Sample,
    y0: Sample,
    m_right: Sample,
}

impl End {
    fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize, t: u32) -> Self {
        Self {
            n,
            t,
            e: p.sample(Key::Left, n),
            m_left: p.sample(Key::Left, n),
            y0: p.sample(Key::Right, n),
            m_right: p.sample(Key::Right, n),
        }
    }

    fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        a: &E::Tensor,
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let [e, m_left, y0, m_right] =
            [self.e, self.m_left, self.y0, self.m_right].map(|sample| p.words_of(sample));
        let sources = [whole(a), e, m_left, y0, m_right];
        let places = [slot.first(), slot.second(), None, None];
        let lead = ExactDealer { t: self.t };
        let [c0, c1, y1, e] = p.words_into(&lead, self.n, sources, &[], places)?;
        p.to_left(&y1)?;
        p.bits_to_right(&e, self.t)?;
        Ok(Pair(c0, c1))
    }

    /// At left the component that it shares with the dealer, at right its share of `not_a_msb`.
    fn read<E: Engine>(&self, p: &Port<'_, E>, dealt: &Incoming<'_, '_, E>) -> Result<E::Tensor> {
        if p.is_left() { dealt.words(self.n) } else { dealt.bits(self.n, self.t, 0) }
    }

    /// An evaluator's addend of component 2, and the component that it shares with the dealer.
    fn addend<E: Engine>(
        &self,
        p: &Port<'_, E>,
        b: &E::Tensor,
        dealt: &E::Tensor,
        [u, v]: [Source<'_, E::Tensor>; 2],
        slot: &Slot<E::Tensor>,
    ) -> Result<[E::Tensor; 2]> {
        let [e, m, y] = if p.is_left() {
            [p.words_of(self.e), p.words_of(self.m_left), whole(dealt)]
        } else {
            [whole(dealt), p.words_of(self.m_right), p.words_of(self.y0)]
        };
        let sources = [whole(b), e, u, v, m, y];
        let places = [None, slot.shared(p.role())];
        p.words_into(&ExactEvaluator { t: self.t }, self.n, sources, &[p.if_left()], places)
    }
}
