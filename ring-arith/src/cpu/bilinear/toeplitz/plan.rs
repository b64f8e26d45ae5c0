//! The choice of algorithms and block sizes for a convolution, or of another way: counted work
//! decides.

use std::ops::Range;

use super::super::kernel::Kernel;
use super::algorithm::Algorithm;
use super::multiply::Block;
use super::tiles::{Axis, Correlation};
use crate::{Isa, Kind};

/// The plan of a convolution by tiles.
#[derive(Debug, Clone)]
pub(in super::super) struct Plan {
    /// Height and width.
    pub(super) axes: [Axis; 2],
    /// Multiplies the sums.
    pub(super) kernel: Kernel,
    /// Most output channels, tiles and input channels in a block. Input channels count once for
    /// each term.
    block: [usize; 3],
}

/// The blocks of all sizes.
pub(super) struct Blocks {
    /// Output channels.
    pub outputs: Vec<Range<usize>>,
    /// Tiles of all images.
    pub tiles: Vec<Range<usize>>,
    /// Input channels of all terms.
    pub channels: Vec<Range<usize>>,
}

/// Most words of transformed inputs, of weights and of products that are kept: 16 MiB.
const BUDGET: usize = 1 << 21;

/// Words that stay in the second-level cache, or near it.
const NEAR: usize = 5 << 15;

/// The time to transform a word of weights, of inputs and of results, in products of words. All times
/// are rough ones for AVX-512, measured on one core of a Cascade Lake server. AVX2 and plain Rust take
/// longer for products but not for sums: a plan that is faster with AVX-512 was faster there too.
const TRANSFORM: [f64; 3] = [20.0, 28.0, 16.0];

/// The time to add a word of results to that of the channels before, or to read one of inputs for
/// another block of outputs.
const AGAIN: f64 = 4.0;

/// The time to pack a word of weights or images without a transform.
const PACK: f64 = 6.0;

/// A plan is taken if it saves this part of the time: the counts are rough.
const MARGIN: f64 = 0.05;

impl Plan {
    /// The quickest plan, if it is quicker than a product with the windows of the images.
    ///
    /// There is none with AMX, whose products take a quarter of the time while the additions take as
    /// long: there nothing has been measured.
    pub(in super::super) fn choose(isa: Isa, c: &Correlation, terms: usize) -> Option<Self> {
        if isa.kind() == Kind::Amx {
            return None;
        }
        let (plan, cost) = candidates(c)
            .map(|algorithms| Self::new(isa, c, algorithms, terms, BUDGET))
            .filter(|(plan, _)| plan.inputs(c, terms) <= BUDGET)
            .min_by(|(_, x), (_, y)| x.total_cmp(y))?;
        (cost < (1.0 - MARGIN) * direct_cost(&plan.kernel, c, terms)).then_some(plan)
    }

    /// A plan with algorithms for given numbers of taps, whatever it costs.
    #[cfg(test)]
    pub(in super::super) fn forced(
        isa: Isa,
        c: &Correlation,
        taps: [usize; 2],
        terms: usize,
        budget: usize,
    ) -> Self {
        Self::new(isa, c, taps.map(|taps| Algorithm::ALL[taps - 1]), terms, budget).0
    }

    /// The best blocks for given algorithms, with their cost. A block has at most `budget` words of a
    /// kind, unless it is of the smallest size.
    fn new(
        isa: Isa,
        c: &Correlation,
        algorithms: [Algorithm; 2],
        terms: usize,
        budget: usize,
    ) -> (Self, f64) {
        let axes = [0, 1].map(|axis| Axis::new(c, axis, algorithms[axis]));
        let plan = Self { axes, kernel: Kernel::vector(isa), block: [1; 3] };
        let channels = terms * c.sizes.cg;
        let most = (plan.kernel.kc / plan.parts()).max(1);
        let least = channels.div_ceil(most).max(1);
        let counts = [1, 2, 4, 8].map(|times| (times * least).min(channels.max(1)));
        let blocks = counts.map(|count| {
            let plan = plan.with_depth(c, channels, channels.div_ceil(count).max(1), budget);
            (plan.cost(c, terms), plan)
        });
        let best = blocks.into_iter().min_by(|(x, _), (y, _)| x.total_cmp(y));
        best.map(|(cost, plan)| (plan, cost)).expect("there are four")
    }

    /// The plan with blocks of `depth` input channels.
    fn with_depth(&self, c: &Correlation, channels: usize, depth: usize, budget: usize) -> Self {
        let Kernel { mr, nr, .. } = self.kernel;
        let far = budget / self.products();
        let near = far.min(NEAR / self.products());
        // Inputs of a tile are transformed once, and kept for all outputs.
        let inputs = channels.max(1) * self.parts();
        let wide = far / inputs;
        let all = c.sizes.n * self.tiles();
        let [outputs, tiles] = if depth >= channels {
            // As many tiles as stay near; the weights are kept too.
            [far / inputs, wide.min((near / inputs).max(2 * nr))]
        } else {
            [(near / (depth * self.parts())).max(4 * mr), wide]
        };
        let tiles = even(all, tiles, nr);
        let outputs = even(c.sizes.og, outputs.min(far / tiles), mr);
        Self { block: [outputs, tiles, depth], ..self.clone() }
    }

    /// Words of transformed inputs that are kept.
    fn inputs(&self, c: &Correlation, terms: usize) -> usize {
        self.block[1] * terms * c.sizes.cg * self.parts() * self.products()
    }

    /// Products per tile and pair of channels.
    pub(super) fn products(&self) -> usize {
        self.axes[0].algorithm.products() * self.axes[1].algorithm.products()
    }

    /// Tiles per image.
    pub(super) fn tiles(&self) -> usize {
        self.axes[0].tiles * self.axes[1].tiles
    }

    /// Parts of a channel.
    pub(super) fn parts(&self) -> usize {
        self.axes[0].parts.len() * self.axes[1].parts.len()
    }

    /// The first taps of all parts along height and width.
    pub(super) fn each_part(&self) -> impl Iterator<Item = [usize; 2]> {
        let [y, x] = [0, 1].map(|axis| &self.axes[axis].parts);
        y.iter().flat_map(move |y| x.iter().map(move |x| [*y, *x]))
    }

    /// Cuts a convolution.
    pub(super) fn blocks(&self, c: &Correlation, terms: usize) -> Blocks {
        let cut = |len: usize, step: usize| {
            (0..len).step_by(step).map(|start| start..(start + step).min(len)).collect()
        };
        let [outputs, tiles, channels] = self.block;
        Blocks {
            outputs: cut(c.sizes.og, outputs),
            tiles: cut(c.sizes.n * self.tiles(), tiles),
            channels: cut(terms * c.sizes.cg, channels),
        }
    }

    /// The largest block.
    pub(super) fn largest(&self, c: &Correlation, terms: usize) -> Block {
        let [outputs, tiles, channels] = self.block;
        let all = [c.sizes.og, c.sizes.n * self.tiles(), terms * c.sizes.cg];
        let [outputs, tiles, channels] =
            [(outputs, all[0]), (tiles, all[1]), (channels, all[2])].map(|(x, y)| 0..x.min(y));
        Block::new(self, [&outputs, &tiles, &channels])
    }

    /// The time of this plan for each group, in products.
    pub(in super::super) fn cost(&self, c: &Correlation, terms: usize) -> f64 {
        let all = [c.sizes.og, c.sizes.n * self.tiles(), terms * c.sizes.cg];
        let [output_blocks, tile_blocks, channel_blocks] =
            [0, 1, 2].map(|i| all[i].div_ceil(self.block[i]));
        let depth = all[2] * self.parts();
        // Inputs are kept for all outputs of a tile, weights only if they are one block.
        let u_times = if output_blocks * channel_blocks == 1 { 1 } else { tile_blocks };
        let words = [u_times * all[0] * depth, all[1] * depth, all[0] * all[1]];
        let transformed: f64 = words.iter().zip(TRANSFORM).map(|(n, time)| *n as f64 * time).sum();
        let again = AGAIN * ((channel_blocks - 1) * words[2] + output_blocks * words[1]) as f64;
        let multiplied = padded(&self.kernel, [all[0], all[1]]) * depth as f64;
        self.products() as f64 * (transformed + again + multiplied)
    }
}

/// The time of a product without a plan for each group.
fn direct_cost(kernel: &Kernel, c: &Correlation, terms: usize) -> f64 {
    let (positions, depth) = (c.sizes.n * c.sizes.plane_out(), terms * c.sizes.cg * c.sizes.taps());
    let packed = PACK * (positions + c.sizes.og) as f64;
    (packed + padded(kernel, [c.sizes.og, positions])) * depth as f64
}

/// Words of a result that is padded to whole panels.
fn padded(kernel: &Kernel, [m, n]: [usize; 2]) -> f64 {
    (m.next_multiple_of(kernel.mr) * n.next_multiple_of(kernel.nr)) as f64
}

/// Algorithms for both axes that do not have more taps than the convolution.
fn candidates(c: &Correlation) -> impl Iterator<Item = [Algorithm; 2]> {
    let most = [0, 1].map(|axis| c.sizes.kernel[axis].div_ceil(c.stride[axis]));
    let fits =
        move |axis: usize| Algorithm::ALL.into_iter().filter(move |a| a.taps() <= most[axis]);
    fits(0).flat_map(move |y| fits(1).map(move |x| [y, x])).filter(|[y, x]| y.taps() * x.taps() > 1)
}

/// The length of even chunks of `len`, at most `limit` if that is a multiple of `unit`.
fn even(len: usize, limit: usize, unit: usize) -> usize {
    let chunks = len.div_ceil((limit / unit * unit).max(unit)).max(1);
    len.div_ceil(chunks).next_multiple_of(unit)
}
