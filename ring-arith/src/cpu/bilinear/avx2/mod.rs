//! Kernels for AVX2, which lacks products of 64-bit lanes: they combine 32-bit products.

mod pack;
mod thin;

use std::arch::x86_64::*;

use super::kernel::{ROW, Tile};
pub(super) use pack::{copy_row, pack_columns};
pub(super) use thin::dots;

/// Columns of a tile.
pub(super) const COLUMNS: usize = LANES * WIDTH;

/// Words of a vector.
const LANES: usize = 4;

/// Vectors across a tile.
const WIDTH: usize = 2;

/// A packed panel of one or two rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The words.
    pub words: &'a [u64],
    /// Word `k` of row `i` lies at `i * ROW + k`; else at `k * stride + i`.
    pub by_rows: bool,
    /// Words from one inner index to the next, unless they lie by rows.
    pub stride: usize,
    /// The first of two rows to be fetched into the second-level cache meanwhile.
    pub next: *const u64,
    /// Words from it to the other.
    pub next_step: usize,
}

/// `tile = a x b` for packed panels of `mr <= 2` rows and 8 columns, of which the first `columns` are
/// wanted.
///
/// # Safety
/// The CPU has AVX2; `depth` is even; `a` has `mr` rows of `depth + 1` words and `b` holds
/// `8 * (depth + 1)`, the last of each index being its sum of pairs; `b` is aligned to 64 bytes.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(
    [mr, columns]: [usize; 2],
    depth: usize,
    a: Rows<'_>,
    b: &[u64],
    tile: &mut Tile,
) {
    let b = b.as_ptr();
    // SAFETY: the caller's promises are passed on.
    unsafe {
        match (mr, a.by_rows, columns <= LANES) {
            (1, false, false) => rows::<1, WIDTH, false>(depth, a, b, tile),
            (1, true, false) => rows::<1, WIDTH, true>(depth, a, b, tile),
            (1, false, true) => rows::<1, 1, false>(depth, a, b, tile),
            (1, true, true) => rows::<1, 1, true>(depth, a, b, tile),
            (_, false, false) => rows::<2, WIDTH, false>(depth, a, b, tile),
            (_, true, false) => rows::<2, WIDTH, true>(depth, a, b, tile),
            (_, false, true) => rows::<2, 1, false>(depth, a, b, tile),
            (_, true, true) => rows::<2, 1, true>(depth, a, b, tile),
        }
    }
}

/// Two inner indices with one product, as in the kernel for AVX-512.
#[target_feature(enable = "avx2")]
unsafe fn rows<const MR: usize, const ACROSS: usize, const BY_ROWS: bool>(
    depth: usize,
    a: Rows<'_>,
    b: *const u64,
    tile: &mut Tile,
) {
    let words = a.words.as_ptr();
    let [row, inner] = if BY_ROWS { [ROW, 1] } else { [1, a.stride] };
    // SAFETY: callers ask for words of the panels only.
    let word = |i, k| _mm256_set1_epi64x(unsafe { *words.add(i * row + k * inner) } as i64);
    // SAFETY: as above; panels are aligned to 64 bytes.
    let half_line = |at: usize| unsafe { _mm256_load_si256(b.add(at).cast()) };
    let mut sums = [[Sum::zero(); ACROSS]; MR];
    for k in (0..depth).step_by(2) {
        if BY_ROWS {
            let next = a.next.wrapping_add(k);
            _mm_prefetch::<_MM_HINT_T1>(next.cast());
            _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(a.next_step).cast());
        }
        for i in 0..MR {
            let (x0, x1) = (word(i, k), word(i, k + 1));
            for j in 0..ACROSS {
                let u = _mm256_add_epi64(x0, half_line(COLUMNS * (k + 1) + LANES * j));
                let v = _mm256_add_epi64(x1, half_line(COLUMNS * k + LANES * j));
                sums[i][j].add(u, v);
            }
        }
    }
    for i in 0..MR {
        for j in 0..ACROSS {
            let pairs = _mm256_add_epi64(word(i, depth), half_line(COLUMNS * depth + LANES * j));
            let sum = _mm256_sub_epi64(sums[i][j].words(), pairs);
            // SAFETY: a tile has room for 2 rows of 8 words.
            unsafe {
                _mm256_store_si256(tile.0.as_mut_ptr().add(COLUMNS * i + LANES * j).cast(), sum);
            }
        }
    }
}

/// A sum of products of 64-bit lanes. With `u = u0 + 2^32 u1` and likewise `v`:
/// `uv = u0 v0 + 2^32 (u0 v1 + u1 v0)`. The first product is `vpmuludq`; `vpmulld` of `u` and `v` with
/// its halves exchanged gives the other two, whose sums may wrap in 32 bits and are joined once at the
/// end.
#[derive(Debug, Clone, Copy)]
struct Sum {
    low: __m256i,
    cross: __m256i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        Self { low: _mm256_setzero_si256(), cross: _mm256_setzero_si256() }
    }

    /// Adds `u * v`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, u: __m256i, v: __m256i) {
        let swapped = _mm256_shuffle_epi32::<0b10_11_00_01>(v);
        self.low = _mm256_add_epi64(self.low, _mm256_mul_epu32(u, v));
        self.cross = _mm256_add_epi32(self.cross, _mm256_mullo_epi32(u, swapped));
    }

    /// Its lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(self) -> __m256i {
        let both = _mm256_add_epi32(self.cross, _mm256_srli_epi64::<32>(self.cross));
        _mm256_add_epi64(self.low, _mm256_slli_epi64::<32>(both))
    }

    /// The sum of its lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(self) -> u64 {
        let words = self.words();
        let [one, other] = [_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words)];
        let halves = _mm_add_epi64(one, other);
        let [low, high] = [_mm_cvtsi128_si64(halves), _mm_extract_epi64::<1>(halves)];
        low.wrapping_add(high) as u64
    }
}

/// A mask of the lanes whose bits are set.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(bits: u8) -> __m256i {
    let lanes = _mm256_setr_epi64x(1, 2, 4, 8);
    _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(i64::from(bits)), lanes), lanes)
}
