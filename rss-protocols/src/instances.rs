//! See [`mpc_core::instances`].

use ring_arith::CpuEngine;

use crate::Rss;

/// The protocol's operations on the CPU, which this crate compiles for the crates above.
pub fn on_cpu() -> Vec<*const ()> {
    mpc_core::instances::instances::<Rss<CpuEngine>>()
}
