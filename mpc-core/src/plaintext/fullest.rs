//! The reference's distance to its limits.

use std::sync::atomic::{AtomicU64, Ordering};

/// The largest part of its limit that a number has been.
#[derive(Debug, Default)]
pub(super) struct Fullest(AtomicU64);

impl Fullest {
    /// Takes note of numbers that must stay below `2^bits`.
    pub(super) fn note(&self, values: &[i128], bits: u32) {
        let largest = values.iter().map(|z| z.unsigned_abs()).max().unwrap_or(0);
        let part = largest as f64 * (-f64::from(bits)).exp2();
        // The bits of floats that are not negative are ordered as the floats are.
        self.0.fetch_max(part.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn take(&mut self) -> f64 {
        f64::from_bits(std::mem::take(self.0.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_number_counts_whatever_its_sign_and_limit() {
        let mut fullest = Fullest::default();
        fullest.note(&[3, -(1 << 60), 5], 62);
        fullest.note(&[1 << 60], 63);
        assert_eq!(fullest.take(), 0.25);
        assert_eq!(fullest.take(), 0.0);
    }
}
