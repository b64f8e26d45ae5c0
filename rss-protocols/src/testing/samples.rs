//! Mutants of samples: masks that are left out or used twice.
//!
//! They keep every result correct but for a few. The certificate notices each by the operation that is named.

use std::sync::OnceLock;

use mpc_core::testing::mutants::is_active;

use crate::{
    Tree,
    circuit::schedule::{Circuit, Predicate},
    runtime::prss::Key,
};

/// A mutant of a sample.
pub(super) struct SampleMutant {
    pub name: &'static str,
    /// The check that notices it.
    pub check: &'static str,
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

/// The operation that compares four at once.
const FOUR: &str = "masks of: maximum of four at once and its place";
const DEFAULT: &str = "masks of: product, default";
const FORTY: &str = "masks of: product, default, 40 bits";
const EXACT: &str = "masks of: product, exact";
const SELECT: &str = "masks of: select";
const SIGN: &str = "masks of: sign";
const RELU: &str = "masks of: fused relu, default";
const CHAIN: &str = "masks of: chain, default";
const FSS: &str = "masks of: relu at once, default";
const CHECKED: &str = "masks of: checked product";
const TRIG: &str = "masks of: trigonometric sum";
const SHUFFLE: &str = "masks of: shuffle";
const SUMS: &str = "masks of: sums of bits";

/// Elements of the certificate's operations, and words of their planes.
const N: usize = 2048;
const COLS: usize = N / 64;

/// Mutants of samples, by the use of the samples.
pub(super) const SAMPLES: &[SampleMutant] = &[
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
    sample("relu by keys: A under the seeds of right's keys", FSS, (Right, 2), Like(Right, 1)),
    sample("relu by keys: na under the seeds of left's keys", FSS, (Left, 2), Like(Left, 1)),
    sample("relu by keys: y0 is the mask of A", FSS, (Right, 3), Like(Right, 2)),
    sample("relu by keys: y1 is the mask of na", FSS, (Left, 3), Like(Left, 2)),
    sample("and: y0 = w_right", "masks of: and", (Right, 1), Like(Right, 0)),
    sample("and: w_left off", "masks of: and", (Left, 0), Blank),
    sample("bits of words: those of a bare", "masks of: bits of words", (Right, 0), Blank),
    sample("sums: y1 off", SUMS, (Left, 1), Blank),
    sample("sums: all bits of an element under one mask", SUMS, (Left, 0), Words(|i| i % N)),
    // halves; a_right, bits of hi, na, the carry, fields
    sample("checked: a bare", CHECKED, (Right, 1), Blank),
    sample("checked: the bits of a bare", CHECKED, (Left, 1), Blank),
    sample("checked: the carry under the mask of na", CHECKED, (Left, 3), Like(Left, 2)),
    sample("checked: left's field bare", CHECKED, (Left, 4), Blank),
    sample("checked: right's field under the mask of a", CHECKED, (Right, 2), Like(Right, 1)),
    // of two terms; the truncation's: half, na and field, half, field, y0; a bit's
    sample("trig sum: cosines bare", TRIG, (Left, 0), Blank),
    sample("trig sum: sines bare", TRIG, (Right, 0), Blank),
    sample("trig sum: two terms under one mask", TRIG, (Right, 1), Like(Right, 0)),
    sample("trig sum: left's half bare", TRIG, (Left, 2), Blank),
    sample("trig sum: right's half bare", TRIG, (Right, 2), Blank),
    // of each tensor, the order's key once before: z_left, y1; z_right, y0
    sample("shuffle: z_left off", SHUFFLE, (Left, 1), Blank),
    sample("shuffle: z_right off", SHUFFLE, (Right, 1), Blank),
    sample("shuffle: y1 off", SHUFFLE, (Left, 2), Blank),
    sample("shuffle: y0 off", SHUFFLE, (Right, 2), Blank),
    sample("shuffle: y1 = z_left", SHUFFLE, (Left, 2), Like(Left, 1)),
    sample("shuffle: y0 = z_right", SHUFFLE, (Right, 2), Like(Right, 1)),
    sample("shuffle: two tensors under one mask", SHUFFLE, (Left, 3), Like(Left, 1)),
    sample("shuffle: bits bare", SHUFFLE, (Right, 5), Blank),
    sample("random: right knows them", "random words", (Left, 0), Blank),
    sample("random: left knows them", "random words", (Right, 0), Blank),
    sample("random: the dealer knows them", "random words", (Peers, 0), Blank),
    sample("shuffle: right knows the order", "orders of shuffles", (Left, 0), Blank),
    sample("shuffle: left knows the order", "orders of shuffles", (Right, 0), Blank),
    sample("shuffle: the dealer knows the order", "orders of shuffles", (Peers, 0), Blank),
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
    // A release comes after inputs; only it has one sample of both evaluators.
    let first = operation == 1 || key == Peers;
    (first && key == mutant.key && number == mutant.number).then_some(mutant.change)
}
