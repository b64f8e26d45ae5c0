//! The sizes that a graph or plan leaves open.

use std::fmt;

/// The sizes on which shapes depend: of a batch, and of what earlier steps have left. A number alone is a batch
/// size, without cached positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Examples.
    pub batch: usize,
    /// Cached positions: see [`crate::Graph::state`].
    pub past: usize,
}

impl From<usize> for Sizes {
    fn from(batch: usize) -> Self {
        Self { batch, past: 0 }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch size {} and {} cached positions", self.batch, self.past)
    }
}
