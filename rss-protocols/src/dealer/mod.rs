//! Tapes: a dealer's correlated randomness for one of two parties, in places that are each used
//! once.
//!
//! A tape is a file. After a header come a seed for the data that all places share, then the places. A place is a
//! seed and words: the seed gives all streams that its party shares with the dealer, and the words are the dealer's
//! messages. A place without its seed is useless. A party that takes a place destroys the seed on disk before it
//! uses it, so a crash never leads to a second use. A copy of a tape does, so tapes are moved, and never restored
//! from a backup.
//!
//! All seeds of a tape are encrypted under its key. The dealer writes the key into the file. [`Tape::without_key`]
//! removes it, for a party that keeps it elsewhere: without the key the file is useless.

mod record;
pub(crate) mod replay;
mod seeds;

use mpc_core::{Error, Result};
use ring_arith::Generator;

pub use record::Dealer;
pub use replay::Tape;
pub use seeds::TapeKey;

/// The first bytes of every tape; the last of them is the format's version.
const MAGIC: [u8; 16] = *b"trefoil tape  3\n";

/// Bytes of the header. After it come the version to which the first use bound the tape, the tape's key, the common
/// seed and the places.
const HEADER: usize = 192;

/// Of the header, those that its hash is of.
const HASHED: usize = HEADER - HASH;

const HASH: usize = 32;

const SEED: usize = 32;

/// The offset of the version to which the first use binds a tape.
const BOUND: u64 = HEADER as u64;

/// The offset of the tape's key, which is 0 where the party keeps it elsewhere.
const KEY: u64 = BOUND + HASH as u64;

/// The offset of the common seed.
const COMMON: u64 = KEY + SEED as u64;

/// The offset of the first place.
const PLACES: u64 = COMMON + SEALED as u64;

/// Bytes of a seed on a tape: encrypted, and then a hash of it.
const SEALED: usize = SEED + HASH;

/// Bytes of words that are checked together. Each such chunk has a checksum before it.
const CHUNK: usize = 1 << 22;

/// The public part of a tape.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    /// Of both tapes of a pair, and of no others.
    id: [u8; 16],
    /// A hash of all that the dealer's run followed from: program, shapes, options.
    digest: [u8; 32],
    /// Whose tape it is: party 0 or 1.
    party: u8,
    generator: Generator,
    places: u64,
    /// Bytes of words of each place.
    words: u64,
    /// Examples that a place is for, by its maker's statement; 0 if unknown.
    examples: u64,
    /// A hash of the tape's key.
    key: [u8; 32],
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..64].copy_from_slice(&self.digest);
        bytes[64] = self.party;
        let name = self.generator.name().as_bytes();
        bytes[72..72 + name.len()].copy_from_slice(name);
        bytes[104..112].copy_from_slice(&self.places.to_le_bytes());
        bytes[112..120].copy_from_slice(&self.words.to_le_bytes());
        bytes[120..128].copy_from_slice(&self.examples.to_le_bytes());
        bytes[128..160].copy_from_slice(&self.key);
        let hash = blake3::hash(&bytes[..HASHED]);
        bytes[HASHED..].copy_from_slice(hash.as_bytes());
        bytes
    }

    /// # Errors
    /// The fault, for people.
    fn from_bytes(bytes: &[u8; HEADER]) -> Result<Self, String> {
        if bytes[..15] != MAGIC[..15] {
            return Err("this is not a tape, or its dealer did not finish it".to_owned());
        }
        let hash = blake3::hash(&bytes[..HASHED]);
        if bytes[..16] != MAGIC || bytes[HASHED..] != hash.as_bytes()[..] {
            return Err("the tape's first bytes are damaged: have it made again".to_owned());
        }
        let part = |from: usize, to: usize| &bytes[from..to];
        let number = |from: usize| u64::from_le_bytes(array(part(from, from + 8)));
        let name: Vec<u8> = part(72, 104).iter().copied().take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        let generator = Generator::named(&name);
        Ok(Self {
            id: array(part(16, 32)),
            digest: array(part(32, 64)),
            party: bytes[64],
            generator: generator.ok_or_else(|| format!("there is no generator `{name}`"))?,
            places: number(104),
            words: number(112),
            examples: number(120),
            key: array(part(128, 160)),
        })
    }

    /// Bytes of a place: its seed, and chunks with their checksums.
    ///
    /// `None` if the number does not fit a file's size.
    fn stride(&self) -> Option<u64> {
        let sums = self.words.div_ceil(CHUNK as u64).checked_mul(HASH as u64)?;
        self.words.checked_add(sums)?.checked_add(SEALED as u64)
    }

    /// The offset of a place, counted from 0; the end of the file for one past the last.
    fn start(&self, place: u64) -> Option<u64> {
        self.stride()?.checked_mul(place)?.checked_add(PLACES)
    }
}

/// The checksum before each chunk of a place. It begins with the place's seed, so it fails for a chunk of another
/// place, and for one whose seed has been destroyed.
fn chunk_sum(seed: &[u8; SEED], place: u64, chunk: u64, words: &[u8]) -> [u8; HASH] {
    let mut hash = blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 chunk of a tape");
    hash.update(seed).update(&place.to_le_bytes()).update(&chunk.to_le_bytes()).update(words);
    *hash.finalize().as_bytes()
}

/// The first bytes of a slice that is known to be long enough.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

fn unusable(what: &str, reason: impl Into<String>) -> Error {
    Error::Net(net::Error::Config { what: what.to_owned(), reason: reason.into() })
}
