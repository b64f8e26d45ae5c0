//! The matrix products of one block of transformed words.

use std::ops::Range;

use rayon::prelude::*;

use super::super::gemm::pairs;
use super::super::kernel::{Kernel, LINE, Line, Panel, Panels, Side};
use super::plan::Plan;

/// Some output channels, tiles, and input channels, and the places of their transformed words.
///
/// Words are in panels of the micro-kernel: for each panel of output channels, or of tiles, one per
/// product. Results are in its tiles: for each product, all tiles of a panel of output channels.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Output channels.
    pub outputs: Range<usize>,
    /// Tiles of all images.
    pub tiles: Range<usize>,
    /// Input channels of all terms.
    pub channels: Range<usize>,
    /// Panels of both operands.
    pub shapes: [Panel; 2],
    kernel: Kernel,
    products: usize,
}

impl Block {
    /// A block of a plan.
    pub(super) fn new(plan: &Plan, [outputs, tiles, channels]: [&Range<usize>; 3]) -> Self {
        let kernel = plan.kernel;
        let depth = (channels.len() * plan.parts()).next_multiple_of(kernel.k_unit);
        Self {
            outputs: outputs.clone(),
            tiles: tiles.clone(),
            channels: channels.clone(),
            shapes: [Side::A, Side::B].map(|side| kernel.panel(side, kernel.mr, depth)),
            kernel,
            products: plan.products(),
        }
    }

    /// Words of transformed weights, of transformed inputs, and of products.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let [rows, columns] = self.panels();
        let [row, column] = self.shapes.map(|shape| self.products * shape.words());
        [rows * row, columns * column, self.products * self.product_stride()]
    }

    /// Panels of output channels and of tiles.
    pub(super) fn panels(&self) -> [usize; 2] {
        let [a, b] = self.shapes.map(|shape| shape.width);
        [self.outputs.len().div_ceil(a), self.tiles.len().div_ceil(b)]
    }

    /// Words of a tile of results.
    pub(super) fn tile(&self) -> usize {
        self.kernel.mr * self.kernel.nr
    }

    /// Words of the results of one product. A line more, so that the results of several do not
    /// compete for the same places of a cache.
    pub(super) fn product_stride(&self) -> usize {
        let [rows, columns] = self.panels();
        rows * columns * self.tile() + LINE
    }

    /// Completes panels of one operand whose words are all there.
    pub(super) fn seal(&self, side: Side, panels: &mut [u64]) {
        let shape = self.shapes[side as usize];
        panels.chunks_exact_mut(shape.words()).for_each(|panel| self.kernel.seal(shape, panel));
    }

    /// Multiplies; adds to the results of the channels before, if any.
    pub(super) fn multiply(&self, threads: usize, operands: [&[u64]; 2], z: &mut [u64]) {
        // Kernels load whole lines of the second operand.
        assert!(operands.iter().all(|words| words.as_ptr().cast::<Line>().is_aligned()));
        let chunks = |z| <[u64]>::chunks_exact_mut(z, self.product_stride());
        let product = |(index, z): (usize, &mut [u64])| self.product(index, operands, z);
        let z = &mut z[..self.products * self.product_stride()];
        if threads <= 1 {
            chunks(z).enumerate().for_each(product);
        } else {
            z.par_chunks_exact_mut(self.product_stride()).enumerate().for_each(product);
        }
    }

    fn product(&self, index: usize, operands: [&[u64]; 2], z: &mut [u64]) {
        let mut entered = self.kernel.enter(self.kernel.mr);
        let [_, columns] = self.panels();
        for [i, j] in pairs(self.panels(), self.kernel.keep) {
            let words = [(0, i), (1, j)].map(|(side, panel)| {
                self.shapes[side].nth(operands[side], panel * self.products + index)
            });
            let left =
                |all: &Range<usize>, panel, width: usize| width.min(all.len() - panel * width);
            let across = left(&self.tiles, j, self.kernel.nr);
            let mut panels = Panels::new(words, self.shapes, across);
            panels.shapes[0].width = left(&self.outputs, i, self.kernel.mr);
            let ready = self.kernel.multiply(&mut entered, panels, None);
            debug_assert!(ready, "kernels of vectors leave their results at once");
            let z = &mut z[(i * columns + j) * self.tile()..][..self.tile()];
            let tile = &entered.tile.0[..self.tile()];
            if self.channels.start == 0 {
                z.copy_from_slice(tile);
            } else {
                z.iter_mut().zip(tile).for_each(|(z, word)| *z = z.wrapping_add(*word));
            }
        }
    }
}
