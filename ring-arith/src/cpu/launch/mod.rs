//! Word kernels on the CPU: SIMD vectors over cache-sized blocks, on all threads.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod check;
mod lanes;
mod plan;
mod portable;

use crate::{CpuEngine, Launch, Result, Tensor, WordKernel};

/// Runs a kernel over its index space.
pub(super) fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &CpuEngine,
    kernel: &K,
    launch: &Launch<'_, Tensor, I, O>,
) -> Result<Vec<Tensor>> {
    let checked = check::check(launch)?;
    let buffer = |(i, shape): (usize, &crate::Shape)| {
        if checked.covers(i) {
            engine.buffers().take(shape.len())
        } else {
            engine.buffers().zeroed(shape.len())
        }
    };
    let mut outputs: Vec<_> = launch.outputs.iter().enumerate().map(buffer).collect();
    plan::Plan::new(&checked, &mut outputs).run(engine, kernel);
    outputs.into_iter().zip(launch.outputs).map(|(o, s)| o.into_tensor(s.clone())).collect()
}
