//! Boolean tensors, bit-sliced.

use std::sync::Arc;

use crate::{Engine, EngineTensor, Error, Result, Shape, View};

/// A tensor of small unsigned integers, stored plane by plane: plane `j` holds bit `j` of every
/// element, 64 elements to a word. A plane has `ceil(n / 64)` words; the lanes past the last
/// element are unspecified.
#[derive(Debug, Clone)]
pub struct BitTensor<T> {
    shape: Shape,
    planes: T,
}

impl<T: EngineTensor> BitTensor<T> {
    /// Wraps planes `[width, ceil(n / 64)]` of `n = shape.len()` elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] if planes and shape do not fit, or the width is not 1 to 64.
    pub fn new(shape: Shape, planes: T) -> Result<Self> {
        match *planes.shape().dims() {
            [width, words] if (1..=64).contains(&width) && words == shape.len().div_ceil(64) => {
                Ok(Self { shape, planes })
            }
            _ => Err(Error::invalid(
                "bit tensor",
                format!("planes {:?} do not hold elements {shape:?}", planes.shape()),
            )),
        }
    }

    /// The shape of the elements.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bits per element.
    pub fn width(&self) -> usize {
        self.planes.shape().dims()[0]
    }

    /// Words per plane.
    pub fn words(&self) -> usize {
        self.planes.shape().dims()[1]
    }

    /// The planes, `[width, words]`.
    pub fn planes(&self) -> &T {
        &self.planes
    }

    /// The same bits under another shape of equal length.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the lengths differ.
    pub fn reshape(&self, shape: Shape) -> Result<Self> {
        if shape.len() != self.shape.len() {
            return Err(Error::Shapes { op: "reshape", lhs: self.shape.clone(), rhs: shape });
        }
        Ok(Self { shape, planes: self.planes.clone() })
    }

    /// The rows at the given places of the first axis, in that order. Repeats are allowed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no axis or a place is outside of it.
    pub fn rows<E: Engine<Tensor = T>>(&self, engine: &E, places: &Arc<[usize]>) -> Result<Self> {
        let words = engine.from_planes(&self.planes, 0, &self.shape)?;
        let rows = engine.view(&words, &View::Gather { axis: 0, indices: places.clone() })?;
        Self::new(rows.shape().clone(), engine.to_planes(&rows, 0, self.width() as u32)?)
    }
}
