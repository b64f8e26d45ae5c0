//! Kernels for AVX2, which has no product of 64-bit lanes: it is put together from 32-bit ones.

use std::arch::x86_64::*;

use super::kernel::Tile;

/// `tile = a x b` for packed panels of `mr <= 2` rows and 8 columns.
///
/// # Safety
/// The CPU has AVX2; `a` holds `mr * depth` words and `b` holds `8 * depth`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(mr: usize, depth: usize, a: &[u64], b: &[u64], tile: &mut Tile) {
    // SAFETY: the caller's promises are passed on.
    unsafe {
        match mr {
            1 => rows::<1>(depth, a.as_ptr(), b.as_ptr(), tile),
            _ => rows::<2>(depth, a.as_ptr(), b.as_ptr(), tile),
        }
    }
}

/// With `a = a0 + 2^32 a1` and likewise `b`: `ab = a0 b0 + 2^32 (a0 b1 + a1 b0)`. The first product
/// is `vpmuludq`; `vpmulld` of `a` and `b` with its halves exchanged gives the other two, whose sums
/// may wrap in 32 bits and are joined once at the end.
#[target_feature(enable = "avx2")]
unsafe fn rows<const MR: usize>(depth: usize, a: *const u64, b: *const u64, tile: &mut Tile) {
    let mut low = [[_mm256_setzero_si256(); 2]; MR];
    let mut cross = [[_mm256_setzero_si256(); 2]; MR];
    for k in 0..depth {
        for j in 0..2 {
            // SAFETY: word `8 k + 4 j + 3` is within the panel.
            let y = unsafe { _mm256_load_si256(b.add(8 * k + 4 * j).cast()) };
            let swapped = _mm256_shuffle_epi32::<0b10_11_00_01>(y);
            for i in 0..MR {
                // SAFETY: word `MR k + i` is within the panel.
                let x = _mm256_set1_epi64x(unsafe { *a.add(MR * k + i) } as i64);
                low[i][j] = _mm256_add_epi64(low[i][j], _mm256_mul_epu32(x, y));
                cross[i][j] = _mm256_add_epi32(cross[i][j], _mm256_mullo_epi32(x, swapped));
            }
        }
    }
    for i in 0..MR {
        for j in 0..2 {
            let both = _mm256_add_epi32(cross[i][j], _mm256_srli_epi64::<32>(cross[i][j]));
            let sum = _mm256_add_epi64(low[i][j], _mm256_slli_epi64::<32>(both));
            // SAFETY: a tile has 16 words for these rows.
            unsafe { _mm256_store_si256(tile.0.as_mut_ptr().add(8 * i + 4 * j).cast(), sum) };
        }
    }
}
