//! The label of a tape: its dealer's signed statement of what was made.
//!
//! A dealer that lies can make answers wrong, and from an answer that it is shown it could learn an input. So servers
//! play only tapes whose dealer they know, and none for a model whose answers this dealer may see.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use cluster_protocols::Tape;
use net::{Identity, Role, Trust};
use serde::{Deserialize, Serialize};

use super::shown_name;
use crate::base::{Digest, Error, Result, files::write_synced};

/// The kind of statement.
const CONTEXT: &str = "trefoil 2026 a dealer's statement of a tape";

/// The ending of a label's file, after the name of its tape's file.
const SUFFIX: &str = "signed";

/// The longest label that is read, in bytes.
const LONGEST: u64 = 64 << 10;

/// A dealer's statement with its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Label {
    tape: Statement,
    /// The dealer's certificate, in PEM.
    certificate: String,
    signature: Vec<u8>,
}

/// The statement of a dealer about a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// A hash of the name that both tapes of a pair have.
    name: String,
    party: usize,
    /// The digest of the program that it is made for.
    program: String,
    examples: u64,
    answers: u64,
    /// The hash of the file as it was made.
    file: String,
}

impl Statement {
    /// Of a tape; of its file, as `hash` says.
    fn of(tape: &Tape, hash: String) -> Self {
        let [_, answers] = tape.left();
        Self {
            name: shown_name(&tape.id()),
            party: tape.party().0,
            program: Digest::from(tape.digest()).letters(),
            examples: tape.examples(),
            answers,
            file: hash,
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }
}

impl Label {
    /// The label of a tape that was just made, by its dealer.
    ///
    /// # Errors
    /// [`Error::Net`] if the tape is not whole or the key cannot sign; [`Error::File`] if the file cannot be read.
    pub(super) fn sign(dealer: &Identity, path: &Path) -> Result<Self> {
        let tape = Statement::of(&Tape::open(path, None)?, hash_of(path)?);
        let signature = dealer.sign(CONTEXT, &tape.bytes().map_err(Error::Internal)?)?;
        Ok(Self { tape, certificate: dealer.certificate_pem().to_owned(), signature })
    }

    /// The label beside a tape's file.
    pub(super) fn read(tape: &Path) -> Result<Self, String> {
        let path = Self::beside(tape);
        let length = fs::metadata(&path).map(|data| data.len());
        let text = match length {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                return Err(format!(
                    "nobody signed it: {file} is not beside it; `trefoil tape make` writes both"
                ));
            }
            Err(cause) => Err(cause.to_string()),
            Ok(length) if length > LONGEST => Err("it is too long".to_owned()),
            Ok(_) => fs::read_to_string(&path).map_err(|cause| cause.to_string()),
        };
        let read = text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
        read.map_err(|reason: String| format!("{} cannot be read: {reason}", path.display()))
    }

    pub(super) fn write(&self, tape: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Internal(error.to_string()))?;
        write_synced(&Self::beside(tape), &text)
    }

    /// The file of a tape's label.
    pub(super) fn beside(tape: &Path) -> PathBuf {
        tape.with_added_extension(SUFFIX)
    }

    /// Checks that this is the label of a tape.
    pub(super) fn check_tape(&self, tape: &Tape) -> Result<(), String> {
        if self.tape == Statement::of(tape, self.tape.file.clone()) {
            return Ok(());
        }
        Err("its dealer signed another tape".to_owned())
    }

    /// The name of the dealer who signed this label.
    pub(super) fn dealer(&self, trust: &Trust) -> Result<String, String> {
        let signer = trust.signer(&self.certificate, CONTEXT, &self.tape.bytes()?, &self.signature);
        match signer {
            Ok(Role::Dealer(name)) => Ok(name),
            Ok(role) => Err(format!("{role} signed it, who is not a dealer")),
            Err(net::Error::Config { what, reason }) => Err(format!("its {what}: {reason}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks that a file is as it was made.
    pub(super) fn check_file(&self, path: &Path) -> Result<(), String> {
        let hash = hash_of(path).map_err(|error| error.to_string())?;
        if hash == self.tape.file {
            return Ok(());
        }
        Err("it is not as its dealer made it: it was changed or damaged since".to_owned())
    }
}

/// The hash of a tape's file.
fn hash_of(path: &Path) -> Result<String> {
    let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 the file of a tape");
    let read = File::open(path).and_then(|file| hash.update_reader(file).map(drop));
    read.map_err(|cause| Error::file(path, cause))?;
    Ok(Digest::from(*hash.finalize().as_bytes()).letters())
}
