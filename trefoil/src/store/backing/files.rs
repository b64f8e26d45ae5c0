//! Objects as files of a folder, on one machine or on a file system that several share.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{Backing, Body, Object, Seen, Tag, Worker, prefix};
use crate::base::{
    Error, Id, Result,
    files::{files_in, make_private, new_private, remove_if_there, sync_folder},
};

/// The folder of files that are being written.
const UNFINISHED: &str = "unfinished";

/// The folder of files that are locked while an object changes, and their number: names share them.
const LOCKS: &str = "locks";
const LOCK_FILES: u8 = 64;

/// The file that a worker holds locked while it runs; beside it there is one for each cell.
const LOCK: &str = "lock";

/// A file that was changed less than this ago may change again without a sign: file systems count time in steps.
const STEADY: Duration = Duration::from_secs(2);

/// A folder of files.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    worker: Worker,
    /// Held while the server runs, so that no second one uses what it has to itself.
    _claims: Vec<File>,
}

impl Files {
    /// Opens a folder for a worker, makes it if need be, and removes what the worker left unfinished.
    ///
    /// # Errors
    /// [`Error::Config`] if a server has the folder to itself, or this cell runs already; [`Error::File`] if it cannot
    /// be used.
    pub(crate) fn open(root: &Path, worker: Worker) -> Result<Self> {
        for folder in [root.join("models"), root.join(UNFINISHED), root.join(LOCKS)] {
            fs::create_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
        }
        make_private(root)?;
        let claims = claim(root, worker)?;
        let files = Self { root: root.to_owned(), worker, _claims: claims };
        files.clear_unfinished()?;
        Ok(files)
    }

    /// The files of a folder that nobody writes to, such as a copy on a medium that cannot be written. Nothing is made
    /// or locked there.
    pub(crate) fn reading(root: &Path) -> Self {
        Self { root: root.to_owned(), worker: Worker::Alone, _claims: Vec::new() }
    }

    /// Removes the files of a folder by which workers exclude each other, once nobody uses it as a store any more.
    pub(crate) fn retire(root: &Path) -> Result<()> {
        for folder in [root.join(UNFINISHED), root.join(LOCKS)] {
            fs::remove_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
        }
        remove_if_there(&root.join(LOCK))?;
        sync_folder(root)
    }

    fn clear_unfinished(&self) -> Result<()> {
        let folder = self.root.join(UNFINISHED);
        let mine = prefix(self.worker);
        for file in files_in(&folder)? {
            if self.worker == Worker::Alone || file.starts_with(&mine) {
                remove_if_there(&folder.join(file))?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes an object into a file beside all others, which only its owner may read.
    fn unfinished(&self, name: &str, body: &mut Body<'_>) -> Result<PathBuf> {
        let file = format!("{}{}", prefix(self.worker), Id::random()?);
        let path = self.root.join(UNFINISHED).join(file);
        let mut write = || {
            let file = new_private(&path)?;
            let mut buffered = io::BufWriter::with_capacity(1 << 20, file);
            body(&mut buffered)?;
            let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()
        };
        match write() {
            Ok(()) => Ok(path),
            Err(cause) => {
                let _ = remove_if_there(&path);
                Err(Error::file(&self.path(name), cause))
            }
        }
    }

    /// Gives a finished file its name. Another worker may remove its folder meanwhile, because it is empty.
    fn finish(&self, unfinished: &Path, name: &str) -> Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        loop {
            if !folder.is_dir() {
                fs::create_dir_all(folder).map_err(|cause| Error::file(folder, cause))?;
                sync_folder(folder.parent().unwrap_or(&self.root))?;
            }
            match fs::rename(unfinished, &path) {
                Ok(()) => return sync_folder(folder),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound && !folder.is_dir() => {}
                Err(cause) => return Err(Error::file(&path, cause)),
            }
        }
    }

    /// Keeps all other workers from changing an object of this name until the answer is dropped.
    fn lock(&self, name: &str) -> Result<File> {
        let number = blake3::hash(name.as_bytes()).as_bytes()[0] % LOCK_FILES;
        let path = self.root.join(LOCKS).join(format!("{number:02}"));
        let fail = |cause| Error::file(&path, cause);
        let file = lock_file(&path).map_err(fail)?;
        file.lock().map_err(fail)?;
        Ok(file)
    }

    fn tag(&self, name: &str) -> Result<Option<Tag>> {
        Ok(self.read(name)?.map(|object| object.tag))
    }
}

impl Backing for Files {
    fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn look(&self, name: &str) -> Result<Option<Seen>> {
        let path = self.path(name);
        let Some(data) = there(&path, fs::metadata(&path))? else { return Ok(None) };
        let changed = data.modified().map_err(|cause| Error::file(&path, cause))?;
        let age = SystemTime::now().duration_since(changed).unwrap_or_default();
        let mark = (age > STEADY).then(|| format!("{changed:?} {}", inode(&data)));
        Ok(Some(Seen { bytes: data.len(), mark }))
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn Read>>> {
        let path = self.path(name);
        let file = there(&path, File::open(&path))?;
        Ok(file.map(|file| Box::new(file) as Box<dyn Read>))
    }

    fn read(&self, name: &str) -> Result<Option<Object>> {
        let path = self.path(name);
        let Some(bytes) = there(&path, fs::read(&path))? else { return Ok(None) };
        let tag = Tag(blake3::hash(&bytes).to_hex().to_string());
        Ok(Some(Object { bytes, tag }))
    }

    fn write(&self, name: &str, body: &mut Body<'_>) -> Result<()> {
        let unfinished = self.unfinished(name, body)?;
        self.finish(&unfinished, name)
    }

    fn swap(&self, name: &str, bytes: &[u8], was: Option<&Tag>) -> Result<bool> {
        let unfinished = self.unfinished(name, &mut |file| file.write_all(bytes))?;
        let _lock = self.lock(name)?;
        if self.tag(name)?.as_ref() != was {
            remove_if_there(&unfinished)?;
            return Ok(false);
        }
        self.finish(&unfinished, name)?;
        Ok(true)
    }

    fn remove(&self, name: &str, was: Option<&Tag>) -> Result<bool> {
        let _lock = self.lock(name)?;
        if was.is_some() && self.tag(name)?.as_ref() != was {
            return Ok(false);
        }
        let path = self.path(name);
        let there = remove_if_there(&path)?;
        if there {
            sync_folder(path.parent().unwrap_or(&self.root))?;
        }
        Ok(there)
    }

    fn list(&self, under: &str) -> Result<Vec<String>> {
        files_in(&self.path(under))
    }

    fn prune(&self, under: &str) {
        // Fails if something is in it, which then stays.
        let _ = fs::remove_dir(self.path(under));
    }
}

/// The files that a worker holds locked for as long as it runs.
fn claim(root: &Path, worker: Worker) -> Result<Vec<File>> {
    let open = |name: &str| {
        let path = root.join(name);
        lock_file(&path).map_err(|cause| Error::file(&path, cause))
    };
    let used = |reason: &str| Error::config(root.display(), reason);
    let whole = open(LOCK)?;
    let Worker::Cell(cell) = worker else {
        whole.try_lock().map_err(|_| {
            used("another server uses this folder; stop it, or set `data` to another one")
        })?;
        return Ok(vec![whole]);
    };
    whole.try_lock_shared().map_err(|_| {
        used("a server without [cells] uses this folder; stop it, or set `data` to another one")
    })?;
    let own = open(&format!("{LOCK}-{cell}"))?;
    own.try_lock().map_err(|_| {
        used(&format!(
            "another server uses this folder as cell {cell}; give each worker of a party its own number"
        ))
    })?;
    Ok(vec![whole, own])
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// A thing that was looked for, or None if there is nothing.
fn there<T>(path: &Path, found: io::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::file(path, cause)),
    }
}

/// The number of a file, which another one in its place does not have at the same time.
fn inode(data: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(data);
    #[cfg(not(unix))]
    return data.len();
}
