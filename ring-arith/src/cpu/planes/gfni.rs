//! Transposes with GFNI, which transposes 8x8 bits in every 64-bit lane, and byte permutations.
//!
//! A square of 64 rows is eight vectors of eight rows. It is transposed as 8x8 squares of 8x8 bits.
//! A byte permutation gathers the eight bytes of each small square, GFNI transposes them, and
//! exchanges between and within vectors move the small squares to their places.

use std::arch::x86_64::*;

use super::{ELEMENTS, LINE, Planes};

/// The first `width` planes of the elements shifted right by `low`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
pub(super) fn split(elements: &[u64; ELEMENTS], low: u32, width: usize, planes: &mut Planes) {
    let count = _mm_cvtsi32_si128(low as i32);
    let mut squares = [[_mm512_setzero_si512(); 8]; LINE];
    for (w, square) in squares.iter_mut().enumerate() {
        for (a, rows) in square.iter_mut().enumerate() {
            let from = elements[64 * w + 8 * a..].first_chunk().expect("eight rows");
            *rows = small_squares(_mm512_srl_epi64(load(from), count));
        }
        // Now lane `c` of vector `a` holds bits `8c..8c+8` of rows `8a..8a+8`.
        *square = transpose_lanes(*square);
        for lanes in square.iter_mut().take(width.div_ceil(8)) {
            *lanes = transpose_bytes(*lanes);
        }
        // Now lane `d` of vector `c` is plane `8c + d`.
    }
    for c in 0..width.div_ceil(8) {
        let lines = transpose_lanes(std::array::from_fn(|w| squares[w][c]));
        for (plane, line) in planes[8 * c..].iter_mut().zip(lines) {
            store(plane, line);
        }
    }
}

/// The elements of the first `width` planes, shifted left by `low`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
pub(super) fn join(planes: &Planes, low: u32, width: usize, elements: &mut [u64; ELEMENTS]) {
    let count = _mm_cvtsi32_si128(low as i32);
    let mut squares = [[_mm512_setzero_si512(); 8]; LINE];
    for c in 0..width.div_ceil(8) {
        let mut lines = [_mm512_setzero_si512(); 8];
        for d in 0..8.min(width - 8 * c) {
            lines[d] = load(&planes[8 * c + d]);
        }
        for (w, lanes) in transpose_lanes(lines).into_iter().enumerate() {
            squares[w][c] = small_squares(lanes);
        }
        // Now lane `a` of vector `c` holds, byte by byte, bits `8c..8c+8` of rows `8a..8a+8`.
    }
    for (w, square) in squares.into_iter().enumerate() {
        for (a, lanes) in transpose_lanes(square).into_iter().enumerate() {
            let rows = _mm512_sll_epi64(transpose_bytes(lanes), count);
            let to = elements[64 * w + 8 * a..].first_chunk_mut().expect("eight rows");
            store(to, rows);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u64; 8]) -> __m512i {
    // SAFETY: the reference is to eight words.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u64; 8], lanes: __m512i) {
    // SAFETY: the reference is to eight words.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), lanes) }
}

/// Byte `c` of all eight lanes to lane `c`, and the 8x8 bits there transposed: bit `c * 8 + d` of
/// lane `b` becomes bit `b` of byte `d` of lane `c`.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi,gfni")]
fn small_squares(lanes: __m512i) -> __m512i {
    // The instruction counts rows from the last byte, so they are brought in that order.
    const GATHER: [u8; 64] = bytes(true);
    // Multiplying the matrix in a lane by each unit vector gives its columns.
    let units = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
    _mm512_gf2p8affine_epi64_epi8::<0>(units, permute(&GATHER, lanes))
}

/// Byte `c` of lane `b` becomes byte `b` of lane `c`.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn transpose_bytes(lanes: __m512i) -> __m512i {
    const GATHER: [u8; 64] = bytes(false);
    permute(&GATHER, lanes)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn permute(order: &[u8; 64], lanes: __m512i) -> __m512i {
    // SAFETY: the reference is to 64 bytes.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    _mm512_permutexvar_epi8(order, lanes)
}

/// For each byte of the result the index of the argument's byte.
const fn bytes(reversed: bool) -> [u8; 64] {
    let mut order = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (lane, byte) = (i / 8, i % 8);
        let row = if reversed { 7 - byte } else { byte };
        order[i] = (8 * row + lane) as u8;
        i += 1;
    }
    order
}

/// Lane `j` of vector `i` becomes lane `i` of vector `j`.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_lanes(x: [__m512i; 8]) -> [__m512i; 8] {
    // Even and odd lanes of neighbouring vectors ...
    let even = |i: usize| _mm512_unpacklo_epi64(x[i], x[i + 1]);
    let odd = |i: usize| _mm512_unpackhi_epi64(x[i], x[i + 1]);
    let half = |p: [__m512i; 4]| {
        // ... then pairs of lanes of every other of these, twice.
        let low = |a, b| _mm512_shuffle_i64x2::<0x88>(a, b);
        let high = |a, b| _mm512_shuffle_i64x2::<0xdd>(a, b);
        let (l, m) = (low(p[0], p[1]), low(p[2], p[3]));
        let (h, i) = (high(p[0], p[1]), high(p[2], p[3]));
        [low(l, m), low(h, i), high(l, m), high(h, i)]
    };
    let e = half([even(0), even(2), even(4), even(6)]);
    let o = half([odd(0), odd(2), odd(4), odd(6)]);
    [e[0], o[0], e[1], o[1], e[2], o[2], e[3], o[3]]
}
