//! The part of a proof for relations of words, `sum_k A_k B_k + L + R = 0` modulo `2^64`, without a ring extension.
//!
//! Read as integers, words below `2^64`, the left side is `2^64 q`. A relation modulo `2^t` is multiplied by `2^(64 - t)`.
//!
//! 1. The first challenge draws random subsets of all relations. If a relation is false, the sum over a subset is not a
//!    multiple of `2^64` with probability at least a half, whatever the error; over all 48 with probability `1 - 2^-48`.
//! 2. The prover shares the sums of `q` over the subsets bit by bit, by exclusive or. Both halves are bits as they are
//!    sent, so that no sum is out of its range.
//! 3. The second challenge draws a prime of 61 bits, and weights of the subsets: the equations of integers are checked
//!    together modulo the prime. An integer below `2^180` other than 0 has at most 2 prime factors of 61 bits, of more than
//!    `2^54`.
//! 4. What is left is an inner product in the prime field ([`crate::inner`]): of `A_k`, weighed, with `B_k`, and of the
//!    halves of the bits, since the exclusive or of two bits is `b + c - 2 b c`.

mod layout;
mod subsets;

#[cfg(test)]
use crate::cheat::Shadow;
use crate::{
    inner::{self, Halves, InnerProver, InnerVerifier, first_words, next_words},
    keys::Draw,
    part::{Parameters, PartKind, PartShape, ProverPart, Setting, VerifierPart},
    ring::{Ring, prime::Prime},
    scratch::Scratch,
    statement::{Side, Statements},
    sumcheck::{Half, Places, Prover},
};
use layout::Layout;
use subsets::Subsets;

/// The messages of this part.
pub(crate) fn shape<T>(statements: &Statements<T>, parameters: Parameters) -> PartShape {
    let layout = &Layout::new(statements);
    let rounds = inner::messages::<Prime>(vector_len(layout, parameters));
    let mut messages = vec![quotient_words(layout, parameters), first_words::<Prime>()];
    messages.resize(1 + rounds, next_words::<Prime>());
    PartShape { kind: PartKind::Words, messages, opening: 2 }
}

/// Words of the bits of all subsets' quotients.
fn quotient_words(layout: &Layout, parameters: Parameters) -> usize {
    (parameters.subsets * layout.quotient_bits()).div_ceil(64)
}

/// Elements of the vectors: products, bits of quotients, and the blinding.
fn vector_len(layout: &Layout, parameters: Parameters) -> usize {
    layout.products + parameters.subsets * layout.quotient_bits() + 1
}

/// The second challenge.
struct Weights {
    field: Prime,
    /// Of the relations, times R once more: a word times this is in Montgomery form.
    relations: Vec<u64>,
    /// Of the bits of quotients: `2^64 2^j` times the weight of the subset.
    bits: Vec<u64>,
}

impl Weights {
    fn draw(
        layout: &Layout,
        parameters: Parameters,
        subsets: &Subsets,
        challenge: &mut Draw,
    ) -> Self {
        let field = Prime::random(challenge, parameters.challenge_bits);
        mutant!("the prime is known before the quotients", field = Prime::known());
        let gammas: Vec<u64> = (0..parameters.subsets).map(|_| field.random(challenge)).collect();
        let mut bits = Vec::with_capacity(parameters.subsets * layout.quotient_bits());
        let two_to_64 = field.enter(field.one());
        for &gamma in &gammas {
            let mut weight = field.mul(gamma, two_to_64);
            for _ in 0..layout.quotient_bits() {
                bits.push(weight);
                weight = field.add(weight, weight);
            }
        }
        Self { relations: subsets.weights(&field, &gammas), field, bits }
    }

    /// A verifier's half of the claim, from its term of every relation and its halves of the bits.
    fn claim(&self, terms: &[u64], halves: &[u64]) -> u64 {
        let bits = bits(halves, self.bits.len()).zip(&self.bits).filter(|(bit, _)| *bit == 1);
        let quotients = bits.fold(0, |sum, (_, &weight)| self.field.add(sum, weight));
        self.field.sub(quotients, self.field.dot_words(terms, &self.relations))
    }

    /// The left vector: weighed factors, and twice the weighed halves of bits. With a place for the blinding. The vector is made in
    /// `vector`, which is empty.
    fn left_vector(
        &self,
        layout: &Layout,
        statements: &Statements,
        halves: &[u64],
        mut vector: Vec<u64>,
    ) -> Vec<u64> {
        layout.left_factors(statements, |words, shift, relations| {
            let weights = &self.relations[relations];
            vector.extend(
                words
                    .iter()
                    .zip(weights)
                    .map(|(&word, &weight)| self.field.mul_word(word << shift, weight)),
            );
        });
        let twice = |weight: u64| self.field.add(weight, weight);
        vector.extend(
            bits(halves, self.bits.len()).zip(&self.bits).map(|(bit, &weight)| bit * twice(weight)),
        );
        vector.push(0);
        vector
    }

    /// The right vector as plain words: factors, and halves of bits. With a place for the blinding. The vector is made in
    /// `vector`, which is empty.
    fn right_words(
        &self,
        layout: &Layout,
        statements: &Statements,
        halves: &[u64],
        mut vector: Vec<u64>,
    ) -> Vec<u64> {
        layout.right_factors(statements, |words| vector.extend_from_slice(words));
        vector.extend(bits(halves, self.bits.len()));
        vector.push(0);
        vector
    }
}

/// The first `n` bits of words.
fn bits(words: &[u64], n: usize) -> impl Iterator<Item = u64> {
    (0..n).map(|at| words[at / 64] >> (at % 64) & 1)
}

/// Numbers of `width` bits, one after the other.
fn packed(numbers: &[u128], width: usize) -> Vec<u64> {
    let mut words = vec![0; (numbers.len() * width).div_ceil(64)];
    for (at, &number) in numbers.iter().enumerate() {
        for bit in 0..width {
            let place = at * width + bit;
            words[place / 64] |= ((number >> bit & 1) as u64) << (place % 64);
        }
    }
    words
}

/// The prover's side.
pub(crate) struct WordsProver<'a> {
    statements: &'a Statements,
    parameters: Parameters,
    scratch: &'a Scratch,
    layout: Layout,
    shares: Draw,
    blinding: Draw,
    state: State,
    #[cfg(test)]
    cheat: Option<usize>,
}

enum State {
    Start,
    /// The quotients are sent: both verifiers' halves of their bits.
    Quotients {
        subsets: Subsets,
        left: Vec<u64>,
        right: Vec<u64>,
    },
    Inner(InnerProver<Prime>),
}

impl<'a> WordsProver<'a> {
    pub fn new(setting: Setting<'a>, shares: Draw, blinding: Draw) -> Self {
        let Setting { statements, parameters, scratch } = setting;
        Self {
            statements,
            parameters,
            scratch,
            layout: Layout::new(statements),
            shares,
            blinding,
            state: State::Start,
            #[cfg(test)]
            cheat: None,
        }
    }
}

impl Drop for WordsProver<'_> {
    fn drop(&mut self) {
        if let State::Inner(inner) = &mut self.state {
            inner.take_vectors().into_iter().for_each(|vector| self.scratch.give(vector));
        }
    }
}

#[cfg(test)]
impl WordsProver<'_> {
    /// Quotients that are right modulo a prime which the prover hopes for.
    fn forged(&self, subsets: &Subsets) -> Vec<u128> {
        let field = Prime::known();
        let left = self.layout.terms(self.statements, Side::Left);
        let right = self.layout.terms(self.statements, Side::Right);
        let mut sums: Vec<u64> = left
            .iter()
            .zip(&right)
            .map(|(&l, &r)| field.add(field.enter(l), field.enter(r)))
            .collect();
        let mut factors = Vec::new();
        self.layout.left_factors(self.statements, |words, shift, relations| {
            factors.push((words.iter().map(|word| word << shift).collect::<Vec<_>>(), relations));
        });
        let mut factors = factors.into_iter();
        self.layout.right_factors(self.statements, |words| {
            let (others, relations) = factors.next().expect("factors come in pairs");
            for (sum, (&a, &b)) in sums[relations].iter_mut().zip(others.iter().zip(words)) {
                *sum = field.add(*sum, field.mul(field.enter(a), field.enter(b)));
            }
        });
        let two_to_64 = field.enter(field.one());
        let quotient =
            |sum: &u64| u128::from(field.reduce(field.mul(*sum, field.inverse(two_to_64)).into()));
        let sums = subsets.sums(&sums.iter().map(quotient).collect::<Vec<_>>());
        sums.iter().map(|sum| sum % u128::from(field.modulus())).collect()
    }
}

impl ProverPart for WordsProver<'_> {
    fn answer(&mut self, challenge: &mut Draw) -> Vec<u64> {
        match &mut self.state {
            State::Start => {
                let subsets =
                    Subsets::draw(self.layout.relations, self.parameters.subsets, challenge);
                let sums = subsets.sums(&self.layout.quotients(self.statements));
                #[cfg(test)]
                let sums = if self.cheat == Some(0) { self.forged(&subsets) } else { sums };
                let quotients = packed(&sums, self.layout.quotient_bits());
                let left = self.shares.words(quotients.len());
                let right: Vec<u64> =
                    quotients.iter().zip(&left).map(|(word, share)| word ^ share).collect();
                self.state = State::Quotients { subsets, left, right: right.clone() };
                right
            }
            State::Quotients { subsets, left, right } => {
                let weights = Weights::draw(&self.layout, self.parameters, subsets, challenge);
                let field = weights.field;
                let rooms =
                    [(); 2].map(|()| self.scratch.room(vector_len(&self.layout, self.parameters)));
                let [x, y] = rooms;
                let x = weights.left_vector(&self.layout, self.statements, left, x);
                let mut y = weights.right_words(&self.layout, self.statements, right, y);
                y.iter_mut().for_each(|word| *word = field.enter(*word));
                let place = x.len() - 1;
                let mut inner = InnerProver::new(Prover::new(field, x, y), place);
                #[cfg(test)]
                if let Some(message) = self.cheat.filter(|message| *message > 0) {
                    let mut shadow = Shadow::new(field, message - 1);
                    for (side, halves) in [(Side::Left, left), (Side::Right, right)] {
                        shadow.begin(
                            weights.claim(&self.layout.terms(self.statements, side), halves),
                        );
                    }
                    inner.shadow = Some(shadow);
                }
                let message = inner.first_message(&mut self.shares, &mut self.blinding);
                self.state = State::Inner(inner);
                message
            }
            State::Inner(inner) => inner.answer(challenge, &mut self.shares),
        }
    }

    #[cfg(test)]
    fn cheat(&mut self, message: usize) {
        self.cheat = Some(message);
    }
}

/// A verifier's side.
pub(crate) struct WordsVerifier<'a> {
    statements: &'a Statements,
    parameters: Parameters,
    scratch: &'a Scratch,
    layout: Layout,
    blinding: Option<Draw>,
    state: VerifierState,
}

enum VerifierState {
    Start,
    Subsets(Subsets),
    Quotients { weights: Weights, halves: Vec<u64> },
    Inner { weights: Weights, halves: Vec<u64>, inner: InnerVerifier<Prime> },
}

impl<'a> WordsVerifier<'a> {
    /// `blinding` is the right verifier's.
    pub fn new(setting: Setting<'a>, blinding: Option<Draw>) -> Self {
        let Setting { statements, parameters, scratch } = setting;
        Self {
            statements,
            parameters,
            scratch,
            layout: Layout::new(statements),
            blinding,
            state: VerifierState::Start,
        }
    }

    fn values(&self) -> (Prime, [u64; 2]) {
        let VerifierState::Inner { weights, halves, inner } = &self.state else {
            unreachable!("the last challenge was taken");
        };
        let field = weights.field;
        let len = vector_len(&self.layout, self.parameters);
        let places = Places::new(&field, len, inner.weights());
        let room = self.scratch.room(len);
        let (vector, value) = match self.statements.side() {
            Side::Right => {
                let words = weights.right_words(&self.layout, self.statements, halves, room);
                let value =
                    places.sum(|run, weights| field.enter(field.dot_words(&words[run], weights)));
                (words, value)
            }
            _ => {
                let vector = weights.left_vector(&self.layout, self.statements, halves, room);
                let value = places.sum(|run, weights| field.dot(&vector[run], weights));
                (vector, value)
            }
        };
        self.scratch.give(vector);
        (field, inner.last(value, places.last()))
    }
}

impl VerifierPart for WordsVerifier<'_> {
    fn absorb(&mut self, challenge: &mut Draw, halves: &mut Halves) -> Option<()> {
        self.state = match std::mem::replace(&mut self.state, VerifierState::Start) {
            VerifierState::Start => VerifierState::Subsets(Subsets::draw(
                self.layout.relations,
                self.parameters.subsets,
                challenge,
            )),
            VerifierState::Subsets(subsets) => {
                let halves = halves.words(quotient_words(&self.layout, self.parameters))?;
                let weights = Weights::draw(&self.layout, self.parameters, &subsets, challenge);
                VerifierState::Quotients { weights, halves }
            }
            VerifierState::Quotients { weights, halves: bits } => {
                let terms = self.layout.terms(self.statements, self.statements.side());
                let half = Half::new(weights.field, weights.claim(&terms, &bits));
                let mut inner = InnerVerifier::begin(half, halves, self.blinding.as_mut())?;
                inner.absorb(challenge, halves)?;
                VerifierState::Inner { weights, halves: bits, inner }
            }
            VerifierState::Inner { weights, halves: bits, mut inner } => {
                inner.absorb(challenge, halves)?;
                VerifierState::Inner { weights, halves: bits, inner }
            }
        };
        Some(())
    }

    fn last(&self) -> Vec<u64> {
        self.values().1.to_vec()
    }

    fn accepts(&self, left: &[u64]) -> bool {
        let (field, right) = self.values();
        match left {
            [value, claim] => {
                let left = field.decode(&[*value]).zip(field.decode(&[*claim]));
                left.is_some_and(|(value, claim)| inner::fits(&field, [value, claim], right))
            }
            _ => false,
        }
    }
}
