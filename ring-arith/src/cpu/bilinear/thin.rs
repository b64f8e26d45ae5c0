//! Products with a few rows: each word of the big operand is used a few times only, so they run at
//! the speed of memory and nothing is packed.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use super::gemm::{Product, Start, Term};
use super::output::Sink;
use super::source::{Matrix, Source};
use super::{Job, loops};
use crate::{Isa, Kind};

/// Most rows; beyond, packing pays. The first number is for AVX-512, whose loops use a word of the big
/// operand for up to four rows per load.
const MOST_ROWS: [usize; 2] = [8, 4];

/// Words of the big operand per task.
const TASK: usize = 1 << 17;

/// Inner indices at a time, so that rows read for several products stay in the cache: the second-level
/// one, or the first where they are read for more than [`FEW`].
const DEPTH: [usize; 2] = [2048, 512];
const FEW: usize = 8;

/// Sums at a time when rows of the big operand are combined: they, and the rows under way, stay in the
/// first-level cache.
const COLUMNS: usize = 2048;

/// Some rows of the big operand, in the order of an instruction set's loops.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Word 0 of the first.
    pub first: *const u64,
    /// Words from one to the next.
    pub stride: usize,
    /// Words of each.
    pub depth: usize,
}

impl Rows {
    /// Word `k` of a row.
    pub(super) fn at(&self, row: usize, k: usize) -> *const u64 {
        self.first.wrapping_add(row * self.stride + k)
    }
}

/// True if all products are thin.
pub(super) fn suits(isa: Isa, products: &[Product<'_>]) -> bool {
    let most = MOST_ROWS[usize::from(isa.kind() < Kind::Avx512)];
    let plain = |s: &Source<'_>| matches!(s, Source::Matrix(_));
    products.iter().all(|p| p.m <= most && p.terms.iter().all(|t| plain(&t.a) && plain(&t.b)))
}

/// Computes all products.
pub(super) fn run(job: Job<'_>, products: &[Product<'_>], start: Start<'_>, out: Sink<'_>) {
    let mut tasks = Vec::new();
    for product in products {
        let depth = product.terms.iter().map(|t| t.k).max().unwrap_or(1).max(1);
        let by_columns = |t: &Term<'_>| matches!(&t.b, Source::Matrix(b) if b.stride_inner == 1);
        let step = if product.terms.iter().all(by_columns) {
            (TASK / depth).next_multiple_of(8).max(8)
        } else {
            // Rows that are combined should be long, but leave work for every thread.
            (product.n / (4 * job.threads)).next_multiple_of(8).clamp(64, COLUMNS / product.m)
        };
        let ranges = (0..product.n).step_by(step);
        tasks.extend(ranges.map(|c| (product, c..(c + step).min(product.n))));
    }
    let task = |(product, columns): &(&Product<'_>, Range<usize>)| {
        Task { job, product, columns: columns.clone(), start, out }.run();
    };
    if job.threads <= 1 { tasks.iter().for_each(task) } else { tasks.par_iter().for_each(task) }
}

/// Some columns of one product.
struct Task<'a> {
    job: Job<'a>,
    product: &'a Product<'a>,
    columns: Range<usize>,
    start: Start<'a>,
    out: Sink<'a>,
}

impl Task<'_> {
    fn run(&self) {
        let mut sums = vec![0; self.product.m * self.columns.len()];
        for term in &self.product.terms {
            let (Source::Matrix(a), Source::Matrix(b)) = (&term.a, &term.b) else {
                unreachable!("thin products are made of plain matrices");
            };
            let small: Vec<_> = (0..self.product.m).map(|row| vector(a, row, term.k)).collect();
            if b.stride_inner == 1 {
                self.dots(&small, b, &mut sums);
            } else {
                self.combine(&small, b, &mut sums);
            }
        }
        self.put(&sums);
    }

    /// The big operand is stored column by column: each result is a dot product.
    fn dots(&self, small: &[Cow<'_, [u64]>], b: &Matrix<'_>, sums: &mut [u64]) {
        let depth = small[0].len();
        let step = DEPTH[usize::from(small.len() > FEW)];
        for k in (0..depth).step_by(step) {
            let end = (k + step).min(depth);
            let small: Vec<_> = small.iter().map(|v| &v[k..end]).collect();
            let rows = &b.words[self.columns.start * b.stride_outer + k..];
            loops::dots(self.job.isa, sums, &small, rows, b.stride_outer);
        }
    }

    /// The big operand is stored row by row: its rows are scaled and added.
    fn combine(&self, small: &[Cow<'_, [u64]>], b: &Matrix<'_>, sums: &mut [u64]) {
        let small: Vec<_> = small.iter().map(|v| &v[..]).collect();
        if small[0].is_empty() {
            return;
        }
        let rows = &b.words[self.columns.start..];
        loops::combine(self.job.isa, sums, &small, rows, b.stride_inner);
    }

    fn put(&self, sums: &[u64]) {
        let count = self.columns.len();
        let output = &self.product.output;
        let stride = output.stride[1];
        for (row, sums) in sums.chunks_exact(count).enumerate() {
            let first = output.base + row * output.row_stride + self.columns.start * stride;
            for (i, sum) in sums.iter().enumerate() {
                // SAFETY: tasks write disjoint columns, and these are ours.
                let word = unsafe { self.out.piece(first + i * stride, 1) };
                match self.start {
                    Start::Zero => word[0] = *sum,
                    Start::Words => word[0] = word[0].wrapping_add(*sum),
                    Start::Init(init) => {
                        init(first + i * stride, word);
                        word[0] = word[0].wrapping_add(*sum);
                    }
                }
            }
        }
    }
}

/// A row of the small operand; copied unless its words follow one another.
fn vector<'a>(a: &Matrix<'a>, row: usize, k: usize) -> Cow<'a, [u64]> {
    let start = row * a.stride_outer;
    if k == 0 {
        Cow::Borrowed(&[])
    } else if a.stride_inner == 1 {
        Cow::Borrowed(&a.words[start..start + k])
    } else {
        a.words[start..].iter().step_by(a.stride_inner).take(k).copied().collect()
    }
}
