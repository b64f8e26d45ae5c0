//! Kernels for AVX-512, whose `vpmullq` multiplies 64-bit lanes.

use std::arch::x86_64::*;

use super::kernel::Tile;

/// Vectors across a tile.
const WIDTH: usize = 3;

/// `tile = a x b` for packed panels of `mr <= 8` rows and 24 columns.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `a` holds `mr * depth` words and `b` holds `24 * depth`.
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

/// 24 sums, 3 words of `b` and one of `a`, with the products between them, fill the 32 registers.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn rows<const MR: usize>(depth: usize, a: *const u64, b: *const u64, tile: &mut Tile) {
    let mut sums = [[_mm512_setzero_si512(); WIDTH]; MR];
    for k in 0..depth {
        let mut y = [_mm512_setzero_si512(); WIDTH];
        for (j, y) in y.iter_mut().enumerate() {
            // SAFETY: word `24 k + 8 j + 7` is within the panel.
            *y = unsafe { _mm512_load_si512(b.add((WIDTH * k + j) * 8).cast()) };
        }
        for i in 0..MR {
            // SAFETY: word `MR k + i` is within the panel.
            let x = _mm512_set1_epi64(unsafe { *a.add(MR * k + i) } as i64);
            for j in 0..WIDTH {
                sums[i][j] = _mm512_add_epi64(sums[i][j], _mm512_mullo_epi64(x, y[j]));
            }
        }
    }
    for i in 0..MR {
        for j in 0..WIDTH {
            // SAFETY: a tile has room for 8 rows of 24 words.
            unsafe {
                _mm512_store_si512(tile.0.as_mut_ptr().add((WIDTH * i + j) * 8).cast(), sums[i][j]);
            }
        }
    }
}
