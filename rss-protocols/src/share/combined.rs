//! Both components of a share combined into one operand of a product.

/// The axis of an operand over which a map sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inner {
    pub axis: usize,
    /// The axis holds this many groups, each summed by itself.
    pub groups: usize,
}

/// An operand of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}
