//! Thin products: a few vectors and many rows, each read once.

use std::arch::x86_64::*;

use super::super::thin::Rows;
use super::first_lanes;

/// Rows of the big operand of a thin product that are read side by side.
const SIDE_BY_SIDE: usize = 4;

/// Fewest vectors for which two inner indices take one product. This needs the sum of products of
/// pairs for each row, a cost that several vectors must share.
const PAIRED: usize = 3;

/// Vectors that meet the same rows in registers.
const TOGETHER: usize = 4;

/// `sums[v][i] += small[v] . rows[i]`; row `i` starts at word `i * stride`.
///
/// # Safety
/// The CPU has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(in super::super) unsafe fn dots(
    sums: &mut [u64],
    small: &[&[u64]],
    rows: &[u64],
    stride: usize,
) {
    let (count, depth) = (sums.len() / small.len(), small[0].len());
    assert!(count == 0 || (count - 1) * stride + depth <= rows.len());
    assert!(small.iter().all(|x| x.len() == depth));
    let paired = small.len() >= PAIRED;
    // SAFETY: vectors have `depth` words each.
    let own = |x: &&[u64]| unsafe { pairs::<1>(Rows { first: x.as_ptr(), stride: 0, depth }) }[0];
    let own: Vec<_> = if paired { small.iter().map(own).collect() } else { Vec::new() };
    let small: Vec<_> = small.iter().map(|x| x.as_ptr()).collect();
    for i in (0..count).step_by(SIDE_BY_SIDE) {
        let wide = count - i >= SIDE_BY_SIDE;
        for r in if wide { i..i + 1 } else { i..count } {
            let rows = Rows { first: rows[r * stride..].as_ptr(), stride, depth };
            let sums = &mut sums[r..];
            // SAFETY: there are `SIDE_BY_SIDE` rows from `r` on, or one; vectors are as long.
            unsafe {
                match (paired, wide) {
                    (true, true) => paired_dots::<SIDE_BY_SIDE>(&small, &own, rows, sums, count),
                    (true, false) => paired_dots::<1>(&small, &own, rows, sums, count),
                    (false, true) => plain_dots::<SIDE_BY_SIDE>(&small, rows, sums, count),
                    (false, false) => plain_dots::<1>(&small, rows, sums, count),
                }
            }
        }
    }
}

/// Adds the products of one or two vectors with `N` rows to `sums[v * count + r]`.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn plain_dots<const N: usize>(
    small: &[*const u64],
    rows: Rows,
    sums: &mut [u64],
    count: usize,
) {
    // SAFETY: the caller's promises are passed on.
    unsafe {
        match *small {
            [x] => plain_rows::<N, 1>([x], rows, sums, count),
            [x, y] => plain_rows::<N, 2>([x, y], rows, sums, count),
            _ => unreachable!("more vectors are paired"),
        }
    }
}

/// The same for `V` vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn plain_rows<const N: usize, const V: usize>(
    small: [*const u64; V],
    rows: Rows,
    sums: &mut [u64],
    count: usize,
) {
    let mut lanes = [[_mm512_setzero_si512(); N]; V];
    for k in (0..rows.depth).step_by(8) {
        let mask = first_lanes(rows.depth - k);
        for r in 0..N {
            // SAFETY: only words before `depth` are read.
            let y = unsafe { _mm512_maskz_loadu_epi64(mask, rows.at(r, k).cast()) };
            for v in 0..V {
                // SAFETY: as above.
                let x = unsafe { _mm512_maskz_loadu_epi64(mask, small[v].add(k).cast()) };
                lanes[v][r] = _mm512_add_epi64(lanes[v][r], _mm512_mullo_epi64(x, y));
            }
        }
    }
    add_lanes(&lanes, sums, count);
}

/// Adds the sums of lanes to `sums[v * count + r]`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_lanes<const N: usize, const V: usize>(
    lanes: &[[__m512i; N]; V],
    sums: &mut [u64],
    count: usize,
) {
    for (lanes, sums) in lanes.iter().zip(sums.chunks_mut(count)) {
        for (lanes, sum) in lanes.iter().zip(sums) {
            *sum = sum.wrapping_add(_mm512_reduce_add_epi64(*lanes) as u64);
        }
    }
}

/// Adds the products of vectors with `N` rows to `sums[v * count + r]`, two inner indices with one
/// product as in [`super::multiply`]. `own` has the vectors' sums of products of pairs.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn paired_dots<const N: usize>(
    small: &[*const u64],
    own: &[u64],
    rows: Rows,
    sums: &mut [u64],
    count: usize,
) {
    // SAFETY: the caller's promises are passed on.
    let theirs = unsafe { pairs::<N>(rows) };
    // The rows after these are fetched meanwhile, some by each group of vectors.
    let share = N.div_ceil(small.len().div_ceil(TOGETHER));
    let groups = small.chunks(TOGETHER).zip(own.chunks(TOGETHER));
    for (group, (small, own)) in groups.enumerate() {
        let sums = &mut sums[group * TOGETHER * count..];
        let fetched = (group * share).min(N)..((group + 1) * share).min(N);
        let next = Rows { first: rows.at(N + fetched.start, 0), ..rows };
        // SAFETY: as above.
        unsafe {
            match *small {
                [x] => paired_rows::<N, 1>([x], rows, (next, fetched.len()), sums, count),
                [x, y] => paired_rows::<N, 2>([x, y], rows, (next, fetched.len()), sums, count),
                [x, y, z] => {
                    paired_rows::<N, 3>([x, y, z], rows, (next, fetched.len()), sums, count);
                }
                [x, y, z, w] => {
                    paired_rows::<N, 4>([x, y, z, w], rows, (next, fetched.len()), sums, count);
                }
                _ => unreachable!("groups have 1 to 4"),
            }
        }
        for (sums, own) in sums.chunks_mut(count).zip(own) {
            for (sum, theirs) in sums.iter_mut().zip(theirs) {
                *sum = sum.wrapping_sub(own.wrapping_add(theirs));
            }
        }
    }
}

/// Adds `sum (x0 + y1) (x1 + y0)` over pairs of words of `V` vectors and `N` rows to
/// `sums[v * count + r]`; fetches some rows into the second-level cache.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn paired_rows<const N: usize, const V: usize>(
    small: [*const u64; V],
    rows: Rows,
    (next, fetched): (Rows, usize),
    sums: &mut [u64],
    count: usize,
) {
    let mut lanes = [[_mm512_setzero_si512(); N]; V];
    let whole = rows.depth / 16 * 16;
    for k in (0..whole).step_by(16) {
        for r in 0..fetched {
            _mm_prefetch::<_MM_HINT_T1>(next.at(r, k).cast());
            _mm_prefetch::<_MM_HINT_T1>(next.at(r, k + 8).cast());
        }
        // SAFETY: there are 16 words from `k` on.
        unsafe { add_pairs::<N, V, true>(&mut lanes, small, rows, k) };
    }
    if whole < rows.depth {
        // SAFETY: the caller's promise.
        unsafe { add_pairs::<N, V, false>(&mut lanes, small, rows, whole) };
    }
    add_lanes(&lanes, sums, count);
}

/// One step of that: the words from `k` on.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn add_pairs<const N: usize, const V: usize, const WHOLE: bool>(
    lanes: &mut [[__m512i; N]; V],
    small: [*const u64; V],
    rows: Rows,
    k: usize,
) {
    let left = rows.depth - k;
    let mut y = [[_mm512_setzero_si512(); 2]; N];
    for (r, y) in y.iter_mut().enumerate() {
        // SAFETY: rows have `left` words from `k` on.
        *y = unsafe { load_pair::<WHOLE>(rows.at(r, k), left) };
    }
    for v in 0..V {
        // SAFETY: vectors are as long.
        let x = unsafe { load_pair::<WHOLE>(small[v].add(k), left) };
        for r in 0..N {
            let product = _mm512_mullo_epi64(
                _mm512_add_epi64(x[0], y[r][1]),
                _mm512_add_epi64(x[1], y[r][0]),
            );
            lanes[v][r] = _mm512_add_epi64(lanes[v][r], product);
        }
    }
}

/// For each of `N` rows the sum of products of its pairs of words.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn pairs<const N: usize>(rows: Rows) -> [u64; N] {
    let mut sums = [_mm512_setzero_si512(); N];
    for k in (0..rows.depth).step_by(16) {
        for (r, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let [x, y] = unsafe { load_pair::<false>(rows.at(r, k), rows.depth - k) };
            *sum = _mm512_add_epi64(*sum, _mm512_mullo_epi64(x, y));
        }
    }
    sums.map(|sum| _mm512_reduce_add_epi64(sum) as u64)
}

/// The next 16 words, or as many as are left and zeros: word `i` and word `i + 8` are a pair.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn load_pair<const WHOLE: bool>(words: *const u64, left: usize) -> [__m512i; 2] {
    let second = words.wrapping_add(8);
    if WHOLE {
        // SAFETY: there are 16 words.
        return unsafe { [_mm512_loadu_si512(words.cast()), _mm512_loadu_si512(second.cast())] };
    }
    let [one, other] = [first_lanes(left), first_lanes(left.saturating_sub(8))];
    // SAFETY: only words that are left are read.
    unsafe {
        [
            _mm512_maskz_loadu_epi64(one, words.cast()),
            _mm512_maskz_loadu_epi64(other, second.cast()),
        ]
    }
}

/// `sums[v] += small[v][k] * rows[k]` for all `k`; row `k` starts at word `k * stride`.
///
/// # Safety
/// The CPU has AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq")]
pub(in super::super) unsafe fn combine(
    sums: &mut [u64],
    small: &[&[u64]],
    rows: &[u64],
    stride: usize,
) {
    let (count, depth) = (sums.len() / small.len(), small[0].len());
    assert!(depth == 0 || (depth - 1) * stride + count <= rows.len());
    assert!(small.iter().all(|x| x.len() == depth));
    for k in (0..depth).step_by(SIDE_BY_SIDE) {
        let wide = depth - k >= SIDE_BY_SIDE;
        for r in if wide { k..k + 1 } else { k..depth } {
            let row = rows[r * stride..].as_ptr();
            for (small, sums) in small.chunks(2).zip(sums.chunks_mut(2 * count)) {
                let x = [&small[0][r..], &small[small.len() - 1][r..]];
                // SAFETY: rows from `r` on and sums have `count` words each.
                unsafe {
                    match (small.len(), wide) {
                        (2, true) => combine_rows::<4, 2>(sums, x, row, stride),
                        (2, false) => combine_rows::<1, 2>(sums, x, row, stride),
                        (_, true) => combine_rows::<4, 1>(sums, [x[0]], row, stride),
                        (_, false) => combine_rows::<1, 1>(sums, [x[0]], row, stride),
                    }
                }
            }
        }
    }
}

/// Adds `N` rows, scaled by the first `N` words of each of `V` vectors, to `V` sums.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn combine_rows<const N: usize, const V: usize>(
    sums: &mut [u64],
    small: [&[u64]; V],
    rows: *const u64,
    stride: usize,
) {
    let count = sums.len() / V;
    let mut factors = [[_mm512_setzero_si512(); N]; V];
    for v in 0..V {
        for r in 0..N {
            factors[v][r] = _mm512_set1_epi64(small[v][r] as i64);
        }
    }
    for i in (0..count).step_by(8) {
        let mask = first_lanes(count - i);
        let mut words = [_mm512_setzero_si512(); N];
        for (r, words) in words.iter_mut().enumerate() {
            // SAFETY: only words before `count` are read.
            *words = unsafe { _mm512_maskz_loadu_epi64(mask, rows.add(r * stride + i).cast()) };
        }
        for v in 0..V {
            let at = sums[v * count + i..].as_mut_ptr().cast::<i64>();
            // SAFETY: only words of this sum are read.
            let mut sum = unsafe { _mm512_maskz_loadu_epi64(mask, at) };
            for r in 0..N {
                sum = _mm512_add_epi64(sum, _mm512_mullo_epi64(factors[v][r], words[r]));
            }
            // SAFETY: only words of this sum are written.
            unsafe { _mm512_mask_storeu_epi64(at, mask, sum) };
        }
    }
}
