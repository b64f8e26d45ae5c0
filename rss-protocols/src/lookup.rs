//! Piecewise functions by look-up, for few words.
//!
//! A word is `a + b`, `a` known to the dealer and `b` to both evaluators. The number of its segment is `a >> low` plus
//! `b >> low` modulo `2^bits`, or one more. Polynomials also cover the segment after theirs, so the carry is not
//! needed. The dealer makes DPF keys ([`crate::runtime::fss`]) of the point function that is `1, a', a'^2` at
//! `a >> low`, for the low bits `a'` of `a`. The evaluators evaluate them at all points, multiply by the pieces'
//! coefficients, rotated by their part of the number, and by powers of their low bits. The sums are shares of the
//! polynomial's value, which are truncated as those of a product. Meanwhile the word is compared with both ends of the
//! segments, and the values outside of them are selected ([`crate::compare::select`]). Cost of 9 bits: keys of 22 words
//! and 256 bits of selections to each evaluator, 256 exchanged, plus the truncation and the comparisons. Rounds: those
//! of a selection by a comparison.

use std::sync::Arc;

use mpc_core::{Piecewise, Profile, Result, ShareTensor, TruncationMode};
use ring_arith::{Engine, Shape, Tensor};

use crate::{
    Rss, Share,
    circuit::schedule::{Circuit, Predicate},
    compare::{
        Comparison, MaskedBit,
        select::{Factor, MaskShare, MaskWords, Selected, Selection},
    },
    kernels::{Combine, Negate, Shift},
    product::{
        split::{LocalProduct, Split},
        truncate::Truncation,
    },
    runtime::{
        chunks::Chunk,
        fss,
        launch::{add, whole},
        prss::Seeds,
        roles::{Pair, Role},
        rounds::{Incoming, Port, Rounds, both},
    },
    share::output::Slot,
};

/// Words of a point function: powers of the dealer's low bits.
const POWERS: usize = 3;

/// The most words for which the saved rounds outweigh the evaluation of keys at all points.
const MOST: usize = 1024;

/// The most words that are one chunk.
const ALONE: usize = 128;

impl<E: Engine> Rss<E> {
    /// A function in pieces, of few words in the profile for slow links.
    pub(crate) fn looked_up(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        function: &Piecewise,
    ) -> Result<Option<Share<E::Tensor>>> {
        let len = x.shape().len();
        let early = match self.options.truncation {
            TruncationMode::Default => false,
            TruncationMode::Early => true,
            _ => return Ok(None),
        };
        // Of keys there are no relations.
        if self.options.profile != Profile::SlowLinks || len > MOST || self.is_checked() {
            return Ok(None);
        }
        // Distances from the ends.
        let [from, to] = function.ends.map(|end| 65 - end.unsigned_abs().leading_zeros());
        let width = (width.max(from).max(to) + 1).min(64);
        mutant!("looked up: distances a bit short", width = width - 1);
        let circuit = self.circuit(Predicate::Carry, width as usize - 1);
        let chunks = match len {
            len if len <= ALONE => vec![Chunk::whole(len, self.next_dealer(len))],
            len => self.options.partition.parts(len, 64),
        };
        let function = Arc::new(function.clone());
        let words = self.flat_pair(x)?;
        let output = self.outputs(chunks, x.shape().clone(), 1);
        let mut rounds = Rounds::new();
        for chunk in &output.chunks {
            let p = self.port(chunk);
            let further = [(); 3].map(|()| self.port(chunk));
            let x = self.chunk_of(&words, chunk)?;
            let lookup = Lookup { n: chunk.len(), function: function.clone(), early };
            rounds.add(p.role(), lookup.run(p, further, x, circuit.clone()));
        }
        output.share(&self.engine, rounds.run(&self.links)?).map(Some)
    }
}

/// A function in pieces of the words of one chunk.
struct Lookup {
    n: usize,
    function: Arc<Piecewise>,
    /// Halves of the truncation are rounded before they are sent.
    early: bool,
}

impl Lookup {
    /// The function's value. Truncation and both selections have separate streams.
    async fn run<E: Engine>(
        self,
        mut p: Port<'_, E>,
        [mut truncating, below, above]: [Port<'_, E>; 3],
        x: Pair<E::Tensor>,
        circuit: Arc<Circuit>,
    ) -> Result<Pair<E::Tensor>> {
        let n = self.n;
        let t = self.function.drop;
        let seeds = p.seeds_of_both(n);
        let [is_below, is_above] = [(); 2].map(|()| {
            let comparison = Comparison { circuit: circuit.clone(), top: true, low: 0 };
            MaskedBit::sample(&mut p, comparison, n)
        });
        let masks = truncating.sample_both(n);
        let truncation = Truncation::sample(&mut truncating, n, t);
        let early = self.early.then_some(t);
        let outside = [(below, 0), (above, 1)].map(|(p, side)| Outside::sample(p, n, side));
        let split = |part| Split::Masked {
            addend: LocalProduct::Made { part, plus: None, stated: None },
            masks,
            early,
        };

        if p.deals() {
            let a = p.dealers(&x)?;
            let key = self.make_keys(&p, seeds, p.engine.download(&a)?.words())?;
            p.to_left(&key)?;
            p.to_right(&key)?;
            let zeros = p.engine.upload(Tensor::zeros(Shape::new([n])?))?;
            let part = split(zeros).dealer(&truncating)?;
            let mut total = truncation.deal(&truncating, &part, &Slot::anywhere())?;
            let inside = total.clone();
            let minus = p.map(&Negate, [&a], &[])?;
            let u = [is_below.deal(&p, &a)?, is_above.deal(&p, &minus)?];
            for (outside, u) in outside.iter().zip(&u) {
                let selected = outside.selected(&self.function, &inside, &x)?;
                let u = p.bits_as_words(u, n)?;
                total = sum(&p, total, outside.deal(&u, &selected)?)?;
            }
            return Ok(total);
        }

        let dealt = p.dealt().await;
        let key = dealt.words(self.key_words())?;
        let of_truncation = truncation.read(&truncating, &dealt)?;
        let of_below = is_below.read(&p, &dealt)?;
        let of_above = is_above.read(&p, &dealt)?;
        let [first, second] = &outside;
        let of_first = first.read(&dealt)?;
        let of_second = second.read(&dealt)?;

        let [b, below, above] = self.known(&p, &x)?;
        let inside = async {
            let share = self.evaluate(&p, seeds, &key, p.engine.download(&b)?.words())?;
            let half = split(share).send(&truncating)?;
            truncation.finish(&truncating, half, of_truncation, &Slot::anywhere()).await
        };
        let outcomes =
            both(&p, is_below.open(&p, of_below, below), is_above.open(&p, of_above, above));
        let ((is_below, is_above), inside) = both(&p, outcomes, inside).await?;

        let gains = both(
            &p,
            first.select(of_first, &is_below, first.selected(&self.function, &inside, &x)?),
            second.select(of_second, &is_above, second.selected(&self.function, &inside, &x)?),
        );
        let (first, second) = gains.await?;
        let total = sum(&p, inside, first)?;
        sum(&p, total, second)
    }

    fn key_words(&self) -> usize {
        self.n * fss::point_words_of::<POWERS>(self.function.bits as usize)
    }

    /// The dealer makes the keys: the words `i` of all keys are contiguous.
    fn make_keys<E: Engine>(
        &self,
        p: &Port<'_, E>,
        seeds: [Seeds; 2],
        a: &[u64],
    ) -> Result<E::Tensor> {
        let n = self.n;
        let Piecewise { low, bits, .. } = *self.function;
        let roots = [p.roots(seeds[0])?, p.roots(seeds[1])?];
        let all = fss::interleaved(n, fss::point_words_of::<POWERS>(bits as usize), |at, put| {
            let point = (a[at] >> low) & ((1 << bits) - 1);
            let rest = a[at] & ((1 << low) - 1);
            let value = [1, rest, rest.wrapping_mul(rest)];
            mutant!("looked up: the dealer's low bits squared once", value = [1, rest, rest]);
            let [left, right] = roots.each_ref().map(|roots| roots[at]);
            let expand = |_, level, seed| fss::expand(seed, left.place, level);
            let seeds = [left.seed, right.seed];
            fss::make_point(point, &value, bits as usize, seeds, expand, put);
        });
        Ok(p.engine.upload(Tensor::new(Shape::new([self.key_words()])?, all)?)?)
    }

    /// This party's share of the segments' value, before bits are dropped.
    fn evaluate<E: Engine>(
        &self,
        p: &Port<'_, E>,
        seeds: [Seeds; 2],
        key: &E::Tensor,
        b: &[u64],
    ) -> Result<E::Tensor> {
        let Piecewise { low, bits, pieces, .. } = &*self.function;
        let n = self.n;
        let evaluator = usize::from(!p.is_left());
        let roots = p.roots(p.own(seeds))?;
        let key = p.engine.download(key)?;
        let mut shares = Vec::with_capacity(n);
        for (at, (&b, root)) in b.iter().zip(roots).enumerate() {
            let points = fss::evaluate_points::<POWERS>(evaluator, root, *bits as usize, |i| {
                key.words()[i * n + at]
            });
            let pieces = rotated(pieces, b >> low, *bits);
            // Powers of the dealer's low bits times coefficients.
            let mut sums = [[0u64; 3]; POWERS];
            for (point, piece) in points.iter().zip(&pieces) {
                for (sums, power) in sums.iter_mut().zip(point) {
                    for (sum, coefficient) in sums.iter_mut().zip(piece) {
                        *sum = sum.wrapping_add(power.wrapping_mul(*coefficient));
                    }
                }
            }
            // c0 + c1 (a' + d) + c2 (a' + d)^2
            let d = (b & ((1 << low) - 1)).wrapping_sub(1 << low);
            let [[c0, c1, c2], [_, a_c1, a_c2], [_, _, a2_c2]] = sums;
            let slope = c1.wrapping_add(c2.wrapping_mul(d));
            let twice = a_c2.wrapping_mul(d).wrapping_mul(2);
            let value = c0.wrapping_add(slope.wrapping_mul(d));
            shares.push(value.wrapping_add(a_c1).wrapping_add(twice).wrapping_add(a2_c2));
        }
        Ok(p.engine.upload(Tensor::new(Shape::new([n])?, shares)?)?)
    }

    /// The evaluators' parts of the word and of its distances from the ends.
    fn known<E: Engine>(&self, p: &Port<'_, E>, x: &Pair<E::Tensor>) -> Result<[E::Tensor; 3]> {
        let b = p.joint(x);
        let [from, to] = self.function.ends;
        let below = p.map(&Shift, [b], &[from.wrapping_neg() as u64])?;
        let minus = p.map(&Negate, [b], &[])?;
        let above = p.map(&Shift, [&minus], &[(to - 1) as u64])?;
        Ok([b.clone(), below, above])
    }
}

/// The selection of the function's value outside of the segments, on one side.
struct Outside<'a, E: Engine> {
    p: Port<'a, E>,
    side: usize,
    n: usize,
    u: MaskWords<E::Tensor>,
    selection: Selection,
}

/// The dealer's message about a selection: an evaluator's share of `u`, and of its product.
type SelectionMessage<T> = (MaskShare<T>, Vec<T>);

impl<'a, E: Engine> Outside<'a, E> {
    fn sample(mut p: Port<'a, E>, n: usize, side: usize) -> Self {
        let u = MaskWords::sample(&mut p, n);
        let selection = Selection::sample(&mut p, n, 1);
        Self { p, side, n, u, selection }
    }

    /// The value outside of the segments less that of the segments.
    fn selected(
        &self,
        function: &Piecewise,
        inside: &Pair<E::Tensor>,
        x: &Pair<E::Tensor>,
    ) -> Result<[Selected<E::Tensor>; 1]> {
        let [constant, factor] = function.outside[self.side];
        // Component 0 has the constant, which the dealer and right hold.
        let constants = match self.p.role() {
            Role::Dealer => [constant, 0],
            Role::Left => [0, 0],
            Role::Right => [0, constant],
        };
        let difference = |found: &E::Tensor, x: &E::Tensor, constant| -> Result<_> {
            let params = [u64::MAX, factor, 0, 0, constant];
            let sources = [whole(found), whole(x), whole(x), whole(x)];
            let [difference] = self.p.words(&Combine, self.n, sources, &params)?;
            Ok(difference)
        };
        let first = difference(&inside.0, &x.0, constants[0])?;
        let second = difference(&inside.1, &x.1, constants[1])?;
        let factor = Factor::Word(Pair(first, second));
        Ok([Selected { factor, opposite: false, slot: Slot::anywhere() }])
    }

    fn deal(
        &self,
        u: &E::Tensor,
        selected: &[Selected<E::Tensor>],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        self.u.deal(&self.p, u)?;
        self.selection.deal(&self.p, u, selected)
    }

    fn read(&self, dealt: &Incoming<'_, '_, E>) -> Result<SelectionMessage<E::Tensor>> {
        let role = self.p.role();
        Ok((self.u.read(role, dealt)?, self.selection.read(role, dealt, 1)?))
    }

    async fn select(
        &self,
        (u, products): SelectionMessage<E::Tensor>,
        v: &E::Tensor,
        selected: [Selected<E::Tensor>; 1],
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let v = self.p.bits_as_words(v, self.n)?;
        self.selection.select(&self.p, &u, products, v, &selected).await
    }
}

/// A value and gains on it.
fn sum<E: Engine>(
    p: &Port<'_, E>,
    value: Pair<E::Tensor>,
    gains: Vec<Pair<E::Tensor>>,
) -> Result<Pair<E::Tensor>> {
    gains.iter().try_fold(value, |sum, gain| {
        Ok(Pair(add(p.engine, &sum.0, &gain.0)?, add(p.engine, &sum.1, &gain.1)?))
    })
}

/// The pieces from segment `by` on, modulo their number: in as many steps as that has bits, whatever it is.
fn rotated(pieces: &[[u64; 3]], by: u64, bits: u32) -> Vec<[u64; 3]> {
    let mut pieces = pieces.to_vec();
    for bit in 0..bits {
        let chosen = (by >> bit & 1).wrapping_neg();
        let len = pieces.len();
        let step = 1 << bit;
        let moved = |i: usize| -> [u64; 3] {
            let (here, there) = (&pieces[i], &pieces[(i + step) % len]);
            std::array::from_fn(|k| here[k] ^ (chosen & (here[k] ^ there[k])))
        };
        pieces = (0..len).map(moved).collect();
    }
    pieces
}
