//! How much a plan asks for, before it is run.

use super::{Plan, check};
use crate::Result;

impl Plan {
    /// Words of the largest value for a batch size, without running anything: what a server that
    /// takes plans from others compares with what it can give.
    ///
    /// # Errors
    /// [`crate::Error::Plan`] if the plan does not serve the batch size, [`crate::Error::Node`] if a
    /// value would be too large.
    pub fn largest_value(&self, batch: usize) -> Result<usize> {
        let shapes = check::shapes(self, batch)?;
        Ok(shapes.iter().map(ring_arith::Shape::len).max().unwrap_or(0))
    }
}
