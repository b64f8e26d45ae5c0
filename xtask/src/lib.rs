//! Maintainers' commands: `cargo xtask check` runs what CI runs, `cargo xtask bench` measures.
#![forbid(unsafe_code)]

pub mod check;
pub mod ptx;

#[cfg(feature = "bench")]
pub mod bench;
