//! The TOML files of parties, clients and dealers. Unknown keys are refused, paths are relative to the file.

mod access;
mod cells;
mod client;
mod dealer;
mod limits;
mod party;

use std::{
    fs,
    path::{Path, PathBuf},
};

use cluster_protocols::ProtocolChoice;
use mpc_core::Security;
use serde::Deserialize;

pub use access::Access;
pub use cells::{CellSource, Cells};
pub use client::ClientConfig;
pub use dealer::DealerConfig;
pub use limits::Limits;
pub use party::{AuditLog, PartyConfig, ProfileChoice, StoreSettings, Truncation};

use crate::base::{Error, Result, check::check_address};

/// The default port of party 0.
pub const PORT: u16 = 7100;

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
        if address.contains(cells::CELL) {
            return Err(format!(
                "`servers[{index}]` is {address}, and the file says nothing of cells that {} could be one of",
                cells::CELL
            ));
        }
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
    parse(path, &text_of(path, maker)?)
}

fn text_of(path: &Path, maker: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|cause| {
        let reason = format!("cannot be read ({cause}); `{maker}` makes such files");
        Error::config(path.display(), reason)
    })
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|cause| {
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

#[cfg(test)]
mod tests {
    use gpu_kernels::EngineChoice;

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
        // What a machine of 24 GiB has for programs.
        assert_eq!(Limits::default().oversized(24_000 << 20), None);
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
    fn a_cell_of_a_party_has_its_number_in_its_addresses() {
        let party = PARTY
            .replace("127.0.0.1:71", "w{cell}.example:71")
            .replace("listen = \"w{cell}.example:7101\"", "listen = \"0.0.0.0:7{cell}01\"");
        let cells =
            |cell: &str| format!("{party}\nengine = \"cuda:{{cell}}\"\n[cells]\ncount = 3\n{cell}");
        let config = read_text(&cells("cell = 2")).unwrap();
        assert_eq!(config.cell(), Some(2));
        assert_eq!(
            (config.listen.as_str(), config.engine),
            ("0.0.0.0:7201", EngineChoice::Cuda(2))
        );
        assert_eq!(config.addresses()[1], "w2.example:7101");
        assert_eq!(config.servers[1], "w{cell}.example:7101");
        let given = PartyConfig::read_cell(&config.file, Some(1)).unwrap();
        assert_eq!((given.cell(), given.listen.as_str()), (Some(1), "0.0.0.0:7101"));
        for (text, said) in [
            (cells("cell = 3"), "`cells.cell` is 3"),
            (cells("cell = true"), "\"hostname\""),
            (cells("cell = 0").replace("count = 3", "count = 0"), "`cells.count` is 0"),
            (cells("cell = 0").replace("w{cell}.example:7102", "w.example:7102"), "for all cells"),
            (cells("cell = 0").replace("data = \"data\"", "data = \"{cell}\""), "share one folder"),
            (cells("cell = 0") + "\n[audit]\nfile = \"audit\"", "a file of its own"),
            (party.clone(), "servers[0]"),
            (
                cells("cell = 0")
                    .replace("party = 1", "party = 1\nprotocol = \"rss-dealt\"")
                    .replace(", \"w{cell}.example:7102\"", ""),
                "play tapes",
            ),
        ] {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        let error = PartyConfig::read_cell(&read_text(PARTY).unwrap().file, Some(0)).unwrap_err();
        assert!(error.to_string().contains("no [cells]"), "{error}");
    }

    #[test]
    fn a_missing_file_says_which_command_makes_it() {
        let error = PartyConfig::read(Path::new("nowhere/party.toml")).unwrap_err();
        assert!(error.to_string().contains("trefoil cluster init"));
    }
}
