//! Division by a power of two of which every message can be proven.
//!
//! A rounded word says nothing of the word that it was rounded from. So the dealer sends `a` itself, as `a_left + a_right`
//! modulo `2^64`, and all roundings are local: left's part down, right's up, and `b` with the offset `2^62` to nearest.
//! With `w = 64 - t`, `hi = left + right mod 2^w` and its carry `g`, the quotient is
//!
//! `left + right - 2^w g + hi_b - 2^w (1 - na nb)`, less the offset,
//!
//! for the top bits' complements `na` of `hi` and `nb` of `hi_b`. The three roundings err by less than 1.5 units, with
//! mean 0 and variance 1/4; `|z| <= 2^62 - 2^(t+1)`.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `a - a_right` to left; bits of `hi`, and `na`, `g` modulo `2^t`, all masked, to right | its half of `b` to right | its half of `b` to left |
//! | 2 | | its share of `na nb - g` modulo `2^t`, masked, to right | the same, to left |
//!
//! Cost: `256 + 3t` bits, of which the bits of `hi` serve the proofs alone; `64 + 3t` for a value that is shared, whose
//! components are the parts of `a`. Two rounds.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor};

use super::split::{Halves, Split, Value};
use crate::{
    kernels::{CheckedDealer, CheckedEvaluator, Xor},
    proofs::{Bits, Shared, Transcript, Words, adder, bit_as_word},
    runtime::{
        launch::{made, whole},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port},
    },
    share::output::Slot,
};

/// The samples of a checked truncation.
#[derive(Clone)]
pub(crate) struct CheckedTruncation {
    n: usize,
    t: u32,
    /// Right's part of `a`; of no words if the value is shared.
    a_right: Sample,
    /// Left's share of the highest bits of `hi`, and their number.
    bits: Sample,
    sent: u32,
    /// Left's shares of `na` and of the carry of the rounded parts.
    e: Sample,
    g: Sample,
    /// Masks of the evaluators' fields.
    masks: [Sample; 2],
}

/// What an evaluator knows of the dealer's part: its part of `a`, and at right its shares of `na` and of the carry.
pub(crate) enum CheckedMessage<T> {
    Left { a: T },
    Right { a: T, e: T, g: T },
}

/// Divides a value of `n` words.
pub(crate) async fn truncate_checked<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    t: u32,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, None);
    let truncation = CheckedTruncation::sample(&mut p, &split, n, t, 64 - t);
    p.owe({
        let split = split.clone();
        let truncation = truncation.clone();
        move |transcript| truncation.relations(transcript, &split)
    });
    if p.deals() {
        let (result, _) = truncation.deal(&p, split, &slot)?;
        return Ok(result);
    }
    let shared = split.shared(&p);
    let half = split.send(&p)?;
    let dealt = truncation.read(&p, shared, &p.dealt().await)?;
    let halves = half.exchange(&p).await?;
    truncation.finish(&p, halves, dealt, &slot).await
}

impl CheckedTruncation {
    /// For `n` words, of which `t` bits are dropped; `sent` bits of `hi` are shared here, the others elsewhere.
    pub fn sample<E: Engine>(
        p: &mut Port<'_, E>,
        split: &Split<E::Tensor>,
        n: usize,
        t: u32,
        sent: u32,
    ) -> Self {
        let of_product = if split.shared(p).is_some() { 0 } else { n };
        Self {
            n,
            t,
            a_right: p.sample(Key::Right, of_product),
            bits: p.sample(Key::Left, sent as usize * n.div_ceil(64)),
            sent,
            e: p.sample(Key::Left, n),
            g: p.sample(Key::Left, n),
            masks: p.sample_both(n),
        }
    }

    /// The dealer's work: its two components of the result, and `hi`.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        split: Split<E::Tensor>,
        slot: &Slot<E::Tensor>,
    ) -> Result<(Pair<E::Tensor>, E::Tensor)> {
        let Self { n, t, sent, .. } = *self;
        let shared = split.shared(p);
        let a = split.dealer(p)?;
        let [m_left, m_right] = self.masks.map(|mask| p.words_of(mask));
        let sources = [
            whole(&a),
            shared.as_ref().map_or_else(|| p.words_of(self.a_right), whole),
            p.words_of(self.e),
            p.words_of(self.g),
            m_left,
            m_right,
        ];
        let places = [slot.first(), slot.second(), None, None, None, None];
        let [y0, y1, a_left, hi, e, g] =
            p.words_into(&CheckedDealer { t }, n, sources, &[], places)?;
        if shared.is_none() {
            p.to_left(&a_left)?;
        }
        let bits = p.engine.to_planes(&hi, 64 - t - sent, sent)?;
        let masks = made(p.engine, bits.shape(), p.words_of(self.bits))?;
        p.to_right(&p.map(&Xor, [&bits, &masks], &[])?)?;
        p.bits_to_right(&e, t)?;
        p.bits_to_right(&g, t)?;
        Ok((Pair(y0, y1), hi))
    }

    /// An evaluator reads the dealer's message. Of a value that is shared it has its part of `a`.
    pub fn read<E: Engine>(
        &self,
        p: &Port<'_, E>,
        shared: Option<E::Tensor>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<CheckedMessage<E::Tensor>> {
        let Self { n, t, sent, .. } = *self;
        if p.is_left() {
            let a = shared.map_or_else(|| dealt.words(n), Ok)?;
            return Ok(CheckedMessage::Left { a });
        }
        let a = shared.map_or_else(|| p.tensor_of(self.a_right), Ok)?;
        // Only the statements read these.
        dealt.planes(sent as usize, n.div_ceil(64))?;
        Ok(CheckedMessage::Right { a, e: dealt.bits(n, t, 0)?, g: dealt.bits(n, t, 0)? })
    }

    /// An evaluator's two components of the result, given both halves of `b`.
    pub async fn finish<E: Engine>(
        &self,
        p: &Port<'_, E>,
        halves: Halves<E::Tensor>,
        dealt: CheckedMessage<E::Tensor>,
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let Self { n, t, .. } = *self;
        let [own, other] = halves.words(p);
        let m = p.words_of(p.own(self.masks));
        let [e, g, a] = match &dealt {
            CheckedMessage::Left { a } => [p.words_of(self.e), p.words_of(self.g), whole(a)],
            CheckedMessage::Right { a, e, g } => [whole(e), whole(g), whole(a)],
        };
        let sources = [own, other, e, g, m, a];
        let places = [None, None, slot.shared(p.role())];
        let [partial, field, shared] =
            p.words_into(&CheckedEvaluator { t }, n, sources, &[p.if_left()], places)?;
        p.bits_to_peer(&field, t)?;
        let field = p.received().await.bits(n, t, 64 - t)?;
        let joint = p.sum_into(&partial, &field, slot.joint(p.role()))?;
        Ok(p.pair(shared, joint))
    }
}

// -- what is owed --------------------------------------------------------------------------------

/// The dealer's messages about a truncation, as the evaluators' shares.
pub(super) struct StatedMessages {
    a: Shared<Words>,
    /// The highest bits of `hi`.
    pub bits: Shared<Bits>,
    e: Shared<Bits>,
    g: Shared<Bits>,
}

impl CheckedTruncation {
    /// The relations that all owe.
    fn relations<E: Engine>(
        &self,
        transcript: &mut Transcript<'_, E>,
        split: &Split<E::Tensor>,
    ) -> Result<()> {
        let messages = self.messages(transcript, split)?;
        let (b, _) = self.rounding(transcript, split, &messages, &messages.bits)?;
        self.fields(transcript, &messages, &b)
    }

    /// The dealer's messages.
    pub(super) fn messages<E: Engine>(
        &self,
        transcript: &mut Transcript<'_, E>,
        split: &Split<E::Tensor>,
    ) -> Result<StatedMessages> {
        let Self { n, t, sent, .. } = *self;
        let bits =
            [transcript.sample(self.bits), transcript.dealt_right(sent as usize, n.div_ceil(64))?];
        let e = transcript.bits_of(self.e, t)?;
        let g = transcript.bits_of(self.g, t)?;
        let a = split.parts(transcript, self.a_right)?;
        Ok(StatedMessages { a, bits, e, g })
    }

    /// The relations that all owe for their parts of the value and the dealer for its rounding, given the evaluators' shares of all
    /// bits of `hi`. Gives the rounded `b`, with the offset, and the top bit of `hi`.
    pub(super) fn rounding<E: Engine>(
        &self,
        transcript: &mut Transcript<'_, E>,
        split: &Split<E::Tensor>,
        StatedMessages { a, e, g, .. }: &StatedMessages,
        h: &Shared<Bits>,
    ) -> Result<(Words, Bits)> {
        let Self { n, t, .. } = *self;
        let b = split.relations(transcript, n, a.each_ref())?;
        let (_, top) = rounding_relations(transcript, (n, t), a, [h, e, g])?;
        Ok((rounded(&b, t), top))
    }

    /// The rounded `b` less the offset and one unit, as it is compared.
    pub(super) fn compared(&self, b: &Words) -> Words {
        b.map(|b| b.wrapping_sub((1 << 62 >> self.t) + 1))
    }

    /// The relations that the evaluators owe for their fields, given the rounded `b`: a choice by `nb` between two words that each has
    /// in common with the dealer.
    pub(super) fn fields<E: Engine>(
        &self,
        transcript: &mut Transcript<'_, E>,
        StatedMessages { e, g, .. }: &StatedMessages,
        b: &Words,
    ) -> Result<()> {
        let Self { n, t, .. } = *self;
        let nb = not_top(b, t).planes(0, 1);
        let fields: [Bits; 2] = transcript.exchanged(t as usize, n.div_ceil(64))?;
        for (at, role) in [Role::Left, Role::Right].into_iter().enumerate() {
            let [e, g] = [e, g].map(|shares| shares[at].words(n));
            let mask: Words = transcript.sample(self.masks[at]);
            let without = mask.map(|mask| mask >> (64 - t)) - g;
            let with = (&without + e).planes(0, t);
            let without = without.planes(0, t);
            let chosen = &without + (&without + with) * &nb;
            transcript.bits(role, t as usize, n, &(chosen + &fields[at]))?;
        }
        Ok(())
    }
}

/// The relations that the dealer owes for the rounding of `a` by `t` bits: the bits `h` of the sum of the rounded parts, and as words
/// modulo `2^t` the complement `e` of its top bit and its carry `g`. Gives the rounded parts and the top bit.
pub(super) fn rounding_relations<E: Engine>(
    transcript: &mut Transcript<'_, E>,
    (n, t): (usize, u32),
    [left, right]: &Shared<Words>,
    [h, e, g]: [&Shared<Bits>; 3],
) -> Result<(Shared<Words>, Bits)> {
    let w = 64 - t;
    let cols = n.div_ceil(64);
    let low = u64::MAX >> w;
    let left = left.map(|word| word >> t);
    let right = right.map(|word| ((word >> t) + u64::from(word & low != 0)) & (u64::MAX >> t));
    let carry = adder(transcript, n, h, &[left.planes(0, w), right.planes(0, w)])?;
    let top = h.each_ref().map(|h| h.picked(cols, [w as usize - 1])).into_iter().sum();
    bit_as_word(transcript, n, e, &(&top + Bits::one(cols)))?;
    bit_as_word(transcript, n, g, &carry)?;
    Ok(([left, right], top))
}

/// `b` and the offset, rounded to nearest, ties to even, modulo `2^(64 - t)`.
pub(super) fn rounded(b: &Words, t: u32) -> Words {
    b.map(|b| {
        let b = b.wrapping_add(1 << 62);
        let low = b & (u64::MAX >> (64 - t));
        let odd = b >> t & 1;
        ((b >> t) + u64::from(low + odd > 1 << (t - 1))) & (u64::MAX >> t)
    })
}

/// The complement of a rounded word's top bit.
pub(super) fn not_top(hi: &Words, t: u32) -> Words {
    hi.map(|hi| !(hi << t) >> 63)
}

/// The rounded `b` less the offset and a carry.
pub(super) fn base(hi: &Words, t: u32) -> Words {
    hi.map(|hi| hi.wrapping_sub((1 << (64 - t)) + (1 << 62 >> t)))
}
