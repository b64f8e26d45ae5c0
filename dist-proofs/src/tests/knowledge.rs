//! What verifiers learn.
//!
//! The right verifier sees the prover's messages and the left verifier's last values. Given what it knows itself, and the
//! challenges, these are a bijection of the words that the prover and the left verifier have in common, whatever these two
//! hold. So what it sees is uniform among what an accepted proof can be, and the same for all statements. The tests
//! construct the words with which another statement gives the same view.
//!
//! The left verifier sees words that it has in common with the prover, and the verdict.

use super::{Example, PartRun, View, runs};
use crate::{
    keys::{Draw, Seed},
    part::{Parameters, PartKind},
    ring::{Ring, galois::Galois, gf64::Gf64, prime::Prime},
};

fn example(draw: &mut Draw) -> Example {
    let mut example = Example::bits(2, 100, draw);
    example.add_words(64, 5, 2, draw);
    example.add_words(20, 3, 1, draw);
    example.add_matmul([2, 3, 2], draw);
    example
}

/// Words of a stream that make an element.
fn script<R: Ring>(ring: &R, element: R::Element, kind: PartKind) -> Vec<u64> {
    let mut words = Vec::new();
    if kind == PartKind::Words {
        words.push(0);
    }
    ring.encode(element, &mut words);
    words
}

fn elements<R: Ring>(ring: &R, words: &[u64]) -> Vec<R::Element> {
    words
        .chunks(R::WORDS)
        .map(|words| ring.decode(words).expect("an honest prover sends elements"))
        .collect()
}

/// The words that the prover of `run` must have in common with the left verifier for the right one to see `view`.
fn shares_for<R: Ring>(run: &PartRun<'_>, ring: &R, view: &View) -> Vec<u64> {
    let kind = run.shape.kind;
    let blinding = Seed::for_test(run.seeds[1]);
    let first = usize::from(kind != PartKind::Maps);
    let zeros: Vec<u64> = vec![0; 2 * run.shape.messages.iter().sum::<usize>() + 2 * R::WORDS];
    // Halves of the first message.
    let truth = run.messages(&Seed::scripted(zeros.clone()), &blinding);
    let mut shares = Vec::new();
    for message in 0..first {
        shares.extend(
            truth[message].iter().zip(&view.messages[message]).map(|(value, half)| value ^ half),
        );
    }
    // The left verifier's blinding factor, by which its last value is the one that was seen.
    let value = |blind| {
        let script = [shares.clone(), script(ring, blind, kind), zeros.clone()].concat();
        elements(ring, &run.opening(&Seed::scripted(script)))[0]
    };
    let bare = value(ring.zero());
    let weight = ring.sub(value(ring.one()), bare);
    let seen = elements(ring, &view.opening)[0];
    shares.extend(script(ring, ring.mul(ring.sub(seen, bare), ring.inverse(weight)), kind));
    // Halves of the other messages.
    let truth = run.messages(&Seed::scripted([shares.clone(), zeros].concat()), &blinding);
    for (values, halves) in truth.iter().zip(&view.messages).skip(first) {
        for (value, half) in elements(ring, values).into_iter().zip(elements(ring, halves)) {
            shares.extend(script(ring, ring.sub(value, half), kind));
        }
    }
    shares
}

#[test]
pub fn the_right_verifier_sees_the_same_for_every_statement() {
    let draw = &mut Draw::for_test(30);
    let first = example(draw);
    let second = first.with_other_left(draw);
    let sides = [first.sides(), second.sides()];
    let [first, second] = sides.each_ref().map(|sides| runs(sides, Parameters::default(), 50));
    for (first, second) in first.iter().zip(&second) {
        let view = first.run();
        let shares = match first.shape.kind {
            PartKind::Bits => shares_for(second, &Gf64::new(64), &view),
            PartKind::Words => {
                shares_for(second, &Prime::random(&mut second.challenge(1), 64), &view)
            }
            PartKind::Maps => shares_for(second, &Galois::new(47), &view),
        };
        let [shares, blinding] = [Seed::scripted(shares), Seed::for_test(second.seeds[1])];
        let messages = second.messages(&shares, &blinding);
        let opening = second.opening(&shares);
        assert!(second.accepts(&blinding, &messages, &opening));
        assert!(
            messages == view.messages && opening == view.opening,
            "{:?}: another view",
            first.shape.kind
        );
    }
}

/// A left verifier that changes its last value learns whether the right verifier's is zero, if that is not blinded.
#[test]
pub fn a_false_last_value_is_rejected_whatever_the_factors_are() {
    let sides = example(&mut Draw::for_test(31)).with_right_zero().sides();
    for seed in 0..5 {
        for run in runs(&sides, Parameters::default(), 60 + 3 * seed) {
            let View { messages, mut opening, accepted } = run.run();
            assert!(accepted);
            opening[0] ^= 1;
            let blinding = Seed::for_test(run.seeds[1]);
            // Bits of quotients are factors too, and not zero.
            assert!(!run.accepts(&blinding, &messages, &opening), "{:?}", run.shape.kind);
        }
    }
}
