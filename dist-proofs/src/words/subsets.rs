//! Random subsets of relations, at most 48.

use crate::{
    keys::Draw,
    ring::{Ring, prime::Prime},
};

/// Bytes of a mask of subsets.
const BYTES: usize = 6;

/// For each relation the subsets that it is in, as bits.
pub(super) struct Subsets {
    masks: Vec<u64>,
    subsets: usize,
}

impl Subsets {
    pub fn draw(relations: usize, subsets: usize, challenge: &mut Draw) -> Self {
        assert!(subsets <= 8 * BYTES, "at most {} subsets", 8 * BYTES);
        let mut masks = challenge.words(relations);
        let kept = (1 << subsets) - 1;
        masks.iter_mut().for_each(|mask| *mask &= kept);
        mutant!("every subset is full", masks = vec![kept; relations]);
        Self { masks, subsets }
    }

    /// The sum of numbers over each subset. Numbers are added up by the bytes of their masks first.
    pub fn sums(&self, numbers: &[u128]) -> Vec<u128> {
        let mut tables = vec![[0u128; 256]; BYTES];
        for (mask, &number) in self.masks.iter().zip(numbers) {
            for (table, byte) in tables.iter_mut().zip(mask.to_le_bytes()) {
                table[usize::from(byte)] += number;
            }
        }
        let of_subset = |subset: usize| {
            let table = &tables[subset / 8];
            (0..256).filter(|byte| byte >> (subset % 8) & 1 == 1).map(|byte| table[byte]).sum()
        };
        (0..self.subsets).map(of_subset).collect()
    }

    /// For each relation the sum of the weights of its subsets, times R.
    pub fn weights(&self, field: &Prime, gammas: &[u64]) -> Vec<u64> {
        let mut tables = vec![[0u64; 256]; BYTES];
        for (at, table) in tables.iter_mut().enumerate() {
            for byte in 1..256usize {
                let subset = 8 * at + byte.trailing_zeros() as usize;
                let gamma = gammas.get(subset).map_or(0, |&gamma| field.enter(gamma));
                table[byte] = field.add(table[byte & (byte - 1)], gamma);
            }
        }
        let tables: &[[u64; 256]; BYTES] = tables.as_slice().try_into().expect("one for each byte");
        let weight = |mask: &u64| {
            let bytes = mask.to_le_bytes();
            // Six elements of 61 bits stay below 2^64.
            field.of_six((0..BYTES).map(|at| tables[at][usize::from(bytes[at])]).sum())
        };
        self.masks.iter().map(weight).collect()
    }
}
