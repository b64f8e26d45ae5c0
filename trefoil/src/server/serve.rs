//! A server as a process: it opens what its file names, accepts clients, and stops when it is asked to.

use std::{net::TcpListener, process, sync::Arc, thread, time::Duration};

use gpu_kernels::AnyEngine;
use net::{Endpoint, Identity, Role, Security, Settings, system_resolver};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    Server, ServerId,
    audit::{Audit, Event},
    check_revocations, observe, rebuild, reload,
};
use crate::{
    base::{Error, PROGRAM, Result, log, memory},
    cluster::{CertificateEnd, cluster_id, identity, trust},
    config::{PartyConfig, ProfileChoice},
    store::{Holder, Store, Worker},
    wire::{CHUNK, Connection, REQUEST, resolve},
};

/// The time for which a server that ends lets clients read what they were sent.
const FAREWELL: Duration = Duration::from_secs(5);

/// The time for which a server tries to find the others before it reports that they are missing.
const START: Duration = Duration::from_secs(15);

/// Runs the server of one party until it is asked to stop, by SIGTERM or an interrupt. Then it takes no new jobs and
/// ends those that it has, for at most [`crate::config::Limits::drain_seconds`]. A second signal ends it at once.
///
/// # Errors
/// [`Error::Config`] if files or addresses cannot be used, [`Error::File`] if the data folder cannot.
pub fn serve(config: &PartyConfig) -> Result<()> {
    let me = config.party;
    config.log.as_deref().map_or(Ok(()), log::set)?;
    memory::keep_private()?;
    // As the first process of a container it would otherwise not get the signals at all.
    let signals = stop_signals()?;
    let (identity, store) = open_party(config)?;
    let endpoint =
        Arc::new(Endpoint::open(settings(config, &identity, START)?.concurrent_sessions())?);
    let observed = config.observe.as_deref().map(listen_for_operators).transpose()?;
    let engine = open_engine(config)?;
    let (access, limits) = (config.access.clone(), config.limits.clone());
    let audit = Audit::open(me, config.audit.as_ref())?;
    let cells = config.cells.clone();
    let server = Server::new(
        ServerId { party: me, cells },
        access,
        limits,
        store,
        engine,
        config.computing(),
        audit,
    );
    if config.profile == ProfileChoice::Auto {
        server.choose_profiles();
    }
    server.record_start();
    if let Some(reason) = config.misplaced() {
        tracing::warn!("{reason}");
    }
    if let Some(reason) = memory::of_machine().and_then(|bytes| config.limits.oversized(bytes)) {
        tracing::warn!("{reason}");
    }
    let engine = server.engine();
    let cell = config.cell();
    tracing::info!(party = me, cell, engine, listen = config.listen, data = %config.data.display(), "ready");
    accept_clients(endpoint.clone(), server.clone())?;
    if let Some(listener) = observed {
        let observed = server.clone();
        let hosts = config.observe_names();
        start("metrics", move || observe::serve(&listener, &observed, &hosts))?;
    }
    server.set_certificates(CertificateEnd::of(&identity)?);
    server.trust(trust(&config.files())?);
    let (watched, endpoint_watched, files) = (server.clone(), endpoint.clone(), config.clone());
    start("certificates", move || reload::watch(&files, &endpoint_watched, &watched))?;
    let checked = server.clone();
    start("store check", move || {
        if let Err(error) = checked.check_store() {
            tracing::error!(%error, "the models could not be read");
        }
    })?;
    let stopped = server.clone();
    start("signals", move || obey(signals, &stopped))?;
    tell_service_manager(true);
    server.keep_session(|job| endpoint.session(job));
    server.give_back()?;
    endpoint.close(FAREWELL);
    tracing::info!("stopped");
    Ok(())
}

/// A server's identity and its store, which has used no newer list of revoked certificates.
fn open_party(config: &PartyConfig) -> Result<(Identity, Store)> {
    let identity = party_identity(config)?;
    let holder = party_holder(config, &identity)?;
    let worker = config.cell().map_or(Worker::Alone, Worker::Cell);
    // No job runs for longer.
    let hold = 2 * config.limits.job_limit();
    let store = Store::open_as(&config.data, holder, config.store_key()?, worker, hold)?;
    check_revocations(&store, &identity)?;
    Ok((identity, store))
}

/// The settings of a server's links: it looks for the others for `start`.
fn settings(config: &PartyConfig, identity: &Identity, start: Duration) -> Result<Settings> {
    let limits = net::Limits {
        stall: config.limits.peer_limit(),
        heartbeat: config.limits.peer_limit() / 10,
        start,
        client_message: CHUNK.max(REQUEST) as u64,
        ..net::Limits::default()
    };
    let listen = resolve(&system_resolver(), "listen", &config.listen)?[0];
    let settings = Settings::new(Security::Tls(identity.clone())).listen(listen)?;
    Ok(settings.peers(config.addresses()).limits(limits))
}

/// Rebuilds what server `lost` has lost, or helps to. It waits at most `wait` for the two others to do the same.
/// Their operators consent to it by running it. `progress` gets the number of names that are done, and of all.
///
/// # Errors
/// [`Error::Refused`] if the protocol does not keep a server's shares at the others; [`Error::Net`] if another server
/// has gone; [`Error::Config`] if files or addresses cannot be used or this server runs.
pub fn rebuild_store(
    config: &PartyConfig,
    lost: usize,
    wait: Duration,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<rebuild::Report> {
    let sharing = config.protocol.sharing();
    rebuild::check(sharing, lost)?;
    memory::keep_private()?;
    // Alone, whatever cells there are: they are stopped.
    let identity = party_identity(config)?;
    let store = open_store(config, &identity)?;
    check_revocations(&store, &identity)?;
    let audit = Audit::open(config.party, config.audit.as_ref())?;
    let endpoint = Endpoint::open(settings(config, &identity, wait)?)?;
    let what = format!("{PROGRAM} {lost}");
    let job =
        net::Job::new(rebuild::SESSION).parties(sharing.servers() as u16).config(what.as_bytes());
    let mut transport = endpoint.session(&job)?.transport;
    let report = rebuild::rebuild(&store, sharing, &mut *transport, lost, progress)
        .inspect_err(|error| transport.fail(&error.to_string()))?;
    for name in &report.rebuilt {
        audit.record(&Event::Rebuilt { of: lost, name });
    }
    transport.close()?;
    endpoint.close(FAREWELL);
    Ok(report)
}

/// Reports to systemd that this server takes clients, or that it ends; does nothing if systemd did not start it.
fn tell_service_manager(serving: bool) {
    #[cfg(unix)]
    {
        let state =
            if serving { sd_notify::NotifyState::Ready } else { sd_notify::NotifyState::Stopping };
        if let Err(error) = sd_notify::notify(&[state]) {
            tracing::warn!(%error, "systemd cannot be told how this server is");
        }
    }
}

/// Signals that ask a process to end.
pub(crate) fn stop_signals() -> Result<Signals> {
    let failed = |cause| Error::File { what: "waiting for signals".to_owned(), cause };
    Signals::new([SIGTERM, SIGINT]).map_err(failed)
}

/// Stops the server at the first signal, and the process at the second.
fn obey(mut signals: Signals, server: &Server) {
    let mut begun = false;
    for signal in signals.forever() {
        if begun {
            tracing::warn!("a second signal: ending without waiting for jobs");
            process::exit(128 + signal);
        }
        begun = true;
        tell_service_manager(false);
        tracing::info!(
            "asked to stop: no new jobs, those taken go on; a second signal ends them too"
        );
        let server = server.clone();
        let drain = move || {
            let left = server.stop();
            if left > 0 {
                tracing::warn!(
                    jobs = left,
                    "stopping before all jobs have ended (limits.drain_seconds)"
                );
            }
        };
        if let Err(error) = start("drain", drain) {
            tracing::error!(%error, "ending without waiting for jobs");
            process::exit(128 + signal);
        }
    }
}

/// The listener at which operators ask for a server's state.
///
/// # Errors
/// [`Error::Config`] if the address cannot be used.
fn listen_for_operators(address: &str) -> Result<TcpListener> {
    let addresses = resolve(&system_resolver(), "observe", address)?;
    TcpListener::bind(addresses.as_slice())
        .map_err(|cause| Error::config(format_args!("observe `{address}`"), cause))
}

/// The engine on which a server computes.
///
/// # Errors
/// [`Error::Config`] if it is a device that cannot be used.
fn open_engine(config: &PartyConfig) -> Result<AnyEngine> {
    let choice = config.engine;
    let unusable = |reason| {
        Error::config(format_args!("`engine = \"{choice}\"` of party {}", config.party), reason)
    };
    let (engine, instead) = choice.open(config.threads()).map_err(unusable)?;
    if let Some(reason) = instead {
        tracing::info!(%reason, "computing on the CPU");
    }
    Ok(engine)
}

/// A server's certificate and key.
///
/// # Errors
/// [`Error::Config`] if the files cannot be used.
pub fn party_identity(config: &PartyConfig) -> Result<Identity> {
    identity(&Role::party(config.party), &config.files())
}

/// The server that this configuration is of, as its files name it.
///
/// # Errors
/// [`Error::Net`] if the authority's certificate cannot be read.
pub fn party_holder(config: &PartyConfig, identity: &Identity) -> Result<Holder> {
    Ok(Holder { cluster: cluster_id(identity)?, party: config.party })
}

/// A party's store, which nobody else may use meanwhile: for work on it while its servers are stopped.
///
/// # Errors
/// As [`Store::open`].
pub fn open_store(config: &PartyConfig, identity: &Identity) -> Result<Store> {
    let holder = party_holder(config, identity)?;
    Store::open(&config.data, holder, config.store_key()?)
}

fn accept_clients(endpoint: Arc<Endpoint>, server: Server) -> Result<()> {
    let accept = move || loop {
        let Some(channel) = endpoint.accept(Duration::from_secs(60)) else { continue };
        let Role::Client(name) = channel.peer().clone() else { continue };
        let server = server.clone();
        let serve = move || server.serve_client(&mut Connection(channel), &name);
        if let Err(error) = start("client", serve) {
            tracing::error!(%error, "no thread for a client");
        }
    };
    start("clients", accept)
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|cause| Error::File { what: format!("a thread `{name}`"), cause })
}
