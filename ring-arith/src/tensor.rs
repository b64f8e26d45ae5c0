//! Tensors of words in the host's memory.

use std::fmt;

use bytes::Bytes;

use crate::{EngineTensor, Error, Result, Shape};

/// Words modulo 2^64 with a shape, row-major, in the host's memory. Clones and slices of the
/// outermost axis share the words; so does the message that carries them to another party.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    shape: Shape,
    /// Little-endian words, aligned to 8 bytes.
    data: Bytes,
}

/// Keeps a vector of words alive behind [`Bytes`].
struct Words(Vec<u64>);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

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
        if bytemuck::try_cast_slice::<u8, u64>(&data).is_ok() {
            return Ok(Self { shape, data });
        }
        let words =
            data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")));
        let data = Bytes::from_owner(Words(words.collect()));
        Ok(Self { shape, data })
    }

    /// The words in row-major order.
    pub fn words(&self) -> &[u64] {
        bytemuck::cast_slice(&self.data)
    }

    /// The words as little-endian bytes, shared, ready to be sent.
    pub fn to_bytes(&self) -> Bytes {
        self.data.clone()
    }
}

impl EngineTensor for Tensor {
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
