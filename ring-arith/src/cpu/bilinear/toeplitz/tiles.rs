//! Partitions of a convolution: tiles, and parts of its taps that the algorithms fit.

use super::super::conv::Sizes;
use super::algorithm::Algorithm;
use crate::ConvSpec;

/// Outputs `y[i] = sum_t w[t] x[i * stride + t + offset]` along both axes, summed over channels.
#[derive(Debug, Clone)]
pub(in super::super) struct Correlation {
    /// Of `x`, `y` and `w`.
    pub sizes: Sizes,
    /// Inputs from one output to the next.
    pub stride: [usize; 2],
    /// The input that the first tap of the first output meets.
    pub offset: [isize; 2],
    /// Words of the weights from one output channel to the next, and from one input channel.
    pub weight_strides: [usize; 2],
    /// Taps are stored last to first.
    pub flipped: bool,
}

impl Correlation {
    /// A convolution, unless it is dilated.
    pub(in super::super) fn forward(spec: &ConvSpec, s: &Sizes) -> Option<Self> {
        let w = &spec.window;
        plain(spec).then(|| Self {
            sizes: *s,
            stride: w.stride,
            offset: [0, 1].map(|axis| -(w.padding[axis] as isize)),
            weight_strides: [s.weights(), s.taps()],
            flipped: false,
        })
    }

    /// The gradient by the input, for stride 1: kernels are reversed, and input and output channels
    /// change places.
    pub(in super::super) fn input_grad(spec: &ConvSpec, s: &Sizes) -> Option<Self> {
        let w = &spec.window;
        (plain(spec) && w.stride == [1, 1]).then(|| Self {
            sizes: Sizes { cg: s.og, og: s.cg, input: s.output, output: s.input, ..*s },
            stride: [1, 1],
            offset: [0, 1].map(|axis| w.padding[axis] as isize + 1 - s.kernel[axis] as isize),
            weight_strides: [s.taps(), s.weights()],
            flipped: true,
        })
    }
}

/// True if neighbouring taps meet neighbouring inputs.
fn plain(spec: &ConvSpec) -> bool {
    let w = &spec.window;
    (0..2).all(|axis| w.kernel[axis] == 1 || w.dilation[axis] == 1)
}

/// One axis of a convolution, cut for an algorithm.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// Makes the outputs of a tile from the taps of a part.
    pub algorithm: Algorithm,
    /// Tiles per image.
    pub tiles: usize,
    /// The first tap of each part; the others follow at distances of the stride.
    pub parts: Vec<usize>,
    taps: usize,
    stride: usize,
    offset: isize,
    flipped: bool,
}

impl Axis {
    /// Cuts one axis.
    pub(super) fn new(c: &Correlation, axis: usize, algorithm: Algorithm) -> Self {
        let (taps, stride) = (c.sizes.kernel[axis], c.stride[axis]);
        // Taps of one residue modulo the stride, as many at a time as the algorithm takes.
        let span = stride * algorithm.taps();
        let runs = (0..taps).step_by(span);
        let parts = runs.flat_map(|run| (run..run + stride).take_while(|t| *t < taps)).collect();
        Self {
            algorithm,
            tiles: c.sizes.output[axis].div_ceil(algorithm.taps()),
            parts,
            taps,
            stride,
            offset: c.offset[axis],
            flipped: c.flipped,
        }
    }

    /// Inputs from one tile to the next.
    pub(super) fn step(&self) -> usize {
        self.stride * self.algorithm.taps()
    }

    /// The inputs of a part that the first tile takes; negative in the border.
    pub(super) fn inputs(&self, part: usize) -> impl Iterator<Item = isize> {
        let first = part as isize + self.offset;
        (0..self.algorithm.inputs()).map(move |e| first + (e * self.stride) as isize)
    }

    /// The stored places of a part's taps; `None` beyond the last.
    pub(super) fn taps(&self, part: usize) -> impl Iterator<Item = Option<usize>> {
        let stored = |t: usize| if self.flipped { self.taps - 1 - t } else { t };
        let taps = (0..self.algorithm.taps()).map(move |j| part + j * self.stride);
        taps.map(move |t| (t < self.taps).then(|| stored(t)))
    }
}
