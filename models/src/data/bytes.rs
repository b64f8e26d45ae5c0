//! Files that may be compressed.

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::error::read;
use crate::{Error, Result};

/// The most bytes that a compressed file may hold: a small file must not fill the memory.
const MAX_UNPACKED: u64 = 4 << 30;

/// Reads a file, unpacking it if it is gzip.
pub(crate) fn read_unpacked(what: &'static str, path: &Path) -> Result<Vec<u8>> {
    unpack(what, read(path)?)
}

/// The bytes themselves, or their decompressed content if they are gzip.
pub(crate) fn unpack(what: &'static str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut out = vec![];
    let mut decoder = GzDecoder::new(bytes.as_slice()).take(MAX_UNPACKED + 1);
    decoder.read_to_end(&mut out).map_err(|e| Error::format(what, format!("damaged gzip: {e}")))?;
    if out.len() as u64 > MAX_UNPACKED {
        return Err(Error::format(what, "it unpacks to more than 4 GiB"));
    }
    Ok(out)
}
