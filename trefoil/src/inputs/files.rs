//! Files of a bounded size, whatever length they state.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::base::{Error, Result};

/// Reads a file of at most `most` bytes. It does not rely on the length that the file states: devices and pipes have
/// none and may never end.
///
/// # Errors
/// [`Error::Input`] if it cannot be read or is longer.
pub fn read_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    let unreadable =
        |cause: io::Error| Error::input(path.display(), format!("cannot be read: {cause}"));
    read_all(path, File::open(path).map_err(unreadable)?, most)
}

fn read_all(path: &Path, from: impl Read, most: u64) -> Result<Vec<u8>> {
    let bad = |reason: String| Error::input(path.display(), reason);
    let mut bytes = Vec::new();
    from.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| bad(format!("cannot be read: {cause}")))?;
    if bytes.len() as u64 > most {
        return Err(bad(format!("has more than {} MiB, which is too much", most >> 20)));
    }
    Ok(bytes)
}

/// The bytes of a file of at most `most`, unpacked if it is gzip: a small file must not fill the memory.
pub(super) fn unpacked(path: &Path, most: u64) -> Result<Vec<u8>> {
    let bytes = read_file(path, most)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return read_all(path, flate2::read::GzDecoder::new(bytes.as_slice()), most);
    }
    Ok(bytes)
}
