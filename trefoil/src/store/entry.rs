//! The current version under a name, and whether it can be used.

use std::{collections::HashMap, fs, io, path::Path, time::SystemTime};

use super::{Content, MANIFEST, Manifest, Store, damaged, manifest::read_sealed, replaced};
use crate::base::{Error, Result, check::check_name};

/// The current version under a name.
#[derive(Debug)]
pub enum Entry {
    /// The name is free.
    Absent,
    /// A manifest that cannot be read, or that belongs elsewhere: its content and owner are unknown.
    Unreadable(Error),
    /// A model, a data set or a run.
    Kept {
        /// Its manifest; that of a model lacks the labels, which [`Store::labelled`] has.
        manifest: Box<Manifest>,
        /// Why it cannot be used, if it cannot.
        damage: Option<Error>,
    },
}

impl Entry {
    /// The manifest, where it can be read. [`Entry::usable`] checks that what it describes can be used.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        match self {
            Self::Kept { manifest, .. } => Some(manifest),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }

    /// The damage by which the entry cannot be used, if any.
    #[must_use]
    pub fn damage(&self) -> Option<&Error> {
        match self {
            Self::Kept { damage, .. } => damage.as_ref(),
            Self::Unreadable(error) => Some(error),
            Self::Absent => None,
        }
    }

    /// The manifest of what can be used, by its name.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none, or it or the files it names are damaged.
    pub fn usable(self, name: &str) -> Result<Manifest> {
        match self {
            Self::Kept { manifest, damage: None } => Ok(*manifest),
            Self::Kept { damage: Some(error), .. } | Self::Unreadable(error) => Err(error),
            Self::Absent => {
                Err(Error::refused(format_args!("model `{name}`"), "there is no such model"))
            }
        }
    }
}

/// A manifest that was read, without its labels, and the file it was read from.
#[derive(Debug)]
pub(super) struct Known {
    file: Stamp,
    manifest: Manifest,
}

/// The length and time that tell a file from another one in its place, or from its earlier
/// contents.
#[derive(Debug, PartialEq)]
struct Stamp {
    bytes: u64,
    changed: SystemTime,
}

impl Store {
    /// The current version under a name. Files are compared by their lengths; their contents are checked when they
    /// are read.
    #[must_use]
    pub fn entry(&self, name: &str) -> Entry {
        self.in_force(&mut self.known(), name)
    }

    /// The manifest of a version with its labels, if that version is still current.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not, or its file is damaged.
    pub fn labelled(&self, manifest: Manifest) -> Result<Manifest> {
        let _known = self.known();
        self.with_labels(manifest)
    }

    /// [`Store::labelled`] for a caller that holds `known`.
    pub(super) fn with_labels(&self, manifest: Manifest) -> Result<Manifest> {
        let name = &manifest.name;
        let path = self.models.join(name).join(MANIFEST);
        let unreadable = |cause| damaged(name, format_args!("{}: {cause}", path.display()));
        match self.read_manifest(&path, name) {
            Ok(found) if found.version == manifest.version => Ok(found),
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(unreadable(cause)),
            _ => Err(replaced(name)),
        }
    }

    /// [`Store::entry`] for a caller that holds `known`.
    pub(super) fn in_force(&self, known: &mut HashMap<String, Known>, name: &str) -> Entry {
        if check_name("model", name).is_err() {
            return Entry::Absent;
        }
        let path = self.models.join(name).join(MANIFEST);
        let manifest = match self.read_known(known, &path, name) {
            Ok(manifest) => manifest,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Entry::Absent,
            Err(cause) => {
                let reason = format!("{}: {cause}", path.display());
                return Entry::Unreadable(damaged(name, reason));
            }
        };
        let damage = self.damage_of(name, &manifest).map(|reason| damaged(name, reason));
        Entry::Kept { manifest: Box::new(manifest), damage }
    }

    /// Reads a current manifest without its labels, unless that was done since its file has changed.
    fn read_known(
        &self,
        known: &mut HashMap<String, Known>,
        path: &Path,
        name: &str,
    ) -> io::Result<Manifest> {
        let data = fs::metadata(path)?;
        let file = Stamp { bytes: data.len(), changed: data.modified()? };
        if let Some(known) = known.get(name).filter(|known| known.file == file) {
            return Ok(known.manifest.clone());
        }
        let mut manifest = self.read_manifest(path, name)?;
        if let Content::Model { about, .. } = &mut manifest.content {
            about.labels = Vec::new();
        }
        known.insert(name.to_owned(), Known { file, manifest: manifest.clone() });
        Ok(manifest)
    }

    /// The damage of a version, as far as it shows without reading its files.
    fn damage_of(&self, name: &str, manifest: &Manifest) -> Option<String> {
        if let Some(reason) = self.known_damage().get(&(name.to_owned(), manifest.version)) {
            return Some(reason.clone());
        }
        self.files_of(name, manifest).find_map(|(_, path, sum)| {
            let found = fs::metadata(&path).map_or(0, |data| data.len());
            (found != sum.bytes).then(|| format!("{found} bytes where {} were written", sum.bytes))
        })
    }

    /// Reads a manifest of the model `name` and checks that it is one, and this server's.
    pub(super) fn read_manifest(&self, path: &Path, name: &str) -> io::Result<Manifest> {
        let manifest: Manifest = read_sealed(path)?;
        manifest.check(self.holder, name).map_err(io::Error::other)?;
        Ok(manifest)
    }
}
