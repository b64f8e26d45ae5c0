//! Operands brought into panels, with the sums of products of their pairs.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::windows::{Columns, Lanes};
use super::{COLUMNS, LANES, Sum, WIDTH, mask};

/// Copies a row and writes the sum of products of its pairs of words after it. As many words from
/// `next` on are prefetched meanwhile.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn copy_row(from: &[u64], next: *const u64, to: &mut [u64]) {
    let depth = from.len();
    let (to, behind) = to.split_at_mut(depth);
    let mut sum = Sum::zero();
    let (from, from_rest) = from.as_chunks::<{ 2 * LANES }>();
    let (to, to_rest) = to.as_chunks_mut::<{ 2 * LANES }>();
    for (i, (from, to)) in from.iter().zip(to).enumerate() {
        _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(2 * LANES * i).cast());
        // SAFETY: both are two vectors long.
        let [x, y] = unsafe {
            let [x, y] = [0, LANES].map(|at| _mm256_loadu_si256(from.as_ptr().add(at).cast()));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), x);
            _mm256_storeu_si256(to.as_mut_ptr().add(LANES).cast(), y);
            [x, y]
        };
        sum.add(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
    }
    to_rest.copy_from_slice(from_rest);
    let rest = from_rest.chunks_exact(2).map(|pair| pair[0].wrapping_mul(pair[1]));
    behind[0] = rest.fold(sum.total(), u64::wrapping_add);
}

/// Packs some inner indices of some columns into panels of 8 columns with `panel` words each. The
/// rows, padded to an even number, come first, then the sums of products of their pairs.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn pack_columns(
    columns: &Columns<'_>,
    k: &Range<usize>,
    some: &Range<usize>,
    packed: &mut [u64],
    panel: usize,
) {
    let count = some.len().div_ceil(COLUMNS);
    let rows = k.len().next_multiple_of(2);
    assert!(panel >= COLUMNS * (rows + 1) && packed.len() >= count * panel);
    let offsets = columns.offsets_within(k, some, 0);
    let (list, ends) = columns.vectors::<LANES>(some, count * WIDTH);
    let mut begin = 0;
    for (packed, ends) in packed.chunks_exact_mut(panel).zip(ends.chunks_exact(WIDTH)) {
        let parts = [&list[begin..ends[0]], &list[ends[0]..ends[1]]];
        begin = ends[1];
        let words = columns.words.as_ptr();
        // The next rows are prefetched: the same ones of the next panel.
        let next = list.get(begin).or(parts[0].first()).map_or(0, |lanes| lanes.from);
        let next = words.wrapping_offset(next);
        // SAFETY: the words of these lanes are there, and the panel has room for the rows and a line of sums.
        unsafe {
            match parts {
                [[one], [other]] if one.mask & other.mask == 0b1111 => {
                    let from = [one, other].map(|lanes| words.wrapping_offset(lanes.from));
                    let read = |offset: usize| {
                        from.map(|from| _mm256_loadu_si256(from.wrapping_add(offset).cast()))
                    };
                    pack_panel(&offsets, next, packed, read);
                }
                _ => {
                    let read = |offset| parts.map(|parts| gather(parts, words, offset));
                    pack_panel(&offsets, next, packed, read);
                }
            }
        }
    }
}

/// The lanes of one vector of a row.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather(parts: &[Lanes], words: *const u64, offset: usize) -> __m256i {
    let mut all = _mm256_setzero_si256();
    for lanes in parts {
        let from = words.wrapping_add(offset).wrapping_offset(lanes.from).cast();
        // SAFETY: the words of the lanes in the mask are there.
        let some = unsafe { _mm256_maskload_epi64(from, mask(lanes.mask)) };
        all = _mm256_or_si256(all, some);
    }
    all
}

/// Packs one panel: `read(offset)` gives a row's words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pack_panel(
    offsets: &[usize],
    next: *const u64,
    packed: &mut [u64],
    read: impl Fn(usize) -> [__m256i; WIDTH],
) {
    let mut sums = [Sum::zero(); WIDTH];
    let to = packed.as_mut_ptr();
    // SAFETY: the panel has room for an even number of rows, and one more.
    let write = |row: usize, words: [__m256i; WIDTH]| unsafe {
        let to = to.add(row * COLUMNS);
        _mm256_storeu_si256(to.cast(), words[0]);
        _mm256_storeu_si256(to.add(LANES).cast(), words[1]);
    };
    for (i, pair) in offsets.chunks(2).enumerate() {
        pair.iter().for_each(|o| _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(*o).cast()));
        let x = read(pair[0]);
        let y = match pair {
            [_, second] => read(*second),
            _ => [_mm256_setzero_si256(); WIDTH],
        };
        write(2 * i, x);
        write(2 * i + 1, y);
        for j in 0..WIDTH {
            sums[j].add(x[j], y[j]);
        }
    }
    write(offsets.len().next_multiple_of(2), sums.map(|sum| sum.words()));
}
