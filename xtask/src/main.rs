//! The command line of `cargo xtask`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use xtask::{accuracy, cargo, cases, check, docs, exported, gpu, operators, ptx, wheel};

/// Maintainers' commands of Trefoil.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything CI runs: tidiness, lints, documentation, licences, tests, README commands
    Check {
        /// Only the step of this name
        #[arg(long, value_name = "STEP")]
        only: Option<String>,
    },
    /// Compile the CUDA kernels to PTX and count their registers; needs Python and a C++ compiler
    Ptx {
        /// Compare with the compiled kernels that are there instead of replacing them
        #[arg(long)]
        check: bool,
    },
    /// Check every CUDA kernel on a GPU against the CPU engine, then measure
    #[command(disable_help_flag = true)]
    Gpu {
        /// Only build, and print the program's path: it runs alone on a machine with a GPU
        #[arg(long)]
        build_only: bool,
        /// Passed on to the program; try `cargo xtask gpu --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure: builds the release benchmarks and runs the named suite (all of them without a name)
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to the benchmark program; try `cargo xtask bench --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Train on real images, on shares and in floats: gets the data, prints and draws both curves
    #[command(disable_help_flag = true)]
    Train {
        /// Passed on to the program; try `cargo xtask train --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build wheels of the Python package for Linux (glibc from 2.28 on, and musl) and macOS; needs Python and rustup
    Wheel {
        /// For Python 3.14 without its global lock, instead of for every usual Python
        #[arg(long)]
        free_threaded: bool,
        /// Targets of Rust; those of this machine's processor without names
        targets: Vec<String>,
    },
    /// Run all of ONNX's own operator tests, and write the table of operators; needs Python, and installs the package
    /// onnx
    Operators,
    /// Measure the errors of all functions of secret numbers, and write docs/accuracy.md
    Accuracy,
    /// Compare models that a library exports with the library's own answers; needs Python, and installs the library
    Exported { library: exported::Library },
    /// Build the handbook of docs/ as pages under target/book; needs mdbook
    Docs,
    /// Draw the benchmarks' results: reads bench/results, writes bench/README.md, bench/charts and
    /// the table of docs/measured.md
    Report,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Check { only } => check::run(only.as_deref()).map(|()| ExitCode::SUCCESS),
        Task::Ptx { check } => ptx::run(check).map(|()| ExitCode::SUCCESS),
        Task::Gpu { build_only, args } => gpu::run(build_only, &args),
        Task::Bench { args } if args.iter().any(|arg| arg == "--list") => {
            cases::print(&args).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench { args } => program("bench", &["--release"], &args),
        Task::Train { args } => program("train", &["--release"], &args),
        Task::Wheel { free_threaded, targets } => {
            wheel::run(&targets, free_threaded).map(|()| ExitCode::SUCCESS)
        }
        Task::Operators => operators::run().map(|()| ExitCode::SUCCESS),
        Task::Accuracy => accuracy::run().map(|()| ExitCode::SUCCESS),
        Task::Exported { library } => exported::run(library).map(|()| ExitCode::SUCCESS),
        Task::Docs => docs::run().map(|()| ExitCode::SUCCESS),
        Task::Report => program("report", &[], &[]),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Builds and runs a program of this package under the feature of its name, as a second process: this
/// one need not link its dependencies. Its exit code is ours, since it reports its own errors.
fn program(name: &str, profile: &[&str], args: &[String]) -> Result<ExitCode> {
    let status = cargo::command()
        .args(["run", "--quiet", "--package", "xtask", "--features", name, "--bin", name])
        .args(profile)
        .arg("--")
        .args(args)
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
