//! A server's shares of models on disk.
//!
//! `models/NAME/` holds, for each version of a model, a plan, the shares as safetensors and a
//! manifest. A version is *staged* under `VERSION.staged`, and *visible* once that file has been
//! renamed to `manifest`. Every file is written under a temporary name, synced and renamed, and the
//! manifest says how long the other two are and what they hash to; so a crash at any moment leaves
//! the old version, the new one, or leftovers that the next start removes.
//!
//! The folder as a whole (`holder`) and each manifest say to which party of which cluster they belong,
//! a manifest also of which model, and both carry a hash of themselves: files that were damaged or that
//! a restore put into the wrong place are found out when they are read, and never used.

mod files;
mod manifest;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use files::{
    files_in, make_private, parse_shares, read_checked, remove_if_there, sum_of, sync_folder,
    write_shares, write_synced,
};
pub use manifest::{ClusterId, FileSum, Holder, Manifest, Range, Readers, parse_manifest, seal};
use manifest::{now, read_sealed, write_sealed};

use crate::{About, Error, Id, Result, Shares, config::check_name};

/// The suffix of a manifest that is not yet in force.
const STAGED: &str = "staged";

/// The name of the manifest in force.
const MANIFEST: &str = "manifest";

/// Shares of models in one folder, which one server has to itself.
#[derive(Debug)]
pub struct Store {
    models: PathBuf,
    holder: Holder,
    /// Versions whose files were found damaged when they were read as a whole.
    damage: Mutex<HashMap<(String, Id), String>>,
    /// Held while a version comes into force or goes, and while a manifest is compared with its files.
    change: Mutex<()>,
    /// Held while the server runs, so that no second server uses the folder.
    _lock: File,
}

/// What one server has of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    /// The name.
    pub name: String,
    /// The version in force.
    pub visible: Option<Id>,
    /// Versions that wait to come into force.
    pub staged: Vec<Id>,
    /// Why the version in force cannot be used, if it cannot.
    pub damage: Option<String>,
}

/// A model as loaded: its manifest, its plan's text and its shares.
#[derive(Debug)]
pub struct Stored {
    /// The manifest.
    pub manifest: Manifest,
    /// The plan.
    pub plan: Vec<u8>,
    /// This party's shares of the weights.
    pub shares: Shares,
}

/// A model to be staged.
#[derive(Debug)]
pub struct NewModel<'a> {
    /// The model's name.
    pub name: &'a str,
    /// The job that puts it.
    pub version: Id,
    /// What is public about it.
    pub about: &'a About,
    /// The client that puts it.
    pub owner: &'a str,
    /// Who else may use it.
    pub readers: &'a Readers,
    /// What the owner expects of each input, in their order; empty if it did not say.
    pub ranges: &'a [Option<Range>],
    /// The plan.
    pub plan: &'a [u8],
    /// This party's shares of the weights.
    pub shares: &'a Shares,
}

/// What a server does to a version after the servers have told each other what they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// Another server has this version in force, which it has only because all had staged it.
    Commit(String, Id),
    /// No server has it in force: the put that made it has failed.
    Discard(String, Id),
}

impl Store {
    /// Opens the folder of `holder`, makes it if need be, and removes what a crash may have left.
    ///
    /// # Errors
    /// [`Error::Config`] if another server uses the folder or it belongs to another party or cluster,
    /// [`Error::File`] if it cannot be used.
    pub fn open(root: &Path, holder: Holder) -> Result<Self> {
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
        let (damage, change) = (Mutex::default(), Mutex::new(()));
        let store = Self { models, holder, damage, change, _lock: lock };
        for name in store.names()? {
            store.sweep(&name)?;
        }
        Ok(store)
    }

    /// Writes a new version beside the one in force.
    ///
    /// # Errors
    /// [`Error::File`] if the disk is full or not writable; nothing is staged then.
    pub fn stage(&self, model: &NewModel<'_>) -> Result<()> {
        let folder = self.models.join(model.name);
        fs::create_dir_all(&folder).map_err(|cause| Error::file(&folder, cause))?;
        let staged = self.write_version(&folder, model);
        if staged.is_err() {
            self.sweep(model.name)?;
        }
        staged
    }

    /// Brings a staged version into force and removes all others.
    ///
    /// # Errors
    /// [`Error::File`] if it is not staged, [`Error::Refused`] if its manifest is damaged.
    pub fn commit(&self, name: &str, version: Id) -> Result<()> {
        let _change = self.change();
        let folder = self.models.join(name);
        let staged = staged_path(&folder, version);
        self.read_manifest(&staged, name)
            .map_err(|cause| damaged(name, format_args!("{}: {cause}", staged.display())))?;
        fs::rename(&staged, folder.join(MANIFEST)).map_err(|cause| Error::file(&staged, cause))?;
        sync_folder(&folder)?;
        for other in self.staged(&folder)? {
            remove_if_there(&staged_path(&folder, other))?;
        }
        self.sweep(name)
    }

    /// Lets others than before use the version in force.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged, [`Error::File`] if it cannot be written.
    pub fn share(&self, name: &str, readers: &Readers) -> Result<()> {
        let _change = self.change();
        let manifest = Manifest { readers: readers.clone(), ..self.in_force(name)? };
        let folder = self.models.join(name);
        write_sealed(&folder.join(MANIFEST), &manifest)?;
        sync_folder(&folder)
    }

    /// Removes a version that is staged.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn discard(&self, name: &str, version: Id) -> Result<()> {
        let _change = self.change();
        let folder = self.models.join(name);
        remove_if_there(&staged_path(&folder, version))?;
        self.sweep(name)
    }

    /// Removes a model. Says whether there was one.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let _change = self.change();
        let folder = self.models.join(name);
        let there = remove_if_there(&folder.join(MANIFEST))?;
        if there {
            sync_folder(&folder)?;
        }
        self.sweep(name)?;
        Ok(there)
    }

    /// The manifest in force.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none, or it or the files it names are damaged.
    pub fn manifest(&self, name: &str) -> Result<Manifest> {
        let _change = self.change();
        self.in_force(name)
    }

    /// The manifest in force, if it can be read; whether the model can be used too, only
    /// [`Store::manifest`] tells.
    #[must_use]
    pub fn peek(&self, name: &str) -> Option<Manifest> {
        check_name("model", name).ok()?;
        self.read_manifest(&self.models.join(name).join(MANIFEST), name).ok()
    }

    /// Whether a version is in force, sound or damaged.
    #[must_use]
    pub fn is_there(&self, name: &str) -> bool {
        check_name("model", name).is_ok() && self.models.join(name).join(MANIFEST).exists()
    }

    /// [`Store::manifest`] for whoever holds `change`.
    fn in_force(&self, name: &str) -> Result<Manifest> {
        check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
        let folder = self.models.join(name);
        let path = folder.join(MANIFEST);
        let manifest = self.read_manifest(&path, name).map_err(|cause| {
            if cause.kind() == io::ErrorKind::NotFound {
                return Error::refused(format_args!("model `{name}`"), "there is no such model");
            }
            damaged(name, format_args!("{}: {cause}", path.display()))
        })?;
        if let Some(reason) = self.known_damage().get(&(name.to_owned(), manifest.version)) {
            return Err(damaged(name, reason));
        }
        for (path, sum) in [
            (plan_path(&folder, manifest.version), &manifest.plan),
            (shares_path(&folder, manifest.version), &manifest.shares),
        ] {
            let found = fs::metadata(&path).map_or(0, |data| data.len());
            if found != sum.bytes {
                let reason = format!("{found} bytes where {} were written", sum.bytes);
                return Err(damaged(name, reason));
            }
        }
        Ok(manifest)
    }

    /// Reads and checks the version in force.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged.
    pub fn load(&self, name: &str) -> Result<Stored> {
        let manifest = self.manifest(name)?;
        let folder = self.models.join(name);
        let plan = read_checked(&plan_path(&folder, manifest.version), &manifest.plan)
            .map_err(|reason| damaged(name, reason))?;
        let shares = read_checked(&shares_path(&folder, manifest.version), &manifest.shares)
            .and_then(|bytes| parse_shares(bytes.into()))
            .map_err(|reason| damaged(name, reason))?;
        Ok(Stored { manifest, plan, shares })
    }

    /// Reads and checks the plan of the version in force.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged.
    pub fn plan(&self, name: &str) -> Result<(Id, Vec<u8>)> {
        let _change = self.change();
        let manifest = self.in_force(name)?;
        let path = plan_path(&self.models.join(name), manifest.version);
        let plan = read_checked(&path, &manifest.plan).map_err(|reason| damaged(name, reason))?;
        Ok((manifest.version, plan))
    }

    /// Reads and checks every file of the version in force, of which it notes the damage: the version
    /// is refused from then on. Others can use the store meanwhile. Returns the bytes read.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged.
    pub fn verify(&self, name: &str) -> Result<u64> {
        let manifest = self.manifest(name)?;
        let folder = self.models.join(name);
        let files = [
            (plan_path(&folder, manifest.version), &manifest.plan),
            (shares_path(&folder, manifest.version), &manifest.shares),
        ];
        let mut bytes = 0;
        for (path, sum) in files {
            let found = sum_of(&path);
            if matches!(&found, Ok(found) if found == sum) {
                bytes += sum.bytes;
                continue;
            }
            let reason = match found {
                Ok(_) => format!("{}: its contents have changed", path.display()),
                Err(error) => error.to_string(),
            };
            if self.manifest(name)?.version != manifest.version {
                // It was replaced meanwhile, and the new version was just written.
                return Ok(bytes);
            }
            let error = damaged(name, &reason);
            self.known_damage().insert((name.to_owned(), manifest.version), reason);
            return Err(error);
        }
        Ok(bytes)
    }

    /// What there is, by name.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be read.
    pub fn inventory(&self) -> Result<Vec<Holding>> {
        let mut holdings = Vec::new();
        for name in self.names()? {
            let folder = self.models.join(&name);
            let staged = self.staged(&folder)?;
            let manifest = self.read_manifest(&folder.join(MANIFEST), &name);
            let visible = manifest.ok().map(|found| found.version);
            let damage = match self.manifest(&name) {
                Err(error) if folder.join(MANIFEST).exists() => Some(error.to_string()),
                _ => None,
            };
            if visible.is_some() || damage.is_some() || !staged.is_empty() {
                holdings.push(Holding { name, visible, staged, damage });
            }
        }
        Ok(holdings)
    }

    /// Where a model's files are.
    #[cfg(test)]
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.models.join(name)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_damage(&self) -> MutexGuard<'_, HashMap<(String, Id), String>> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a manifest of the model `name` and checks that it is one, and this server's.
    fn read_manifest(&self, path: &Path, name: &str) -> io::Result<Manifest> {
        let manifest: Manifest = read_sealed(path)?;
        manifest.check(self.holder, name).map_err(io::Error::other)?;
        Ok(manifest)
    }

    fn write_version(&self, folder: &Path, model: &NewModel<'_>) -> Result<()> {
        let version = model.version;
        let plan = plan_path(folder, version);
        write_synced(&plan, model.plan)?;
        let shares = shares_path(folder, version);
        write_shares(&shares, model.shares)?;
        let manifest = Manifest {
            holder: self.holder,
            name: model.name.to_owned(),
            version,
            about: model.about.clone(),
            owner: model.owner.to_owned(),
            readers: model.readers.clone(),
            ranges: model.ranges.to_vec(),
            put_at: now(),
            plan: sum_of(&plan)?,
            shares: sum_of(&shares)?,
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

    fn staged(&self, folder: &Path) -> Result<Vec<Id>> {
        let version = |name: String| name.strip_suffix(&format!(".{STAGED}"))?.parse().ok();
        Ok(files_in(folder)?.into_iter().filter_map(version).collect())
    }

    /// Removes the files of versions that are neither in force nor staged, and empty folders. If the
    /// manifest is there but cannot be read, only temporary files go.
    fn sweep(&self, name: &str) -> Result<()> {
        let folder = self.models.join(name);
        let mut kept = self.staged(&folder)?;
        let manifest = folder.join(MANIFEST);
        let known = match self.read_manifest(&manifest, name) {
            Ok(found) => {
                kept.push(found.version);
                true
            }
            Err(cause) => cause.kind() == io::ErrorKind::NotFound,
        };
        for file in files_in(&folder)? {
            let version = file.split('.').next().and_then(|stem| stem.parse::<Id>().ok());
            let stale = file.starts_with('.') || file.ends_with(".tmp");
            let old = known && version.is_some_and(|version| !kept.contains(&version));
            if stale || old {
                remove_if_there(&folder.join(file))?;
            }
        }
        if known && kept.is_empty() {
            // Fails if something unknown is in it, which then stays.
            let _ = fs::remove_dir(&folder);
        }
        Ok(())
    }
}

/// What server `me` must do, given what every server holds, so that all have the same.
#[must_use]
pub fn repairs(me: usize, holdings: &[Vec<Holding>]) -> Vec<Repair> {
    let mut repairs = Vec::new();
    for mine in &holdings[me] {
        for &version in &mine.staged {
            let in_force = holdings
                .iter()
                .flatten()
                .any(|other| other.name == mine.name && other.visible == Some(version));
            let name = mine.name.clone();
            repairs.push(if in_force {
                Repair::Commit(name, version)
            } else {
                Repair::Discard(name, version)
            });
        }
    }
    repairs
}

fn damaged(name: &str, reason: impl std::fmt::Display) -> Error {
    let advice = "put the model again, or restore this server's data folder from a backup";
    Error::refused(format_args!("model `{name}`"), format_args!("damaged ({reason}); {advice}"))
}

fn plan_path(folder: &Path, version: Id) -> PathBuf {
    folder.join(format!("{version}.plan.json"))
}

fn shares_path(folder: &Path, version: Id) -> PathBuf {
    folder.join(format!("{version}.safetensors"))
}

fn staged_path(folder: &Path, version: Id) -> PathBuf {
    folder.join(format!("{version}.{STAGED}"))
}
