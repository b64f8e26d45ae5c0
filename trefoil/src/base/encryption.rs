//! Encryption of what lies on the disk, under a key that its operator keeps elsewhere.
//!
//! Each file has a separate key: BLAKE3 in its derivation mode, keyed with the store's key. Its inputs are a fresh
//! salt, the server and its cluster, the name and version of what the file belongs to, and which of its files it is. So
//! a file in another place does not open. Its bytes are AES-256-GCM in chunks of 1 MiB, whose numbers are the nonces; the
//! last chunk is marked, so that none can be cut off.
//!
//! Texts that stay readable, such as manifests, have a code by which only a holder of the key can have written them
//! there.

use std::{fmt, fs, path::Path, process::Command};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::{Error, Holder, Id, Result, files::check_private, id::fill_random};

/// The first bytes of a sealed file that is bound to no server.
const LOOSE: &[u8; 16] = b"trefoil-sealed 1";

/// The first bytes of a sealed file that is bound to a server of a cluster. Earlier programs began such files as well
/// with [`LOOSE`].
const BOUND: &[u8; 16] = b"trefoil-sealed 2";

/// The length of both.
const MAGIC: usize = 16;

/// Bytes of a salt, of a chunk and of its tag.
const SALT: usize = 32;
const CHUNK: usize = 1 << 20;
const TAG: usize = 16;

/// The key of a server's store. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct StoreKey(Zeroizing<[u8; 32]>);

/// The place of a file, which its encryption is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The server in whose data folder it lies, if it lies in one.
    pub holder: Option<Holder>,
    pub name: &'a str,
    pub version: Id,
    /// `plan`, `shares`, `tokenizer`, `manifest`, `staged`, `inventory`, `tape`, `identity` or `saved`.
    pub kind: &'a str,
}

impl<'a> Place<'a> {
    /// The place of a file that belongs to no version and no data folder.
    pub(crate) fn loose(name: &'a str, kind: &'a str) -> Self {
        Self { holder: None, name, version: Id::from([0; 16]), kind }
    }

    /// The place of a file of a server that belongs to no version.
    pub(crate) fn unversioned(holder: Holder, name: &'a str, kind: &'a str) -> Self {
        Self { holder: Some(holder), ..Self::loose(name, kind) }
    }

    /// The first bytes of a file of this place.
    fn magic(&self) -> &'static [u8; MAGIC] {
        if self.holder.is_some() { BOUND } else { LOOSE }
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey")
    }
}

impl StoreKey {
    /// A fresh key as it is written to a file: 64 hexadecimal letters and a line's end.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system's random generator fails.
    pub fn generate() -> Result<Zeroizing<String>> {
        let mut bytes = Zeroizing::new([0; 32]);
        fill_random(&mut *bytes)?;
        let mut text = Zeroizing::new(String::with_capacity(65));
        for byte in bytes.iter() {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push('\n');
        Ok(text)
    }

    /// Reads a key file, which its owner alone may read.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be read, others may read it, or it is not a key.
    pub fn read(path: &Path) -> Result<Self> {
        check_private(path)?;
        let bad = |reason: String| Error::config(path.display(), reason);
        let text =
            fs::read_to_string(path).map_err(|cause| bad(format!("cannot be read: {cause}")))?;
        Self::parse(&Zeroizing::new(text))
            .ok_or_else(|| bad("is not a key; `trefoil store key FILE` makes one".to_owned()))
    }

    /// Asks a command for the key, so that something else keeps it.
    ///
    /// # Errors
    /// [`Error::Config`] if the command fails, or prints no key.
    pub fn of_command(words: &[String]) -> Result<Self> {
        let bad = |reason: String| Error::config("store.command", reason);
        let [program, arguments @ ..] = words else {
            return Err(bad("names no program".to_owned()));
        };
        let output = Command::new(program).args(arguments).output();
        let output = output.map_err(|cause| bad(format!("`{program}` cannot be run: {cause}")))?;
        let text = Zeroizing::new(String::from_utf8(output.stdout).unwrap_or_default());
        if !output.status.success() {
            return Err(bad(format!("`{program}` ended with {}", output.status)));
        }
        Self::parse(&text)
            .ok_or_else(|| bad(format!("`{program}` printed no key of 64 hexadecimal letters")))
    }

    fn parse(text: &str) -> Option<Self> {
        parse_key(text).map(Self)
    }

    /// The key of one file.
    fn of_file(&self, salt: &[u8], place: Place<'_>) -> LessSafeKey {
        let key = self.derived("trefoil 2026 file of a store", salt, place);
        let key = UnboundKey::new(&AES_256_GCM, &*key).expect("a key of AES-256 has 32 bytes");
        LessSafeKey::new(key)
    }

    /// A key for one purpose at one place.
    fn derived(&self, context: &str, salt: &[u8], place: Place<'_>) -> Zeroizing<[u8; 32]> {
        let mut hash = blake3::Hasher::new_derive_key(context);
        hash.update(&*self.0).update(salt);
        let holder = place.holder.map(|holder| holder.bytes());
        let parts = [place.name.as_bytes(), &place.version.bytes(), place.kind.as_bytes()];
        for part in parts.into_iter().chain(holder.iter().map(|bytes| &bytes[..])) {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Zeroizing::new(*hash.finalize().as_bytes())
    }

    /// The code of a text that stays readable at its place. Nobody without the key can make it. Comparing two takes
    /// the same time whatever they are.
    pub(crate) fn code(&self, place: Place<'_>, text: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.derived("trefoil 2026 code of a text", &[], place), text)
    }

    /// The bytes of a file, sealed.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system's random generator fails.
    pub(crate) fn seal(&self, place: Place<'_>, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut salt = [0; SALT];
        fill_random(&mut salt)?;
        let key = self.of_file(&salt, place);
        let chunks = bytes.len().div_ceil(CHUNK).max(1);
        let mut sealed = Vec::with_capacity(MAGIC + SALT + bytes.len() + chunks * TAG);
        sealed.extend_from_slice(place.magic());
        sealed.extend_from_slice(&salt);
        for number in 0..chunks {
            let chunk = &bytes[number * CHUNK..bytes.len().min((number + 1) * CHUNK)];
            let from = sealed.len();
            sealed.extend_from_slice(chunk);
            let nonce = nonce(number, number + 1 == chunks);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed[from..]);
            let tag = tag.map_err(|_| Error::Internal("a file cannot be sealed".to_owned()))?;
            sealed.extend_from_slice(tag.as_ref());
        }
        Ok(sealed)
    }

    /// The bytes of a sealed file.
    ///
    /// # Errors
    /// A sentence that states why they do not open.
    pub(crate) fn open(&self, place: Place<'_>, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        if !is_sealed(&bytes) {
            return Err("it is not encrypted, and this store has a key: run `trefoil store rekey`"
                .to_owned());
        }
        if !bytes.starts_with(place.magic()) {
            return Err("an earlier program encrypted it, which did not bind it to its cluster and party: run \
                        `trefoil store rekey`"
                .to_owned());
        }
        self.open_sealed(place, bytes)
    }

    /// The bytes of a sealed file of this program or of one before, which bound none to a server.
    fn open_any(&self, place: Place<'_>, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let holder = place.holder.filter(|_| bytes.starts_with(BOUND));
        self.open_sealed(Place { holder, ..place }, bytes)
    }

    fn open_sealed(&self, place: Place<'_>, mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let head = MAGIC + SALT;
        if bytes.len() < head + TAG {
            return Err("it is cut off".to_owned());
        }
        let key = self.of_file(&bytes[MAGIC..head], place);
        let chunks = (bytes.len() - head).div_ceil(CHUNK + TAG);
        let mut to = 0;
        for number in 0..chunks {
            let from = head + number * (CHUNK + TAG);
            let end = bytes.len().min(from + CHUNK + TAG);
            let nonce = nonce(number, number + 1 == chunks);
            let opened = key.open_in_place(nonce, Aad::empty(), &mut bytes[from..end]);
            let opened = opened.map(|plain| plain.len()).map_err(|_| {
                "it does not open with this store's key: the key is another one, or the file was changed or is that of \
                 another name, version or server"
                    .to_owned()
            })?;
            bytes.copy_within(from..from + opened, to);
            to += opened;
        }
        bytes.truncate(to);
        Ok(bytes)
    }
}

/// The bytes of a file as they were before they were sealed, at a server that has this key, or none.
///
/// # Errors
/// A sentence that states why they do not open.
pub(crate) fn opened(
    key: Option<&StoreKey>,
    place: Place<'_>,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, String> {
    match key {
        Some(key) => key.open(place, bytes),
        None if is_sealed(&bytes) => {
            Err("it is encrypted, and this server has no key: set `[store] key` in party.toml"
                .to_owned())
        }
        None => Ok(bytes),
    }
}

/// Bytes under the key `from`, or plain, encrypted under the key `to`, or plain without one. `None` if they are so
/// already, as after a rekeying that was interrupted.
///
/// # Errors
/// A sentence that states why it does not open.
pub(crate) fn rekeyed(
    place: Place<'_>,
    bytes: Vec<u8>,
    from: Option<&StoreKey>,
    to: Option<&StoreKey>,
) -> Result<Option<Vec<u8>>, String> {
    if to.is_some_and(|key| key.open(place, bytes.clone()).is_ok()) {
        return Ok(None);
    }
    let plain = match from {
        _ if !is_sealed(&bytes) => bytes,
        Some(key) => key.open_any(place, bytes)?,
        // An earlier program may have encrypted it under the same key.
        None => to
            .and_then(|key| key.open_any(place, bytes).ok())
            .ok_or("it is encrypted under another key: name that with --from")?,
    };
    let Some(key) = to else { return Ok(Some(plain)) };
    let plain = Zeroizing::new(plain);
    key.seal(place, &plain).map(Some).map_err(|error| error.to_string())
}

/// True if bytes are those of a sealed file.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(LOOSE) || bytes.starts_with(BOUND)
}

/// The nonce of a chunk: its number, and whether it is the last.
fn nonce(number: usize, last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = u8::from(last);
    bytes[4..].copy_from_slice(&(number as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The 32 bytes of 64 hexadecimal letters, with nothing but white space behind them.
pub(crate) fn parse_key(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let text = text.trim_end().as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut bytes = Zeroizing::new([0; 32]);
    for (byte, pair) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::ClusterId, testing::holder};

    fn key(byte: u8) -> StoreKey {
        StoreKey(Zeroizing::new([byte; 32]))
    }

    fn place() -> Place<'static> {
        Place { holder: Some(holder(0)), name: "m", version: Id::from([0; 16]), kind: "shares" }
    }

    #[test]
    fn a_file_opens_with_its_key_in_its_place_alone() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let sealed = key(1).seal(place(), &bytes).unwrap();
            assert_eq!(key(1).open(place(), sealed.clone()).unwrap(), bytes, "{len}");
            assert_ne!(sealed, key(1).seal(place(), &bytes).unwrap(), "no salt is used twice");
            let cluster = ClusterId::of_key(b"another");
            let elsewhere = [
                Place { holder: Some(holder(1)), ..place() },
                Place { holder: Some(Holder { cluster, ..holder(0) }), ..place() },
                Place { holder: None, ..place() },
                Place { name: "n", ..place() },
                Place { version: Id::from([1; 16]), ..place() },
                Place { kind: "plan", ..place() },
            ];
            for place in elsewhere {
                key(1).open(place, sealed.clone()).unwrap_err();
                assert_ne!(key(1).code(place, &bytes), key(1).code(self::place(), &bytes));
            }
            key(2).open(place(), sealed.clone()).unwrap_err();
            for at in [16, 48, sealed.len() - 1] {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                key(1).open(place(), changed).unwrap_err();
            }
            for cut in [1, TAG, CHUNK + TAG] {
                if let Some(left) = sealed.len().checked_sub(cut) {
                    key(1).open(place(), sealed[..left].to_vec()).unwrap_err();
                }
            }
        }
        assert!(key(1).open(place(), b"plain".to_vec()).unwrap_err().contains("not encrypted"));
    }

    #[test]
    fn what_lies_under_one_key_or_none_is_brought_under_another_or_none() {
        let (one, two) = (key(1), key(2));
        let keys = [None, Some(&one), Some(&two)];
        for (from, to) in keys.iter().flat_map(|from| keys.map(|to| (*from, to))) {
            let before = match from {
                Some(key) => key.seal(place(), b"secret").unwrap(),
                None => b"secret".to_vec(),
            };
            let after = rekeyed(place(), before.clone(), from, to).unwrap();
            let after = after.unwrap_or_else(|| before.clone());
            assert_eq!(opened(to, place(), after.clone()).unwrap(), b"secret");
            assert_eq!(is_sealed(&after), to.is_some());
            if to.is_some() {
                assert_eq!(rekeyed(place(), after, from, to).unwrap(), None, "it is done");
            }
            if from.is_some() && from.map(|key| *key.0) != to.map(|key| *key.0) {
                let text = rekeyed(place(), before, None, to).unwrap_err();
                assert!(text.contains("--from"), "{text}");
            }
        }
        let sealed = one.seal(place(), b"secret").unwrap();
        assert!(opened(None, place(), sealed).unwrap_err().contains("has no key"));
    }

    #[test]
    fn what_an_earlier_program_encrypted_is_brought_under_the_same_key_by_rekeying_alone() {
        let (one, two) = (key(1), key(2));
        let earlier = Place { holder: None, ..place() };
        let before = one.seal(earlier, b"secret").unwrap();
        let text = one.open(place(), before.clone()).unwrap_err();
        assert!(text.contains("trefoil store rekey"), "{text}");
        for (from, to) in [(None, &one), (Some(&one), &one), (Some(&one), &two)] {
            let after = rekeyed(place(), before.clone(), from, Some(to)).unwrap().unwrap();
            assert_eq!(to.open(place(), after).unwrap(), b"secret");
        }
        let text = rekeyed(place(), before.clone(), None, Some(&two)).unwrap_err();
        assert!(text.contains("--from"), "{text}");
        // What lies in no data folder is as it was.
        assert_eq!(one.open(earlier, before).unwrap(), b"secret");
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let text = StoreKey::generate().unwrap();
        let StoreKey(bytes) = StoreKey::parse(&text).unwrap();
        assert_eq!(text.trim_end(), bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
        assert_eq!(format!("{:?}", key(7)), "StoreKey");
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(66)] {
            assert!(StoreKey::parse(bad).is_none(), "{bad}");
        }
        let words = ["sh".to_owned(), "-c".to_owned(), format!("printf {}", "ab".repeat(32))];
        assert_eq!(*StoreKey::of_command(&words).unwrap().0, [0xab; 32]);
        let text = StoreKey::of_command(&["false".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("store.command"), "{text}");
    }
}
