//! The benchmark program behind `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match xtask::bench::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
