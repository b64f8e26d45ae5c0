//! Calls of the Python package: the time that Python adds to the same work in Rust.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::party::Setup;
use super::peers::Peer;
use super::{Bench, Effort, Network, Timing, protocols};
use crate::python::{MODULE, environment, interpreter, libraries, stage};

/// A case, its size, and its comparison.
struct Call {
    name: &'static str,
    size: &'static str,
    beside: Beside,
}

/// The comparison for a call.
enum Beside {
    /// The case of the suite `protocols`, in one process with as many threads.
    Rust(&'static str),
    /// A limit in seconds.
    Limit(f64),
    /// Nothing.
    Nothing,
}

const CALLS: &[Call] = &[
    Call { name: "add/1000", size: "1,000 words", beside: Beside::Limit(1e-4) },
    Call { name: "mul/1000", size: "1,000 words", beside: Beside::Nothing },
    Call { name: "matmul/1024", size: "1024^3", beside: Beside::Rust("matmul/1024") },
    Call { name: "relu/1e6", size: "10^6", beside: Beside::Rust("relu/1e6") },
    Call { name: "secret/1e6", size: "10^6", beside: Beside::Nothing },
    Call { name: "reveal/1e6", size: "10^6", beside: Beside::Nothing },
];

/// The number of turns of Python and Rust.
const TURNS: usize = 4;

/// The cases of this module. Parties are threads of Python's process, on the CPU.
///
/// # Errors
/// If the package cannot be built, Python or NumPy is missing, or a call fails.
pub fn cases(bench: &mut Bench) -> Result<()> {
    let threads = bench.threads_or(1);
    let mut driver = None;
    for call in CALLS {
        bench.case(call.name, |case| {
            let driver = match &mut driver {
                Some(driver) => driver,
                none => none.insert(start(threads)?),
            };
            let setup = Setup::in_process(threads);
            let (mine, other) = in_turn(call, driver, setup, case.effort())?;
            case.protocol("rss").engine("cpu").network(Network::InProcess).threads(threads);
            case.size(call.size).timing(mine);
            match (other, &call.beside) {
                (Some(other), _) => drop(case.reference("the same in Rust", other)),
                (None, Beside::Limit(limit)) => {
                    let limit = Timing::from_runs(vec![*limit], None);
                    case.reference("limit", limit);
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Runs of the call, and of the same case in Rust if one exists, in turn.
fn in_turn(
    call: &Call,
    driver: &mut Peer,
    setup: Setup,
    effort: Effort,
) -> Result<(Timing, Option<Timing>)> {
    let (mut mine, mut other) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let answer = driver.ask(&format!("python/{}", call.name), effort)?;
        if let Some(error) = answer.error {
            bail!("{error}");
        }
        ensure!(!answer.seconds.is_empty(), "the driver timed nothing");
        mine.extend(answer.seconds);
        if let Beside::Rust(name) = call.beside {
            other.extend(protocols::seconds_of(name, setup, effort)?);
        }
    }
    let other = (!other.is_empty()).then(|| Timing::from_runs(other, None));
    Ok((Timing::from_runs(mine, None), other))
}

/// Builds the package as it is released, and starts a driver for it.
fn start(threads: usize) -> Result<Peer> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the root")?;
    let [library] = libraries(root, &["--release", "--package", "trefoil-python"], [MODULE])?;
    let folder = root.join("target/python/bench");
    let package = stage(root, &library, &folder)?;
    let python = interpreter().context("there is no Python 3.10 or later; name one in PYTHON")?;
    let wanted = root.join("python/tests/requirements.txt");
    let python = match environment(root, &python, &folder.join("environment"), &wanted)? {
        Ok(python) => python,
        Err(reason) => bail!("NumPy could not be installed: {reason}"),
    };
    let mut command = Command::new(python);
    command.arg(root.join("bench/python_driver.py")).arg(threads.to_string());
    Peer::spawn(command.env("PYTHONPATH", &package), &folder.join("driver.log"))
}
