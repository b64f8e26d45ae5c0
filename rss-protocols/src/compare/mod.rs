//! Signs and tests for zero, many at a time: their chunks share rounds.

mod protocol;
pub(crate) mod select;

use std::sync::Arc;

use mpc_core::{Compare, Compared, Result, ShareTensor, Then};
use ring_arith::Engine;

pub(crate) use protocol::{
    CompareMessage, CompareSamples, Comparison, MaskedBit, Outcome, Purpose, SharedMask, StatedBit,
    compare,
};
use select::{Factor, Selected};

use crate::{
    BitShare, Rss, Share,
    circuit::schedule::{Circuit, Predicate},
    runtime::{launch::invalid, rounds::Rounds},
};

/// One comparison of a tensor.
struct Job<'a, T> {
    value: &'a Share<T>,
    circuit: Arc<Circuit>,
    /// The outcome as a shared bit.
    bit: bool,
    words: Vec<Word<T>>,
}

/// A word that follows a comparison.
enum Word<T> {
    Outcome,
    /// A tensor where the value is negative, or where it is not; its own component and the next.
    Selected {
        opposite: bool,
        x: [T; 2],
    },
}

/// The results of a comparison, by request.
type Outcomes<T> = Compared<Share<T>, BitShare<T>>;

/// The results of a comparison: the bit, if it was asked for, and all words.
type Answer<T> = (Option<BitShare<T>>, Vec<Share<T>>);

impl<E: Engine> Rss<E> {
    pub(crate) fn signs(
        &mut self,
        jobs: &[Compare<'_, Share<E::Tensor>>],
    ) -> Result<Vec<Outcomes<E::Tensor>>> {
        let mut comparisons = Vec::with_capacity(jobs.len());
        let elements = jobs.iter().map(|job| job.value.shape().len()).sum();
        for Compare { value, width, then } in jobs {
            // The sign of one bit alone would be no comparison.
            let below = (*width).max(2) as usize - 1;
            mutant!("sign: a bit short", below = below.max(2) - 1);
            let circuit = self.circuit(Predicate::Carry, below, elements);
            comparisons.push(Job { value, circuit, bit: then.bit, words: self.words(then)? });
        }
        let answers = self.run_comparisons(&comparisons)?;
        Ok(answers.into_iter().zip(jobs).map(|(answer, job)| sorted(answer, &job.then)).collect())
    }

    pub(crate) fn zero_tests(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut comparisons = Vec::with_capacity(jobs.len());
        let elements = jobs.iter().map(|(value, _)| value.shape().len()).sum();
        for &(value, width) in jobs {
            let circuit = self.circuit(Predicate::Equal, width as usize, elements);
            comparisons.push(Job { value, circuit, bit: true, words: Vec::new() });
        }
        let answers = self.run_comparisons(&comparisons)?.into_iter();
        answers
            .map(|(bit, _)| bit.ok_or_else(|| invalid("is zero", "a test gave no bit")))
            .collect()
    }

    /// The words that are asked for, in the order of the answer's.
    fn words(&self, then: &Then<'_, Share<E::Tensor>>) -> Result<Vec<Word<E::Tensor>>> {
        let mut words = Vec::new();
        if then.word {
            words.push(Word::Outcome);
        }
        for (opposite, xs) in [(false, then.negative), (true, then.not_negative)] {
            for x in xs {
                words.push(Word::Selected { opposite, x: self.flat_pair(x)? });
            }
        }
        Ok(words)
    }

    fn run_comparisons(&self, jobs: &[Job<'_, E::Tensor>]) -> Result<Vec<Answer<E::Tensor>>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for Job { value, circuit, bit, words } in jobs {
            let chunks = self.chunks(value.shape().len());
            let output = self.outputs(chunks, value.shape().clone(), words.len());
            let value = self.flat_pair(value)?;
            for chunk in &output.chunks {
                let mut selected = Vec::with_capacity(words.len());
                for (word, slot) in words.iter().zip(output.slots(chunk)) {
                    let (opposite, factor) = match word {
                        Word::Outcome => (false, Factor::One),
                        Word::Selected { opposite, x } => {
                            (*opposite, Factor::Word(self.chunk_of(x, chunk)?))
                        }
                    };
                    selected.push(Selected { factor, opposite, slot });
                }
                let p = self.port(chunk);
                let purpose = Purpose { bit: *bit, selected };
                let x = self.chunk_of(&value, chunk)?;
                rounds.add(p.role(), compare(p, x, circuit.clone(), purpose));
            }
            outputs.push((output, *bit));
        }
        let mut outcomes = rounds.run(&self.links)?.into_iter();
        let mut answers = Vec::with_capacity(jobs.len());
        for (output, bit) in outputs {
            let made = outcomes.by_ref().take(output.chunks.len());
            let (bits, words): (Vec<_>, Vec<_>) = made.map(|made| (made.bit, made.words)).unzip();
            let bits = bits.into_iter().flatten();
            let bit = if bit { Some(output.bits(&self.engine, bits)?) } else { None };
            answers.push((bit, output.shares(&self.engine, words)?));
        }
        Ok(answers)
    }
}

/// An answer's words, sorted by the fields of the request.
fn sorted<S, B>((bit, words): (Option<B>, Vec<S>), then: &Then<'_, S>) -> Compared<S, B> {
    let mut words = words.into_iter();
    let word = if then.word { words.next() } else { None };
    let negative = words.by_ref().take(then.negative.len()).collect();
    Compared { bit, word, negative, not_negative: words.collect() }
}
