//! Vectors of four words in plain Rust.

use std::array;

use super::{Lanes, reduce};

#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    type Word = [u64; 4];
    const N: usize = 4;

    fn splat(self, word: u64) -> Self::Word {
        [word; 4]
    }

    fn load(self, from: &[u64]) -> Self::Word {
        array::from_fn(|at| from[at])
    }

    fn store(self, word: Self::Word, to: &mut [u64]) {
        to[..4].copy_from_slice(&word);
    }

    fn and(self, a: Self::Word, b: Self::Word) -> Self::Word {
        array::from_fn(|at| a[at] & b[at])
    }

    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word {
        array::from_fn(|at| a[at] ^ b[at])
    }

    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word {
        array::from_fn(|at| a[at].wrapping_add(b[at]))
    }

    fn shl(self, a: Self::Word, count: u64) -> Self::Word {
        a.map(|word| word << count)
    }

    fn shr(self, a: Self::Word, count: u64) -> Self::Word {
        a.map(|word| word >> count)
    }

    fn products(self, a: Self::Word, b: Self::Word) -> [Self::Word; 2] {
        let [w, x, y, z] = array::from_fn(|at| product(a[at], b[at]));
        [[w[0], w[1], y[0], y[1]], [x[0], x[1], z[0], z[1]]]
    }

    fn reduce(self, [even, odd]: [Self::Word; 2]) -> Self::Word {
        let pairs = [[even[0], even[1]], [odd[0], odd[1]], [even[2], even[3]], [odd[2], odd[3]]];
        pairs.map(reduce)
    }
}

/// A carry-less product, its lower half first, in a time that does not depend on the factors.
pub(super) fn product(a: u64, b: u64) -> [u64; 2] {
    // The upper half is the lower one of the mirrored factors, mirrored, less the place of the middle bit.
    let high = low_half(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    [low_half(a, b), high]
}

/// The lower half of a carry-less product: integer products of every fourth bit, whose carries stay in the holes. See
/// <https://www.bearssl.org/constanttime.html#ghash-for-gcm>.
fn low_half(a: u64, b: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
    let mut sum = 0;
    for place in 0..4 {
        let mut word = 0;
        for i in 0..4 {
            let j = (place + 4 - i) % 4;
            word ^= (a & (EVERY_FOURTH << i)).wrapping_mul(b & (EVERY_FOURTH << j));
        }
        sum |= word & (EVERY_FOURTH << place);
    }
    sum
}
