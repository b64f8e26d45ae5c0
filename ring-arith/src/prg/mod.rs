//! Pseudo-random streams of words, addressed by position.

mod aes_ctr;
mod chacha;
mod philox;
mod reader;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

pub use reader::StreamReader;

/// A generator of pseudo-random words. Equal on all parties of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Generator {
    /// AES-128 in counter mode: the fastest on CPUs with AES instructions for whole vectors.
    Aes128Ctr,
    /// ChaCha with 12 rounds: the fastest on GPUs, and on CPUs that have AVX-512 without those.
    ChaCha12,
    /// ChaCha with 20 rounds.
    ChaCha20,
    /// Philox4x32-10. Not secure: for comparison with published timings only.
    InsecurePhilox,
}

impl Generator {
    const ALL: [Self; 4] = [Self::Aes128Ctr, Self::ChaCha12, Self::ChaCha20, Self::InsecurePhilox];

    /// The name under which parties agree on the generator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Ctr => "aes-128-ctr",
            Self::ChaCha12 => "chacha12",
            Self::ChaCha20 => "chacha20",
            Self::InsecurePhilox => "insecure-philox",
        }
    }

    /// The generator of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|generator| generator.name() == name)
    }

    /// The generators that are fast on this CPU, best first. The other one is named only if it is
    /// not much slower than on other CPUs: one slow party makes all three wait.
    pub(crate) fn quick_on_this_cpu() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        if cfg!(chacha20_avx512)
            && crate::Isa::detect().kind() >= crate::Kind::Avx512
            && !is_x86_feature_detected!("vaes")
        {
            return vec![Self::ChaCha12];
        }
        vec![Self::Aes128Ctr, Self::ChaCha12]
    }
}

/// An expanded key of a generator. Zeroized when the last clone is dropped; `Debug` shows only the
/// generator.
#[derive(Clone)]
pub struct StreamKey {
    generator: Generator,
    inner: Arc<Inner>,
}

/// One stream of a key: words at positions `0..2^63`, each computable without the others.
///
/// A stream is the generator's key stream read as little-endian words. With AES the counter block
/// is `nonce` in the upper half and the block's position in the lower, big-endian as in SP 800-38A.
/// Word `i` is half of block `i / 2`. With ChaCha `nonce` is the 64-bit nonce, and the position is
/// the 64-bit counter of the original cipher, eight words to a block. With Philox the position is
/// the lower half of the counter and `nonce` the upper, two words to a block.
#[derive(Clone, Debug)]
pub struct Stream {
    key: StreamKey,
    nonce: u64,
}

/// The key as it was given and the schedule made of it.
struct Inner {
    bytes: Zeroizing<[u8; 32]>,
    schedule: Schedule,
}

/// The schedule that a generator computes once for a key. Each variant wipes itself.
#[allow(clippy::large_enum_variant)] // it lies behind an `Arc` and is made once for a key
enum Schedule {
    Aes(aes_ctr::Aes128Ctr),
    ChaCha12(chacha::ChaCha<chacha20::R12>),
    ChaCha20(chacha::ChaCha<chacha20::R20>),
    Philox(philox::Philox),
}

/// A generator that makes whole blocks of `WORDS` words from a nonce and a block number.
trait Blocks {
    /// Words in a block.
    const WORDS: usize;

    /// Fills `out`, a whole number of blocks, with the blocks from `first` on.
    fn blocks(&self, nonce: u64, first: u64, out: &mut [u64]);

    /// Fills `out` with the words from `first` on.
    fn fill(&self, nonce: u64, first: u64, out: &mut [u64]) {
        let width = Self::WORDS as u64;
        let (mut block, skip) = (first / width, (first % width) as usize);
        let mut rest = out;
        if skip > 0 {
            let (head, tail) = rest.split_at_mut((Self::WORDS - skip).min(rest.len()));
            self.part(nonce, block, skip, head);
            (rest, block) = (tail, block.wrapping_add(1));
        }
        let whole = rest.len() / Self::WORDS * Self::WORDS;
        let (body, tail) = rest.split_at_mut(whole);
        if !body.is_empty() {
            self.blocks(nonce, block, body);
        }
        if !tail.is_empty() {
            self.part(nonce, block.wrapping_add((whole / Self::WORDS) as u64), 0, tail);
        }
    }

    /// Words `skip..` of one block.
    fn part(&self, nonce: u64, block: u64, skip: usize, out: &mut [u64]) {
        // ChaCha makes two blocks in a third of the time of one, for which the crate's code calls a
        // function for every rotation.
        let mut words = Zeroizing::new([0; 16]);
        self.blocks(nonce, block, &mut words[..2 * Self::WORDS]);
        out.copy_from_slice(&words[skip..skip + out.len()]);
    }
}

impl StreamKey {
    /// Expands a key. AES-128 uses its first 16 bytes, Philox its first 8, ChaCha all 32.
    pub fn new(generator: Generator, key: &[u8; 32]) -> Self {
        let schedule = match generator {
            Generator::Aes128Ctr => Schedule::Aes(aes_ctr::Aes128Ctr::new(key)),
            Generator::ChaCha12 => Schedule::ChaCha12(chacha::ChaCha::new(key)),
            Generator::ChaCha20 => Schedule::ChaCha20(chacha::ChaCha::new(key)),
            Generator::InsecurePhilox => Schedule::Philox(philox::Philox::new(key)),
        };
        Self { generator, inner: Arc::new(Inner { bytes: Zeroizing::new(*key), schedule }) }
    }

    /// The generator.
    pub fn generator(&self) -> Generator {
        self.generator
    }

    /// The stream of this key with the given nonce. A nonce names one use: a protocol's operation.
    pub fn stream(&self, nonce: u64) -> Stream {
        Stream { key: self.clone(), nonce }
    }

    /// The key itself, for engines that expand it on a device. Anyone with the key can compute
    /// every stream.
    pub fn expose(&self) -> &[u8; 32] {
        &self.inner.bytes
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

    /// Fills `out` with the words from position `first` on. The same position always holds the same
    /// word, whatever the sizes of the pieces that are asked for.
    pub fn fill(&self, first: u64, out: &mut [u64]) {
        match &self.key.inner.schedule {
            Schedule::Aes(aes) => aes.fill(self.nonce, first, out),
            Schedule::ChaCha12(chacha) => chacha.fill(self.nonce, first, out),
            Schedule::ChaCha20(chacha) => chacha.fill(self.nonce, first, out),
            Schedule::Philox(philox) => philox.fill(self.nonce, first, out),
        }
    }

    /// A random number generator over the words from position `first` on.
    pub fn reader(&self, first: u64) -> StreamReader {
        StreamReader::new(self.clone(), first)
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamKey({:?})", self.generator)
    }
}

#[cfg(test)]
mod tests;
