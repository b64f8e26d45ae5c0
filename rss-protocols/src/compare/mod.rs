//! Comparisons: how they are cut into parts, and how the parts' answers are put together.

pub(crate) mod protocol;
pub(crate) mod select;

use std::sync::Arc;

use mpc_core::{Compare, Compared, Result, ShareTensor, Then};
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    BitShare, Rss, Share,
    circuit::schedule::{Goal, Plan},
    compare::protocol::{CompareUnit, Purpose},
    compare::select::{Follow, Wanted},
    runtime::chunks::{Piece, Rooms, take},
    runtime::launch::invalid,
    runtime::rounds,
    share::reusable::Layout,
};

/// How a comparison's pieces lie, what of the outcome is wanted, and room for its words.
struct Answer<T: EngineTensor> {
    pieces: Vec<Piece>,
    shape: Shape,
    bit: bool,
    rooms: Vec<Rooms<T>>,
}

/// Comparisons that share rounds.
struct Batch<T: EngineTensor> {
    units: Vec<CompareUnit<T>>,
    answers: Vec<Answer<T>>,
}

/// What a word of an answer is: the outcome, or a tensor where the value is negative or where it is
/// not.
type Word<T> = (bool, Option<(T, T)>);

/// What a comparison gives: the bit, if it was asked for, and all words.
type BitAndWords<T> = (Option<BitShare<T>>, Vec<Share<T>>);

impl<E: Engine> Rss<E> {
    pub(crate) fn signs(
        &mut self,
        jobs: &[Compare<'_, Share<E::Tensor>>],
    ) -> Result<Vec<Compared<Share<E::Tensor>, BitShare<E::Tensor>>>> {
        let mut batch = Batch { units: Vec::new(), answers: Vec::new() };
        for job in jobs {
            // The sign of one bit alone would be no comparison.
            let below = job.width.max(2) as usize - 1;
            planted!("sign: a bit short", below = below.max(2) - 1);
            let plan = self.plan(Goal::Carry, below);
            let words = self.wanted(&job.then)?;
            self.add_comparison(&mut batch, job.value, plan, (job.then.bit, &words))?;
        }
        let answers = self.run_comparisons(batch)?;
        Ok(answers.into_iter().zip(jobs).map(|(answer, job)| sorted(answer, &job.then)).collect())
    }

    pub(crate) fn zero_tests(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut batch = Batch { units: Vec::new(), answers: Vec::new() };
        for &(x, width) in jobs {
            let plan = self.plan(Goal::Equal, width as usize);
            self.add_comparison(&mut batch, x, plan, (true, &[]))?;
        }
        let missing = || invalid("is zero", "a test gave no bit");
        let bits = self.run_comparisons(batch)?.into_iter();
        bits.map(|(bit, _)| bit.ok_or_else(missing)).collect()
    }

    /// The words that are asked for, in the order of the answer's.
    fn wanted(&self, then: &Then<'_, Share<E::Tensor>>) -> Result<Vec<Word<E::Tensor>>> {
        let outcome = then.word.then_some(Ok((false, None)));
        let selected = |opposite, xs: &[&Share<E::Tensor>]| {
            let one = |x: &&Share<E::Tensor>| Ok((opposite, Some(self.flat_pair(x)?)));
            xs.iter().map(one).collect::<Vec<Result<_>>>()
        };
        let negative = selected(false, then.negative);
        outcome.into_iter().chain(negative).chain(selected(true, then.not_negative)).collect()
    }

    fn add_comparison(
        &mut self,
        batch: &mut Batch<E::Tensor>,
        x: &Share<E::Tensor>,
        plan: Arc<Plan>,
        (bit, words): (bool, &[Word<E::Tensor>]),
    ) -> Result<()> {
        let (mine, next) = self.flat_pair(x)?;
        let pieces = self.pieces(x.shape().len());
        let rooms = self.rooms(words.len(), x.shape().len(), &pieces);
        for piece in &pieces {
            let (roles, streams) = self.roles(piece);
            let engine = &self.engine;
            let cut = |(mine, next): (&E::Tensor, &E::Tensor)| -> Result<_> {
                Ok(roles.order(take(engine, mine, piece)?, take(engine, next, piece)?))
            };
            let wanted = |((opposite, x), room): (&Word<E::Tensor>, &Rooms<E::Tensor>)| {
                let follow = match x {
                    None => Follow::Arithmetic,
                    Some((mine, next)) => Follow::Times(cut((mine, next))?),
                };
                let spots = room.spots_of(piece, &roles);
                Ok(Wanted { follow, opposite: *opposite, spots })
            };
            let words = words.iter().zip(&rooms).map(wanted).collect::<Result<_>>()?;
            let value = cut((&mine, &next))?;
            let purpose = Purpose { bit, words };
            batch.units.push(CompareUnit::new(roles, streams, value, plan.clone(), purpose));
        }
        batch.answers.push(Answer { pieces, shape: x.shape().clone(), bit, rooms });
        Ok(())
    }

    fn run_comparisons(
        &mut self,
        mut batch: Batch<E::Tensor>,
    ) -> Result<Vec<BitAndWords<E::Tensor>>> {
        rounds::run(&mut self.cx(), &mut batch.units)?;
        let mut units = batch.units.into_iter();
        let mut results = Vec::with_capacity(batch.answers.len());
        for Answer { pieces, shape, bit, rooms } in batch.answers {
            let (mut words, mut bits) = (Vec::new(), Vec::new());
            for piece in pieces {
                let (roles, outcome) = units.next().expect("a unit for each piece").done();
                bits.extend(outcome.bit.map(|bit| (piece.clone(), roles, bit)));
                words.push((piece, roles, outcome.words));
            }
            let bit = match bit {
                true => Some(self.collect_bit(bits, Layout::FLAT, &shape)?),
                false => None,
            };
            results.push((bit, self.collect(words, &rooms, Layout::FLAT, &shape)?));
        }
        Ok(results)
    }
}

/// An answer's words by what asked for them.
fn sorted<S, B>((bit, words): (Option<B>, Vec<S>), then: &Then<'_, S>) -> Compared<S, B> {
    let mut words = words.into_iter();
    let word = if then.word { words.next() } else { None };
    let negative = words.by_ref().take(then.negative.len()).collect();
    Compared { bit, word, negative, not_negative: words.collect() }
}
