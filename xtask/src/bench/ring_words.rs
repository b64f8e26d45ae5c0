//! Benchmarks of word kernels, transposes and PRGs.

use anyhow::Result;

use super::Bench;

/// The cases of this module.
pub fn cases(_bench: &mut Bench) -> Result<()> {
    Ok(())
}
