//! Statements in the clear, for tests of protocols: which relations are false.

use ring_arith::{Bilinear, CpuEngine, Engine, Tensor};

use super::{Kind, Relation, Side, Spoken, Statements, Term};

/// A relation that does not hold as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its number.
    pub relation: usize,
    /// The words of messages that it binds.
    pub spoken: Vec<Spoken>,
    /// The fault.
    pub fault: Fault,
}

/// The fault of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What the verifiers hold does not fit together: a proof of it is rejected.
    False {
        /// Words that are not zero.
        words: usize,
        /// The first of them.
        first: usize,
    },
    /// The prover holds other words than this verifier. In an honest run that is an error in the protocol's statement;
    /// a prover that lies holds what it likes.
    Differs(Side),
}

/// Combines the three sides' statements and lists what is false in what the verifiers hold, and where the prover holds
/// something else. Empty for an honest run.
///
/// # Panics
/// If these are not one statement's three sides, or the sides differ in their public shape.
pub fn evaluate(prover: &Statements, left: &Statements, right: &Statements) -> Vec<Finding> {
    let sides = [prover.side, left.side, right.side];
    assert_eq!(sides, [Side::Prover, Side::Left, Side::Right], "one statement's three sides");
    assert_eq!(prover.digest(), left.digest(), "the left side's statement has another shape");
    assert_eq!(prover.digest(), right.digest(), "the right side's statement has another shape");
    let mut findings = Vec::new();
    for (at, relation) in prover.relations.iter().enumerate() {
        let mut found = |fault| {
            findings.push(Finding { relation: at, spoken: relation.spoken.clone(), fault });
        };
        let sum = sums(at, left, right);
        let mut wrong =
            sum.iter().enumerate().filter(|(_, word)| **word != 0).map(|(place, _)| place);
        if let Some(first) = wrong.next() {
            found(Fault::False { words: 1 + wrong.count(), first });
        }
        for verifier in [left, right] {
            if differs(prover, verifier, at) {
                found(Fault::Differs(verifier.side));
            }
        }
    }
    findings
}

/// By relation, the words that are 0 if it holds, in what the verifiers hold.
pub fn residuals(left: &Statements, right: &Statements) -> Vec<(Kind, Vec<u64>)> {
    let relation = |at: usize| (left.relations[at].kind.clone(), sums(at, left, right));
    (0..left.relations.len()).map(relation).collect()
}

/// The operand `at`, from the verifier that knows it.
fn operand<'a>(at: usize, left: &'a Statements, right: &'a Statements) -> &'a Tensor {
    let holder = if left.operands[at].verifier == Side::Left { left } else { right };
    holder.operands[at].tensor.as_ref().expect("a verifier knows its operands")
}

fn known(term: &Term<Tensor>) -> &Tensor {
    term.tensor.as_ref().expect("a verifier knows its terms")
}

/// The relation's left side, whose words should all be zero.
pub(crate) fn sums(at: usize, left: &Statements, right: &Statements) -> Vec<u64> {
    let kind = &left.relations[at].kind;
    let mut sum = vec![0u64; kind.words()];
    let bits = matches!(kind, Kind::Bits { .. });
    for term in left.relations[at].left.iter().chain(&right.relations[at].right) {
        for (sum, &word) in sum.iter_mut().zip(known(term).words()) {
            *sum = match (bits, term.negative) {
                (true, _) => *sum ^ word,
                (false, false) => sum.wrapping_add(word),
                (false, true) => sum.wrapping_sub(word),
            };
        }
    }
    for factors in &left.relations[at].products {
        let [a, b] = factors.map(|factor| operand(factor.operand, left, right));
        add_product(kind, a, b, &mut sum);
    }
    mask(kind, &mut sum);
    sum
}

fn add_product(kind: &Kind, a: &Tensor, b: &Tensor, sum: &mut [u64]) {
    match kind {
        Kind::Bits { .. } => {
            let pairs = a.words().iter().cycle().zip(b.words().iter().cycle());
            sum.iter_mut().zip(pairs).for_each(|(sum, (a, b))| *sum ^= a & b);
        }
        Kind::Words { .. } => {
            let pairs = a.words().iter().zip(b.words());
            sum.iter_mut()
                .zip(pairs)
                .for_each(|(sum, (a, b))| *sum = sum.wrapping_add(a.wrapping_mul(*b)));
        }
        Kind::Map { map, .. } => {
            let product = product(map, a, b);
            sum.iter_mut()
                .zip(product.words())
                .for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
    }
}

fn product(map: &Bilinear, a: &Tensor, b: &Tensor) -> Tensor {
    CpuEngine::new(1)
        .bilinear(map, &[(a, b)], &[])
        .expect("shapes were checked when the product was added")
}

/// Leaves the bits that count.
fn mask(kind: &Kind, words: &mut [u64]) {
    match kind {
        Kind::Bits { elements, .. } if elements % 64 != 0 => {
            let last = u64::MAX >> (64 - elements % 64);
            words.chunks_mut(elements.div_ceil(64)).for_each(|plane| plane[elements / 64] &= last);
        }
        Kind::Words { modulus_bits, .. } => {
            words.iter_mut().for_each(|word| *word &= u64::MAX >> (64 - modulus_bits));
        }
        Kind::Bits { .. } | Kind::Map { .. } => {}
    }
}

/// True if the prover holds another operand or term of a relation than the verifier.
fn differs(prover: &Statements, verifier: &Statements, at: usize) -> bool {
    let relation = &prover.relations[at];
    let terms = |relation: &'_ Relation<Tensor>| -> Vec<Vec<u64>> {
        let terms = if verifier.side == Side::Left { &relation.left } else { &relation.right };
        terms.iter().map(|term| masked(&relation.kind, known(term))).collect()
    };
    let mut factors = relation.products.iter().flatten().map(|factor| factor.operand);
    let operands_differ = factors.any(|at| {
        let mine = &prover.operands[at].tensor;
        prover.operands[at].verifier == verifier.side && *mine != verifier.operands[at].tensor
    });
    operands_differ || terms(relation) != terms(&verifier.relations[at])
}

fn masked(kind: &Kind, tensor: &Tensor) -> Vec<u64> {
    let mut words = tensor.words().to_vec();
    mask(kind, &mut words);
    words
}
