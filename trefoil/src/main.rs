//! The Trefoil program: private machine-learning inference by three servers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trefoil::cli::main()
}
