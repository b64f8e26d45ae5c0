//! Maintainers' commands: `cargo xtask check` runs what CI runs, `cargo xtask bench` measures.
#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
