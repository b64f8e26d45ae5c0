//! Tensors in a device's memory.

use std::{convert::Infallible, fmt, sync::Arc};

use ring_arith::{EngineTensor, Shape};

use crate::driver::Buffer;

/// Words modulo 2^64 in a device's memory, row-major. Clones, reshapes and slices of the outermost
/// axis share the words.
#[derive(Clone)]
pub struct CudaTensor {
    shape: Shape,
    buffer: Arc<Buffer>,
    /// First word, in words from the buffer's start.
    start: usize,
}

impl CudaTensor {
    pub(crate) fn new(shape: Shape, buffer: Buffer) -> Self {
        Self { shape, buffer: Arc::new(buffer), start: 0 }
    }

    /// The words from `start` of this tensor on, under another shape; they must lie inside it.
    pub(crate) fn share(&self, start: usize, shape: Shape) -> Self {
        debug_assert!(
            start + shape.len() <= self.shape.len(),
            "shared words lie inside the tensor"
        );
        Self { shape, buffer: Arc::clone(&self.buffer), start: self.start + start }
    }

    /// The device address of the first word.
    pub(crate) fn address(&self) -> u64 {
        self.buffer.address() + 8 * self.start as u64
    }
}

impl EngineTensor for CudaTensor {
    type Room = Infallible;

    fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Shows the shape alone: words may be shares.
impl fmt::Debug for CudaTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaTensor({:?})", self.shape)
    }
}
