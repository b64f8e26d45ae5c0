//! Tensors of words in the host's memory.

use std::fmt;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::{CpuEngine, Engine, EngineTensor, Error, Result, Room, Shape, View, Window};

/// Words modulo 2^64 with a shape, row-major, in the host's memory. Clones and slices of the
/// outermost axis share the words; so does the message that carries them to another party.
///
/// The methods that compute run on one thread; [`CpuEngine`] does the same on several.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    shape: Shape,
    /// Little-endian words, aligned to 8 bytes.
    data: Bytes,
}

#[cfg(target_endian = "big")]
compile_error!("tensors are sent as they lie in memory, which has to be little-endian");

/// Keeps a vector of words alive behind [`Bytes`].
struct Words(Vec<u64>);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The engine behind the methods of [`Tensor`].
static HOST: LazyLock<CpuEngine> = LazyLock::new(|| CpuEngine::new(1));

impl Tensor {
    /// A tensor of the given words.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of words is not the shape's.
    pub fn new(shape: Shape, words: Vec<u64>) -> Result<Self> {
        Self::from_bytes(shape, Bytes::from_owner(Words(words)))
    }

    /// A tensor over little-endian bytes, for instance a received message. Shares the bytes if they
    /// are aligned to 8, else copies them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of bytes is not eight times the shape's length.
    pub fn from_bytes(shape: Shape, data: Bytes) -> Result<Self> {
        if data.len() != shape.len() * 8 {
            let reason = format!("{} bytes do not fill shape {shape:?} of words", data.len());
            return Err(Error::invalid("tensor", reason));
        }
        if data.is_empty() || bytemuck::try_cast_slice::<u8, u64>(&data).is_ok() {
            return Ok(Self { shape, data });
        }
        let mut words = HOST.buffers().take(shape.len());
        words.as_bytes_mut().copy_from_slice(&data);
        words.into_tensor(shape)
    }

    /// A tensor from dimensions and words: `Tensor::of([2, 3], &[1, 2, 3, 4, 5, 6])`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number of words is not the shape's.
    pub fn of(dims: impl Into<Vec<usize>>, words: &[u64]) -> Result<Self> {
        Self::new(Shape::new(dims)?, words.to_vec())
    }

    /// A tensor without dimensions.
    pub fn scalar(word: u64) -> Self {
        Self { shape: Shape::default(), data: Bytes::from_owner(Words(vec![word])) }
    }

    /// A tensor of one axis.
    pub fn vector(words: Vec<u64>) -> Self {
        let shape = Shape::vector(words.len());
        Self { shape, data: Bytes::from_owner(Words(words)) }
    }

    /// A tensor of the same word everywhere.
    pub fn full(shape: Shape, word: u64) -> Self {
        let words = vec![word; shape.len()];
        Self { shape, data: Bytes::from_owner(Words(words)) }
    }

    /// A tensor of zeros.
    pub fn zeros(shape: Shape) -> Self {
        Self::full(shape, 0)
    }

    /// A tensor whose word at row-major position `i` is `word(i)`.
    pub fn from_fn(shape: Shape, word: impl FnMut(usize) -> u64) -> Self {
        let words = (0..shape.len()).map(word).collect();
        Self { shape, data: Bytes::from_owner(Words(words)) }
    }

    /// The words in row-major order.
    pub fn words(&self) -> &[u64] {
        // An empty slice need not be aligned.
        if self.data.is_empty() { &[] } else { bytemuck::cast_slice(&self.data) }
    }

    /// The words as little-endian bytes, shared, ready to be sent.
    pub fn to_bytes(&self) -> Bytes {
        self.data.clone()
    }

    /// The words from `start` on under the given shape, shared.
    pub(crate) fn share(&self, start: usize, shape: Shape) -> Result<Self> {
        let data = self.data.slice(start * 8..(start + shape.len()) * 8);
        Self::from_bytes(shape, data)
    }

    /// Moves words; see [`View`] for the moves.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the view does not fit.
    pub fn view(&self, view: &View) -> Result<Self> {
        HOST.view(self, view)
    }

    /// The same words under another shape.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the lengths differ.
    pub fn reshape(&self, dims: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = Shape::new(dims)?;
        if shape.len() != self.len() {
            return Err(Error::Shapes { op: "reshape", lhs: self.shape.clone(), rhs: shape });
        }
        Ok(Self { shape, data: self.data.clone() })
    }

    /// Axis `i` of the result is axis `axes[i]` of this tensor.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless every axis is named once.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        self.view(&View::Permute(axes.to_vec()))
    }

    /// Indices `start..end` of one axis.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the axis or the range does not exist.
    pub fn slice(&self, axis: usize, start: usize, end: usize) -> Result<Self> {
        self.view(&View::Slice { axis, start, end, step: 1 })
    }

    /// The given indices of one axis.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the axis or an index does not exist.
    pub fn gather(&self, axis: usize, indices: &[usize]) -> Result<Self> {
        self.view(&View::Gather { axis, indices: indices.into() })
    }

    /// A border of `value` of the given widths around the tensor.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `before` and `after` have one width for every axis.
    pub fn pad(&self, before: &[usize], after: &[usize], value: u64) -> Result<Self> {
        self.view(&View::Pad { before: before.to_vec(), after: after.to_vec(), value })
    }

    /// Repeats axes of length 1, and new leading axes, to the given shape.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the shapes do not fit.
    pub fn broadcast(&self, dims: impl Into<Vec<usize>>) -> Result<Self> {
        self.view(&View::Broadcast(Shape::new(dims)?))
    }

    /// `[.., H, W]` to `[.., kh * kw, OH, OW]`: the words under each position of a window.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the window does not fit.
    pub fn windows(&self, window: &Window) -> Result<Self> {
        self.view(&View::Windows(*window))
    }

    /// Concatenates along an axis.
    ///
    /// # Errors
    /// [`Error::Shapes`] if other axes differ, [`Error::Invalid`] without tensors.
    pub fn concat(tensors: &[&Self], axis: usize) -> Result<Self> {
        HOST.concat(tensors, axis)
    }

    /// Joins tensors of equal shape along a new axis.
    ///
    /// # Errors
    /// [`Error::Shapes`] if shapes differ, [`Error::Invalid`] without tensors or if the axis is past
    /// the end.
    pub fn stack(tensors: &[&Self], axis: usize) -> Result<Self> {
        let lift = |tensor: &&Self| {
            let mut dims = tensor.shape.dims().to_vec();
            if axis > dims.len() {
                let reason = format!("axis {axis} of {:?} is past the end", tensor.shape);
                return Err(Error::invalid("stack", reason));
            }
            dims.insert(axis, 1);
            tensor.reshape(dims)
        };
        let lifted = tensors.iter().map(lift).collect::<Result<Vec<_>>>()?;
        Self::concat(&lifted.iter().collect::<Vec<_>>(), axis)
    }

    /// Sums over axes, which stay with length 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an axis does not exist or is named twice.
    pub fn sum(&self, axes: &[usize]) -> Result<Self> {
        HOST.sum(self, axes)
    }

    /// `[.., H, W]` to `[.., OH, OW]`: sums of the words under each position of a window.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the window does not fit.
    pub fn window_sum(&self, window: &Window) -> Result<Self> {
        HOST.window_sum(self, window)
    }
}

impl EngineTensor for Tensor {
    type Room = Room;

    fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Shows the shape alone: words may be shares.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?})", self.shape)
    }
}
