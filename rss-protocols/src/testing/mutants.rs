//! The mutants of this crate, each of which its tests must notice.
//!
//! Those of samples are a table of [`super::samples`]. Those of the code stand where they change it, and a check of the
//! conformance suite notices them.

use std::{path::Path, time::Duration};

use mpc_core::{
    Finish, Product, Profile, Protocol, SplitMix64, TestWorld, TruncationMode,
    testing::conformance,
    testing::mutants::{Mutant, every_mutant_is_noticed},
};
use net::{Party, Session};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};

use super::{
    certificate, releases,
    samples::{SAMPLES, SampleMutant},
};
use crate::{
    Options, Rss, Tree,
    circuit::schedule,
    dealer::replay,
    max::gradient,
    runtime::{fss, prss},
};

/// A mutant of the code: the `mutant!` line with its name makes it.
const fn code(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

/// Mutants of the code.
const CODE: &[Mutant] = &[
    code("all samples at one place", "masks of: product"),
    code(
        "truncation: both ends of a word for fields that meet",
        "masks of: product, default, 40 bits",
    ),
    code("keys: values of nodes bare", "expansions"),
    code("keys: a step's values bare", "masks of keys"),
    code("keys: the lost seeds bare", "masks of keys"),
    code("keys: a node's bit is one of its seed's", "expansions"),
    code("keys: expanded alike at every element", "places of keys"),
    code("keys: expanded alike in every operation", "places of keys"),
    code("keys: expanded alike at every level", "places of keys"),
    code("a party's own stream from one pair's key", "keys"),
    code("release: components not masked", "released results"),
    code("release: the shares of zero of no job", "released results"),
    code("release: one share of zero for all tensors", "released results"),
    code("release of addends: one mask for all tensors", "released results"),
    code("opening: the hash of the first tensor alone", "hashes of openings"),
    code("tape: an earlier place is begun again", "places of tapes"),
    code("tape: skipped places keep their seeds", "skipped places"),
    code("stream keys without the pairs' secrets", "keys"),
    code("truncation rounds down", "truncations"),
    code("truncation: half the offset", "truncations"),
    code("truncation: half of what a carry takes", "truncated products"),
    code("early: left's half rounded down", "means of early halves"),
    code("early: ties up", "means of early halves"),
    code("early: both halves rounded to nearest", "means of early halves"),
    code("dither: the dealer's coin a bit short", "coins of dithering"),
    code("dither: the evaluators' coin a bit short", "coins of dithering"),
    code("dither: the coin's carry stays", "truncated products"),
    code("sign: a bit short", "comparisons"),
    code("circuit: larger groups at the high end", "circuits"),
    code("circuit: the last digit a bit too low", "comparisons"),
    code("circuit: a term of a product of four left out", "comparisons by fours"),
    code("select: v b twice", "selections"),
    code("zero test: of b instead of b - 1", "zero tests"),
    code("max: a bit short", "maxima"),
    code("largest of four: a bit's opposite forgotten", "maxima for slow links"),
    code("trig sum: of the angles' difference", "trigonometric sums"),
    code("trig sum: distances a bit short", "trigonometric sums"),
    code("relu at once: a threshold's low bits off", "fused relu for slow links"),
    code("gradient: to those that lost", "maxima"),
    code("gradient: choices that were cut otherwise", "gradients of other choices"),
    code("paired: a sign of the inverse", "raw products"),
    code("product: the last term alone", "terms"),
    code("product: an addend without its shift", "summands"),
    code("settle: a broadcast summand left out", "sums of parts"),
    code("masked product: by the bit's opposite", "kept signs"),
    code("kept: the opposite forgotten", "kept signs"),
    code("kept: pieces joined as if aligned", "maxima"),
    code("chain: a carry times itself forgotten", "chains"),
    code("chain: an addend's carry forgotten", "chains"),
    code("chain: a carry in the second factor forgotten", "chains"),
    code("chain: carries whose product is in the word", "chains"),
    code("chain: a step's second term in a sum forgotten", "chains"),
    code("input: sent to the dealer", "inputs and openings, dealt"),
    code("constant: held by party 0 alone", "inputs and openings"),
    code("sums: every group by the first bits", "weighted sums"),
    code("adder: a span too few stays open", "bits of words"),
    code("bits: every piece from the first column on", "kept signs"),
];

fn make(session: Session) -> mpc_core::Result<Rss<CpuEngine>> {
    Rss::new(session, CpuEngine::new(1))
}

fn make_dealt(session: Session) -> mpc_core::Result<Rss<CpuEngine>> {
    Rss::dealt(session, CpuEngine::new(1), Options::default())
}

fn make_by_fours(session: Session) -> mpc_core::Result<Rss<CpuEngine>> {
    Rss::with_options(session, CpuEngine::new(1), Options::default().tree(Tree::Fours))
}

fn make_for_slow_links(session: Session) -> mpc_core::Result<Rss<CpuEngine>> {
    let options = Options::default().profile(Profile::SlowLinks);
    Rss::with_options(session, CpuEngine::new(1), options)
}

fn check(name: &str) {
    let world = &TestWorld::new(3).with_seed(5).with_limit(Duration::from_secs(60));
    if let Some(operation) = name.strip_prefix("masks of: ") {
        return certificate::certify(operation);
    }
    match name {
        "released results" => releases::check(),
        "keys" => prss::tests::streams_follow_from_all_keys_of_their_parties(),
        "expansions" => fss::tests::every_bit_of_an_expansion_is_one_of_its_string(),
        "places of keys" => fss::tests::no_two_places_expand_a_seed_alike(),
        "hashes of openings" => super::openings::a_hash_covers_all_components_that_are_opened(),
        "places of tapes" => prss::tests::no_place_of_a_tape_is_begun_again(),
        "skipped places" => replay::tests::places_that_are_skipped_lose_their_seeds(),
        "gradients of other choices" => {
            gradient::tests::choices_that_were_cut_otherwise_give_the_same_gradient();
        }
        "trigonometric sums" => conformance::trig_sums(world, make),
        "coins of dithering" => super::openings::no_party_knows_which_way_dithering_rounds(),
        "random words" => super::openings::no_party_knows_random_words_and_bits(),
        "orders of shuffles" => super::openings::no_party_knows_the_order_of_a_shuffle(),
        "circuits" => schedule::tests::groups_are_as_in_the_reference(),
        "means of early halves" => early_halves_are_rounded_without_bias(),
        "truncations" => conformance::truncations(world, make),
        "truncated products" => conformance::truncated_products(world, make),
        "comparisons" => conformance::comparisons(world, make),
        "comparisons by fours" => conformance::comparisons(world, make_by_fours),
        "selections" => conformance::selections(world, make),
        "zero tests" => conformance::zero_tests(world, make),
        "masks of keys" => fss::tests::corrections_of_steps_are_masked(),
        "functions for slow links" => conformance::approximations(world, make_for_slow_links),
        "fused relu for slow links" => conformance::fused_relu(world, make_for_slow_links),
        "maxima" => conformance::maxima(world, make),
        "maxima for slow links" => conformance::maxima(world, make_for_slow_links),
        "raw products" => conformance::raw_products(world, make),
        "terms" => conformance::product_terms(world, make),
        "summands" => conformance::product_summands(world, make),
        "sums of parts" => conformance::sums_of_parts(world, make),
        "kept signs" => conformance::kept_signs(world, make),
        "inputs and openings" => conformance::inputs_and_openings(world, make),
        "inputs and openings, dealt" => {
            let world = TestWorld::new(2).with_dealer().with_seed(5);
            conformance::inputs_and_openings(&world, make_dealt);
        }
        "chains" => conformance::chains(world, make),
        "weighted sums" => conformance::weighted_sums(world, make),
        "bits of words" => conformance::bit_decomposition(world, make),
        _ => panic!("there is no check `{name}`"),
    }
}

#[test]
fn all_mutants_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let samples: Vec<_> =
        SAMPLES.iter().map(|&SampleMutant { name, check, .. }| Mutant { name, check }).collect();
    every_mutant_is_noticed(
        "testing::mutants::all_mutants_are_noticed",
        &source,
        CODE,
        &samples,
        check,
    );
}

/// The mean error of early truncation by few bits, where ties are frequent.
#[test]
fn early_halves_are_rounded_without_bias() {
    const N: usize = 1 << 14;
    for bits in [1, 2, 4] {
        let world = TestWorld::new(3).with_seed(9);
        let opened = world.run(make, move |mpc| {
            let words = |seed| {
                let mut draw = SplitMix64::new(seed);
                Tensor::vector((0..N).map(|_| draw.signed(20)).collect())
            };
            let values = [words(1), words(2)];
            let mine = (mpc.me() == Party(0)).then_some(&values[..]);
            let shape = Shape::new([N])?;
            let x = mpc.input(Party(0), &[shape.clone(), shape], mine)?;
            let finish = Finish::Truncate { bits, mode: TruncationMode::Early };
            let y = mpc.product(Product::new(Bilinear::Mul, &x[0], &x[1], finish))?.share;
            let errors = values[0].words().iter().zip(values[1].words());
            let errors = errors.zip(mpc.open(&[&y])?[0].words().to_vec()).map(|((x, y), q)| {
                let product = x.wrapping_mul(*y) as i64 as f64;
                q as i64 as f64 - product / f64::from(1 << bits)
            });
            Ok(errors.sum::<f64>() / N as f64)
        });
        // The variance is a quarter of a unit.
        let deviations = opened[0] / (0.5 / (N as f64).sqrt());
        assert!(
            deviations.abs() < 5.0,
            "by {bits} bits: {} off, {deviations} deviations",
            opened[0]
        );
    }
}
