//! Names of jobs and clusters, and hashes of what is public about them.

use std::{fmt, str::FromStr};

use ring_arith::{EngineTensor, Tensor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Error, Result};

/// The random name of a job; of a `put`, also the version of the model it makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 16]);

/// A hash of all that is public about a job. Servers compare it before they start, so that no two of
/// them work on different jobs or versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Digest([u8; 32]);

impl Id {
    /// A fresh one, from the operating system's randomness.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system has none.
    pub fn random() -> Result<Self> {
        let mut id = [0; 16];
        fill_random(&mut id)?;
        Ok(Self(id))
    }
}

impl Id {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl Digest {
    /// The hash of labelled parts, each preceded by its length.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 job digest");
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The hash of tensors, with their shapes.
    #[must_use]
    pub fn of_tensors<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 digest of tensors");
        for tensor in tensors {
            let dims = tensor.shape().dims();
            hash.update(&(dims.len() as u64).to_le_bytes());
            for &dim in dims {
                hash.update(&(dim as u64).to_le_bytes());
            }
            hash.update(&tensor.to_bytes());
        }
        Self(hash.finalize().into())
    }

    /// All of it in hexadecimal.
    #[must_use]
    pub fn letters(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A hash of this one under a key: without the key it shows nothing.
    #[must_use]
    pub fn under(&self, key: &[u8; 32], purpose: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 digest under a key");
        hash.update(key).update(&Self::of(purpose).0).update(&self.0);
        Self(hash.finalize().into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Fills a buffer from the operating system's randomness.
///
/// # Errors
/// [`Error::Internal`] if the system has none.
pub(crate) fn fill_random(buffer: &mut [u8]) -> Result<()> {
    getrandom::fill(buffer)
        .map_err(|cause| Error::Internal(format!("the system gives no randomness: {cause}")))
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<[u8; 16]> for Id {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// Shows the first bytes, which are enough to distinguish two.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "an id is 32 hexadecimal digits".to_owned();
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The cluster that a store belongs to: a hash of its authority's public key. So members that are issued by the same
/// authority have the same, also after certificates were renewed, and operators need not type it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(Id);

impl ClusterId {
    /// The cluster of an authority with this public key.
    #[must_use]
    pub fn of_key(authority: &[u8]) -> Self {
        let hash = blake3::derive_key("trefoil 2026 cluster", authority);
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        Self(Id::from(id))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A server of a cluster, to which its files belong. The store as a whole and each of its files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The cluster.
    pub cluster: ClusterId,
    /// The party whose shares these are.
    pub party: usize,
}

impl Holder {
    /// The bytes to which encryption is bound.
    pub(crate) fn bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.cluster.0.bytes());
        bytes[16..].copy_from_slice(&(self.party as u64).to_le_bytes());
        bytes
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "party {} of cluster {}", self.party, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_text_and_json() {
        let id = Id::random().unwrap();
        assert_eq!(id.to_string().parse::<Id>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<Id>(&json).unwrap(), id);
        for text in ["", "00", &"g".repeat(32), &"+".repeat(32), &"é".repeat(16), &"0".repeat(33)]
        {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
    }

    #[test]
    fn digests_tell_where_parts_end() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_eq!(Digest::of(&[b"ab"]), Digest::of(&[b"ab"]));
    }
}
