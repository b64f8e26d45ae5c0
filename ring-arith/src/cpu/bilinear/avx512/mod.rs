//! Kernels for AVX-512, whose `vpmullq` multiplies 64-bit lanes.

mod thin;

use std::arch::x86_64::*;
use std::ops::Range;

use super::kernel::{ROW, Tile};
use super::windows::{Columns, Lanes};
pub(super) use thin::{combine, dots};

/// Columns of a tile.
pub(super) const COLUMNS: usize = 8 * WIDTH;

/// Vectors across a tile.
const WIDTH: usize = 2;

/// A packed panel of up to 8 rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The words, aligned to 64 bytes.
    pub words: &'a [u64],
    /// Word `k` of row `i` lies at `i * ROW + k`; else at `k * stride + i`.
    pub by_rows: bool,
    /// Words from one inner index to the next, unless they lie by rows.
    pub stride: usize,
    /// The first of some rows to be fetched into the second-level cache meanwhile.
    pub next: *const u64,
    /// Words from one of them to the next.
    pub next_step: usize,
    /// Half of their number, less one: 0, 1 or 3.
    pub next_pairs: usize,
}

/// `tile = a x b` for packed panels of `mr <= 8` rows and 16 columns, of which the first `columns` are
/// wanted.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `depth` is even; `a` has `mr` rows of `depth + 1` words and `b` holds
/// `16 * (depth + 1)`, the last of each index being its sum of pairs.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply(
    [mr, columns]: [usize; 2],
    depth: usize,
    a: &Rows<'_>,
    b: &[u64],
    tile: &mut Tile,
) {
    let b = b.as_ptr();
    let half = columns <= COLUMNS / 2;
    macro_rules! by_count {
        ($($count:literal)*) => {
            // SAFETY: the caller's promises are passed on.
            unsafe {
                match (mr, a.by_rows, half) {
                    $(($count, false, false) => rows::<$count, WIDTH, false>(depth, a, b, tile),)*
                    $(($count, true, false) => rows::<$count, WIDTH, true>(depth, a, b, tile),)*
                    $(($count, false, true) => rows::<$count, 1, false>(depth, a, b, tile),)*
                    $(($count, true, true) => rows::<$count, 1, true>(depth, a, b, tile),)*
                    _ => unreachable!("tiles have 1 to 8 rows"),
                }
            }
        };
    }
    by_count!(1 2 3 4 5 6 7 8);
}

/// Two inner indices with one product, after Winograd (IEEE Trans. Comput. C-17(7), 1968):
/// `x0 y0 + x1 y1 = (x0 + y1) (x1 + y0) - x0 x1 - y0 y1`, where the last two are sums of pairs of one
/// row and one column. On Sapphire Rapids `vpmullq` takes three slots and an addition one, so this
/// needs 6 slots instead of 8.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn rows<const MR: usize, const ACROSS: usize, const BY_ROWS: bool>(
    depth: usize,
    a: &Rows<'_>,
    b: *const u64,
    tile: &mut Tile,
) {
    let words = a.words.as_ptr();
    let [row, inner] = if BY_ROWS { [ROW, 1] } else { [1, a.stride] };
    // SAFETY: callers ask for words of the panels only.
    let word = |i, k| _mm512_set1_epi64(unsafe { *words.add(i * row + k * inner) } as i64);
    // SAFETY: as above; panels are aligned to 64 bytes.
    let line = |at: usize| unsafe { _mm512_load_si512(b.add(at).cast()) };
    let mut sums = [[_mm512_setzero_si512(); ACROSS]; MR];
    for k in (0..depth).step_by(2) {
        if BY_ROWS {
            // Two rows at a time, all of them for every line of words.
            let next = a.next.wrapping_add(2 * ((k / 2) & a.next_pairs) * a.next_step + k);
            _mm_prefetch::<_MM_HINT_T1>(next.cast());
            _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(a.next_step).cast());
        }
        let y0: [__m512i; ACROSS] = std::array::from_fn(|j| line(COLUMNS * k + 8 * j));
        let y1: [__m512i; ACROSS] = std::array::from_fn(|j| line(COLUMNS * (k + 1) + 8 * j));
        for i in 0..MR {
            let (x0, x1) = (word(i, k), word(i, k + 1));
            for j in 0..ACROSS {
                let product =
                    _mm512_mullo_epi64(_mm512_add_epi64(x0, y1[j]), _mm512_add_epi64(x1, y0[j]));
                sums[i][j] = _mm512_add_epi64(sums[i][j], product);
            }
        }
    }
    for i in 0..MR {
        for j in 0..ACROSS {
            let pairs = _mm512_add_epi64(word(i, depth), line(COLUMNS * depth + 8 * j));
            let sum = _mm512_sub_epi64(sums[i][j], pairs);
            // SAFETY: a tile has room for 8 rows of 16 words.
            unsafe {
                _mm512_store_si512(tile.0.as_mut_ptr().add(COLUMNS * i + 8 * j).cast(), sum);
            }
        }
    }
}

/// Copies a row and writes the sum of products of its pairs of words after it.
///
/// # Safety
/// The CPU has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn copy_row(from: &[u64], to: &mut [u64]) {
    let depth = from.len();
    assert!(to.len() > depth);
    let mut sum = _mm512_setzero_si512();
    for k in (0..depth).step_by(8) {
        let mask = first_lanes(depth - k);
        // SAFETY: only words of the row are read, and as many are written.
        let x = unsafe {
            let x = _mm512_maskz_loadu_epi64(mask, from.as_ptr().add(k).cast());
            _mm512_mask_storeu_epi64(to.as_mut_ptr().add(k).cast(), mask, x);
            x
        };
        let other = _mm512_permutex_epi64::<0b10_11_00_01>(x);
        sum = _mm512_add_epi64(sum, _mm512_maskz_mullo_epi64(0b0101_0101, x, other));
    }
    to[depth] = _mm512_reduce_add_epi64(sum) as u64;
}

/// Packs some inner indices of some columns into panels of 16 columns with `panel` words each. The
/// rows, padded to an even number, come first, then the sums of products of their pairs.
///
/// # Safety
/// The CPU has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn pack_columns(
    columns: &Columns<'_>,
    k: &Range<usize>,
    some: &Range<usize>,
    packed: &mut [u64],
    panel: usize,
) {
    let depth = k.len();
    let sums = COLUMNS * depth.next_multiple_of(2);
    assert!(panel >= sums + COLUMNS && packed.len() >= some.len().div_ceil(COLUMNS) * panel);
    let (list, ends) = columns.vectors::<8>(some, some.len().div_ceil(COLUMNS) * WIDTH);
    // The next rows are prefetched: the same taps of the next channel, or the next two rows.
    let ahead = columns.taps.len().max(2);
    let offsets = columns.offsets_within(k, some, ahead + 1);
    let zero = _mm512_setzero_si512();
    for i in (0..depth).step_by(2) {
        let row = |i: usize| columns.words.as_ptr().wrapping_add(offsets[i]);
        let (now, next) = ([row(i), row(i + 1)], [row(i + ahead), row(i + 1 + ahead)]);
        let odd = i + 1 == depth;
        let mut begin = 0;
        for (v, end) in ends.iter().enumerate() {
            let [mut x, mut y] = [zero; 2];
            for &Lanes { mask, from } in &list[std::mem::replace(&mut begin, *end)..*end] {
                for next in next {
                    _mm_prefetch::<_MM_HINT_T0>(next.wrapping_offset(from).cast());
                }
                // SAFETY: the words of these lanes are there; without a last row nothing is read of it.
                unsafe {
                    let [one, other] = now.map(|row| row.wrapping_offset(from).cast());
                    x = _mm512_mask_loadu_epi64(x, mask, one);
                    y = _mm512_mask_loadu_epi64(y, if odd { 0 } else { mask }, other);
                }
            }
            let at = 8 * (v % WIDTH);
            let to = packed[v / WIDTH * panel..].as_mut_ptr().wrapping_add(at);
            // SAFETY: the panel has room for the rows and a line of sums.
            unsafe {
                let sum = to.add(sums).cast();
                let before = if i == 0 { zero } else { _mm512_loadu_si512(sum) };
                _mm512_storeu_si512(to.add(COLUMNS * i).cast(), x);
                _mm512_storeu_si512(to.add(COLUMNS * (i + 1)).cast(), y);
                _mm512_storeu_si512(sum, _mm512_add_epi64(before, _mm512_mullo_epi64(x, y)));
            }
        }
    }
}

/// A mask of the first `count` lanes; all for a larger `count`.
#[inline]
fn first_lanes(count: usize) -> u8 {
    if count >= 8 { u8::MAX } else { (1 << count) - 1 }
}
