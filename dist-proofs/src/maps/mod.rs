//! The part of a proof for relations of tensors, `sum_k map(A_k, B_k) + L + R = 0` modulo `2^64`, over the Galois ring
//! `GR(2^64, 47)`.
//!
//! The first challenge weighs rows and columns of each relation by polynomials with coefficients 0 and 1. A false entry
//! stays in the weighted sum but with probability `2 * 2^-47`, since differences of weights are units. Products become inner
//! products of contracted factors ([`unfold`]), proven together ([`crate::inner`]) with an error of `2 * 2^-47` for each
//! variable.

mod contract;
mod unfold;

use ring_arith::Tensor;

#[cfg(test)]
use crate::cheat::Shadow;
use crate::{
    inner::{self, Halves, InnerProver, InnerVerifier, first_words, next_words},
    keys::Draw,
    part::{PartKind, PartShape, ProverPart, Setting, VerifierPart},
    ring::{
        Ring,
        galois::{DEGREE, Element, Galois},
    },
    statement::{Factor, Kind, Relation, Side, Statements},
    sumcheck::{self, Half, Prover},
};
use unfold::Unfold;

/// The messages of this part.
pub(crate) fn shape<T>(statements: &Statements<T>) -> PartShape {
    let rounds = inner::messages::<Galois>(vector_len(statements));
    let mut messages = vec![first_words::<Galois>()];
    messages.resize(rounds, next_words::<Galois>());
    PartShape { kind: PartKind::Maps, messages, opening: 2 * DEGREE }
}

/// The relations of tensors.
fn relations<T>(statements: &Statements<T>) -> impl Iterator<Item = (Unfold<'_>, &Relation<T>)> {
    statements.relations.iter().filter_map(|relation| match &relation.kind {
        Kind::Map { map, lhs, rhs } => Some((Unfold { map, lhs, rhs }, relation)),
        _ => None,
    })
}

/// Elements of the vectors: of all products with factors of both verifiers, and the blinding.
fn vector_len<T>(statements: &Statements<T>) -> usize {
    let products = relations(statements).map(|(unfold, relation)| {
        relation.products.iter().filter(|factors| owner(statements, factors).is_none()).count()
            * unfold.inner()
    });
    products.sum::<usize>() + 1
}

/// The verifier that knows both factors, if one does.
fn owner<T>(statements: &Statements<T>, factors: &[Factor; 2]) -> Option<Side> {
    let [a, b] = factors.map(|factor| statements.operands[factor.operand].verifier);
    (a == b).then_some(a)
}

/// The weights of a relation: masks of coefficients.
struct Weights {
    rows: Vec<u64>,
    columns: Vec<u64>,
}

fn draw_weights(ring: &Galois, statements: &Statements, challenge: &mut Draw) -> Vec<Weights> {
    let mut draw = |n: usize| (0..n).map(|_| ring.weight(challenge)).collect::<Vec<_>>();
    let relation = |(unfold, _): (Unfold<'_>, &Relation<Tensor>)| {
        let [rows, columns] = unfold.result();
        Weights { rows: draw(rows), columns: draw(columns) }
    };
    relations(statements).map(relation).collect()
}

/// A factor's vector; `second` says which of the map's it is.
fn vector(
    statements: &Statements,
    unfold: &Unfold<'_>,
    weights: &Weights,
    factor: Factor,
    second: bool,
) -> Vec<Element> {
    let tensor =
        statements.operands[factor.operand].tensor.as_ref().expect("sides pass what they know");
    if second { unfold.rhs(tensor, &weights.columns) } else { unfold.lhs(tensor, &weights.rows) }
}

/// A verifier's vector, with a place for the blinding.
fn vector_of(statements: &Statements, weights: &[Weights], side: Side) -> Vec<Element> {
    let mut elements = Vec::with_capacity(vector_len(statements));
    for ((unfold, relation), weights) in relations(statements).zip(weights) {
        for factors in
            relation.products.iter().filter(|factors| owner(statements, factors).is_none())
        {
            let second = statements.operands[factors[1].operand].verifier == side;
            let factor = factors[usize::from(second)];
            elements.extend(vector(statements, &unfold, weights, factor, second));
        }
    }
    elements.push([0; DEGREE]);
    elements
}

/// A verifier's half of the claim: less its terms, and products whose factors it knows.
fn claim(ring: &Galois, statements: &Statements, weights: &[Weights], side: Side) -> Element {
    let mut sum = ring.zero();
    for ((unfold, relation), weights) in relations(statements).zip(weights) {
        let Relation { left, right, .. } = relation;
        let mut words = vec![0u64; relation.kind.words()];
        for term in if side == Side::Left { left } else { right } {
            let tensor = term.tensor.as_ref().expect("sides pass what they know");
            for (sum, &word) in words.iter_mut().zip(tensor.words()) {
                *sum = if term.negative { sum.wrapping_sub(word) } else { sum.wrapping_add(word) };
            }
        }
        sum = ring.add(sum, unfold.term(ring, &words, &weights.rows, &weights.columns));
        for factors in
            relation.products.iter().filter(|factors| owner(statements, factors) == Some(side))
        {
            let [a, b] =
                [0, 1].map(|at| vector(statements, &unfold, weights, factors[at], at == 1));
            sum = ring.add(sum, ring.dot(&a, &b));
        }
    }
    ring.sub(ring.zero(), sum)
}

/// The prover's side.
pub(crate) struct MapsProver<'a> {
    statements: &'a Statements,
    ring: Galois,
    shares: Draw,
    blinding: Draw,
    inner: Option<InnerProver<Galois>>,
    #[cfg(test)]
    cheat: Option<usize>,
}

impl<'a> MapsProver<'a> {
    pub fn new(setting: Setting<'a>, shares: Draw, blinding: Draw) -> Self {
        let Setting { statements, parameters, .. } = setting;
        Self {
            statements,
            ring: Galois::new(parameters.challenge_bits),
            shares,
            blinding,
            inner: None,
            #[cfg(test)]
            cheat: None,
        }
    }
}

impl ProverPart for MapsProver<'_> {
    fn answer(&mut self, challenge: &mut Draw) -> Vec<u64> {
        if let Some(inner) = &mut self.inner {
            return inner.answer(challenge, &mut self.shares);
        }
        let weights = draw_weights(&self.ring, self.statements, challenge);
        let [x, y] =
            [Side::Left, Side::Right].map(|side| vector_of(self.statements, &weights, side));
        let place = x.len() - 1;
        let mut inner = InnerProver::new(Prover::new(self.ring.clone(), x, y), place);
        #[cfg(test)]
        if let Some(message) = self.cheat {
            let mut shadow = Shadow::new(self.ring.clone(), message);
            for side in [Side::Left, Side::Right] {
                shadow.begin(claim(&self.ring, self.statements, &weights, side));
            }
            inner.shadow = Some(shadow);
        }
        let message = inner.first_message(&mut self.shares, &mut self.blinding);
        self.inner = Some(inner);
        message
    }

    #[cfg(test)]
    fn cheat(&mut self, message: usize) {
        self.cheat = Some(message);
    }
}

/// A verifier's side.
pub(crate) struct MapsVerifier<'a> {
    statements: &'a Statements,
    ring: Galois,
    blinding: Option<Draw>,
    state: State,
}

#[allow(clippy::large_enum_variant)] // there is one for each proof
enum State {
    Start,
    /// This verifier's vector and its half of the claim.
    Contracted {
        vector: Vec<Element>,
        claim: Element,
    },
    Inner {
        vector: Vec<Element>,
        inner: InnerVerifier<Galois>,
    },
}

impl<'a> MapsVerifier<'a> {
    /// `blinding` is the right verifier's.
    pub fn new(setting: Setting<'a>, blinding: Option<Draw>) -> Self {
        let Setting { statements, parameters, .. } = setting;
        Self {
            statements,
            ring: Galois::new(parameters.challenge_bits),
            blinding,
            state: State::Start,
        }
    }

    fn values(&self) -> [Element; 2] {
        let State::Inner { vector, inner } = &self.state else {
            unreachable!("the last challenge was taken")
        };
        let places = sumcheck::weights(&self.ring, vector.len(), inner.weights());
        inner.last(self.ring.dot(vector, &places), places[places.len() - 1])
    }
}

impl VerifierPart for MapsVerifier<'_> {
    fn absorb(&mut self, challenge: &mut Draw, halves: &mut Halves) -> Option<()> {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Start => {
                let weights = draw_weights(&self.ring, self.statements, challenge);
                let side = self.statements.side();
                let vector = vector_of(self.statements, &weights, side);
                let claim = claim(&self.ring, self.statements, &weights, side);
                State::Contracted { vector, claim }
            }
            State::Contracted { vector, claim } => {
                let half = Half::new(self.ring.clone(), claim);
                let mut inner = InnerVerifier::begin(half, halves, self.blinding.as_mut())?;
                inner.absorb(challenge, halves)?;
                State::Inner { vector, inner }
            }
            State::Inner { vector, mut inner } => {
                inner.absorb(challenge, halves)?;
                State::Inner { vector, inner }
            }
        };
        Some(())
    }

    fn last(&self) -> Vec<u64> {
        self.values().concat()
    }

    fn accepts(&self, left: &[u64]) -> bool {
        if left.len() != 2 * DEGREE {
            return false;
        }
        let [value, claim] =
            [0, 1].map(|at| std::array::from_fn(|place| left[at * DEGREE + place]));
        inner::fits(&self.ring, [value, claim], self.values())
    }
}
