//! Other systems on the same machine, timed in turn with ours.
//!
//! Each is a driver in `bench/peers`, a process that keeps its parties between cases. Parties that wait
//! for each other keep a core busy, so a driver's processes are stopped while others are timed. Its
//! packages come from the Python registry into an environment under `target/peers`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::{Effort, Timing, party};
use crate::record::Record;

/// A system and how its environment is made.
struct System {
    /// Its driver is `<name>_driver.py`, its packages are in `requirements-<name>.txt`.
    name: &'static str,
    /// A package that is installed afterwards, without its dependencies.
    alone: Option<&'static str>,
}

const SYSTEMS: &[System] = &[
    System { name: "spu", alone: None },
    System { name: "crypten", alone: Some("crypten==0.4.1") },
];

/// Versions of Python for which all packages exist.
const PYTHONS: &[&str] = &["python3.11", "python3.10", "python3"];

/// The drivers.
const DRIVERS: &str = "bench/peers";

/// The environments.
const ENVIRONMENTS: &str = "target/peers";

/// Written once an environment is complete.
const COMPLETE: &str = "complete";

/// The other systems, running.
pub(super) struct Peers(Vec<Peer>);

/// A system's driver.
pub(super) struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    introduction: Introduction,
}

/// A driver's first message.
#[derive(Deserialize)]
struct Introduction {
    system: String,
    protocol: String,
    network: String,
    /// `suite/case`, as ours are called.
    cases: Vec<String>,
}

#[derive(Serialize)]
struct Request<'a> {
    case: &'a str,
    total_seconds: f64,
    min_runs: usize,
    max_runs: usize,
    long_seconds: f64,
}

/// A driver's measurements, or its error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) error: Option<String>,
    pub(super) seconds: Vec<f64>,
    /// If it is another one than the introduction says.
    protocol: Option<String>,
    cpu_seconds: Option<f64>,
    bytes_per_party: Option<u64>,
    rounds: Option<u64>,
    max_abs_error: Option<f64>,
}

impl Peers {
    /// Installs what is missing and starts the drivers.
    ///
    /// # Errors
    /// If a suitable Python is missing, the packages cannot be installed, or a driver does not
    /// start.
    pub(super) fn start() -> Result<Peers> {
        SYSTEMS.iter().map(Peer::start).collect::<Result<_>>().map(Peers)
    }

    /// Times a case in every system that knows it. Each answer is a record like ours, with the same
    /// suite and case. Cases that a system cannot run are reported and skipped.
    ///
    /// # Errors
    /// If a driver ends or sends an invalid answer.
    pub(super) fn measure(&mut self, ours: &Record, effort: Effort) -> Result<Vec<Record>> {
        let case = format!("{}/{}", ours.suite, ours.case);
        let mut records = Vec::new();
        for peer in self.0.iter_mut().filter(|peer| peer.introduction.cases.contains(&case)) {
            let Introduction { system, protocol, network, .. } = &peer.introduction;
            let (system, protocol, network) = (system.clone(), protocol.clone(), network.clone());
            let answer = peer.ask(&case, effort).with_context(|| system.clone())?;
            if let Some(error) = answer.error {
                eprintln!("  {system} cannot run {case}: {error}");
                continue;
            }
            ensure!(!answer.seconds.is_empty(), "{system} timed nothing");
            let protocol = answer.protocol.unwrap_or(protocol);
            let timing = Timing::from_runs(answer.seconds, answer.cpu_seconds);
            records.push(Record {
                suite: ours.suite.clone(),
                case: ours.case.clone(),
                system,
                protocol: Some(protocol),
                engine: Some("cpu".to_owned()),
                network: Some(network),
                size: ours.size.clone(),
                seconds_median: Some(timing.median),
                seconds_min: Some(timing.min),
                runs: Some(timing.runs),
                cpu_seconds: timing.cpu,
                bytes_per_party: answer.bytes_per_party,
                rounds: answer.rounds,
                max_abs_error: answer.max_abs_error,
                machine: ours.machine.clone(),
                commit: ours.commit.clone(),
                ..Record::default()
            });
        }
        Ok(records)
    }
}

impl Peer {
    fn start(system: &System) -> Result<Peer> {
        let python = environment(system)?;
        let driver = Path::new(DRIVERS).join(format!("{}_driver.py", system.name));
        let log = Path::new(ENVIRONMENTS).join(format!("{}.log", system.name));
        Peer::spawn(Command::new(&python).arg(&driver), &log)
    }

    /// Starts a driver, whose other output goes to `log`, and stops it until it is asked.
    pub(super) fn spawn(command: &mut Command, log: &Path) -> Result<Peer> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let (requests, answers) = (process.stdin.take(), process.stdout.take());
        let requests = requests.context("the driver has an input")?;
        let mut answers = BufReader::new(answers.context("the driver has an output")?);
        let introduction = read(&mut answers)
            .with_context(|| format!("{command:?} does not start; see {}", log.display()))?;
        let peer = Peer { process, requests, answers, introduction };
        peer.signal(Signal::STOP)?;
        Ok(peer)
    }

    /// Stops all processes of the driver or lets them go on.
    fn signal(&self, signal: Signal) -> Result<()> {
        let group = Pid::from_child(&self.process);
        kill_process_group(group, signal).context("cannot stop a driver or let it go on")
    }

    /// Has a case measured.
    pub(super) fn ask(&mut self, case: &str, effort: Effort) -> Result<Answer> {
        let request = Request {
            case,
            total_seconds: effort.total.as_secs_f64(),
            min_runs: effort.min_runs,
            max_runs: effort.max_runs,
            long_seconds: party::LONG,
        };
        self.signal(Signal::CONT)?;
        writeln!(self.requests, "{}", serde_json::to_string(&request)?)?;
        let answer = read(&mut self.answers);
        let stopped = self.signal(Signal::STOP);
        let answer = answer?;
        stopped.map(|()| answer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

fn read<T: for<'a> Deserialize<'a>>(answers: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    ensure!(answers.read_line(&mut line)? > 0, "the driver ended");
    serde_json::from_str(&line).with_context(|| format!("the driver said {line:?}"))
}

/// The Python of a system's environment, which is made if it is not there.
fn environment(system: &System) -> Result<PathBuf> {
    let folder = Path::new(ENVIRONMENTS).join(system.name);
    let python = folder.join("bin/python");
    if folder.join(COMPLETE).exists() {
        return Ok(python);
    }
    eprintln!("installing {} into {}; this takes minutes", system.name, folder.display());
    let base = PYTHONS.iter().find(|name| fits(name));
    let Some(base) = base else {
        bail!("other systems need Python 3.10 or 3.11; install one, or leave out --with-peers")
    };
    run(Command::new(base).args(["-m", "venv"]).arg(&folder))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let requirements = Path::new(DRIVERS).join(format!("requirements-{}.txt", system.name));
    run(Command::new(&python).args(pip).arg("-r").arg(requirements))?;
    if let Some(package) = system.alone {
        run(Command::new(&python).args(pip).args(["--no-deps", package]))?;
    }
    fs::write(folder.join(COMPLETE), "")?;
    Ok(python)
}

/// True if this Python exists and all packages support its version.
fn fits(python: &str) -> bool {
    let check = "import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))";
    let status = Command::new(python).args(["-c", check]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that answers in its own way, without Python.
    fn peer(script: &str) -> Result<Peer> {
        let mut process = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (requests, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut answers = BufReader::new(answers);
        let introduction = read(&mut answers)?;
        Ok(Peer { process, requests, answers, introduction })
    }

    const HELLO: &str =
        r#"echo '{"system":"S 1","protocol":"p","network":"tcp","cases":["s/a","s/b"]}'"#;

    fn ours(case: &str) -> Record {
        Record { suite: "s".into(), case: case.into(), commit: "c".into(), ..Record::default() }
    }

    #[test]
    fn an_answer_becomes_a_record_and_an_unknown_case_none() {
        let script = format!(
            r#"{HELLO}; read r; echo '{{"seconds":[3,1,2],"cpu_seconds":6,"rounds":7,"protocol":"q"}}'"#
        );
        let mut peers = Peers(vec![peer(&script).unwrap()]);
        assert!(peers.measure(&ours("c"), Effort::QUICK).unwrap().is_empty());
        let records = peers.measure(&ours("a"), Effort::QUICK).unwrap();
        let record = &records[0];
        assert_eq!((record.system.as_str(), record.case.as_str()), ("S 1", "a"));
        assert_eq!((record.seconds_median, record.cpu_seconds), (Some(2.0), Some(2.0)));
        assert_eq!((record.rounds, record.commit.as_str()), (Some(7), "c"));
        assert_eq!(record.protocol.as_deref(), Some("q"));
    }

    #[test]
    fn what_a_system_cannot_run_is_left_out_and_a_driver_that_ends_is_an_error() {
        let script = format!(r#"{HELLO}; read r; echo '{{"error":"no"}}'; read r"#);
        let mut peers = Peers(vec![peer(&script).unwrap()]);
        assert!(peers.measure(&ours("a"), Effort::QUICK).unwrap().is_empty());
        let error = peers.measure(&ours("b"), Effort::QUICK).unwrap_err();
        assert!(format!("{error:#}").contains("the driver ended"), "{error:#}");
        assert!(peer("echo nonsense").is_err());
    }
}
