//! Matrix products, batched, with transposed operands.

use super::gemm::{self, Plan, Product, Start, Term};
use super::output::{Output, Sink};
use super::source::{Matrix, Source};
use super::{Job, thin};
use crate::{EngineTensor, Tensor};

/// A stored operand: its words for one batch entry, and the strides of outer and inner index.
#[derive(Clone, Copy)]
struct Stored<'a> {
    words: &'a [u64],
    batch_stride: usize,
    strides: [usize; 2],
}

impl<'a> Stored<'a> {
    /// Reads a tensor whose last axis is the inner index if `inner_last`.
    fn new(tensor: &'a Tensor, inner_last: bool) -> Self {
        let dims = tensor.shape().dims();
        let (rows, columns) = (dims[dims.len() - 2], dims[dims.len() - 1]);
        let batch_stride = if dims.len() == 2 { 0 } else { rows * columns };
        let strides = if inner_last { [columns, 1] } else { [1, columns] };
        Self { words: tensor.words(), batch_stride, strides }
    }

    /// The matrix of one batch entry.
    fn matrix(&self, batch: usize) -> Matrix<'a> {
        let words = &self.words[batch * self.batch_stride..];
        Matrix::new(words, self.strides[0], self.strides[1])
    }
}

/// All products of a batch.
pub(super) fn run<'a>(
    job: Job<'a>,
    [transpose_lhs, transpose_rhs]: [bool; 2],
    dims: &[usize],
    out: &mut [u64],
) {
    let (m, n) = (dims[dims.len() - 2], dims[dims.len() - 1]);
    let batch: usize = dims[..dims.len() - 2].iter().product();
    let k_axis =
        |t: &Tensor| t.shape().dims()[t.shape().rank() - if transpose_lhs { 2 } else { 1 }];
    let stored: Vec<_> = job
        .terms
        .iter()
        .map(|(x, y)| (Stored::new(x, !transpose_lhs), Stored::new(y, transpose_rhs), k_axis(x)))
        .collect();
    // One matrix for the whole batch: the batch is as good as more rows.
    let shared = !transpose_lhs && stored.iter().all(|(_, y, _)| y.batch_stride == 0);
    let [batch, m] = if shared { [1, batch * m] } else { [batch, m] };
    let products: Vec<_> = (0..batch)
        .map(|b| {
            let term = |(x, y, k): &(Stored<'a>, Stored<'a>, usize)| (x.matrix(b), y.matrix(b), *k);
            product(job, m, n, stored.iter().map(term), b * m * n)
        })
        .collect();
    let init = |first: usize, words: &mut [u64]| job.addends.write(first, words);
    let start = match job.addends.is_empty() {
        true => Start::Zero,
        false if products.iter().all(|p| p.output.stride[1] == 1) => Start::Init(&init),
        false => {
            job.write_addends(out);
            Start::Words
        }
    };
    let out = Sink::new(out);
    if thin::suits(job.isa, &products) {
        return thin::run(job, &products, start, out);
    }
    let kernel = job.kernel(gemm::depth(&products));
    gemm::run(&products, Plan { kernel, threads: job.threads, start }, out);
}

/// One product. The operand with fewer outer indices comes first if it does not fill a tile's width:
/// tiles may have any number of rows.
fn product<'a>(
    job: Job<'_>,
    m: usize,
    n: usize,
    terms: impl Iterator<Item = (Matrix<'a>, Matrix<'a>, usize)>,
    base: usize,
) -> Product<'a> {
    let terms: Vec<_> = terms.collect();
    let depth = terms.iter().map(|(_, _, k)| *k).max().unwrap_or(0);
    let exchange = n < m && n < job.kernel(depth).nr;
    let terms = terms
        .into_iter()
        .map(|(x, y, k)| {
            let (a, b) = if exchange { (y, x) } else { (x, y) };
            Term { a: Source::Matrix(a), b: Source::Matrix(b), k }
        })
        .collect();
    if exchange {
        Product { m: n, n: m, terms, output: Output::matrix(base, 1, m, n) }
    } else {
        Product { m, n, terms, output: Output::matrix(base, n, n, 1) }
    }
}
