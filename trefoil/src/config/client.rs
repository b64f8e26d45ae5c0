//! The file of one client, `client.toml`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use cluster_protocols::ProtocolChoice;
use mpc_core::Security;
use serde::{Deserialize, Serialize};

use super::{Files, anchor, cells, check_security, check_servers, is_semi_honest, read};
use crate::base::{Error, Result, check::check_range};

/// The file of one client, `client.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// The client's name, which its certificate names too.
    pub name: String,
    /// The servers' protocol.
    #[serde(default, skip_serializing_if = "ProtocolChoice::is_default")]
    pub protocol: ProtocolChoice,
    /// The least defence of the servers against one that lies: with `checked` the client sends nothing to servers that
    /// do not prove their messages.
    #[serde(default, skip_serializing_if = "is_semi_honest")]
    pub security: Security,
    /// `host:port` of the servers, in their order. With cells `{cell}` stands for the cell's number.
    pub servers: Vec<String>,
    /// The greatest number of cells, where each party has several workers. The client takes one of them that has little to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<u16>,
    /// The cluster's authority (PEM).
    pub authority: PathBuf,
    /// This client's certificate (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM), readable by its owner alone.
    pub key: PathBuf,
    /// The authority's list of revoked certificates (PEM); none are refused without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
    /// The longest time for reaching a server, in seconds.
    #[serde(default = "default_connect_seconds")]
    pub connect_seconds: u64,
    /// The longest wait for a silent server, in seconds. A server that works on the job or keeps it in its queue
    /// sends a word every second.
    #[serde(default = "default_silence_seconds")]
    pub silence_seconds: u64,
}

impl ClientConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the key and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        let mut config: Self = read(path, "trefoil cluster init")?;
        let bad = |reason: String| Error::config(path.display(), reason);
        if let Some(count) = config.cells {
            check_range("cells", count.into(), 1, 4096).map_err(bad)?;
            cells::check_servers(&config.servers).map_err(bad)?;
        }
        check_servers(config.protocol, &config.addresses(config.cells.map(|_| 0))).map_err(bad)?;
        check_security(config.protocol, config.security).map_err(bad)?;
        for (key, seconds) in [
            ("connect_seconds", config.connect_seconds),
            ("silence_seconds", config.silence_seconds),
        ] {
            check_range(key, seconds, 1, 3600).map_err(bad)?;
        }
        for file in [&mut config.authority, &mut config.certificate, &mut config.key] {
            anchor(path, file);
        }
        config.revoked.iter_mut().for_each(|file| anchor(path, file));
        Ok(config)
    }

    /// The files by which this client proves its role.
    pub fn files(&self) -> Files<'_> {
        let Self { authority, certificate, key, revoked, .. } = self;
        Files { authority, certificate, key, revoked: revoked.as_deref(), store: None }
    }

    /// The addresses of the servers of a cell, or of all where there are no cells.
    #[must_use]
    pub fn addresses(&self, cell: Option<u16>) -> Vec<String> {
        cells::addresses(&self.servers, cell)
    }

    /// The number of each cell; once none where there are no cells.
    pub fn each_cell(&self) -> impl Iterator<Item = Option<u16>> + use<> {
        let none = self.cells.is_none().then_some(None);
        none.into_iter().chain((0..self.cells.unwrap_or(0)).map(Some))
    }

    /// [`ClientConfig::connect_seconds`] as a duration.
    pub fn connect_limit(&self) -> Duration {
        Duration::from_secs(self.connect_seconds)
    }

    /// [`ClientConfig::silence_seconds`] as a duration.
    pub fn silence_limit(&self) -> Duration {
        Duration::from_secs(self.silence_seconds)
    }
}

fn default_connect_seconds() -> u64 {
    5
}

fn default_silence_seconds() -> u64 {
    30
}
