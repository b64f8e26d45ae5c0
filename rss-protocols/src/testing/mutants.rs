//! The mutants of this crate, each of which its tests must notice.
//!
//! Mutants of samples are tables of this file: a mask is left out or used twice. The certificate notices them by the
//! operation that is named. Mutants of the code are made where they change it, and noticed by a check of the
//! conformance suite.

use std::{path::Path, sync::OnceLock, time::Duration};

use mpc_core::{
    Finish, Product, Profile, Protocol, SplitMix64, TestWorld, TruncationMode, conformance,
    mutants::{Mutant, every_mutant_is_noticed, is_active},
};
use net::{Party, Session};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};

use super::{certificate, releases};
use crate::{
    Options, Rss, Tree,
    circuit::schedule::{self, Circuit, Predicate},
    runtime::{
        fss,
        prss::{self, Key},
    },
};

/// A mutant of a sample: a mask that is left out, or used twice. It keeps every result correct but for a few.
struct SampleMutant {
    name: &'static str,
    check: &'static str,
    /// The mutated sample: its key, and the number of samples of that key before it in the first operation.
    key: Key,
    number: usize,
    change: Change,
}

/// The words of a mutated sample.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// Zeros.
    Blank,
    /// Those of another sample, by key and number.
    Like(Key, usize),
    /// Each is a word of the sample, at a place that follows from its own.
    Words(fn(usize) -> usize),
}

use Change::{Blank, Like, Words};
use Key::{Left, Own, Peers, Right};

const fn sample(
    name: &'static str,
    check: &'static str,
    (key, number): (Key, usize),
    change: Change,
) -> SampleMutant {
    SampleMutant { name, check, key, number, change }
}

/// A mutant of the code, which a line `mutant!` makes where it says so.
const fn code(name: &'static str, check: &'static str) -> Mutant {
    Mutant { name, check }
}

/// Where four are compared at once.
const FOUR: &str = "masks of: maximum of four at once and its place";
const DEFAULT: &str = "masks of: product, default";
const FORTY: &str = "masks of: product, default, 40 bits";
const EXACT: &str = "masks of: product, exact";
const SELECT: &str = "masks of: select";
const SIGN: &str = "masks of: sign";
const RELU: &str = "masks of: fused relu, default";
const CHAIN: &str = "masks of: chain, default";
const FSS: &str = "masks of: relu at once, default";
const SUMS: &str = "masks of: sums of bits";

/// Elements of the certificate's operations, and words of their planes.
const N: usize = 2048;
const COLS: usize = N / 64;

/// Mutants of samples, by what they are samples of.
const SAMPLES: &[SampleMutant] = &[
    sample("input: not masked", "masks of: input", (Right, 0), Blank),
    sample("input sums: left's addend not masked", "masks of: sums of inputs", (Left, 0), Blank),
    sample("input sums: right's addend not masked", "masks of: sums of inputs", (Right, 0), Blank),
    sample("product: w_left off", "masks of: product", (Left, 0), Blank),
    sample("product: w_right off", "masks of: product", (Right, 0), Blank),
    // w_left, e, m_left; w_right, m_right, y0
    sample("truncation: e off", FORTY, (Left, 1), Blank),
    sample("truncation: m_left off", FORTY, (Left, 2), Blank),
    sample("truncation: m_right off", DEFAULT, (Right, 1), Blank),
    sample("truncation: y0 off", DEFAULT, (Right, 2), Blank),
    // w_left, the carry's three, u, e, m_left; w_right, the carry's four, y0, m_right
    sample("exact: u bare", EXACT, (Left, 4), Blank),
    sample("exact: m_left = e", EXACT, (Left, 6), Like(Left, 5)),
    sample("exact: m_right = y0", EXACT, (Right, 6), Like(Right, 5)),
    // u, y1; d, y0
    sample("select: u bare", SELECT, (Left, 0), Blank),
    sample("select: y0 off", SELECT, (Right, 1), Blank),
    sample("select: y1 off", SELECT, (Left, 1), Blank),
    sample("select: y0 is the mask of u a", SELECT, (Right, 1), Like(Right, 0)),
    sample("select: y1 is the mask of u", SELECT, (Left, 1), Like(Left, 0)),
    // digits, masks, m_left; masks, shares, products, m_right, the bit's share
    sample("circuit: digits bare", SIGN, (Left, 0), Blank),
    sample("circuit: left masks both bits of a node alike", SIGN, (Left, 1), Words(twin)),
    sample("circuit: right masks both bits of a node alike", SIGN, (Right, 0), Words(twin)),
    sample("circuit: masks shared under right's masks", SIGN, (Right, 1), Like(Right, 0)),
    sample("circuit: all products under one mask", SIGN, (Right, 2), Words(|i| i % COLS)),
    sample("circuit: products under right's masks", SIGN, (Right, 2), Like(Right, 0)),
    sample("sign: m_left off", SIGN, (Left, 2), Blank),
    sample("sign: m_right off", SIGN, (Right, 3), Blank),
    sample("sign: right's share of the mask is m_right", SIGN, (Right, 4), Like(Right, 3)),
    // w_left, the sign's three, u, na, u na, y1; w_right, the sign's four, A, u A, y0
    sample("relu: A and u A under one mask", RELU, (Right, 6), Like(Right, 5)),
    sample("relu: na and u na under one mask", RELU, (Left, 6), Like(Left, 5)),
    sample("relu: y1 is the mask of u", RELU, (Left, 7), Like(Left, 4)),
    sample("relu: y0 is the mask of A", RELU, (Right, 7), Like(Right, 5)),
    sample(
        "mask: y0 is the mask of u A",
        "masks of: masked product, default",
        (Right, 3),
        Like(Right, 2),
    ),
    // of the square w_left, na; w_right, A; of the next step w_left, na, the square's carry
    sample("chain: w_left off", CHAIN, (Left, 0), Blank),
    sample("chain: w_right off", CHAIN, (Right, 0), Blank),
    sample("chain: A bare", CHAIN, (Right, 1), Blank),
    sample("chain: the share of A under w_right", CHAIN, (Right, 1), Like(Right, 0)),
    sample("chain: na bare", CHAIN, (Left, 1), Blank),
    sample("chain: a carry's product under the mask of na", CHAIN, (Left, 4), Like(Left, 3)),
    sample("chain: a carry's product bare", CHAIN, (Left, 4), Blank),
    sample("chain: a result's m_left off", CHAIN, (Left, 14), Blank),
    sample("chain: a result's m_right off", CHAIN, (Right, 10), Blank),
    // the signs' three, u by pair, products; the signs' two, parts, y0
    sample("maximum of four: a product of bits under a bit's mask", FOUR, (Left, 9), Like(Left, 3)),
    sample(
        "maximum of four: parts of two subsets under one mask",
        FOUR,
        (Right, 3),
        Like(Right, 2),
    ),
    sample("maximum of four: y0 is the mask of a part", FOUR, (Right, 44), Like(Right, 2)),
    sample("maximum of four: y1 is the mask of a bit", FOUR, (Left, 21), Like(Left, 3)),
    // w_left, seeds, na, y1; w_right, seeds, A, y0
    sample("relu by keys: y0 is the mask of A", FSS, (Right, 3), Like(Right, 2)),
    sample("relu by keys: y1 is the mask of na", FSS, (Left, 3), Like(Left, 2)),
    sample("and: y0 = w_right", "masks of: and", (Right, 1), Like(Right, 0)),
    sample("and: w_left off", "masks of: and", (Left, 0), Blank),
    sample("bits of words: those of a bare", "masks of: bits of words", (Right, 0), Blank),
    sample("sums: y1 off", SUMS, (Left, 1), Blank),
    sample("sums: all bits of an element under one mask", SUMS, (Left, 0), Words(|i| i % N)),
    sample("dither: left knows the dealer's coin", "coins of dithering", (Own, 0), Like(Left, 3)),
    sample("release: addends not masked", "released results", (Peers, 0), Blank),
];

/// A word of the other plane of a node of the sign's circuit, if the node opens both; other words for themselves.
fn twin(word: usize) -> usize {
    static PLANES: OnceLock<Vec<usize>> = OnceLock::new();
    let planes = PLANES.get_or_init(|| {
        let circuit = Circuit::new(Tree::default(), Predicate::Carry, 63);
        (0..circuit.opened).map(|plane| circuit.twin(plane)).collect()
    });
    planes[word / COLS] * COLS + word % COLS
}

/// The change of a sample, if the mutant of this process is of it.
pub(super) fn change(operation: u64, key: Key, number: usize) -> Option<Change> {
    let of = |mutant: &&SampleMutant| is_active(mutant.name);
    let mutant = SAMPLES.iter().find(of)?;
    // A release comes after inputs, and alone has one sample of both evaluators.
    let first = operation == 1 || key == Peers;
    (first && key == mutant.key && number == mutant.number).then_some(mutant.change)
}

/// Mutants of the code.
const CODE: &[Mutant] = &[
    code("all samples at one place", "masks of: product"),
    code(
        "truncation: both ends of a word for fields that meet",
        "masks of: product, default, 40 bits",
    ),
    code("keys: values of nodes bare", "masks of keys"),
    code("keys: the lost seeds bare", "masks of points' keys"),
    code("a party's own stream from one pair's key", "keys"),
    code("release: components not masked", "released results"),
    code("stream keys without the pairs' secrets", "keys"),
    code("truncation rounds down", "truncations"),
    code("truncation: half the offset", "truncations"),
    code("truncation: half of what a carry takes", "truncated products"),
    code("early: left's half rounded down", "means of early halves"),
    code("early: ties up", "means of early halves"),
    code("dither: the coin's carry stays", "truncated products"),
    code("sign: a bit short", "comparisons"),
    code("circuit: larger groups at the high end", "circuits"),
    code("circuit: the last digit a bit too low", "comparisons"),
    code("circuit: a term of a product of four left out", "comparisons by fours"),
    code("select: v b twice", "selections"),
    code("zero test: of b instead of b - 1", "zero tests"),
    code("max: a bit short", "maxima"),
    code("largest of four: a bit's opposite forgotten", "maxima for slow links"),
    code("looked up: the dealer's low bits squared once", "functions for slow links"),
    code("relu at once: a threshold's low bits off", "fused relu for slow links"),
    code("gradient: to those that lost", "maxima"),
    code("paired: a sign of the inverse", "raw products"),
    code("product: the last term alone", "terms"),
    code("product: an addend without its shift", "summands"),
    code("masked product: by the bit's opposite", "kept signs"),
    code("kept: the opposite forgotten", "kept signs"),
    code("kept: pieces joined as if aligned", "maxima"),
    code("chain: a carry times itself forgotten", "chains"),
    code("chain: an addend's carry forgotten", "chains"),
    code("chain: a carry in the second factor forgotten", "chains"),
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
        "released results" => releases::released_results_tell_themselves_and_no_component(),
        "keys" => prss::tests::streams_follow_from_all_keys_of_their_parties(),
        "coins of dithering" => super::openings::no_party_knows_which_way_dithering_rounds(),
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
