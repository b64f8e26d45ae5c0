//! Convolutions and their gradients as matrix products whose second operand is read through windows.

use std::sync::Arc;

use rayon::prelude::*;

use super::gemm::{self, Plan, Product, Start, Term};
use super::output::{Output, Sink};
use super::source::{Matrix, Source};
use super::toeplitz::{self, Correlation};
use super::windows::{Images, Windows};
use super::{Form, Job, direct, dots, few, fold};
use crate::{ConvSpec, EngineTensor, Tensor};

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Images.
    pub n: usize,
    /// Input channels per group.
    pub cg: usize,
    /// Output channels per group.
    pub og: usize,
    /// Channel groups.
    pub groups: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
}

impl Sizes {
    /// From the dimensions of input and output.
    pub(super) fn new(spec: &ConvSpec, input: &[usize], output: &[usize]) -> Self {
        let groups = spec.groups;
        Self {
            n: input[0],
            cg: input[1] / groups,
            og: output[1] / groups,
            groups,
            input: [input[2], input[3]],
            output: [output[2], output[3]],
            kernel: spec.window.kernel,
        }
    }

    /// Words of one input channel.
    pub(super) fn plane_in(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Words of one output channel.
    pub(super) fn plane_out(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Words of one channel's kernel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Words of one output channel's weights.
    pub(super) fn weights(&self) -> usize {
        self.cg * self.taps()
    }
}

/// `[N, C, H, W] x [O, C / groups, kh, kw]` to `[N, O, OH, OW]`.
pub(super) fn forward(job: Job<'_>, spec: &ConvSpec, dims: &[usize], out: &mut [u64]) {
    let s = Sizes::new(spec, job.terms[0].0.shape().dims(), dims);
    if direct::suits(&s) {
        return direct::forward(job, spec, &s, out);
    }
    if let Some(tiled) = Correlation::forward(spec, &s)
        && let Some(plan) = job.plan(&tiled)
    {
        return toeplitz::run(job, &tiled, &plan, out);
    }
    if few::suits(job.isa, &s) {
        return few::forward(job, spec, &s, out);
    }
    let product = |g: usize| Product {
        m: s.og,
        n: s.n * s.plane_out(),
        terms: terms(job, |x, w| Term {
            a: Source::Matrix(Matrix::new(part(w, g * s.og * s.weights()), s.weights(), 1)),
            b: Source::Positions(input_windows(job, spec, &s, part(x, g * s.cg * s.plane_in()))),
            k: s.weights(),
        }),
        output: Output {
            base: g * s.og * s.plane_out(),
            row_stride: s.plane_out(),
            size: [1, s.plane_out()],
            image_stride: s.groups * s.og * s.plane_out(),
            stride: [0, 1],
        },
    };
    let products: Vec<_> = (0..s.groups).map(product).collect();
    run(job, &products, out, true);
}

/// `[N, O, OH, OW] x [O, C / groups, kh, kw]` to `[N, C, H, W]`. With a stride, inputs of one residue
/// modulo the stride meet the same taps and are one product; no zeros are multiplied.
pub(super) fn input_grad(job: Job<'_>, spec: &ConvSpec, dims: &[usize], out: &mut [u64]) {
    let s = Sizes::new(spec, dims, job.terms[0].0.shape().dims());
    if direct::suits(&s) {
        return direct::input_grad(job, spec, &s, out);
    }
    let tiles = Correlation::input_grad(spec, &s);
    let tiles = tiles.and_then(|tiled| Some((job.plan(&tiled)?, tiled)));
    let cost = tiles.as_ref().map(|(plan, tiled)| plan.cost(tiled, job.terms.len()));
    if fold::suits(job, spec, &s, cost) {
        return fold::input_grad(job, spec, &s, out);
    }
    if let Some((plan, tiled)) = tiles {
        return toeplitz::run(job, &tiled, &plan, out);
    }
    let [step_y, step_x] = spec.window.stride;
    let phases: Vec<_> = (0..step_y.min(s.input[0]))
        .flat_map(|y| (0..step_x.min(s.input[1])).map(move |x| [y, x]))
        .map(|first| Phase::new(spec, &s, first))
        .collect();
    let products = (0..s.groups).flat_map(|g| phases.iter().map(move |p| p.product(job, &s, g)));
    let products: Vec<_> = products.collect();
    run(job, &products, out, phases.len() == 1);
}

/// `[N, C, H, W] x [N, O, OH, OW]` to `[O, C / groups, kh, kw]`.
pub(super) fn weight_grad(job: Job<'_>, spec: &ConvSpec, dims: &[usize], out: &mut [u64]) {
    let grad = job.terms[0].1.shape().dims();
    let s = Sizes::new(spec, job.terms[0].0.shape().dims(), grad);
    debug_assert_eq!(dims[0], s.groups * s.og);
    if direct::suits(&s) {
        return direct::weight_grad(job, spec, &s, out);
    }
    if dots::suits(job, &s) {
        return dots::weight_grad(job, spec, &s, out);
    }
    let product = |g: usize| Product {
        m: s.og,
        n: s.weights(),
        terms: terms(job, |x, dy| Term {
            a: Source::Matrix(Matrix {
                words: part(dy, g * s.og * s.plane_out()),
                stride_outer: s.plane_out(),
                stride_inner: 1,
                len: s.plane_out(),
                stride_far: s.groups * s.og * s.plane_out(),
                places: Arc::default(),
            }),
            b: Source::Taps(input_windows(job, spec, &s, part(x, g * s.cg * s.plane_in()))),
            k: s.n * s.plane_out(),
        }),
        output: Output::matrix(g * s.og * s.weights(), s.weights(), s.weights(), 1),
    };
    let products: Vec<_> = (0..s.groups).map(product).collect();
    run(job, &products, out, true);
}

/// Runs products whose columns are next to each other, or not.
fn run(job: Job<'_>, products: &[Product<'_>], out: &mut [u64], contiguous: bool) {
    let init = |first: usize, words: &mut [u64]| job.addends.write(first, words);
    let start = match job.addends.is_empty() {
        true => Start::Zero,
        false if contiguous => Start::Init(&init),
        false => {
            job.write_addends(out);
            Start::Words
        }
    };
    let kernel = job.kernel(gemm::depth(products));
    gemm::run(products, Plan { kernel, threads: job.threads, start }, Sink::new(out));
}

fn terms<'a, T>(job: Job<'a>, make: impl Fn(&'a Tensor, &'a Tensor) -> T) -> Vec<T> {
    job.terms.iter().map(|(x, y)| make(x, y)).collect()
}

/// A tensor's words from one on; nothing if it has none.
pub(super) fn part(tensor: &Tensor, first: usize) -> &[u64] {
    tensor.words().get(first..).unwrap_or_default()
}

/// The windows of a convolution over its input.
pub(super) fn input_windows<'a>(
    job: Job<'_>,
    spec: &ConvSpec,
    s: &Sizes,
    words: &'a [u64],
) -> Windows<'a> {
    let w = &spec.window;
    let taps = |axis: usize| {
        let offset = |t: usize| (t * w.dilation[axis]) as isize - w.padding[axis] as isize;
        (0..s.kernel[axis]).map(offset).collect()
    };
    let images = Images {
        words,
        images: s.n,
        channels: s.cg,
        image_stride: s.groups * s.cg * s.plane_in(),
        size: s.input,
        positions: s.output,
        step: w.stride,
        taps: [taps(0), taps(1)],
    };
    Windows::new(job, &images)
}

/// The inputs whose row and column are `first` modulo the stride, and the taps that reach them.
struct Phase {
    first: [usize; 2],
    /// Inputs along each axis.
    size: [usize; 2],
    /// Along each axis: taps, and the output row or column they take the first input to.
    taps: [Vec<(usize, isize)>; 2],
    stride: [usize; 2],
}

impl Phase {
    fn new(spec: &ConvSpec, s: &Sizes, first: [usize; 2]) -> Self {
        let w = &spec.window;
        let taps = [0, 1].map(|axis| {
            let step = w.stride[axis] as isize;
            let reach = |t: usize| {
                let at = (first[axis] + w.padding[axis]) as isize - (t * w.dilation[axis]) as isize;
                (at % step == 0).then_some((t, at / step))
            };
            (0..s.kernel[axis]).filter_map(reach).collect()
        });
        let size = [0, 1].map(|axis| (s.input[axis] - first[axis]).div_ceil(w.stride[axis]));
        Self { first, size, taps, stride: w.stride }
    }

    fn count(&self) -> usize {
        self.taps[0].len() * self.taps[1].len()
    }

    /// The weights of one group, by input channel and (output channel, tap).
    fn weights<'a>(&self, s: &Sizes, words: &'a [u64]) -> Matrix<'a> {
        if s.kernel == [1, 1] {
            return Matrix::new(words, 1, s.cg);
        }
        let rows = self.taps[0].iter();
        let places =
            rows.flat_map(|(ty, _)| self.taps[1].iter().map(move |(tx, _)| ty * s.kernel[1] + tx));
        let (len, all) = (self.count().max(1), self.count() == s.taps());
        Matrix {
            words,
            stride_outer: s.taps(),
            stride_inner: 1,
            len,
            stride_far: s.weights(),
            places: if all { Arc::default() } else { places.collect() },
        }
    }

    fn product<'a>(&self, job: Job<'a>, s: &Sizes, g: usize) -> Product<'a> {
        let k = s.og * self.count();
        let terms = terms(job, |dy, w| Term {
            a: Source::Matrix(self.weights(s, part(w, g * s.og * s.weights()))),
            b: Source::Positions(Windows::new(
                job,
                &Images {
                    words: part(dy, g * s.og * s.plane_out()),
                    images: s.n,
                    channels: s.og,
                    image_stride: s.groups * s.og * s.plane_out(),
                    size: s.output,
                    positions: self.size,
                    step: [1, 1],
                    taps: [0, 1].map(|axis| self.taps[axis].iter().map(|tap| tap.1).collect()),
                },
            )),
            k,
        });
        let [step_y, step_x] = self.stride;
        let width = s.input[1];
        Product {
            m: s.cg,
            n: s.n * self.size[0] * self.size[1],
            terms,
            output: Output {
                base: g * s.cg * s.plane_in() + self.first[0] * width + self.first[1],
                row_stride: s.plane_in(),
                size: self.size,
                image_stride: s.groups * s.cg * s.plane_in(),
                stride: [step_y * width, step_x],
            },
        }
    }
}

impl Job<'_> {
    /// The plan of a convolution by tiles; `None` if another way is faster.
    fn plan(self, c: &Correlation) -> Option<toeplitz::Plan> {
        match self.form {
            Form::Best => toeplitz::Plan::choose(self.isa, c, self.terms.len()),
            #[cfg(test)]
            Form::Direct | Form::Fold(_) | Form::Dots => None,
            #[cfg(test)]
            Form::Tiles(taps, words) => {
                Some(toeplitz::Plan::forced(self.isa, c, taps, self.terms.len(), words))
            }
        }
    }

    /// Fills the whole result with its addends.
    pub(super) fn write_addends(self, out: &mut [u64]) {
        const TASK: usize = 1 << 14;
        let write = |(i, words): (usize, &mut [u64])| self.addends.write(i * TASK, words);
        if self.threads <= 1 {
            out.chunks_mut(TASK).enumerate().for_each(write);
        } else {
            out.par_chunks_mut(TASK).enumerate().for_each(write);
        }
    }
}
