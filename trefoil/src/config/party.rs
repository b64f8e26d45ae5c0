//! The file of one server, `party.toml`.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use cluster_protocols::{Computing, ProtocolChoice};
use gpu_kernels::EngineChoice;
use mpc_core::{Profile, Security, Settings, TruncationMode};
use serde::{Deserialize, Serialize};

use super::{
    Access, Cells, Files, Limits, anchor,
    cells::{CELL, addresses},
    check_security, check_servers, is_semi_honest, parse, text_of,
};
use crate::base::{
    Error, Result,
    check::{check_address, check_range},
    encryption::StoreKey,
    log,
};

/// The file of one server, `party.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyConfig {
    /// The number of this server, from 0 on.
    pub party: usize,
    /// The protocol on shares, the same at all servers and their clients: `rss`, `rss-dealt`, `additive`, or `dealt-2`
    /// to `dealt-16`.
    #[serde(default, skip_serializing_if = "ProtocolChoice::is_default")]
    pub protocol: ProtocolChoice,
    /// Address and port to listen on, `0.0.0.0:7100` for every interface.
    pub listen: String,
    /// The servers' addresses: `host:port` of each, in their order. With cells `{cell}` stands for the cell's number, here
    /// and in any other text of the file.
    pub servers: Vec<String>,
    /// The cluster's authority (PEM).
    pub authority: PathBuf,
    /// This server's certificate (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM), readable by its owner alone.
    pub key: PathBuf,
    /// The authority's list of revoked certificates (PEM); none are refused without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
    /// The folder of this server's data.
    pub data: PathBuf,
    /// The engine that computes: `auto`, `cpu`, or `cuda:0` for the first CUDA device. `auto` takes that if it can be
    /// used, else the CPU. The other servers may use another engine.
    #[serde(default)]
    pub engine: EngineChoice,
    /// The rounding of results, the same at all servers.
    #[serde(default)]
    pub truncation: Truncation,
    /// The cost to save, the same at all three servers: `bytes`, or for links with a long round trip `slow-links`,
    /// which takes fewer rounds of more bytes. `balanced`, the default, saves rounds where they cost few bytes. A model
    /// that was made for one profile keeps it. With `auto` the servers measure the links between them when they meet, and
    /// take for each model the profile that they predict to be the quickest; trainings are `balanced`. For `rss` alone.
    #[serde(default)]
    pub profile: ProfileChoice,
    /// The defence against a server that lies, the same at all servers: `semi-honest` for nothing, or `checked`: before
    /// anything is revealed or kept, each server proves to both others that its messages were right. For `rss` alone.
    #[serde(default, skip_serializing_if = "is_semi_honest")]
    pub security: Security,
    /// Threads to compute with on the CPU; all that the machine has unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// The level of the log: `info`, `debug`, or `net=debug,info`. It replaces `TREFOIL_LOG`, and a running server
    /// follows it within a second when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The address at which the server reports its state to its operator's tools, over HTTP: `127.0.0.1:9100` for
    /// instance. No address unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<String>,
    /// Names, in addition to addresses, `localhost` and that of `observe`, under which tools ask there: the `Host` of
    /// their requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observe_hosts: Vec<String>,
    /// The key by which plans, shares, tapes and the private key are encrypted on this server's disk. They are not
    /// unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreSettings>,
    /// The server's number among several workers of this party. It is the only one unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// The record of clients and their requests at this server. None is kept unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditLog>,
    /// The rights of clients at this server.
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub access: Access,
    /// Bounds on what peers and clients can make this server do.
    #[serde(default)]
    pub limits: Limits,
    /// The file that this was read from.
    #[serde(skip)]
    pub file: PathBuf,
}

/// The profile that an operator asks for. Written as `auto`, `bytes`, `balanced` and `slow-links`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProfileChoice {
    /// The quickest one by the measured links.
    Auto,
    /// This one.
    Fixed(Profile),
}

impl Default for ProfileChoice {
    fn default() -> Self {
        Self::Fixed(Profile::default())
    }
}

impl TryFrom<String> for ProfileChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            other => other.parse().map(Self::Fixed).map_err(|advice| {
                format!(
                    "unknown profile `{other}`: {advice}, or auto for the quickest by the links"
                )
            }),
        }
    }
}

impl From<ProfileChoice> for String {
    fn from(choice: ProfileChoice) -> Self {
        match choice {
            ProfileChoice::Auto => "auto".to_owned(),
            ProfileChoice::Fixed(profile) => profile.to_string(),
        }
    }
}

/// The ways to drop the low bits of a product. `docs/security/protocols.md` states what each mode reveals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// Down or up by chance, right on average; values that only a ReLU sees as [`Truncation::Early`].
    #[default]
    Default,
    /// Down or up by chance, off by half a unit more, for fewer bytes.
    Early,
    /// Always down: the same answer every time. Trains nothing.
    Exact,
    /// Down or up by a coin that no server knows.
    Dither,
}

impl From<Truncation> for TruncationMode {
    fn from(truncation: Truncation) -> Self {
        match truncation {
            Truncation::Default => Self::Default,
            Truncation::Early => Self::Early,
            Truncation::Exact => Self::Exact,
            Truncation::Dither => Self::Dither,
        }
    }
}

/// The place and the size of a server's audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditLog {
    /// The file that is added to, one JSON object a line.
    pub file: PathBuf,
    /// A file that would get larger is renamed (`.1` is the one before the present), in MiB.
    #[serde(default = "default_rotate_mib")]
    pub rotate_mib: u64,
    /// Older files that are kept.
    #[serde(default = "default_keep")]
    pub keep: u32,
}

/// The source of the key under which plans and shares are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum StoreSettings {
    /// A file with 64 hexadecimal letters, readable by its owner alone.
    Key(PathBuf),
    /// A program with its arguments that prints them, so that a key service or a TPM can hold the key.
    Command(Vec<String>),
}

impl StoreSettings {
    /// The key.
    ///
    /// # Errors
    /// As [`StoreKey::read`] and [`StoreKey::of_command`].
    pub fn key(&self) -> Result<StoreKey> {
        match self {
            Self::Key(file) => StoreKey::read(file),
            Self::Command(words) => StoreKey::of_command(words),
        }
    }
}

impl PartyConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the key and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_cell(path, None)
    }

    /// Reads and checks a file for the worker of this number, whatever the file says about that.
    ///
    /// # Errors
    /// As [`PartyConfig::read`].
    pub fn read_cell(path: &Path, cell: Option<u16>) -> Result<Self> {
        let bad = |reason: String| Error::config(path.display(), reason);
        let text = text_of(path, "trefoil cluster init")?;
        let file: toml::Table = parse(path, &text)?;
        let mut config: Self;
        if let Some(number) = Cells::number(&file, cell).map_err(bad)? {
            config = parse(path, &text.replace(CELL, &number.to_string()))?;
            check_servers(config.protocol, &config.servers).map_err(bad)?;
            Cells::check(&file).map_err(bad)?;
            if config.protocol.plays_tapes() {
                return Err(bad(format!(
                    "[cells] is for servers that compute by themselves, and those of `{}` play tapes, each once; run one \
                     server for each party",
                    config.protocol.name()
                )));
            }
            config.cells.iter_mut().for_each(|cells| cells.number = number);
            if let Some(servers) = file.get("servers") {
                config.servers = servers
                    .clone()
                    .try_into()
                    .map_err(|cause: toml::de::Error| bad(cause.message().to_owned()))?;
            }
        } else {
            config = parse(path, &text)?;
            check_servers(config.protocol, &config.servers).map_err(bad)?;
        }
        let most = config.protocol.servers() - 1;
        check_range("party", config.party as u64, 0, most as u64).map_err(bad)?;
        check_address("listen", &config.listen).map_err(bad)?;
        config.observe.iter().try_for_each(|it| check_address("observe", it)).map_err(bad)?;
        check_security(config.protocol, config.security).map_err(bad)?;
        if config.profile == ProfileChoice::Auto && config.protocol != ProtocolChoice::Rss {
            let reason =
                "profile `auto` is for the protocol `rss` alone; name a profile, or leave it out";
            return Err(bad(reason.to_owned()));
        }
        config.access.check().map_err(bad)?;
        if let Some(level) = &config.log {
            log::check(level).map_err(|reason| bad(format!("`log`: {reason}")))?;
        }
        config.limits.check().map_err(bad)?;
        check_range("threads", config.threads() as u64, 1, 1024).map_err(bad)?;
        for file in
            [&mut config.authority, &mut config.certificate, &mut config.key, &mut config.data]
        {
            anchor(path, file);
        }
        config.revoked.iter_mut().for_each(|file| anchor(path, file));
        if let Some(StoreSettings::Key(file)) = &mut config.store {
            anchor(path, file);
        }
        if let Some(audit) = &mut config.audit {
            check_range("audit.rotate_mib", audit.rotate_mib, 1, 1 << 20).map_err(bad)?;
            check_range("audit.keep", audit.keep.into(), 1, 10_000).map_err(bad)?;
            anchor(path, &mut audit.file);
        }
        config.file = path.to_owned();
        Ok(config)
    }

    /// The files by which this server proves its role.
    pub fn files(&self) -> Files<'_> {
        let Self { authority, certificate, key, revoked, store, .. } = self;
        Files { authority, certificate, key, revoked: revoked.as_deref(), store: store.as_ref() }
    }
}

impl PartyConfig {
    /// The number of this worker, where its party has several.
    #[must_use]
    pub fn cell(&self) -> Option<u16> {
        self.cells.as_ref().map(|cells| cells.number)
    }

    /// The addresses of the servers that this one computes with, and its own.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        addresses(&self.servers, self.cell())
    }

    /// [`PartyConfig::threads`], or as many as the machine has.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(all)
    }

    /// The key of this server's store, if it has one.
    ///
    /// # Errors
    /// As [`StoreKey::read`] and [`StoreKey::of_command`].
    pub fn store_key(&self) -> Result<Option<StoreKey>> {
        self.store.as_ref().map(StoreSettings::key).transpose()
    }

    /// The names under which operators' tools ask this server.
    pub fn observe_names(&self) -> Vec<String> {
        let own = self.observe.as_deref().and_then(|address| address.rsplit_once(':'));
        let own = own.map(|(host, _)| host.to_owned());
        own.into_iter().chain(self.observe_hosts.iter().cloned()).collect()
    }

    /// This server's protocol.
    pub fn computing(&self) -> Computing {
        let profile = match self.profile {
            ProfileChoice::Auto => Profile::default(),
            ProfileChoice::Fixed(profile) => profile,
        };
        let truncation = self.truncation.into();
        let settings = Settings { truncation, profile, security: self.security };
        Computing { protocol: self.protocol, settings }
    }

    /// Why the others may not find this server where it listens, if that can be seen from here.
    #[must_use]
    pub fn misplaced(&self) -> Option<String> {
        let mine = &self.addresses()[self.party];
        let (listen_host, listen_port) = self.listen.rsplit_once(':')?;
        let (host, port) = mine.rsplit_once(':')?;
        let address = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let elsewhere = match (address(listen_host), address(host)) {
            (Some(listens), Some(found)) => !listens.is_unspecified() && listens != found,
            _ => false,
        };
        (elsewhere || listen_port != port).then(|| {
            format!(
                "`listen` is {}, but the others look for this server at {mine} (servers[{}]); correct \
                 one of the two, unless something forwards what comes there",
                self.listen, self.party
            )
        })
    }
}

fn default_rotate_mib() -> u64 {
    64
}

fn default_keep() -> u32 {
    16
}
