//! This process as one of three parties that run the same script.

use std::{net::ToSocketAddrs, path::Path};

use gpu_kernels::EngineChoice;
use net::{Canceller, Endpoint, Job, Security, Session, Settings};
use pyo3::prelude::*;
use trefoil::{
    cluster::{self, Plan},
    config::{PORT, PartyConfig},
    protocols::ProtocolChoice,
    server,
};

use crate::errors::{Failure, Kind, Result};

/// The public name of sessions of scripts.
const SESSION: &str = "trefoil script";

/// A party's endpoint and its session.
pub(crate) struct Remote {
    config: PartyConfig,
    endpoint: Endpoint,
    canceller: Canceller,
    id: [u8; 16],
}

impl Remote {
    /// Opens the endpoint of a `party.toml`.
    pub(crate) fn open(path: &str) -> Result<Self> {
        let config = PartyConfig::read(Path::new(path))?;
        if config.protocol != ProtocolChoice::Rss {
            let text = format!("{path}: scripts run on three servers, with `protocol = \"rss\"`");
            return Err(Failure::new(Kind::Config, text));
        }
        let identity = server::party_identity(&config)?;
        let address = config.listen.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = address.ok_or_else(|| {
            let text = format!("{path}: `listen` is {}, which has no address", config.listen);
            Failure::new(Kind::Config, text)
        })?;
        let settings =
            Settings::new(Security::Tls(identity)).listen(address)?.peers(&config.servers);
        let endpoint = Endpoint::open(settings)?;
        Ok(Self { config, endpoint, canceller: Canceller::default(), id: [0; 16] })
    }

    pub(crate) fn me(&self) -> usize {
        self.config.party
    }

    pub(crate) fn threads(&self) -> usize {
        self.config.threads()
    }

    /// The engine that the configuration names.
    pub(crate) fn engine(&self) -> EngineChoice {
        self.config.engine
    }

    /// Connects to the two other parties. `agreed` must be the same at all three, `generators` are the streams
    /// that this party can make, the best one first.
    pub(crate) fn session(&mut self, agreed: &str, generators: Vec<&str>) -> Result<Session> {
        let job =
            Job::new(SESSION).prgs(generators).config(agreed.as_bytes()).canceller(&self.canceller);
        let session = self.endpoint.session(&job)?;
        self.id = session.id;
        Ok(session)
    }

    /// Ends the session, and every wait in it.
    pub(crate) fn cancel(&self) {
        self.canceller.cancel("the script was interrupted");
    }

    /// A name for the object made at this place of the session, the same at all parties.
    pub(crate) fn label(&self, place: u64) -> String {
        let id: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{id}-{place:x}")
    }
}

/// Makes the files of a cluster of three parties, on hosts with or without ports, and of clients: each member's
/// identity and its configuration file.
#[pyfunction]
pub(crate) fn cluster_files(
    folder: &str,
    hosts: Vec<String>,
    clients: Vec<String>,
) -> PyResult<Vec<(String, String)>> {
    let protocol = ProtocolChoice::Rss;
    let servers = cluster::addresses(protocol, &hosts, PORT).map_err(Failure::from)?;
    let (folder, dealers) = (folder.into(), Vec::new());
    let security = mpc_core::Security::SemiHonest;
    let plan = Plan { folder, protocol, security, servers, clients, dealers, without_keys: false };
    let members = cluster::init(&plan).map_err(Failure::from)?;
    let made = |member: cluster::Member| (member.role, member.config.display().to_string());
    Ok(members.into_iter().map(made).collect())
}
