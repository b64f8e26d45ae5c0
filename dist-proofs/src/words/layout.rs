//! The words of a statement's relations, one relation after the other.

use std::ops::Range;

use ring_arith::Tensor;

use crate::statement::{Kind, Relation, Side, Statements, Term};

/// Sizes, and where each relation's words are.
pub(crate) struct Layout {
    relations_at: Vec<At>,
    /// Relations, one for each word that is bound.
    pub relations: usize,
    /// Products in them.
    pub products: usize,
}

struct At {
    /// The relation among the statement's.
    relation: usize,
    /// Its words among those of all relations.
    words: Range<usize>,
    /// Factors are multiplied by two to this.
    shift: u32,
}

impl Layout {
    pub fn new<T>(statements: &Statements<T>) -> Self {
        let mut layout = Self { relations_at: Vec::new(), relations: 0, products: 0 };
        for (relation, Relation { kind, products, .. }) in statements.relations.iter().enumerate() {
            let &Kind::Words { modulus_bits, elements } = kind else { continue };
            let words = layout.relations..layout.relations + elements;
            layout.relations = words.end;
            layout.products += products.len() * elements;
            layout.relations_at.push(At { relation, words, shift: 64 - modulus_bits });
        }
        layout
    }

    /// Bits of a sum of quotients: each is below `2^64` times its products, plus 2. A multiple of four, so that those of 48
    /// subsets fill whole words.
    pub fn quotient_bits(&self) -> usize {
        let most = (self.products + 1) as u64;
        (64 + most.ilog2() as usize + 1).next_multiple_of(4)
    }

    /// Calls `each` with every left factor, two to what it is multiplied by, and the range of its relations.
    pub fn left_factors(
        &self,
        statements: &Statements,
        mut each: impl FnMut(&[u64], u32, Range<usize>),
    ) {
        for at in &self.relations_at {
            for [factor, _] in &statements.relations[at.relation].products {
                let words = known(&statements.operands[factor.operand].tensor).words();
                each(words, at.shift, at.words.clone());
            }
        }
    }

    /// Calls `each` with every right factor.
    pub fn right_factors(&self, statements: &Statements, mut each: impl FnMut(&[u64])) {
        for at in &self.relations_at {
            for [_, factor] in &statements.relations[at.relation].products {
                each(known(&statements.operands[factor.operand].tensor).words());
            }
        }
    }

    /// The sum of the terms that a verifier knows of every relation, modulo `2^64`.
    pub fn terms(&self, statements: &Statements, side: Side) -> Vec<u64> {
        let mut sums = vec![0u64; self.relations];
        for at in &self.relations_at {
            let Relation { left, right, .. } = &statements.relations[at.relation];
            for Term { negative, tensor } in if side == Side::Left { left } else { right } {
                let words = known(tensor).words();
                for (sum, &word) in sums[at.words.clone()].iter_mut().zip(words) {
                    let word = word << at.shift;
                    *sum = if *negative { sum.wrapping_sub(word) } else { sum.wrapping_add(word) };
                }
            }
        }
        sums
    }

    /// What each relation's left side is as an integer, divided by `2^64`, at the prover.
    pub fn quotients(&self, statements: &Statements) -> Vec<u128> {
        let left = self.terms(statements, Side::Left);
        let right = self.terms(statements, Side::Right);
        // Sums of lower and of upper halves of products.
        let mut low: Vec<u128> =
            left.iter().zip(&right).map(|(&l, &r)| u128::from(l) + u128::from(r)).collect();
        let mut high = vec![0u128; self.relations];
        for at in &self.relations_at {
            for factors in &statements.relations[at.relation].products {
                let [a, b] = factors
                    .map(|factor| known(&statements.operands[factor.operand].tensor).words());
                let sums = low[at.words.clone()].iter_mut().zip(&mut high[at.words.clone()]);
                for ((low, high), (&a, &b)) in sums.zip(a.iter().zip(b)) {
                    let product = u128::from(a << at.shift) * u128::from(b);
                    *low += u128::from(product as u64);
                    *high += product >> 64;
                }
            }
        }
        high.iter().zip(&low).map(|(high, low)| high + (low >> 64)).collect()
    }
}

fn known(tensor: &Option<Tensor>) -> &Tensor {
    tensor.as_ref().expect("sides pass what they know")
}
