//! A party's shares at rest: models, data sets and runs.
//!
//! `models/NAME/` holds, for each version of that name, a plan, the shares as safetensors and a manifest, which
//! describes it. A version is *staged* as `VERSION.staged`, and *visible* once `manifest` says the same. Every file is
//! there as a whole or not at all, and the manifest states the lengths and hashes of the others; so a crash at any
//! moment leaves the old version, the new one, or leftovers that are removed later.
//!
//! Several workers of a party, its cells, may use one store at once. Manifests and counts are replaced only if they
//! are still what was read (`store/backing/`). A version that is being written or is staged has a claim of its worker, which
//! ends by itself (`store/staging.rs`): the others leave it alone until then.
//!
//! Of what a client has shared, some components are streams of keys. The file of shares has these keys in their place
//! (`store/shares.rs`), and so a third of the words on average.
//!
//! The store as a whole (`holder`) and each manifest name the party and the cluster to which they belong. A manifest
//! also names its model, and both carry a hash of themselves. So files that were damaged, or that a restore put into
//! the wrong place, are found when they are read, and never used. In a store with a key, files are encrypted and manifests
//! have a code of the key, both bound to the server and to their place: nobody without the key can put others there.

mod backing;
mod contents;
mod entry;
mod export;
mod lease;
mod ledger;
mod manifest;
mod rekey;
mod repair;
pub mod saved;
mod shares;
mod staging;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use crate::base::Holder;
use backing::{Backing, Files};
pub use entry::Entry;
use entry::Known;
pub use export::{Exported, Imported, Inventory, parse_inventory};
pub(crate) use lease::{Allowance, Leases};
pub(crate) use ledger::TAPES;
pub use ledger::{Charge, Counts, Ledger, Opened};
pub use manifest::{Content, FileSum, Manifest, Readers, parse_manifest, seal};
use manifest::{now, parse_sealed, sealed_at};
pub use repair::{Holding, Repair, repairs};
pub use shares::{StoredShares, parse_shares};
use shares::{Summed, write_shares};
pub(crate) use staging::Change;
pub use staging::Worker;

use crate::{
    base::{
        Error, Id, Result,
        check::check_name,
        encryption::{Place, StoreKey},
    },
    training::{Decision, Halt, Run},
};
use zeroize::Zeroizing;

/// The suffix of a manifest that is not yet current.
const STAGED: &str = "staged";

/// The name of the current manifest.
const MANIFEST: &str = "manifest";

/// The folder of all names.
const MODELS: &str = "models";

/// The time for which a worker's claims hold, unless it says otherwise.
const HOLD: Duration = Duration::from_secs(3600);

/// Shares that one server has to itself, or several workers of a party together.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    backing: Arc<dyn Backing>,
    worker: Worker,
    /// The length of this worker's claims.
    hold: Duration,
    holder: Holder,
    /// The key under which plans and shares are encrypted, if they are.
    key: Option<StoreKey>,
    ledger: Ledger,
    /// Versions whose files were found damaged when they were read as a whole.
    damage: Mutex<HashMap<(String, Id), String>>,
    /// The current manifests that were read, by name: a client that asks for a list must not make this server read all
    /// of them again.
    known: Mutex<HashMap<String, Known>>,
}

/// A version to be staged.
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
    pub shares: &'a StoredShares,
    /// The tokenizer of a language model; empty for what has none.
    pub tokenizer: &'a [u8],
}

impl fmt::Debug for NewItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewItem")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
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

    /// The file of a version of a name.
    fn of(self, name: &str, version: Id) -> String {
        item(
            name,
            match self {
                Self::Plan => format!("{version}.plan.json"),
                Self::Shares => format!("{version}.safetensors"),
                Self::Tokenizer => format!("{version}.tokenizer.json"),
            },
        )
    }
}

impl Store {
    /// Opens the folder of `holder`, which one server has to itself; makes it if need be, and removes what a crash may
    /// have left. With a key all plans and shares are encrypted.
    ///
    /// # Errors
    /// [`Error::Config`] if another server uses the folder or it belongs to another party or cluster,
    /// [`Error::File`] if it cannot be used.
    pub fn open(root: &Path, holder: Holder, key: Option<StoreKey>) -> Result<Self> {
        Self::open_as(root, holder, key, Worker::Alone, HOLD)
    }

    /// Opens the folder of `holder` for one of several workers, whose claims hold for `hold`: longer than any job.
    ///
    /// # Errors
    /// As [`Store::open`]; also if the same cell uses the folder already, or a server that has it to itself.
    pub fn open_as(
        root: &Path,
        holder: Holder,
        key: Option<StoreKey>,
        worker: Worker,
        hold: Duration,
    ) -> Result<Self> {
        let backing: Arc<dyn Backing> = Arc::new(Files::open(root, worker)?);
        if backing.look(export::INVENTORY)?.is_some() {
            let reason = "it is an export, not a server's data: `trefoil store import` takes it into a data folder";
            return Err(Error::config(root.display(), reason));
        }
        holder.claim(&*backing, root)?;
        let store = Self { worker, hold, ..Self::over(root, backing, holder, key) };
        for name in store.names()? {
            store.finish_rekey(&name)?;
            store.sweep(&name, true)?;
        }
        Ok(store)
    }

    /// The store in a backing that nobody else uses.
    fn over(root: &Path, backing: Arc<dyn Backing>, holder: Holder, key: Option<StoreKey>) -> Self {
        Self {
            root: root.to_owned(),
            ledger: Ledger::new(backing.clone()),
            backing,
            worker: Worker::Alone,
            hold: HOLD,
            holder,
            key,
            damage: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// The folder that all of it is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The server that it belongs to.
    #[must_use]
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// The worker that uses it.
    #[must_use]
    pub fn worker(&self) -> Worker {
        self.worker
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
    pub fn stage(&self, new: &NewItem<'_>) -> Result<()> {
        self.claim_version(new.name, new.version)?;
        let staged = self.write_version(new);
        if staged.is_err() {
            self.drop_version(new.name, new.version)?;
        }
        staged
    }

    /// Makes a staged version current and removes this worker's others. Returns its manifest. Once more changes nothing.
    ///
    /// # Errors
    /// [`Error::File`] if it is not staged, [`Error::Refused`] if its manifest is damaged.
    pub fn commit(&self, name: &str, version: Id) -> Result<Manifest> {
        let place = item(name, MANIFEST);
        let mut manifest = self.staged_manifest(name, version)?;
        loop {
            let current = self.backing.read(&place)?;
            let before =
                current.as_ref().and_then(|object| self.parse(&object.bytes, name, None).ok());
            if let Some(before) = &before {
                if before.files() == manifest.files() && before.version == version {
                    break;
                }
                if let (Content::Run(run), Content::Run(before)) =
                    (&mut manifest.content, &before.content)
                {
                    run.take_decisions(before);
                }
            }
            let was = current.as_ref().map(|object| &object.tag);
            if self.backing.swap(&place, &self.sealed(&manifest, None)?, was)? {
                break;
            }
        }
        self.known_damage().remove(&(name.to_owned(), version));
        for other in self.staged(name)? {
            if other == version || self.is_ours(name, other)? {
                self.backing.remove(&staged_at(name, other), None)?;
                self.remove_claim(name, other)?;
            }
        }
        self.sweep(name, false)?;
        Ok(manifest)
    }

    /// The manifest of a version that is staged.
    fn staged_manifest(&self, name: &str, version: Id) -> Result<Manifest> {
        let place = staged_at(name, version);
        let shown = self.backing.place(&place);
        let Some(object) = self.backing.read(&place)? else {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(Error::File { what: shown, cause: missing });
        };
        self.parse(&object.bytes, name, Some(version))
            .map_err(|reason| damaged(name, format_args!("{shown}: {reason}")))
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

    fn rewrite_run(&self, name: &str, change: impl Fn(&mut Run)) -> Result<()> {
        self.rewrite(name, |manifest| {
            let mut run = manifest.run()?.clone();
            change(&mut run);
            manifest.content = Content::Run(Box::new(run));
            Ok(())
        })
    }

    /// Changes the current manifest, whatever others change of it at the same time.
    fn rewrite(&self, name: &str, change: impl Fn(&mut Manifest) -> Result<()>) -> Result<()> {
        let place = item(name, MANIFEST);
        loop {
            // Also says if its files are damaged.
            self.entry(name).usable(name)?;
            let Some(object) = self.backing.read(&place)? else { continue };
            let Ok(mut manifest) = self.parse(&object.bytes, name, None) else { continue };
            change(&mut manifest)?;
            let changed = self.sealed(&manifest, None)?;
            if self.backing.swap(&place, &changed, Some(&object.tag))? {
                return Ok(());
            }
        }
    }

    /// Removes a version that is staged.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn discard(&self, name: &str, version: Id) -> Result<()> {
        self.backing.remove(&staged_at(name, version), None)?;
        self.remove_claim(name, version)?;
        self.sweep(name, false)
    }

    /// Removes a model. Says whether there was one.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let there = self.backing.remove(&item(name, MANIFEST), None)?;
        self.sweep(name, false)?;
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
        self.root.join(MODELS).join(name)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_damage(&self) -> MutexGuard<'_, HashMap<(String, Id), String>> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_version(&self, new: &NewItem<'_>) -> Result<()> {
        let NewItem { name, version, content, owner, readers, plan, shares, tokenizer } = *new;
        let write = |part: Part, bytes: &[u8]| {
            self.write_part(name, version, part, &mut |file| file.write_all(bytes))
        };
        let shares_sum =
            self.write_part(name, version, Part::Shares, &mut |file| write_shares(shares, file))?;
        let manifest = Manifest {
            holder: self.holder,
            name: name.to_owned(),
            version,
            content: content.clone(),
            owner: owner.to_owned(),
            readers: readers.clone(),
            put_at: now(),
            plan: write(Part::Plan, plan)?,
            shares: shares_sum,
            tokenizer: match tokenizer {
                [] => None,
                bytes => Some(write(Part::Tokenizer, bytes)?),
            },
        };
        let manifest = self.sealed(&manifest, Some(version))?;
        self.backing.write(&staged_at(name, version), &mut |file| file.write_all(&manifest))
    }

    /// Writes a file of a version, encrypted if the store has a key. Returns its length and hash.
    fn write_part(
        &self,
        name: &str,
        version: Id,
        part: Part,
        body: &mut backing::Body<'_>,
    ) -> Result<FileSum> {
        let sealed = match &self.key {
            Some(key) => {
                let mut plain = Zeroizing::new(Vec::new());
                body(&mut *plain).map_err(|cause| Error::Internal(format!("shares: {cause}")))?;
                Some(key.seal(self.place_of(name, version, part), &plain)?)
            }
            None => None,
        };
        let mut sum = None;
        self.backing.write(&part.of(name, version), &mut |file| {
            let mut summed = Summed::new(file);
            match &sealed {
                Some(bytes) => summed.write_all(bytes)?,
                None => body(&mut summed)?,
            }
            sum = Some(summed.sum());
            Ok(())
        })?;
        sum.ok_or_else(|| Error::Internal("a file of the store was not written".to_owned()))
    }

    /// The place of a file of a version, which its encryption is bound to.
    fn place_of<'a>(&self, name: &'a str, version: Id, part: Part) -> Place<'a> {
        Place { holder: Some(self.holder), name, version, kind: part.name() }
    }

    /// The place of a name's current manifest, or of that of a staged version, which its code is bound to.
    fn place_of_manifest<'a>(&self, name: &'a str, staged: Option<Id>) -> Place<'a> {
        let current = Place::unversioned(self.holder, name, MANIFEST);
        staged.map_or(current, |version| Place { version, kind: STAGED, ..current })
    }

    /// The bytes of a manifest that is to be current, or staged as a version.
    fn sealed(&self, manifest: &Manifest, staged: Option<Id>) -> Result<Vec<u8>> {
        let place = self.place_of_manifest(&manifest.name, staged);
        sealed_at(manifest, self.key.as_ref().map(|key| (key, place)))
    }

    /// Names that have a folder.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = self.backing.list(MODELS)?;
        names.retain(|name| check_name("model", name).is_ok());
        names.sort();
        Ok(names)
    }

    /// The files that a name has.
    fn files_under(&self, name: &str) -> Result<Vec<String>> {
        self.backing.list(&format!("{MODELS}/{name}"))
    }
}

/// The place of a file of a name.
fn item(name: &str, file: impl fmt::Display) -> String {
    format!("{MODELS}/{name}/{file}")
}

/// The place of a staged manifest.
fn staged_at(name: &str, version: Id) -> String {
    item(name, format_args!("{version}.{STAGED}"))
}

fn damaged(name: &str, reason: impl fmt::Display) -> Error {
    let advice = "put the model again, or restore this server's data folder from a backup";
    Error::refused(format_args!("model `{name}`"), format_args!("damaged ({reason}); {advice}"))
}

fn replaced(name: &str) -> Error {
    let reason = "it was replaced or removed meanwhile; try again";
    Error::refused(format_args!("model `{name}`"), reason)
}
