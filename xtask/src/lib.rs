//! Maintainers' commands: `cargo xtask check` runs what CI runs, `cargo xtask bench` measures on the
//! CPU, `cargo xtask gpu` checks and measures on a GPU.
#![forbid(unsafe_code)]

pub mod check;
pub mod gpu;
pub mod ptx;

#[cfg(feature = "bench")]
pub mod bench;
