//! Contraction: sums of rows of a matrix of words, each times a weight with coefficients 0 and 1.

use crate::{
    ring::galois::{DEGREE, Element},
    simd::{Kernel, Lanes, run},
};

/// Fours of rows whose tables of sums lie in the first cache together.
const GROUPS: usize = 16;

/// Coefficients that are added up in registers together; four times this covers the degree.
const REGISTERS: usize = 12;

/// `sum_r weights_r X_r` over the rows of a matrix of `columns` columns: one element for each column. Weights are masks of
/// coefficients.
///
/// Rows are taken by fours, of which a table has all sums, so a row costs a fourth of an addition for each coefficient.
pub(crate) fn contract(words: &[u64], columns: usize, weights: &[u64]) -> Vec<Element> {
    assert_eq!(words.len(), columns * weights.len(), "a weight for each row");
    let selections: Vec<[u8; 4 * REGISTERS]> = weights.chunks(4).map(selections).collect();
    let mut coefficients = vec![0; 4 * REGISTERS * columns];
    run(Contract { words, columns, selections: &selections, out: &mut coefficients });
    (0..columns)
        .map(|column| std::array::from_fn(|place| coefficients[place * columns + column]))
        .collect()
}

/// The same over the columns of each row: one element for each row.
pub(crate) fn contract_columns(words: &[u64], columns: usize, weights: &[u64]) -> Vec<Element> {
    assert_eq!(columns, weights.len(), "a weight for each column");
    if columns == 0 {
        return Vec::new();
    }
    contract(&transposed(words, columns), words.len() / columns, weights)
}

/// A matrix of `columns` columns, transposed tile by tile.
fn transposed(words: &[u64], columns: usize) -> Vec<u64> {
    const TILE: usize = 16;
    let rows = words.len() / columns;
    let mut out = vec![0; words.len()];
    for first_row in (0..rows).step_by(TILE) {
        for first_column in (0..columns).step_by(TILE) {
            for row in first_row..rows.min(first_row + TILE) {
                for column in first_column..columns.min(first_column + TILE) {
                    out[column * rows + row] = words[row * columns + column];
                }
            }
        }
    }
    out
}

/// For every coefficient the entry of the table of four rows: the rows whose weight has it.
fn selections(weights: &[u64]) -> [u8; 4 * REGISTERS] {
    std::array::from_fn(|place| {
        let bits =
            weights.iter().enumerate().map(|(row, weight)| ((weight >> place & 1) as u8) << row);
        if place < DEGREE { bits.sum() } else { 0 }
    })
}

/// See [`contract`]. Coefficient `t` of column `c` is added to `out[t * columns + c]`.
struct Contract<'a> {
    words: &'a [u64],
    columns: usize,
    selections: &'a [[u8; 4 * REGISTERS]],
    out: &'a mut [u64],
}

impl Kernel for Contract<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let mut tables = [[lanes.splat(0); 16]; GROUPS];
        let mut first = 0;
        while first < self.selections.len() {
            let groups = GROUPS.min(self.selections.len() - first);
            let mut column = 0;
            while column < self.columns {
                let width = L::N.min(self.columns - column);
                for group in 0..groups {
                    fill(
                        lanes,
                        self.words,
                        self.columns,
                        4 * (first + group),
                        column,
                        &mut tables[group],
                    );
                }
                for part in 0..4 {
                    let mut sums = [lanes.splat(0); REGISTERS];
                    for group in 0..groups {
                        let entries = &self.selections[first + group];
                        for k in 0..REGISTERS {
                            let entry =
                                tables[group][usize::from(entries[part * REGISTERS + k] & 15)];
                            sums[k] = lanes.add(sums[k], entry);
                        }
                    }
                    for k in 0..REGISTERS {
                        let at = (part * REGISTERS + k) * self.columns + column;
                        let out = &mut self.out[at..at + width];
                        let sum = lanes.add(lanes.load_some(out), sums[k]);
                        lanes.store_some(sum, out);
                    }
                }
                column += L::N;
            }
            first += GROUPS;
        }
    }
}

/// All sums of four rows from `row` on, rows past the end being zero.
#[inline(always)]
fn fill<L: Lanes>(
    lanes: L,
    words: &[u64],
    columns: usize,
    row: usize,
    column: usize,
    table: &mut [L::Word; 16],
) {
    for place in 0..4 {
        let first = (row + place) * columns + column;
        let word = if first < words.len() {
            let end = words.len().min(first + columns - column);
            lanes.load_some(&words[first..end])
        } else {
            lanes.splat(0)
        };
        for entry in 0..1 << place {
            table[(1 << place) + entry] = lanes.add(table[entry], word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        keys::Draw,
        ring::{
            Ring,
            galois::{Galois, binary},
        },
    };

    #[test]
    fn contraction_is_the_weighted_sum() {
        let ring = Galois::new(47);
        let draw = &mut Draw::for_test(7);
        for (rows, columns) in [(1, 1), (3, 9), (70, 5), (66, 17), (2, 40)] {
            let words = draw.words(rows * columns);
            let weights: Vec<u64> = (0..rows).map(|_| ring.weight(draw)).collect();
            let by_rows = contract(&words, columns, &weights);
            let by_columns = contract_columns(&transposed(&words, columns), rows, &weights);
            for column in 0..columns {
                let want = (0..rows).fold(ring.zero(), |sum, row| {
                    let word = words[row * columns + column];
                    ring.add(sum, binary(weights[row]).map(|bit| bit.wrapping_mul(word)))
                });
                assert_eq!(by_rows[column], want);
                assert_eq!(by_columns[column], want);
            }
        }
    }
}
