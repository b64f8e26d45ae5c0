//! Tensors of real numbers and integers in the clear: weights, constants and expected results.

mod encode;

use std::fmt;
use std::sync::Arc;

use ring_arith::Shape;

pub(crate) use encode::{MOST_INTEGER, decode, encode};

use crate::{Error, Result};

/// The most elements that a constant or an activation may have.
pub const MAX_ELEMENTS: usize = 1 << 30;

/// Elements that are converted at a time, where no row is longer.
pub(crate) const CHUNK: usize = 4096;

/// A tensor in the clear, row-major. Clones share their elements; `Debug` shows the shape alone,
/// because a weight is a secret of its owner.
#[derive(Clone, PartialEq)]
pub struct HostTensor {
    shape: Shape,
    data: HostData,
}

/// The elements of a [`HostTensor`]. Real numbers of either width are equal if they are the same numbers.
#[derive(Clone)]
pub enum HostData {
    /// Real numbers.
    Float(Arc<Vec<f64>>),
    /// Real numbers of 32 bits, as most model files have them: half the memory.
    Single(Arc<Vec<f32>>),
    /// Integers; booleans are 0 and 1.
    Int(Arc<Vec<i64>>),
}

impl PartialEq for HostData {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &[f64], b: &[f32]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| *a == f64::from(*b))
        };
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Single(a), Self::Single(b)) => a == b,
            (Self::Float(a), Self::Single(b)) | (Self::Single(b), Self::Float(a)) => same(a, b),
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Int(_), _) | (_, Self::Int(_)) => false,
        }
    }
}

impl HostTensor {
    /// A tensor of real numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of values is not the shape's.
    pub fn new(dims: impl Into<Vec<usize>>, values: Vec<f64>) -> Result<Self> {
        let shape = checked_shape("tensor", dims)?;
        check_len(&shape, values.len())?;
        Ok(Self { shape, data: HostData::Float(Arc::new(values)) })
    }

    /// A tensor of real numbers of 32 bits.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of values is not the shape's.
    pub fn singles(dims: impl Into<Vec<usize>>, values: Vec<f32>) -> Result<Self> {
        let shape = checked_shape("tensor", dims)?;
        check_len(&shape, values.len())?;
        Ok(Self { shape, data: HostData::Single(Arc::new(values)) })
    }

    /// A tensor of integers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of values is not the shape's.
    pub fn integers(dims: impl Into<Vec<usize>>, values: Vec<i64>) -> Result<Self> {
        let shape = checked_shape("tensor", dims)?;
        check_len(&shape, values.len())?;
        Ok(Self { shape, data: HostData::Int(Arc::new(values)) })
    }

    /// A tensor without dimensions.
    pub fn scalar(value: f64) -> Self {
        Self { shape: Shape::default(), data: HostData::Float(Arc::new(vec![value])) }
    }

    /// A list of integers.
    pub fn ints(values: Vec<i64>) -> Self {
        let shape = Shape::new([values.len()]).expect("a vector in memory has a valid length");
        Self { shape, data: HostData::Int(Arc::new(values)) }
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)] // emptiness is no case of its own
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// The elements.
    pub fn data(&self) -> &HostData {
        &self.data
    }

    /// True if the elements are integers.
    pub fn is_int(&self) -> bool {
        matches!(self.data, HostData::Int(_))
    }

    /// The elements as real numbers of 64 bits; others are converted, at each call.
    pub fn floats(&self) -> std::borrow::Cow<'_, [f64]> {
        match &self.data {
            HostData::Float(v) => v.as_slice().into(),
            HostData::Single(v) => v.iter().map(|&x| x.into()).collect::<Vec<_>>().into(),
            HostData::Int(v) => v.iter().map(|&x| x as f64).collect::<Vec<_>>().into(),
        }
    }

    /// Calls `f` with the elements as real numbers, `len` at a time, the last time with those that are left. Other than
    /// [`HostTensor::floats`] it holds no second copy of all of them.
    pub fn each_chunk(&self, len: usize, mut f: impl FnMut(&[f64])) {
        let mut buffer = Vec::with_capacity(len.min(self.len()));
        let mut converted = |chunk: &mut dyn Iterator<Item = f64>| {
            buffer.clear();
            buffer.extend(chunk);
            f(&buffer);
        };
        match &self.data {
            HostData::Float(v) => v.chunks(len.max(1)).for_each(f),
            HostData::Single(v) => {
                v.chunks(len.max(1)).for_each(|c| converted(&mut c.iter().map(|&x| x.into())));
            }
            HostData::Int(v) => {
                v.chunks(len.max(1)).for_each(|c| converted(&mut c.iter().map(|&x| x as f64)));
            }
        }
    }

    /// The largest magnitude; 0 without elements.
    pub(crate) fn largest(&self) -> f64 {
        let mut largest = 0.0;
        self.each_chunk(CHUNK, |chunk| {
            largest = chunk.iter().fold(largest, |most: f64, v| v.abs().max(most));
        });
        largest
    }

    /// The real numbers, if they are held in 32 bits.
    pub fn short_floats(&self) -> Option<&[f32]> {
        match &self.data {
            HostData::Single(values) => Some(values),
            HostData::Float(_) | HostData::Int(_) => None,
        }
    }

    /// The integers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the elements are real numbers.
    pub fn as_ints(&self) -> Result<&[i64]> {
        match &self.data {
            HostData::Int(v) => Ok(v),
            HostData::Float(_) | HostData::Single(_) => {
                Err(Error::invalid("tensor", "integers are needed here, these are real numbers"))
            }
        }
    }

    /// The one element, if there is exactly one.
    pub fn single(&self) -> Option<f64> {
        match &self.data {
            HostData::Float(v) if v.len() == 1 => Some(v[0]),
            HostData::Single(v) if v.len() == 1 => Some(v[0].into()),
            HostData::Int(v) if v.len() == 1 => Some(v[0] as f64),
            _ => None,
        }
    }

    /// The number that every element is, if they are all the same and there is one.
    pub fn uniform(&self) -> Option<f64> {
        let values = self.floats();
        values.first().copied().filter(|first| values.iter().all(|v| v == first))
    }

    /// The same elements as real numbers.
    #[must_use]
    pub fn to_float(&self) -> Self {
        match &self.data {
            HostData::Float(_) | HostData::Single(_) => self.clone(),
            HostData::Int(v) => {
                let values = v.iter().map(|&x| x as f64).collect();
                Self { shape: self.shape.clone(), data: HostData::Float(Arc::new(values)) }
            }
        }
    }

    /// The same elements under another shape of equal length.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ.
    pub fn reshape(&self, dims: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = checked_shape("reshape", dims)?;
        if shape.len() != self.len() {
            let reason = format!("{:?} does not have the elements of {shape:?}", self.shape);
            return Err(Error::invalid("reshape", reason));
        }
        Ok(Self { shape, data: self.data.clone() })
    }

    /// Some of the rows, in the order given.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row does not exist.
    pub fn rows(&self, rows: &[usize]) -> Result<Self> {
        let [count, rest @ ..] = self.dims() else {
            return Err(Error::invalid("rows", "a single number has none"));
        };
        if let Some(row) = rows.iter().find(|row| *row >= count) {
            return Err(Error::invalid("rows", format!("{row} is not among {count} rows")));
        }
        let row = rest.iter().product();
        let dims = [&[rows.len()], rest].concat();
        match self.data() {
            HostData::Float(values) => Self::new(dims, picked(values, rows, row)),
            HostData::Single(values) => Self::singles(dims, picked(values, rows, row)),
            HostData::Int(values) => Self::integers(dims, picked(values, rows, row)),
        }
    }

    /// Refuses NaN and infinities, naming the first.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the position.
    pub fn check_finite(&self) -> Result<()> {
        let wild = match &self.data {
            HostData::Float(values) => values.iter().position(|v| !v.is_finite()),
            HostData::Single(values) => values.iter().position(|v| !v.is_finite()),
            HostData::Int(_) => None,
        };
        let Some(at) = wild else { return Ok(()) };
        let (values, len) = (self.floats(), self.len());
        let reason =
            format!("element {at} of {len} is {}; only finite numbers can be shared", values[at]);
        Err(Error::invalid("tensor", reason))
    }

    /// A new tensor with every real number mapped.
    #[must_use]
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        let values = self.floats().iter().map(|&x| f(x)).collect();
        Self { shape: self.shape.clone(), data: HostData::Float(Arc::new(values)) }
    }

    /// Wraps values whose number the caller has made right.
    pub(crate) fn from_parts(shape: Shape, data: HostData) -> Self {
        Self { shape, data }
    }
}

/// A shape that is not larger than this crate computes with.
pub(crate) fn checked_shape(op: &'static str, dims: impl Into<Vec<usize>>) -> Result<Shape> {
    let shape = Shape::new(dims)?;
    if shape.len() > MAX_ELEMENTS {
        let reason = format!("{shape:?} has more than {MAX_ELEMENTS} elements");
        return Err(Error::invalid(op, reason));
    }
    Ok(shape)
}

fn picked<T: Copy>(values: &[T], rows: &[usize], row: usize) -> Vec<T> {
    rows.iter().flat_map(|&at| &values[at * row..][..row]).copied().collect()
}

fn check_len(shape: &Shape, len: usize) -> Result<()> {
    if shape.len() == len {
        return Ok(());
    }
    Err(Error::invalid("tensor", format!("{len} values do not fill shape {shape:?}")))
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_int() { "int" } else { "float" };
        write!(f, "HostTensor({:?}, {kind})", self.shape)
    }
}
