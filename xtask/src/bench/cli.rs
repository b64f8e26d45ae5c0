//! The command line of the benchmarks.

use std::env;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use gpu_kernels::EngineChoice;
use serde::{Deserialize, Serialize};
use trefoil::protocols::ProtocolChoice;

use super::{
    Bench, SUITES,
    hosts::{self, Hosts},
    launch,
    peers::Peers,
};
use crate::record::MEASURED;

/// The network between the parties of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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

/// The suites that run every protocol that the program names.
const ANY: &[&str] = &["protocols", "models"];

/// The suites whose parties can prove their messages.
const CHECKED: &[&str] = &["protocols", "models", "training"];

/// The suites whose parties can run on other hosts.
const HOSTED: &[&str] = &["protocols", "models", "training"];

/// Measures the crates, one table row and one line of JSON per case.
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", after_help = suites_help())]
pub struct Options {
    /// The suite to run; all of them without a name
    pub suite: Option<String>,
    /// Only this case, or the cases below it: `gemm` includes `gemm/512`
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Print the names of the cases instead of measuring them
    #[arg(long)]
    pub list: bool,
    /// Fewer and shorter runs: to see that it works, not to quote
    #[arg(long)]
    pub quick: bool,
    /// Append one JSON object per case to this file, or to SUITE.jsonl in this folder
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Network between the parties, in suites with parties; each suite has its default
    #[arg(long)]
    pub network: Option<Network>,
    /// Threads per party, where a case leaves it open
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Engine of the parties, in suites with parties: cpu (the default), cuda:0 or auto
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineChoice>,
    /// Protocol for the suites `protocols` and `models`, as the program names it: rss, rss-dealt, additive, dealt-3; those
    /// with a live dealer run in turn with rss
    #[arg(long, default_value_t, value_name = "NAME")]
    pub protocol: ProtocolChoice,
    /// Parties prove their messages, in the suites `protocols`, `models` and `training`
    #[arg(long)]
    pub checked: bool,
    /// Run the parties on these hosts, in the suites `protocols`, `models` and `training`: `[USER@]HOST[:PORT]` of each, a
    /// live dealer the last. They are started over ssh, and this program is copied to them
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// The program that runs a command at a host; otherwise the variable `TREFOIL_SSH`, or ssh
    #[arg(long, value_name = "PROGRAM", requires = "hosts")]
    pub ssh: Option<String>,
    /// Time SPU and CrypTen too, in turn with ours, in the cases that they know; installs them first
    #[arg(long)]
    pub with_peers: bool,
}

/// The name that stands for the rows of `docs/measured.md`.
const MEASURED_SUITE: &str = "measured";

fn suites_help() -> String {
    let mut text = String::from("Suites:");
    text += &format!("\n  {MEASURED_SUITE:<12} the rows of docs/measured.md, of several suites");
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
    let with_peers = options.with_peers && !options.list;
    check_hosts(&options)?;
    let mut bench = Bench::new(options);
    if !bench.options().hosts.is_empty() && !bench.options().list {
        let Options { hosts, ssh, protocol, .. } = bench.options();
        let ssh = hosts::ssh(ssh.as_deref());
        let hosts = Hosts::prepare(hosts, *protocol, &ssh, &env::current_exe()?)?;
        bench = bench.on(hosts);
    }
    run(if with_peers { bench.with_peers(Peers::start()?) } else { bench })
}

/// Refuses options that do not go with `--hosts`.
fn check_hosts(options: &Options) -> Result<()> {
    if options.hosts.is_empty() {
        return Ok(());
    }
    if !HOSTED.contains(&options.suite.as_deref().unwrap_or_default()) {
        bail!("only the suites {} know --hosts", HOSTED.join(", "));
    }
    if options.network == Some(Network::InProcess) {
        bail!("hosts do not share memory: leave out --network in-process");
    }
    Ok(())
}

fn run(mut bench: Bench) -> Result<()> {
    let wanted = bench.options().suite.clone();
    if bench.options().protocol != ProtocolChoice::Rss {
        let suite = wanted.as_deref().unwrap_or_default();
        if !ANY.contains(&suite) {
            bail!("only the suites {} know another protocol", ANY.join(" and "));
        }
    }
    if bench.options().checked && !CHECKED.contains(&wanted.as_deref().unwrap_or_default()) {
        bail!("only the suites {} know --checked", CHECKED.join(", "));
    }
    if bench.options().checked && bench.options().protocol != ProtocolChoice::Rss {
        bail!("only parties of `rss` prove their messages: leave out --checked");
    }
    if wanted.as_deref() == Some(MEASURED_SUITE) {
        return rows(bench);
    }
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
    bench.names().iter().for_each(|name| println!("{name}"));
    bench.finish()
}

/// Runs the cases of the rows of `docs/measured.md`.
fn rows(mut bench: Bench) -> Result<()> {
    for (_, row) in MEASURED {
        let (name, case) = row.split_once('/').unwrap_or((row, ""));
        let suite = SUITES.iter().find(|suite| suite.name == name);
        let suite = suite.with_context(|| format!("no suite {name}"))?;
        bench.start_suite(suite.name);
        bench.select(Some(case));
        suite.cases.iter().try_for_each(|cases| cases(&mut bench))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;

    /// Every `cargo xtask bench ...` of a Markdown file that names a suite, not a placeholder.
    fn commands(file: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = fs::read_to_string(path).unwrap();
        let commands = text.split("cargo xtask bench").skip(1);
        let commands = commands.filter_map(|rest| rest.split(['`', '\n', '|']).next());
        let commands = commands.map(|rest| rest.trim().to_owned());
        commands.filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase())).collect()
    }

    fn listed(options: Options, suite: &super::super::Suite) -> Vec<String> {
        let mut bench = Bench::new(Options { list: true, ..options });
        bench.start_suite(suite.name);
        suite.cases.iter().for_each(|cases| cases(&mut bench).unwrap());
        bench.names().to_vec()
    }

    /// `cargo xtask bench --list` prints a file, so that it need not be compiled with all crates.
    #[test]
    fn the_list_of_cases_is_that_of_the_suites() {
        let all: Vec<_> =
            SUITES.iter().flat_map(|suite| listed(Options::default(), suite)).collect();
        let wanted = all.join("\n") + "\n";
        if env::var_os("TREFOIL_LIST_CASES").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cases.txt");
            fs::write(file, &wanted).unwrap();
        }
        assert!(
            wanted == include_str!("../cases.txt"),
            "the cases have changed: run this test with TREFOIL_LIST_CASES=1, which writes xtask/src/cases.txt"
        );
    }

    #[test]
    fn each_row_of_the_measured_ones_is_a_case() {
        let known = include_str!("../cases.txt");
        for (_, row) in MEASURED {
            let (suite, case) = row.split_once('/').unwrap();
            assert!(known.lines().any(|line| line == format!("{suite}: {case}")), "{row}");
        }
    }

    #[test]
    fn commands_in_documentation_name_suites_and_cases() {
        for file in ["README.md", "ring-arith/README.md", "xtask/README.md"] {
            for command in commands(file) {
                let words = command.split_ascii_whitespace().filter(|word| *word != "CASE");
                let words = std::iter::once("bench").chain(words.clone());
                let options = Options::try_parse_from(words)
                    .unwrap_or_else(|error| panic!("{file}: {command}: {error}"));
                let mut bench = Bench::new(Options { list: true, ..options.clone() });
                let wanted = options.suite.as_deref().unwrap();
                let suite = SUITES.iter().find(|suite| suite.name == wanted);
                let suite = suite.unwrap_or_else(|| panic!("{file}: no suite {wanted}"));
                suite.cases.iter().for_each(|cases| cases(&mut bench).unwrap());
                assert!(!bench.names().is_empty(), "{file}: {command} selects no case");
            }
        }
    }
}
