//! The Galois ring `GR(2^64, 47)`: polynomials of words modulo `x^47 + x^5 + 1`, which is irreducible modulo 2.
//!
//! Differences of two polynomials with coefficients 0 and 1 are units, so those are weights and challenges.

use std::array;

use crate::{
    keys::Draw,
    ring::Ring,
    simd::{Kernel, Lanes, run},
};

/// The degree.
pub(crate) const DEGREE: usize = 47;

/// The exponent of the modulus's middle term.
const MIDDLE: usize = 5;

/// Coefficients, the lowest first.
pub(crate) type Element = [u64; DEGREE];

/// The ring, with challenges of fewer coefficients in tests.
#[derive(Debug, Clone)]
pub(crate) struct Galois {
    challenges: u64,
}

impl Galois {
    /// Challenges and weights of so many low coefficients: 47 outside of tests.
    pub fn new(challenge_bits: u32) -> Self {
        Self { challenges: u64::MAX >> (64 - challenge_bits.min(DEGREE as u32)) }
    }

    /// A uniform weight as a mask of its coefficients.
    pub fn weight(&self, draw: &mut Draw) -> u64 {
        draw.word() & self.challenges
    }
}

/// The polynomial with coefficients 0 and 1 of a mask.
pub(crate) fn binary(mask: u64) -> Element {
    array::from_fn(|place| mask >> place & 1)
}

/// Words of a sum of products before it is reduced, in whole vectors.
const WIDE: usize = 2 * DEGREE + 2;

/// A sum of products before it is reduced.
struct Wide([u64; WIDE]);

impl Wide {
    fn add_product(&mut self, a: &Element, b: &Element) {
        run(Product { a, b, sums: &mut self.0 });
    }

    fn reduce(mut self) -> Element {
        for place in (DEGREE..2 * DEGREE).rev() {
            let over = self.0[place];
            for lower in [place - DEGREE, place - DEGREE + MIDDLE] {
                self.0[lower] = self.0[lower].wrapping_sub(over);
            }
        }
        array::from_fn(|place| self.0[place])
    }
}

/// Adds a product of polynomials to a sum.
struct Product<'a> {
    a: &'a Element,
    b: &'a Element,
    sums: &'a mut [u64; WIDE],
}

impl Kernel for Product<'_> {
    type Output = ();

    /// No vectors of its own: the loop is compiled for each instruction set.
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let mut b = [0; DEGREE + 1];
        b[..DEGREE].copy_from_slice(self.b);
        for place in 0..DEGREE {
            let a = self.a[place];
            let sums = &mut self.sums[place..place + DEGREE + 1];
            for k in 0..DEGREE + 1 {
                sums[k] = sums[k].wrapping_add(a.wrapping_mul(b[k]));
            }
        }
    }
}

impl Ring for Galois {
    type Element = Element;
    const WORDS: usize = DEGREE;
    const VARIABLES: usize = 1;

    fn zero(&self) -> Element {
        [0; DEGREE]
    }

    fn one(&self) -> Element {
        binary(1)
    }

    fn add(&self, a: Element, b: Element) -> Element {
        array::from_fn(|place| a[place].wrapping_add(b[place]))
    }

    fn sub(&self, a: Element, b: Element) -> Element {
        array::from_fn(|place| a[place].wrapping_sub(b[place]))
    }

    fn mul(&self, a: Element, b: Element) -> Element {
        let mut wide = Wide([0; WIDE]);
        wide.add_product(&a, &b);
        wide.reduce()
    }

    fn encode(&self, element: Element, words: &mut Vec<u64>) {
        words.extend(element);
    }

    fn decode(&self, words: &[u64]) -> Option<Element> {
        words.try_into().ok()
    }

    fn random(&self, draw: &mut Draw) -> Element {
        array::from_fn(|_| draw.word())
    }

    fn challenge(&self, draw: &mut Draw) -> Element {
        binary(draw.beyond_one(|draw| draw.word() & self.challenges))
    }

    fn round(&self, x: &[Element], y: &[Element]) -> Vec<Element> {
        let block = x.len() / 2;
        let mut sums = [(); 3].map(|()| Wide([0; WIDE]));
        for at in 0..block {
            sums[0].add_product(&x[at], &y[at]);
            sums[1].add_product(&x[block + at], &y[block + at]);
            let x = self.sub(x[block + at], x[at]);
            let y = self.sub(y[block + at], y[at]);
            sums[2].add_product(&x, &y);
        }
        sums.map(Wide::reduce).to_vec()
    }

    fn fold(&self, x: &mut Vec<Element>, weights: &[Element]) {
        let block = x.len() / 2;
        for at in 0..block {
            let mut wide = Wide([0; WIDE]);
            wide.add_product(&x[at], &weights[0]);
            wide.add_product(&x[block + at], &weights[1]);
            x[at] = wide.reduce();
        }
        x.truncate(block);
    }

    #[cfg(test)]
    fn two_challenges(&self) -> [Element; 2] {
        [binary(0x11), binary(0x22)]
    }

    #[cfg(test)]
    fn inverse(&self, a: Element) -> Element {
        // Modulo 2 it is a^(2^47 - 2); each of Newton's steps doubles the bits that are right.
        let mut square = a;
        let mut inverse = self.one();
        for _ in 1..DEGREE {
            square = self.mul(square, square);
            inverse = self.mul(inverse, square);
        }
        for _ in 0..6 {
            let two = self.add(self.one(), self.one());
            inverse = self.mul(inverse, self.sub(two, self.mul(a, inverse)));
        }
        inverse
    }

    fn dot(&self, a: &[Element], b: &[Element]) -> Element {
        let mut wide = Wide([0; WIDE]);
        a.iter().zip(b).for_each(|(a, b)| wide.add_product(a, b));
        wide.reduce()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_a_ring_and_differences_of_weights_are_units() {
        let ring = Galois::new(64);
        let mut draw = Draw::for_test(5);
        let (a, b, c) = (ring.random(&mut draw), ring.random(&mut draw), ring.random(&mut draw));
        assert_eq!(ring.mul(a, ring.mul(b, c)), ring.mul(ring.mul(a, b), c));
        assert_eq!(ring.mul(a, ring.add(b, c)), ring.add(ring.mul(a, b), ring.mul(a, c)));
        assert_eq!(ring.mul(a, ring.one()), a);
        assert_eq!(ring.dot(&[a, b], &[c, a]), ring.add(ring.mul(a, c), ring.mul(b, a)));
        // x^47 = -x^5 - 1.
        let mut power = binary(1 << 46);
        power = ring.mul(power, binary(2));
        let mut want = [0; DEGREE];
        want[0] = u64::MAX;
        want[5] = u64::MAX;
        assert_eq!(power, want);
        // The modulus is irreducible modulo 2: 47 is prime, x^(2^47) = x, and x^2 is not x. So the ring modulo 2 is a
        // field, and what is not zero in it is a unit.
        let mut power = binary(2);
        for _ in 0..47 {
            power = ring.mul(power, power).map(|word| word & 1);
        }
        assert_eq!(power, binary(2));
    }
}
