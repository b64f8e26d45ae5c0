//! Pseudo-random streams of words, addressed by position.

use std::fmt;

/// A generator of pseudo-random words. Equal on all parties of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Generator {
    /// AES-128 in counter mode: the fastest on CPUs with AES instructions.
    Aes128Ctr,
    /// ChaCha with 12 rounds: the choice when a party computes on a GPU.
    ChaCha12,
    /// ChaCha with 20 rounds.
    ChaCha20,
    /// Philox4x32-10. Not secure: for comparison with published timings only.
    InsecurePhilox,
}

/// An expanded key of a generator. Zeroized when the last clone is dropped; `Debug` shows only the
/// generator.
#[derive(Clone)]
pub struct StreamKey {
    generator: Generator,
}

/// One stream of a key: words at positions `0..2^63`, each computable without the others.
///
/// With AES the counter block is `nonce` in the upper half and the block's position in the lower;
/// with ChaCha `nonce` is the 64-bit nonce and the position the 64-bit counter.
#[derive(Clone, Debug)]
pub struct Stream {
    key: StreamKey,
    nonce: u64,
}

impl StreamKey {
    /// The generator.
    pub fn generator(&self) -> Generator {
        self.generator
    }

    /// The stream of this key with the given nonce. A nonce names one use: a protocol's operation.
    pub fn stream(&self, nonce: u64) -> Stream {
        Stream { key: self.clone(), nonce }
    }
}

impl Stream {
    /// The key.
    pub fn key(&self) -> &StreamKey {
        &self.key
    }

    /// The nonce.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamKey({:?})", self.generator)
    }
}
