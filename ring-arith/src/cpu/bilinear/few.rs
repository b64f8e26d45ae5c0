//! Convolutions with a few positions, such as the last layers of networks for small images. The
//! windows are written out, and the weights are read once, at the speed of memory, instead of being
//! packed.

use super::conv::{Sizes, input_windows, part};
use super::gemm::{Product, Start, Term};
use super::output::{Output, Sink};
use super::source::{BLOCK, Matrix, Source};
use super::windows::Columns;
use super::{Job, thin};
use crate::{ConvSpec, Isa, Kind};

/// Most positions, and fewest output channels for each position: with fewer channels, reading the
/// weights is not the larger part of the work.
const MOST: usize = 12;
const CHANNELS: usize = 4;

/// True if a convolution is of this kind.
pub(super) fn suits(isa: Isa, s: &Sizes) -> bool {
    let positions = s.n * s.plane_out();
    // Rows of the result, which are positions, lie evenly: one image, or one position of each.
    let even = s.n == 1 || s.plane_out() == 1;
    isa.kind() >= Kind::Avx2
        && s.groups == 1
        && even
        && positions <= MOST
        && s.og >= CHANNELS * positions
}

/// `[N, C, H, W] x [O, C, kh, kw]` to `[N, O, OH, OW]`.
pub(super) fn forward(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    let (m, k) = (s.n * s.plane_out(), s.weights());
    let write = |x| written_out(&input_windows(job, spec, s, part(x, 0)).columns(), [m, k]);
    let windows: Vec<_> = job.terms.iter().map(|(x, _)| write(x)).collect();
    let terms = windows.iter().zip(job.terms).map(|(windows, (_, w))| Term {
        a: Source::Matrix(Matrix::new(windows, k, 1)),
        b: Source::Matrix(Matrix::new(part(w, 0), k, 1)),
        k,
    });
    let row_stride = if s.n == 1 { 1 } else { s.og };
    let output = Output::matrix(0, row_stride, s.og, s.plane_out());
    let product = Product { m, n: s.og, terms: terms.collect(), output };
    let start = if job.addends.is_empty() { Start::Zero } else { Start::Words };
    if let Start::Words = start {
        job.write_addends(out);
    }
    thin::run(job, &[product], start, Sink::new(out));
}

/// The words under every position's window, row by row.
fn written_out(columns: &Columns<'_>, [rows, depth]: [usize; 2]) -> Vec<u64> {
    let mut words = vec![0; rows * depth];
    let offsets: Vec<_> = columns.offsets(0).take(depth).collect();
    let first: Vec<_> =
        columns.runs(0, rows).flat_map(|run| run.from..run.from + run.len).collect();
    // Neighbouring positions meet the same lines of a few channels.
    for (at, offsets) in (0..).step_by(BLOCK).zip(offsets.chunks(BLOCK)) {
        for (row, first) in words.chunks_exact_mut(depth).zip(&first) {
            for (word, offset) in row[at..].iter_mut().zip(offsets) {
                *word = columns.words[first + offset];
            }
        }
    }
    words
}
