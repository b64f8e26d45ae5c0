//! Simple loops over words, compiled once per instruction set.

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
    /// `out[i * step] += factor * x[i]`.
    scatter_scaled = scatter_scaled_body(out: &mut [u64], factor: u64, x: &[u64], step: usize);
    /// `sum += x[i] * y[i * step]` over all `i` of `x`.
    add_dot = add_dot_body(sum: &mut u64, x: &[u64], y: &[u64], step: usize);
    /// `sums[v][i] += small[v] . rows[i]`: see [`super::thin`].
    dots = dots_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize);
    /// `sums[v][i] += small[v][k] * rows[k][i]`: see [`super::thin`].
    combine = combine_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize);
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
    for (small, sums) in small.chunks(2).zip(sums.chunks_mut(2 * count)) {
        let whole = count / ROWS * ROWS;
        for i in (0..whole).step_by(ROWS) {
            match small {
                [x, y] => dot_rows::<ROWS, 2>([x, y], &rows[i * stride..], stride, sums, i),
                _ => dot_rows::<ROWS, 1>([small[0]], &rows[i * stride..], stride, sums, i),
            }
        }
        for i in whole..count {
            for (small, sums) in small.iter().zip(sums.chunks_exact_mut(count)) {
                dot_rows::<1, 1>([small], &rows[i * stride..], stride, sums, i);
            }
        }
    }
}

/// Adds the products of `V` vectors with `N` rows to the sums from `first` on.
#[inline(always)]
fn dot_rows<const N: usize, const V: usize>(
    small: [&[u64]; V],
    rows: &[u64],
    stride: usize,
    sums: &mut [u64],
    first: usize,
) {
    let depth = small[0].len();
    let rows: [&[u64]; N] = std::array::from_fn(|r| &rows[r * stride..][..depth]);
    let mut lanes = [[[0u64; LANES]; N]; V];
    let whole = depth / LANES * LANES;
    for k in (0..whole).step_by(LANES) {
        for v in 0..V {
            let x: &[u64; LANES] = small[v][k..k + LANES].try_into().expect("a whole vector");
            for r in 0..N {
                let y: &[u64; LANES] = rows[r][k..k + LANES].try_into().expect("a whole vector");
                for l in 0..LANES {
                    lanes[v][r][l] = lanes[v][r][l].wrapping_add(x[l].wrapping_mul(y[l]));
                }
            }
        }
    }
    let count = sums.len() / V;
    for v in 0..V {
        for r in 0..N {
            let mut sum = lanes[v][r].iter().fold(0u64, |s, x| s.wrapping_add(*x));
            for k in whole..depth {
                sum = sum.wrapping_add(small[v][k].wrapping_mul(rows[r][k]));
            }
            let to = &mut sums[v * count + first + r];
            *to = to.wrapping_add(sum);
        }
    }
}

#[inline(always)]
fn combine_body(sums: &mut [u64], small: &[&[u64]], rows: &[u64], stride: usize) {
    let count = sums.len() / small.len();
    let depth = small[0].len();
    let whole = depth / ROWS * ROWS;
    for k in (0..whole).step_by(ROWS) {
        let rows = &rows[k * stride..];
        for (small, sums) in small.chunks(2).zip(sums.chunks_mut(2 * count)) {
            match small {
                [x, y] => {
                    let (a, b) = sums.split_at_mut(count);
                    combine_rows::<ROWS, 2>([a, b], [&x[k..], &y[k..]], rows, stride);
                }
                _ => combine_rows::<ROWS, 1>([sums], [&small[0][k..]], rows, stride),
            }
        }
    }
    for k in whole..depth {
        for (small, sums) in small.iter().zip(sums.chunks_exact_mut(count)) {
            combine_rows::<1, 1>([sums], [&small[k..]], &rows[k * stride..], stride);
        }
    }
}

/// Adds `N` rows, scaled by the first `N` words of each of `V` vectors, to a sum for each vector.
#[inline(always)]
fn combine_rows<const N: usize, const V: usize>(
    out: [&mut [u64]; V],
    factors: [&[u64]; V],
    rows: &[u64],
    stride: usize,
) {
    let count = out[0].len();
    let rows: [&[u64]; N] = std::array::from_fn(|r| &rows[r * stride..][..count]);
    let factors: [[u64; N]; V] = factors.map(|f| f[..N].try_into().expect("a factor per row"));
    let out = out.map(|out| &mut out[..count]);
    for i in 0..count {
        let words: [u64; N] = std::array::from_fn(|r| rows[r][i]);
        for v in 0..V {
            for r in 0..N {
                out[v][i] = out[v][i].wrapping_add(factors[v][r].wrapping_mul(words[r]));
            }
        }
    }
}
