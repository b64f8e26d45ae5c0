//! Weights, tiles of inputs and tiles of outputs on their way through the transforms.

use std::ops::Range;

use rayon::prelude::*;

use super::super::Job;
use super::super::conv::part;
use super::super::kernel::{LINE, Line, Side};
use super::super::source::{self, BLOCK};
use super::super::windows::{Images, Windows};
use super::algorithm::Algorithm;
use super::multiply::Block;
use super::plan::Plan;
use super::stage::{self, Extent, Rows, Step};
use super::tiles::Correlation;
use crate::Tensor;

/// The transforms of one group of channels.
pub(super) struct Transforms<'a> {
    job: Job<'a>,
    c: &'a Correlation,
    plan: &'a Plan,
    group: usize,
    /// For each part, where its taps are stored.
    taps: Vec<Vec<Option<usize>>>,
    /// For each term, and each part: the inputs of all tiles.
    windows: Vec<Vec<Windows<'a>>>,
}

/// A thread's memory between two transforms, in lines so that no vector lies in two of them.
struct Scratch {
    block: Vec<Line>,
    rows: Vec<Line>,
}

/// The most rows between two transforms.
const MOST_ROWS: usize = 9 * 13;

impl Scratch {
    fn new() -> Self {
        let lines = |words: usize| vec![Line::default(); words / LINE];
        Self { block: lines(BLOCK * BLOCK), rows: lines(MOST_ROWS * PITCH) }
    }

    fn block(&mut self) -> &mut source::Block {
        bytemuck::cast_slice_mut(&mut self.block).try_into().expect("a whole block")
    }

    /// A block, and rows as long as its.
    fn parts(&mut self) -> (&mut source::Block, &mut [u64]) {
        let block = bytemuck::cast_slice_mut(&mut self.block);
        (block.try_into().expect("a whole block"), bytemuck::cast_slice_mut(&mut self.rows))
    }
}

/// Calls `task` with the chunks of some words, on all threads.
fn each_chunk(
    job: Job<'_>,
    words: &mut [u64],
    size: usize,
    task: impl Fn(&mut Scratch, usize, &mut [u64]) + Send + Sync,
) {
    if job.threads <= 1 || words.len() <= size {
        let mut scratch = Scratch::new();
        words.chunks_mut(size).enumerate().for_each(|(i, words)| task(&mut scratch, i, words));
    } else {
        let chunks = words.par_chunks_mut(size).enumerate();
        chunks.for_each_init(Scratch::new, |scratch, (i, words)| task(scratch, i, words));
    }
}

/// Words from one row between two transforms to the next: an odd number of lines, so that rows do not
/// compete for the same places of a cache.
const PITCH: usize = BLOCK + LINE;

/// Groups of `count` rows that follow one another, `pitch` words apart.
fn lines(count: usize, pitch: usize) -> Rows {
    Rows { group: count * pitch, row: pitch, width: BLOCK, panel: 0 }
}

/// `count` groups whose rows alternate: group `g` has rows `g`, `g + count`, `g + 2 * count`, ...
fn columns(count: usize, row: usize, width: usize, panel: usize) -> Rows {
    Rows { group: row, row: count * row, width, panel }
}

impl<'a> Transforms<'a> {
    pub(super) fn new(job: Job<'a>, c: &'a Correlation, plan: &'a Plan, group: usize) -> Self {
        let [y, x] = &plan.axes;
        let taps = |[part_y, part_x]: [usize; 2]| {
            let rows = y.taps(part_y);
            let place = |ty: Option<usize>, tx: Option<usize>| Some(ty? * c.sizes.kernel[1] + tx?);
            rows.flat_map(|ty| x.taps(part_x).map(move |tx| place(ty, tx))).collect()
        };
        let plane = c.sizes.plane_in();
        let windows = |words: &'a [u64], [part_y, part_x]: [usize; 2]| {
            let images = Images {
                words,
                images: c.sizes.n,
                channels: c.sizes.cg,
                image_stride: c.sizes.groups * c.sizes.cg * plane,
                size: c.sizes.input,
                positions: [y.tiles, x.tiles],
                step: [y.step(), x.step()],
                taps: [y.inputs(part_y).collect(), x.inputs(part_x).collect()],
            };
            Windows::new(job, &images)
        };
        let term = |(images, _): &(&'a Tensor, _)| {
            let words = part(images, group * c.sizes.cg * plane);
            plan.each_part().map(|parts| windows(words, parts)).collect()
        };
        let windows = job.terms.iter().map(term).collect();
        Self { job, c, plan, group, taps: plan.each_part().map(taps).collect(), windows }
    }

    fn algorithms(&self) -> [Algorithm; 2] {
        [0, 1].map(|axis| self.plan.axes[axis].algorithm)
    }

    /// Transforms the weights of a block into panels.
    pub(super) fn weights(&self, block: &Block, u: &mut [u64]) {
        let shape = block.shapes[0];
        let u = &mut u[..block.sizes()[0]];
        each_chunk(self.job, u, self.plan.products() * shape.words(), |scratch, panel, u| {
            let first = block.outputs.start + panel * shape.width;
            let outputs = first..(first + shape.width).min(block.outputs.end);
            // Rows of a panel that have no output are multiplied too.
            scratch.block().fill(0);
            let mut channel = block.channels.start;
            while channel < block.channels.end {
                let left = self.c.sizes.cg - channel % self.c.sizes.cg;
                let most = (BLOCK / shape.width).min(block.channels.end - channel);
                let channels = channel..channel + left.min(most);
                channel = channels.end;
                for part in 0..self.taps.len() {
                    self.read_weights(&outputs, &channels, part, shape.width, scratch);
                    let k = (channels.start - block.channels.start) * self.taps.len() + part;
                    self.transform_weights(
                        block,
                        channels.len(),
                        scratch,
                        &mut u[k * shape.width..],
                    );
                }
            }
            self.finish(block, Side::A, u);
        });
    }

    /// Reads taps of neighbouring channels to some outputs: word `(c, o)` of a tap's row is at
    /// `c * width + o`.
    fn read_weights(
        &self,
        outputs: &Range<usize>,
        channels: &Range<usize>,
        taps: usize,
        width: usize,
        scratch: &mut Scratch,
    ) {
        let c = self.c;
        let [per_output, per_input] = c.weight_strides;
        let weights = part(
            self.job.terms[channels.start / c.sizes.cg].1,
            self.group * c.sizes.og * c.sizes.cg * c.sizes.taps(),
        );
        let block = scratch.block();
        for (o, output) in outputs.clone().enumerate() {
            let first = output * per_output + channels.start % c.sizes.cg * per_input;
            // Kernels to an output lie far from those to the next, so the hardware does not prefetch
            // them.
            let ahead = channels.len() * per_input;
            source::prefetch(
                weights,
                first + ahead,
                if per_input == c.sizes.taps() { ahead } else { 0 },
            );
            for i in 0..channels.len() {
                let kernel = &weights[first + i * per_input..][..c.sizes.taps()];
                for (row, tap) in self.taps[taps].iter().enumerate() {
                    block[row * BLOCK + i * width + o] = tap.map_or(0, |tap| kernel[tap]);
                }
            }
        }
    }

    fn transform_weights(
        &self,
        block: &Block,
        channels: usize,
        scratch: &mut Scratch,
        to: &mut [u64],
    ) {
        let ([y, x], isa, shape) = (self.algorithms(), self.job.isa, block.shapes[0]);
        let (block, rows) = scratch.parts();
        let len = channels * shape.width;
        let (at, rows_at) = (lines(x.taps(), BLOCK), lines(x.products(), PITCH));
        let extent = Extent { algorithm: x, groups: y.taps(), len };
        stage::run(isa, Step::Weights, extent, &block[..], at, rows, rows_at);
        let at = columns(x.products(), PITCH, BLOCK, 0);
        let panel = self.taps.len() * shape.width;
        let to_at = columns(x.products(), shape.words(), shape.width, panel);
        let extent = Extent { algorithm: y, groups: x.products(), len };
        stage::run(isa, Step::Weights, extent, rows, at, to, to_at);
    }

    /// Transforms the inputs of a block into panels.
    pub(super) fn inputs(&self, block: &Block, v: &mut [u64]) {
        let shape = block.shapes[1];
        let v = &mut v[..block.sizes()[1]];
        // As many panels as are read at a time, but work for every thread.
        let group = block.panels()[1].div_ceil(self.job.threads).min(BLOCK / shape.width);
        let size = group * self.plan.products() * shape.words();
        each_chunk(self.job, v, size, |scratch, index, v| {
            let first = block.tiles.start + index * group * shape.width;
            let tiles = first..(first + group * shape.width).min(block.tiles.end);
            let mut k = 0;
            for channel in block.channels.clone() {
                for windows in &self.windows[channel / self.c.sizes.cg] {
                    let channel = channel % self.c.sizes.cg;
                    self.transform_inputs(block, windows, channel, &tiles, scratch, &mut v[k..]);
                    k += shape.width;
                }
            }
            self.finish(block, Side::B, v);
        });
    }

    fn transform_inputs(
        &self,
        block: &Block,
        windows: &Windows<'_>,
        channel: usize,
        tiles: &Range<usize>,
        scratch: &mut Scratch,
        to: &mut [u64],
    ) {
        let ([y, x], isa, shape) = (self.algorithms(), self.job.isa, block.shapes[1]);
        let (block, rows) = scratch.parts();
        let len = tiles.len();
        let at_once = BLOCK / x.inputs();
        for row in (0..y.inputs()).step_by(at_once) {
            let groups = at_once.min(y.inputs() - row);
            let start = [(channel * y.inputs() + row) * x.inputs(), tiles.start];
            windows.columns().read(start, [groups * x.inputs(), len], block);
            let (at, rows_at) = (lines(x.inputs(), BLOCK), lines(x.products(), PITCH));
            let extent = Extent { algorithm: x, groups, len };
            let rows = &mut rows[row * rows_at.group..];
            stage::run(isa, Step::Inputs, extent, &block[..], at, rows, rows_at);
        }
        let at = columns(x.products(), PITCH, BLOCK, 0);
        let panel = self.plan.products() * shape.words();
        let to_at = columns(x.products(), shape.words(), shape.width, panel);
        let extent = Extent { algorithm: y, groups: x.products(), len };
        stage::run(isa, Step::Inputs, extent, rows, at, to, to_at);
    }

    /// Completes panels.
    fn finish(&self, block: &Block, side: Side, panels: &mut [u64]) {
        let shape = block.shapes[side as usize];
        let used = block.channels.len() * self.taps.len() * shape.width;
        for panel in panels.chunks_exact_mut(shape.words()) {
            panel[used..shape.depth * shape.width].fill(0);
        }
        block.seal(side, panels);
    }

    /// Adds the outputs made of a block's products.
    pub(super) fn outputs(&self, block: &Block, z: &[u64], out: &mut [u64]) {
        let (c, tiles) = (self.c, self.plan.tiles());
        let (channels, plane) = (c.sizes.groups * c.sizes.og, c.sizes.plane_out());
        let images = block.tiles.start / tiles..block.tiles.end.div_ceil(tiles);
        let out = &mut out[images.start * channels * plane..images.end * channels * plane];
        each_chunk(self.job, out, plane, |scratch, index, out| {
            let (image, channel) = (images.start + index / channels, index % channels);
            let output = channel.checked_sub(self.group * c.sizes.og);
            if let Some(output) = output.filter(|output| block.outputs.contains(output)) {
                self.plane(block, output - block.outputs.start, image * tiles, z, scratch, out);
            }
        });
    }

    /// Adds the outputs of one channel of one image, whose first tile is given.
    fn plane(
        &self,
        block: &Block,
        output: usize,
        first: usize,
        z: &[u64],
        scratch: &mut Scratch,
        out: &mut [u64],
    ) {
        let ([y, x], isa) = (self.algorithms(), self.job.isa);
        let [a, b] = block.shapes.map(|shape| shape.width);
        let (words, rows) = scratch.parts();
        let z = &z[output / a * block.panels()[1] * block.tile() + output % a * b..];
        let start = first.max(block.tiles.start) - block.tiles.start;
        let end = (first + self.plan.tiles()).min(block.tiles.end) - block.tiles.start;
        let mut at = start;
        while at < end {
            // Whole panels are transformed.
            let skipped = at % b;
            let count = (BLOCK - skipped).min(end - at);
            let stride = block.product_stride();
            let from = columns(x.products(), stride, b, block.tile());
            let between = columns(x.products(), PITCH, BLOCK, 0);
            let extent = Extent { algorithm: y, groups: x.products(), len: skipped + count };
            let panels = &z[at / b * block.tile()..];
            stage::run(isa, Step::Outputs, extent, panels, from, rows, between);
            let (from, to) = (lines(x.products(), PITCH), lines(x.taps(), BLOCK));
            let extent = Extent { algorithm: x, groups: y.taps(), len: skipped + count };
            stage::run(isa, Step::Outputs, extent, rows, from, &mut words[..], to);
            let tile = at + block.tiles.start - first;
            self.scatter(&words[skipped..], tile, count, out);
            at += count;
        }
    }

    /// Adds outputs, in rows by their place in a tile, to where they belong.
    fn scatter(&self, words: &[u64], tile: usize, len: usize, out: &mut [u64]) {
        let [ry, rx] = self.algorithms().map(Algorithm::taps);
        let (across, [height, width]) = (self.plan.axes[1].tiles, self.c.sizes.output);
        let mut done = 0;
        while done < len {
            let (ty, tx) = ((tile + done) / across, (tile + done) % across);
            let count = (across - tx).min(len - done);
            for y in ty * ry..((ty + 1) * ry).min(height) {
                let out = &mut out[y * width..][tx * rx..width.min((tx + count) * rx)];
                let from = &words[y % ry * rx * BLOCK + done..];
                match rx {
                    1 => interleave::<1>(from, out),
                    2 => interleave::<2>(from, out),
                    3 => interleave::<3>(from, out),
                    4 => interleave::<4>(from, out),
                    _ => interleave::<5>(from, out),
                }
            }
            done += count;
        }
    }
}

/// `out[R * i + r] += from[r * BLOCK + i]`.
fn interleave<const R: usize>(from: &[u64], out: &mut [u64]) {
    let count = out.len().div_ceil(R);
    let from: [&[u64]; R] = std::array::from_fn(|r| &from[r * BLOCK..][..count]);
    let (whole, rest) = out.as_chunks_mut::<R>();
    for (i, out) in whole.iter_mut().enumerate() {
        for r in 0..R {
            out[r] = out[r].wrapping_add(from[r][i]);
        }
    }
    for (out, from) in rest.iter_mut().zip(from) {
        *out = out.wrapping_add(from[count - 1]);
    }
}
