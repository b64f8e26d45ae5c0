//! Benchmarks of operations on shares.

use anyhow::Result;

use super::Bench;

/// The cases of this module.
pub fn cases(_bench: &mut Bench) -> Result<()> {
    Ok(())
}
