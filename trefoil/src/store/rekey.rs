//! Encrypting what a store holds again, under another key.

use zeroize::Zeroizing;

use super::{MANIFEST, Manifest, Part, Store, damaged, item, sealed, shares::sum_of};
use crate::base::{
    Error, Result,
    encryption::{Place, StoreKey, rekeyed},
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
        let mut manifest = self.labelled(manifest)?;
        let version = manifest.version;
        let before = manifest.clone();
        for (part, file, sum) in self.files_of(name, &before) {
            let place = Place { name, version, kind: part.name() };
            let outcome = self
                .read_checked(&file, sum)
                .and_then(|bytes| rekeyed(place, bytes, from, self.key.as_ref()));
            let Some(bytes) = outcome.map_err(|reason| damaged(name, reason))? else { continue };
            let bytes = Zeroizing::new(bytes);
            self.put(&beside(&file), &bytes)?;
            let sum = sum_of(&**bytes).map_err(|cause| Error::Internal(cause.to_string()))?;
            match part {
                Part::Plan => manifest.plan = sum,
                Part::Shares => manifest.shares = sum,
                Part::Tokenizer => manifest.tokenizer = Some(sum),
            }
        }
        // From here on the new files are current, whatever happens.
        self.put(&beside(&item(name, MANIFEST)), &sealed(&manifest)?)?;
        self.finish_rekey(name)
    }

    /// Makes a complete rekeying current, and drops one that is incomplete.
    pub(super) fn finish_rekey(&self, name: &str) -> Result<()> {
        let suffix = format!(".{REKEYED}");
        let files = self.files_under(name)?;
        let fresh: Vec<_> = files.iter().filter_map(|file| file.strip_suffix(&suffix)).collect();
        let parts = || fresh.iter().filter(|file| **file != MANIFEST).map(|file| item(name, file));
        let manifest = item(name, MANIFEST);
        // Another cell may do the same at once: what it has finished is not done again.
        let was = self.backing.read(&manifest)?.map(|object| object.tag);
        if let Some(whole) = self.backing.read(&beside(&manifest))? {
            for place in parts() {
                if let Some(part) = self.backing.read(&beside(&place))? {
                    self.put(&place, &part.bytes)?;
                }
            }
            self.backing.swap(&manifest, &whole.bytes, was.as_ref())?;
            self.backing.remove(&beside(&manifest), None)?;
        }
        for place in parts() {
            self.backing.remove(&beside(&place), None)?;
        }
        Ok(())
    }

    fn put(&self, place: &str, bytes: &[u8]) -> Result<()> {
        self.backing.write(place, &mut |file| file.write_all(bytes))
    }
}

fn beside(place: &str) -> String {
    format!("{place}.{REKEYED}")
}
