//! Encrypting what a store holds again, under another key.

use std::fs;

use super::{
    MANIFEST, Manifest, Part, Store, damaged,
    files::{read_checked, sum_of},
    manifest::write_sealed,
};
use crate::base::{
    Error, Result,
    encryption::{Place, StoreKey, rekeyed},
    files::{files_in, remove_if_there, sync_folder, write_synced},
};

/// The suffix of files that a rekeying has written.
const REKEYED: &str = "rekeyed";

impl Store {
    /// Encrypts all plans and shares again: those that are here under `from`, or plain, under the store's key, or
    /// plain if it has none. After a crash, each version is under one of both. Returns the number of versions.
    ///
    /// # Errors
    /// [`Error::Refused`] if a version is damaged or does not open; [`Error::File`] if files cannot be written.
    pub fn rekey(&self, from: Option<&StoreKey>) -> Result<usize> {
        let mut versions = 0;
        for name in self.names()? {
            let Some(manifest) = self.entry(&name).manifest().cloned() else { continue };
            self.rekey_version(&name, manifest, from)?;
            versions += 1;
        }
        Ok(versions)
    }

    fn rekey_version(&self, name: &str, manifest: Manifest, from: Option<&StoreKey>) -> Result<()> {
        let mut known = self.known();
        let mut manifest = self.with_labels(manifest)?;
        let version = manifest.version;
        let folder = self.models.join(name);
        let before = manifest.clone();
        for (part, path, sum) in self.files_of(name, &before) {
            let place = Place { name, version, kind: part.name() };
            let outcome = read_checked(&path, sum)
                .and_then(|bytes| rekeyed(place, bytes, from, self.key.as_ref()));
            let Some(bytes) = outcome.map_err(|reason| damaged(name, reason))? else { continue };
            let fresh = path.with_added_extension(REKEYED);
            write_synced(&fresh, &zeroize::Zeroizing::new(bytes))?;
            let sum = sum_of(&fresh)?;
            match part {
                Part::Plan => manifest.plan = sum,
                Part::Shares => manifest.shares = sum,
                Part::Tokenizer => manifest.tokenizer = Some(sum),
            }
        }
        sync_folder(&folder)?;
        // From here on the new files are current, whatever happens.
        write_sealed(&folder.join(MANIFEST).with_added_extension(REKEYED), &manifest)?;
        sync_folder(&folder)?;
        known.remove(name);
        drop(known);
        self.finish_rekey(name)
    }

    /// Makes a complete rekeying current, and drops one that is incomplete.
    pub(super) fn finish_rekey(&self, name: &str) -> Result<()> {
        let folder = self.models.join(name);
        let fresh = folder.join(MANIFEST).with_added_extension(REKEYED);
        let whole = fresh.exists();
        let suffix = format!(".{REKEYED}");
        for file in files_in(&folder)? {
            let Some(name) = file.strip_suffix(&suffix).filter(|name| *name != MANIFEST) else {
                continue;
            };
            let path = folder.join(&file);
            if whole {
                fs::rename(&path, folder.join(name)).map_err(|cause| Error::file(&path, cause))?;
            } else {
                remove_if_there(&path)?;
            }
        }
        if whole {
            fs::rename(&fresh, folder.join(MANIFEST))
                .map_err(|cause| Error::file(&fresh, cause))?;
            sync_folder(&folder)?;
        }
        Ok(())
    }
}
