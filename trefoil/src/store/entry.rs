//! The current version under a name, and whether it can be used.

use super::{
    Content, MANIFEST, Manifest, Store, damaged, item, manifest::check_code, parse_sealed, replaced,
};
use crate::base::{Error, Id, Result, check::check_name};

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

    /// True if the name is free.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
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

/// A manifest that was read, without its labels, and the mark of the file it was read from.
#[derive(Debug)]
pub(super) struct Known {
    mark: String,
    manifest: Manifest,
}

impl Store {
    /// The current version under a name. Files are compared by their lengths; their contents are checked when they
    /// are read.
    #[must_use]
    pub fn entry(&self, name: &str) -> Entry {
        if check_name("model", name).is_err() {
            return Entry::Absent;
        }
        let mut before = None;
        loop {
            let manifest = match self.read_known(name) {
                Ok(Some(manifest)) => manifest,
                Ok(None) => return Entry::Absent,
                Err(reason) => return Entry::Unreadable(damaged(name, reason)),
            };
            let damage = self.damage_of(name, &manifest);
            if damage.is_some() && before != Some(manifest.version) {
                // Its files may have gone because another version has just taken its place.
                before = Some(manifest.version);
                continue;
            }
            let damage = damage.map(|reason| damaged(name, reason));
            return Entry::Kept { manifest: Box::new(manifest), damage };
        }
    }

    /// The manifest of a version with its labels, if that version is still current.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not, or its file is damaged.
    pub fn labelled(&self, manifest: Manifest) -> Result<Manifest> {
        let name = &manifest.name;
        match self.read_manifest(name) {
            Ok(Some(found)) if found.version == manifest.version => Ok(found),
            Ok(_) => Err(replaced(name)),
            Err(reason) => Err(damaged(name, reason)),
        }
    }

    /// Reads a current manifest without its labels, unless that was done since its file has changed.
    fn read_known(&self, name: &str) -> Result<Option<Manifest>, String> {
        let seen = self.backing.look(&item(name, MANIFEST)).map_err(|error| error.to_string())?;
        let Some(seen) = seen else { return Ok(None) };
        if let Some(known) = self.known().get(name)
            && seen.mark.as_ref() == Some(&known.mark)
        {
            return Ok(Some(known.manifest.clone()));
        }
        let Some(mut manifest) = self.read_manifest(name)? else { return Ok(None) };
        if let Content::Model { about, .. } = &mut manifest.content {
            about.labels = Vec::new();
        }
        if let Some(mark) = seen.mark {
            self.known().insert(name.to_owned(), Known { mark, manifest: manifest.clone() });
        }
        Ok(Some(manifest))
    }

    /// The damage of a version, as far as it shows without reading its files.
    fn damage_of(&self, name: &str, manifest: &Manifest) -> Option<String> {
        if let Some(reason) = self.known_damage().get(&(name.to_owned(), manifest.version)) {
            return Some(reason.clone());
        }
        self.files_of(name, manifest).find_map(|(_, place, sum)| {
            let found = match self.backing.look(&place) {
                Ok(seen) => seen.map_or(0, |seen| seen.bytes),
                Err(error) => return Some(error.to_string()),
            };
            (found != sum.bytes).then(|| format!("{found} bytes where {} were written", sum.bytes))
        })
    }

    /// The current manifest of a name, or why it cannot be used.
    pub(super) fn read_manifest(&self, name: &str) -> Result<Option<Manifest>, String> {
        let place = item(name, MANIFEST);
        let object = self.backing.read(&place).map_err(|error| error.to_string())?;
        let parsed = object.map(|object| self.parse(&object.bytes, name, None)).transpose();
        parsed.map_err(|reason| format!("{}: {reason}", self.backing.place(&place)))
    }

    /// A manifest of the model `name`, current or of a staged version, which must be one, and this server's; and, where
    /// the store has a key, written with it.
    pub(super) fn parse(
        &self,
        bytes: &[u8],
        name: &str,
        staged: Option<Id>,
    ) -> Result<Manifest, String> {
        let manifest: Manifest = parse_sealed(bytes)?;
        manifest.check(self.holder, name)?;
        if let Some(key) = &self.key
            && !check_code(bytes, self.place_of_manifest(name, staged), [key])?
        {
            return Err("this store has a key, and it was written without one: by an earlier program, or by somebody \
                        else; `trefoil store rekey` trusts what it says"
                .to_owned());
        }
        Ok(manifest)
    }
}
