//! The Trefoil program: private machine-learning inference by three servers.
#![forbid(unsafe_code)]

use std::{env, io, process::ExitCode};

use clap::Parser;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};
use trefoil::{
    Error,
    cli::{Cli, Global},
    commands,
    output::Output,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(&cli.global);
    match start_log(&cli.global).and_then(|()| commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::from(&error)
        }
    }
}

/// Writes what happens to standard error: as much as `TREFOIL_LOG` asks for, else little.
fn start_log(global: &Global) -> Result<(), Error> {
    let level = if global.quiet { "warn" } else { "info" };
    let wanted = env::var("TREFOIL_LOG").unwrap_or_else(|_| level.to_owned());
    let filter: Targets = wanted.parse().map_err(|error| {
        Error::config("TREFOIL_LOG", format_args!("{error}; try `debug`, or `net=debug,info`"))
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}
