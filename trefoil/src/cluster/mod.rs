//! Making a cluster: its authority, certificates, keys and configuration files.

mod expiry;
mod files;
mod identity;
mod member;
mod renew;
mod request;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use cluster_protocols::ProtocolChoice;
use mpc_core::Security;
use net::{Authority, Role};
use serde::Serialize;
use zeroize::Zeroizing;

pub use expiry::{CertificateEnd, now};
use files::{make_folder, write_new};
pub(crate) use identity::rekey_private;
pub use identity::{cluster_id, identity, trust};
use member::{Servers, add_party, write_client, write_dealer};
use renew::write_lists;
pub use renew::{Renewal, renew, revoke};
pub use request::{Signed, request, sign};

use crate::{
    base::{Error, Result, check::check_address},
    config::PartyConfig,
};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The number of years for which the authority's certificate is valid.
const YEARS: u32 = 10;

/// The number of years for which those of members are valid.
const MEMBER_YEARS: u32 = 2;

/// The file of the revoked certificates in each member's folder.
const LIST: &str = "revoked.pem";

/// The folder of the authority within a cluster's folder.
const AUTHORITY: &str = "authority";

/// The cluster that `cluster init` makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The folder.
    pub folder: PathBuf,
    /// The servers' protocol.
    pub protocol: ProtocolChoice,
    /// Their defence against one that lies.
    pub security: Security,
    /// `host:port` of the servers.
    pub servers: Vec<String>,
    /// Names of the clients.
    pub clients: Vec<String>,
    /// Names of the dealers of tapes.
    pub dealers: Vec<String>,
    /// True if members make their keys themselves ([`request`]), and get certificates later ([`sign`]).
    pub without_keys: bool,
}

/// The files of a member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// `party-0`, `client alice`, `dealer maker`.
    pub role: String,
    /// Its folder, which is copied to its machine as a whole.
    pub folder: PathBuf,
    /// Its configuration file.
    pub config: PathBuf,
}

/// The servers' addresses from `--hosts`: as many hosts, with or without ports. Hosts without one get `port`; on one
/// machine they get separate ports, one after the other.
///
/// # Errors
/// [`Error::Input`] unless there are as many as the protocol has servers.
pub fn addresses(protocol: ProtocolChoice, hosts: &[String], port: u16) -> Result<Vec<String>> {
    let wanted = protocol.servers();
    let given = match hosts {
        [] => vec!["127.0.0.1".to_owned(); wanted],
        hosts if hosts.len() == wanted => hosts.to_vec(),
        hosts => {
            let example: Vec<_> = ('a'..).take(wanted).map(String::from).collect();
            let reason = format!(
                "{} hosts; name {wanted}, as in --hosts {}",
                hosts.len(),
                example.join(",")
            );
            return Err(Error::input("--hosts", reason));
        }
    };
    let has_port = |host: &str| host.rsplit_once(':').is_some_and(|(_, end)| !end.ends_with(']'));
    let mut servers = Vec::with_capacity(wanted);
    for (party, host) in given.iter().enumerate() {
        let earlier = given[..party].iter().filter(|other| *other == host).count();
        let address = if has_port(host) {
            host.clone()
        } else {
            let port = u16::try_from(usize::from(port) + earlier)
                .map_err(|_| Error::input("--port", "all ports from here must be below 65536"))?;
            format!("{host}:{port}")
        };
        check_address("--hosts", &address).map_err(|reason| Error::input("--hosts", reason))?;
        if servers.contains(&address) {
            let reason = format!("{address} twice; each server needs an address of its own");
            return Err(Error::input("--hosts", reason));
        }
        servers.push(address);
    }
    Ok(servers)
}

/// Makes a cluster in a folder that does not hold one. Private keys are readable by their owner alone.
///
/// # Errors
/// [`Error::Config`] if the folder holds a cluster, [`Error::Input`] if a client's name is not
/// allowed, [`Error::File`] if files cannot be written. No file is ever overwritten.
pub fn init(plan: &Plan) -> Result<Vec<Member>> {
    let clients = plan.clients.iter().map(|name| client_role(name)).collect::<Result<Vec<_>>>()?;
    let dealers = plan.dealers.iter().map(|name| dealer_role(name)).collect::<Result<Vec<_>>>()?;
    if let Some(both) = plan.dealers.iter().find(|name| plan.clients.contains(name)) {
        return Err(Error::input(format_args!("dealer `{both}`"), SEES_ANSWERS));
    }
    if (1..clients.len()).any(|i| clients[..i].contains(&clients[i])) {
        return Err(Error::input(
            "--clients",
            "a name stands there twice; each client has its own",
        ));
    }
    let home = plan.folder.join(AUTHORITY);
    if home.exists() {
        let reason = "holds a cluster already; use another folder, or `trefoil cluster add-client`";
        return Err(Error::config(plan.folder.display(), reason));
    }
    make_folder(&home)?;
    let authority = Authority::generate(YEARS * YEAR)?;
    write_new(&home.join("authority.pem"), authority.certificate_pem(), false)?;
    write_new(&home.join("authority.key"), &authority.key_pem(), true)?;
    write_lists(&plan.folder, &authority, &[])?;
    let mut members = Vec::new();
    for party in 0..plan.servers.len() {
        members.push(add_party(plan, &authority, party)?);
    }
    for role in &clients {
        let keys = !plan.without_keys;
        members.push(write_client(&plan.folder, Servers::from(plan), &authority, role, keys)?);
    }
    for role in &dealers {
        members.push(write_dealer(&plan.folder, &authority, role, !plan.without_keys)?);
    }
    Ok(members)
}

/// The reason why nobody is a client and a dealer.
const SEES_ANSWERS: &str = "a client has this name, and clients see answers: from answers a dealer could learn inputs; \
                            give the dealer a name of its own";

/// Adds a client to a cluster that [`init`] made here.
///
/// # Errors
/// [`Error::Config`] if the folder does not hold a cluster, [`Error::Input`] if the name is not
/// allowed or taken, [`Error::File`] if files cannot be written.
pub fn add_client(folder: &Path, name: &str) -> Result<Member> {
    let role = client_role(name)?;
    let authority = read_authority(folder)?;
    let party = PartyConfig::read(&folder.join("party-0").join("party.toml"))?;
    write_client(folder, Servers::from(&party), &authority, &role, true)
}

/// Adds a dealer of tapes to a cluster that [`init`] made here.
///
/// # Errors
/// As [`add_client`]; also if a client has this name.
pub fn add_dealer(folder: &Path, name: &str) -> Result<Member> {
    let role = dealer_role(name)?;
    write_dealer(folder, &read_authority(folder)?, &role, true)
}

/// The authority of a cluster that [`init`] made here.
fn read_authority(folder: &Path) -> Result<Authority> {
    let home = folder.join(AUTHORITY);
    let read = |name: &str| {
        let path = home.join(name);
        fs::read_to_string(&path).map_err(|cause| {
            let reason = format!(
                "cannot be read ({cause}); members are added, renewed and revoked where the cluster \
                 was made with `trefoil cluster init`"
            );
            Error::config(path.display(), reason)
        })
    };
    let key = Zeroizing::new(read("authority.key")?);
    Ok(Authority::from_pem(&read("authority.pem")?, &key)?)
}

fn client_role(name: &str) -> Result<Role> {
    Role::client(name).map_err(|_| {
        let reason = "use 1 to 40 characters out of a-z, 0-9 and -";
        Error::input(format_args!("client `{}`", name.escape_default()), reason)
    })
}

fn dealer_role(name: &str) -> Result<Role> {
    Role::dealer(name).map_err(|_| {
        let reason = "use 1 to 40 characters out of a-z, 0-9 and -";
        Error::input(format_args!("dealer `{}`", name.escape_default()), reason)
    })
}

/// The name of a member's folder in the cluster's.
fn member_folder(role: &Role) -> String {
    role.to_string().replace(' ', "-")
}

/// The name of a member's files, without the ending.
fn stem(role: &Role) -> &'static str {
    match role {
        Role::Client(_) => "client",
        Role::Dealer(_) => "dealer",
        _ => "party",
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::config::{ClientConfig, DealerConfig, PORT};

    fn plan(folder: &Path) -> Plan {
        Plan {
            folder: folder.to_owned(),
            protocol: ProtocolChoice::Rss,
            security: Security::SemiHonest,
            servers: addresses(ProtocolChoice::Rss, &[], PORT).unwrap(),
            without_keys: false,
            clients: vec!["alice".to_owned(), "bob".to_owned()],
            dealers: vec!["maker".to_owned()],
        }
    }

    #[test]
    fn a_cluster_has_files_for_every_member_and_they_are_read_back() {
        let folder = crate::testing::folder("cluster");
        let members = init(&plan(&folder)).unwrap();
        let roles: Vec<_> = members.iter().map(|member| member.role.as_str()).collect();
        let all = ["party-0", "party-1", "party-2", "client alice", "client bob", "dealer maker"];
        assert_eq!(roles, all);
        for party in 0..3 {
            let config = PartyConfig::read(&members[party].config).unwrap();
            assert_eq!(config.party, party);
            assert_eq!(config.listen, config.servers[party]);
            identity(&Role::party(party), &config.files()).unwrap();
            let wrong = identity(&Role::party((party + 1) % 3), &config.files()).unwrap_err();
            assert!(wrong.to_string().contains("certificate of party-"), "{wrong}");
        }
        let config = ClientConfig::read(&members[3].config).unwrap();
        identity(&Role::client("alice").unwrap(), &config.files()).unwrap();
        let config = DealerConfig::read(&members[5].config).unwrap();
        identity(&Role::dealer("maker").unwrap(), &config.files()).unwrap();
    }

    #[test]
    fn nobody_is_a_client_and_a_dealer() {
        let folder = crate::testing::folder("cluster");
        let both = Plan { dealers: vec!["bob".to_owned()], ..plan(&folder) };
        assert!(init(&both).unwrap_err().to_string().contains("clients see answers"));
        init(&plan(&folder)).unwrap();
        assert!(add_dealer(&folder, "alice").unwrap_err().to_string().contains("see answers"));
        assert!(add_client(&folder, "maker").unwrap_err().to_string().contains("a dealer has"));
        add_dealer(&folder, "carol").unwrap();
        assert!(add_dealer(&folder, "carol").unwrap_err().to_string().contains("another name"));
        assert!(sign(&folder, "dealer carol", &folder.join("none")).is_err());
        let renewed = renew(&folder, &Renewal::Of(vec!["dealer carol".to_owned()]), true).unwrap();
        assert_eq!(renewed[0].role, "dealer carol");
        revoke(&folder, "dealer carol").unwrap();
    }

    #[test]
    fn nothing_is_ever_overwritten() {
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        let before = fs::read(folder.join("party-0/party.key")).unwrap();
        let error = init(&plan(&folder)).unwrap_err();
        assert!(error.to_string().contains("holds a cluster already"));
        assert_eq!(fs::read(folder.join("party-0/party.key")).unwrap(), before);
        assert!(add_client(&folder, "bob").unwrap_err().to_string().contains("another name"));
    }

    #[test]
    fn a_client_is_added_under_the_same_authority() {
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        let member = add_client(&folder, "carol").unwrap();
        let config = ClientConfig::read(&member.config).unwrap();
        assert_eq!(
            fs::read(config.authority).unwrap(),
            fs::read(folder.join("authority/authority.pem")).unwrap()
        );
        assert!(add_client(&folder, "../x").is_err());
        assert!(add_client(&crate::testing::folder("empty"), "x").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_private_and_a_public_one_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        for key in ["authority/authority.key", "party-1/party.key", "client-bob/client.key"] {
            let mode = fs::metadata(folder.join(key)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
        let key = folder.join("party-1/party.key");
        let config = PartyConfig::read(&folder.join("party-1/party.toml")).unwrap();
        let of_root = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&key).unwrap()) == 0;
        for (mode, sound) in [(0o600, true), (0o640, of_root), (0o660, false), (0o644, false)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let found = identity(&Role::party(1), &config.files());
            assert_eq!(found.is_ok(), sound, "{mode:o}");
            if let Err(error) = found {
                assert!(error.to_string().contains("chmod 600"), "{error}");
            }
        }
    }

    fn period(folder: &Path, member: &str) -> net::Period {
        let config = PartyConfig::read(&folder.join(member).join("party.toml")).unwrap();
        identity(&Role::party(config.party), &config.files()).unwrap().period().unwrap()
    }

    #[test]
    fn a_renewed_member_keeps_its_key_unless_told_otherwise() {
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        let files = ["party-0/party.key", "party-0/party.pem", "client-bob/client.pem"];
        let before = files.map(read);
        renew(&folder, &Renewal::All, false).unwrap();
        let after = files.map(read);
        assert!(before[0] == after[0] && before[1] != after[1] && before[2] != after[2]);
        assert!(period(&folder, "party-0").end > SystemTime::now() + YEAR);
        renew(&folder, &Renewal::Of(vec!["party-0".to_owned()]), true).unwrap();
        assert!(read("party-0/party.key") != before[0] && read(files[2]) == after[2]);
        period(&folder, "party-0");
        let unknown = renew(&folder, &Renewal::Of(vec!["carol".to_owned()]), false).unwrap_err();
        assert!(unknown.to_string().contains("client carol"), "{unknown}");
        let authority = read("party-2/authority.pem");
        renew(&folder, &Renewal::Of(vec!["authority".to_owned()]), false).unwrap();
        assert!(read("party-2/authority.pem") != authority);
        period(&folder, "party-2");
    }

    #[test]
    fn all_certificates_of_a_revoked_member_are_on_the_list_in_every_folder() {
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        renew(&folder, &Renewal::Of(vec!["bob".to_owned()]), true).unwrap();
        let empty = fs::read(folder.join("party-0/revoked.pem")).unwrap();
        assert_eq!(revoke(&folder, "bob").unwrap().len(), 6);
        let list = fs::read(folder.join("party-0/revoked.pem")).unwrap();
        assert!(list.len() > empty.len());
        assert_eq!(list, fs::read(folder.join("client-alice/revoked.pem")).unwrap());
        let revoked = fs::read_to_string(folder.join("authority/revoked")).unwrap();
        assert_eq!(revoked.lines().count(), 2, "the one before the renewal too");
        assert!(revoke(&folder, "bob").unwrap_err().to_string().contains("revoked already"));
        let again = renew(&folder, &Renewal::Of(vec!["bob".to_owned()]), false).unwrap_err();
        assert!(again.to_string().contains("--new-key"), "{again}");
        renew(&folder, &Renewal::Of(vec!["bob".to_owned()]), true).unwrap();
        add_client(&folder, "carol").unwrap();
        assert_eq!(list, fs::read(folder.join("client-carol/revoked.pem")).unwrap());
    }

    #[test]
    fn a_certificate_out_of_its_time_is_named_with_what_to_do() {
        let folder = crate::testing::folder("cluster");
        init(&plan(&folder)).unwrap();
        let authority = read_authority(&folder).unwrap();
        let config = PartyConfig::read(&folder.join("party-0/party.toml")).unwrap();
        let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
        for (begin, said) in
            [(now - 9 * day, "has expired 7 days ago"), (now + 3 * day, "is valid only in 2 days")]
        {
            let wrong = authority.issue_for_period(&Role::party(0), begin, 2 * day).unwrap();
            fs::write(&config.certificate, wrong.certificate_pem()).unwrap();
            let text = identity(&Role::party(0), &config.files()).unwrap_err().to_string();
            assert!(text.contains(said) && text.contains("clock"), "{text}");
            assert!(text.contains("party.pem"), "{text}");
        }
    }

    #[test]
    fn hosts_get_ports_where_they_have_none() {
        let hosts = |list: &[&str]| {
            let list: Vec<_> = list.iter().map(ToString::to_string).collect();
            addresses(ProtocolChoice::Rss, &list, PORT)
        };
        let local = ["127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"];
        assert_eq!(hosts(&[]).unwrap(), local);
        assert_eq!(hosts(&["a", "b", "c"]).unwrap(), ["a:7100", "b:7100", "c:7100"]);
        assert_eq!(hosts(&["a:1", "b", "b"]).unwrap(), ["a:1", "b:7100", "b:7101"]);
        assert_eq!(hosts(&["[::1]", "b", "c"]).unwrap()[0], "[::1]:7100");
        for bad in [&["a", "b"][..], &["a:1", "a:1", "b"], &["a b", "c", "d"], &["a:x", "b", "c"]] {
            assert!(hosts(bad).is_err(), "{bad:?}");
        }
        let four = addresses("dealt-3".parse().unwrap(), &["a".to_owned()], PORT);
        assert!(four.unwrap_err().to_string().contains("name 4, as in --hosts a,b,c,d"));
    }
}
