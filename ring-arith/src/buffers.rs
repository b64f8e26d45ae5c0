//! Memory for words that is used again.
//!
//! A fresh page costs more than the arithmetic on it: the kernel has to find it and clear it. The
//! buffers of tensors that are dropped are therefore kept and handed out again.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::{EngineTensor, Result, Shape, Tensor};

/// A store of buffers of words. Clones share the store.
///
/// Buffers have size classes a quarter of a power of two apart, so at most a fifth of one is
/// unused. Dropped buffers return to the store until it holds [`BufferPool::limit`] words; those
/// beyond are freed.
#[derive(Clone)]
pub struct BufferPool(Arc<Store>);

/// A buffer of words, aligned to 64 bytes, that returns to its pool when it is dropped.
pub struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
}

/// Whose words a buffer uses.
enum Memory {
    /// Its own.
    Own {
        /// All words of the size class, and room to align the first one used.
        words: Vec<u64>,
        store: Option<Arc<Store>>,
    },
    /// A part of a room that only this buffer uses.
    Part(Room),
}

/// Memory for a tensor whose parts are made one by one, each where it belongs. Clones share it.
#[derive(Clone)]
pub struct Room(Arc<Whole>);

/// The memory of a room, written through `first` by buffers of disjoint parts.
struct Whole {
    first: *mut u64,
    len: usize,
    /// Parts that were handed out, once and for all.
    taken: Mutex<Vec<Range<usize>>>,
    /// Owns the words.
    _buffer: Buffer,
}

// SAFETY: words are written through buffers of parts that never meet, and read once these are frozen.
unsafe impl Send for Whole {}
// SAFETY: as above.
unsafe impl Sync for Whole {}

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

    /// Words in the store now.
    pub fn held(&self) -> usize {
        self.0.shelves().held
    }

    /// Frees buffers, the largest first, until at most `words` words remain: for a process that continues
    /// after a large job.
    pub fn trim(&self, words: usize) {
        let mut freed = Vec::new();
        let mut shelves = self.0.shelves();
        for class in (0..shelves.classes.len()).rev() {
            while shelves.held > words
                && let Some(buffer) = shelves.classes[class].pop()
            {
                shelves.held -= buffer.len();
                freed.push(buffer);
            }
        }
        // Returning pages to the system takes long: other threads must not wait meanwhile.
        drop(shelves);
    }

    /// A buffer of `len` words. Its contents are unspecified: words of earlier tensors, or 0.
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
        let start = aligned(&words);
        Buffer { memory: Memory::Own { words, store: Some(self.0.clone()) }, start, len }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0);
        buffer
    }

    /// Room for a tensor of `len` words.
    pub(crate) fn room(&self, len: usize) -> Room {
        let mut buffer = self.take(len);
        let first = buffer.as_mut_ptr();
        Room(Arc::new(Whole { first, len, taken: Mutex::default(), _buffer: buffer }))
    }
}

impl Room {
    /// A buffer of `len` words from `start` on; none if they are not there or were taken before.
    pub(crate) fn part(&self, start: usize, len: usize) -> Option<Buffer> {
        let end = start.checked_add(len).filter(|&end| end <= self.0.len)?;
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if len > 0 && taken.iter().any(|other| start < other.end && other.start < end) {
            return None;
        }
        taken.push(start..end);
        Some(Buffer { memory: Memory::Part(self.clone()), start, len })
    }

    /// All words as one tensor, of which these are the parts, in order; those made elsewhere are copied.
    /// None if they do not fill the room, or another part of it was taken.
    pub(crate) fn seal(&self, parts: &[&Tensor], shape: &Shape) -> Option<Tensor> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total != self.0.len || total != shape.len() {
            return None;
        }
        let mut at = 0;
        for part in parts {
            let (words, len) = (part.words(), part.len());
            // A tensor's words are never written again: buffers of them no longer exist.
            if len > 0 && words.as_ptr() != self.0.first.wrapping_add(at) {
                self.part(at, len)?.copy_from_slice(words);
            }
            at += len;
        }
        Tensor::from_bytes(shape.clone(), Bytes::from_owner(Sealed(self.clone()))).ok()
    }
}

/// A room all of whose parts are frozen.
struct Sealed(Room);

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        let Whole { first, len, .. } = *self.0.0;
        // SAFETY: the words exist and are not written any more: every part was seen as a tensor, or
        // filled by a buffer that is dropped.
        bytemuck::cast_slice(unsafe { std::slice::from_raw_parts(first, len) })
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
        let start = aligned(&words);
        Self { memory: Memory::Own { words, store: None }, start, len }
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
        match &self.memory {
            Memory::Own { words, .. } => &words[self.start..self.start + self.len],
            // SAFETY: the part lies inside the room, and no other buffer has it.
            Memory::Part(room) => unsafe {
                std::slice::from_raw_parts(room.0.first.add(self.start), self.len)
            },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.memory {
            Memory::Own { words, .. } => &mut words[self.start..self.start + self.len],
            // SAFETY: the part lies inside the room, and no other buffer has it.
            Memory::Part(room) => unsafe {
                std::slice::from_raw_parts_mut(room.0.first.add(self.start), self.len)
            },
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Memory::Own { words, store: Some(store) } = &mut self.memory else { return };
        let (words, store) = (std::mem::take(words), store.clone());
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

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} words)", self.0.len)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} words held)", self.held())
    }
}
