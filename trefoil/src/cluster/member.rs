//! The folder of a member: its configuration, its certificate and its key.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use cluster_protocols::ProtocolChoice;
use gpu_kernels::EngineChoice;
use mpc_core::Security;
use net::{Authority, Role};
use serde::Serialize;

use super::{
    LIST, MEMBER_YEARS, Member, Plan, SEES_ANSWERS, YEAR,
    files::{make_folder, write_new},
    member_folder,
    renew::{current_list, note_issued},
    stem,
};
use crate::{
    base::{Error, Result},
    config::{Access, ClientConfig, DealerConfig, Limits, PartyConfig, ProfileChoice, Truncation},
};

/// The servers, as the file of a client describes them.
pub(super) struct Servers<'a> {
    protocol: ProtocolChoice,
    security: Security,
    addresses: &'a [String],
    /// The greatest number of cells.
    cells: Option<u16>,
}

impl<'a> From<&'a Plan> for Servers<'a> {
    fn from(Plan { protocol, security, servers, .. }: &'a Plan) -> Self {
        Self { protocol: *protocol, security: *security, addresses: servers, cells: None }
    }
}

impl<'a> From<&'a PartyConfig> for Servers<'a> {
    fn from(PartyConfig { protocol, security, servers, cells, .. }: &'a PartyConfig) -> Self {
        let cells = cells.as_ref().map(|cells| cells.count);
        Self { protocol: *protocol, security: *security, addresses: servers, cells }
    }
}

pub(super) fn add_party(plan: &Plan, authority: &Authority, party: usize) -> Result<Member> {
    let role = Role::party(party);
    let folder = plan.folder.join(role.to_string());
    write_identity(&plan.folder, &folder, authority, &role, !plan.without_keys)?;
    let address = &plan.servers[party];
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    // A name or address of another machine may not be one that this machine can bind.
    let host = host.trim_matches(['[', ']']);
    let local = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let listen = if local { address.clone() } else { format!("0.0.0.0:{port}") };
    let config = PartyConfig {
        party,
        protocol: plan.protocol,
        listen,
        servers: plan.servers.clone(),
        authority: "authority.pem".into(),
        certificate: "party.pem".into(),
        key: "party.key".into(),
        revoked: Some(LIST.into()),
        data: "data".into(),
        engine: EngineChoice::Auto,
        truncation: Truncation::default(),
        profile: ProfileChoice::default(),
        security: plan.security,
        threads: None,
        log: None,
        observe: None,
        observe_hosts: Vec::new(),
        store: None,
        cells: None,
        audit: None,
        access: Access::default(),
        limits: Limits::default(),
        file: PathBuf::new(),
    };
    write_config(&role, &folder, "party.toml", &config, PARTY_HEAD)
}

pub(super) fn write_client(
    cluster: &Path,
    servers: Servers<'_>,
    authority: &Authority,
    role: &Role,
    with_key: bool,
) -> Result<Member> {
    let Role::Client(name) = role else {
        return Err(Error::Internal("a client's role was expected".to_owned()));
    };
    let folder = new_member_folder(cluster, role)?;
    if cluster.join(member_folder(&Role::Dealer(name.clone()))).exists() {
        let reason =
            "a dealer has this name, and a dealer must not see answers; choose another name";
        return Err(Error::input(format_args!("client `{name}`"), reason));
    }
    write_identity(cluster, &folder, authority, role, with_key)?;
    let config = ClientConfig {
        name: name.clone(),
        protocol: servers.protocol,
        security: servers.security,
        servers: servers.addresses.to_vec(),
        cells: servers.cells,
        authority: "authority.pem".into(),
        certificate: "client.pem".into(),
        key: "client.key".into(),
        revoked: Some(LIST.into()),
        connect_seconds: 5,
        silence_seconds: 30,
    };
    write_config(role, &folder, "client.toml", &config, CLIENT_HEAD)
}

pub(super) fn write_dealer(
    cluster: &Path,
    authority: &Authority,
    role: &Role,
    with_key: bool,
) -> Result<Member> {
    let Role::Dealer(name) = role else {
        return Err(Error::Internal("a dealer's role was expected".to_owned()));
    };
    let folder = new_member_folder(cluster, role)?;
    if cluster.join(member_folder(&Role::Client(name.clone()))).exists() {
        return Err(Error::input(format_args!("dealer `{name}`"), SEES_ANSWERS));
    }
    write_identity(cluster, &folder, authority, role, with_key)?;
    let config = DealerConfig {
        name: name.clone(),
        authority: "authority.pem".into(),
        certificate: "dealer.pem".into(),
        key: "dealer.key".into(),
    };
    write_config(role, &folder, "dealer.toml", &config, DEALER_HEAD)
}

/// The folder of a member that is not there yet.
fn new_member_folder(cluster: &Path, role: &Role) -> Result<PathBuf> {
    let folder = cluster.join(member_folder(role));
    if folder.exists() {
        let reason = format!("{} is there already; choose another name", folder.display());
        return Err(Error::input(role, reason));
    }
    Ok(folder)
}

const PARTY_HEAD: &str = "\
# One server of a Trefoil cluster. Start it with: trefoil party --config party.toml
# Paths are relative to this file. Keep the key on this machine alone.

";

const CLIENT_HEAD: &str = "\
# A client of a Trefoil cluster. Use it with: trefoil --config client.toml status
# Paths are relative to this file. Keep the key to yourself.

";

const DEALER_HEAD: &str = "\
# A dealer of a Trefoil cluster. Make tapes with it: trefoil --config dealer.toml tape make PLAN DIR --answers N
# Paths are relative to this file. Keep the key on this machine alone.

";

fn write_identity(
    cluster: &Path,
    folder: &Path,
    authority: &Authority,
    role: &Role,
    with_key: bool,
) -> Result<()> {
    make_folder(folder)?;
    write_new(&folder.join("authority.pem"), authority.certificate_pem(), false)?;
    write_new(&folder.join(LIST), &current_list(cluster)?, false)?;
    if !with_key {
        return Ok(());
    }
    let stem = stem(role);
    let identity = authority.issue(role, MEMBER_YEARS * YEAR)?;
    note_issued(cluster, role, identity.certificate_pem())?;
    write_new(&folder.join(format!("{stem}.pem")), identity.certificate_pem(), false)?;
    write_new(&folder.join(format!("{stem}.key")), identity.key_pem(), true)
}

fn write_config<T: Serialize>(
    role: &Role,
    folder: &Path,
    name: &str,
    config: &T,
    head: &str,
) -> Result<Member> {
    let text = toml::to_string(config)
        .map_err(|cause| Error::Internal(format!("configuration of {role}: {cause}")))?;
    let path = folder.join(name);
    write_new(&path, &format!("{head}{text}"), false)?;
    Ok(Member { role: role.to_string(), folder: folder.to_owned(), config: path })
}
