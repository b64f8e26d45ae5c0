//! Seeds of a tape, encrypted under its key.

use std::fmt;

use zeroize::Zeroizing;

use super::{HASH, SEALED, SEED, array};

/// The key under which a tape's seeds are encrypted. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct TapeKey(Zeroizing<[u8; 32]>);

impl TapeKey {
    /// A key that [`TapeKey::bytes`] gave.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// The key, to be kept where a copy of the tape is not.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash of the key in a tape's header, which detects a wrong key.
    pub(super) fn hash(&self) -> [u8; 32] {
        blake3::derive_key("trefoil rss-protocols 2026 check of a tape's key", &*self.0)
    }

    /// The stored form of a seed at an offset of the tape: under a pad for this offset only, and then a hash.
    pub(super) fn seal(&self, at: u64, seed: &[u8; SEED]) -> [u8; SEALED] {
        let mut sealed = [0; SEALED];
        let (under, hash) = sealed.split_at_mut(SEED);
        under.copy_from_slice(&self.padded(at, seed)[..]);
        hash.copy_from_slice(&self.sum(at, seed));
        sealed
    }

    /// The seed at an offset; `None` if it is damaged.
    pub(super) fn open(&self, at: u64, sealed: &[u8; SEALED]) -> Option<Zeroizing<[u8; SEED]>> {
        let seed = self.padded(at, &array(sealed));
        (self.sum(at, &seed) == sealed[SEED..]).then_some(seed)
    }

    fn padded(&self, at: u64, seed: &[u8; SEED]) -> Zeroizing<[u8; SEED]> {
        let pad = self.derived("trefoil rss-protocols 2026 pad of a seed", at);
        let mut padded = Zeroizing::new(*seed);
        padded.iter_mut().zip(*pad.finalize().as_bytes()).for_each(|(byte, pad)| *byte ^= pad);
        padded
    }

    fn sum(&self, at: u64, seed: &[u8; SEED]) -> [u8; HASH] {
        let mut hash = self.derived("trefoil rss-protocols 2026 hash of a seed", at);
        *hash.update(seed).finalize().as_bytes()
    }

    fn derived(&self, what: &str, at: u64) -> blake3::Hasher {
        let mut hash = blake3::Hasher::new_derive_key(what);
        hash.update(&*self.0).update(&at.to_le_bytes());
        hash
    }
}

impl fmt::Debug for TapeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapeKey")
    }
}
