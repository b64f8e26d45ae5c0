//! Streams as random number generators in the sense of `rand_core`.

use std::convert::Infallible;
use std::fmt;

use rand_core::{SeedableRng, TryCryptoRng, TryRng};
use zeroize::Zeroizing;

use super::{Generator, Stream, StreamKey};

/// Words of a [`Stream`] one after the other, as a `rand_core` generator.
///
/// A call for 32 bits takes the lower half of a word, and bytes take whole words. So equal
/// sequences of calls give equal results. The generator of [`SeedableRng`] is
/// [`Generator::ChaCha12`].
#[derive(Clone)]
pub struct StreamReader {
    stream: Stream,
    /// Position of the first word that is not in the buffer.
    next: u64,
    buffer: Zeroizing<[u64; BUFFER]>,
    used: usize,
}

/// Words generated at a time.
const BUFFER: usize = 64;

impl StreamReader {
    pub(super) fn new(stream: Stream, first: u64) -> Self {
        Self { stream, next: first, buffer: Zeroizing::new([0; BUFFER]), used: BUFFER }
    }

    /// Position of the next word in the stream.
    pub fn position(&self) -> u64 {
        self.next.wrapping_sub((BUFFER - self.used) as u64)
    }

    /// The next word.
    fn word(&mut self) -> u64 {
        if self.used == BUFFER {
            self.stream.fill(self.next, &mut *self.buffer);
            self.next = self.next.wrapping_add(BUFFER as u64);
            self.used = 0;
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }
}

impl TryRng for StreamReader {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.word() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.word())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Holds for every generator but [`Generator::InsecurePhilox`], whose name is the warning.
impl TryCryptoRng for StreamReader {}

impl SeedableRng for StreamReader {
    type Seed = [u8; 32];

    fn from_seed(seed: Self::Seed) -> Self {
        StreamKey::new(Generator::ChaCha12, &Zeroizing::new(seed)).stream(0).reader(0)
    }
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamReader({:?})", self.stream.key())
    }
}
