//! The inner-product proof: `sum_i x_i y_i = c`, where the prover knows both vectors and each verifier one.
//!
//! The verifiers hold halves of the claim `c`. In a round the vector is cut in `2^m` blocks of equal length, the last one
//! filled up with zeros. The blocks are the values at the corners of a cube of `m` variables, continued multilinearly, and
//! the prover shares the values of the polynomial `g(X) = sum_i x_i(X) y_i(X)` at `{0, 1, infinity}^m` between the
//! verifiers. "Infinity" is the coefficient of the square. The sum over the corners is the claim, so the last corner is
//! not sent: each verifier computes its half. At a random point both vectors become as short as a block, and the claim
//! becomes `g` at that point. At the end the vectors have one element each.
//!
//! A wrong claim is right at the end with probability at most 2 over the number of challenges for each variable: the
//! false and the true polynomial differ, and have degree 2 in each variable.

use std::ops::Range;

use crate::{
    keys::Draw,
    ring::{Ring, arity},
};

/// Rounds of vectors of `len` elements, at least one.
pub(crate) fn rounds<R: Ring>(len: usize) -> usize {
    let mut rounds = 1;
    let mut rest = len.div_ceil(arity::<R>());
    while rest > 1 {
        rest = rest.div_ceil(arity::<R>());
        rounds += 1;
    }
    rounds
}

/// Elements that the prover sends in a round.
pub(crate) fn message_len<R: Ring>() -> usize {
    3usize.pow(R::VARIABLES as u32) - 1
}

/// The place of the last corner among the values.
pub(crate) fn last_corner(values: usize) -> usize {
    // 11..1 in base 3.
    (values - 1) / 2
}

/// A random point of a round.
pub(crate) fn point<R: Ring>(ring: &R, variables: usize, draw: &mut Draw) -> Vec<R::Element> {
    (0..variables).map(|_| ring.challenge(draw)).collect()
}

/// The prover's vectors.
pub(crate) struct Prover<R: Ring> {
    pub ring: R,
    pub x: Vec<R::Element>,
    pub y: Vec<R::Element>,
    /// Blocks are whole multiples of this, until one is left.
    grain: usize,
}

impl<R: Ring> Prover<R> {
    pub fn new(ring: R, x: Vec<R::Element>, y: Vec<R::Element>) -> Self {
        Self::with_grain(ring, x, y, 1)
    }

    /// Vectors of grains of so many elements, which are divided when one is left.
    pub fn with_grain(ring: R, x: Vec<R::Element>, y: Vec<R::Element>, grain: usize) -> Self {
        Self { ring, x, y, grain }
    }

    /// The values of this round's polynomial.
    pub fn values(&mut self) -> Vec<R::Element> {
        let unit = if self.x.len() > self.grain { self.grain } else { 1 };
        let len = self.x.len().next_multiple_of(arity::<R>() * unit);
        self.x.resize(len, self.ring.zero());
        self.y.resize(len, self.ring.zero());
        self.ring.round(&self.x, &self.y)
    }

    /// Goes to the point of this round.
    pub fn fold(&mut self, point: &[R::Element]) {
        let weights = corners(&self.ring, point);
        self.ring.fold(&mut self.x, &weights);
        self.ring.fold(&mut self.y, &weights);
    }
}

/// A verifier's half of the claim, and the points so far.
pub(crate) struct Half<R: Ring> {
    pub ring: R,
    pub claim: R::Element,
    /// Weights of the blocks of each round.
    pub weights: Vec<Vec<R::Element>>,
}

impl<R: Ring> Half<R> {
    pub fn new(ring: R, claim: R::Element) -> Self {
        Self { ring, claim, weights: Vec::new() }
    }

    /// Takes this verifier's half of a round's message, and goes to the point.
    pub fn absorb(&mut self, mut values: Vec<R::Element>, point: &[R::Element]) {
        let corner_values = (0..1usize << point.len())
            .rev()
            .skip(1)
            .map(|corner| values[place(corner, point.len())]);
        let last = corner_values.fold(self.claim, |rest, value| self.ring.sub(rest, value));
        values.insert(last_corner(values.len() + 1), last);
        self.claim = at_point(&self.ring, &values, point);
        self.weights.push(corners(&self.ring, point));
    }
}

/// The place of a corner among the values, the first variable being the highest digit. It is before the last corner's.
pub(crate) fn place(corner: usize, variables: usize) -> usize {
    (0..variables).rev().fold(0, |place, variable| 3 * place + (corner >> variable & 1))
}

/// Weights of the corners of a cube in the value at a point.
pub(crate) fn corners<R: Ring>(ring: &R, point: &[R::Element]) -> Vec<R::Element> {
    point.iter().fold(vec![ring.one()], |weights, &coordinate| {
        let other = ring.sub(ring.one(), coordinate);
        weights
            .iter()
            .flat_map(|&weight| [ring.mul(weight, other), ring.mul(weight, coordinate)])
            .collect()
    })
}

/// The value at a point of a polynomial of degree 2 in each variable, given at `{0, 1, infinity}^m`.
pub(crate) fn at_point<R: Ring>(
    ring: &R,
    values: &[R::Element],
    point: &[R::Element],
) -> R::Element {
    let mut values = values.to_vec();
    for &coordinate in point {
        let third = values.len() / 3;
        let zero = ring.sub(ring.one(), coordinate);
        let infinity = ring.sub(ring.mul(coordinate, coordinate), coordinate);
        for at in 0..third {
            let sum =
                ring.add(ring.mul(values[at], zero), ring.mul(values[third + at], coordinate));
            values[at] = ring.add(sum, ring.mul(values[2 * third + at], infinity));
        }
        values.truncate(third);
    }
    values[0]
}

/// Weights of the first `len` elements of a vector in the last value, for given weights of blocks of its rounds.
pub(crate) fn weights<R: Ring>(
    ring: &R,
    len: usize,
    rounds: &[Vec<R::Element>],
) -> Vec<R::Element> {
    let Some((blocks, rest)) = rounds.split_first() else {
        assert!(len <= 1, "a vector ends as one element");
        return vec![ring.one(); len];
    };
    let block = len.div_ceil(blocks.len());
    let inner = weights(ring, block, rest);
    let all =
        blocks.iter().flat_map(|&block| inner.iter().map(move |&weight| ring.mul(block, weight)));
    all.take(len).collect()
}

/// Elements of a run, whose weights are computed once for all runs.
const RUN: usize = 4096;

/// Weights of a long vector's elements in the last value: of runs of elements, times those within a run.
pub(crate) struct Places<R: Ring> {
    ring: R,
    runs: Vec<(Range<usize>, R::Element)>,
    inner: Vec<R::Element>,
}

impl<R: Ring> Places<R> {
    pub fn new(ring: &R, len: usize, rounds: &[Vec<R::Element>]) -> Self {
        let mut runs = vec![(0..len, ring.one())];
        let mut block = len;
        let mut rounds = rounds;
        while let Some((blocks, rest)) = rounds.split_first().filter(|_| block > RUN) {
            block = block.div_ceil(blocks.len());
            runs = runs
                .into_iter()
                .flat_map(|(run, weight)| {
                    let starts = run.clone().step_by(block).zip(blocks);
                    starts.map(move |(start, &part)| {
                        (start..run.end.min(start + block), ring.mul(weight, part))
                    })
                })
                .collect();
            rounds = rest;
        }
        Self { ring: ring.clone(), runs, inner: weights(ring, block, rounds) }
    }

    /// The last value, where `dot` is the inner product of a run of elements with weights.
    pub fn sum(&self, dot: impl Fn(Range<usize>, &[R::Element]) -> R::Element) -> R::Element {
        self.runs.iter().fold(self.ring.zero(), |sum, (run, weight)| {
            let part = dot(run.clone(), &self.inner[..run.len()]);
            self.ring.add(sum, self.ring.mul(*weight, part))
        })
    }

    /// The weight of the last element.
    pub fn last(&self) -> R::Element {
        let (run, weight) = self.runs.last().expect("the vector has elements");
        self.ring.mul(*weight, self.inner[run.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{galois::Galois, gf64::Gf64, prime::Prime};

    fn runs<R: Ring>(ring: &R, draw: &mut Draw) {
        for len in [1, 2, 3, 4, 5, 15, 16, 17, 50, 65] {
            let vector = |draw: &mut Draw| (0..len).map(|_| ring.random(draw)).collect::<Vec<_>>();
            let (x, y) = (vector(draw), vector(draw));
            let left = ring.random(draw);
            let right = ring.sub(ring.dot(&x, &y), left);
            let mut prover = Prover::new(ring.clone(), x.clone(), y.clone());
            let mut halves = [Half::new(ring.clone(), left), Half::new(ring.clone(), right)];
            for _ in 0..rounds::<R>(len) {
                let mut message = prover.values();
                message.remove(last_corner(message.len()));
                assert_eq!(message.len(), message_len::<R>());
                let share = message.iter().map(|_| ring.random(draw)).collect::<Vec<_>>();
                let rest = message
                    .iter()
                    .zip(&share)
                    .map(|(&value, &share)| ring.sub(value, share))
                    .collect();
                let point = point(ring, R::VARIABLES, draw);
                prover.fold(&point);
                halves[0].absorb(share, &point);
                halves[1].absorb(rest, &point);
            }
            let weights = weights(ring, len, &halves[0].weights);
            let product = ring.mul(ring.dot(&x, &weights), ring.dot(&y, &weights));
            assert_eq!(product, ring.add(halves[0].claim, halves[1].claim), "{len}");
            assert_eq!((prover.x.len(), prover.x[0]), (1, ring.dot(&x, &weights)));
        }
    }

    #[test]
    fn weights_of_runs_are_those_of_elements() {
        let draw = &mut Draw::for_test(8);
        let field = Prime::random(draw, 64);
        for len in [1, 5, 4096, 4097, 20_001] {
            let rounds: Vec<Vec<u64>> = (0..rounds::<Prime>(len))
                .map(|_| corners(&field, &point(&field, 2, draw)))
                .collect();
            let vector: Vec<u64> = (0..len).map(|_| field.random(draw)).collect();
            let weights = weights(&field, len, &rounds);
            let places = Places::new(&field, len, &rounds);
            let sum = places.sum(|run, weights| field.dot(&vector[run], weights));
            assert_eq!(sum, field.dot(&vector, &weights), "{len}");
            assert_eq!(places.last(), weights[len - 1]);
        }
    }

    #[test]
    fn true_claims_end_as_products_in_every_ring() {
        let draw = &mut Draw::for_test(6);
        runs(&Gf64::new(64), draw);
        runs(&Prime::random(draw, 64), draw);
        runs(&Galois::new(47), draw);
    }
}
