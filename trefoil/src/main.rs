//! The Trefoil program: private machine-learning inference by three servers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use trefoil::{cli::Cli, commands, log, output::Output};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(&cli.global);
    let level = if cli.global.quiet { "warn" } else { "info" };
    match log::start(level, cli.global.json).and_then(|()| commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::from(&error)
        }
    }
}
