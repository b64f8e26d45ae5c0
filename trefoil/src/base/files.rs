//! Files that are there as a whole or not at all, and readable by their owner alone.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use super::{Error, Result};

/// Writes a file as a whole, or leaves what was there.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_added_extension("tmp");
    let write = || {
        let mut file = create_private(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| Error::file(path, cause))
}

/// The free bytes and all bytes of the disk of a folder, if the system reports them.
pub(crate) fn disk(folder: &Path) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some((disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    // Not every system can open a folder; where it cannot, the rename itself has to do.
    match File::open(folder) {
        Ok(file) => file.sync_all().map_err(|cause| Error::file(folder, cause)),
        Err(_) => Ok(()),
    }
}

/// A new file that only its owner may read.
fn create_private(path: &Path) -> io::Result<File> {
    open_private(OpenOptions::new().write(true).create(true).truncate(true), path)
}

/// Opens a file to be read and added to, which is made if it is not there.
pub(crate) fn append_private(path: &Path) -> io::Result<File> {
    open_private(OpenOptions::new().read(true).append(true).create(true), path)
}

/// Makes a file to be written and read, which must not be there.
pub(crate) fn new_private(path: &Path) -> io::Result<File> {
    open_private(OpenOptions::new().read(true).write(true).create_new(true), path)
}

fn open_private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.open(path)
}

pub(crate) fn make_private(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(folder, mode).map_err(|cause| Error::file(folder, cause))?;
    }
    Ok(())
}

pub(crate) fn files_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|cause| Error::file(folder, cause))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    Ok(entries.filter_map(name).collect())
}

pub(crate) fn remove_if_there(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::file(path, cause)),
    }
}

/// Refuses a key that others may read. One of root's may be read by a group: that is how systemd and Kubernetes
/// hand secrets to a service, under whose user nothing else runs.
pub(crate) fn check_private(key: &Path) -> Result<()> {
    #[cfg(unix)]
    if let Ok(data) = fs::metadata(key) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&data.permissions());
        let of_root = std::os::unix::fs::MetadataExt::uid(&data) == 0;
        let forbidden = if of_root { 0o037 } else { 0o077 };
        if mode & forbidden != 0 {
            let reason = format!(
                "others may read this private key (mode {:03o}); run: chmod 600 {}",
                mode & 0o777,
                key.display()
            );
            return Err(Error::config(key.display(), reason));
        }
    }
    Ok(())
}
