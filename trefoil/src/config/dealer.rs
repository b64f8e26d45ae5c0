//! The file of one dealer of tapes, `dealer.toml`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Files, anchor, read};
use crate::base::Result;

/// The file of one dealer of tapes, `dealer.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DealerConfig {
    /// The dealer's name, which its certificate names too.
    pub name: String,
    /// The cluster's authority (PEM).
    pub authority: PathBuf,
    /// This dealer's certificate (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM), readable by its owner alone.
    pub key: PathBuf,
}

impl DealerConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`crate::base::Error::Config`] that names the file, the key and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        let mut config: Self = read(path, "trefoil cluster add-dealer")?;
        for file in [&mut config.authority, &mut config.certificate, &mut config.key] {
            anchor(path, file);
        }
        Ok(config)
    }

    /// The files by which this dealer signs.
    pub fn files(&self) -> Files<'_> {
        let Self { authority, certificate, key, .. } = self;
        Files { authority, certificate, key, revoked: None, store: None }
    }
}
