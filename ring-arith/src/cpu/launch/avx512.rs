//! Vectors of eight words in AVX-512.

use std::arch::x86_64::*;

use super::block::Block;
use super::lanes::{Lanes, operators};
use crate::{Word, WordKernel};

/// Runs a kernel over a block.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL, and the block's pointers must be valid as it
/// describes, `I` inputs and `O` outputs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    kernel: &K,
    params: &[u64],
    block: &Block<'_>,
) {
    // SAFETY: as above; everything down to the intrinsics is inlined into this function.
    unsafe { block.run::<Vector, K, I, O>(kernel, params) }
}

/// Eight words. Made only in code compiled for the instruction set, see [`Lanes`].
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Vector(__m512i);

operators! {
    Vector:
    // SAFETY: see `Vector`.
    Add add |x, y| unsafe { _mm512_add_epi64(x, y) };
    // SAFETY: see `Vector`.
    Sub sub |x, y| unsafe { _mm512_sub_epi64(x, y) };
    // SAFETY: see `Vector`.
    Mul mul |x, y| unsafe { _mm512_mullo_epi64(x, y) };
    // SAFETY: see `Vector`.
    BitAnd bitand |x, y| unsafe { _mm512_and_si512(x, y) };
    // SAFETY: see `Vector`.
    BitOr bitor |x, y| unsafe { _mm512_or_si512(x, y) };
    // SAFETY: see `Vector`.
    BitXor bitxor |x, y| unsafe { _mm512_xor_si512(x, y) };
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
        Self(unsafe { _mm512_set1_epi64(value as i64) })
    }
    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm512_sll_epi64(self.0, _mm_cvtsi32_si128(count as i32)) })
    }
    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm512_srl_epi64(self.0, _mm_cvtsi32_si128(count as i32)) })
    }
    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        // SAFETY: see `Vector`.
        Self(unsafe { _mm512_sra_epi64(self.0, _mm_cvtsi32_si128(count as i32)) })
    }
}

// SAFETY: the accesses are those the trait names; masked lanes are not touched.
unsafe impl Lanes for Vector {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        // SAFETY: the caller answers for eight words.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        // SAFETY: the caller answers for eight words.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_past_cache(self, to: *mut u64) {
        // SAFETY: the caller answers for eight words and their alignment.
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u64, count: usize) -> Self {
        // SAFETY: the caller answers for `count` words.
        Self(unsafe { _mm512_maskz_loadu_epi64((1 << count) - 1, from.cast()) })
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u64, count: usize) {
        // SAFETY: the caller answers for `count` words.
        unsafe { _mm512_mask_storeu_epi64(to.cast(), (1 << count) - 1, self.0) }
    }
}
