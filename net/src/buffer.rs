//! Memory for received messages: aligned to words, and used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Shorter buffers are cheaper to allocate than to keep.
const SHORTEST: usize = 32 << 10;

/// Bytes kept for later use at most. A message longer than this is not kept.
const KEPT: usize = 64 << 20;

/// Large buffers that are free. Fresh memory costs a page fault every 4 KiB, about a third of what
/// receiving into it costs.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<u64>>>>);

impl Pool {
    /// A buffer of `len` bytes with unspecified contents.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let words = len.div_ceil(8);
        let kept = if len < SHORTEST { None } else { self.find(words) };
        let words = kept.unwrap_or_else(|| vec![0; words]);
        Buffer { words, len, pool: self.clone() }
    }

    fn find(&self, words: usize) -> Option<Vec<u64>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Vec<u64>| buffer.len() >= words && buffer.len() / 2 <= words;
        let at = kept.iter().rposition(fits)?;
        Some(kept.swap_remove(at))
    }

    fn give_back(&self, words: Vec<u64>) {
        let bytes = words.len() * 8;
        if !(SHORTEST..=KEPT).contains(&bytes) {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held: usize = kept.iter().map(|buffer| buffer.len() * 8).sum();
        let mut oldest = 0;
        while held + bytes > KEPT {
            held -= kept[oldest].len() * 8;
            oldest += 1;
        }
        kept.drain(..oldest);
        kept.push(words);
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
        assert_eq!(pool.take(90_000).freeze().as_ptr(), address);
        drop(pool.take(100));
        assert_eq!(pool.0.lock().unwrap().len(), 1);
        assert_eq!(pool.take(13).freeze().len(), 13);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Pool::default();
        let taken: Vec<_> = (0..20).map(|_| pool.take(10 << 20)).collect();
        drop(taken);
        let held: usize = pool.0.lock().unwrap().iter().map(|words| words.len() * 8).sum();
        assert!((50 << 20..=KEPT).contains(&held), "{held}");
        drop(pool.take(KEPT + 8));
        assert!(pool.0.lock().unwrap().len() <= 6);
    }
}
