//! Maintainers' commands: `cargo xtask check` runs what CI runs, `cargo xtask bench` measures on the CPU,
//! `cargo xtask gpu` checks and measures on a GPU, `cargo xtask train` trains on real images,
//! `cargo xtask report` draws the measurements.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod cargo;
pub mod cases;
pub mod check;
pub mod docs;
pub mod exported;
pub mod gpu;
pub mod operators;
pub mod ptx;
pub mod python;
pub mod record;
pub mod wheel;

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "report")]
pub mod curve;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "train")]
pub mod train;
