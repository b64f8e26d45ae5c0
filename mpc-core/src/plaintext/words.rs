//! Checks of what callers promise about words.

use crate::{Error, Result};

/// Refuses words outside `-2^bits..=2^bits`.
pub(super) fn check_magnitude(op: &'static str, words: &[u64], bits: u32) -> Result<()> {
    if bits >= 63 {
        return Ok(());
    }
    let Some(i) = words.iter().position(|&w| (w as i64).unsigned_abs() > 1 << bits) else {
        return Ok(());
    };
    let reason = format!(
        "element {i} is {}, which the caller promised to be below 2^{bits} in magnitude",
        words[i] as i64
    );
    Err(Error::Invalid { op, reason })
}
