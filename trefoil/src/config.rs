//! The TOML files of parties and clients. Unknown keys are refused, paths are relative to the file.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gpu_kernels::EngineChoice;
use mpc_core::{Profile, TruncationMode};
use rss_protocols::Options;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, cluster::Files, log, program::sharing, store::StoreKey};

/// The port of party 0 unless told otherwise.
pub const PORT: u16 = 7100;

/// The file of one server, `party.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyConfig {
    /// Which server this is, from 0 on.
    pub party: usize,
    /// How the servers compute on shares, the same at all of them and their clients.
    #[serde(default, skip_serializing_if = "ProtocolChoice::is_default")]
    pub protocol: ProtocolChoice,
    /// Address and port to listen on, `0.0.0.0:7100` for every interface.
    pub listen: String,
    /// Where the servers find each other: `host:port` of each, in their order.
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
    /// Where this server keeps its shares of models.
    pub data: PathBuf,
    /// What to compute on: `auto`, `cpu`, or `cuda:0` for the first CUDA device. `auto` takes that if it can
    /// be used, else the CPU. The other servers may compute on something else.
    #[serde(default)]
    pub engine: EngineChoice,
    /// How results are rounded, the same at all servers.
    #[serde(default)]
    pub truncation: Truncation,
    /// What is spared, the same at all three servers: `bytes`, or for links with a long round trip `slow-links`, which
    /// takes fewer rounds of more bytes. A model that was made for one keeps to that.
    #[serde(default)]
    pub profile: Profile,
    /// Threads to compute with on the CPU; all that the machine has unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// How much to log: `info`, `debug`, or `net=debug,info`. Instead of `TREFOIL_LOG`, and taken up by a running
    /// server within a second when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Where the server tells its operator's tools how it is, over HTTP: `127.0.0.1:9100` for instance. Nowhere
    /// unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<String>,
    /// Names, beside addresses, `localhost` and that of `observe`, under which tools ask there: the `Host` of their
    /// requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observe_hosts: Vec<String>,
    /// How plans and shares are encrypted on this server's disk. They are not unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreSettings>,
    /// The record of who asked this server for what. None is kept unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditLog>,
    /// Which clients may do what at this server.
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub access: Access,
    /// Bounds on what peers and clients can make this server do.
    #[serde(default)]
    pub limits: Limits,
    /// The file that this was read from.
    #[serde(skip)]
    pub file: PathBuf,
}

/// How servers compute on shares. SECURITY.md says what each protects against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolChoice {
    /// Three servers hold replicated shares.
    #[default]
    Rss,
    /// Two servers compute with tapes that a dealer made before.
    RssDealt,
}

impl ProtocolChoice {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Number of its servers.
    #[must_use]
    pub fn servers(self) -> usize {
        sharing(self).servers()
    }
}

/// How servers compute on shares, the same at all of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Computing {
    /// The protocol.
    pub protocol: ProtocolChoice,
    /// What it is told.
    pub options: Options,
}

/// How the low bits of a product are dropped. SECURITY.md says what each mode tells.
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

/// Where and for how long a server keeps its audit log.
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

/// Where the key is under which plans and shares are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum StoreSettings {
    /// A file with 64 hexadecimal letters, readable by its owner alone.
    Key(PathBuf),
    /// A program with its arguments that prints them, so that a key service or a TPM can hold the key.
    Command(Vec<String>),
}

/// Which clients may do what at a server, by the names in their certificates. All servers must
/// allow what is done. Who may run a certain model its owner decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Clients that may connect; all that have a certificate, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<String>>,
    /// Clients that may not connect, whatever the other lists say.
    pub forbid: Vec<String>,
    /// Clients that may put models, and replace, share and remove their own; all, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put: Option<Vec<String>>,
    /// Clients that may run models; all, unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer: Option<Vec<String>>,
}

/// Bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest part of one job that a client may send, in MiB.
    pub upload_mib: u64,
    /// Most words that one layer's result may have, over the whole batch.
    pub activation_mwords: u64,
    /// Most memory that a model may need while it runs, as predicted from its plan, in MiB.
    pub job_memory_mib: u64,
    /// Most memory that the parts of waiting jobs may take, in MiB.
    pub memory_mib: u64,
    /// Most jobs that may wait.
    pub queue: usize,
    /// Most examples of jobs that wait for the same model and run as one, where the model allows it; party 0
    /// decides. 1 lets every job run alone.
    pub joined_examples: usize,
    /// Most clients connected at once.
    pub clients: usize,
    /// Most memory that loaded models may take, and as much again trainings between their slices, in MiB.
    pub cache_mib: u64,
    /// How long a job waits for its parts to reach all servers, in seconds.
    pub parts_seconds: u64,
    /// How long a running job waits for a silent server, in seconds.
    pub peer_seconds: u64,
    /// How long a job may run, in seconds.
    pub job_seconds: u64,
    /// How long one slice of a training may run, unless a single step takes longer, in seconds.
    pub train_seconds: u64,
    /// How long a server that is being stopped goes on with the jobs that it has taken, in seconds.
    pub drain_seconds: u64,
    /// What a client that sends its part of a job must send at least, and read at least of its answer, in KiB a
    /// second.
    pub upload_kib_per_second: u64,
    /// Most connections of one client.
    pub client_connections: usize,
    /// Most memory that the parts of one client's waiting jobs may take, in MiB.
    pub client_memory_mib: u64,
    /// Most jobs of one client that may come or wait.
    pub client_jobs: usize,
    /// Most models of one client.
    pub client_models: usize,
    /// Most room on disk that the models of one client may take, in MiB.
    pub client_disk_mib: u64,
    /// Most seconds a day for which this server computes for one client.
    pub client_seconds_per_day: u64,
    /// Most examples a day on which one client may run one model.
    pub client_answers_per_day: u64,
}

/// The file of one client, `client.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// The client's name, which its certificate names too.
    pub name: String,
    /// How the servers compute on shares.
    #[serde(default, skip_serializing_if = "ProtocolChoice::is_default")]
    pub protocol: ProtocolChoice,
    /// `host:port` of the servers, in their order.
    pub servers: Vec<String>,
    /// The cluster's authority (PEM).
    pub authority: PathBuf,
    /// This client's certificate (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM), readable by its owner alone.
    pub key: PathBuf,
    /// The authority's list of revoked certificates (PEM); none are refused without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
    /// How long to try to reach a server, in seconds.
    #[serde(default = "default_connect_seconds")]
    pub connect_seconds: u64,
    /// How long to wait for a server that says nothing, in seconds. A server that works on the job or
    /// keeps it in its queue says so every second.
    #[serde(default = "default_silence_seconds")]
    pub silence_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            upload_mib: 4096,
            activation_mwords: 256,
            job_memory_mib: 16_384,
            memory_mib: 8192,
            queue: 1024,
            joined_examples: 128,
            clients: 256,
            cache_mib: 4096,
            parts_seconds: 10,
            peer_seconds: 10,
            job_seconds: 3600,
            train_seconds: 5,
            drain_seconds: 30,
            upload_kib_per_second: 16,
            client_connections: 64,
            client_memory_mib: 4096,
            client_jobs: 64,
            client_models: 100,
            client_disk_mib: 65_536,
            client_seconds_per_day: 86_400,
            client_answers_per_day: 1_000_000,
        }
    }
}

impl PartyConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the key and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        let mut config: Self = read(path, "trefoil cluster init")?;
        let bad = |reason: String| Error::config(path.display(), reason);
        let most = config.protocol.servers() - 1;
        check_range("party", config.party as u64, 0, most as u64).map_err(bad)?;
        check_address("listen", &config.listen).map_err(bad)?;
        config.observe.iter().try_for_each(|it| check_address("observe", it)).map_err(bad)?;
        check_servers(config.protocol, &config.servers).map_err(bad)?;
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

    /// The files by which this server proves who it is.
    pub fn files(&self) -> Files<'_> {
        let Self { authority, certificate, key, revoked, .. } = self;
        Files { authority, certificate, key, revoked: revoked.as_deref() }
    }
}

impl Access {
    /// Whether a client may connect.
    #[must_use]
    pub fn admits(&self, client: &str) -> bool {
        listed(self.clients.as_deref(), client) && !self.forbid.iter().any(|name| name == client)
    }

    /// Whether a client that may connect may put models.
    #[must_use]
    pub fn may_put(&self, client: &str) -> bool {
        listed(self.put.as_deref(), client)
    }

    /// Whether a client that may connect may run models.
    #[must_use]
    pub fn may_infer(&self, client: &str) -> bool {
        listed(self.infer.as_deref(), client)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self) -> Result<(), String> {
        let lists = [
            ("clients", self.clients.as_deref()),
            ("forbid", Some(self.forbid.as_slice())),
            ("put", self.put.as_deref()),
            ("infer", self.infer.as_deref()),
        ];
        for (key, names) in lists {
            for name in names.unwrap_or_default() {
                check_name("client", name).map_err(|reason| format!("`access.{key}`: {reason}"))?;
            }
        }
        Ok(())
    }
}

/// Whether a list that need not be given has a name.
fn listed(list: Option<&[String]>, client: &str) -> bool {
    list.is_none_or(|names| names.iter().any(|name| name == client))
}

impl PartyConfig {
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
        match &self.store {
            None => Ok(None),
            Some(StoreSettings::Key(file)) => StoreKey::read(file).map(Some),
            Some(StoreSettings::Command(words)) => StoreKey::of_command(words).map(Some),
        }
    }

    /// The names under which operators' tools ask this server.
    pub fn observe_names(&self) -> Vec<String> {
        let own = self.observe.as_deref().and_then(|address| address.rsplit_once(':'));
        let own = own.map(|(host, _)| host.to_owned());
        own.into_iter().chain(self.observe_hosts.iter().cloned()).collect()
    }

    /// How this server computes on shares.
    pub fn computing(&self) -> Computing {
        let options = Options::default().truncation(self.truncation.into()).profile(self.profile);
        Computing { protocol: self.protocol, options }
    }

    /// Why the others may not find this server where it listens, if that can be seen from here.
    #[must_use]
    pub fn misplaced(&self) -> Option<String> {
        let mine = &self.servers[self.party];
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

impl ClientConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the key and what would be right.
    pub fn read(path: &Path) -> Result<Self> {
        let mut config: Self = read(path, "trefoil cluster init")?;
        let bad = |reason: String| Error::config(path.display(), reason);
        check_servers(config.protocol, &config.servers).map_err(bad)?;
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

    /// The files by which this client proves who it is.
    pub fn files(&self) -> Files<'_> {
        let Self { authority, certificate, key, revoked, .. } = self;
        Files { authority, certificate, key, revoked: revoked.as_deref() }
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

impl Limits {
    /// Largest part of one job, in bytes.
    pub fn upload_bytes(&self) -> u64 {
        self.upload_mib << 20
    }

    /// Largest result of a layer, in words.
    pub fn activation_words(&self) -> u64 {
        self.activation_mwords << 20
    }

    /// Most memory of a running model, in bytes.
    pub fn job_bytes(&self) -> u64 {
        self.job_memory_mib << 20
    }

    /// What all clients together can make this server hold at once, in bytes: parts, models, and the model
    /// that runs.
    fn memory(&self) -> u64 {
        (self.memory_mib + self.cache_mib + self.job_memory_mib) << 20
    }

    /// What to say where a machine with so many bytes of memory has less than these limits promise.
    #[must_use]
    pub fn oversized(&self, machine: u64) -> Option<String> {
        (self.memory() > machine).then(|| {
            format!(
                "clients can make this server hold {} MiB (limits.memory_mib, cache_mib and \
                 job_memory_mib together), and this machine has {} MiB of memory; set lower limits, or \
                 the system may end the server under load",
                self.memory() >> 20,
                machine >> 20
            )
        })
    }

    /// What a client that sends must send at least, in bytes a second.
    pub fn upload_rate(&self) -> u64 {
        self.upload_kib_per_second << 10
    }

    /// How long a job waits for its parts.
    pub fn parts_limit(&self) -> Duration {
        Duration::from_secs(self.parts_seconds)
    }

    /// How long a running job waits for a peer.
    pub fn peer_limit(&self) -> Duration {
        Duration::from_secs(self.peer_seconds)
    }

    /// How long a job may run.
    pub fn job_limit(&self) -> Duration {
        Duration::from_secs(self.job_seconds)
    }

    /// How long a slice of a training may run.
    pub fn train_limit(&self) -> Duration {
        Duration::from_secs(self.train_seconds)
    }

    /// How long a server that is being stopped goes on with its jobs.
    pub fn drain_limit(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    fn check(&self) -> Result<(), String> {
        check_range("limits.upload_mib", self.upload_mib, 1, 1 << 20)?;
        check_range("limits.activation_mwords", self.activation_mwords, 1, 1 << 16)?;
        check_range("limits.memory_mib", self.memory_mib, 1, 1 << 24)?;
        check_range("limits.queue", self.queue as u64, 1, 1 << 16)?;
        check_range("limits.joined_examples", self.joined_examples as u64, 1, 1 << 16)?;
        check_range("limits.clients", self.clients as u64, 1, 1 << 16)?;
        check_range("limits.cache_mib", self.cache_mib, 1, 1 << 24)?;
        check_range("limits.parts_seconds", self.parts_seconds, 1, 3600)?;
        check_range("limits.peer_seconds", self.peer_seconds, 1, 3600)?;
        check_range("limits.job_seconds", self.job_seconds, 1, 1 << 20)?;
        check_range("limits.train_seconds", self.train_seconds, 1, 1 << 20)?;
        check_range("limits.drain_seconds", self.drain_seconds, 1, 1 << 20)?;
        check_range("limits.job_memory_mib", self.job_memory_mib, 1, 1 << 24)?;
        check_range("limits.upload_kib_per_second", self.upload_kib_per_second, 1, 1 << 20)?;
        check_range("limits.client_connections", self.client_connections as u64, 1, 1 << 16)?;
        check_range("limits.client_memory_mib", self.client_memory_mib, 1, 1 << 24)?;
        check_range("limits.client_jobs", self.client_jobs as u64, 1, 1 << 16)?;
        check_range("limits.client_models", self.client_models as u64, 1, 1 << 16)?;
        check_range("limits.client_disk_mib", self.client_disk_mib, 1, 1 << 32)?;
        check_range("limits.client_seconds_per_day", self.client_seconds_per_day, 1, 86_400)?;
        check_range("limits.client_answers_per_day", self.client_answers_per_day, 1, 1 << 48)
    }
}

/// Checks the name of a model or client: 1 to 64 of `a-z A-Z 0-9 . _ -`, a letter or digit first.
///
/// # Errors
/// A sentence that says what a name may be.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
    {
        return Ok(());
    }
    Err(format!(
        "{what} `{}` is not a name; use 1 to 64 letters, digits, `.`, `_` or `-`, \
         the first a letter or digit",
        name.escape_default()
    ))
}

/// Checks that a text is `host:port`.
///
/// # Errors
/// A sentence that says what an address looks like.
pub fn check_address(what: &str, address: &str) -> Result<(), String> {
    let sound = address.rsplit_once(':').is_some_and(|(host, port)| {
        let clean = host.bytes().all(|b| b.is_ascii_graphic());
        let bracketed = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && clean && bracketed && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if sound {
        return Ok(());
    }
    let shown = address.escape_default();
    Err(format!(
        "`{what}` is `{shown}`; write host:port with a port from 1 to 65535, for example 127.0.0.1:7100"
    ))
}

fn check_servers(protocol: ProtocolChoice, servers: &[String]) -> Result<(), String> {
    let wanted = protocol.servers();
    if servers.len() != wanted {
        let name = sharing(protocol).name();
        let found = servers.len();
        return Err(format!(
            "`servers` lists {found} addresses; with `protocol = \"{name}\"` there are {wanted}"
        ));
    }
    for (index, address) in servers.iter().enumerate() {
        check_address(&format!("servers[{index}]"), address)?;
        if servers[..index].contains(address) {
            return Err(format!(
                "`servers` lists {address} twice; each server has its own address"
            ));
        }
    }
    Ok(())
}

fn check_range(key: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("`{key}` is {value}; it must be between {low} and {high}"))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path, maker: &str) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|cause| {
        let reason = format!("cannot be read ({cause}); `{maker}` makes such files");
        Error::config(path.display(), reason)
    })?;
    toml::from_str(&text).map_err(|cause| {
        let place = cause.span().map_or(String::new(), |span| {
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            format!("line {line}: ")
        });
        Error::config(path.display(), format!("{place}{}", cause.message()))
    })
}

/// Makes a path of the file relative to the folder that the file is in.
fn anchor(file: &Path, path: &mut PathBuf) {
    if let Some(folder) = file.parent() {
        *path = folder.join(&*path);
    }
}

fn default_rotate_mib() -> u64 {
    64
}

fn default_keep() -> u32 {
    16
}

fn default_connect_seconds() -> u64 {
    5
}

fn default_silence_seconds() -> u64 {
    30
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTY: &str = r#"
        party = 1
        listen = "127.0.0.1:7101"
        servers = ["127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"]
        authority = "authority.pem"
        certificate = "party.pem"
        key = "party.key"
        data = "data"
    "#;

    fn read_text(text: &str) -> Result<PartyConfig> {
        let folder = crate::testing::folder("config");
        let path = folder.join("party.toml");
        fs::write(&path, text).unwrap();
        PartyConfig::read(&path)
    }

    #[test]
    fn a_party_file_is_read_and_its_paths_are_anchored() {
        let config = read_text(PARTY).unwrap();
        assert_eq!(config.party, 1);
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.engine, EngineChoice::Auto);
        let config = read_text(&format!("{PARTY}\nengine = \"cuda:1\"\n")).unwrap();
        assert_eq!(config.engine, EngineChoice::Cuda(1));
        assert!(config.key.is_absolute() && config.key.ends_with("party.key"));
    }

    #[test]
    fn limits_beyond_the_memory_of_the_machine_are_told() {
        let limits =
            Limits { memory_mib: 10, cache_mib: 20, job_memory_mib: 70, ..Limits::default() };
        assert_eq!(limits.oversized(100 << 20), None);
        let told = limits.oversized(99 << 20).unwrap();
        assert!(told.contains("hold 100 MiB") && told.contains("99 MiB of memory"), "{told}");
    }

    #[test]
    fn unknown_keys_are_refused_by_name_and_line() {
        let error = read_text(&format!("{PARTY}\nportt = 3\n")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("portt") && text.contains("line 10"), "{text}");
        assert_eq!(error.exit_code(), 4);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (from, to, said) in [
            ("party = 1", "party = 3", "`party` is 3"),
            ("\"127.0.0.1:7102\"]", "\"127.0.0.1:7100\"]", "twice"),
            ("\"127.0.0.1:7102\"]", "\"nonsense\"]", "servers[2]"),
            (
                ", \"127.0.0.1:7102\"]",
                "]",
                "lists 2 addresses; with `protocol = \"rss\"` there are 3",
            ),
            ("party = 1", "party = 1\nprotocol = \"rss-dealt\"", "lists 3 addresses"),
            ("party = 1", "party = 1\nprotocol = \"shamir\"", "shamir"),
            ("\"127.0.0.1:7101\"\n", "\":7101\"\n", "`listen`"),
            ("\"127.0.0.1:7101\"\n", "\"127.0.0.1:0\"\n", "a port from 1 to 65535"),
            ("data = \"data\"", "data = \"data\"\n[access]\nput = [\"a/b\"]", "access.put"),
            ("data = \"data\"", "data = \"data\"\n[access]\nadmit = []", "admit"),
            ("data = \"data\"", "data = \"data\"\n[limits]\nqueue = 0", "limits.queue"),
            ("data = \"data\"", "data = \"data\"\nengine = \"gpu\"", "`auto`, `cpu`, or `cuda:`"),
            ("data = \"data\"", "data = \"data\"\nengine = \"cuda:\"", "`cuda:` is no engine"),
        ] {
            let text = read_text(&PARTY.replace(from, to)).unwrap_err().to_string();
            assert!(text.contains(said), "{to}: {text}");
        }
    }

    #[test]
    fn lists_of_clients_allow_whom_they_name_and_forbidding_wins() {
        let text =
            format!("{PARTY}\n[access]\nclients = [\"a\", \"b\"]\nforbid = [\"b\"]\nput = []\n");
        let access = read_text(&text).unwrap().access;
        assert_eq!(["a", "b", "c"].map(|name| access.admits(name)), [true, false, false]);
        assert!(access.may_infer("a") && !access.may_put("a"));
        assert!(Access::default().admits("anybody") && Access::default().may_put("anybody"));
    }

    #[test]
    fn a_server_that_listens_elsewhere_than_the_others_look_is_told_so() {
        let config = |listen: &str, mine: &str| {
            let text =
                PARTY.replace("listen = \"127.0.0.1:7101\"", &format!("listen = \"{listen}\""));
            let text = text.replace(
                "\"127.0.0.1:7101\", \"127.0.0.1:7102\"",
                &format!("\"{mine}\", \"127.0.0.1:7102\""),
            );
            read_text(&text).unwrap()
        };
        for (listen, mine) in [
            ("0.0.0.0:7101", "127.0.0.1:7101"),
            ("[::]:7101", "example.org:7101"),
            ("127.0.0.1:7101", "127.0.0.1:7101"),
            ("10.0.0.3:7101", "b.example.org:7101"),
        ] {
            assert_eq!(config(listen, mine).misplaced(), None, "{listen} {mine}");
        }
        for (listen, mine) in
            [("0.0.0.0:7109", "127.0.0.1:7101"), ("127.0.0.1:7101", "10.0.0.3:7101")]
        {
            let text = config(listen, mine).misplaced().unwrap();
            assert!(text.contains(listen) && text.contains(mine), "{text}");
        }
    }

    #[test]
    fn a_missing_file_says_which_command_makes_it() {
        let error = PartyConfig::read(Path::new("nowhere/party.toml")).unwrap_err();
        assert!(error.to_string().contains("trefoil cluster init"));
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "-x", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name("model", name).is_err(), "{name}");
        }
        for name in ["a", "lenet-5", "v1.2_x", "9"] {
            check_name("model", name).unwrap();
        }
    }
}
