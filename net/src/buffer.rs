//! Memory for received messages: aligned to words, and used again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

/// Shorter buffers, in bytes, are cheaper to allocate than to keep.
const SHORTEST: usize = 2 << 10;

/// Bytes kept for later use at most. A message longer than this is not kept.
const KEPT: usize = 64 << 20;

/// Large buffers that are free. Fresh memory costs a page fault every 4 KiB, about a third of what
/// receiving into it costs.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// Free buffers by their number of words.
    free: HashMap<usize, Vec<Vec<u64>>>,
    bytes: usize,
}

/// The number of words of a buffer for at least `words`. There are few different sizes, so that
/// buffers fit again, and at most a quarter is too much.
fn rounded(words: usize) -> usize {
    let step = (words.next_power_of_two() / 8).max(1);
    words.div_ceil(step) * step
}

impl Pool {
    /// A buffer of `len` bytes with unspecified contents.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let words = len.div_ceil(8);
        let words = if len < SHORTEST { vec![0; words] } else { self.take_large(rounded(words)) };
        Buffer { words, len, pool: self.clone() }
    }

    fn take_large(&self, words: usize) -> Vec<u64> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.free.get_mut(&words).and_then(Vec::pop) {
            Some(buffer) => {
                kept.bytes -= words * 8;
                buffer
            }
            None => {
                drop(kept);
                vec![0; words]
            }
        }
    }

    fn give_back(&self, words: Vec<u64>) {
        let bytes = words.len() * 8;
        if !(SHORTEST..=KEPT).contains(&bytes) {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + bytes > KEPT {
            // Sizes change with the work: buffers kept from earlier work are in the way.
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        kept.free.entry(words.len()).or_default().push(words);
    }
}

/// Bytes at an address divisible by 8.
pub(crate) struct Buffer {
    words: Vec<u64>,
    len: usize,
    pool: Pool,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    /// The bytes, shared; the memory is kept for later messages when the last share is dropped.
    pub(crate) fn freeze(self) -> Bytes {
        match self.len {
            0 => Bytes::new(),
            _ => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_and_small_ones_are_not_kept() {
        let pool = Pool::default();
        let address = pool.take(100_000).freeze().as_ptr();
        assert_eq!(pool.take(99_000).freeze().as_ptr(), address);
        drop(pool.take(100));
        assert_eq!(pool.0.lock().unwrap().free.len(), 1);
        assert_eq!(pool.take(13).freeze().len(), 13);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Pool::default();
        let taken: Vec<_> = (0..20).map(|_| pool.take(10 << 20)).collect();
        drop(taken);
        let kept = pool.0.lock().unwrap();
        let held: usize = kept.free.values().flatten().map(|words| words.len() * 8).sum();
        assert_eq!(held, kept.bytes);
        assert!((10 << 20..=KEPT).contains(&held), "{held}");
        drop(kept);
        drop(pool.take(KEPT + 8));
        assert!(pool.0.lock().unwrap().bytes <= KEPT);
    }

    #[test]
    fn a_buffer_is_at_most_a_quarter_too_large() {
        for words in 1..5000 {
            assert!((words..=words + words / 4).contains(&rounded(words)), "{words}");
        }
    }
}
