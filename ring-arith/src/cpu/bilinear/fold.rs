//! Input gradients as one product with all taps at once, whose results are added to their inputs.
//!
//! The other ways sum over all outputs that a tap might take an input to, also those beyond the border. An unpadded
//! kernel that is large compared with its image has many of these. For instance 5 x 5 taps from 12 x 12 inputs to 8
//! x 8 outputs cover 3,600 places, of which 1,600 are inside. Here each product is useful and weights are read
//! without packing. The cost is one addition for each tap, input channel and output.

use rayon::prelude::*;

use super::conv::{Sizes, part};
use super::direct::{Line, each_line};
use super::gemm::{self, Plan, Product, Start, Term};
use super::kernel::Kernel;
use super::output::{Output, Sink};
use super::source::{Matrix, Source};
use super::windows::{Images, Windows};
use super::{Form, Job};
use crate::ConvSpec;

/// Words of products that are kept until they are added up: 8 MiB.
const BUDGET: usize = 1 << 20;

/// Times in products of words: to add a word of products to its input; to pack a word in memory order; to
/// pack a word from one of many separate places.
const ADD: f64 = 14.0;
const PACK: f64 = 6.0;
const GATHER: f64 = 24.0;

/// The time of a gradient done so, in products of words.
pub(super) fn cost(kernel: &Kernel, s: &Sizes, terms: usize) -> f64 {
    let [rows, columns] = [s.weights(), s.n * s.plane_out()];
    let depth = terms * s.og;
    let packed = PACK * (rows + columns) as f64;
    (packed + padded(kernel, [rows, columns])) * depth as f64 + ADD * (rows * columns) as f64
}

/// The time of a gradient as products with windows of the outputs, one for each residue modulo the stride.
pub(super) fn windows_cost(kernel: &Kernel, s: &Sizes, stride: [usize; 2], terms: usize) -> f64 {
    let phases = stride[0].min(s.input[0]) * stride[1].min(s.input[1]);
    let depth = (terms * s.og * s.taps()).div_ceil(stride[0] * stride[1]);
    let columns = s.n * s.plane_in().div_ceil(phases);
    let packed = PACK * columns as f64 + GATHER * s.cg as f64;
    (packed + padded(kernel, [s.cg, columns])) * (depth * phases) as f64
}

/// Words of a result that is padded to whole panels.
fn padded(kernel: &Kernel, [m, n]: [usize; 2]) -> f64 {
    // Rows are cut evenly, so that panels of them are nearly full; those of columns may not be.
    (m * n.next_multiple_of(kernel.nr)) as f64
}

/// True if this way is faster than windows, and than tiles if a plan with that cost exists.
pub(super) fn suits(job: Job<'_>, spec: &ConvSpec, s: &Sizes, tiles: Option<f64>) -> bool {
    match job.form {
        Form::Best => {}
        #[cfg(test)]
        Form::Fold(_) => return true,
        #[cfg(test)]
        _ => return false,
    }
    let kernel = job.kernel(s.og);
    let terms = job.terms.len();
    let other = windows_cost(&kernel, s, spec.window.stride, terms);
    s.taps() > 1 && cost(&kernel, s, terms) < tiles.unwrap_or(f64::MAX).min(other)
}

/// `[N, O, OH, OW] x [O, C / groups, kh, kw]` to `[N, C, H, W]`.
pub(super) fn input_grad(job: Job<'_>, spec: &ConvSpec, s: &Sizes, out: &mut [u64]) {
    job.write_addends(out);
    let (rows, plane) = (s.weights(), s.plane_out());
    if rows * plane == 0 {
        return;
    }
    let budget = match job.form {
        #[cfg(test)]
        Form::Fold(words) => words,
        _ => BUDGET,
    };
    let images = (budget / (rows * plane)).clamp(1, s.n);
    let mut products = job.buffers.take(rows * images * plane);
    let channels = s.groups * s.cg;
    for first in (0..s.n).step_by(images) {
        let count = images.min(s.n - first);
        let columns = count * plane;
        for group in 0..s.groups {
            let products = &mut products[..rows * columns];
            multiply(job, s, [group, first, count], products);
            let out =
                &mut out[first * channels * s.plane_in()..][..count * channels * s.plane_in()];
            each_plane(job, out, s.plane_in(), |at, out| {
                let (image, channel) = (at / channels, at % channels);
                if channel / s.cg == group {
                    let of_channel = &products[channel % s.cg * s.taps() * columns..];
                    add(spec, s, &of_channel[image * plane..], columns, out);
                }
            });
        }
    }
}

/// The products of each tap of each input channel of a group with each output of some images: a row for each
/// channel and tap.
fn multiply(job: Job<'_>, s: &Sizes, [group, first, count]: [usize; 3], out: &mut [u64]) {
    let (rows, plane) = (s.weights(), s.plane_out());
    let image = s.groups * s.og * plane;
    let terms = job.terms.iter().map(|(dy, w)| Term {
        a: Source::Matrix(Matrix::new(part(w, group * s.og * rows), 1, rows)),
        b: Source::Positions(Windows::new(
            job,
            &Images {
                words: part(dy, first * image + group * s.og * plane),
                images: count,
                channels: s.og,
                image_stride: image,
                size: s.output,
                positions: s.output,
                step: [1, 1],
                taps: [vec![0], vec![0]],
            },
        )),
        k: s.og,
    });
    let columns = count * plane;
    let output = Output::matrix(0, columns, columns, 1);
    let product = Product { m: rows, n: columns, terms: terms.collect(), output };
    let plan = Plan { kernel: job.kernel(s.og), threads: job.threads, start: Start::Zero };
    gemm::run(&[product], plan, Sink::new(out));
}

/// Adds the rows of a channel's taps, those of one image, to its plane.
fn add(spec: &ConvSpec, s: &Sizes, rows: &[u64], stride: usize, out: &mut [u64]) {
    let [out_width, in_width] = [s.output[1], s.input[1]];
    let step = spec.window.stride[1];
    each_line(spec, s, |l: Line| {
        let from = &rows[l.tap * stride + l.y_out * out_width..][l.columns.clone()];
        let to = &mut out[l.y_in * in_width + l.x_in..];
        if step == 1 {
            let to = &mut to[..from.len()];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = to.wrapping_add(*from));
        } else {
            let to = to.iter_mut().step_by(step);
            to.zip(from).for_each(|(to, from)| *to = to.wrapping_add(*from));
        }
    });
}

/// Calls `task` with each plane.
fn each_plane(
    job: Job<'_>,
    out: &mut [u64],
    size: usize,
    task: impl Fn(usize, &mut [u64]) + Send + Sync,
) {
    let task = |(plane, out): (usize, &mut [u64])| task(plane, out);
    if job.threads <= 1 {
        out.chunks_exact_mut(size).enumerate().for_each(task);
    } else {
        out.par_chunks_exact_mut(size).enumerate().for_each(task);
    }
}
