//! Memory for words that is used again.
//!
//! A fresh page costs more than the arithmetic on it: the kernel has to find it and clear it. The
//! buffers of tensors that are dropped are therefore kept and handed out again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::{Result, Shape, Tensor};

/// A store of buffers of words. Clones share the store.
///
/// Buffers come in size classes a quarter of a power of two apart, so at most a fifth of one is
/// unused. Dropped buffers return to the store until it holds [`BufferPool::limit`] words; those
/// beyond are freed.
#[derive(Clone)]
pub struct BufferPool(Arc<Store>);

/// A buffer of words, aligned to 64 bytes, that returns to its pool when it is dropped.
pub struct Buffer {
    /// All words of the size class, and room to align the first one used.
    words: Vec<u64>,
    start: usize,
    len: usize,
    store: Option<Arc<Store>>,
}

struct Store {
    limit: usize,
    shelves: Mutex<Shelves>,
}

#[derive(Default)]
struct Shelves {
    /// Free buffers by size class.
    classes: Vec<Vec<Vec<u64>>>,
    /// Words in all of them.
    held: usize,
}

/// Buffers below this many words are cheaper to allocate than to look up.
const SMALLEST: usize = 256;

/// Words in a cache line.
const LINE: usize = 8;

impl BufferPool {
    /// A pool that keeps at most `limit` words for later.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Store { limit, shelves: Mutex::default() }))
    }

    /// Words that the pool keeps at most.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Words that lie ready now.
    pub fn held(&self) -> usize {
        self.0.shelves().held
    }

    /// A buffer of `len` words. What they hold is unspecified: words of earlier tensors, or 0.
    pub fn take(&self, len: usize) -> Buffer {
        if len < SMALLEST {
            return Buffer::plain(len);
        }
        let (class, size) = size_class(len);
        let found = {
            let mut shelves = self.0.shelves();
            let found = shelves.classes.get_mut(class).and_then(Vec::pop);
            if let Some(words) = &found {
                shelves.held -= words.len();
            }
            found
        };
        // Zeroed memory straight from the system is not touched before it is used.
        let words = found.unwrap_or_else(|| vec![0; size + LINE]);
        Buffer { start: aligned(&words), words, len, store: Some(self.0.clone()) }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0);
        buffer
    }
}

impl Default for BufferPool {
    /// A pool of at most 1 GiB.
    fn default() -> Self {
        Self::new(1 << 27)
    }
}

impl Buffer {
    /// A buffer of zeros that belongs to no pool.
    pub(crate) fn plain(len: usize) -> Self {
        let words = vec![0; len + LINE];
        Self { start: aligned(&words), words, len, store: None }
    }

    /// The words as a tensor. They return to the pool with its last clone or slice.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the number of words is not the shape's.
    pub fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        Tensor::from_bytes(shape, self.into_bytes())
    }

    /// The words as little-endian bytes. They return to the pool with the last clone or slice.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// The words as bytes to be filled, for instance with a message.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    /// Leaves out all words from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.words[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.words[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(store) = self.store.take() else { return };
        let words = std::mem::take(&mut self.words);
        let (class, _) = size_class(words.len() - LINE);
        let mut shelves = store.shelves();
        if shelves.held + words.len() > store.limit {
            drop(shelves); // the memory is freed after the lock
            return;
        }
        shelves.held += words.len();
        if shelves.classes.len() <= class {
            shelves.classes.resize_with(class + 1, Vec::new);
        }
        shelves.classes[class].push(words);
    }
}

impl Store {
    fn shelves(&self) -> std::sync::MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the smallest class that holds `len` words, and its size.
fn size_class(len: usize) -> (usize, usize) {
    let len = len.max(SMALLEST);
    let octave = len.ilog2() as usize;
    let step = 1 << (octave - 2);
    let quarters = (len - (1 << octave)).div_ceil(step);
    (4 * octave + quarters, (1 << octave) + quarters * step)
}

/// Index of the first word that lies on a multiple of 64 bytes.
fn aligned(words: &[u64]) -> usize {
    match words.as_ptr().align_offset(64) {
        start if start < LINE => start,
        _ => 0,
    }
}

/// Shows sizes alone: the words may be shares.
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} words)", self.len)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} words held)", self.held())
    }
}
