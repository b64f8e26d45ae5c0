//! Operations that only move, repeat or drop words, as data.

use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Result, Shape};

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

impl View {
    /// The shape that this view gives to a tensor of the given shape.
    ///
    /// # Errors
    /// [`Error::Shapes`] or [`Error::Invalid`] if the view does not fit.
    pub fn output_shape(&self, shape: &Shape) -> Result<Shape> {
        let dims = shape.dims();
        let invalid = |op, reason: String| Err(Error::invalid(op, reason));
        let axis_of = |op, axis: usize| match axis < dims.len() {
            true => Ok(dims[axis]),
            false => Err(Error::invalid(op, format!("shape {shape:?} has no axis {axis}"))),
        };
        let replaced = |axis: usize, len: usize| {
            let mut dims = dims.to_vec();
            dims[axis] = len;
            Shape::new(dims)
        };
        match self {
            Self::Reshape(to) if to.len() == shape.len() => Ok(to.clone()),
            Self::Reshape(to) => {
                Err(Error::Shapes { op: "reshape", lhs: shape.clone(), rhs: to.clone() })
            }
            Self::Permute(axes) => {
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..dims.len()) {
                    let text = format!("axes {axes:?} do not name each axis of {shape:?} once");
                    return invalid("permute", text);
                }
                Shape::new(axes.iter().map(|&a| dims[a]).collect::<Vec<_>>())
            }
            &Self::Slice { axis, start, end, step } => {
                if step == 0 || start > end || end > axis_of("slice", axis)? {
                    let text =
                        format!("{start}..{end} by {step} is not inside axis {axis} of {shape:?}");
                    return invalid("slice", text);
                }
                replaced(axis, (end - start).div_ceil(step))
            }
            Self::Gather { axis, indices } => {
                let len = axis_of("gather", *axis)?;
                if let Some(bad) = indices.iter().find(|&&i| i >= len) {
                    return invalid(
                        "gather",
                        format!("index {bad} is outside axis {axis} of {shape:?}"),
                    );
                }
                replaced(*axis, indices.len())
            }
            Self::Pad { before, after, .. } => {
                let (b, a) = (before.len(), after.len());
                if b != dims.len() || a != dims.len() {
                    let text = format!("{b} and {a} widths do not fit the axes of {shape:?}");
                    return invalid("pad", text);
                }
                let grown = |i: usize| dims[i].checked_add(before[i])?.checked_add(after[i]);
                match (0..dims.len()).map(grown).collect::<Option<Vec<_>>>() {
                    Some(dims) => Shape::new(dims),
                    None => invalid("pad", "the result has too many elements".to_string()),
                }
            }
            Self::Broadcast(to) => match shape.broadcast(to, "broadcast") {
                Ok(common) if common == *to => Ok(common),
                _ => invalid("broadcast", format!("shape {shape:?} does not repeat to {to:?}")),
            },
            Self::Windows(window) => {
                let (outer, [kh, kw]) = (window.outer(shape), window.kernel);
                let taps = kh.checked_mul(kw).filter(|_| outer.is_some());
                let Some((taps, (outer, [oh, ow]))) = taps.zip(outer) else {
                    return invalid("windows", format!("{window:?} does not fit shape {shape:?}"));
                };
                Shape::new([outer, &[taps, oh, ow]].concat())
            }
        }
    }
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

    /// Words from the first to the last tap along height and width. The window has taps and steps.
    pub fn reach(&self) -> [usize; 2] {
        [0, 1].map(|i| (self.kernel[i] - 1) * self.dilation[i] + 1)
    }

    /// Leading dimensions of a tensor `[.., H, W]` and the number of positions over it, if the window
    /// fits.
    pub(crate) fn outer<'a>(&self, shape: &'a Shape) -> Option<(&'a [usize], [usize; 2])> {
        let (outer, &size) = shape.dims().split_last_chunk::<2>()?;
        Some((outer, self.positions(size)?))
    }

    /// Shape of the sums under the window: `[.., H, W]` to `[.., OH, OW]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the window does not fit.
    pub fn sum_shape(&self, shape: &Shape) -> Result<Shape> {
        match self.outer(shape) {
            Some((outer, positions)) => Shape::new([outer, &positions].concat()),
            None => {
                let reason = format!("{self:?} does not fit shape {shape:?}");
                Err(Error::invalid("window sum", reason))
            }
        }
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

    /// The positions at which a tap does not read the border: the index that it reads at the first
    /// one, and their range. The tap is at distance `tap` along axis `axis` of length `size`.
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
