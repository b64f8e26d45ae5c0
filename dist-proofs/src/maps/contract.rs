//! Contraction: sums of rows of a matrix of words, each times a weight with coefficients 0 and 1.

use crate::{
    ring::galois::{DEGREE, Element},
    simd::{Isa, Kernel, Lanes, MAX_LANES},
};

/// Fours of rows whose tables of sums lie in the first cache together.
const GROUPS: usize = 16;

/// Rows of a tile.
const ROWS: usize = 4 * GROUPS;

/// Columns of a tile.
const COLUMNS: usize = MAX_LANES;

/// Coefficients that are added up in registers together; four times this covers the degree.
const REGISTERS: usize = 12;

/// Coefficients of an element, rounded up.
const COEFFICIENTS: usize = 4 * REGISTERS;

/// `sum_r weights_r X_r` over the rows of a matrix of `columns` columns: one element for each column. Weights are masks of
/// coefficients.
///
/// Rows are taken by fours, of which a table has all sums, so a row costs a fourth of an addition for each coefficient.
pub(crate) fn contract(words: &[u64], columns: usize, weights: &[u64]) -> Vec<Element> {
    assert_eq!(words.len(), columns * weights.len(), "a weight for each row");
    run_over(Isa::best(), words, columns, weights, false)
}

/// The same over the columns of each row: one element for each row.
pub(crate) fn contract_columns(words: &[u64], columns: usize, weights: &[u64]) -> Vec<Element> {
    assert_eq!(columns, weights.len(), "a weight for each column");
    run_over(Isa::best(), words, columns, weights, true)
}

fn run_over(
    isa: Isa,
    words: &[u64],
    columns: usize,
    weights: &[u64],
    transposed: bool,
) -> Vec<Element> {
    let results = if transposed { words.len() / columns.max(1) } else { columns };
    let selections: Vec<[u8; COEFFICIENTS]> = weights.chunks(4).map(selections).collect();
    let mut sums = vec![[0; COEFFICIENTS * COLUMNS]; results.div_ceil(COLUMNS)];
    isa.run(Contract { words, columns, transposed, selections: &selections, sums: &mut sums });
    let result = |at: usize| {
        let sums = &sums[at / COLUMNS];
        std::array::from_fn(|place| sums[place * COLUMNS + at % COLUMNS])
    };
    (0..results).map(result).collect()
}

/// For every coefficient the entry of the table of four rows: the rows whose weight has it.
fn selections(weights: &[u64]) -> [u8; COEFFICIENTS] {
    std::array::from_fn(|place| {
        let bits =
            weights.iter().enumerate().map(|(row, weight)| ((weight >> place & 1) as u8) << row);
        if place < DEGREE { bits.sum() } else { 0 }
    })
}

/// See [`contract`]. Coefficient `t` of result `c` is added to `sums[c / COLUMNS][t * COLUMNS + c % COLUMNS]`.
struct Contract<'a> {
    words: &'a [u64],
    columns: usize,
    /// The matrix is stored with what is contracted as its columns.
    transposed: bool,
    selections: &'a [[u8; COEFFICIENTS]],
    sums: &'a mut [[u64; COEFFICIENTS * COLUMNS]],
}

impl Kernel for Contract<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let mut tables = [[lanes.splat(0); 16]; GROUPS];
        let mut tile = [0; ROWS * COLUMNS];
        let chunks = self.selections.len().div_ceil(GROUPS);
        // In the order in which the words lie.
        for step in 0..chunks * self.sums.len() {
            let (chunk, strip) = if self.transposed {
                (step % chunks, step / chunks)
            } else {
                (step / self.sums.len(), step % self.sums.len())
            };
            if self.transposed {
                self.copy_transposed(chunk, strip, &mut tile);
            } else {
                self.copy(chunk, strip, &mut tile);
            }
            self.add_tile(lanes, chunk, strip, &tile, &mut tables);
        }
    }
}

impl Contract<'_> {
    /// Copies rows of the matrix; those past its end are zero.
    #[inline(always)]
    fn copy(&self, chunk: usize, strip: usize, tile: &mut [u64; ROWS * COLUMNS]) {
        let width = COLUMNS.min(self.columns - strip * COLUMNS);
        for row in 0..ROWS {
            let to = &mut tile[row * COLUMNS..][..COLUMNS];
            let first = (chunk * ROWS + row) * self.columns + strip * COLUMNS;
            if first >= self.words.len() {
                to.fill(0);
            } else if width == COLUMNS {
                to.copy_from_slice(&self.words[first..first + COLUMNS]);
            } else {
                to.fill(0);
                to[..width].copy_from_slice(&self.words[first..first + width]);
            }
        }
    }

    /// Copies rows of the transposed matrix.
    #[inline(always)]
    fn copy_transposed(&self, chunk: usize, strip: usize, tile: &mut [u64; ROWS * COLUMNS]) {
        let rows = COLUMNS.min(self.words.len() / self.columns - strip * COLUMNS);
        let width = ROWS.min(self.columns - chunk * ROWS);
        if rows < COLUMNS || width < ROWS {
            tile.fill(0);
        }
        for row in 0..rows {
            let from =
                &self.words[(strip * COLUMNS + row) * self.columns + chunk * ROWS..][..width];
            for at in 0..width {
                tile[at * COLUMNS + row] = from[at];
            }
        }
    }

    /// Adds a tile's weighted rows to the sums of its columns.
    #[inline(always)]
    fn add_tile<L: Lanes>(
        &mut self,
        lanes: L,
        chunk: usize,
        strip: usize,
        tile: &[u64; ROWS * COLUMNS],
        tables: &mut [[L::Word; 16]; GROUPS],
    ) {
        let selections = &self.selections[chunk * GROUPS..];
        let groups = GROUPS.min(selections.len());
        let out = &mut self.sums[strip];
        let mut column = 0;
        while column < COLUMNS {
            for group in 0..groups {
                let table = &mut tables[group];
                for place in 0..4 {
                    let word = lanes.load(&tile[(4 * group + place) * COLUMNS + column..]);
                    for entry in 0..1 << place {
                        table[(1 << place) + entry] = lanes.add(table[entry], word);
                    }
                }
            }
            for part in 0..4 {
                let mut sums = [lanes.splat(0); REGISTERS];
                for k in 0..REGISTERS {
                    sums[k] = lanes.load(&out[(part * REGISTERS + k) * COLUMNS + column..]);
                }
                for group in 0..groups {
                    let entries = &selections[group];
                    let table = &tables[group];
                    for k in 0..REGISTERS {
                        let entry = usize::from(entries[part * REGISTERS + k] & 15);
                        sums[k] = lanes.add(sums[k], table[entry]);
                    }
                }
                for k in 0..REGISTERS {
                    lanes.store(sums[k], &mut out[(part * REGISTERS + k) * COLUMNS + column..]);
                }
            }
            column += L::N;
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
            let transposed: Vec<u64> =
                (0..words.len()).map(|at| words[at % rows * columns + at / rows]).collect();
            let by_rows = contract(&words, columns, &weights);
            let by_columns = contract_columns(&transposed, rows, &weights);
            for isa in Isa::supported() {
                assert_eq!(run_over(isa, &words, columns, &weights, false), by_rows, "{isa:?}");
            }
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
