//! Thin products: a few vectors and many rows, each read once.

use std::arch::x86_64::*;

use super::super::thin::Rows;
use super::{LANES, Sum, mask};

/// Rows of the big operand that are read side by side, and vectors that meet them in registers.
const TOGETHER: usize = 2;

/// Rows that are read side by side for a single vector.
const STREAMS: usize = 4;

/// Words of a row in one step: word `i` and word `i + 4` are a pair.
const STEP: usize = 2 * LANES;

/// `sums[v][i] += small[v] . rows[i]`; row `i` starts at word `i * stride`. Two inner indices take one
/// product, as in [`super::multiply`].
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn dots(
    sums: &mut [u64],
    small: &[&[u64]],
    rows: &[u64],
    stride: usize,
) {
    let (count, depth) = (sums.len() / small.len(), small[0].len());
    assert!(count == 0 || (count - 1) * stride + depth <= rows.len());
    assert!(small.iter().all(|x| x.len() == depth));
    if let [x] = small {
        // SAFETY: there are as many rows as sums, as long as the vector.
        return unsafe { plain_dots(sums, x, Rows { first: rows.as_ptr(), stride, depth }) };
    }
    // SAFETY: vectors have `depth` words each.
    let own = |x: &&[u64]| unsafe { pairs::<1>(Rows { first: x.as_ptr(), stride: 0, depth }) }[0];
    let own: Vec<_> = small.iter().map(own).collect();
    let small: Vec<_> = small.iter().map(|x| x.as_ptr()).collect();
    for i in (0..count).step_by(TOGETHER) {
        let rows = Rows { first: rows[i * stride..].as_ptr(), stride, depth };
        let sums = &mut sums[i..];
        // SAFETY: there are `TOGETHER` rows from `i` on, or one; vectors are as long.
        unsafe {
            if count - i >= TOGETHER {
                meet::<TOGETHER>(&small, &own, rows, sums, count);
            } else {
                meet::<1>(&small, &own, rows, sums, count);
            }
        }
    }
}

/// `sums[i] += x . rows[i]`: waits for memory, so several rows are read at a time.
#[target_feature(enable = "avx2")]
unsafe fn plain_dots(sums: &mut [u64], x: &[u64], rows: Rows) {
    let (groups, rest) = sums.as_chunks_mut::<STREAMS>();
    let done = groups.len() * STREAMS;
    for (i, sums) in groups.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { plain_rows(sums, x, Rows { first: rows.at(i * STREAMS, 0), ..rows }) };
    }
    for (i, sum) in rest.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe {
            plain_rows(std::array::from_mut(sum), x, Rows { first: rows.at(done + i, 0), ..rows })
        };
    }
}

/// The same for `N` rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn plain_rows<const N: usize>(out: &mut [u64; N], x: &[u64], rows: Rows) {
    let mut sums = [Sum::zero(); N];
    let (whole, rest) = x.as_chunks::<LANES>();
    for (i, x) in whole.iter().enumerate() {
        // SAFETY: an array of four words.
        let x = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
        for (r, sum) in sums.iter_mut().enumerate() {
            // SAFETY: rows are as long as the vector.
            sum.add(x, unsafe { _mm256_loadu_si256(rows.at(r, LANES * i).cast()) });
        }
    }
    for (r, out) in out.iter_mut().enumerate() {
        let mut sum = out.wrapping_add(sums[r].total());
        for (i, x) in rest.iter().enumerate() {
            // SAFETY: as above.
            let y = unsafe { *rows.at(r, LANES * whole.len() + i) };
            sum = sum.wrapping_add(x.wrapping_mul(y));
        }
        *out = sum;
    }
}

/// Adds the products of vectors with `N` rows to `sums[v * count + r]`. `own` has the vectors' sums of
/// products of pairs.
#[target_feature(enable = "avx2")]
unsafe fn meet<const N: usize>(
    small: &[*const u64],
    own: &[u64],
    rows: Rows,
    sums: &mut [u64],
    count: usize,
) {
    // SAFETY: the caller's promises are passed on.
    let theirs = unsafe { pairs::<N>(rows) };
    let groups = small.chunks(TOGETHER).zip(own.chunks(TOGETHER));
    for (group, (small, own)) in groups.enumerate() {
        // SAFETY: as above.
        let dots = unsafe {
            match *small {
                [x, y] => paired_dots::<N, 2>([x, y], rows, group == 0),
                _ => {
                    let [dots] = paired_dots::<N, 1>([small[0]], rows, group == 0);
                    [dots, dots]
                }
            }
        };
        let sums = sums[group * TOGETHER * count..].chunks_mut(count);
        for ((sums, own), dots) in sums.zip(own).zip(dots) {
            for ((sum, theirs), dot) in sums.iter_mut().zip(theirs).zip(dots) {
                *sum = sum.wrapping_add(dot.wrapping_sub(own.wrapping_add(theirs)));
            }
        }
    }
}

/// `sum (x0 + y1) (x1 + y0)` over pairs of words of `V` vectors and `N` rows; fetches the rows after
/// these if `fetch`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn paired_dots<const N: usize, const V: usize>(
    small: [*const u64; V],
    rows: Rows,
    fetch: bool,
) -> [[u64; N]; V] {
    let mut sums = [[Sum::zero(); N]; V];
    let whole = rows.depth / STEP * STEP;
    let next = if fetch { N } else { 0 };
    for k in (0..whole).step_by(STEP) {
        // SAFETY: there are that many words from `k` on.
        unsafe { add_pairs::<N, V, true>(&mut sums, small, rows, k) };
        for r in 0..N {
            _mm_prefetch::<_MM_HINT_T0>(rows.at(next + r, k).cast());
        }
    }
    if whole < rows.depth {
        // SAFETY: the caller's promise.
        unsafe { add_pairs::<N, V, false>(&mut sums, small, rows, whole) };
    }
    sums.map(|sums| sums.map(|sum| sum.total()))
}

/// One step of that: the words from `k` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_pairs<const N: usize, const V: usize, const WHOLE: bool>(
    sums: &mut [[Sum; N]; V],
    small: [*const u64; V],
    rows: Rows,
    k: usize,
) {
    let left = rows.depth - k;
    for r in 0..N {
        // SAFETY: rows and vectors have `left` words from `k` on.
        let y = unsafe { load_pair::<WHOLE>(rows.at(r, k), left) };
        for v in 0..V {
            // SAFETY: as above.
            let x = unsafe { load_pair::<WHOLE>(small[v].wrapping_add(k), left) };
            sums[v][r].add(_mm256_add_epi64(x[0], y[1]), _mm256_add_epi64(x[1], y[0]));
        }
    }
}

/// For each of `N` rows the sum of products of its pairs of words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pairs<const N: usize>(rows: Rows) -> [u64; N] {
    let mut sums = [Sum::zero(); N];
    let whole = rows.depth / STEP * STEP;
    for k in (0..whole).step_by(STEP) {
        for (r, sum) in sums.iter_mut().enumerate() {
            // SAFETY: there are that many words from `k` on.
            let [x, y] = unsafe { load_pair::<true>(rows.at(r, k), STEP) };
            sum.add(x, y);
        }
    }
    for (r, sum) in sums.iter_mut().enumerate() {
        // SAFETY: only words before `depth` are read.
        let [x, y] = unsafe { load_pair::<false>(rows.at(r, whole), rows.depth - whole) };
        sum.add(x, y);
    }
    sums.map(|sum| sum.total())
}

/// The next words of a step, or as many as are left and zeros.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_pair<const WHOLE: bool>(words: *const u64, left: usize) -> [__m256i; 2] {
    let second = words.wrapping_add(LANES);
    if WHOLE {
        // SAFETY: the words are there.
        return unsafe { [words, second].map(|words| _mm256_loadu_si256(words.cast())) };
    }
    let some = (1u8 << left.min(STEP - 1)) - 1;
    // SAFETY: only words that are left are read.
    unsafe {
        [
            _mm256_maskload_epi64(words.cast(), mask(some & 0b1111)),
            _mm256_maskload_epi64(second.cast(), mask(some >> LANES)),
        ]
    }
}
