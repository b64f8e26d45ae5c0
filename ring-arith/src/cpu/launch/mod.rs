//! Word kernels on the CPU: SIMD vectors over cache-sized blocks, on all threads.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
mod block;
mod check;
pub(super) mod lanes;
mod plan;
pub(super) mod portable;

use crate::{CpuEngine, Launch, Place, Result, Tensor, WordKernel};

/// Runs a kernel over its index space, its outputs in their places, if they have any.
///
/// Only code that touches words is generic, in the kernel and the vector. There are many kernels;
/// the code that divides a launch into blocks and distributes them over threads is the same for
/// all.
pub(super) fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &CpuEngine,
    kernel: &K,
    launch: &Launch<'_, Tensor, I, O>,
    places: &[Option<Place<'_, Tensor>>],
) -> Result<Vec<Tensor>> {
    let checked = check::check(launch)?;
    plan::run(engine, &checked, places, &|block| {
        // SAFETY: the plan of a checked launch makes blocks of valid addresses, with as many inputs
        // and outputs as the launch, each on one thread.
        unsafe { block.dispatch(engine.isa(), kernel, launch.params) }
    })
}
