//! The program `trefoil`: its command line, its commands, and what they print.

mod arguments;
mod commands;
mod output;

use std::process::ExitCode;

use arguments::Cli;
use clap::Parser;
use output::Output;

use crate::base::log;

/// Runs what the command line asks for, and returns the program's exit code.
#[must_use]
pub fn main() -> ExitCode {
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
