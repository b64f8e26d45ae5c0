//! Tests of whole proofs.

mod example;
mod knowledge;
mod model;
mod mutants;
mod recorder;
mod rules;
mod soundness;

use crate::{
    inner::Halves,
    keys::{Draw, Seed},
    part::{self, Parameters, PartShape, Setting},
    scratch::Scratch,
    statement::{Side, Statements},
};
pub(crate) use example::Example;

/// One part of a proof, run in one thread.
struct PartRun<'a> {
    shape: PartShape,
    /// Of the prover, the left verifier and the right one.
    sides: [&'a Statements; 3],
    parameters: Parameters,
    /// What the prover has in common with the left verifier and the right one, and the challenges.
    seeds: [u64; 3],
    /// The message in which the prover lies.
    cheat: Option<usize>,
}

/// What the right verifier sees, and its decision.
#[derive(Debug, Clone, PartialEq)]
struct View {
    messages: Vec<Vec<u64>>,
    opening: Vec<u64>,
    accepted: bool,
}

impl PartRun<'_> {
    fn challenge(&self, round: usize) -> Draw {
        Seed::for_test(self.seeds[2] << 8 | round as u64).draw(0)
    }

    fn setting<'a>(&'a self, side: usize, scratch: &'a Scratch) -> Setting<'a> {
        Setting { statements: self.sides[side], parameters: self.parameters, scratch }
    }

    /// The prover's messages, with its streams as given.
    fn messages(&self, shares: &Seed, blinding: &Seed) -> Vec<Vec<u64>> {
        let scratch = &Scratch::default();
        let mut prover = part::prover(self.shape.kind, self.setting(0, scratch), shares, blinding);
        if let Some(message) = self.cheat {
            prover.cheat(message);
        }
        (0..self.shape.messages.len())
            .map(|round| prover.answer(&mut self.challenge(round)))
            .collect()
    }

    /// The left verifier's last values.
    fn opening(&self, shares: &Seed) -> Vec<u64> {
        let scratch = &Scratch::default();
        let (mut left, mut halves) =
            part::verifier(self.shape.kind, self.setting(1, scratch), shares);
        for round in 0..=self.shape.messages.len() {
            left.absorb(&mut self.challenge(round), &mut halves).expect("a stream has all halves");
        }
        left.last()
    }

    /// The right verifier's decision. False for what is not a proof.
    fn accepts(&self, blinding: &Seed, messages: &[Vec<u64>], opening: &[u64]) -> bool {
        let scratch = &Scratch::default();
        let (mut right, _) = part::verifier(self.shape.kind, self.setting(2, scratch), blinding);
        let mut halves = Halves::Right(Vec::new().into_iter());
        for round in 0..=messages.len() {
            if right.absorb(&mut self.challenge(round), &mut halves).is_none() {
                return false;
            }
            if let Some(message) = messages.get(round) {
                halves = Halves::Right(message.clone().into_iter());
            }
        }
        right.accepts(opening)
    }

    fn run(&self) -> View {
        let [shares, blinding] = [self.seeds[0], self.seeds[1]].map(Seed::for_test);
        let messages = self.messages(&shares, &blinding);
        let opening = self.opening(&shares);
        let lengths: Vec<usize> = messages.iter().map(Vec::len).collect();
        assert_eq!(lengths, self.shape.messages, "messages are as long as the shape says");
        assert_eq!(opening.len(), self.shape.opening);
        let accepted = self.accepts(&blinding, &messages, &opening);
        View { messages, opening, accepted }
    }
}

/// Runs of all parts of a statement.
fn runs<'a>(sides: &'a [Statements; 3], parameters: Parameters, seed: u64) -> Vec<PartRun<'a>> {
    let sides = sides.each_ref();
    let run = |shape| PartRun {
        shape,
        sides,
        parameters,
        seeds: [seed, seed + 1, seed + 2],
        cheat: None,
    };
    part::shapes(sides[0], parameters).into_iter().map(run).collect()
}

/// True if all parts are accepted.
fn accepted(sides: &[Statements; 3], seed: u64) -> bool {
    runs(sides, Parameters::default(), seed).iter().all(|run| run.run().accepted)
}

#[test]
fn honest_proofs_of_any_shape_are_accepted() {
    let draw = &mut Draw::for_test(10);
    for seed in 0..60 {
        let sides = Example::random(draw).sides();
        assert!(accepted(&sides, seed), "{seed}");
    }
    let nothing = [Side::Prover, Side::Left, Side::Right].map(Statements::new);
    assert!(accepted(&nothing, 0));
}

#[test]
fn false_relations_are_rejected() {
    let draw = &mut Draw::for_test(11);
    for seed in 0..40 {
        let mut example = Example::random(draw);
        if example.falsify(draw) {
            assert!(!accepted(&example.sides(), seed), "{seed}");
        }
    }
}

#[test]
fn two_false_bits_of_different_columns_do_not_cancel() {
    let mut example = Example::bits(1, 64 * 64 * 2, &mut Draw::for_test(12));
    // Words 0 and 1 are columns 0 and 1 of block 0.
    example.flip(0, 0, 5);
    example.flip(0, 1, 5);
    assert!(!accepted(&example.sides(), 0));
}

#[test]
fn a_proof_with_any_word_changed_is_rejected() {
    let draw = &mut Draw::for_test(13);
    let mut example = Example::bits(2, 100, draw);
    example.add_words(64, 3, 2, draw);
    example.add_matmul([2, 3, 2], draw);
    let sides = example.sides();
    for run in runs(&sides, Parameters::default(), 7) {
        let [shares, blinding] = [run.seeds[0], run.seeds[1]].map(Seed::for_test);
        let View { messages, opening, accepted } = run.run();
        assert!(accepted);
        let mut changed = messages.clone();
        for (round, message) in messages.iter().enumerate() {
            // Of the longest ones a sample.
            for word in (0..message.len()).step_by(1 + message.len() / 100) {
                changed[round][word] ^= 1 << draw.below(64);
                assert!(
                    !run.accepts(&blinding, &changed, &opening),
                    "{:?}: word {word} of {round}",
                    run.shape.kind
                );
                changed[round][word] = message[word];
            }
        }
        for word in 0..opening.len() {
            let mut changed = run.opening(&shares);
            changed[word] ^= 1 << draw.below(64);
            assert!(!run.accepts(&blinding, &messages, &changed));
        }
    }
}
