//! Vectors in AVX2 and AVX-512, with carry-less products of whole vectors (VPCLMULQDQ).
#![allow(unsafe_code)] // intrinsics: a proof without them was measured 20 times slower

use std::arch::{is_x86_feature_detected, x86_64::*};

use super::{Kernel, Lanes};

/// Proof that the CPU has AVX2 and VPCLMULQDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Avx2(());

/// Proof that the CPU has AVX-512 F, BW and DQ, and VPCLMULQDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Avx512(());

impl Avx2 {
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq");
        has.then_some(Self(()))
    }
}

impl Avx512 {
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("vpclmulqdq");
        has.then_some(Self(()))
    }
}

pub(super) fn run_avx2<K: Kernel>(lanes: Avx2, kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
    fn inner<K: Kernel>(lanes: Avx2, kernel: K) -> K::Output {
        kernel.run(lanes)
    }
    // SAFETY: a value of `Avx2` is made only after detection.
    unsafe { inner(lanes, kernel) }
}

pub(super) fn run_avx512<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq")]
    fn inner<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
        kernel.run(lanes)
    }
    // SAFETY: a value of `Avx512` is made only after detection.
    unsafe { inner(lanes, kernel) }
}

/// Implements [`Lanes`] by intrinsics.
macro_rules! lanes {
    (
        $lanes:ident, $word:ident, $n:literal, $splat:ident, $load:ident, $store:ident, $and:ident, $xor:ident,
        $add:ident, $shl:ident, $shr:ident, $clmul:ident, $unpack:ident
    ) => {
        impl Lanes for $lanes {
            type Word = $word;
            const N: usize = $n;

            #[inline(always)]
            fn splat(self, word: u64) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $splat(word as i64) }
            }

            #[inline(always)]
            fn load(self, from: &[u64]) -> $word {
                let from = &from[..$n];
                // SAFETY: the slice has all words, and the token proves the instructions.
                unsafe { $load(from.as_ptr().cast()) }
            }

            #[inline(always)]
            fn store(self, word: $word, to: &mut [u64]) {
                let to = &mut to[..$n];
                // SAFETY: the slice has room for all words, and the token proves the instructions.
                unsafe { $store(to.as_mut_ptr().cast(), word) }
            }

            #[inline(always)]
            fn and(self, a: $word, b: $word) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $and(a, b) }
            }

            #[inline(always)]
            fn xor(self, a: $word, b: $word) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $xor(a, b) }
            }

            #[inline(always)]
            fn add(self, a: $word, b: $word) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            fn shl(self, a: $word, count: u64) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $shl(a, $splat(count as i64)) }
            }

            #[inline(always)]
            fn shr(self, a: $word, count: u64) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe { $shr(a, $splat(count as i64)) }
            }

            #[inline(always)]
            fn products(self, a: $word, b: $word) -> [$word; 2] {
                // SAFETY: the token proves the instructions.
                unsafe { [$clmul::<0x00>(a, b), $clmul::<0x11>(a, b)] }
            }

            #[inline(always)]
            fn reduce(self, [even, odd]: [$word; 2]) -> $word {
                // SAFETY: the token proves the instructions.
                unsafe {
                    // The upper half times the modulus's lower terms, twice: the second time only 4 bits are left.
                    let modulus = $splat(0x1b);
                    let even_once = $clmul::<0x01>(even, modulus);
                    let odd_once = $clmul::<0x01>(odd, modulus);
                    let even_twice = $clmul::<0x01>(even_once, modulus);
                    let odd_twice = $clmul::<0x01>(odd_once, modulus);
                    let even = $xor(even, $xor(even_once, even_twice));
                    let odd = $xor(odd, $xor(odd_once, odd_twice));
                    $unpack(even, odd)
                }
            }
        }
    };
}

lanes!(
    Avx2,
    __m256i,
    4,
    _mm256_set1_epi64x,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_and_si256,
    _mm256_xor_si256,
    _mm256_add_epi64,
    _mm256_sllv_epi64,
    _mm256_srlv_epi64,
    _mm256_clmulepi64_epi128,
    _mm256_unpacklo_epi64
);
lanes!(
    Avx512,
    __m512i,
    8,
    _mm512_set1_epi64,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_and_si512,
    _mm512_xor_si512,
    _mm512_add_epi64,
    _mm512_sllv_epi64,
    _mm512_srlv_epi64,
    _mm512_clmulepi64_epi128,
    _mm512_unpacklo_epi64
);
