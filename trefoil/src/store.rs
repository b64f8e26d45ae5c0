//! A server's shares of models on disk.
//!
//! `models/NAME/` holds, for each version of a model, a plan, the shares as safetensors and a
//! manifest. A version is *staged* under `VERSION.staged`, and *visible* once that file has been
//! renamed to `manifest`. Every file is written under a temporary name, synced and renamed, and the
//! manifest says how long the other two are and what they hash to; so a crash at any moment leaves
//! the old version, the new one, or leftovers that the next start removes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use ring_arith::{EngineTensor, Shape, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::{About, Error, Id, Result, Shares, config::check_name};

/// The layout that this program writes and reads.
const FORMAT: u32 = 1;

/// The suffix of a manifest that is not yet in force.
const STAGED: &str = "staged";

/// The name of the manifest in force.
const MANIFEST: &str = "manifest";

/// Shares of models in one folder, which one server has to itself.
#[derive(Debug)]
pub struct Store {
    models: PathBuf,
    /// Held while the server runs, so that no second server uses the folder.
    _lock: File,
}

/// What a server knows of one version of a model without its shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The layout's number.
    pub format: u32,
    /// The party whose shares these are.
    pub party: usize,
    /// The model's name.
    pub name: String,
    /// The version: the job that put it.
    pub version: Id,
    /// What is public about the model.
    pub about: About,
    /// The client that put it.
    pub owner: String,
    /// When, in seconds since 1970.
    pub put_at: u64,
    /// The plan's file.
    pub plan: FileSum,
    /// The shares' file.
    pub shares: FileSum,
}

/// What a file must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 hash, in hexadecimal.
    pub blake3: String,
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
    /// The party whose shares these are.
    pub party: usize,
    /// The model's name.
    pub name: &'a str,
    /// The job that puts it.
    pub version: Id,
    /// What is public about it.
    pub about: &'a About,
    /// The client that puts it.
    pub owner: &'a str,
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
    /// Opens a folder, makes it if need be, and removes what a crash may have left.
    ///
    /// # Errors
    /// [`Error::Config`] if another server uses the folder, [`Error::File`] if it cannot be used.
    pub fn open(root: &Path) -> Result<Self> {
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
        let store = Self { models, _lock: lock };
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
    /// [`Error::File`] if it is not staged.
    pub fn commit(&self, name: &str, version: Id) -> Result<()> {
        let folder = self.models.join(name);
        let staged = staged_path(&folder, version);
        fs::rename(&staged, folder.join(MANIFEST)).map_err(|cause| Error::file(&staged, cause))?;
        sync_folder(&folder)?;
        for other in self.staged(&folder)? {
            remove_if_there(&staged_path(&folder, other))?;
        }
        self.sweep(name)
    }

    /// Removes a version that is staged.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn discard(&self, name: &str, version: Id) -> Result<()> {
        let folder = self.models.join(name);
        remove_if_there(&staged_path(&folder, version))?;
        self.sweep(name)
    }

    /// Removes a model. Says whether there was one.
    ///
    /// # Errors
    /// [`Error::File`] if files cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool> {
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
        check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
        let folder = self.models.join(name);
        let manifest = read_manifest(&folder.join(MANIFEST)).map_err(|cause| {
            if cause.kind() == io::ErrorKind::NotFound {
                return Error::refused(format_args!("model `{name}`"), "there is no such model");
            }
            damaged(name, format_args!("its manifest: {cause}"))
        })?;
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

    /// What there is, by name.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be read.
    pub fn inventory(&self) -> Result<Vec<Holding>> {
        let mut holdings = Vec::new();
        for name in self.names()? {
            let folder = self.models.join(&name);
            let staged = self.staged(&folder)?;
            let visible = read_manifest(&folder.join(MANIFEST)).ok().map(|found| found.version);
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

    fn write_version(&self, folder: &Path, model: &NewModel<'_>) -> Result<()> {
        let version = model.version;
        let plan = plan_path(folder, version);
        write_synced(&plan, model.plan)?;
        let shares = shares_path(folder, version);
        write_shares(&shares, model.shares)?;
        let manifest = Manifest {
            format: FORMAT,
            party: model.party,
            name: model.name.to_owned(),
            version,
            about: model.about.clone(),
            owner: model.owner.to_owned(),
            put_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
            plan: sum_of(&plan)?,
            shares: sum_of(&shares)?,
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|cause| Error::Internal(format!("manifest: {cause}")))?;
        write_synced(&staged_path(folder, version), &text)?;
        sync_folder(folder)?;
        sync_folder(&self.models)
    }

    /// Names that have a folder.
    fn names(&self) -> Result<Vec<String>> {
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
        let known = match read_manifest(&manifest) {
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

fn files_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|cause| Error::file(folder, cause))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    Ok(entries.filter_map(name).collect())
}

fn remove_if_there(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::file(path, cause)),
    }
}

fn read_manifest(path: &Path) -> io::Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(&fs::read(path)?)?;
    match manifest.format {
        FORMAT => Ok(manifest),
        other => Err(io::Error::other(format!("layout {other}, this program reads {FORMAT}"))),
    }
}

fn read_checked(path: &Path, sum: &FileSum) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|cause| cause.to_string())?;
    let name = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    if bytes.len() as u64 != sum.bytes {
        return Err(format!("{name}: {} bytes where {} were written", bytes.len(), sum.bytes));
    }
    if blake3::hash(&bytes).to_hex().as_str() != sum.blake3 {
        return Err(format!("{name}: its contents have changed"));
    }
    Ok(bytes)
}

fn sum_of(path: &Path) -> Result<FileSum> {
    let fail = |cause| Error::file(path, cause);
    let mut file = File::open(path).map_err(fail)?;
    let (mut hash, mut bytes) = (blake3::Hasher::new(), 0);
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(fail)? {
            0 => break,
            n => {
                hash.update(&block[..n]);
                bytes += n as u64;
            }
        }
    }
    Ok(FileSum { bytes, blake3: hash.finalize().to_hex().to_string() })
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_added_extension("tmp");
    let write = || {
        let mut file = create_private(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| Error::file(path, cause))
}

fn write_shares(path: &Path, shares: &Shares) -> Result<()> {
    let mut views = Vec::with_capacity(2 * shares.len());
    let bytes: Vec<_> = shares.iter().map(|(mine, next)| (mine.to_bytes(), next.to_bytes())).collect();
    for (index, ((mine, _), (first, second))) in shares.iter().zip(&bytes).enumerate() {
        for (half, data) in [("mine", first), ("next", second)] {
            let view = TensorView::new(Dtype::U64, mine.shape().dims().to_vec(), data)
                .map_err(|cause| Error::Internal(format!("shares: {cause}")))?;
            views.push((format!("{index:06}.{half}"), view));
        }
    }
    let temporary = path.with_added_extension("tmp");
    let write = || {
        safetensors::serialize_to_file(views, None, &temporary).map_err(io::Error::other)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| Error::file(path, cause))
}

fn parse_shares(bytes: Bytes) -> Result<Shares, String> {
    let file = SafeTensors::deserialize(&bytes).map_err(|cause| cause.to_string())?;
    let tensor = |name: &str| -> Result<Tensor, String> {
        let view = file.tensor(name).map_err(|cause| cause.to_string())?;
        if view.dtype() != Dtype::U64 {
            return Err(format!("tensor {name} is not of 64-bit words"));
        }
        let shape = Shape::new(view.shape()).map_err(|cause| cause.to_string())?;
        Tensor::from_bytes(shape, bytes.slice_ref(view.data())).map_err(|cause| cause.to_string())
    };
    (0..file.len() / 2)
        .map(|index| Ok((tensor(&format!("{index:06}.mine"))?, tensor(&format!("{index:06}.next"))?)))
        .collect()
}

fn sync_folder(folder: &Path) -> Result<()> {
    // Not every system can open a folder; where it cannot, the rename itself has to do.
    match File::open(folder) {
        Ok(file) => file.sync_all().map_err(|cause| Error::file(folder, cause)),
        Err(_) => Ok(()),
    }
}

/// A new file that only its owner may read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_private(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(folder, mode).map_err(|cause| Error::file(folder, cause))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(value: u64) -> Shares {
        let tensor = |words: Vec<u64>| Tensor::new(Shape::new([words.len()]).unwrap(), words).unwrap();
        vec![(tensor(vec![value, 2, 3]), tensor(vec![4, 5, value])), (tensor(vec![]), tensor(vec![]))]
    }

    fn stage(store: &Store, name: &str, version: Id, value: u64) {
        let (about, shares) = (About::default(), shares(value));
        store
            .stage(&NewModel {
                party: 0,
                name,
                version,
                about: &about,
                owner: "alice",
                plan: b"{}",
                shares: &shares,
            })
            .unwrap();
    }

    #[test]
    fn a_version_is_visible_once_committed_and_survives_reopening() {
        let root = crate::testing::folder("store");
        let store = Store::open(&root).unwrap();
        let (one, two) = (Id::random().unwrap(), Id::random().unwrap());
        stage(&store, "digits", one, 7);
        assert!(store.load("digits").unwrap_err().to_string().contains("no such model"));
        store.commit("digits", one).unwrap();
        stage(&store, "digits", two, 8);
        drop(store);
        let store = Store::open(&root).unwrap();
        let loaded = store.load("digits").unwrap();
        assert_eq!((loaded.manifest.version, loaded.shares), (one, shares(7)));
        store.commit("digits", two).unwrap();
        assert_eq!(store.load("digits").unwrap().shares, shares(8));
        assert_eq!(files_in(&root.join("models/digits")).unwrap().len(), 3);
        assert!(store.remove("digits").unwrap());
        assert!(!store.remove("digits").unwrap());
        assert!(!root.join("models/digits").exists());
    }

    #[test]
    fn a_crash_at_any_file_leaves_the_version_in_force() {
        let root = crate::testing::folder("store");
        let (one, two) = (Id::random().unwrap(), Id::random().unwrap());
        let store = Store::open(&root).unwrap();
        stage(&store, "m", one, 1);
        store.commit("m", one).unwrap();
        let folder = root.join("models/m");
        let leftovers = [
            format!("{two}.plan.json.tmp"),
            format!("{two}.plan.json"),
            format!("{two}.safetensors.tmp"),
            format!("{two}.safetensors"),
            format!("{two}.staged.tmp"),
            ".tmpAbC".to_owned(),
        ];
        for name in &leftovers {
            fs::write(folder.join(name), b"half").unwrap();
        }
        drop(store);
        let store = Store::open(&root).unwrap();
        assert_eq!(store.load("m").unwrap().shares, shares(1));
        for name in &leftovers {
            assert!(!folder.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn truncated_and_changed_files_are_reported_as_damage() {
        let root = crate::testing::folder("store");
        let store = Store::open(&root).unwrap();
        let id = Id::random().unwrap();
        stage(&store, "m", id, 1);
        store.commit("m", id).unwrap();
        let path = shares_path(&root.join("models/m"), id);
        let good = fs::read(&path).unwrap();
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(store.inventory().unwrap()[0].damage.as_ref().unwrap().contains("damaged"));
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        fs::write(&path, &bad).unwrap();
        let text = store.load("m").unwrap_err().to_string();
        assert!(text.contains("changed") && text.contains("put the model again"), "{text}");
        fs::write(&path, &good).unwrap();
        fs::write(root.join("models/m/manifest"), b"{").unwrap();
        assert!(store.load("m").unwrap_err().to_string().contains("manifest"));
        store.sweep("m").unwrap();
        assert!(path.exists(), "shares behind a damaged manifest are kept");
        assert!(store.inventory().unwrap()[0].damage.is_some());
    }

    #[test]
    fn a_second_server_on_the_same_folder_is_refused() {
        let root = crate::testing::folder("store");
        let first = Store::open(&root).unwrap();
        assert!(Store::open(&root).unwrap_err().to_string().contains("another server"));
        drop(first);
        Store::open(&root).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn shares_are_readable_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let root = crate::testing::folder("store");
        let store = Store::open(&root).unwrap();
        let id = Id::random().unwrap();
        stage(&store, "m", id, 1);
        let folder = root.join("models/m");
        for path in [shares_path(&folder, id), plan_path(&folder, id), staged_path(&folder, id)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        }
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn staged_versions_are_committed_only_if_some_server_has_them_in_force() {
        let [old, new, lost] = [1, 2, 3].map(|n| Id::from([n; 16]));
        let holding = |visible, staged: &[Id]| Holding {
            name: "m".to_owned(),
            visible,
            staged: staged.to_vec(),
            damage: None,
        };
        // Party 0 had committed `new` when the others crashed; `lost` was staged by one alone.
        let all = [
            vec![holding(Some(new), &[])],
            vec![holding(Some(old), &[new])],
            vec![holding(Some(old), &[new, lost])],
        ];
        assert_eq!(repairs(0, &all), []);
        assert_eq!(repairs(1, &all), [Repair::Commit("m".into(), new)]);
        let expected = [Repair::Commit("m".into(), new), Repair::Discard("m".into(), lost)];
        assert_eq!(repairs(2, &all), expected);
    }
}
