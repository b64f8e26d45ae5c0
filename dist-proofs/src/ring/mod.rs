//! The rings of the proofs.

pub(crate) mod galois;
pub(crate) mod gf64;
pub(crate) mod prime;

use std::fmt::Debug;

use crate::keys::Draw;

/// A commutative ring with a set of challenges whose differences, and which less 0 and 1, are units.
pub(crate) trait Ring: Clone {
    type Element: Copy + PartialEq + Debug;
    /// Words of an element in a message.
    const WORDS: usize;
    /// Variables bound in a round of the inner product: 1 or 2.
    const VARIABLES: usize;

    fn zero(&self) -> Self::Element;
    fn one(&self) -> Self::Element;
    fn add(&self, a: Self::Element, b: Self::Element) -> Self::Element;
    fn sub(&self, a: Self::Element, b: Self::Element) -> Self::Element;
    fn mul(&self, a: Self::Element, b: Self::Element) -> Self::Element;

    /// The words of a message.
    fn encode(&self, element: Self::Element, words: &mut Vec<u64>);
    /// The element of `WORDS` words, if they are one.
    fn decode(&self, words: &[u64]) -> Option<Self::Element>;

    /// A uniform element.
    fn random(&self, draw: &mut Draw) -> Self::Element;
    /// A uniform element of the set of challenges, but neither 0 nor 1. At these the factors that blind the last values
    /// would vanish.
    fn challenge(&self, draw: &mut Draw) -> Self::Element;

    /// Values of `sum_i x_i(X) y_i(X)` for the vectors' blocks as corners of a cube of `VARIABLES` variables. See
    /// [`crate::sumcheck`].
    fn round(&self, x: &[Self::Element], y: &[Self::Element]) -> Vec<Self::Element>;

    /// Replaces a vector by the sum of its blocks, each times its weight.
    fn fold(&self, x: &mut Vec<Self::Element>, weights: &[Self::Element]);

    /// Two challenges of few bits.
    #[cfg(test)]
    fn two_challenges(&self) -> [Self::Element; 2];

    /// The inverse of a unit.
    #[cfg(test)]
    fn inverse(&self, a: Self::Element) -> Self::Element;

    /// The inner product of two vectors of equal length.
    fn dot(&self, a: &[Self::Element], b: &[Self::Element]) -> Self::Element {
        a.iter().zip(b).fold(self.zero(), |sum, (&a, &b)| self.add(sum, self.mul(a, b)))
    }
}

/// `2^VARIABLES`: blocks of a vector in a round.
pub(crate) const fn arity<R: Ring>() -> usize {
    1 << R::VARIABLES
}
