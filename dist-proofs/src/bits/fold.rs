//! The second stage: planes at a random point of the cube, as field elements for each column and bit position.

use std::borrow::Cow;

use super::{
    cube::load_blocks,
    layout::{Class, LANES, ROWS, Tiling, place_of},
};
use crate::simd::{Kernel, Lanes, run};

/// For every bit position and column of planes the sum of weights of the blocks that have the bit. The columns of the planes
/// follow each other from `slot` on.
pub(crate) fn fold_planes(
    planes: &[Cow<'_, [u64]>],
    class: &Class,
    weights: &[u64],
    slot: usize,
    out: &mut [u64],
) {
    run(FoldPlanes {
        planes,
        tiling: class.tiling,
        columns: class.columns,
        tables: &selections(weights),
        slot,
        out,
    });
}

/// Bit `o` of the sums is an exclusive or of the blocks whose weight has it. The blocks are taken by fours, of which a
/// table has all sums: this is the entry of each table for each bit.
fn selections(weights: &[u64]) -> [[u8; 16]; 64] {
    let mut entries = [[0; 16]; 64];
    for (bit, row) in entries.iter_mut().enumerate() {
        for (entry, weights) in row.iter_mut().zip(weights.chunks(4)) {
            for (place, weight) in weights.iter().enumerate() {
                *entry |= ((weight >> bit & 1) as u8) << place;
            }
        }
    }
    entries
}

struct FoldPlanes<'a, 'b> {
    planes: &'a [Cow<'b, [u64]>],
    tiling: Tiling,
    columns: usize,
    tables: &'a [[u8; 16]; 64],
    slot: usize,
    out: &'a mut [u64],
}

impl Kernel for FoldPlanes<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let zero = lanes.splat(0);
        let mut tables = [[zero; 16]; 16];
        let mut matrix = [zero; 64];
        for k in 0..self.planes.len() {
            let plane = &self.planes[k];
            let mut column = 0;
            while column < self.columns {
                load_blocks(lanes, plane, self.tiling, column, &mut matrix);
                for group in 0..16 {
                    let table = &mut tables[group];
                    for place in 0..4 {
                        let word = matrix[4 * group + place];
                        for entry in 0..1 << place {
                            table[(1 << place) + entry] = lanes.xor(table[entry], word);
                        }
                    }
                }
                for bit in 0..64 {
                    let entries = &self.tables[bit];
                    let mut sum = tables[0][usize::from(entries[0] & 15)];
                    for group in 1..16 {
                        sum = lanes.xor(sum, tables[group][usize::from(entries[group] & 15)]);
                    }
                    matrix[bit] = sum;
                }
                transpose(lanes, &mut matrix);
                let width = L::N.min(self.tiling.width);
                let first = place_of(self.slot + k * self.columns + column);
                for row in 0..ROWS {
                    let to = &mut self.out[first + row * LANES..][..width];
                    lanes.store_some(matrix[row], to);
                }
                column += width;
            }
        }
    }
}

/// Transposes a matrix of 64 by 64 bits in each lane.
#[inline(always)]
fn transpose<L: Lanes>(lanes: L, matrix: &mut [L::Word; 64]) {
    for (step, mask) in [
        (32, 0x0000_0000_ffff_ffff),
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555u64),
    ] {
        let mask = lanes.splat(mask);
        let mut first = 0;
        while first < 64 {
            for row in first..first + step {
                let shifted = lanes.shr(matrix[row], step as u64);
                let swapped = lanes.and(lanes.xor(shifted, matrix[row + step]), mask);
                matrix[row] = lanes.xor(matrix[row], lanes.shl(swapped, step as u64));
                matrix[row + step] = lanes.xor(matrix[row + step], swapped);
            }
            first += 2 * step;
        }
    }
}

/// Sums of planes, each times its weight, times the weights of bit positions and columns.
pub(crate) struct Combine<'a> {
    pub class: &'a Class,
    /// All planes, from [`fold_planes`].
    pub folded: &'a [u64],
    /// Planes and their weights.
    pub terms: &'a [(usize, u64)],
    /// Of bit `i` from `i * columns` on.
    pub weights: &'a [u64],
    /// The first column of the result.
    pub slot: usize,
    pub out: &'a mut [u64],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let columns = self.class.columns;
        let width = L::N.min(self.class.tiling.width);
        let mut column = 0;
        while column < columns {
            let to = place_of(self.slot + column);
            for row in 0..ROWS {
                let mut sums = [lanes.splat(0); 2];
                for &(plane, weight) in self.terms {
                    let first = place_of(plane * columns + column) + row * LANES;
                    let word = lanes.load_some(&self.folded[first..first + width]);
                    let [even, odd] = lanes.products(word, lanes.splat(weight));
                    sums = [lanes.xor(sums[0], even), lanes.xor(sums[1], odd)];
                }
                let first = row * columns + column;
                let weight = lanes.load_some(&self.weights[first..first + width]);
                let word = lanes.reduce(lanes.products(lanes.reduce(sums), weight));
                lanes.store_some(word, &mut self.out[to + row * LANES..][..width]);
            }
            column += width;
        }
    }
}

/// The weighted sum over bit positions, in every column.
pub(crate) fn sum_rows(cells: &[u64], weights: &[u64]) -> Vec<u64> {
    let mut sums = vec![0; cells.len() / ROWS];
    run(SumRows { cells, weights, sums: &mut sums });
    sums
}

struct SumRows<'a> {
    cells: &'a [u64],
    weights: &'a [u64],
    sums: &'a mut [u64],
}

impl Kernel for SumRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let mut slot = 0;
        while slot < self.sums.len() {
            let words = &self.cells[place_of(slot)..];
            let mut sums = [lanes.splat(0); 2];
            for row in 0..ROWS {
                let word = lanes.load(&words[row * LANES..]);
                let [even, odd] = lanes.products(word, lanes.splat(self.weights[row]));
                sums = [lanes.xor(sums[0], even), lanes.xor(sums[1], odd)];
            }
            lanes.store(lanes.reduce(sums), &mut self.sums[slot..]);
            slot += L::N;
        }
    }
}

/// Adds a vector times a weight to another.
pub(crate) struct AddScaled<'a> {
    pub from: &'a [u64],
    pub weight: u64,
    pub to: &'a mut [u64],
}

impl Kernel for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let weight = lanes.splat(self.weight);
        let mut at = 0;
        while at < self.to.len() {
            let product = lanes.reduce(lanes.products(lanes.load_some(&self.from[at..]), weight));
            let sum = lanes.xor(lanes.load_some(&self.to[at..]), product);
            lanes.store_some(sum, &mut self.to[at..]);
            at += L::N;
        }
    }
}

/// Products of two vectors, element by element.
pub(crate) fn products(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut out = vec![0; a.len()];
    run(Products { a, b, out: &mut out });
    out
}

struct Products<'a> {
    a: &'a [u64],
    b: &'a [u64],
    out: &'a mut [u64],
}

impl Kernel for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let mut at = 0;
        while at < self.a.len() {
            let product =
                lanes.products(lanes.load_some(&self.a[at..]), lanes.load_some(&self.b[at..]));
            lanes.store_some(lanes.reduce(product), &mut self.out[at..]);
            at += L::N;
        }
    }
}

/// The product of every element of one vector with every one of another: `first.len()` rows.
pub(crate) fn outer(first: &[u64], second: &[u64]) -> Vec<u64> {
    let mut out = vec![0; first.len() * second.len()];
    for (&weight, row) in first.iter().zip(out.chunks_mut(second.len().max(1))) {
        run(AddScaled { from: second, weight, to: row });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bits::layout::{CELL, Layout},
        keys::Draw,
        simd::Isa,
        tests::Example,
    };

    #[test]
    fn all_instruction_sets_give_the_same_vectors() {
        let draw = &mut Draw::for_test(81);
        for elements in [100, 5000, 64 * 64 * 9] {
            let prover = &Example::bits(2, elements, draw).sides()[0];
            let layout = Layout::new(prover);
            let class = &layout.classes[0];
            let planes = &class.left_planes(prover);
            let weights = draw.words(64);
            let places = draw.words(ROWS * class.columns);
            let len = CELL * (planes.len() * class.columns).div_ceil(LANES);
            let &Class { tiling, columns, .. } = class;
            let tables = &selections(&weights);
            let vectors = |isa: Isa| {
                let mut folded = vec![0; len];
                isa.run(FoldPlanes { planes, tiling, columns, tables, slot: 0, out: &mut folded });
                let terms = &[(0, weights[0]), (1, weights[1])];
                let mut combined = vec![0; CELL * columns.div_ceil(LANES)];
                let out = &mut combined;
                isa.run(Combine { class, folded: &folded, terms, weights: &places, slot: 0, out });
                let mut sums = vec![0; len / ROWS];
                isa.run(SumRows { cells: &folded, weights: &weights, sums: &mut sums });
                [folded, combined, sums]
            };
            let want = vectors(Isa::Portable);
            for isa in Isa::supported() {
                assert_eq!(vectors(isa), want, "{isa:?}, {elements} elements");
            }
        }
    }
}
