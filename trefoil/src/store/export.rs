//! Copies of a store, for backups: written while its server is stopped, and taken back into the store of the same
//! server.
//!
//! A copy is a folder like a store: each version with its files and its manifest, encrypted under the store's key or
//! another one. `inventory` is written last, so a copy without it is not whole. It names the server, each version and the
//! sum of its manifest, and has all counts. Tapes are never in it: a place that is used twice tells secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    FileSum, Holder, Holding, MANIFEST, Manifest, Part, Store, Worker,
    backing::Files,
    damaged, item,
    ledger::AllCounts,
    manifest::{check_code, now, parse_sealed, sealed_at},
    shares::{check_sum, sum_of},
    staged_at,
};
use crate::base::{
    Error, Id, Result,
    check::check_name,
    encryption::{Place, StoreKey},
    files::{files_in, sync_folder},
};

/// The name of a copy's inventory.
pub(super) const INVENTORY: &str = "inventory";

/// The content of a copy of a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    holder: Holder,
    /// The time when it was written, in seconds since 1970.
    made_at: u64,
    names: BTreeMap<String, Listed>,
    counts: AllCounts,
}

/// A version in a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    version: Id,
    manifest: FileSum,
}

/// The end of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The names in the copy.
    pub names: Vec<String>,
    /// The bytes of their files.
    pub bytes: u64,
    /// True if they are encrypted.
    pub encrypted: bool,
}

/// The end of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Names that were taken from the copy.
    pub taken: Vec<String>,
    /// Names of which the store has the copy's version already, undamaged.
    pub unchanged: Vec<String>,
}

/// A copy that is read.
struct Export<'a> {
    from: &'a Path,
    store: Store,
    inventory: Inventory,
}

impl Store {
    /// Copies the current versions of these names, or of all, into a new folder, under `key` or else the store's. The
    /// copy has all counts.
    ///
    /// Takes as much memory as the largest file has, three times with a key. `progress` gets the number of names that are
    /// done, and of all.
    ///
    /// # Errors
    /// [`Error::Input`] if the folder is there and not empty, or a name is not; [`Error::Damaged`] that names all
    /// versions which are damaged; [`Error::Refused`] if counts are; [`Error::File`] if the copy cannot be written. Nothing
    /// of the copy is left then.
    pub fn export(
        &self,
        to: &Path,
        names: &[String],
        key: Option<&StoreKey>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Exported> {
        let manifests = self.whole(names)?;
        if !files_in(to)?.is_empty() {
            let reason = "it is there already; name a folder that is not, or is empty";
            return Err(Error::input(to.display(), reason));
        }
        let files = Arc::new(Files::open(to, Worker::Alone)?);
        let copy = Self::over(to, files, self.holder, key.or(self.key.as_ref()).cloned());
        let exported = self.write_copy(copy, manifests, progress);
        if exported.is_err() {
            let _ = fs::remove_dir_all(to);
        }
        exported
    }

    fn write_copy(
        &self,
        copy: Self,
        manifests: Vec<Manifest>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Exported> {
        let (of, mut bytes) = (manifests.len(), 0);
        let mut names = BTreeMap::new();
        for (at, manifest) in manifests.into_iter().enumerate() {
            progress(at, of);
            let manifest = self.copy_into(&copy, manifest)?;
            bytes += manifest.bytes();
            let written = copy.backing.read(&item(&manifest.name, MANIFEST))?;
            let written = written.map(|object| object.bytes).unwrap_or_default();
            let sum = sum_of(&*written).map_err(|cause| Error::file(&copy.root, cause))?;
            names.insert(manifest.name, Listed { version: manifest.version, manifest: sum });
        }
        let exported = Exported {
            names: names.keys().cloned().collect(),
            bytes,
            encrypted: copy.key.is_some(),
        };
        let counts = self.ledger.all_counts()?;
        let inventory = Inventory { holder: self.holder, made_at: now(), names, counts };
        let by = copy.key.as_ref().map(|key| (key, place_of_inventory(self.holder)));
        let inventory = sealed_at(&inventory, by)?;
        copy.backing.write(INVENTORY, &mut |file| file.write_all(&inventory))?;
        let root = copy.root.clone();
        drop(copy);
        Files::retire(&root)?;
        // The folder itself is new.
        let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
        Ok(exported)
    }

    /// The current versions of these names, or of all, every file of which was read and is whole.
    fn whole(&self, names: &[String]) -> Result<Vec<Manifest>> {
        let mut found = Vec::new();
        let mut bad = Vec::new();
        for Holding { name, .. } in self.inventory()?.into_iter().filter(Holding::is_kept) {
            if !names.is_empty() && !names.contains(&name) {
                continue;
            }
            match self.verify(&name).and_then(|_| self.labelled(self.entry(&name).usable(&name)?)) {
                Ok(manifest) => found.push(manifest),
                Err(error) => bad.push(error.to_string()),
            }
        }
        if !bad.is_empty() {
            let advice = "to copy the others, name them";
            return Err(Error::damaged(
                self.root.display(),
                format_args!("{}; {advice}", bad.join("; ")),
            ));
        }
        check_all_there(&self.root, names, found.iter().map(|manifest| &manifest.name))?;
        Ok(found)
    }

    /// Copies a current version into another store, under that one's key, and makes it current there: all of it, or
    /// nothing. Returns its manifest there.
    fn copy_into(&self, to: &Self, mut manifest: Manifest) -> Result<Manifest> {
        let (name, version) = (manifest.name.clone(), manifest.version);
        to.claim_version(&name, version)?;
        let copied = self.copy_files(to, &mut manifest).and_then(|()| {
            let staged = to.sealed(&manifest, Some(version))?;
            let place = staged_at(&name, version);
            to.backing.write(&place, &mut |file| file.write_all(&staged))
        });
        if let Err(error) = copied {
            to.drop_version(&name, version)?;
            return Err(error);
        }
        to.commit(&name, version)
    }

    /// Copies the files of a version, and notes their sums, which other keys change.
    fn copy_files(&self, to: &Self, manifest: &mut Manifest) -> Result<()> {
        let before = manifest.clone();
        let (name, version) = (&before.name, before.version);
        for (part, sum) in before.files() {
            let Some(sum) = sum else { continue };
            let bytes = self.read_part(name, &before, (part, sum));
            let bytes = Zeroizing::new(bytes.map_err(|reason| damaged(name, reason))?);
            let sum = to.write_part(name, version, part, &mut |file| file.write_all(&bytes))?;
            match part {
                Part::Plan => manifest.plan = sum,
                Part::Shares => manifest.shares = sum,
                Part::Tokenizer => manifest.tokenizer = Some(sum),
            }
        }
        Ok(())
    }

    /// Takes the versions of these names, or all, from a copy of this server's store, which lies under `key` or else the
    /// store's. Each is there as a whole or not at all, after a crash too: the same call then goes on. Every file of the
    /// copy is read and checked before anything changes. Of counts the larger ones stay, whatever names are taken.
    ///
    /// A version that takes the place of another one has the clients that may use it, and the consents, that the copy
    /// has; where the store has the same version or run already, those of the store stay.
    ///
    /// Takes memory as [`Store::export`] does.
    ///
    /// # Errors
    /// [`Error::Input`] if it is not a whole copy, is of another server or under another key, or lacks a name; also if
    /// `replace` is false and names are here with other versions or damaged, which it lists; [`Error::Damaged`] that names
    /// all damaged versions of the copy. Nothing has changed then. [`Error::File`] if the store cannot be written.
    pub fn import(
        &self,
        from: &Path,
        names: &[String],
        key: Option<&StoreKey>,
        replace: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Imported> {
        let copy = Export::open(from, self.holder, key.or(self.key.as_ref()))?;
        let manifests = copy.whole(names)?;
        let mut imported = Imported::default();
        let mut wanted = Vec::new();
        let mut taken = Vec::new();
        for manifest in manifests {
            let name = manifest.name.clone();
            match self.verify(&name) {
                Ok(_) if self.entry(&name).usable(&name)?.version == manifest.version => {
                    imported.unchanged.push(name);
                    continue;
                }
                Err(_) if self.entry(&name).is_absent() => {}
                _ => taken.push(name),
            }
            wanted.push(manifest);
        }
        if !replace && !taken.is_empty() {
            let reason = "are here already, with another version or damaged; --replace takes the copy's in their place";
            return Err(Error::input(listed(&taken), reason));
        }
        // First: what has left or was spent since stays counted, whatever happens then.
        self.ledger.take_back(copy.inventory.counts)?;
        for (at, mut manifest) in wanted.iter().cloned().enumerate() {
            progress(at, wanted.len());
            if let Some(here) = self.entry(&manifest.name).manifest()
                && here.version == manifest.version
            {
                manifest.readers = here.readers.clone();
            }
            imported.taken.push(copy.store.copy_into(self, manifest)?.name);
        }
        Ok(imported)
    }
}

impl<'a> Export<'a> {
    /// Reads the inventory of a copy, which must be one of this server, under this key or without one.
    fn open(from: &'a Path, holder: Holder, key: Option<&StoreKey>) -> Result<Self> {
        let bad = |reason: String| Error::input(from.display(), reason);
        let store = Store::over(from, Arc::new(Files::reading(from)), holder, key.cloned());
        let object = store.backing.read(INVENTORY)?.ok_or_else(|| {
            bad("it has no `inventory`: it is not an export, or one that did not end".to_owned())
        })?;
        let inventory = parse_inventory(&object.bytes)
            .map_err(|reason| Error::damaged(store.backing.place(INVENTORY), reason))?;
        if inventory.holder != holder {
            let reason =
                format!("it is an export of {}, and this server is {holder}", inventory.holder);
            return Err(bad(reason));
        }
        let coded = check_code(&object.bytes, place_of_inventory(holder), key);
        match (coded, key) {
            (Ok(true), _) | (Ok(false), None) => Ok(Self { from, store, inventory }),
            (Ok(false), Some(_)) => Err(bad(
                "it is not encrypted, and this store has a key: import it without `[store]` in party.toml, then set \
                 that again and run `trefoil store rekey`"
                    .to_owned(),
            )),
            (Err(_), None) => Err(bad("it is encrypted: name its key with --key".to_owned())),
            (Err(reason), Some(_)) => {
                Err(bad(format!("its inventory: {reason}; name the key of the export with --key")))
            }
        }
    }

    /// The versions of these names, or of all, every file of which was read and is as it was written.
    fn whole(&self, names: &[String]) -> Result<Vec<Manifest>> {
        check_all_there(self.from, names, self.inventory.names.keys())?;
        let wanted = |name: &String| names.is_empty() || names.contains(name);
        let mut found = Vec::new();
        let mut bad = Vec::new();
        for (name, listed) in self.inventory.names.iter().filter(|(name, _)| wanted(name)) {
            match self.version(name, listed) {
                Ok(manifest) => found.push(manifest),
                Err(reason) => bad.push(format!("`{name}`: {reason}")),
            }
        }
        if bad.is_empty() {
            return Ok(found);
        }
        let advice = "nothing was imported; to import the others, name them";
        Err(Error::damaged(self.from.display(), format_args!("{}; {advice}", bad.join("; "))))
    }

    fn version(&self, name: &str, listed: &Listed) -> Result<Manifest, String> {
        let store = &self.store;
        let place = item(name, MANIFEST);
        let shown = store.backing.place(&place);
        let object = store.backing.read(&place).map_err(|error| error.to_string())?;
        let bytes = object.ok_or_else(|| format!("{shown}: it is missing"))?.bytes;
        check_sum(&shown, &bytes, &listed.manifest)?;
        let manifest = store.parse(&bytes, name, None)?;
        store.check_files(&manifest)?;
        Ok(manifest)
    }
}

/// Reads the bytes of a copy's inventory. Whether a key's code fits is not checked.
///
/// # Errors
/// A sentence that states what is wrong with them.
pub fn parse_inventory(bytes: &[u8]) -> Result<Inventory, String> {
    let inventory: Inventory = parse_sealed(bytes)?;
    inventory.names.keys().try_for_each(|name| check_name("model", name))?;
    Ok(inventory)
}

/// The place of an inventory, which its code is bound to.
fn place_of_inventory(holder: Holder) -> Place<'static> {
    Place::unversioned(holder, "", INVENTORY)
}

/// Checks that all of these names are among those that are there.
fn check_all_there<'a>(
    at: &Path,
    names: &[String],
    there: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let there: BTreeSet<&String> = there.collect();
    let missing: Vec<_> = names.iter().filter(|name| !there.contains(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let reason = format!("it has no model, data set or run {}", listed(&missing));
    Err(Error::input(at.display(), reason))
}

/// Names for people.
fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{}`", name.escape_default())).collect();
    names.join(", ")
}
