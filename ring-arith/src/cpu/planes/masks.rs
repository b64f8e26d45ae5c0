//! Transposes with AVX-512 masks: one instruction takes the top bits of 64 bytes.
//!
//! A square of 64 rows is eight vectors. Exchanges of bytes bring byte `c` of every row to vector `c`;
//! doubling its bytes then brings one plane after another to the top.

use std::arch::x86_64::*;

use super::{ELEMENTS, Planes};

/// The first `width` planes of the elements shifted right by `low`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn split(elements: &[u64; ELEMENTS], low: u32, width: usize, planes: &mut Planes) {
    let count = _mm_cvtsi32_si128(low as i32);
    for (w, rows) in elements.as_chunks::<64>().0.iter().enumerate() {
        let mut lanes = [_mm512_setzero_si512(); 8];
        for (a, lanes) in lanes.iter_mut().enumerate() {
            let pairs = [0, 16, 32, 48].map(|first| pair(rows, first + 2 * a));
            *lanes = interleave(_mm512_srl_epi64(join_pairs(pairs), count));
        }
        let bytes = transpose(lanes);
        // Now byte `i` of vector `c` is byte `c` of row `i`.
        for (bytes, planes) in
            bytes.into_iter().zip(planes.as_chunks_mut::<8>().0).take(width.div_ceil(8))
        {
            let mut bytes = bytes;
            for plane in planes.iter_mut().rev() {
                plane[w] = _mm512_movepi8_mask(bytes);
                bytes = _mm512_add_epi8(bytes, bytes);
            }
        }
    }
}

/// The elements of the first `width` planes, shifted left by `low`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn join(planes: &Planes, low: u32, width: usize, elements: &mut [u64; ELEMENTS]) {
    let count = _mm_cvtsi32_si128(low as i32);
    let bits = [1, 2, 4, 8, 16, 32, 64, -128].map(|bit| _mm512_set1_epi8(bit));
    for (w, rows) in elements.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let mut bytes = [_mm512_setzero_si512(); 8];
        let groups = planes.as_chunks::<8>().0;
        for (bytes, planes) in bytes.iter_mut().zip(groups).take(width.div_ceil(8)) {
            let mut sum = _mm512_setzero_si512();
            for (bit, plane) in bits.into_iter().zip(planes) {
                sum = _mm512_mask_add_epi8(sum, plane[w], sum, bit);
            }
            *bytes = sum;
        }
        for (a, lanes) in transpose(bytes).into_iter().enumerate() {
            let lanes = _mm512_sll_epi64(separate(lanes), count);
            let pairs = [
                _mm512_castsi512_si128(lanes),
                _mm512_extracti64x2_epi64::<1>(lanes),
                _mm512_extracti64x2_epi64::<2>(lanes),
                _mm512_extracti64x2_epi64::<3>(lanes),
            ];
            for (pair, first) in pairs.into_iter().zip([0, 16, 32, 48]) {
                let to: &mut [u64; 2] = rows[first + 2 * a..].first_chunk_mut().expect("two rows");
                // SAFETY: the reference is to two words.
                unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), pair) };
            }
        }
    }
}

/// Two neighbouring rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(rows: &[u64; 64], first: usize) -> __m128i {
    let from: &[u64; 2] = rows[first..].first_chunk().expect("two rows");
    // SAFETY: the reference is to two words.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join_pairs([a, b, c, d]: [__m128i; 4]) -> __m512i {
    let lanes = _mm512_inserti64x2::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti64x2::<3>(_mm512_inserti64x2::<2>(lanes, c), d)
}

/// In each 128 bits, from two rows of eight bytes to eight pairs of bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave(lanes: __m512i) -> __m512i {
    let order = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(order))
}

/// The inverse of [`interleave`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn separate(lanes: __m512i) -> __m512i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(order))
}

/// In each 128 bits, pair of bytes `j` of vector `i` becomes pair `i` of vector `j`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(x: [__m512i; 8]) -> [__m512i; 8] {
    let low = |i: usize| _mm512_unpacklo_epi16(x[i], x[i + 1]);
    let high = |i: usize| _mm512_unpackhi_epi16(x[i], x[i + 1]);
    // Pairs `0..4` and `4..8` of two, then two pairs of four, then one of all eight vectors.
    let quarters = |p: [__m512i; 4]| {
        let front = [_mm512_unpacklo_epi32(p[0], p[1]), _mm512_unpackhi_epi32(p[0], p[1])];
        let back = [_mm512_unpacklo_epi32(p[2], p[3]), _mm512_unpackhi_epi32(p[2], p[3])];
        [
            _mm512_unpacklo_epi64(front[0], back[0]),
            _mm512_unpackhi_epi64(front[0], back[0]),
            _mm512_unpacklo_epi64(front[1], back[1]),
            _mm512_unpackhi_epi64(front[1], back[1]),
        ]
    };
    let [a, b, c, d] = quarters([low(0), low(2), low(4), low(6)]);
    let [e, f, g, h] = quarters([high(0), high(2), high(4), high(6)]);
    [a, b, c, d, e, f, g, h]
}
