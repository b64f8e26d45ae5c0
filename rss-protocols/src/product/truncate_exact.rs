//! Division by a power of two: exact, or rounded with a coin that no party's view determines.
//!
//! `z = a + b` as in [`super::truncate`]; a comparison circuit gives the carry of the low `t` bits into the rest. It is
//! opened under a mask of the dealer and added as an arithmetic bit in the message with the rest. The result is exactly
//! the floor: 489 bits and 5 rounds at `t = 20`. With a coin `r = r_dealer + r_peers mod 2^t`, the first known to the
//! dealer and the second to both evaluators, it is stochastic rounding, independent of every view: 638 bits.
//!
//! In a checked session the dealer also sends `a` itself in two parts, and shares of its bits from `t` on: 108 bits more,
//! 44 of a value that is shared. `r_dealer` is then the sum of a stream with each evaluator, of which each lacks one, and
//! the dealer takes the carry of that sum off its part: `|z| <= 2^62 - 2^(t+2)`.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Source};

use super::split::{Split, Value};
use crate::{
    circuit::{evaluate::CircuitMessage, schedule::Circuit},
    compare::{
        Comparison, MaskedBit, StatedBit,
        select::{MaskShare, MaskWords},
    },
    kernels::{Coin, CoinOfTwo, Difference, ExactDealer, ExactEvaluator, TakeCarry, WithCoin, Xor},
    proofs::{Bits, Shared, Transcript, Words, adder, adder_from, bit_as_word},
    runtime::{
        launch::{made, whole},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port, both},
    },
    share::output::Slot,
};

/// The samples of a carry that is opened, and of the words that its mask becomes.
#[derive(Clone)]
struct Carry<T> {
    bit: MaskedBit,
    u: MaskWords<T>,
}

/// The dealer's message about a carry.
struct CarryMessage<T> {
    circuit: CircuitMessage<T>,
    u: MaskShare<T>,
}

impl<T: EngineTensor> Carry<T> {
    fn sample<E: Engine<Tensor = T>>(p: &mut Port<'_, E>, circuit: Arc<Circuit>, n: usize) -> Self {
        let bit = MaskedBit::sample(p, Comparison { circuit, top: false, low: 0 }, n);
        Self { bit, u: MaskWords::sample(p, n) }
    }

    fn deal<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, a: &T) -> Result<()> {
        let u = self.bit.deal(p, a)?;
        self.u.deal(p, &p.bits_as_words(&u, a.len())?).map(drop)
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
    let binding = Binding::sample(&mut p, &split, n, t);
    let end = End::sample(&mut p, n, t);
    p.owe({
        let split = split.clone();
        let carry = carry.clone();
        let end = end.clone();
        move |transcript| exact_relations(transcript, &split, &carry, binding, &end)
    });
    if p.deals() {
        let a = split.dealer(&p)?;
        binding.deal(&p, [&a, &a])?;
        carry.deal(&p, &a)?;
        return end.deal(&p, (&a, p.zero()), &slot);
    }
    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    binding.read(&p, &dealt)?;
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
    let coins = Coins::sample(&mut p, n);
    let binding = Binding::sample(&mut p, &split, n, t);
    let end = End::sample(&mut p, n, t);
    p.owe({
        let split = split.clone();
        let carries = [carry.clone(), coin_carry.clone()];
        let end = end.clone();
        move |transcript| dither_relations(transcript, &split, &carries, (binding, coins), &end)
    });
    if p.deals() {
        let a = split.dealer(&p)?;
        let (with_coin, coin, taken) = match coins.dealers {
            DealersCoin::Own(own) => {
                let sources = [whole(&a), p.words_of(own)];
                let [with_coin, coin] = p.words(&Coin { t }, n, sources, &[])?;
                (with_coin, coin, None)
            }
            DealersCoin::Shared([left, right]) => {
                let sources = [whole(&a), p.words_of(left), p.words_of(right)];
                let [with_coin, coin, taken] = p.words(&CoinOfTwo { t }, n, sources, &[])?;
                (with_coin, coin, Some(taken))
            }
        };
        binding.deal(&p, [&a, &with_coin])?;
        carry.deal(&p, &with_coin)?;
        coin_carry.deal(&p, &coin)?;
        let taken = taken.as_ref().map_or(p.zero(), whole);
        return end.deal(&p, (&with_coin, taken), &slot);
    }
    let half = split.send(&p)?;
    let dealt = p.dealt().await;
    binding.read(&p, &dealt)?;
    let of_sum = carry.read(&p, &dealt)?;
    let of_coin = coin_carry.read(&p, &dealt)?;
    let dealt = end.read(&p, &dealt)?;
    let halves = half.exchange(&p).await?;
    let [own, other] = halves.words(&p);
    let [b] = p.words(&WithCoin { t }, n, [own, other, p.words_of(coins.peers)], &[])?;
    let coin = p.tensor_of(coins.peers)?;
    let (v, coin_v) =
        both(&p, carry.open(&p, of_sum.circuit, &b), coin_carry.open(&p, of_coin.circuit, &coin))
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

/// The streams of a coin.
#[derive(Clone, Copy)]
struct Coins {
    dealers: DealersCoin,
    peers: Sample,
}

#[derive(Clone, Copy)]
enum DealersCoin {
    /// The dealer alone has the stream.
    Own(Sample),
    /// Of a checked session: the sum of two streams, one with each evaluator.
    Shared([Sample; 2]),
}

impl Coins {
    fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize) -> Self {
        let dealers = if p.is_checked() {
            DealersCoin::Shared(p.sample_both(n))
        } else {
            DealersCoin::Own(p.sample(Key::Own, n))
        };
        Self { dealers, peers: p.sample(Key::Peers, n) }
    }
}

/// In a checked session, the samples of messages that bind the bits of `a` to what it is made of; else of no words.
#[derive(Clone, Copy)]
struct Binding {
    n: usize,
    t: u32,
    /// Right's part of `a`; of no words if the value is shared.
    a_right: Sample,
    /// Left's share of the bits from `t` on.
    bits: Sample,
}

impl Binding {
    fn sample<E: Engine>(p: &mut Port<'_, E>, split: &Split<E::Tensor>, n: usize, t: u32) -> Self {
        let words = if p.is_checked() && split.shared(p).is_none() { n } else { 0 };
        let planes = if p.is_checked() { 64 - t as usize } else { 0 };
        let bits = p.sample(Key::Left, planes * n.div_ceil(64));
        Self { n, t, a_right: p.sample(Key::Right, words), bits }
    }

    /// The dealer sends left's part of `a`, and shares of the bits of `a` with a coin.
    fn deal<E: Engine>(&self, p: &Port<'_, E>, [a, with_coin]: [&E::Tensor; 2]) -> Result<()> {
        if !p.is_checked() {
            return Ok(());
        }
        if self.a_right.len() > 0 {
            let sources = [whole(a), p.words_of(self.a_right)];
            let [left] = p.words(&Difference, self.n, sources, &[])?;
            p.to_left(&left)?;
        }
        let bits = p.engine.to_planes(with_coin, self.t, 64 - self.t)?;
        let masks = made(p.engine, bits.shape(), p.words_of(self.bits))?;
        p.to_right(&p.map(&Xor, [&bits, &masks], &[])?)
    }

    /// An evaluator reads the message, which only the statements need.
    fn read<E: Engine>(&self, p: &Port<'_, E>, dealt: &Incoming<'_, '_, E>) -> Result<()> {
        if p.is_left() {
            dealt.words(self.a_right.len())?;
        } else if p.is_checked() {
            dealt.planes(64 - self.t as usize, self.n.div_ceil(64))?;
        }
        Ok(())
    }
}

/// The samples of the steps after the carries.
#[derive(Clone)]
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
        (a, taken): (&E::Tensor, Source<'_, E::Tensor>),
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let [e, m_left, y0, m_right] =
            [self.e, self.m_left, self.y0, self.m_right].map(|sample| p.words_of(sample));
        let sources = [whole(a), taken, e, m_left, y0, m_right];
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

// -- what is owed --------------------------------------------------------------------------------

/// An opened carry as words: the evaluators' shares of `u`, and `v`.
struct StatedCarry {
    u: Shared<Words>,
    v: Words,
}

/// The relations that all owe for [`truncate_exact`].
fn exact_relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    split: &Split<E::Tensor>,
    carry: &Carry<E::Tensor>,
    binding: Binding,
    end: &End,
) -> Result<()> {
    let n = end.n;
    let (a, high) = binding.messages(t, split)?;
    let b = split.relations(t, n, a.each_ref())?.map(|b| b.wrapping_add(1 << 62));
    let codes = carry.bit.code_relations(t, n)?;
    let h = binding.bits(t, &a, [&codes.bits, &high])?;
    let opened = carry.bit.relations(t, n, (&codes, Bits::zero()), &b)?;
    let carry = carry.as_words(t, n, &opened)?;
    end.relations(t, (&h, &Bits::zero()), &b, &[(1, carry)])
}

/// The relations that all owe for [`truncate_dithered`].
fn dither_relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    split: &Split<E::Tensor>,
    [carry, coin_carry]: &[Carry<E::Tensor>; 2],
    (binding, coins): (Binding, Coins),
    end: &End,
) -> Result<()> {
    let n = end.n;
    let bits = end.t;
    let low = u64::MAX >> (64 - bits);
    let DealersCoin::Shared(dealers) = coins.dealers else {
        unreachable!("the dealer's own coin is not proven")
    };
    let coin: Shared<Words> = dealers.map(|coin| t.sample::<_>(coin).map(|coin| coin & low));
    let peers: Words = t.sample(coins.peers);
    let (a, high) = binding.messages(t, split)?;
    let b = split.relations(t, n, a.each_ref())?.map(|b| b.wrapping_add(1 << 62));
    let b = b + peers.map(|coin| coin & low);
    let a = [&a[0] + &coin[0], &a[1] + &coin[1]];
    let codes = carry.bit.code_relations(t, n)?;
    let h = binding.bits(t, &a, [&codes.bits, &high])?;
    let opened = t.beside(false, |t| carry.bit.relations(t, n, (&codes, Bits::zero()), &b))?;
    let carry = carry.as_words(t, n, &opened)?;
    let codes = coin_carry.bit.code_relations(t, n)?;
    let taken = adder(t, n, &codes.bits, &coin.map(|coin| coin.planes(0, bits)))?;
    let opened =
        t.beside(true, |t| coin_carry.bit.relations(t, n, (&codes, Bits::zero()), &peers))?;
    let coin_carry = coin_carry.as_words(t, n, &opened)?;
    end.relations(t, (&h, &taken), &b, &[(1, carry), (u64::MAX, coin_carry)])
}

impl<T: EngineTensor> Carry<T> {
    /// The relations that the dealer owes for the carry's mask as words.
    fn as_words<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        opened: &StatedBit,
    ) -> Result<StatedCarry> {
        Ok(StatedCarry { u: self.u.relations(t, n, &opened.u)?, v: opened.v.words(n) })
    }
}

impl Binding {
    /// The parts of `a`, and the evaluators' shares of the bits from `t` on.
    fn messages<E: Engine>(
        self,
        t: &mut Transcript<'_, E>,
        split: &Split<E::Tensor>,
    ) -> Result<(Shared<Words>, Shared<Bits>)> {
        let a = split.parts(t, self.a_right)?;
        let right = t.dealt_right(64 - self.t as usize, self.n.div_ceil(64))?;
        Ok((a, [t.sample(self.bits), right]))
    }

    /// The dealer owes that low and high bits are those of the sum of the parts: gives all 64.
    fn bits<E: Engine>(
        self,
        t: &mut Transcript<'_, E>,
        a: &Shared<Words>,
        [low, high]: [&Shared<Bits>; 2],
    ) -> Result<Shared<Bits>> {
        let cols = self.n.div_ceil(64);
        let h = [0, 1].map(|side| Bits::stacked(cols, &[&low[side], &high[side]]));
        adder(t, self.n, &h, &a.each_ref().map(|part| part.planes(0, 64)))?;
        Ok(h)
    }
}

impl End {
    /// The dealer owes that `y0 + y1`, and a carry that it took off, are the bits of `a` from `t` on; and the complement
    /// of the top bit as a word. The evaluators owe their addends: of opened carries, with their signs, and of the top.
    fn relations<E: Engine>(
        &self,
        transcript: &mut Transcript<'_, E>,
        (h, taken): (&Shared<Bits>, &Bits),
        b: &Words,
        carries: &[(u64, StatedCarry)],
    ) -> Result<()> {
        let Self { n, t, .. } = *self;
        let cols = n.div_ceil(64);
        let y: Shared<Words> = [transcript.dealt_left(1, n)?, transcript.sample(self.y0)];
        let shifted = h.each_ref().map(|h| {
            let zeros = h.picked(cols, 0..t as usize).scaled(0);
            Bits::stacked(cols, &[&h.picked(cols, t as usize..64), &zeros])
        });
        adder_from(transcript, n, taken, &shifted, &y.map(|part| part.planes(0, 64)))?;
        let e = transcript.bits_of(self.e, t)?;
        let top: Bits = h.each_ref().map(|h| h.picked(cols, [63])).into_iter().sum();
        bit_as_word(transcript, n, &e, &(top + Bits::one(cols)))?;

        let base = b.map(|b| (b >> t).wrapping_sub((1 << (64 - t)) + (1 << 62 >> t)));
        let nb = b.map(|b| !b >> 63);
        let sent = transcript.exchanged(1, n)?;
        let masks: [Words; 2] = transcript.samples([self.m_left, self.m_right]);
        for (side, role) in [Role::Left, Role::Right].into_iter().enumerate() {
            let mut addend = e[side].words(n).shl(64 - t) * &nb - &masks[side] - &sent[side];
            for (sign, StatedCarry { u, v }) in carries {
                let signed = v.map(|v| sign.wrapping_mul(1u64.wrapping_sub(2 * v)));
                addend = addend + &u[side] * signed;
                if role == Role::Left {
                    addend = addend + v.scaled(*sign);
                }
            }
            if role == Role::Left {
                addend = addend + &base;
            }
            transcript.words(role, 64, &addend)?;
        }
        Ok(())
    }
}
