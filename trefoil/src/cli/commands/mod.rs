//! The commands of the program.

mod answers;
mod audit;
mod chat;
mod check;
mod cluster;
mod data;
mod demo;
mod infer;
mod job;
mod load;
mod model;
mod reading;
mod runs;
mod script;
mod servers;
mod store;
mod tape;
mod train;
mod up;

use std::{
    env, io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::CommandFactory;

use super::{
    arguments::{Cli, Command, Global},
    output::Output,
};
use crate::{
    base::{Error, Result},
    client::{self, Client},
    config::ClientConfig,
};

/// A pause before a server that is being stopped is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// The environment variable that names the client's configuration.
const CONFIG: &str = "TREFOIL_CONFIG";

/// The client's configuration where neither flag nor variable names one.
const DEFAULT: &str = "cluster/client-client/client.toml";

/// Runs what the command line asks for.
///
/// # Errors
/// Whatever went wrong; [`Error::exit_code`] is the program's.
pub fn run(cli: Cli) -> Result<()> {
    let output = Output::new(&cli.global);
    match cli.command {
        Command::Demo(arguments) => demo::run(&arguments, output),
        Command::Cluster { command } => cluster::run(command, output),
        Command::Party(arguments) => servers::party(&arguments, &cli.global, output),
        Command::Model { command } => model::run(command, &cli.global, output),
        Command::Data { command } => data::run(command, &cli.global, output),
        Command::Train(arguments) => train::run(&arguments, &cli.global, output),
        Command::Run { command } => runs::run(command, &cli.global, output),
        Command::Tape { command } => tape::run(command, &cli.global, output),
        Command::Infer(arguments) => infer::run(&arguments, &cli.global, output),
        Command::Chat(arguments) => chat::run(&arguments, &cli.global, output),
        Command::Job { command } => job::run(&command, &cli.global, output),
        Command::Store { command } => store::run(&command, &cli.global, output),
        Command::Audit { command } => audit::run(&command, output),
        Command::Status => servers::status(&cli.global, output),
        Command::Load(arguments) => load::run(&arguments, &cli.global, output),
        Command::Ping(arguments) => servers::ping(&arguments, &cli.global, output),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "trefoil", &mut io::stdout());
            Ok(())
        }
    }
}

/// Connects to the servers as the client that flag, environment or default name.
fn connect(global: &Global) -> Result<Client> {
    client::connect(&client_config(global)?)
}

/// Does something with the servers that may be done twice. While one of them is being restarted, tries again
/// with new connections, for as long as this client tries to reach a server.
fn patiently<T>(
    global: &Global,
    client: &mut Client,
    mut act: impl FnMut(&mut Client) -> Result<T>,
) -> Result<T> {
    let (began, limit) = (Instant::now(), client_config(global)?.connect_limit());
    loop {
        match act(client) {
            Err(Error::Stopping { .. } | Error::Unreachable { .. }) if began.elapsed() < limit => {
                thread::sleep(AGAIN);
                *client = connect(global)?;
            }
            outcome => return outcome,
        }
    }
}

fn client_config(global: &Global) -> Result<ClientConfig> {
    let named = global.config.clone().or_else(|| env::var_os(CONFIG).map(PathBuf::from));
    match named {
        Some(path) => ClientConfig::read(&path),
        None if PathBuf::from(DEFAULT).exists() => ClientConfig::read(DEFAULT.as_ref()),
        None => {
            let reason = format!(
                "name this client's file with --config or ${CONFIG}; `trefoil cluster init cluster` \
                 makes {DEFAULT}"
            );
            Err(Error::config("configuration", reason))
        }
    }
}
