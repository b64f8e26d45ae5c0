//! Simple loops over words, compiled once per instruction set.

use super::output::Rows;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::{Isa, Kind};

/// Words handled together: one vector of AVX-512, two of AVX2.
pub(super) const LANES: usize = 8;

/// Defines functions that run the same safe body under the features of each instruction set.
macro_rules! per_isa {
    ($($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $type:ty),*);)*) => { $(
        $(#[$doc])*
        pub(super) fn $name(isa: Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $type),*) {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $type),*) {
                $body($($arg),*)
            }
            match isa.kind() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` of this kind is made only after detection.
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Kind::Avx512 | Kind::Amx => unsafe { avx512($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    )* };
}

per_isa! {
    /// `out[i] += x[i] * y[i]`.
    add_products = add_products_body(out: &mut [u64], x: &[u64], y: &[u64]);
    /// `out[i] = x[i] * y[i]`.
    products = products_body(out: &mut [u64], x: &[u64], y: &[u64]);
    /// `sums[i] += x[0][i] * x[1][i] + x[2][i] * x[3][i] + ...` for rows `x` as long as the sums.
    pair_products = pair_products_body(sums: &mut [u64], x: &[u64]);
    /// `out[i] += factor * x[i * step]`.
    add_scaled = add_scaled_body(out: &mut [u64], factor: u64, x: &[u64], step: usize);
    /// `rows[r][i] = words[r * stride + i]`, or `+=`.
    put_rows = put_rows_body(rows: Rows<'_>, words: &[u64], stride: usize);
    /// `out[i * step] += factor * x[i]`.
    scatter_scaled = scatter_scaled_body(out: &mut [u64], factor: u64, x: &[u64], step: usize);
    /// `sum += x[i] * y[i * step]` over all `i` of `x`.
    add_dot = add_dot_body(sum: &mut u64, x: &[u64], y: &[u64], step: usize);
    /// `sums[v] += small[v][k] * rows[k]`.
    plain_combine = combine_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize);
}

#[inline(always)]
fn add_products_body(out: &mut [u64], x: &[u64], y: &[u64]) {
    for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
        *o = o.wrapping_add(x.wrapping_mul(*y));
    }
}

#[inline(always)]
fn products_body(out: &mut [u64], x: &[u64], y: &[u64]) {
    for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
        *o = x.wrapping_mul(*y);
    }
}

#[inline(always)]
fn pair_products_body(sums: &mut [u64], x: &[u64]) {
    let width = sums.len();
    for pair in x.chunks_exact(2 * width) {
        let (x, y) = pair.split_at(width);
        add_products_body(sums, x, y);
    }
}

#[inline(always)]
fn add_scaled_body(out: &mut [u64], factor: u64, x: &[u64], step: usize) {
    match step {
        1 => out.iter_mut().zip(x).for_each(|(o, x)| *o = o.wrapping_add(x.wrapping_mul(factor))),
        _ => out
            .iter_mut()
            .zip(x.iter().step_by(step))
            .for_each(|(o, x)| *o = o.wrapping_add(x.wrapping_mul(factor))),
    }
}

#[inline(always)]
fn put_rows_body(mut rows: Rows<'_>, words: &[u64], stride: usize) {
    let add = rows.add;
    for (r, words) in words.chunks_exact(stride).enumerate().take(rows.rows) {
        let row = rows.row(r);
        let words = &words[..row.len()];
        if !add {
            row.copy_from_slice(words);
            continue;
        }
        let (row, row_rest) = row.as_chunks_mut::<LANES>();
        let (words, words_rest) = words.as_chunks::<LANES>();
        for (row, words) in row.iter_mut().zip(words) {
            for l in 0..LANES {
                row[l] = row[l].wrapping_add(words[l]);
            }
        }
        for (o, w) in row_rest.iter_mut().zip(words_rest) {
            *o = o.wrapping_add(*w);
        }
    }
}

#[inline(always)]
fn scatter_scaled_body(out: &mut [u64], factor: u64, x: &[u64], step: usize) {
    match step {
        1 => out.iter_mut().zip(x).for_each(|(o, x)| *o = o.wrapping_add(x.wrapping_mul(factor))),
        _ => out
            .iter_mut()
            .step_by(step)
            .zip(x)
            .for_each(|(o, x)| *o = o.wrapping_add(x.wrapping_mul(factor))),
    }
}

#[inline(always)]
fn add_dot_body(sum: &mut u64, x: &[u64], y: &[u64], step: usize) {
    let dot = |s: u64, (x, y): (&u64, &u64)| s.wrapping_add(x.wrapping_mul(*y));
    *sum = match step {
        1 => x.iter().zip(y).fold(*sum, dot),
        _ => x.iter().zip(y.iter().step_by(step)).fold(*sum, dot),
    };
}

/// Rows read side by side, so that several streams of memory are open.
const ROWS: usize = 4;

#[inline(always)]
fn dots_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize) {
    let count = sums.len() / small.len();
    let mut i = 0;
    while i < count {
        let wide = count - i >= ROWS;
        let rows = &rows[i * stride..];
        for (v, small) in small.iter().enumerate() {
            let out = &mut sums[v * count + i..];
            if wide {
                let dot = dot_rows::<ROWS>(small, rows, stride);
                out.iter_mut().zip(dot).for_each(|(o, d)| *o = o.wrapping_add(d));
            } else {
                let [dot] = dot_rows::<1>(small, rows, stride);
                out[0] = out[0].wrapping_add(dot);
            }
        }
        i += if wide { ROWS } else { 1 };
    }
}

/// Products of one vector with `N` rows.
#[inline(always)]
fn dot_rows<const N: usize>(small: &[u64], rows: &[u64], stride: usize) -> [u64; N] {
    let rows: [&[u64]; N] = std::array::from_fn(|r| &rows[r * stride..][..small.len()]);
    let mut sums = [[0u64; LANES]; N];
    let whole = small.len() / LANES * LANES;
    for k in (0..whole).step_by(LANES) {
        let x: &[u64; LANES] = small[k..k + LANES].try_into().expect("a whole vector");
        for r in 0..N {
            let y: &[u64; LANES] = rows[r][k..k + LANES].try_into().expect("a whole vector");
            for l in 0..LANES {
                sums[r][l] = sums[r][l].wrapping_add(x[l].wrapping_mul(y[l]));
            }
        }
    }
    std::array::from_fn(|r| {
        let mut sum = sums[r].iter().fold(0u64, |s, x| s.wrapping_add(*x));
        for k in whole..small.len() {
            sum = sum.wrapping_add(small[k].wrapping_mul(rows[r][k]));
        }
        sum
    })
}

#[inline(always)]
fn combine_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize) {
    let count = sums.len() / small.len();
    let depth = small[0].len();
    let mut k = 0;
    while k < depth {
        let wide = depth - k >= ROWS;
        let rows = &rows[k * stride..];
        for (v, small) in small.iter().enumerate() {
            let out = &mut sums[v * count..(v + 1) * count];
            if wide {
                combine_rows::<ROWS>(out, &small[k..k + ROWS], rows, stride);
            } else {
                combine_rows::<1>(out, &small[k..k + 1], rows, stride);
            }
        }
        k += if wide { ROWS } else { 1 };
    }
}

/// Adds `N` rows with their factors.
#[inline(always)]
fn combine_rows<const N: usize>(out: &mut [u64], factors: &[u64], rows: &[u64], stride: usize) {
    let rows: [&[u64]; N] = std::array::from_fn(|r| &rows[r * stride..][..out.len()]);
    let factors: [u64; N] = factors.try_into().expect("a factor per row");
    for (i, out) in out.iter_mut().enumerate() {
        for r in 0..N {
            *out = out.wrapping_add(factors[r].wrapping_mul(rows[r][i]));
        }
    }
}

/// `sums[v][i] += small[v] . rows[i]`, with special kernels for vectors.
pub(super) fn dots(isa: Isa, sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize) {
    match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this kind is made only after detection.
        Kind::Avx512 | Kind::Amx => unsafe { avx512::dots(sums, small, rows, stride) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Kind::Avx2 => unsafe { avx2::dots(sums, small, rows, stride) },
        _ => dots_body(sums, small, rows, stride),
    }
}

/// `sums[v] += small[v][k] * rows[k]`, with a special kernel for AVX-512.
pub(super) fn combine(isa: Isa, sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize) {
    match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this kind is made only after detection.
        Kind::Avx512 | Kind::Amx => unsafe { avx512::combine(sums, small, rows, stride) },
        _ => plain_combine(isa, sums, small, rows, stride),
    }
}
