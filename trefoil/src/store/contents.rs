//! Reading what a version holds: its plan, its shares and its tokenizer.

use std::io::Read;

use super::{
    FileSum, Manifest, Part, Store, damaged, replaced,
    shares::{check_sum, parse_shares, sum_of},
};
use crate::base::{Error, Id, Result, Shares, encryption::opened};

impl Store {
    /// The files of a version, and what they must be.
    pub(super) fn files_of<'a>(
        &self,
        name: &str,
        manifest: &'a Manifest,
    ) -> impl Iterator<Item = (Part, String, &'a FileSum)> + use<'a> {
        let (name, version) = (name.to_owned(), manifest.version);
        let file = move |(part, sum): (Part, Option<&'a FileSum>)| {
            Some((part, part.of(&name, version), sum?))
        };
        manifest.files().into_iter().filter_map(file)
    }

    /// The bytes of a file that must be as the manifest says, or its damage.
    pub(super) fn read_checked(&self, place: &str, sum: &FileSum) -> Result<Vec<u8>, String> {
        let shown = self.backing.place(place);
        let found = self.backing.open(place).map_err(|error| error.to_string())?;
        let mut reader = found.ok_or_else(|| format!("{shown}: it is missing"))?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|cause| format!("{shown}: {cause}"))?;
        check_sum(&shown, &bytes, sum)?;
        Ok(bytes)
    }

    /// Reads and checks the plan of a version.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is damaged, or another version has become current.
    pub fn plan(&self, name: &str, manifest: &Manifest) -> Result<Vec<u8>> {
        self.read_part(name, manifest, (Part::Plan, &manifest.plan))
            .map_err(|reason| self.unusable(name, manifest.version, reason))
    }

    /// Reads and checks the tokenizer of a language model.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none, it is damaged, or another version has become current.
    pub fn tokenizer(&self, name: &str, manifest: &Manifest) -> Result<Vec<u8>> {
        let sum = manifest.tokenizer.as_ref().ok_or_else(|| {
            let reason = "it has no tokenizer; its owner puts it with --tokenizer";
            Error::refused(format_args!("model `{name}`"), reason)
        })?;
        self.read_part(name, manifest, (Part::Tokenizer, sum))
            .map_err(|reason| self.unusable(name, manifest.version, reason))
    }

    /// What a file of a version says, or its damage.
    pub(super) fn read_part(
        &self,
        name: &str,
        manifest: &Manifest,
        (part, sum): (Part, &FileSum),
    ) -> Result<Vec<u8>, String> {
        let version = manifest.version;
        let bytes = self.read_checked(&part.of(name, version), sum)?;
        opened(self.key.as_ref(), self.place_of(name, version, part), bytes)
    }

    /// Reads and checks this party's shares of a version's weights.
    ///
    /// # Errors
    /// [`Error::Refused`] if they are damaged, or another version has become current.
    pub fn shares(&self, name: &str, manifest: &Manifest) -> Result<Shares> {
        self.read_part(name, manifest, (Part::Shares, &manifest.shares))
            .and_then(|bytes| parse_shares(bytes.into())?.shares())
            .map_err(|reason| self.unusable(name, manifest.version, reason))
    }

    /// Why a version's file could not be read.
    fn unusable(&self, name: &str, version: Id, reason: String) -> Error {
        if self.entry(name).manifest().is_some_and(|manifest| manifest.version == version) {
            return damaged(name, reason);
        }
        replaced(name)
    }

    /// Reads every file of a version, and says which are not as the manifest has them.
    pub(super) fn check_files(&self, manifest: &Manifest) -> Result<(), String> {
        let mut damage = Vec::new();
        for (_, place, sum) in self.files_of(&manifest.name, manifest) {
            let shown = self.backing.place(&place);
            match self.backing.open(&place).map(|file| file.map(sum_of).transpose()) {
                Ok(Ok(Some(found))) if found == *sum => {}
                Ok(Ok(Some(_))) => damage.push(format!("{shown}: its contents have changed")),
                Ok(Ok(None)) => damage.push(format!("{shown}: it is missing")),
                Ok(Err(cause)) => damage.push(format!("{shown}: {cause}")),
                Err(error) => damage.push(error.to_string()),
            }
        }
        if damage.is_empty() { Ok(()) } else { Err(damage.join("; ")) }
    }

    /// Reads and checks every file of the current version, and notes its damage: the version is refused from then on.
    /// Other threads can use the store meanwhile. Returns the bytes read.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none or it is damaged.
    pub fn verify(&self, name: &str) -> Result<u64> {
        let manifest = self.entry(name).usable(name)?;
        let Err(reason) = self.check_files(&manifest) else { return Ok(manifest.bytes()) };
        if self.entry(name).usable(name)?.version != manifest.version {
            // It was replaced meanwhile, and the new version was just written.
            return Ok(manifest.bytes());
        }
        let error = damaged(name, &reason);
        self.known_damage().insert((name.to_owned(), manifest.version), reason);
        Err(error)
    }
}
