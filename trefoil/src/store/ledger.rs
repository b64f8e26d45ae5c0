//! What a server counts for good: small files apart from what clients put, replace and remove.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
    sync::{MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    files::sync_folder,
    manifest::{read_sealed, write_sealed},
};
use crate::{Digest, Error, Result};

/// The folder of all counts.
const FOLDER: &str = "counts";

/// What has left this server of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The last step after which weights have left or a model was made, if any has.
    pub weights: u32,
    /// The steps before this one have left as metrics, or never will.
    pub metrics: u32,
}

/// Counts by what they are of. A change is on the disk when it returns, so that a crash never leaves a count that is
/// too low.
#[derive(Debug)]
pub struct Ledger {
    root: PathBuf,
    /// Held while a count is changed.
    change: Mutex<()>,
}

impl Ledger {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.join(FOLDER), change: Mutex::default() }
    }

    /// What has left of the run with this fingerprint.
    ///
    /// # Errors
    /// [`Error::Refused`] if the file is damaged: how much has left is not known then.
    pub fn opened(&self, run: Digest) -> Result<Opened> {
        self.read("opened", &run.letters())
    }

    /// Notes that something leaves, before it does. Counts only grow. Returns what had left before.
    ///
    /// # Errors
    /// As [`Ledger::opened`]; [`Error::File`] if it cannot be written, and nothing may leave then.
    pub fn open(&self, run: Digest, weights: u32, metrics: u32) -> Result<Opened> {
        let _change = self.lock();
        let before = self.opened(run)?;
        let now =
            Opened { weights: before.weights.max(weights), metrics: before.metrics.max(metrics) };
        if now != before {
            self.write("opened", &run.letters(), &now)?;
        }
        Ok(before)
    }

    /// A count, or what it is before anything was counted.
    pub(crate) fn read<T: Default + DeserializeOwned>(&self, kind: &str, key: &str) -> Result<T> {
        match read_sealed(&self.path(kind, key)) {
            Ok(found) => Ok(found),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(cause) => {
                let advice = "its operator must restore the folder `counts` from a backup";
                let reason = format!("{cause}; {advice}");
                Err(Error::refused(format_args!("what this server has counted ({kind})"), reason))
            }
        }
    }

    /// Writes a count, on the disk when this returns.
    pub(crate) fn write(&self, kind: &str, key: &str, count: &impl Serialize) -> Result<()> {
        let path = self.path(kind, key);
        let folder = self.root.join(kind);
        if !folder.is_dir() {
            fs::create_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
            sync_folder(&self.root)?;
        }
        write_sealed(&path, count)?;
        sync_folder(&folder)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        // A file is replaced as a whole, so a panic leaves the old count or the new one.
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, kind: &str, key: &str) -> PathBuf {
        self.root.join(kind).join(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::folder;

    #[test]
    fn counts_only_grow_and_outlive_the_server() {
        let root = folder("ledger");
        let run = Digest::of(&[b"run"]);
        let ledger = Ledger::new(&root);
        assert_eq!(ledger.opened(run).unwrap(), Opened::default());
        assert_eq!(ledger.open(run, 0, 8).unwrap(), Opened::default());
        assert_eq!(ledger.open(run, 20, 4).unwrap(), Opened { weights: 0, metrics: 8 });
        let again = Ledger::new(&root);
        assert_eq!(again.opened(run).unwrap(), Opened { weights: 20, metrics: 8 });
        assert_eq!(again.opened(Digest::of(&[b"another"])).unwrap(), Opened::default());
    }

    #[test]
    fn a_damaged_count_is_an_error_and_not_nothing() {
        let root = folder("ledger-damaged");
        let run = Digest::of(&[b"run"]);
        let ledger = Ledger::new(&root);
        ledger.open(run, 1, 1).unwrap();
        fs::write(ledger.path("opened", &run.letters()), "{}").unwrap();
        let text = ledger.opened(run).unwrap_err().to_string();
        assert!(text.contains("restore the folder `counts`"), "{text}");
        ledger.open(run, 2, 2).unwrap_err();
    }
}
