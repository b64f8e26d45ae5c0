//! A prover that lies as well as it can, for tests of how sure a proof makes.

use crate::{
    ring::Ring,
    sumcheck::{at_point, place},
};

/// The claim that the verifiers together believe, which the prover of a false statement keeps up with.
pub(crate) struct Shadow<R: Ring> {
    ring: R,
    claim: R::Element,
    /// Messages until the one in which it lies.
    before: usize,
    /// The values of the last message as the verifiers have them.
    values: Vec<R::Element>,
}

impl<R: Ring> Shadow<R> {
    /// A prover that is honest in the first `before` messages.
    pub fn new(ring: R, before: usize) -> Self {
        Self { claim: ring.zero(), before, ring, values: Vec::new() }
    }

    /// Adds a part to the claim.
    pub fn begin(&mut self, part: R::Element) {
        self.claim = self.ring.add(self.claim, part);
    }

    /// Changes the values of a message in the round in which it lies. It adds a polynomial that makes the sum over the
    /// corners what it should be, and is zero wherever a variable has one of two values.
    pub fn lie(&mut self, values: &mut [R::Element], weights: &[R::Element]) {
        let variables = weights.len().trailing_zeros() as usize;
        let sum = self.sum(values, weights);
        if self.before == 0 {
            let lie = self.best(variables);
            let factor = self
                .ring
                .mul(self.ring.sub(self.claim, sum), self.ring.inverse(self.sum(&lie, weights)));
            for (value, lie) in values.iter_mut().zip(lie) {
                *value = self.ring.add(*value, self.ring.mul(factor, lie));
            }
        }
        self.before = self.before.wrapping_sub(1);
        self.values = values.to_vec();
        // The last corner, whose weight is 1, is what the verifiers compute.
        let sum = self.sum(values, weights);
        let last = place(weights.len() - 1, variables);
        self.values[last] = self.ring.add(self.values[last], self.ring.sub(self.claim, sum));
    }

    /// Goes to the point of a round.
    pub fn absorb(&mut self, point: &[R::Element]) {
        self.claim = at_point(&self.ring, &self.values, point);
    }

    fn sum(&self, values: &[R::Element], weights: &[R::Element]) -> R::Element {
        let variables = weights.len().trailing_zeros() as usize;
        weights.iter().enumerate().fold(self.ring.zero(), |sum, (corner, &weight)| {
            self.ring.add(sum, self.ring.mul(weight, values[place(corner, variables)]))
        })
    }

    /// Values of `prod_i (X_i - a)(X_i - b)` for two challenges.
    fn best(&self, variables: usize) -> Vec<R::Element> {
        let ring = &self.ring;
        let [a, b] = ring.two_challenges();
        let value = |x| ring.mul(ring.sub(x, a), ring.sub(x, b));
        let one = [value(ring.zero()), value(ring.one()), ring.one()];
        (0..variables).fold(vec![ring.one()], |values, _| {
            values.iter().flat_map(|&value| one.map(|factor| ring.mul(value, factor))).collect()
        })
    }
}
