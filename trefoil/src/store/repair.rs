//! The versions that a server holds of each name, and the repairs that make all servers hold the same after a crash.

use serde::{Deserialize, Serialize};

use super::{MODELS, Store, item};
use crate::base::{Id, Result};

/// The versions that one server has under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    /// The name.
    pub name: String,
    /// The current version.
    pub visible: Option<Id>,
    /// Versions that wait to become current.
    pub staged: Vec<Id>,
    /// Why the current version cannot be used, if it cannot.
    pub damage: Option<String>,
}

/// The repair of a version after the servers have compared what they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// This version is current at another server, which can be so only because all had staged it.
    Commit(String, Id),
    /// The version is not current at any server: the put that made it has failed.
    Discard(String, Id),
}

impl Holding {
    /// True if there is something under the name that is current, or should be.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.visible.is_some() || self.damage.is_some()
    }
}

impl Store {
    /// All entries, by name. Of versions that wait to become current, those are listed that this worker may finish or
    /// undo.
    ///
    /// # Errors
    /// [`crate::base::Error::File`] if the store cannot be read.
    pub fn inventory(&self) -> Result<Vec<Holding>> {
        let mut holdings = Vec::new();
        for name in self.names()? {
            let mut staged = Vec::new();
            for version in self.staged(&name)? {
                if self.is_ours(&name, version)? {
                    staged.push(version);
                }
            }
            let entry = self.entry(&name);
            let visible = entry.manifest().map(|manifest| manifest.version);
            let damage = entry.damage().map(ToString::to_string);
            if visible.is_some() || damage.is_some() || !staged.is_empty() {
                holdings.push(Holding { name, visible, staged, damage });
            }
        }
        Ok(holdings)
    }

    /// Removes the files of versions that are neither current, nor staged, nor being written, and empty folders. If the
    /// manifest is there but cannot be read, only temporary files of earlier programs go. A worker that is `starting` is
    /// not writing anything yet.
    pub(super) fn sweep(&self, name: &str, starting: bool) -> Result<()> {
        // In this order: a version that another worker makes current meanwhile is seen as being written, or as current.
        let files = self.files_under(name)?;
        let mut kept = self.staged(name)?;
        let version = |file: &String| file.split('.').next()?.parse::<Id>().ok();
        for version in files.iter().filter_map(version) {
            if !kept.contains(&version) && self.is_coming(name, version, starting)? {
                kept.push(version);
            }
        }
        let manifest = self.read_manifest(name);
        let known = manifest.is_ok();
        kept.extend(manifest.ok().flatten().map(|manifest| manifest.version));
        for file in &files {
            let stale = file.starts_with('.') || file.ends_with(".tmp");
            let old = known && version(file).is_some_and(|version| !kept.contains(&version));
            if stale || old {
                self.backing.remove(&item(name, file), None)?;
            }
        }
        if known && kept.is_empty() {
            self.backing.prune(&format!("{MODELS}/{name}"));
        }
        Ok(())
    }

    /// Removes all of a version that could not be written.
    pub(super) fn drop_version(&self, name: &str, version: Id) -> Result<()> {
        self.remove_claim(name, version)?;
        self.sweep(name, false)
    }
}

/// The repairs that server `me` must do, given what every server holds, so that all have the same.
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
