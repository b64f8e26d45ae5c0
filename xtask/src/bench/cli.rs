//! The command line of the benchmarks.

use std::env;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use super::{Bench, SUITES, launch};

/// How the parties of a benchmark are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Channels in one process
    InProcess,
    /// Three processes, TCP over the loopback device
    Tcp,
    /// Three processes, mutual TLS over the loopback device
    Tls,
    /// As `tls`, shaped like a local network
    Lan,
    /// As `tls`, shaped like a wide-area network
    Wan,
}

impl Network {
    /// The name used on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Network::InProcess => "in-process",
            Network::Tcp => "tcp",
            Network::Tls => "tls",
            Network::Lan => "lan",
            Network::Wan => "wan",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Measures the crates, one table row and one line of JSON per case.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", after_help = suites_help())]
pub struct Options {
    /// The suite to run; all of them without a name
    pub suite: Option<String>,
    /// Only this case, or the cases below it: `gemm` takes in `gemm/512`
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Fewer and shorter runs: to see that it works, not to quote
    #[arg(long)]
    pub quick: bool,
    /// Append one JSON object per case to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// How the parties are joined, where a suite has parties; each suite has its default
    #[arg(long)]
    pub network: Option<Network>,
    /// Threads per party, where a case leaves it open
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

fn suites_help() -> String {
    let mut text = String::from("Suites:");
    for suite in SUITES {
        text += &format!("\n  {:<12} {}", suite.name, suite.about);
    }
    text
}

/// Runs the benchmark program: one party if started as such, else the suites asked for.
///
/// # Errors
/// If the arguments name no suite or case, a case fails, or the JSON file cannot be written.
pub fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == launch::PARTY) {
        return launch::entry(&args[1..]);
    }
    let options = Options::parse();
    let json = match &options.json {
        Some(path) => Some(
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot write {}", path.display()))?,
        ),
        None => None,
    };
    run(Bench::new(options, json))
}

fn run(mut bench: Bench) -> Result<()> {
    let wanted = bench.options().suite.clone();
    let mut known = false;
    for suite in SUITES.iter().filter(|suite| wanted.as_deref().is_none_or(|w| w == suite.name)) {
        known = true;
        bench.start_suite(suite.name);
        for cases in suite.cases {
            cases(&mut bench).with_context(|| format!("suite {}", suite.name))?;
        }
    }
    if !known {
        let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
        bail!("no suite {:?}; there are {}", wanted.unwrap_or_default(), names.join(", "));
    }
    bench.finish()
}
