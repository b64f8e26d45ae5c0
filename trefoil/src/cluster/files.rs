//! Files of a cluster's folder: written once, or in the place of others as a whole.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use crate::base::{Error, Result};

pub(super) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|cause| Error::file(folder, cause))
}

/// Writes a file that must not exist; a private one is readable by its owner alone from its beginning.
pub(super) fn write_new(path: &Path, text: &str, private: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if private { 0o600 } else { 0o644 });
    let write = || {
        let mut file = options.open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|cause| Error::file(path, cause))
}

/// Writes a file in the place of one that may be there, as a whole or not at all.
pub(super) fn replace(path: &Path, text: &str, private: bool) -> Result<()> {
    let temporary = path.with_added_extension("tmp");
    let cleared = fs::remove_file(&temporary);
    if let Err(cause) = cleared
        && cause.kind() != io::ErrorKind::NotFound
    {
        return Err(Error::file(&temporary, cause));
    }
    write_new(&temporary, text, private)?;
    fs::rename(&temporary, path).map_err(|cause| Error::file(path, cause))
}
