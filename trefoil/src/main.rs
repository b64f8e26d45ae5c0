//! The Trefoil program: private machine-learning inference by three servers.
#![forbid(unsafe_code)]

use std::{io, process::ExitCode};

use clap::Parser;
use tracing_subscriber::EnvFilter;
use trefoil::{cli::Cli, commands, output::Output};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = if cli.global.quiet { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("TREFOIL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let output = Output::new(&cli.global);
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::from(&error)
        }
    }
}
