//! Kernels for AVX2, which has no product of 64-bit lanes: it is put together from 32-bit ones.

use std::arch::x86_64::*;

use super::kernel::Tile;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 8;

/// `tile = a x b` for packed panels of `mr <= 2` rows and 8 columns.
///
/// # Safety
/// The CPU has AVX2; `depth` is even; `a` holds `mr * (depth + 1)` words and `b` holds
/// `8 * (depth + 1)`, the last of each index being its sum of pairs.
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

/// Two inner indices with one product, as in the kernel for AVX-512. With `u = u0 + 2^32 u1` and
/// likewise `v`: `uv = u0 v0 + 2^32 (u0 v1 + u1 v0)`. The first product is `vpmuludq`; `vpmulld` of `u`
/// and `v` with its halves exchanged gives the other two, whose sums may wrap in 32 bits and are
/// joined once at the end.
#[target_feature(enable = "avx2")]
unsafe fn rows<const MR: usize>(depth: usize, a: *const u64, b: *const u64, tile: &mut Tile) {
    // SAFETY: callers ask for words of the panels only.
    let word = |at: usize| _mm256_set1_epi64x(unsafe { *a.add(at) } as i64);
    // SAFETY: as above; panels are aligned to 64 bytes.
    let half_line = |at: usize| unsafe { _mm256_load_si256(b.add(at).cast()) };
    let mut low = [[_mm256_setzero_si256(); 2]; MR];
    let mut cross = [[_mm256_setzero_si256(); 2]; MR];
    for k in (0..depth).step_by(2) {
        for i in 0..MR {
            let (x0, x1) = (word(MR * k + i), word(MR * (k + 1) + i));
            for j in 0..2 {
                let u = _mm256_add_epi64(x0, half_line(COLUMNS * (k + 1) + 4 * j));
                let v = _mm256_add_epi64(x1, half_line(COLUMNS * k + 4 * j));
                let swapped = _mm256_shuffle_epi32::<0b10_11_00_01>(v);
                low[i][j] = _mm256_add_epi64(low[i][j], _mm256_mul_epu32(u, v));
                cross[i][j] = _mm256_add_epi32(cross[i][j], _mm256_mullo_epi32(u, swapped));
            }
        }
    }
    for i in 0..MR {
        for j in 0..2 {
            let both = _mm256_add_epi32(cross[i][j], _mm256_srli_epi64::<32>(cross[i][j]));
            let sum = _mm256_add_epi64(low[i][j], _mm256_slli_epi64::<32>(both));
            let pairs = _mm256_add_epi64(word(MR * depth + i), half_line(COLUMNS * depth + 4 * j));
            let sum = _mm256_sub_epi64(sum, pairs);
            // SAFETY: a tile has room for 2 rows of 8 words.
            unsafe {
                _mm256_store_si256(tile.0.as_mut_ptr().add(COLUMNS * i + 4 * j).cast(), sum);
            }
        }
    }
}
