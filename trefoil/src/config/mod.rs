//! The TOML files of parties and clients. Unknown keys are refused, paths are relative to the file.

mod access;
mod limits;

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use cluster_protocols::{Computing, ProtocolChoice};
use gpu_kernels::EngineChoice;
use mpc_core::{Profile, Security, Settings, TruncationMode};
use serde::{Deserialize, Serialize};

use crate::base::{
    Error, Result,
    check::{check_address, check_range},
    encryption::StoreKey,
    log,
};

pub use access::Access;
pub use limits::Limits;

/// The default port of party 0.
pub const PORT: u16 = 7100;

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
    /// The servers' addresses: `host:port` of each, in their order.
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
    /// which takes fewer rounds of more bytes. A model that was made for one profile keeps it.
    #[serde(default)]
    pub profile: Profile,
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

/// The files by which a member proves its role and knows others.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The authority's certificate.
    pub authority: &'a Path,
    /// The member's certificate.
    pub certificate: &'a Path,
    /// Its private key.
    pub key: &'a Path,
    /// The list of revoked certificates, if there is one.
    pub revoked: Option<&'a Path>,
    /// The source of the key that may encrypt the private key.
    pub store: Option<&'a StoreSettings>,
}

impl<'a> Files<'a> {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &'a Path> {
        [self.authority, self.certificate, self.key].into_iter().chain(self.revoked)
    }
}

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
    /// The longest time for reaching a server, in seconds.
    #[serde(default = "default_connect_seconds")]
    pub connect_seconds: u64,
    /// The longest wait for a silent server, in seconds. A server that works on the job or keeps it in its queue
    /// sends a word every second.
    #[serde(default = "default_silence_seconds")]
    pub silence_seconds: u64,
}

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

impl DealerConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the key and what would be right.
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
        check_security(config.protocol, config.security).map_err(bad)?;
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
        let (profile, security) = (self.profile, self.security);
        let settings = Settings { truncation: self.truncation.into(), profile, security };
        Computing { protocol: self.protocol, settings }
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

    /// [`ClientConfig::connect_seconds`] as a duration.
    pub fn connect_limit(&self) -> Duration {
        Duration::from_secs(self.connect_seconds)
    }

    /// [`ClientConfig::silence_seconds`] as a duration.
    pub fn silence_limit(&self) -> Duration {
        Duration::from_secs(self.silence_seconds)
    }
}

fn is_semi_honest(security: &Security) -> bool {
    *security == Security::SemiHonest
}

/// Refuses checks that a protocol does not have.
pub(crate) fn check_security(protocol: ProtocolChoice, security: Security) -> Result<(), String> {
    if security == Security::Checked && protocol != ProtocolChoice::Rss {
        let name = protocol.name();
        return Err(format!(
            "`security = \"checked\"` is for `protocol = \"rss\"`; with `{name}` no server proves its messages"
        ));
    }
    Ok(())
}

fn check_servers(protocol: ProtocolChoice, servers: &[String]) -> Result<(), String> {
    let wanted = protocol.servers();
    if servers.len() != wanted {
        let name = protocol.name();
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
        let limits = Limits {
            memory_mib: 10,
            cache_mib: 20,
            conversations_mib: 30,
            job_memory_mib: 70,
            ..Limits::default()
        };
        // Models may take 20 MiB, and trainings as much again.
        assert_eq!(limits.oversized(150 << 20), None);
        let told = limits.oversized(149 << 20).unwrap();
        assert!(told.contains("hold 150 MiB") && told.contains("149 MiB of memory"), "{told}");
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
            (
                "party = 1",
                "party = 1\nprotocol = \"dealt-3\"",
                "`protocol = \"dealt-3\"` there are 4",
            ),
            ("party = 1", "party = 1\nprotocol = \"dealt-17\"", "dealt-2 to dealt-16"),
            ("party = 1", "party = 1\nprotocol = \"shamir\"", "shamir"),
            ("party = 1", "party = 1\nsecurity = \"some\"", "semi-honest"),
            (
                "party = 1",
                "party = 1\nprotocol = \"additive\"\nsecurity = \"checked\"",
                "with `additive` no server proves",
            ),
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
}
