//! Operations that only move, repeat or drop words, as data.

use std::ops::Range;
use std::sync::Arc;

use crate::Shape;

/// An operation that moves words without computing on them. The same list serves tensors, shares
/// and, where it keeps the order of elements, bits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// The same words under another shape of equal length.
    Reshape(Shape),
    /// Axis `i` of the result is axis `axes[i]` of the input.
    Permute(Vec<usize>),
    /// Indices `start, start + step, ...` below `end` of one axis; `step >= 1`.
    Slice {
        /// The axis.
        axis: usize,
        /// First index taken.
        start: usize,
        /// First index not taken.
        end: usize,
        /// Distance between taken indices.
        step: usize,
    },
    /// The given indices of one axis, in the given order.
    Gather {
        /// The axis.
        axis: usize,
        /// Indices into it; repeats are allowed.
        indices: Arc<[usize]>,
    },
    /// A border of `value` around the tensor: `before[i]` and `after[i]` words on axis `i`.
    Pad {
        /// Words put before each axis.
        before: Vec<usize>,
        /// Words put after each axis.
        after: Vec<usize>,
        /// The border's word.
        value: u64,
    },
    /// Repeats axes of length 1, and new leading axes, to the given shape.
    Broadcast(Shape),
    /// `[.., H, W]` to `[.., kh * kw, OH, OW]`: the words under each position of a window,
    /// words outside the input being 0.
    Windows(Window),
}

/// A two-dimensional sliding window. One-dimensional data is laid out with `H = 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Step between positions.
    pub stride: [usize; 2],
    /// Words of zero border: top, left, bottom, right.
    pub padding: [usize; 4],
    /// Distance between the window's taps.
    pub dilation: [usize; 2],
}

impl Window {
    /// A window without border or dilation that steps by `stride`.
    pub fn new(kernel: [usize; 2], stride: [usize; 2]) -> Self {
        Self { kernel, stride, padding: [0; 4], dilation: [1; 2] }
    }

    /// The same window with a zero border of `top`, `left`, `bottom`, `right` words.
    #[must_use]
    pub fn padded(self, padding: [usize; 4]) -> Self {
        Self { padding, ..self }
    }

    /// Number of positions along height and width for an input of `size`, or `None` if the window
    /// (or a stride or dilation of 0) does not fit.
    pub fn positions(&self, size: [usize; 2]) -> Option<[usize; 2]> {
        let along = |i: usize| {
            let (k, s, d) = (self.kernel[i], self.stride[i], self.dilation[i]);
            let padded = size[i].checked_add(self.padding[i])?.checked_add(self.padding[i + 2])?;
            let reach = k.checked_sub(1)?.checked_mul(d)?.checked_add(1)?;
            if d == 0 { None } else { padded.checked_sub(reach)?.checked_div(s).map(|n| n + 1) }
        };
        Some([along(0)?, along(1)?])
    }

    /// For the tap at distance `tap` along axis `axis` of length `size`: the index it reads at the
    /// first position that does not read the border, and the range of such positions.
    pub(crate) fn inside(
        &self,
        axis: usize,
        tap: usize,
        size: usize,
        positions: usize,
    ) -> (usize, Range<usize>) {
        let (stride, before) = (self.stride[axis], self.padding[axis]);
        let start = before.saturating_sub(tap).div_ceil(stride);
        let end = (size + before).saturating_sub(tap).div_ceil(stride).min(positions);
        ((start * stride + tap).wrapping_sub(before), start.min(end)..end)
    }
}
