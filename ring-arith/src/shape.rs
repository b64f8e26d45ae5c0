//! Shapes of tensors: dimensions in row-major order.

use std::fmt;

use crate::{Error, Result};

/// Dimensions of a tensor, outermost first. A shape without dimensions is one scalar.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape from its dimensions.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of elements, in bytes of eight, does not fit `isize`.
    pub fn new(dims: impl Into<Vec<usize>>) -> Result<Self> {
        let dims = dims.into();
        // Zero dimensions are skipped in the product so that [0, usize::MAX, 2] is refused as well:
        // strides are computed from the other dimensions.
        let bytes = dims
            .iter()
            .filter(|&&d| d != 0)
            .try_fold(8usize, |n, &d| n.checked_mul(d))
            .filter(|&n| isize::try_from(n).is_ok());
        match bytes {
            Some(_) => Ok(Self(dims)),
            None => Err(Error::invalid("shape", format!("{dims:?} has too many elements"))),
        }
    }

    /// The shape of one axis of the length of an existing slice.
    pub(crate) fn vector(len: usize) -> Self {
        Self(vec![len])
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)] // a shape is not a collection
    pub fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// Row-major strides, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for i in (1..self.rank()).rev() {
            strides[i - 1] = strides[i] * self.0[i].max(1);
        }
        strides
    }

    /// The common shape of two operands under NumPy's broadcasting rule.
    ///
    /// # Errors
    /// [`Error::Shapes`] if some pair of dimensions differs and neither is 1.
    pub fn broadcast(&self, other: &Self, op: &'static str) -> Result<Self> {
        let rank = self.rank().max(other.rank());
        let dim = |s: &Self, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |j| s.0[j]);
        let dims = (0..rank).map(|i| match (dim(self, i), dim(other, i)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        });
        match dims.collect::<Option<Vec<_>>>() {
            Some(dims) => Self::new(dims),
            None => Err(Error::Shapes { op, lhs: self.clone(), rhs: other.clone() }),
        }
    }

    /// The shape of tensors concatenated along an axis.
    ///
    /// # Errors
    /// [`Error::Shapes`] if another axis differs, [`Error::Invalid`] without shapes or without the axis.
    pub fn concat(shapes: &[&Self], axis: usize) -> Result<Self> {
        let [first, others @ ..] = shapes else {
            return Err(Error::invalid("concat", "there are no tensors to concatenate"));
        };
        if axis >= first.rank() {
            return Err(Error::invalid("concat", format!("shape {first:?} has no axis {axis}")));
        }
        let mut dims = first.0.clone();
        for other in others {
            let fits = |i: usize| i == axis || other.0[i] == dims[i];
            if other.rank() != dims.len() || !(0..dims.len()).all(fits) {
                let (lhs, rhs) = ((*first).clone(), (*other).clone());
                return Err(Error::Shapes { op: "concat", lhs, rhs });
            }
            let long = || Error::invalid("concat", "the result has too many elements");
            dims[axis] = dims[axis].checked_add(other.0[axis]).ok_or_else(long)?;
        }
        Self::new(dims)
    }

    /// The shape of sums over axes, which stay with length 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an axis does not exist or is named twice.
    pub fn sum(&self, axes: &[usize]) -> Result<Self> {
        let mut dims = self.0.clone();
        for (at, &axis) in axes.iter().enumerate() {
            let Some(dim) = dims.get_mut(axis) else {
                return Err(Error::invalid("sum", format!("shape {self:?} has no axis {axis}")));
            };
            if axes[..at].contains(&axis) {
                return Err(Error::invalid("sum", format!("axis {axis} is named twice")));
            }
            *dim = 1;
        }
        Self::new(dims)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const N: usize> TryFrom<[usize; N]> for Shape {
    type Error = Error;
    fn try_from(dims: [usize; N]) -> Result<Self> {
        Self::new(dims)
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = Error;
    fn try_from(dims: &[usize]) -> Result<Self> {
        Self::new(dims)
    }
}
