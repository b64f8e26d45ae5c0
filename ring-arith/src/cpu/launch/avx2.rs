//! Vectors of four words in AVX2.

use std::arch::x86_64::*;

use super::block::Block;
use super::lanes::{Lanes, operators};
use crate::{Word, WordKernel};

/// Runs a kernel over a block.
///
/// # Safety
/// The CPU must have AVX2, and the block's pointers must be valid as it
/// describes, `I` inputs and `O` outputs.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    kernel: &K,
    params: &[u64],
    block: &Block<'_>,
) {
    // SAFETY: as above; everything down to the intrinsics is inlined into this function.
    unsafe { block.run::<Vector, K, I, O>(kernel, params) }
}

/// Four words. Made only in code compiled for the instruction set, see [`Lanes`].
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Vector(__m256i);

operators! {
    Vector:
    // SAFETY: see `Vector`.
    Add add |x, y| unsafe { _mm256_add_epi64(x, y) };
    // SAFETY: see `Vector`.
    Sub sub |x, y| unsafe { _mm256_sub_epi64(x, y) };
    // SAFETY: see `Vector`.
    Mul mul |x, y| unsafe { multiply(x, y) };
    // SAFETY: see `Vector`.
    BitAnd bitand |x, y| unsafe { _mm256_and_si256(x, y) };
    // SAFETY: see `Vector`.
    BitOr bitor |x, y| unsafe { _mm256_or_si256(x, y) };
    // SAFETY: see `Vector`.
    BitXor bitxor |x, y| unsafe { _mm256_xor_si256(x, y) };
}

/// Products of 64-bit lanes from 32-bit halves: `low * low + ((low * high + high * low) << 32)`.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn multiply(x: __m256i, y: __m256i) -> __m256i {
    // SAFETY: as above.
    unsafe {
        let (x_high, y_high) = (_mm256_srli_epi64::<32>(x), _mm256_srli_epi64::<32>(y));
        let cross = _mm256_add_epi64(_mm256_mul_epu32(x, y_high), _mm256_mul_epu32(x_high, y));
        _mm256_add_epi64(_mm256_mul_epu32(x, y), _mm256_slli_epi64::<32>(cross))
    }
}

impl std::ops::Neg for Vector {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self::constant(0) - self
    }
}

impl std::ops::Not for Vector {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        self ^ Self::constant(u64::MAX)
    }
}

impl Word for Vector {
    #[inline(always)]
    fn constant(value: u64) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm256_set1_epi64x(value as i64) })
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm256_sll_epi64(self.0, _mm_cvtsi32_si128(count as i32)) })
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm256_srl_epi64(self.0, _mm_cvtsi32_si128(count as i32)) })
    }
    /// AVX2 lacks this shift of 64-bit lanes. The shifted sign bit is flipped and subtracted: if it
    /// was set, this borrows from all bits above it.
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        let sign = Self::constant(1 << 63).shr(count);
        (self.shr(count) ^ sign) - sign
    }
}

/// The mask of a masked access to the first `count` lanes.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn mask(count: usize) -> __m256i {
    const ONES_THEN_ZEROS: [u64; 8] = [!0, !0, !0, !0, 0, 0, 0, 0];
    // SAFETY: as above; `count <= 4`, so four words from `4 - count` on lie inside the table.
    unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(4 - count.min(4)).cast()) }
}

// SAFETY: the accesses are those the trait names; masked lanes are not touched.
unsafe impl Lanes for Vector {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        // SAFETY: the caller answers for four words.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        // SAFETY: the caller answers for four words.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_past_cache(self, to: *mut u64) {
        // SAFETY: the caller answers for four words and their alignment.
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u64, count: usize) -> Self {
        // SAFETY: the caller answers for `count` words.
        Self(unsafe { _mm256_maskload_epi64(from.cast(), mask(count)) })
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u64, count: usize) {
        // SAFETY: the caller answers for `count` words.
        unsafe { _mm256_maskstore_epi64(to.cast(), mask(count), self.0) }
    }
}
