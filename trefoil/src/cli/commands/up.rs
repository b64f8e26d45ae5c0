//! `trefoil cluster up`: all servers of a cluster on this machine, for a trial.

use std::{
    env,
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use cluster_protocols::ProtocolChoice;
use mpc_core::Security;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signal_hook::iterator::Signals;

use super::{DEFAULT, servers};
use crate::{
    base::{Error, Result, format::table},
    cli::output::Output,
    cluster::{self, Plan},
    config::{ClientConfig, PORT, PartyConfig},
    server,
    wire::Link,
};

/// The pause between two looks at the servers.
const LOOK: Duration = Duration::from_millis(50);

/// The longest time until servers of one machine have found each other.
const START: Duration = Duration::from_secs(60);

/// The process of a server.
struct Running {
    party: usize,
    process: Child,
    log: PathBuf,
    drain: Duration,
}

/// Makes the cluster if it is not there, runs its servers, and ends them when this process is asked to end.
pub(super) fn run(dir: &Path, output: Output) -> Result<()> {
    let signals = server::stop_signals()?;
    if !dir.exists() {
        make(dir)?;
        output.remark(format!("made {}, with the client `{CLIENT}`", dir.display()))?;
    }
    let configs = configs(dir)?;
    let client = client_of(dir)?;
    let mut servers = Vec::with_capacity(configs.len());
    let ended = start(dir, &configs, &mut servers)
        .and_then(|()| serve(&mut servers, &configs, client, signals, output));
    let stopped = stop(&mut servers);
    ended.and(stopped)
}

/// The client of a cluster that is made here.
const CLIENT: &str = "client";

fn make(dir: &Path) -> Result<()> {
    let protocol = ProtocolChoice::default();
    let servers = cluster::addresses(protocol, &[], PORT)?;
    let (folder, clients) = (dir.to_owned(), vec![CLIENT.to_owned()]);
    let dealers = Vec::new();
    let security = Security::SemiHonest;
    cluster::init(&Plan {
        folder,
        protocol,
        security,
        servers,
        clients,
        dealers,
        without_keys: false,
    })
    .map(drop)
}

/// The configurations of all servers.
fn configs(dir: &Path) -> Result<Vec<PartyConfig>> {
    let file = |party: usize| dir.join(format!("party-{party}")).join("party.toml");
    let first = PartyConfig::read(&file(0))?;
    let others = (1..first.servers.len()).map(|party| PartyConfig::read(&file(party)));
    let others = others.collect::<Result<Vec<_>>>()?;
    Ok([vec![first], others].concat())
}

/// The file of the first client that has its key here, and its configuration.
fn client_of(dir: &Path) -> Result<Option<(PathBuf, ClientConfig)>> {
    let entries = fs::read_dir(dir).map_err(|cause| Error::file(dir, cause))?;
    let files = entries.filter_map(|entry| {
        let folder = entry.ok()?.path();
        let is_client = folder.file_name()?.to_str()?.starts_with("client-");
        (is_client && folder.join("client.key").exists()).then(|| folder.join("client.toml"))
    });
    let Some(file) = files.min() else { return Ok(None) };
    let config = ClientConfig::read(&file)?;
    Ok(Some((file, config)))
}

/// Starts all servers. Those that were started are in the list, also after an error.
fn start(dir: &Path, configs: &[PartyConfig], servers: &mut Vec<Running>) -> Result<()> {
    let program = env::current_exe().map_err(|cause| Error::file(dir, cause))?;
    for config in configs {
        let party = config.party;
        let log = dir.join(format!("party-{party}")).join("log");
        let failed = |cause: io::Error| Error::file(&log, cause);
        let file = File::options().create(true).append(true).open(&log).map_err(failed)?;
        // In a group of its own: an interrupt at the terminal comes to this process alone, which passes it on.
        let process = Command::new(&program)
            .args(["party", "--ends-with-parent", "--config"])
            .arg(&config.file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let drain = Duration::from_secs(config.limits.drain_seconds);
        servers.push(Running { party, process, log, drain });
    }
    Ok(())
}

/// Says when the servers have found each other, and returns when this process is asked to end.
fn serve(
    servers: &mut [Running],
    configs: &[PartyConfig],
    client: Option<(PathBuf, ClientConfig)>,
    mut signals: Signals,
    output: Output,
) -> Result<()> {
    let began = Instant::now();
    let mut ready = false;
    loop {
        if signals.pending().next().is_some() {
            return Ok(());
        }
        for server in servers.iter_mut() {
            server.check()?;
        }
        let linked = || client.as_ref().is_none_or(|(_, config)| are_linked(config));
        if !ready && linked() {
            ready = true;
            say(servers, configs, client.as_ref().map(|(file, _)| file.as_path()), output)?;
        }
        if !ready && began.elapsed() > START {
            let logs = servers.iter().map(|server| server.log.display().to_string());
            let reason = format!(
                "they have not found each other within {} s; see {}",
                START.as_secs(),
                logs.collect::<Vec<_>>().join(", ")
            );
            return Err(Error::refused("servers", reason));
        }
        thread::sleep(LOOK);
    }
}

fn are_linked(config: &ClientConfig) -> bool {
    let Ok(states) = servers::ask_all(config) else { return false };
    states.iter().all(|state| state.as_ref().is_ok_and(|state| matches!(state.link, Link::Up)))
}

fn say(
    servers: &[Running],
    configs: &[PartyConfig],
    client: Option<&Path>,
    output: Output,
) -> Result<()> {
    let values = servers.iter().zip(configs).map(|(server, config)| {
        json!({
            "party": server.party, "address": config.servers[server.party],
            "process": server.process.id(), "log": server.log.display().to_string(),
        })
    });
    let values: Vec<_> = values.collect();
    output.result(&values, || {
        let row = |(server, config): (&Running, &PartyConfig)| {
            let party = format!("party-{}", server.party);
            vec![party, config.servers[server.party].clone(), server.log.display().to_string()]
        };
        let rows: Vec<_> = servers.iter().zip(configs).map(row).collect();
        table(&["server", "address", "log"], &rows)
    })?;
    let next = client.map(|client| match client == Path::new(DEFAULT) {
        true => "; in another terminal:\n  trefoil status".to_owned(),
        false => {
            format!("; in another terminal:\n  trefoil --config {} status", client.display())
        }
    });
    output.remark(format!(
        "\nThe servers run until an interrupt (Ctrl-C){}\n\
         All of them are on this machine, so it can read what they share: this is for trials.",
        next.unwrap_or_default()
    ))
}

impl Running {
    /// Reports a server that has ended by itself.
    fn check(&mut self) -> Result<()> {
        let ended = self.process.try_wait().map_err(|cause| Error::file(&self.log, cause))?;
        ended.map_or(Ok(()), |status| Err(self.has_ended(status)))
    }

    fn has_ended(&self, status: ExitStatus) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().last().unwrap_or("its log is empty").to_owned();
        let reason = format!("it has ended ({status}): {last}; see {}", self.log.display());
        Error::refused(format_args!("party {}", self.party), reason)
    }

    fn ask_to_end(&self) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(id, Signal::TERM);
        }
    }
}

/// Asks all servers to end and waits for them. One that does not within its drain time is killed.
fn stop(servers: &mut [Running]) -> Result<()> {
    servers.iter().for_each(Running::ask_to_end);
    let began = Instant::now();
    for server in servers {
        let failed = |cause: io::Error| Error::file(&server.log, cause);
        while server.process.try_wait().map_err(failed)?.is_none() {
            if began.elapsed() > server.drain + Duration::from_secs(10) {
                server.process.kill().map_err(failed)?;
            }
            thread::sleep(LOOK);
        }
    }
    Ok(())
}
