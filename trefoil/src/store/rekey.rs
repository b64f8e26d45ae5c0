//! Encrypting what a store holds again, under another key.

use zeroize::Zeroizing;

use super::{
    MANIFEST, Manifest, Part, Store, damaged, item,
    manifest::{check_code, parse_sealed},
    shares::sum_of,
};
use crate::base::{
    Error, Result,
    encryption::{StoreKey, rekeyed},
};

/// The suffix of files that a rekeying has written.
const REKEYED: &str = "rekeyed";

impl Store {
    /// Encrypts all plans and shares again: those that are here under `from`, or plain, under the store's key, or
    /// plain if it has none. After a crash, each version is under one of both. Returns the number of versions.
    ///
    /// Manifests that no key vouches for, of plain stores and of earlier programs, are trusted.
    ///
    /// # Errors
    /// [`Error::Refused`] if a version is damaged or does not open; [`Error::File`] if files cannot be written.
    pub fn rekey(&self, from: Option<&StoreKey>) -> Result<usize> {
        let mut versions = 0;
        for name in self.names()? {
            let Some(object) = self.backing.read(&item(&name, MANIFEST))? else { continue };
            let manifest = self.manifest_of_before(&object.bytes, &name, from);
            let manifest = manifest.map_err(|reason| damaged(&name, reason))?;
            self.rekey_version(&name, manifest, from)?;
            versions += 1;
        }
        Ok(versions)
    }

    /// A current manifest under the store's key or `from`, or without a code.
    fn manifest_of_before(
        &self,
        bytes: &[u8],
        name: &str,
        from: Option<&StoreKey>,
    ) -> Result<Manifest, String> {
        let manifest: Manifest = parse_sealed(bytes)?;
        manifest.check(self.holder, name)?;
        let place = self.place_of_manifest(name, None);
        check_code(bytes, place, self.key.iter().chain(from))
            .map_err(|reason| format!("{reason}; name the key that it lies under with --from"))?;
        Ok(manifest)
    }

    fn rekey_version(
        &self,
        name: &str,
        mut manifest: Manifest,
        from: Option<&StoreKey>,
    ) -> Result<()> {
        let version = manifest.version;
        let before = manifest.clone();
        for (part, file, sum) in self.files_of(name, &before) {
            let place = self.place_of(name, version, part);
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
        self.put(&beside(&item(name, MANIFEST)), &self.sealed(&manifest, None)?)?;
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
