//! Exact products, and their division by a power of two in two rounds.
//!
//! `z = a + b` as in [`super::split`]. With the offset `2^62`, `a + b` carries exactly unless both top bits are 0:
//! `carry = 1 - not_a_msb not_b_msb`. The result is `floor(z / 2^t)`, or one more with probability exactly the
//! fraction. Large errors cannot occur, unlike in the local truncation of ABY3 and CryptGPU.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `(a >> t) - y0` to left; `not_a_msb - e` modulo `2^t` to right | its half of `b` to right | its half of `b` to left |
//! | 2 | | its share of `not_a_msb not_b_msb` modulo `2^t`, masked, to right | the same, to left |
//!
//! Component 2 is `ceil(b / 2^t) - 2^(64 - t) carry - 2^(62 - t)`. Dealt and probabilistic: "Security" in the
//! crate's front page states what the rounding depends on.

use mpc_core::Result;
use ring_arith::Engine;

use super::{
    split::{Half, Halves, Split, Value},
    truncate_checked::truncate_checked,
};
use crate::{
    kernels::{AbyDealer, AbyShift, Difference, EarlyEvaluator, RoundDealer, RoundEvaluator},
    proofs::Transcript,
    runtime::{
        launch::whole,
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Incoming, Port},
    },
    share::output::Slot,
};

/// The rounding of a value that is split in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// It is shared unchanged. 192 bits.
    Raw,
    /// Floor or floor + 1. 192 + 3t bits.
    Default(u32),
    /// The halves are rounded before they are sent. 192 + t bits.
    Early(u32),
    /// Three roundings; every message can be proven. 256 + 3t bits.
    Checked(u32),
    /// Each side shifts alone, and wrongly if the sum carries. 192 bits.
    Aby(u32),
}

/// Shares a value of `n` words, rounded.
pub(crate) async fn round<E: Engine>(
    p: Port<'_, E>,
    value: Value<E::Tensor>,
    rounding: Rounding,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    match rounding {
        Rounding::Raw => reshare(p, value, n, slot).await,
        Rounding::Default(t) => truncate(p, value, t, false, n, slot).await,
        Rounding::Early(t) => truncate(p, value, t, true, n, slot).await,
        Rounding::Checked(t) => truncate_checked(p, value, t, n, slot).await,
        Rounding::Aby(t) => truncate_aby3(p, value, t, n, slot).await,
    }
}

/// Shares a product unchanged: the dealer sends left `a - y0`, the evaluators exchange their halves of
/// `b`.
async fn reshare<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, None);
    let y0 = p.sample(Key::Right, n);
    p.owe({
        let split = split.clone();
        move |t| reshare_relations(t, &split, y0)
    });
    if p.deals() {
        let a = split.dealer(&p)?;
        let y0 = p.tensor_into(y0, slot.first())?;
        let sources = [whole(&a), whole(&y0)];
        let [y1] = p.words_into(&Difference, n, sources, &[], [slot.second()])?;
        p.to_left(&y1)?;
        return Ok(Pair(y0, y1));
    }
    let half = split.send(&p)?;
    let shared = component(&p, &p.dealt().await, y0, &slot)?;
    let joint = half.exchange(&p).await?.sum(&p, slot.joint(p.role()))?;
    Ok(p.pair(shared, joint))
}

/// The relations that all owe for [`reshare`]: the dealer its part less `y0`, the evaluators their halves.
fn reshare_relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    split: &Split<E::Tensor>,
    y0: Sample,
) -> Result<()> {
    let n = y0.len();
    let y1 = t.dealt_left(1, n)?;
    split.relations(t, n, [&y1, &t.sample(y0)]).map(drop)
}

/// The component that an evaluator shares with the dealer: left's was sent, right's is a sample.
fn component<E: Engine>(
    p: &Port<'_, E>,
    dealt: &Incoming<'_, '_, E>,
    y0: Sample,
    slot: &Slot<E::Tensor>,
) -> Result<E::Tensor> {
    if p.is_left() { dealt.words(y0.len()) } else { p.tensor_into(y0, slot.second()) }
}

/// The local truncation of ABY3, which is wrong where `a + b` carries.
async fn truncate_aby3<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    t: u32,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, None);
    let y0 = p.sample(Key::Right, n);
    if p.deals() {
        let a = split.dealer(&p)?;
        let [y0, y1] = p.words(&AbyDealer { t }, n, [whole(&a), p.words_of(y0)], &[])?;
        p.to_left(&y1)?;
        return Ok(Pair(y0, y1));
    }
    let half = split.send(&p)?;
    let shared = component(&p, &p.dealt().await, y0, &slot)?;
    let b = half.exchange(&p).await?.sum(&p, None)?;
    let joint = p.map(&AbyShift { t }, [&b], &[])?;
    Ok(p.pair(shared, joint))
}

/// `z / 2^t`, rounded up or down; if `early`, from halves that are rounded before they are sent.
async fn truncate<E: Engine>(
    mut p: Port<'_, E>,
    value: Value<E::Tensor>,
    t: u32,
    early: bool,
    n: usize,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let split = Split::sample(&mut p, value, n, early.then_some(t));
    let truncation = Truncation::sample(&mut p, n, t);
    if p.deals() {
        return truncation.deal(&p, &split.dealer(&p)?, &slot);
    }
    let half = split.send(&p)?;
    let dealt = truncation.read(&p, &p.dealt().await)?;
    truncation.finish(&p, half, dealt, &slot).await
}

/// The samples of a truncation of `n` words by `t` bits.
pub(crate) struct Truncation {
    n: usize,
    t: u32,
    /// Left's share of `not_a_msb`.
    e: Sample,
    /// Masks of the evaluators' fields.
    m_left: Sample,
    m_right: Sample,
    /// Component 0 of the result, but for its high bits.
    y0: Sample,
}

impl Truncation {
    pub fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize, t: u32) -> Self {
        let e = p.sample(Key::Left, n);
        // The low and the high bits of one word, unless they overlap.
        let apart = t <= 32;
        mutant!("truncation: both ends of a word for fields that meet", apart = true);
        let m_left = if apart { e } else { p.sample(Key::Left, n) };
        let m_right = p.sample(Key::Right, n);
        Self { n, t, e, m_left, m_right, y0: p.sample(Key::Right, n) }
    }

    /// The dealer's work: its two components of the result.
    pub fn deal<E: Engine>(
        &self,
        p: &Port<'_, E>,
        a: &E::Tensor,
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let [e, m_left, y0, m_right] =
            [self.e, self.m_left, self.y0, self.m_right].map(|sample| p.words_of(sample));
        let sources = [whole(a), e, m_left, y0, m_right];
        let places = [slot.first(), slot.second(), None, None];
        let lead = RoundDealer { t: self.t };
        let [c0, c1, y1, e] = p.words_into(&lead, self.n, sources, &[], places)?;
        p.bits_to_right(&e, self.t)?;
        p.to_left(&y1)?;
        Ok(Pair(c0, c1))
    }

    /// An evaluator reads the dealer's message: at left the component that it shares with the dealer, at right its
    /// share of `not_a_msb`.
    pub fn read<E: Engine>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<E::Tensor> {
        if p.is_left() { dealt.words(self.n) } else { dealt.bits(self.n, self.t, 0) }
    }

    /// An evaluator's two components of the result, once its half of `b` is sent.
    pub async fn finish<E: Engine>(
        &self,
        p: &Port<'_, E>,
        half: Half<E::Tensor>,
        dealt: E::Tensor,
        slot: &Slot<E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let Self { n, t, .. } = *self;
        let b = half.exchange(p).await?;
        let [partial, field, shared] = self.fields(p, &b, &dealt, slot)?;
        // Otherwise all chunks' unneeded words would fill the caches.
        drop((b, dealt));
        p.bits_to_peer(&field, t)?;
        drop(field);
        let field = p.received().await.bits(n, t, 64 - t)?;
        let joint = p.sum_into(&partial, &field, slot.joint(p.role()))?;
        Ok(p.pair(shared, joint))
    }

    /// The part of component 2 that is known here, the masked field for the peer, and the component shared with
    /// the dealer.
    fn fields<E: Engine>(
        &self,
        p: &Port<'_, E>,
        b: &Halves<E::Tensor>,
        dealt: &E::Tensor,
        slot: &Slot<E::Tensor>,
    ) -> Result<[E::Tensor; 3]> {
        let Self { n, t, .. } = *self;
        let [own, other] = b.words(p);
        let [e, m, y] = if p.is_left() {
            [p.words_of(self.e), p.words_of(self.m_left), whole(dealt)]
        } else {
            [whole(dealt), p.words_of(self.m_right), p.words_of(self.y0)]
        };
        let sources = [own, other, e, m, y];
        let places = [None, None, slot.shared(p.role())];
        if b.rounded() {
            p.words_into(&EarlyEvaluator { t }, n, sources, &[], places)
        } else {
            p.words_into(&RoundEvaluator { t }, n, sources, &[], places)
        }
    }
}
