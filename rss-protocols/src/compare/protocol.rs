//! One comparison of one chunk, and the words that it selects.
//!
//! `a + b` with `a = x0 + x1` known to the dealer and `b = x2` to both evaluators: the top bit of the low `w` bits is
//! `a_msb ^ b_msb ^ carry` of the bits below. [`crate::circuit`] computes the carry. The outcome is opened to the
//! evaluators as `v`, masked by the dealer's `u`.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | the circuit's message; `u - x0` to left if the bit is shared; what [`select`](super::select) deals | | |
//! | one a level | | factors of products to right | factors of products to left |
//! | next | | its share of the outcome, masked, to right | the same, to left |
//! | last | | what is selected: addends | addends |

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor};

use super::select::{MaskShare, MaskWords, Selected, Selection, Stated, words};
use crate::{
    circuit::{
        evaluate::{CircuitMessage, Evaluation},
        relations::StatedCodes,
        schedule::{Circuit, Predicate},
    },
    kernels::{OpenDealer, Shift, Xor, Xor3},
    proofs::{Bits, Transcript, Words, adder},
    runtime::{
        launch::{made, plane_of, planes, slice, to_plane},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port},
    },
    share::reusable::OpenedBit,
};

/// Added to `b` in a test for zero: `a + b = 0` exactly if `a = ~(b - 1)`.
const LESS: u64 = u64::MAX;

/// The planes of two words that are compared.
#[derive(Clone)]
pub(crate) struct Comparison {
    pub circuit: Arc<Circuit>,
    /// The plane above the circuit's, whose two bits are added to the carry.
    pub top: bool,
    /// Bits of the dealer's words below those that count.
    pub low: u32,
}

/// The samples of a comparison whose outcome is opened to the evaluators under a mask of the dealer.
#[derive(Clone)]
pub(crate) struct MaskedBit {
    comparison: Comparison,
    evaluation: Evaluation,
    cols: usize,
    masks: [Sample; 2],
}

/// Right's share of the dealer's mask, for an outcome that becomes a shared bit.
#[derive(Clone, Copy)]
pub(crate) struct SharedMask(Sample);

impl Comparison {
    /// Bits of words that are read.
    fn width(&self) -> u32 {
        (self.circuit.bits + usize::from(self.top)) as u32
    }
}

impl MaskedBit {
    /// For `n` elements.
    pub fn sample<E: Engine>(p: &mut Port<'_, E>, comparison: Comparison, n: usize) -> Self {
        let cols = n.div_ceil(64);
        let evaluation = Evaluation::sample(comparison.circuit.clone(), p, cols);
        Self { comparison, evaluation, cols, masks: p.sample_both(cols) }
    }

    /// The dealer's work: the plane of its mask `u`.
    pub fn deal<E: Engine>(&self, p: &Port<'_, E>, a: &E::Tensor) -> Result<E::Tensor> {
        let Comparison { circuit, top, low } = &self.comparison;
        let cols = self.cols;
        let a = p.engine.to_planes(a, *low, self.comparison.width())?;
        let part = self.evaluation.deal(p, &a)?;
        let part = part.as_ref().map_or(p.zero(), |part| plane_of(part, 0, 0, cols));
        let top = if *top { plane_of(&a, circuit.bits, 0, cols) } else { p.zero() };
        let [m, n] = self.masks.map(|mask| p.words_of(mask));
        let targets = vec![to_plane(0, 0, 0, cols)];
        let [u] =
            planes(p.engine, &OpenDealer, [1, cols], vec![part, top, m, n], &[], [1], targets)?;
        Ok(u)
    }

    /// An evaluator reads the dealer's message.
    pub fn read<E: Engine>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<CircuitMessage<E::Tensor>> {
        self.evaluation.read(p.role(), dealt)
    }

    /// The evaluators' work, given the words of `b`: the plane of `v`.
    pub async fn open<E: Engine>(
        &self,
        p: &Port<'_, E>,
        message: CircuitMessage<E::Tensor>,
        b: E::Tensor,
    ) -> Result<E::Tensor> {
        let Comparison { circuit, top, .. } = &self.comparison;
        let (cols, bits) = (self.cols, circuit.bits);
        let planes_of_b = p.engine.to_planes(&b, 0, self.comparison.width())?;
        drop(b);
        // b's top bit belongs to the outcome; only one of the two adds it.
        let top = if *top && p.is_left() {
            Some(slice(p.engine, &planes_of_b, 0, bits, bits + 1)?)
        } else {
            None
        };
        let share = self.evaluation.evaluate(p, message, planes_of_b).await?;
        let top = top.as_ref().map_or(p.zero(), |top| plane_of(top, 0, 0, cols));
        let sources = vec![plane_of(&share, 0, 0, cols), top, p.words_of(p.own(self.masks))];
        let targets = vec![to_plane(0, 0, 0, cols)];
        let [own] = planes(p.engine, &Xor3, [1, cols], sources, &[], [1], targets)?;
        p.to_peer(&own)?;
        let other = p.received().await.planes(1, cols)?;
        p.map(&Xor, [&own, &other], &[])
    }
}

impl SharedMask {
    /// For `n` elements.
    pub fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize) -> Self {
        Self(p.sample(Key::Right, n.div_ceil(64)))
    }

    fn right<E: Engine>(self, p: &Port<'_, E>) -> Result<E::Tensor> {
        let plane = ring_arith::Shape::new([1, self.0.len()])?;
        Ok(made(p.engine, &plane, p.words_of(self.0))?)
    }

    /// The dealer's two components of the bit: its mask in two.
    pub fn deal<E: Engine>(self, p: &Port<'_, E>, u: &E::Tensor) -> Result<Pair<E::Tensor>> {
        let right = self.right(p)?;
        let left = p.map(&Xor, [u, &right], &[])?;
        p.to_left(&left)?;
        Ok(Pair(right, left))
    }

    /// An evaluator's component in common with the dealer.
    pub fn read<E: Engine>(
        self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<E::Tensor> {
        if p.is_left() { dealt.planes(1, self.0.len()) } else { self.right(p) }
    }
}

/// The results that are wanted of a comparison.
pub(crate) struct Purpose<T: EngineTensor> {
    /// The outcome as a shared bit.
    pub bit: bool,
    pub selected: Vec<Selected<T>>,
}

/// The results of a comparison of one chunk.
pub(crate) struct Outcome<T> {
    pub bit: Option<OpenedBit<T>>,
    /// The role's two components of each word.
    pub words: Vec<Pair<T>>,
}

/// Compares `a + b` with 0, or with the half of its range: see [`Predicate`].
pub(crate) async fn compare<E: Engine>(
    mut p: Port<'_, E>,
    x: Pair<E::Tensor>,
    circuit: Arc<Circuit>,
    Purpose { bit, selected }: Purpose<E::Tensor>,
) -> Result<Outcome<E::Tensor>> {
    let zero_test = circuit.predicate == Predicate::Equal;
    let comparison = Comparison { circuit, top: !zero_test, low: 0 };
    let samples = CompareSamples::sample(&mut p, comparison, x.0.len(), bit, selected.len());
    samples.owe(&p, &x, &selected);
    if p.deals() {
        return samples.deal(&p, &p.dealers(&x)?, &selected);
    }
    let dealt = samples.read(&p, &p.dealt().await, words(&selected))?;
    let less = LESS;
    mutant!("zero test: of b instead of b - 1", less = 0);
    let b = if zero_test { p.map(&Shift, [p.joint(&x)], &[less])? } else { p.joint(&x).clone() };
    samples.evaluate(&p, dealt, b, &selected).await
}

/// The samples of a comparison and of the uses of its outcome.
#[derive(Clone)]
pub(crate) struct CompareSamples<T> {
    n: usize,
    sign: MaskedBit,
    bit: Option<SharedMask>,
    /// Of no words unless something is selected.
    u: MaskWords<T>,
    selection: Selection,
}

/// The dealer's message to an evaluator.
pub(crate) struct CompareMessage<T> {
    circuit: CircuitMessage<T>,
    bit: Option<T>,
    u: MaskShare<T>,
    products: Vec<T>,
}

impl<T: EngineTensor> CompareSamples<T> {
    /// For `n` elements and `words` selected words; with the outcome as a shared bit if `bit`.
    pub fn sample<E: Engine<Tensor = T>>(
        p: &mut Port<'_, E>,
        comparison: Comparison,
        n: usize,
        bit: bool,
        words: usize,
    ) -> Self {
        let sign = MaskedBit::sample(p, comparison, n);
        let bit = bit.then(|| SharedMask::sample(p, n));
        let u = MaskWords::sample(p, if words > 0 { n } else { 0 });
        Self { n, sign, bit, u, selection: Selection::sample(p, n, words) }
    }

    /// The dealer's work.
    pub fn deal<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        a: &T,
        selected: &[Selected<T>],
    ) -> Result<Outcome<T>> {
        let known = self.sign.deal(p, a)?;
        let components = self.bit.map(|bit| bit.deal(p, &known)).transpose()?;
        let mut words = Vec::new();
        let mut share = None;
        if !selected.is_empty() {
            let u = p.bits_as_words(&known, self.n)?;
            share = Some(self.u.deal(p, &u)?);
            words = self.selection.deal(p, &u, selected)?;
        }
        let bit = components.map(|components| OpenedBit { components, known, share });
        Ok(Outcome { bit, words })
    }

    /// An evaluator reads the dealer's message about `words` selected words.
    pub fn read<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
        words: usize,
    ) -> Result<CompareMessage<T>> {
        Ok(CompareMessage {
            circuit: self.sign.read(p, dealt)?,
            bit: self.bit.map(|bit| bit.read(p, dealt)).transpose()?,
            u: self.u.read(p.role(), dealt)?,
            products: self.selection.read(p.role(), dealt, words)?,
        })
    }

    /// The evaluators' work.
    pub async fn evaluate<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        CompareMessage { circuit, bit, u, products }: CompareMessage<T>,
        b: T,
        selected: &[Selected<T>],
    ) -> Result<Outcome<T>> {
        let known = self.sign.open(p, circuit, b).await?;
        let mut words = Vec::new();
        if !selected.is_empty() {
            let v = p.bits_as_words(&known, self.n)?;
            words = self.selection.select(p, &u, products, v, selected).await?;
        }
        let bit = match bit {
            Some(shared) => {
                let share = if selected.is_empty() { None } else { Some(u.for_reuse(p)?) };
                Some(OpenedBit { components: p.pair(shared, known.clone()), known, share })
            }
            None => None,
        };
        Ok(Outcome { bit, words })
    }
}

// -- what is owed --------------------------------------------------------------------------------

/// An opened bit: the dealer's `u`, which may have products, and the evaluators' `v`.
pub(crate) struct StatedBit {
    pub u: Bits,
    pub v: Bits,
}

impl MaskedBit {
    /// The relations that the dealer owes for its codes of the bits of `a`.
    pub fn code_relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
    ) -> Result<StatedCodes> {
        self.evaluation.code_relations(t, n)
    }

    /// The same for an `a` of which the evaluators hold the parts: its bits are the codes'. Gives its top bit too.
    pub fn bits_of_sum<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        a: [&Words; 2],
    ) -> Result<(StatedCodes, Bits)> {
        let bits = self.comparison.circuit.bits as u32;
        let codes = self.code_relations(t, n)?;
        let carry = adder(t, n, &codes.bits, &a.map(|part| part.planes(0, bits)))?;
        let top = if self.comparison.top {
            let [left, right] = a.map(|part| part.planes(bits, 1));
            carry + left + right
        } else {
            Bits::zero()
        };
        Ok((codes, top))
    }

    /// The relations that all owe for the circuit and the opening, given the codes and the top bit of `a`, and `b`.
    pub fn relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        n: usize,
        (codes, top): (&StatedCodes, Bits),
        b: &Words,
    ) -> Result<StatedBit> {
        let bits = self.comparison.circuit.bits;
        let planes = b.planes(0, self.comparison.width());
        let result = self.evaluation.relations(t, n, codes, &planes)?;
        let [left, right] = result.evaluators;
        let left = if self.comparison.top { left + planes.picked(self.cols, [bits]) } else { left };
        let masks: [Bits; 2] = t.samples(self.masks);
        let sent = t.exchanged(1, self.cols)?;
        t.bits(Role::Left, 1, n, &(left + &masks[0] + &sent[0]))?;
        t.bits(Role::Right, 1, n, &(right + &masks[1] + &sent[1]))?;
        let [of_left, of_right] = masks;
        let [left, right] = sent;
        Ok(StatedBit { u: result.dealer + top + of_left + of_right, v: left + right })
    }
}

impl SharedMask {
    /// The relations that the dealer owes for the shares of its mask.
    pub fn relations<E: Engine>(self, t: &mut Transcript<'_, E>, n: usize, u: &Bits) -> Result<()> {
        let left: Bits = t.dealt_left(1, self.0.len())?;
        t.bits(Role::Dealer, 1, n, &(left + t.sample::<_>(self.0) + u))
    }
}

impl<T: EngineTensor> CompareSamples<T> {
    /// Keeps what all owe for the comparison of a shared value.
    pub fn owe<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        x: &Pair<T>,
        selected: &[Selected<T>],
    ) {
        let stated: Vec<_> = selected.iter().map(Selected::stated).collect();
        let samples = self.clone();
        let x = x.clone();
        p.owe(move |t| samples.relations(t, &x, &stated));
    }

    fn relations<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        x: &Pair<T>,
        selected: &[Stated<T>],
    ) -> Result<()> {
        let n = self.n;
        let [x0, x1, b] = t.components(x)?;
        let zero_test = self.sign.comparison.circuit.predicate == Predicate::Equal;
        let b = if zero_test { b.map(|b| b.wrapping_add(LESS)) } else { b };
        let (codes, top) = self.sign.bits_of_sum(t, n, [&x1, &x0])?;
        let StatedBit { u, v } = self.sign.relations(t, n, (&codes, top), &b)?;
        self.uses(t, &StatedBit { u, v }, selected).map(drop)
    }

    /// The relations that all owe for the uses of the outcome. Gives the components of each selected word.
    fn uses<E: Engine<Tensor = T>>(
        &self,
        t: &mut Transcript<'_, E>,
        StatedBit { u, v }: &StatedBit,
        selected: &[Stated<T>],
    ) -> Result<Vec<[Words; 3]>> {
        if let Some(bit) = self.bit {
            bit.relations(t, self.n, u)?;
        }
        if selected.is_empty() {
            return Ok(Vec::new());
        }
        let k = self.u.relations(t, self.n, u)?;
        self.selection.relations(t, &k, v, selected)
    }
}
