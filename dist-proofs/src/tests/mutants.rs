//! Faults planted into the proofs, each of which a test must notice.

use std::path::Path;

use mpc_core::testing::mutants::{Mutant, every_mutant_is_noticed};

use super::{knowledge, rules, soundness};

const fn code(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

const MUTANTS: &[Mutant] = &[
    code("every subset is full", "subsets"),
    code("all columns have one weight", "columns"),
    code("the prime is known before the quotients", "quotients"),
    code("the right verifier's halves are the values", "views"),
    code("the left value is not blinded", "views"),
    code("the right value is not blinded", "last values"),
    code("all challenges are taken", "excluded challenges"),
    code("the batch is not counted", "challenges"),
    code("challenges before all messages are there", "messages"),
    code("proof shares under the context of challenges", "streams"),
    code("one verifier's verdict is enough", "verdicts"),
    code("conclusions are not compared", "verdicts"),
];

fn check(name: &str) {
    match name {
        "subsets" => soundness::two_errors_that_cancel_are_found(),
        "columns" => super::two_false_bits_of_different_columns_do_not_cancel(),
        "quotients" => soundness::quotients_that_fit_a_prime_known_before_are_rejected(),
        "views" => knowledge::the_right_verifier_sees_the_same_for_every_statement(),
        "last values" => knowledge::a_false_last_value_is_rejected_whatever_the_factors_are(),
        "excluded challenges" => rules::challenges_that_remove_the_blinding_are_never_taken(),
        "challenges" => rules::honest_parties_accept_batch_after_batch_and_send_what_is_declared(),
        "messages" => rules::no_challenge_is_released_before_the_left_verifier_has_all_messages(),
        "streams" => rules::streams_are_never_used_twice(),
        "verdicts" => rules::no_honest_party_accepts_what_another_refuses(),
        _ => panic!("no check is called {name}"),
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_mutant_is_noticed(
        "tests::mutants::every_planted_fault_is_noticed",
        &source,
        MUTANTS,
        &[],
        check,
    );
}
