//! Kernels for AVX-512, whose `vpmullq` multiplies 64-bit lanes.

use std::arch::x86_64::*;

use super::kernel::Tile;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 8 * WIDTH;

/// Vectors across a tile.
const WIDTH: usize = 2;

/// `tile = a x b` for packed panels of `mr <= 8` rows and 16 columns.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `depth` is even; `a` holds `mr * (depth + 1)` words and `b` holds
/// `16 * (depth + 1)`, the last of each index being its sum of pairs.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply(mr: usize, depth: usize, a: &[u64], b: &[u64], tile: &mut Tile) {
    let (a, b) = (a.as_ptr(), b.as_ptr());
    // SAFETY: the caller's promises are passed on.
    unsafe {
        match mr {
            1 => rows::<1>(depth, a, b, tile),
            2 => rows::<2>(depth, a, b, tile),
            3 => rows::<3>(depth, a, b, tile),
            4 => rows::<4>(depth, a, b, tile),
            5 => rows::<5>(depth, a, b, tile),
            6 => rows::<6>(depth, a, b, tile),
            7 => rows::<7>(depth, a, b, tile),
            _ => rows::<8>(depth, a, b, tile),
        }
    }
}

/// Two inner indices with one product, after Winograd (IEEE Trans. Comput. C-17(7), 1968):
/// `x0 y0 + x1 y1 = (x0 + y1) (x1 + y0) - x0 x1 - y0 y1`, where the last two are sums of pairs of one
/// row and one column. On Sapphire Rapids `vpmullq` takes three slots and an addition one, so this
/// needs 6 slots instead of 8.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn rows<const MR: usize>(depth: usize, a: *const u64, b: *const u64, tile: &mut Tile) {
    // SAFETY: callers ask for words of the panels only.
    let word = |at: usize| _mm512_set1_epi64(unsafe { *a.add(at) } as i64);
    // SAFETY: as above; panels are aligned to 64 bytes.
    let line = |at: usize| unsafe { _mm512_load_si512(b.add(at).cast()) };
    let mut sums = [[_mm512_setzero_si512(); WIDTH]; MR];
    for k in (0..depth).step_by(2) {
        let y0: [__m512i; WIDTH] = std::array::from_fn(|j| line(COLUMNS * k + 8 * j));
        let y1: [__m512i; WIDTH] = std::array::from_fn(|j| line(COLUMNS * (k + 1) + 8 * j));
        for i in 0..MR {
            let (x0, x1) = (word(MR * k + i), word(MR * (k + 1) + i));
            for j in 0..WIDTH {
                let product =
                    _mm512_mullo_epi64(_mm512_add_epi64(x0, y1[j]), _mm512_add_epi64(x1, y0[j]));
                sums[i][j] = _mm512_add_epi64(sums[i][j], product);
            }
        }
    }
    for i in 0..MR {
        let row = word(MR * depth + i);
        for j in 0..WIDTH {
            let pairs = _mm512_add_epi64(row, line(COLUMNS * depth + 8 * j));
            let sum = _mm512_sub_epi64(sums[i][j], pairs);
            // SAFETY: a tile has room for 8 rows of 16 words.
            unsafe {
                _mm512_store_si512(tile.0.as_mut_ptr().add(COLUMNS * i + 8 * j).cast(), sum);
            }
        }
    }
}
