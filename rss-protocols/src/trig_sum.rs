//! Sums of sines and cosines.
//!
//! A word is `a + b`, `a` known to the dealer and `b` to both evaluators. For an angle `w x`,
//! `cos(w x) = cos(w a) cos(w b) - sin(w a) sin(w b)`: linear in what the dealer knows. It shares `cos(w a)` and `sin(w a)`
//! between the evaluators, which multiply by what they know of `b`. A turn is `2^64`, so overflow does not matter, and
//! any number of terms takes one message. The sum is truncated as a product is. Meanwhile the word is compared with both
//! ends, and the lines outside of them are selected in one exchange.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | for each term the sine's share to left, the cosine's to right; the truncation's; both comparisons'; `u` and `u a` of both | | |
//! | 2 | | its half of the sum to right | the same to left |
//! | 3 | | the carry's share, masked, to right | the same, to left |
//! | 2 to 4 or 5 | | the comparisons' | the comparisons' |
//! | last | | its addend of what is selected, to right | the same, to left |
//!
//! A share of a term has as many bits as matter in the sum: fewer for small factors.

use std::sync::Arc;

use mpc_core::{
    Ends, Line, Result, ShareTensor, TrigSum, TrigTerm, TruncationMode,
    angles::{dealt_bits, share_bits},
};
use ring_arith::{Engine, EngineTensor, Shape, Source, Tensor};

use crate::{
    Rss, Share,
    circuit::{evaluate::CircuitMessage, schedule::Predicate},
    compare::{
        Comparison, MaskedBit,
        select::{MaskShare, MaskWords},
    },
    kernels::{
        Combine, Distance, Negate, SelectDealer, SelectEvaluator, Sum, TrigDealer, TrigEvaluator,
    },
    product::{
        split::{LocalProduct, Split},
        truncate::Truncation,
    },
    runtime::{
        launch::{add, whole},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Incoming, Port, Rounds, both},
    },
    share::output::Slot,
};

impl<E: Engine> Rss<E> {
    /// A sum of sines and cosines of words of a width; `None` where it has no form: if messages must be proven, or
    /// roundings are not the protocol's own.
    pub(crate) fn trig_sum_of(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        function: &TrigSum,
    ) -> Result<Option<Share<E::Tensor>>> {
        // Of sines there are no relations.
        let modes = [self.options.truncation, function.mode];
        let is_own = |mode| matches!(mode, TruncationMode::Default | TruncationMode::Early);
        if !modes.into_iter().all(is_own) || self.is_checked() {
            return Ok(None);
        }
        function.check()?;
        let ends = function.ends.filter(|ends| !ends.hold(width)).map(|ends| {
            let reach =
                ends.at.map(|end| 65 - (end.unsigned_abs() + (1 << ends.slack)).leading_zeros());
            let width = (width.max(reach[0]).max(reach[1]) + 1).min(64);
            mutant!("trig sum: distances a bit short", width = width - 1);
            let bits = (width - ends.slack) as usize;
            let circuit = self.circuit(Predicate::Carry, bits - 1, x.shape().len());
            (ends, Comparison { circuit, top: true, low: ends.slack })
        });
        let function = Arc::new(function.clone());
        let chunks = self.chunks(x.shape().len());
        let words = self.flat_pair(x)?;
        let output = self.outputs(chunks, x.shape().clone(), 1);
        let mut rounds = Rounds::new();
        for chunk in &output.chunks {
            let p = self.port(chunk);
            let x = self.chunk_of(&words, chunk)?;
            let slot = output.slots(chunk).pop().unwrap_or_else(Slot::anywhere);
            rounds.add(p.role(), trig_sum(p, x, chunk.len(), function.clone(), ends.clone(), slot));
        }
        output.share(&self.engine, rounds.run(&self.links)?).map(Some)
    }
}

/// The function of the `n` words of one chunk.
async fn trig_sum<E: Engine>(
    mut p: Port<'_, E>,
    x: Pair<E::Tensor>,
    n: usize,
    function: Arc<TrigSum>,
    ends: Option<(Ends, Comparison)>,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let terms = Terms::sample(&mut p, n, function.clone());
    let masks = p.sample_both(n);
    let truncation = Truncation::sample(&mut p, n, function.drop);
    let outside = ends.map(|(ends, comparison)| Outside::sample(&mut p, n, ends, comparison));
    let split = |part| Split::Masked {
        addend: LocalProduct::Made { part, plus: None, stated: None },
        masks,
        early: (function.mode == TruncationMode::Early).then_some(function.drop),
    };
    let (slot, inside_slot) = match outside {
        Some(_) => (slot, Slot::anywhere()),
        None => (Slot::anywhere(), slot),
    };

    if p.deals() {
        let a = p.dealers(&x)?;
        terms.deal(&p, &a)?;
        let none = p.engine.upload(Tensor::zeros(Shape::new([n])?))?;
        let inside = truncation.deal(&p, &split(none).dealer(&p)?, &inside_slot)?;
        return match outside {
            Some(outside) => outside.deal(&p, &a, &x, inside, &slot),
            None => Ok(inside),
        };
    }

    let dealt = p.dealt().await;
    let shares = terms.read(&dealt)?;
    let of_truncation = truncation.read(&p, &dealt)?;
    let of_outside = outside.as_ref().map(|outside| outside.read(&p, &dealt)).transpose()?;
    let inside = async {
        let half = split(terms.evaluate(&p, &x, &shares)?).send(&p)?;
        drop(shares);
        truncation.finish(&p, half, of_truncation, &inside_slot).await
    };
    let (Some(outside), Some((messages, shares))) = (&outside, of_outside) else {
        return inside.await;
    };
    let (bits, inside) = both(&p, outside.compare(&p, messages, &x), inside).await?;
    outside.select(&p, shares, &bits, &x, inside, &slot).await
}

/// The shares of a function's terms.
struct Terms {
    n: usize,
    function: Arc<TrigSum>,
    /// For each term left's share of the dealer's cosines and right's of its sines.
    samples: Vec<[Sample; 2]>,
}

impl Terms {
    fn sample<E: Engine>(p: &mut Port<'_, E>, n: usize, function: Arc<TrigSum>) -> Self {
        let samples = function.terms.iter().map(|_| p.sample_both(n)).collect();
        Self { n, function, samples }
    }

    /// Each term, the bits of its shares that are sent, and its samples.
    fn each(&self) -> impl Iterator<Item = (&TrigTerm, u32, [Sample; 2])> {
        let TrigSum { terms, total, .. } = &*self.function;
        terms
            .iter()
            .zip(&self.samples)
            .map(|(term, &samples)| (term, share_bits(term, *total), samples))
    }

    fn deal<E: Engine>(&self, p: &Port<'_, E>, a: &E::Tensor) -> Result<()> {
        for (term, bits, samples) in self.each() {
            let [of_left, of_right] = samples.map(|sample| p.words_of(sample));
            let sources = [whole(a), of_left, of_right];
            let kernel = TrigDealer { t: dealt_bits(term) };
            let [cosine, sine] = p.words(&kernel, self.n, sources, &[term.turn])?;
            p.bits_to_right(&cosine, bits)?;
            p.bits_to_left(&sine, bits)?;
        }
        Ok(())
    }

    /// For each term the share that was sent: left's of sines, right's of cosines.
    fn read<E: Engine>(&self, dealt: &Incoming<'_, '_, E>) -> Result<Vec<E::Tensor>> {
        self.each().map(|(_, bits, _)| dealt.bits(self.n, bits, 0)).collect()
    }

    /// An evaluator's addend of the sum, before bits are dropped.
    fn evaluate<E: Engine>(
        &self,
        p: &Port<'_, E>,
        x: &Pair<E::Tensor>,
        shares: &[E::Tensor],
    ) -> Result<E::Tensor> {
        let b = p.joint(x);
        let mut sum = self.line(p, x)?;
        for ((term, bits, samples), share) in self.each().zip(shares) {
            let own = p.words_of(p.own(samples));
            let [cosine, sine] =
                if p.is_left() { [own, whole(share)] } else { [whole(share), own] };
            let sources = [whole(&sum), whole(b), cosine, sine];
            let params = [term.turn, term.cosine as u64, term.sine as u64];
            let kernel = TrigEvaluator { t: 64 - bits };
            let [next] = p.words(&kernel, self.n, sources, &params)?;
            sum = next;
        }
        Ok(sum)
    }

    /// An evaluator's addend of the line between the ends: of `a` it holds a component.
    fn line<E: Engine>(&self, p: &Port<'_, E>, x: &Pair<E::Tensor>) -> Result<E::Tensor> {
        let Line { constant, slope } = self.function.line;
        let (joint, constant) = if p.is_left() { (slope, constant) } else { (0, 0) };
        let sources = [whole(p.shared(x)), whole(p.joint(x)), p.zero(), p.zero()];
        let [line] = p.words(&Combine, self.n, sources, &[slope, joint, 0, 0, constant])?;
        Ok(line)
    }
}

/// The selection of the lines outside of the ends, less the value between them.
struct Outside<T> {
    n: usize,
    ends: Ends,
    sides: [Side<T>; 2],
    /// Of what is selected, the components that the dealer shares with left (1) and with right (0): masks of their addends.
    y: [Sample; 2],
}

/// The samples for one end: a bit that is 1 outside of it, its mask as words, and right's share of that mask's
/// product.
struct Side<T> {
    bit: MaskedBit,
    u: MaskWords<T>,
    d: Sample,
}

/// An evaluator's message about the comparisons, and its shares of masks and of their products; left's products are
/// sent, right's are samples.
type Messages<T> = [CircuitMessage<T>; 2];
type Shares<T> = [(MaskShare<T>, Option<T>); 2];

impl<T: EngineTensor> Outside<T> {
    fn sample<E: Engine<Tensor = T>>(
        p: &mut Port<'_, E>,
        n: usize,
        ends: Ends,
        comparison: Comparison,
    ) -> Self {
        let sides = [(); 2].map(|()| Side {
            bit: MaskedBit::sample(p, comparison.clone(), n),
            u: MaskWords::sample(p, n),
            d: p.sample(Key::Right, n),
        });
        Self { n, ends, sides, y: p.sample_both(n) }
    }

    /// The dealer's work: its components of the function's value.
    fn deal<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        a: &T,
        x: &Pair<T>,
        inside: Pair<T>,
        slot: &Slot<T>,
    ) -> Result<Pair<T>> {
        let minus = p.map(&Negate, [a], &[])?;
        for (side, (end, a)) in self.sides.iter().zip([a, &minus].into_iter().enumerate()) {
            let u = p.bits_as_words(&side.bit.deal(p, a)?, self.n)?;
            side.u.deal(p, &u)?;
            let Pair(x0, x1) = self.gain(p, end, x, &inside)?;
            let d = p.words_of(side.d);
            let sources = [whole(&u), whole(&x0), whole(&x1), d, p.zero(), p.zero()];
            let [left, ..] = p.words(&SelectDealer, self.n, sources, &[])?;
            p.to_left(&left)?;
        }
        let [y1, y0] = self.y.map(|y| p.words_of(y));
        let total = |inside: &T, y, place| -> Result<T> {
            let [total] = p.words_into(&Sum, self.n, [whole(inside), y], &[], [place])?;
            Ok(total)
        };
        Ok(Pair(total(&inside.0, y0, slot.first())?, total(&inside.1, y1, slot.second())?))
    }

    fn read<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        dealt: &Incoming<'_, '_, E>,
    ) -> Result<(Messages<T>, Shares<T>)> {
        let side = |side: &Side<T>| -> Result<_> {
            let message = side.bit.read(p, dealt)?;
            let u = side.u.read(p.role(), dealt)?;
            let product = if p.is_left() { Some(dealt.words(self.n)?) } else { None };
            Ok((message, (u, product)))
        };
        let [below, above] = &self.sides;
        let ((first, below), (second, above)) = (side(below)?, side(above)?);
        Ok(([first, second], [below, above]))
    }

    /// The evaluators compare with both ends: planes of `v`.
    async fn compare<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        [of_below, of_above]: Messages<T>,
        x: &Pair<T>,
    ) -> Result<[T; 2]> {
        let [from, to] = self.ends.at;
        let kernel = Distance { t: self.ends.slack };
        let below = p.map(&kernel, [p.joint(x)], &[1, from.wrapping_neg() as u64])?;
        let above = p.map(&kernel, [p.joint(x)], &[u64::MAX, (to - 1) as u64])?;
        let [is_below, is_above] = &self.sides;
        let bits =
            both(p, is_below.bit.open(p, of_below, below), is_above.bit.open(p, of_above, above));
        let (below, above) = bits.await?;
        Ok([below, above])
    }

    /// The evaluators' components of the function's value.
    async fn select<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        shares: Shares<T>,
        bits: &[T; 2],
        x: &Pair<T>,
        inside: Pair<T>,
        slot: &Slot<T>,
    ) -> Result<Pair<T>> {
        let mask = p.own(self.y);
        let addend = |end: usize, y| -> Result<T> {
            let (u, product) = &shares[end];
            let v = p.bits_as_words(&bits[end], self.n)?;
            let gain = self.gain(p, end, x, &inside)?;
            let d = product.as_ref().map_or_else(|| p.words_of(self.sides[end].d), whole);
            let sources =
                [whole(&v), u.words(p), d, whole(p.joint(&gain)), whole(p.shared(&gain)), y];
            let [addend, _] = p.words(&SelectEvaluator, self.n, sources, &[p.if_left(), 0])?;
            Ok(addend)
        };
        // Both addends leave as one, under one mask.
        let addend = add(p.engine, &addend(0, p.words_of(mask))?, &addend(1, p.zero())?)?;
        p.to_peer(&addend)?;
        let sources = [whole(p.shared(&inside)), p.words_of(mask)];
        let [shared] = p.words_into(&Sum, self.n, sources, &[], [slot.shared(p.role())])?;
        let own = add(p.engine, p.joint(&inside), &addend)?;
        let other = p.received().await.words(self.n)?;
        let joint = p.sum_into(&own, &other, slot.joint(p.role()))?;
        Ok(p.pair(shared, joint))
    }

    /// The value outside of an end less that between the ends.
    fn gain<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        end: usize,
        x: &Pair<T>,
        inside: &Pair<T>,
    ) -> Result<Pair<T>> {
        let Line { constant, slope } = self.ends.outside[end];
        // Component 0 has the constant, which the dealer and right hold.
        let constants = match p.role() {
            Role::Dealer => [constant, 0],
            Role::Left => [0, 0],
            Role::Right => [0, constant],
        };
        let difference = |found: &T, x: &T, constant| -> Result<T> {
            let sources: [Source<'_, T>; 4] = [whole(found), whole(x), p.zero(), p.zero()];
            let params = [u64::MAX, slope, 0, 0, constant];
            let [difference] = p.words(&Combine, self.n, sources, &params)?;
            Ok(difference)
        };
        let first = difference(&inside.0, &x.0, constants[0])?;
        let second = difference(&inside.1, &x.1, constants[1])?;
        Ok(Pair(first, second))
    }
}
