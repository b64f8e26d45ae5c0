//! A server's shares on disk: models, data sets and runs.
//!
//! `models/NAME/` holds, for each version of that name, a plan, the shares as safetensors and a manifest, which
//! describes it. A version is *staged* under `VERSION.staged`, and *visible* once that file has been renamed to
//! `manifest`. Every file is written under a temporary name, synced and renamed, and the manifest states the lengths
//! and hashes of the other two; so a crash at any moment leaves the old version, the new one, or leftovers that the
//! next start removes.
//!
//! The folder as a whole (`holder`) and each manifest name the party and the cluster to which they belong. A manifest
//! also names its model, and both carry a hash of themselves. So files that were damaged, or that a restore put into
//! the wrong place, are found when they are read, and never used.

mod contents;
mod entry;
mod files;
mod ledger;
mod manifest;
mod rekey;
mod repair;
pub mod saved;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

pub use entry::Entry;
use entry::Known;
pub use files::parse_shares;
use files::{sum_of, write_shares};
pub use ledger::{Charge, Counts, Ledger, Opened};
pub use manifest::{Content, FileSum, Holder, Manifest, Readers, parse_manifest, seal};
use manifest::{now, write_sealed};
pub use repair::{Holding, Repair, repairs};

use crate::{
    base::{
        Error, Id, Result, Shares,
        check::check_name,
        encryption::{Place, StoreKey},
        files::{files_in, make_private, remove_if_there, sync_folder, write_synced},
    },
    training::{Decision, Halt, Run},
};

/// The suffix of a manifest that is not yet current.
const STAGED: &str = "staged";

/// The name of the current manifest.
const MANIFEST: &str = "manifest";

/// Shares in one folder, which one server has to itself.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    models: PathBuf,
    holder: Holder,
    /// The key under which plans and shares are encrypted, if they are.
    key: Option<StoreKey>,
    ledger: Ledger,
    /// Versions whose files were found damaged when they were read as a whole.
    damage: Mutex<HashMap<(String, Id), String>>,
    /// Held while a version becomes current or goes, and while a manifest is compared with its files. Keeps the
    /// current manifests that were read, by name: a client that asks for a list must not make this server read all of
    /// them again.
    known: Mutex<HashMap<String, Known>>,
    /// Held while the server runs, so that no second server uses the folder.
    _lock: File,
}

/// A version to be staged.
#[derive(Debug)]
pub struct NewItem<'a> {
    /// The name.
    pub name: &'a str,
    /// The job that makes it.
    pub version: Id,
    /// The content.
    pub content: &'a Content,
    /// The client that owns it.
    pub owner: &'a str,
    /// The clients that may use it, in addition to its owner.
    pub readers: &'a Readers,
    /// The plan; empty for what has none.
    pub plan: &'a [u8],
    /// This party's shares.
    pub shares: &'a Shares,
    /// The tokenizer of a language model; empty for what has none.
    pub tokenizer: &'a [u8],
}

/// A file of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Plan,
    Shares,
    Tokenizer,
}

impl Part {
    /// The name under which the file is sealed.
    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Shares => "shares",
            Self::Tokenizer => "tokenizer",
        }
    }

    fn path(self, folder: &Path, version: Id) -> PathBuf {
        folder.join(match self {
            Self::Plan => format!("{version}.plan.json"),
            Self::Shares => format!("{version}.safetensors"),
            Self::Tokenizer => format!("{version}.tokenizer.json"),
        })
    }
}

impl Store {
    /// Opens the folder of `holder`, makes it if need be, and removes what a crash may have left. With a key all plans
    /// and shares are encrypted.
    ///
    /// # Errors
    /// [`Error::Config`] if another server uses the folder or it belongs to another party or cluster,
    /// [`Error::File`] if it cannot be used.
    pub fn open(root: &Path, holder: Holder, key: Option<StoreKey>) -> Result<Self> {
        let models = root.join("models");
        fs::create_dir_all(&models).map_err(|cause| Error::file(&models, cause))?;
        make_private(root)?;
        let path = root.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|cause| Error::file(&path, cause))?;
        lock.try_lock().map_err(|_| {
            let reason = "another server uses this folder; stop it, or set `data` to another one";
            Error::config(root.display(), reason)
        })?;
        holder.claim(root)?;
        let (damage, known) = (Mutex::default(), Mutex::default());
        let ledger = Ledger::new(root);
        let root = root.to_owned();
        let store = Self { root, models, holder, key, ledger, damage, known, _lock: lock };
        for name in store.names()? {
            store.finish_rekey(&name)?;
            store.sweep(&name)?;
        }
        Ok(store)
    }

    /// The folder that all of it is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The counts of openings and of privacy.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes a new version beside the current one.
    ///
    /// # Errors
    /// [`Error::File`] if the disk is full or not writable; nothing is staged then.
    pub fn stage(&self, item: &NewItem<'_>) -> Result<()> {
        let folder = self.models.join(item.name);
        fs::create_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
        let staged = self.write_version(&folder, item);
        if staged.is_err() {
            self.sweep(item.name)?;
        }
        staged
    }

    /// Makes a staged version current and removes all others. Returns its manifest.
    ///
    /// # Errors
    /// [`Error::File`] if it is not staged, [`Error::Refused`] if its manifest is damaged.
    pub fn commit(&self, name: &str, version: Id) -> Result<Manifest> {
        let mut known = self.known();
        known.remove(name);
        let folder = self.models.join(name);
        let staged = staged_path(&folder, version);
        let mut manifest = self
            .read_manifest(&staged, name)
            .map_err(|cause| damaged(name, format_args!("{}: {cause}", staged.display())))?;
        if let Content::Run(run) = &mut manifest.content
            && let Ok(current) = self.read_manifest(&folder.join(MANIFEST), name)
            && let Content::Run(current) = &current.content
            && run.take_decisions(current)
        {
            write_sealed(&staged, &manifest)?;
        }
        fs::rename(&staged, folder.join(MANIFEST)).map_err(|cause| Error::file(&staged, cause))?;
        sync_folder(&folder)?;
        for other in self.staged(&folder)? {
            remove_if_there(&staged_path(&folder, other))?;
        }
        self.sweep(name)?;
        Ok(manifest)
    }

    /// Changes the clients that may use the current version.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged, [`Error::File`] if it cannot be written.
    pub fn share(&self, name: &str, readers: &Readers) -> Result<()> {
        self.rewrite(name, |manifest| {
            manifest.readers = readers.clone();
            Ok(())
        })
    }

    /// Notes a client's decision about the current run.
    ///
    /// # Errors
    /// As [`Store::share`]; [`Error::Refused`] if it is not a run.
    pub fn decide(&self, name: &str, client: &str, decision: Decision) -> Result<()> {
        self.rewrite_run(name, |run| run.decide(client, decision))
    }

    /// Notes that a client halts the current run.
    ///
    /// # Errors
    /// As [`Store::decide`].
    pub fn halt(&self, name: &str, client: &str, halt: Halt) -> Result<()> {
        self.rewrite_run(name, |run| run.halt(client, halt))
    }

    fn rewrite_run(&self, name: &str, change: impl FnOnce(&mut Run)) -> Result<()> {
        self.rewrite(name, |manifest| {
            let mut run = manifest.run()?.clone();
            change(&mut run);
            manifest.content = Content::Run(Box::new(run));
            Ok(())
        })
    }

    /// Changes the current manifest.
    fn rewrite(&self, name: &str, change: impl FnOnce(&mut Manifest) -> Result<()>) -> Result<()> {
        let mut known = self.known();
        let in_force = self.in_force(&mut known, name).usable(name)?;
        let mut manifest = self.with_labels(in_force)?;
        change(&mut manifest)?;
        known.remove(name);
        let folder = self.models.join(name);
        write_sealed(&folder.join(MANIFEST), &manifest)?;
        sync_folder(&folder)
    }

    /// Removes a version that is staged.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn discard(&self, name: &str, version: Id) -> Result<()> {
        let _known = self.known();
        let folder = self.models.join(name);
        remove_if_there(&staged_path(&folder, version))?;
        self.sweep(name)
    }

    /// Removes a model. Says whether there was one.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let mut known = self.known();
        known.remove(name);
        let folder = self.models.join(name);
        let there = remove_if_there(&folder.join(MANIFEST))?;
        if there {
            sync_folder(&folder)?;
        }
        self.sweep(name)?;
        Ok(there)
    }

    /// The key under which what lies here is encrypted.
    #[must_use]
    pub fn key(&self) -> Option<&StoreKey> {
        self.key.as_ref()
    }

    /// The folder of a model's files.
    #[cfg(test)]
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.models.join(name)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_damage(&self) -> MutexGuard<'_, HashMap<(String, Id), String>> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_version(&self, folder: &Path, item: &NewItem<'_>) -> Result<()> {
        let version = item.version;
        let sealing = |part: Part| {
            let place = Place { name: item.name, version, kind: part.name() };
            self.key.as_ref().map(|key| (key, place))
        };
        let write = |part: Part, bytes: &[u8]| {
            let path = part.path(folder, version);
            match sealing(part) {
                Some((key, place)) => write_synced(&path, &key.seal(place, bytes)?)?,
                None => write_synced(&path, bytes)?,
            }
            sum_of(&path)
        };
        let shares = Part::Shares.path(folder, version);
        write_shares(&shares, item.shares, sealing(Part::Shares).as_ref())?;
        let tokenizer = (!item.tokenizer.is_empty())
            .then(|| write(Part::Tokenizer, item.tokenizer))
            .transpose()?;
        let manifest = Manifest {
            holder: self.holder,
            name: item.name.to_owned(),
            version,
            content: item.content.clone(),
            owner: item.owner.to_owned(),
            readers: item.readers.clone(),
            put_at: now(),
            plan: write(Part::Plan, item.plan)?,
            shares: sum_of(&shares)?,
            tokenizer,
        };
        write_sealed(&staged_path(folder, version), &manifest)?;
        sync_folder(folder)?;
        sync_folder(&self.models)
    }

    /// Names that have a folder.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = files_in(&self.models)?;
        names.retain(|name| check_name("model", name).is_ok());
        names.sort();
        Ok(names)
    }
}

fn damaged(name: &str, reason: impl std::fmt::Display) -> Error {
    let advice = "put the model again, or restore this server's data folder from a backup";
    Error::refused(format_args!("model `{name}`"), format_args!("damaged ({reason}); {advice}"))
}

fn replaced(name: &str) -> Error {
    let reason = "it was replaced or removed meanwhile; try again";
    Error::refused(format_args!("model `{name}`"), reason)
}

fn staged_path(folder: &Path, version: Id) -> PathBuf {
    folder.join(format!("{version}.{STAGED}"))
}
