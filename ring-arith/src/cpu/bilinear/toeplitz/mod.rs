//! Convolutions with fewer products: tiles of the output by the algorithms of [`algorithm`], nested
//! along height and width.
//!
//! As in Winograd's minimal filtering (S. Winograd, Arithmetic Complexity of Computations, SIAM 1980),
//! weights and tiles of inputs are transformed into `m` sums per channel. Then `m` matrix products add
//! up the channels, and a third transform makes tiles of outputs. Winograd's transforms divide by 2,
//! which is not invertible modulo 2^64. Toeplitz matrix-vector products (H. Fan and M. A. Hasan, IEEE
//! Trans. Computers 56(2), 2007) need only additions and are exact in any ring; 3 x 3 taps take 36
//! products for 9 outputs, not 81.
//!
//! A stride becomes more channels: input rows of one residue modulo the stride meet taps of one
//! residue. So do more taps than an algorithm has: each run of `r` taps sees the image shifted.
//!
//! The transforms write the panels that the micro-kernel reads, so nothing is packed.

mod algorithm;
mod multiply;
mod plan;
mod stage;
#[cfg(test)]
mod tests;
mod tiles;
mod transform;

use super::Job;
use multiply::Block;
pub(super) use plan::Plan;
pub(super) use tiles::Correlation;
use transform::Transforms;

/// Computes a convolution as planned, block by block.
pub(super) fn run(job: Job<'_>, c: &Correlation, plan: &Plan, out: &mut [u64]) {
    job.write_addends(out);
    let blocks = plan.blocks(c, job.terms.len());
    let [u, v, z] = plan.largest(c, job.terms.len()).sizes();
    let [mut u, mut z] = [u, z].map(|words| job.buffers.take(words));
    let mut v: Vec<_> = blocks.channels.iter().map(|_| job.buffers.take(v)).collect();
    for group in 0..c.sizes.groups {
        let transforms = Transforms::new(job, c, plan, group);
        let mut u_holds = None;
        for tiles in &blocks.tiles {
            let block = |outputs, channels| Block::new(plan, [outputs, tiles, channels]);
            for (channels, v) in blocks.channels.iter().zip(&mut v) {
                transforms.inputs(&block(&(0..0), channels), v);
            }
            for outputs in &blocks.outputs {
                for (channels, v) in blocks.channels.iter().zip(&v) {
                    let block = block(outputs, channels);
                    if u_holds.replace((outputs, channels)) != Some((outputs, channels)) {
                        transforms.weights(&block, &mut u);
                    }
                    block.multiply(job.threads, [&u, v], &mut z);
                }
                transforms.outputs(&block(outputs, &(0..0)), &z, out);
            }
        }
    }
}
