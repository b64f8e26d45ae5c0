//! GF(2^64), as polynomials of bits modulo `x^64 + x^4 + x^3 + x + 1`.

use crate::{
    keys::Draw,
    ring::Ring,
    simd::{Kernel, Lanes, run},
};

/// The field, with challenges of fewer bits in tests.
#[derive(Debug, Clone)]
pub(crate) struct Gf64 {
    challenges: u64,
}

impl Gf64 {
    /// Challenges of so many low bits: 64 outside of tests.
    pub fn new(challenge_bits: u32) -> Self {
        Self { challenges: u64::MAX >> (64 - challenge_bits) }
    }
}

/// A product in the field.
pub(crate) fn mul(a: u64, b: u64) -> u64 {
    dot(&[a], &[b])
}

/// The inner product of two vectors.
pub(crate) fn dot(a: &[u64], b: &[u64]) -> u64 {
    run(Dot { a, b })
}

impl Ring for Gf64 {
    type Element = u64;
    const WORDS: usize = 1;
    const VARIABLES: usize = 2;

    fn zero(&self) -> u64 {
        0
    }

    fn one(&self) -> u64 {
        1
    }

    fn add(&self, a: u64, b: u64) -> u64 {
        a ^ b
    }

    fn sub(&self, a: u64, b: u64) -> u64 {
        a ^ b
    }

    fn mul(&self, a: u64, b: u64) -> u64 {
        mul(a, b)
    }

    fn encode(&self, element: u64, words: &mut Vec<u64>) {
        words.push(element);
    }

    fn decode(&self, words: &[u64]) -> Option<u64> {
        Some(words[0])
    }

    fn random(&self, draw: &mut Draw) -> u64 {
        draw.word()
    }

    fn challenge(&self, draw: &mut Draw) -> u64 {
        draw.beyond_one(|draw| draw.word() & self.challenges)
    }

    fn round(&self, x: &[u64], y: &[u64]) -> Vec<u64> {
        run(Round { x, y }).to_vec()
    }

    fn fold(&self, x: &mut Vec<u64>, weights: &[u64]) {
        let block = x.len() / 4;
        run(Fold { x, weights });
        x.truncate(block);
    }

    fn dot(&self, a: &[u64], b: &[u64]) -> u64 {
        dot(a, b)
    }

    #[cfg(test)]
    fn two_challenges(&self) -> [u64; 2] {
        [0x11, 0x22]
    }

    #[cfg(test)]
    fn inverse(&self, a: u64) -> u64 {
        // a^(2^64 - 2)
        let mut square = a;
        (1..64).fold(1, |power, _| {
            square = mul(square, square);
            mul(power, square)
        })
    }
}

/// See [`dot`].
struct Dot<'a> {
    a: &'a [u64],
    b: &'a [u64],
}

impl Kernel for Dot<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        assert_eq!(self.a.len(), self.b.len());
        let mut sum = lanes.splat(0);
        let mut at = 0;
        while at < self.a.len() {
            let [even, odd] =
                lanes.products(lanes.load_some(&self.a[at..]), lanes.load_some(&self.b[at..]));
            sum = lanes.xor(sum, lanes.xor(even, odd));
            at += L::N;
        }
        lanes.sum(sum)
    }
}

/// The nine values of [`Ring::round`].
struct Round<'a> {
    x: &'a [u64],
    y: &'a [u64],
}

impl Kernel for Round<'_> {
    type Output = [u64; 9];

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> [u64; 9] {
        let block = self.x.len() / 4;
        let mut sums = [lanes.splat(0); 9];
        let mut at = 0;
        while at < block {
            let x = nine(lanes, self.x, block, at);
            let y = nine(lanes, self.y, block, at);
            for k in 0..9 {
                let [even, odd] = lanes.products(x[k], y[k]);
                sums[k] = lanes.xor(sums[k], lanes.xor(even, odd));
            }
            at += L::N;
        }
        let mut values = [0; 9];
        for k in 0..9 {
            values[k] = lanes.sum(sums[k]);
        }
        values
    }
}

/// Values at `{0, 1, infinity}^2` of the polynomials of two variables with words `at..` of four blocks at the corners.
#[inline(always)]
fn nine<L: Lanes>(lanes: L, x: &[u64], block: usize, at: usize) -> [L::Word; 9] {
    let a = lanes.load_some(&x[at..block]);
    let b = lanes.load_some(&x[block + at..2 * block]);
    let c = lanes.load_some(&x[2 * block + at..3 * block]);
    let d = lanes.load_some(&x[3 * block + at..]);
    let (e, f) = (lanes.xor(a, c), lanes.xor(b, d));
    [a, b, lanes.xor(a, b), c, d, lanes.xor(c, d), e, f, lanes.xor(e, f)]
}

/// See [`Ring::fold`]; the sums replace the first block.
struct Fold<'a> {
    x: &'a mut [u64],
    weights: &'a [u64],
}

impl Kernel for Fold<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.x.len() / 4;
        let mut weights = [lanes.splat(0); 4];
        for k in 0..4 {
            weights[k] = lanes.splat(self.weights[k]);
        }
        let mut at = 0;
        while at < block {
            let mut sums = [lanes.splat(0); 2];
            for k in 0..4 {
                let word = lanes.load_some(&self.x[k * block + at..(k + 1) * block]);
                let [even, odd] = lanes.products(word, weights[k]);
                sums = [lanes.xor(sums[0], even), lanes.xor(sums[1], odd)];
            }
            lanes.store_some(lanes.reduce(sums), &mut self.x[at..block]);
            at += L::N;
        }
    }
}

/// Runs kernels on every instruction set, in tests.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    /// The definition.
    fn slow(a: u64, b: u64) -> u64 {
        let mut sum = 0;
        let mut power = a;
        for bit in 0..64 {
            sum ^= if b >> bit & 1 == 1 { power } else { 0 };
            power = power << 1 ^ if power >> 63 == 1 { 0x1b } else { 0 };
        }
        sum
    }

    #[test]
    fn kernels_agree_with_the_definition_on_all_instruction_sets() {
        let mut draw = Draw::for_test(1);
        for isa in Isa::supported() {
            for len in [0, 1, 3, 4, 7, 8, 9, 31] {
                let a = draw.words(len);
                let b = draw.words(len);
                let want = a.iter().zip(&b).fold(0, |sum, (&a, &b)| sum ^ slow(a, b));
                assert_eq!(isa.run(Dot { a: &a, b: &b }), want, "{isa:?}");
                let mut x = draw.words(4 * len);
                let y = draw.words(4 * len);
                let got = isa.run(Round { x: &x, y: &y });
                let block = |x: &[u64], k: usize| x[k * len..(k + 1) * len].to_vec();
                let sum =
                    |x: &[u64], y: &[u64]| x.iter().zip(y).map(|(x, y)| x ^ y).collect::<Vec<_>>();
                assert_eq!(got[1], dot(&block(&x, 1), &block(&y, 1)));
                assert_eq!(
                    got[5],
                    dot(&sum(&block(&x, 2), &block(&x, 3)), &sum(&block(&y, 2), &block(&y, 3)))
                );
                assert_eq!(
                    got[6],
                    dot(&sum(&block(&x, 0), &block(&x, 2)), &sum(&block(&y, 0), &block(&y, 2)))
                );
                let weights = draw.words(4);
                let before = x.clone();
                isa.run(Fold { x: &mut x, weights: &weights });
                for at in 0..len {
                    let want =
                        (0..4).fold(0, |sum, k| sum ^ slow(before[k * len + at], weights[k]));
                    assert_eq!(x[at], want, "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn the_field_is_a_field() {
        let mut draw = Draw::for_test(2);
        for _ in 0..20 {
            let (a, b, c) = (draw.word(), draw.word(), draw.word());
            assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c));
            assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
            // a^(2^64) = a
            assert_eq!((0..64).fold(a, |x, _| mul(x, x)), a);
        }
    }
}
