//! Tapes: what a dealer made for one of two parties, in places of which each is used once.
//!
//! A tape is a file. Behind a header lie a seed for what all places have in common, then as many places as the
//! dealer was asked for. A place is a seed of its own and words: from the seed follow all streams that its party has
//! in common with the dealer, and the words are what the dealer sent. Without its seed a place is worth nothing, and
//! a party that takes a place destroys the seed on disk before it uses it: no crash, at whatever moment, leads to a
//! place being used twice. A copy of a tape does, so tapes are moved, and never restored from a backup.

mod record;
mod replay;

use mpc_core::{Error, Result};
use ring_arith::Generator;

pub use record::Dealer;
pub use replay::Tape;

/// The first bytes of every tape; the last of them is the format's version.
const MAGIC: [u8; 16] = *b"trefoil tape  1\n";

/// Bytes of the header; behind it lie the version to which the first use bound the tape, the common seed and
/// the places.
const HEADER: usize = 160;

/// Of the header, those that its hash is of.
const HASHED: usize = HEADER - HASH;

const HASH: usize = 32;

const SEED: usize = 32;

/// The offset of the version to which the first use binds a tape.
const BOUND: u64 = HEADER as u64;

/// The offset of the common seed.
const COMMON: u64 = BOUND + HASH as u64;

/// The offset of the first place.
const PLACES: u64 = COMMON + SEED as u64;

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
    /// Examples that a place is for, as its maker says; 0 if nothing was said.
    examples: u64,
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
        })
    }

    /// Bytes of a place: its seed, and chunks with their checksums.
    ///
    /// `None` if no file can have so many.
    fn stride(&self) -> Option<u64> {
        let sums = self.words.div_ceil(CHUNK as u64).checked_mul(HASH as u64)?;
        self.words.checked_add(sums)?.checked_add(SEED as u64)
    }

    /// The offset of a place, counted from 0; the end of the file for one past the last.
    fn start(&self, place: u64) -> Option<u64> {
        self.stride()?.checked_mul(place)?.checked_add(PLACES)
    }
}

/// A checksum that a chunk of a place has before it: begun with the place's seed, so that a chunk that lies elsewhere,
/// or one whose seed is spent, does not pass. It is against damage alone, and quicker than a hash. Each step maps
/// a lane one to one, so damage to a single word of a lane is always noticed.
fn chunk_sum(seed: &[u8; SEED], place: u64, chunk: u64, words: &[u8]) -> [u8; HASH] {
    let mut hash = blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 chunk of a tape");
    hash.update(seed).update(&place.to_le_bytes()).update(&chunk.to_le_bytes());
    let start = *hash.finalize().as_bytes();
    let lane = |at: usize| u64::from_le_bytes(array(&start[8 * at..]));
    let mut lanes = [0, 1, 2, 3].map(lane);
    let blocks = words.chunks_exact(HASH);
    let rest = blocks.remainder();
    let mut last = [0; HASH];
    last[..rest.len()].copy_from_slice(rest);
    for block in blocks.chain([&last[..]]) {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            // An odd factor, the golden ratio's: multiplying by it is one to one.
            *lane = (*lane ^ u64::from_le_bytes(array(word))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *lane = lane.rotate_left(29);
        }
    }
    let mut sum = [0; HASH];
    sum.chunks_exact_mut(8)
        .zip(lanes)
        .for_each(|(sum, lane)| sum.copy_from_slice(&lane.to_le_bytes()));
    sum
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
