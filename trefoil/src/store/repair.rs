//! The versions that a server holds of each name, and the repairs that make all servers hold the same after a crash.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{MANIFEST, STAGED, Store};
use crate::base::{
    Id, Result,
    files::{files_in, remove_if_there},
};

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

impl Store {
    /// All entries, by name.
    ///
    /// # Errors
    /// [`crate::base::Error::File`] if the folder cannot be read.
    pub fn inventory(&self) -> Result<Vec<Holding>> {
        let mut holdings = Vec::new();
        for name in self.names()? {
            let folder = self.models.join(&name);
            let staged = self.staged(&folder)?;
            let entry = self.entry(&name);
            let visible = entry.manifest().map(|manifest| manifest.version);
            let damage = entry.damage().map(ToString::to_string);
            if visible.is_some() || damage.is_some() || !staged.is_empty() {
                holdings.push(Holding { name, visible, staged, damage });
            }
        }
        Ok(holdings)
    }

    pub(super) fn staged(&self, folder: &Path) -> Result<Vec<Id>> {
        let version = |name: String| name.strip_suffix(&format!(".{STAGED}"))?.parse().ok();
        Ok(files_in(folder)?.into_iter().filter_map(version).collect())
    }

    /// Removes the files of versions that are neither current nor staged, and empty folders. If the manifest is there
    /// but cannot be read, only temporary files go.
    pub(super) fn sweep(&self, name: &str) -> Result<()> {
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
