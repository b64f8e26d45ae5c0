//! Prime fields of 61 bits, in Montgomery form with `R = 2^64`.

use crate::{keys::Draw, ring::Ring};

/// The field of a prime `2^60 < p < 2^61`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prime {
    p: u64,
    /// `-1 / p` modulo 2^64.
    inverse: u64,
    /// `R^2` modulo p.
    square: u64,
    challenges: u64,
}

/// Bases of Miller and Rabin's test that decide for all numbers below 2^64 (Sorenson and Webster 2015).
const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

impl Prime {
    /// A uniform prime of 61 bits, with challenges of `challenge_bits` low bits: 64 outside of tests.
    pub fn random(draw: &mut Draw, challenge_bits: u32) -> Self {
        loop {
            let field = Self::of(draw.word() >> 4 | 1 << 60 | 1, challenge_bits);
            if BASES.iter().all(|&base| field.passes(base)) {
                return field;
            }
        }
    }

    /// A prime that is not random.
    #[cfg(test)]
    pub fn known() -> Self {
        Self::of((1 << 61) - 1, 64)
    }

    /// Arithmetic modulo an odd number.
    fn of(p: u64, challenge_bits: u32) -> Self {
        // Each step doubles the bits that are right; an odd number is its own inverse modulo 8.
        let mut inverse = p;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(p.wrapping_mul(inverse)));
        }
        let r = (1u128 << 64) % u128::from(p);
        Self {
            p,
            inverse: inverse.wrapping_neg(),
            square: (r * r % u128::from(p)) as u64,
            challenges: u64::MAX >> (64 - challenge_bits),
        }
    }

    /// True if the modulus is a strong probable prime to a base.
    fn passes(&self, base: u64) -> bool {
        let one = self.enter(1);
        let minus_one = self.sub(0, one);
        let twos = (self.p - 1).trailing_zeros();
        let mut power = self.pow(self.enter(base), (self.p - 1) >> twos);
        if power == one || power == minus_one {
            return true;
        }
        for _ in 1..twos {
            power = self.mul(power, power);
            if power == minus_one {
                return true;
            }
        }
        false
    }

    pub fn pow(&self, mut base: u64, mut exponent: u64) -> u64 {
        let mut power = self.enter(1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = self.mul(power, base);
            }
            base = self.mul(base, base);
            exponent >>= 1;
        }
        power
    }

    /// The element of any word.
    #[inline]
    pub fn enter(&self, word: u64) -> u64 {
        self.reduce(u128::from(word) * u128::from(self.square))
    }

    /// `x / R`, below p, of a number below `2^64 p`.
    #[inline]
    pub fn reduce(&self, x: u128) -> u64 {
        let quotient = self.quotient(x);
        quotient.min(quotient.wrapping_sub(self.p))
    }

    /// As [`Prime::reduce`], of a number below `2^66 p`: four words times elements.
    #[inline]
    pub fn reduce_four(&self, x: u128) -> u64 {
        let mut quotient = self.quotient(x);
        for multiple in [4, 2, 1] {
            quotient = quotient.min(quotient.wrapping_sub(multiple * self.p));
        }
        quotient
    }

    /// `x / R` plus a multiple of p: below `x / R + p`.
    #[inline]
    fn quotient(&self, x: u128) -> u64 {
        let factor = (x as u64).wrapping_mul(self.inverse);
        ((x + u128::from(factor) * u128::from(self.p)) >> 64) as u64
    }

    /// `a b / R` of any word and an element.
    #[inline]
    pub fn mul_word(&self, word: u64, element: u64) -> u64 {
        self.reduce(u128::from(word) * u128::from(element))
    }

    /// `sum_i words_i elements_i / R` of any words.
    pub fn dot_words(&self, words: &[u64], elements: &[u64]) -> u64 {
        let mut sum = 0;
        for (words, elements) in words.chunks(4).zip(elements.chunks(4)) {
            let mut wide = 0;
            for (&word, &element) in words.iter().zip(elements) {
                wide += u128::from(word) * u128::from(element);
            }
            sum = self.add(sum, self.reduce_four(wide));
        }
        sum
    }

    /// The least sum of at most six elements.
    #[inline]
    pub fn of_six(&self, sum: u64) -> u64 {
        let mut sum = sum;
        for multiple in [4, 2, 1] {
            sum = sum.min(sum.wrapping_sub(multiple * self.p));
        }
        sum
    }

    /// The modulus.
    #[cfg(test)]
    pub fn modulus(&self) -> u64 {
        self.p
    }
}

impl Ring for Prime {
    type Element = u64;
    const WORDS: usize = 1;
    const VARIABLES: usize = 2;

    fn zero(&self) -> u64 {
        0
    }

    fn one(&self) -> u64 {
        self.enter(1)
    }

    #[inline]
    fn add(&self, a: u64, b: u64) -> u64 {
        let sum = a + b;
        sum.min(sum.wrapping_sub(self.p))
    }

    #[inline]
    fn sub(&self, a: u64, b: u64) -> u64 {
        let difference = a.wrapping_sub(b);
        difference.min(difference.wrapping_add(self.p))
    }

    #[inline]
    fn mul(&self, a: u64, b: u64) -> u64 {
        self.reduce(u128::from(a) * u128::from(b))
    }

    fn encode(&self, element: u64, words: &mut Vec<u64>) {
        words.push(element);
    }

    fn decode(&self, words: &[u64]) -> Option<u64> {
        (words[0] < self.p).then_some(words[0])
    }

    fn random(&self, draw: &mut Draw) -> u64 {
        // Of 128 bits the remainder is uniform but for 2^-67; of one word it would visibly not be.
        let wide = u128::from(draw.word()) << 64 | u128::from(draw.word());
        (wide % u128::from(self.p)) as u64
    }

    fn challenge(&self, draw: &mut Draw) -> u64 {
        if self.challenges != u64::MAX {
            return self.enter(draw.beyond_one(|draw| draw.word() & self.challenges));
        }
        let one = self.one();
        loop {
            let element = self.random(draw);
            if element != 0 && element != one {
                return element;
            }
        }
    }

    fn round(&self, x: &[u64], y: &[u64]) -> Vec<u64> {
        let block = x.len() / 4;
        let mut sums = [0; 9];
        // Eight products of elements stay below 2^64 p.
        for first in (0..block).step_by(8) {
            let mut wide = [0u128; 9];
            for at in first..block.min(first + 8) {
                let x = self.nine([x[at], x[block + at], x[2 * block + at], x[3 * block + at]]);
                let y = self.nine([y[at], y[block + at], y[2 * block + at], y[3 * block + at]]);
                for k in 0..9 {
                    wide[k] += u128::from(x[k]) * u128::from(y[k]);
                }
            }
            for k in 0..9 {
                sums[k] = self.add(sums[k], self.reduce(wide[k]));
            }
        }
        sums.to_vec()
    }

    fn fold(&self, x: &mut Vec<u64>, weights: &[u64]) {
        let block = x.len() / 4;
        let (first, rest) = x.split_at_mut(block);
        let (second, rest) = rest.split_at(block);
        let (third, fourth) = rest.split_at(block);
        for at in 0..block {
            let words = [first[at], second[at], third[at], fourth[at]];
            let mut wide = 0;
            for k in 0..4 {
                wide += u128::from(words[k]) * u128::from(weights[k]);
            }
            first[at] = self.reduce(wide);
        }
        x.truncate(block);
    }

    #[cfg(test)]
    fn two_challenges(&self) -> [u64; 2] {
        [0x11, 0x22].map(|word| self.enter(word))
    }

    #[cfg(test)]
    fn inverse(&self, a: u64) -> u64 {
        self.pow(a, self.p - 2)
    }

    fn dot(&self, a: &[u64], b: &[u64]) -> u64 {
        let mut sum = 0;
        for (a, b) in a.chunks(8).zip(b.chunks(8)) {
            let mut wide = 0;
            for (&a, &b) in a.iter().zip(b) {
                wide += u128::from(a) * u128::from(b);
            }
            sum = self.add(sum, self.reduce(wide));
        }
        sum
    }
}

impl Prime {
    /// Values at `{0, 1, infinity}^2` of the polynomial of two variables with these values at the corners.
    #[inline]
    fn nine(&self, [a, b, c, d]: [u64; 4]) -> [u64; 9] {
        let e = self.sub(c, a);
        let f = self.sub(d, b);
        [a, b, self.sub(b, a), c, d, self.sub(d, c), e, f, self.sub(f, e)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_those_of_known_tables_and_arithmetic_is_modulo_them() {
        // The largest below 2^61, a Mersenne prime, and the smallest above 2^60.
        for (number, prime) in [
            ((1 << 61) - 1, true),
            ((1 << 60) + 33, true),
            ((1 << 60) + 31, false),
            ((1 << 61) - 3, false),
            // A strong pseudoprime to the bases 2, 3, 5 and 7.
            (3_215_031_751, false),
        ] {
            let field = Prime::of(number, 64);
            assert_eq!(BASES.iter().all(|&base| field.passes(base)), prime, "{number}");
        }
        let mut draw = Draw::for_test(3);
        for _ in 0..20 {
            let field = Prime::random(&mut draw, 64);
            let p = field.modulus();
            assert_eq!(p >> 60, 1);
            let (a, b) = (draw.word() % p, draw.word() % p);
            let product = field.mul(field.enter(a), field.enter(b));
            assert_eq!(
                field.reduce(product.into()),
                (u128::from(a) * u128::from(b) % u128::from(p)) as u64
            );
            assert_eq!(field.pow(field.enter(a), p - 1), field.one());
            assert_eq!(field.add(field.sub(a, b), b), a);
            let words = draw.words(9);
            let elements: Vec<u64> = words.iter().map(|word| field.enter(word % 77)).collect();
            let want = words
                .iter()
                .map(|&word| u128::from(word % p) * u128::from(word % 77) % u128::from(p));
            assert_eq!(
                u128::from(field.dot_words(&words, &elements)),
                want.sum::<u128>() % u128::from(p)
            );
            let most = field.of_six(6 * (p - 1));
            assert_eq!(most, p - 6);
        }
    }

    #[test]
    fn vectors_agree_with_elements() {
        let mut draw = Draw::for_test(4);
        let field = Prime::random(&mut draw, 64);
        let mut vector = |len: usize| (0..len).map(|_| field.random(&mut draw)).collect::<Vec<_>>();
        for block in [1, 7, 8, 9] {
            let (mut x, y) = (vector(4 * block), vector(4 * block));
            let values = field.round(&x, &y);
            let dot = |a: &[u64], b: &[u64]| {
                a.iter().zip(b).fold(0, |sum, (&a, &b)| field.add(sum, field.mul(a, b)))
            };
            assert_eq!(field.dot(&x, &y), dot(&x, &y));
            assert_eq!(values[4], dot(&x[3 * block..], &y[3 * block..]));
            let weights = vector(4);
            let want = dot(&[x[0], x[block], x[2 * block], x[3 * block]], &weights);
            field.fold(&mut x, &weights);
            assert_eq!((x.len(), x[0]), (block, want));
        }
    }
}
