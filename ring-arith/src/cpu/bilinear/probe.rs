//! The limit that matrix products are measured against: their innermost loop on operands that never
//! leave the first-level cache.

use std::time::Instant;

use super::kernel::{Kernel, Line, Panels, Side, Spot};
use crate::Isa;

/// The innermost loop of matrix products with packed operands: no packing, no waiting for memory.
///
/// Benchmarks compare products of matrices with it; nothing else needs it.
#[derive(Debug)]
pub struct Microkernel {
    kernel: Kernel,
    depth: usize,
    a: Vec<Line>,
    b: Vec<Line>,
}

impl Microkernel {
    /// The loop used for big products on an instruction set.
    pub fn new(isa: Isa) -> Self {
        let kernel = Kernel::best(isa, usize::MAX);
        // Both panels together fill two thirds of a first-level cache of 48 KiB.
        let depth = (4096 / (kernel.mr + kernel.nr)) / kernel.k_unit * kernel.k_unit;
        let line = |i: usize| Line([(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15); 8]);
        let lines = |side| kernel.panel(side, kernel.mr, depth).words().div_ceil(8);
        let [a, b] = [Side::A, Side::B].map(|side| (0..lines(side)).map(line).collect());
        Self { kernel, depth, a, b }
    }

    /// Runs the loop so often; returns the number of products of words.
    pub fn run(&self, rounds: usize) -> usize {
        let kernel = self.kernel;
        let shapes = [Side::A, Side::B].map(|side| kernel.panel(side, kernel.mr, self.depth));
        let words = [bytemuck::cast_slice(&self.a), bytemuck::cast_slice(&self.b)];
        let mut entered = kernel.enter(kernel.mr);
        let mut late = None;
        for _ in 0..rounds {
            let ready = kernel.multiply(&mut entered, Panels::new(words, shapes, kernel.nr), late);
            late = (!ready).then_some(Spot::Tile);
        }
        if let Some(spot) = late {
            kernel.finish(&mut entered, spot);
        }
        std::hint::black_box(&entered.tile);
        rounds * kernel.mr * kernel.nr * self.depth
    }
}

/// True if the innermost loop of one instruction set is faster than that of another on this CPU, in the best of a
/// few short runs of each in turn. It takes about a millisecond.
pub(crate) fn tiles_pay(tiles: Isa, vectors: Isa) -> bool {
    let loops = [Microkernel::new(tiles), Microkernel::new(vectors)];
    let mut least = [f64::MAX; 2];
    for _ in 0..RUNS {
        for (least, microkernel) in least.iter_mut().zip(&loops) {
            let began = Instant::now();
            let products = microkernel.run(ROUNDS);
            *least = least.min(began.elapsed().as_secs_f64() / products as f64);
        }
    }
    least[0] < least[1]
}

/// Runs of each loop, of which the best counts: others may have been interrupted.
const RUNS: usize = 5;

/// Innermost loops of a run: a tenth of a millisecond or so.
const ROUNDS: usize = 16;
