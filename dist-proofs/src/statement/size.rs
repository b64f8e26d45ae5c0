//! Sizes of statements.

use ring_arith::EngineTensor;

use super::{Kind, Relation, Statements};
use crate::{
    part::{self, Parameters},
    proofs::ANNOUNCEMENT,
};

/// Relations and products, each counted for every bit, word, or contracted row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Relations: one for each bit or word that is bound.
    pub relations: usize,
    /// Products in them. Of maps, one for each pair of factors.
    pub products: usize,
}

/// The cost of a proof of statements. Verdicts are not in it: each party sends two words to each of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProofCost {
    /// Relations of bits.
    pub bits: Size,
    /// Relations of words.
    pub words: Size,
    /// Relations of tensors.
    pub maps: Size,
    /// Bytes that the prover sends.
    pub prover_bytes: usize,
    /// Bytes that the left verifier sends.
    pub left_bytes: usize,
    /// Bytes that the right verifier sends.
    pub right_bytes: usize,
    /// Messages one after the other, verdicts included.
    pub rounds: usize,
}

impl<T: EngineTensor> Statements<T> {
    /// Bits that the relations bind: one for each bit of a plane, or of a word modulo `2^modulus_bits`. Relations that
    /// leave a prover no choice bind as many bits as it sent.
    pub fn bound(&self) -> usize {
        let bits = |relation: &Relation<T>| match &relation.kind {
            Kind::Bits { planes, elements } => planes * elements,
            Kind::Words { modulus_bits, elements } => *modulus_bits as usize * elements,
            Kind::Map { .. } => 64 * relation.kind.words(),
        };
        self.relations.iter().map(bits).sum()
    }

    /// The cost of a proof of these statements; it follows from their public shape.
    pub fn cost(&self) -> ProofCost {
        let mut cost = ProofCost::default();
        for relation in &self.relations {
            let products = relation.products.len();
            let (size, places, products) = match &relation.kind {
                Kind::Bits { planes, elements } => {
                    (&mut cost.bits, planes * elements, products * planes * elements)
                }
                Kind::Words { elements, .. } => (&mut cost.words, *elements, products * elements),
                Kind::Map { .. } => (&mut cost.maps, relation.kind.words(), products),
            };
            size.relations += places;
            size.products += products;
        }
        let shapes = part::shapes(self, Parameters::default());
        let messages = shapes.iter().map(|shape| shape.messages.len()).max().unwrap_or(0);
        cost.prover_bytes = 8 * shapes.iter().flat_map(|shape| &shape.messages).sum::<usize>();
        cost.left_bytes =
            8 * shapes.iter().map(|shape| shape.opening).sum::<usize>() + 8 * ANNOUNCEMENT;
        cost.right_bytes = 32 * messages;
        cost.rounds = 2 * messages + 4;
        cost
    }
}
