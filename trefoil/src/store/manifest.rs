//! Manifests: a server's knowledge of a version of a model, and the owner of its files.

use std::{path::Path, time::SystemTime};

use mpc_core::Sharing;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Part, backing::Backing};
use crate::{
    base::{
        Error, Holder, Id, Result,
        encryption::{Place, StoreKey},
    },
    model::{About, Range, weight_sharing},
    training::{DataSet, Run},
};

/// The layout that this program writes and reads.
const FORMAT: u32 = 3;

/// The first bytes of every manifest; the layout's number and the hash of what follows come after
/// it.
const MAGIC: &str = "trefoil-manifest";

/// The clients that may use a model, in addition to its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readers {
    /// Every client that the cluster's authority has certified.
    Everyone,
    /// The clients of these names.
    Named(Vec<String>),
}

/// The public part of an entry of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Content {
    /// A model that can be run.
    Model {
        /// The public description.
        about: Box<About>,
        /// The range that the owner states for each input, in their order; empty if none.
        ranges: Vec<Option<Range>>,
    },
    /// Rows for trainings.
    Data(DataSet),
    /// A training under way.
    Run(Box<Run>),
}

/// The public description of one version in a server's store, without the shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The owner of the store.
    pub holder: Holder,
    /// Its name.
    pub name: String,
    /// The version: the job that made it.
    pub version: Id,
    /// The content.
    pub content: Content,
    /// The client that put it.
    pub owner: String,
    /// The clients that may use it, in addition to its owner.
    pub readers: Readers,
    /// The time when it was put, in seconds since 1970.
    pub put_at: u64,
    /// The plan's file.
    pub plan: FileSum,
    /// The shares' file.
    pub shares: FileSum,
    /// The tokenizer's file, of a language model that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<FileSum>,
}

/// The length and hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

impl Content {
    /// The kind of the content.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Model { .. } => "model",
            Self::Data(_) => "data set",
            Self::Run(_) => "run",
        }
    }

    /// The way of its tensors to servers of which clients share secrets by `secrets`.
    ///
    /// # Errors
    /// [`Error::Mpc`] if there are too many servers for weights in the clear.
    pub fn sharing(&self, secrets: &'static dyn Sharing) -> Result<&'static dyn Sharing> {
        let public = matches!(self, Self::Model { about, .. } if about.public_weights);
        weight_sharing(public, secrets)
    }
}

impl Manifest {
    /// Its files, and what each must be, if there is one.
    pub(super) fn files(&self) -> [(Part, Option<&FileSum>); 3] {
        [
            (Part::Plan, Some(&self.plan)),
            (Part::Shares, Some(&self.shares)),
            (Part::Tokenizer, self.tokenizer.as_ref()),
        ]
    }

    /// Bytes that its files take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.plan.bytes + self.shares.bytes + self.tokenizer.as_ref().map_or(0, |sum| sum.bytes)
    }

    /// The public description of a model, and its ranges.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is something else.
    pub fn model(&self) -> Result<(&About, &[Option<Range>])> {
        match &self.content {
            Content::Model { about, ranges } => Ok((about, ranges)),
            _ => Err(self.is_no("model")),
        }
    }

    /// The public description of a data set.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is something else.
    pub fn data(&self) -> Result<&DataSet> {
        match &self.content {
            Content::Data(set) => Ok(set),
            _ => Err(self.is_no("data set")),
        }
    }

    /// The public description of a run.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is something else.
    pub fn run(&self) -> Result<&Run> {
        match &self.content {
            Content::Run(run) => Ok(run),
            _ => Err(self.is_no("run")),
        }
    }

    fn is_no(&self, wanted: &str) -> Error {
        let kind = self.content.kind();
        Error::refused(format_args!("`{}`", self.name), format_args!("is a {kind}, not a {wanted}"))
    }
}

impl Holder {
    /// Claims a store: writes this owner to it, or compares the one that is written there.
    ///
    /// # Errors
    /// [`Error::Config`] if it belongs to another party or cluster, [`Error::File`] if it cannot be
    /// read or written.
    pub(super) fn claim(&self, backing: &dyn Backing, root: &Path) -> Result<()> {
        let name = "holder";
        if backing.swap(name, &sealed(self)?, None)? {
            return Ok(());
        }
        let object = backing.read(name)?.map(|object| object.bytes).unwrap_or_default();
        let found: Self = parse_sealed(&object).map_err(|cause| {
            let advice = "restore it from a backup, or remove it if this is the folder of this \
                          server: every model is compared by itself as well";
            Error::config(backing.place(name), format_args!("{cause}; {advice}"))
        })?;
        if found == *self {
            return Ok(());
        }
        let advice = if found.cluster == self.cluster {
            "the folders of two servers were exchanged: give each its own, or set `data` to an \
             empty folder and put the models again"
        } else {
            "if the cluster was made anew, or its authority replaced, set `data` to an empty folder \
             and put the models again; else give this server its own folder"
        };
        let reason = format!("belongs to {found}, and this server is {self}; {advice}");
        Err(Error::config(root.display(), reason))
    }
}

impl Manifest {
    /// Compares the manifest with the place where it was found.
    pub(super) fn check(&self, holder: Holder, name: &str) -> Result<(), String> {
        if self.holder != holder {
            return Err(format!(
                "these are files of {}, and this server is {holder}; give each server its own files",
                self.holder
            ));
        }
        if self.name != name {
            return Err(format!(
                "these are files of the model `{}`; name their folder so again",
                self.name.escape_default()
            ));
        }
        Ok(())
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A body as JSON below a line with the layout's number and the body's hash.
pub(super) fn sealed(body: &impl Serialize) -> Result<Vec<u8>> {
    sealed_at(body, None)
}

/// As [`sealed`], with the code of a key for the body's place after the hash, where there is a key.
pub(super) fn sealed_at(
    body: &impl Serialize,
    by: Option<(&StoreKey, Place<'_>)>,
) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(body)
        .map_err(|cause| Error::Internal(format!("a file of the store: {cause}")))?;
    Ok(with_head(text.as_bytes(), by.map(|(key, place)| key.code(place, text.as_bytes()))))
}

/// A body below a line with the layout's number and its hash.
#[must_use]
pub fn seal(body: &[u8]) -> Vec<u8> {
    with_head(body, None)
}

fn with_head(body: &[u8], code: Option<blake3::Hash>) -> Vec<u8> {
    let code = code.map(|code| format!(" {}", code.to_hex())).unwrap_or_default();
    let head = format!("{MAGIC} {FORMAT} {}{code}\n", blake3::hash(body).to_hex());
    [head.as_bytes(), body].concat()
}

/// Reads the bytes of a manifest. Whether a key's code fits its place is not checked.
///
/// # Errors
/// A sentence that states what is wrong with them.
pub fn parse_manifest(bytes: &[u8]) -> Result<Manifest, String> {
    parse_sealed(bytes)
}

/// Reads what [`sealed`] wrote.
pub(super) fn parse_sealed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (_, body) = split(bytes)?;
    serde_json::from_slice(body).map_err(|cause| format!("not understood: {cause}"))
}

/// Checks that a text at a place has the code of one of these keys. Says whether it has any code: texts of plain stores
/// and of earlier programs have none.
pub(super) fn check_code<'a>(
    bytes: &[u8],
    place: Place<'_>,
    keys: impl IntoIterator<Item = &'a StoreKey>,
) -> Result<bool, String> {
    let (code, body) = split(bytes)?;
    let Some(code) = code else { return Ok(false) };
    if keys.into_iter().any(|key| key.code(place, body) == code) {
        return Ok(true);
    }
    Err("another key wrote it, or it was changed or is that of another name, version or server"
        .to_owned())
}

/// The code of a text, if it has one, and the text itself.
fn split(bytes: &[u8]) -> Result<(Option<blake3::Hash>, &[u8]), String> {
    let changed = || "its contents have changed".to_owned();
    if bytes.starts_with(b"{") {
        return Err(format!("layout 1 of an earlier program; this one reads layout {FORMAT}"));
    }
    let end = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(changed)?;
    let head = str::from_utf8(&bytes[..end]).map_err(|_| changed())?;
    let mut words = head.split(' ');
    let (magic, format, hash) = (words.next(), words.next(), words.next());
    let code = words.next().map(blake3::Hash::from_hex).transpose().map_err(|_| changed())?;
    if magic != Some(MAGIC) || words.next().is_some() {
        return Err(changed());
    }
    let format: u32 = format.and_then(|format| format.parse().ok()).ok_or_else(changed)?;
    if format != FORMAT {
        return Err(format!("layout {format} of another program; this one reads layout {FORMAT}"));
    }
    let body = &bytes[end + 1..];
    if hash != Some(blake3::hash(body).to_hex().as_str()) {
        return Err(changed());
    }
    Ok((code, body))
}
