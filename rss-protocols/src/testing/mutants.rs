//! The faults that are planted into this crate, and that its tests notice each.
//!
//! Those of masks leave every result right but for a few; the certificate of [`crate::testing`] notices them by the
//! operation that is named. Those of correctness are noticed by a check of the conformance suite.

use std::{path::Path, time::Duration};

use mpc_core::{
    Finish, Product, Profile, Protocol, SplitMix64, TestWorld, TruncationMode, conformance,
};
use net::{Party, Session};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};

use crate::{
    Options, Rss, Tree,
    circuit::schedule,
    fault::{Fault, every_fault_is_noticed},
    io::clients,
    runtime::{fss, prss},
    testing,
};

const fn mask(name: &'static str, check: &'static str) -> Fault {
    Fault { name, check }
}

const fn result(name: &'static str, check: &'static str) -> Fault {
    Fault { name, check }
}

/// Where four meet at once.
const FOUR: &str = "masks of: maximum of four at once and its place";

/// Every fault, and what notices it: an operation of the certificate, or a test.
const FAULTS: &[Fault] = &[
    // A mask is left out, or used twice.
    mask("input not masked", "masks of: input"),
    mask("input sums: not masked", "masks of: sums of inputs"),
    mask("product: w12 off", "masks of: product"),
    mask("product: w13 off", "masks of: product"),
    mask("truncation: m12 off", "masks of: product, default"),
    mask("truncation: m13 off", "masks of: product, default"),
    mask("truncation: y1 off", "masks of: product, default"),
    mask("truncation: e12 off", "masks of: product, default"),
    mask(
        "truncation: both ends of a word for fields that meet",
        "masks of: product, default, 40 bits",
    ),
    mask("exact: u bare", "masks of: product, exact"),
    mask("exact: m12 = e12", "masks of: product, exact"),
    mask("exact: m13 = y1", "masks of: product, exact"),
    mask("select: u bare", "masks of: select"),
    mask("select: y1 off", "masks of: select"),
    mask("select: y2 off", "masks of: select"),
    mask("select: the product's share under y1", "masks of: select"),
    mask("select: y2 is the mask of u", "masks of: select"),
    mask("circuit: codes off", "masks of: sign"),
    mask("circuit: both bits of a node under one mask", "masks of: sign"),
    mask("circuit: masks shared under the third's masks", "masks of: sign"),
    mask("circuit: all dealt products under one mask", "masks of: sign"),
    mask("circuit: dealt products under the third's masks", "masks of: sign"),
    mask("sign opened without m12", "masks of: sign"),
    mask("sign opened without m13", "masks of: sign"),
    mask("sign: the third's share of its mask is m13", "masks of: sign"),
    mask("fused: A and uA under one mask", "masks of: fused relu, default"),
    mask("fused: na and u na under one mask", "masks of: fused relu, default"),
    mask("fused: y2 is the mask of u", "masks of: fused relu, early"),
    mask("fused: y1 is the mask of A", "masks of: fused relu, early"),
    mask("fused: y1 is the mask of uA", "masks of: masked product, default"),
    mask("chain: w12 off", "masks of: chain, default"),
    mask("chain: w13 off", "masks of: chain, default"),
    mask("chain: A bare", "masks of: chain, default"),
    mask("chain: the share of A under w13", "masks of: chain, default"),
    mask("chain: na bare", "masks of: chain, default"),
    mask("chain: what a wrap meets under the mask of na", "masks of: chain, default"),
    mask("chain: what a wrap meets bare", "masks of: chain, default"),
    mask("chain: a result's m12 off", "masks of: chain, default"),
    mask("chain: a result's m13 off", "masks of: chain, default"),
    mask("largest of four: a product of bits under a bit's mask", FOUR),
    mask("largest of four: parts of two subsets under one mask", FOUR),
    mask("largest of four: y1 is the mask of a part", FOUR),
    mask("largest of four: y2 is the mask of a bit", FOUR),
    mask("relu at once: y1 is the mask of A", "masks of: relu at once, default"),
    mask("relu at once: y2 is the mask of na", "masks of: relu at once, default"),
    mask("keys: values of nodes bare", "masks of keys"),
    mask("keys: the lost seeds bare", "masks of points' keys"),
    mask("and: the result under m13", "masks of: and"),
    mask("and: m12 off", "masks of: and"),
    mask("bits of words: those of a bare", "masks of: bits of words"),
    mask("sums: y2 off", "masks of: sums of bits"),
    mask("sums: all bits of an element under one mask", "masks of: sums of bits"),
    mask("dither: the second knows the pivot's coin", "coins of dithering"),
    mask("all draws at one place", "masks of: product"),
    mask("a party's own stream from one pair's key", "keys"),
    mask("release: components not masked", "released results"),
    mask("release: addends not masked", "released results"),
    mask("stream keys without the pairs' secrets", "keys"),
    // A result is wrong, always or seldom.
    result("truncation rounds down", "truncations"),
    result("truncation: half the offset", "truncations"),
    result("truncation: half of what a wrap takes", "truncated products"),
    result("early: the second's half rounded down", "means of early halves"),
    result("early: ties up", "means of early halves"),
    result("dither: the coin's carry stays", "truncated products"),
    result("sign: a bit short", "comparisons"),
    result("circuit: larger groups at the high end", "circuits"),
    result("circuit: the last digit a bit too low", "comparisons"),
    result("circuit: a term of a product of four left out", "comparisons by fours"),
    result("select: v x3 twice", "selections"),
    result("zero test: of b instead of b - 1", "zero tests"),
    result("max: a bit short", "maxima"),
    result("largest of four: a bit's opposite forgotten", "maxima for slow links"),
    result("looked up: the pivot's low bits squared once", "functions for slow links"),
    result("relu at once: a threshold's low bits off", "fused relu for slow links"),
    result("gradient: to those that lost", "maxima"),
    result("paired: a sign of the inverse", "raw products"),
    result("product: the last term alone", "terms"),
    result("product: a summand without its shift", "summands"),
    result("masked product: by the bit's opposite", "kept signs"),
    result("kept: the opposite forgotten", "kept signs"),
    result("kept: pieces joined as if aligned", "maxima"),
    result("chain: a wrap that meets itself forgotten", "chains"),
    result("chain: a summand's wrap forgotten", "chains"),
    result("chain: a wrap in the second factor forgotten", "chains"),
    result("input: sent to the dealer", "inputs and openings, dealt"),
    result("constant: held by party 0 alone", "inputs and openings"),
    result("sums: every group by the first bits", "weighted sums"),
    result("adder: a span too few stays open", "bits of words"),
    result("bits: every piece from the first column on", "kept signs"),
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
        return testing::certificate::certify(operation);
    }
    match name {
        "released results" => clients::tests::check_releases(),
        "keys" => prss::tests::streams_follow_from_all_keys_of_their_parties(),
        "coins of dithering" => testing::openings::no_party_knows_which_way_dithering_rounds(),
        "circuits" => schedule::tests::groups_are_as_in_the_reference(),
        "means of early halves" => early_halves_are_rounded_without_bias(),
        "truncations" => conformance::truncations(world, make),
        "truncated products" => conformance::truncated_products(world, make),
        "comparisons" => conformance::comparisons(world, make),
        "comparisons by fours" => conformance::comparisons(world, make_by_fours),
        "selections" => conformance::selections(world, make),
        "zero tests" => conformance::zero_tests(world, make),
        "masks of keys" => fss::tests::corrections_of_steps_are_masked(),
        "masks of points' keys" => fss::tests::corrections_of_points_are_masked(),
        "functions for slow links" => conformance::approximations(world, make_for_slow_links),
        "fused relu for slow links" => conformance::fused_relu(world, make_for_slow_links),
        "maxima" => conformance::maxima(world, make),
        "maxima for slow links" => conformance::maxima(world, make_for_slow_links),
        "raw products" => conformance::raw_products(world, make),
        "terms" => conformance::product_terms(world, make),
        "summands" => conformance::product_summands(world, make),
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
fn every_planted_fault_is_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    every_fault_is_noticed(
        "testing::mutants::every_planted_fault_is_noticed",
        &source,
        FAULTS,
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
