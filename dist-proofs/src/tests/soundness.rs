//! How often the best lie passes, against what is predicted.

use super::{Example, PartRun, runs};
use crate::{
    keys::Draw,
    part::{Parameters, PartKind},
    statement::Statements,
};

/// Challenges of 8 bits, of which 0 and 1 are excluded.
const EIGHT_BITS: Parameters = Parameters { challenge_bits: 8, subsets: 48 };

/// Chance that the best lie is zero in one variable: at two of 254 challenges.
const VARIABLE: f64 = 2.0 / 254.0;

/// Compares a number of proofs that passed with its expectation.
fn compare(name: &str, passed: usize, trials: usize, chance: f64) {
    let rate = passed as f64 / trials as f64;
    let sigma = (chance * (1.0 - chance) / trials as f64).sqrt();
    let distance = (rate - chance) / sigma;
    println!("{name}: {rate:.4} pass, expected {chance:.4}, {distance:+.1} sigma");
    assert!(distance.abs() < 4.0, "{name}: {rate} pass instead of {chance}");
}

/// Proofs of one part in which the prover lies in a message; how many pass.
fn passing(sides: &[Statements; 3], kind: PartKind, cheat: usize, trials: usize) -> usize {
    let passes = |trial: usize| {
        let run = runs(sides, EIGHT_BITS, 3 * trial as u64)
            .into_iter()
            .find(|run| run.shape.kind == kind);
        PartRun { cheat: Some(cheat), ..run.expect("it has the part") }.run().accepted
    };
    (0..trials).filter(|&trial| passes(trial)).count()
}

#[test]
fn the_best_lie_about_bits_passes_as_often_as_predicted_in_each_round() {
    let mut example = Example::bits(1, 128, &mut Draw::for_test(20));
    example.flip(0, 1, 5);
    let sides = example.sides();
    let messages = runs(&sides, EIGHT_BITS, 0)[0].shape.messages.len();
    for message in 0..messages {
        let variables = if message == 0 { 6 } else { 2 };
        let trials = 700;
        let passed = passing(&sides, PartKind::Bits, message, trials);
        compare(
            &format!("bits, message {message}"),
            passed,
            trials,
            1.0 - (1.0 - VARIABLE).powi(variables),
        );
    }
}

#[test]
fn the_best_lie_about_words_passes_as_often_as_predicted_in_each_round() {
    let mut example = Example::empty();
    example.add_words(64, 3, 1, &mut Draw::for_test(21));
    example.flip(0, 1, 63);
    let sides = example.sides();
    let messages = runs(&sides, EIGHT_BITS, 0)[0].shape.messages.len();
    for message in 1..messages {
        let trials = 250;
        let passed = passing(&sides, PartKind::Words, message, trials);
        compare(
            &format!("words, message {message}"),
            passed,
            trials,
            1.0 - (1.0 - VARIABLE).powi(2),
        );
    }
}

#[test]
fn the_best_lie_about_tensors_passes_as_often_as_predicted_in_each_round() {
    let mut example = Example::empty();
    example.add_matmul([2, 3, 2], &mut Draw::for_test(22));
    example.flip(0, 1, 0);
    let sides = example.sides();
    let messages = runs(&sides, EIGHT_BITS, 0)[0].shape.messages.len();
    for message in 0..messages {
        // The weights have 8 bits too: the sum may be right, and then there is no lie to find.
        let kept = (255.0f64 / 256.0).powi(2);
        let trials = 500;
        let passed = passing(&sides, PartKind::Maps, message, trials);
        compare(
            &format!("tensors, message {message}"),
            passed,
            trials,
            1.0 - kept * (1.0 - VARIABLE),
        );
    }
}

#[test]
fn a_false_word_passes_if_it_is_in_no_subset() {
    let mut example = Example::empty();
    example.add_words(64, 8, 2, &mut Draw::for_test(23));
    example.flip(0, 3, 63);
    let sides = example.sides();
    for subsets in [1, 3] {
        let parameters = Parameters { challenge_bits: 64, subsets };
        let trials = 400;
        let passed = (0..trials)
            .filter(|&trial| runs(&sides, parameters, 3 * trial as u64)[0].run().accepted)
            .count();
        compare(&format!("{subsets} subsets"), passed, trials, 0.5f64.powi(subsets as i32));
    }
}

/// Two errors of `2^63` would cancel in a sum of all relations.
#[test]
pub fn two_errors_that_cancel_are_found() {
    let mut example = Example::empty();
    example.add_words(64, 8, 0, &mut Draw::for_test(25));
    example.flip(0, 3, 63);
    example.flip(0, 6, 63);
    let sides = example.sides();
    let run = runs(&sides, Parameters::default(), 0).remove(0);
    assert!(!PartRun { cheat: Some(0), ..run }.run().accepted);
}

/// A prover that knew the prime could choose quotients that are right modulo it.
#[test]
pub fn quotients_that_fit_a_prime_known_before_are_rejected() {
    let mut example = Example::empty();
    example.add_words(64, 8, 2, &mut Draw::for_test(26));
    example.flip(0, 3, 0);
    let sides = example.sides();
    let run = runs(&sides, Parameters::default(), 0).remove(0);
    assert!(!PartRun { cheat: Some(0), ..run }.run().accepted);
}

#[test]
fn a_false_entry_passes_if_the_weight_of_its_row_or_column_is_even() {
    let mut example = Example::empty();
    example.add_matmul([2, 2, 2], &mut Draw::for_test(24));
    example.flip(0, 3, 63);
    let sides = example.sides();
    let parameters = Parameters { challenge_bits: 3, subsets: 48 };
    let trials = 400;
    let passed = (0..trials)
        .filter(|&trial| runs(&sides, parameters, 3 * trial as u64)[0].run().accepted)
        .count();
    compare("weights of 3 bits", passed, trials, 1.0 - (7.0f64 / 8.0).powi(2));
}
