//! The part of a proof for relations of bits, `xor_k (A_k & B_k) ^ L ^ R = 0`, over GF(2^64).
//!
//! 1. The first challenge weighs bit `i` of column `j` of block `p` of relation `r` by `eta_r theta_j beta_p t^i`, so that
//!    a word, read as a field element, times its weight is the weighed sum of its bits. If a bit is false the sum is not
//!    zero but with probability `3 / 2^64`.
//! 2. The prover sends the 729 values of [`cube`], less one: those at the corners, weighed by `beta`, have the sum to which
//!    the terms come.
//! 3. At a random point of the cube planes become field elements, one for each column and bit position, and the rest is an
//!    inner product ([`crate::inner`]).

mod cube;
mod fold;
pub(crate) mod layout;

use std::borrow::Cow;

#[cfg(test)]
use crate::cheat::Shadow;
use crate::{
    inner::{self, Halves, InnerProver, InnerVerifier, first_words, next_words},
    keys::Draw,
    part::{PartKind, PartShape, ProverPart, Setting, VerifierPart},
    ring::{gf64, gf64::Gf64},
    scratch::Scratch,
    simd::run,
    statement::{Side, Statements},
    sumcheck::{self, Half, Prover, at_point, corners, place},
};
use cube::{POINTS, first_round};
use fold::{AddScaled, Combine, fold_planes, outer, products, sum_rows};
use layout::{BLOCKS, CELL, Class, LANES, Layout, ROWS, place_of};

/// Variables of the first round.
const VARIABLES: usize = 6;

/// Rounds of the inner product that bind the bit position, and those that bind the lane.
const BIT_ROUNDS: usize = 3;
const LANE_ROUNDS: usize = 2;

/// Planes that a verifier folds at a time.
const CHUNK: usize = 32;

/// Powers of `t`, the generator of the field: weights of a word's bits.
fn powers() -> [u64; ROWS] {
    std::array::from_fn(|bit| 1 << bit)
}

/// The weights of the first challenge.
struct Weights {
    /// Of blocks. The last is 1: weights of all kinds could be divided by it.
    betas: Vec<u64>,
    /// Of relations.
    etas: Vec<u64>,
    /// Of columns.
    thetas: Vec<u64>,
}

impl Weights {
    fn draw(layout: &Layout, challenge: &mut Draw) -> Self {
        let mut betas = challenge.words(BLOCKS - 1);
        betas.push(1);
        let etas = challenge.words(layout.relations);
        let thetas = challenge.words(layout.columns);
        mutant!(
            "all columns have one weight",
            thetas = vec![thetas.first().copied().unwrap_or(0); layout.columns]
        );
        Self { betas, etas, thetas }
    }

    /// The weighed sum of the terms that a verifier knows.
    fn claim(&self, layout: &Layout, statements: &Statements, side: Side) -> u64 {
        let mut sum = 0;
        for class in &layout.classes {
            let tiles = self.thetas[..class.columns].chunks(class.tiling.width);
            let places: Vec<u64> = tiles.flat_map(|thetas| outer(&self.betas, thetas)).collect();
            for (at, relation) in class.relations.iter().enumerate() {
                let words = class.term(statements, side, relation);
                let weighed = gf64::dot(&words, &places[..class.words]);
                sum ^= gf64::mul(weighed, self.etas[class.first_relation + at]);
            }
        }
        sum
    }
}

/// Cells of a vector of the inner product: of all columns, and of one for the blinding.
fn cells(layout: &Layout) -> usize {
    (layout.slots + 1).div_ceil(LANES)
}

/// Rounds of the inner product that bind the cell. Those that follow bind the bit position and the lane.
fn cell_rounds(layout: &Layout) -> usize {
    let mut rounds = 0;
    let mut rest = cells(layout);
    while rest > 1 {
        rest = rest.div_ceil(4);
        rounds += 1;
    }
    rounds
}

/// The messages of this part.
pub(crate) fn shape<T>(statements: &Statements<T>) -> PartShape {
    let layout = &Layout::new(statements);
    let rounds = cell_rounds(layout) + BIT_ROUNDS + LANE_ROUNDS;
    let mut messages = vec![POINTS - 1, first_words::<Gf64>()];
    messages.resize(1 + rounds, next_words::<Gf64>());
    PartShape { kind: PartKind::Bits, messages, opening: 2 }
}

/// The prover's side.
pub(crate) struct BitsProver<'a> {
    statements: &'a Statements,
    scratch: &'a Scratch,
    layout: Layout,
    ring: Gf64,
    shares: Draw,
    blinding: Draw,
    state: State,
    #[cfg(test)]
    shadow: Option<Shadow<Gf64>>,
}

enum State {
    Start,
    /// The values of the first round are sent.
    Cube(Weights),
    Inner(InnerProver<Gf64>),
}

impl<'a> BitsProver<'a> {
    pub fn new(setting: Setting<'a>, shares: Draw, blinding: Draw) -> Self {
        let Setting { statements, parameters, scratch } = setting;
        Self {
            statements,
            scratch,
            layout: Layout::new(statements),
            ring: Gf64::new(parameters.challenge_bits),
            shares,
            blinding,
            state: State::Start,
            #[cfg(test)]
            shadow: None,
        }
    }

    fn first_message(&mut self, weights: &Weights) -> Vec<u64> {
        let mut values = [0; POINTS];
        for class in &self.layout.classes {
            let left = class.left_planes(self.statements);
            let right = class.right_planes(self.statements);
            let etas = &weights.etas[class.first_relation..][..class.relations.len()];
            let sums = first_round(class, &left, &right, etas, &weights.thetas);
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value ^= sum);
        }
        let mut values = values.to_vec();
        #[cfg(test)]
        if let Some(shadow) = &mut self.shadow {
            shadow.begin(weights.claim(&self.layout, self.statements, Side::Left));
            shadow.begin(weights.claim(&self.layout, self.statements, Side::Right));
            shadow.lie(&mut values, &weights.betas);
        }
        values.remove(LAST);
        inner::masked(&self.ring, &values, &mut self.shares)
    }

    /// The vectors of the inner product.
    fn vectors(&self, weights: &Weights, point: &[u64]) -> [Vec<u64>; 2] {
        let blocks = corners(&self.ring, point);
        let [mut x, mut y] = [(); 2].map(|()| self.scratch.zeros(CELL * cells(&self.layout)));
        for class in &self.layout.classes {
            let left = class.left_planes(self.statements);
            fold_planes(&left, class, &blocks, class.first_slot, &mut x);
            let right = class.right_planes(self.statements);
            let mut folded =
                self.scratch.zeros(CELL * (right.len() * class.columns).div_ceil(LANES));
            fold_planes(&right, class, &blocks, 0, &mut folded);
            let mut terms = vec![Vec::new(); left.len()];
            for (relation, &eta) in
                class.relations.iter().zip(&weights.etas[class.first_relation..])
            {
                relation.products.iter().for_each(|&(a, b)| terms[a].push((b, eta)));
            }
            let places = outer(&powers(), &weights.thetas[..class.columns]);
            for (at, terms) in terms.iter().enumerate() {
                run(Combine {
                    class,
                    folded: &folded,
                    terms,
                    weights: &places,
                    slot: class.first_slot + at * class.columns,
                    out: &mut y,
                });
            }
            self.scratch.give(folded);
        }
        [x, y]
    }
}

/// The place of the last corner among the values of the first round.
const LAST: usize = (POINTS - 1) / 2;

impl Drop for BitsProver<'_> {
    fn drop(&mut self) {
        if let State::Inner(inner) = &mut self.state {
            inner.take_vectors().into_iter().for_each(|vector| self.scratch.give(vector));
        }
    }
}

impl ProverPart for BitsProver<'_> {
    fn answer(&mut self, challenge: &mut Draw) -> Vec<u64> {
        match &mut self.state {
            State::Start => {
                let weights = Weights::draw(&self.layout, challenge);
                let message = self.first_message(&weights);
                self.state = State::Cube(weights);
                message
            }
            State::Cube(weights) => {
                let point = sumcheck::point(&self.ring, VARIABLES, challenge);
                let weights = std::mem::replace(
                    weights,
                    Weights { betas: vec![], etas: vec![], thetas: vec![] },
                );
                let [x, y] = self.vectors(&weights, &point);
                let vectors = Prover::with_grain(self.ring.clone(), x, y, CELL);
                let mut inner = InnerProver::new(vectors, place_of(self.layout.slots));
                #[cfg(test)]
                if let Some(mut shadow) = self.shadow.take() {
                    shadow.absorb(&point);
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
        self.shadow = Some(Shadow::new(self.ring.clone(), message));
    }
}

/// A verifier's side.
pub(crate) struct BitsVerifier<'a> {
    statements: &'a Statements,
    scratch: &'a Scratch,
    layout: Layout,
    ring: Gf64,
    blinding: Option<Draw>,
    state: VerifierState,
}

enum VerifierState {
    Start,
    Weighed { weights: Weights, claim: u64 },
    Cube { weights: Weights, point: Vec<u64>, claim: u64 },
    Inner { weights: Weights, point: Vec<u64>, inner: InnerVerifier<Gf64> },
}

impl<'a> BitsVerifier<'a> {
    /// `blinding` is the right verifier's.
    pub fn new(setting: Setting<'a>, blinding: Option<Draw>) -> Self {
        let Setting { statements, parameters, scratch } = setting;
        Self {
            statements,
            scratch,
            layout: Layout::new(statements),
            ring: Gf64::new(parameters.challenge_bits),
            blinding,
            state: VerifierState::Start,
        }
    }

    fn values(&self) -> [u64; 2] {
        let VerifierState::Inner { weights, point, inner } = &self.state else {
            unreachable!("the last challenge was taken");
        };
        let (of_cells, rest) = inner.weights().split_at(cell_rounds(&self.layout));
        let (bits, of_lanes) = rest.split_at(BIT_ROUNDS);
        let bits = sumcheck::weights(&self.ring, ROWS, bits);
        let of_cells = sumcheck::weights(&self.ring, cells(&self.layout), of_cells);
        let columns = outer(&of_cells, &sumcheck::weights(&self.ring, LANES, of_lanes));
        let blocks = corners(&self.ring, point);
        let value = match self.statements.side() {
            Side::Right => self.right_value(weights, &blocks, &bits, &columns),
            _ => self.left_value(&blocks, &bits, &columns),
        };
        let blinding = gf64::mul(bits[0], columns[self.layout.slots]);
        inner.last(value, blinding)
    }

    /// The last value of the left vector.
    fn left_value(&self, blocks: &[u64], bits: &[u64], columns: &[u64]) -> u64 {
        let mut value = 0;
        for class in &self.layout.classes {
            let planes = class.left_planes(self.statements);
            let mut slot = class.first_slot;
            for planes in planes.chunks(CHUNK) {
                let sums = summed(self.scratch, planes, class, blocks, bits);
                value ^= gf64::dot(&sums, &columns[slot..slot + sums.len()]);
                slot += sums.len();
            }
        }
        value
    }

    /// The last value of the right vector.
    fn right_value(&self, weights: &Weights, blocks: &[u64], bits: &[u64], columns: &[u64]) -> u64 {
        let bits = products(bits, &powers());
        let mut value = 0;
        for class in &self.layout.classes {
            let planes = class.right_planes(self.statements);
            // Each plane serves in products with left planes, whose columns weigh it.
            let mut factors = vec![0; planes.len() * class.columns];
            for (relation, &eta) in
                class.relations.iter().zip(&weights.etas[class.first_relation..])
            {
                for &(a, b) in &relation.products {
                    let from = &columns[class.first_slot + a * class.columns..][..class.columns];
                    let to = &mut factors[b * class.columns..][..class.columns];
                    run(AddScaled { from, weight: eta, to });
                }
            }
            let thetas = &weights.thetas[..class.columns];
            for (planes, factors) in
                planes.chunks(CHUNK).zip(factors.chunks(CHUNK * class.columns.max(1)))
            {
                let sums = summed(self.scratch, planes, class, blocks, &bits);
                let thetas = thetas.repeat(planes.len());
                value ^= gf64::dot(&products(&sums, &thetas), factors);
            }
        }
        value
    }
}

/// The weighed sum over blocks and bits of planes, in every column.
fn summed(
    scratch: &Scratch,
    planes: &[Cow<'_, [u64]>],
    class: &Class,
    blocks: &[u64],
    bits: &[u64],
) -> Vec<u64> {
    let columns = planes.len() * class.columns;
    let mut folded = scratch.zeros(CELL * columns.div_ceil(LANES));
    fold_planes(planes, class, blocks, 0, &mut folded);
    let mut sums = sum_rows(&folded, bits);
    sums.truncate(columns);
    scratch.give(folded);
    sums
}

impl VerifierPart for BitsVerifier<'_> {
    fn absorb(&mut self, challenge: &mut Draw, halves: &mut Halves) -> Option<()> {
        self.state = match std::mem::replace(&mut self.state, VerifierState::Start) {
            VerifierState::Start => {
                let weights = Weights::draw(&self.layout, challenge);
                let claim = weights.claim(&self.layout, self.statements, self.statements.side());
                VerifierState::Weighed { weights, claim }
            }
            VerifierState::Weighed { weights, claim } => {
                let mut values = halves.elements(&self.ring, POINTS - 1)?;
                let point = sumcheck::point(&self.ring, VARIABLES, challenge);
                let others = (0..BLOCKS - 1)
                    .map(|corner| values[place(corner, VARIABLES)])
                    .collect::<Vec<_>>();
                values.insert(LAST, claim ^ gf64::dot(&weights.betas[..BLOCKS - 1], &others));
                let claim = at_point(&self.ring, &values, &point);
                VerifierState::Cube { weights, point, claim }
            }
            VerifierState::Cube { weights, point, claim } => {
                let half = Half::new(self.ring.clone(), claim);
                let mut inner = InnerVerifier::begin(half, halves, self.blinding.as_mut())?;
                inner.absorb(challenge, halves)?;
                VerifierState::Inner { weights, point, inner }
            }
            VerifierState::Inner { weights, point, mut inner } => {
                inner.absorb(challenge, halves)?;
                VerifierState::Inner { weights, point, inner }
            }
        };
        Some(())
    }

    fn last(&self) -> Vec<u64> {
        self.values().to_vec()
    }

    fn accepts(&self, left: &[u64]) -> bool {
        let &[value, claim] = left else { return false };
        inner::fits(&self.ring, [value, claim], self.values())
    }
}
