//! The checks again, under `compute-sanitizer` where it is installed.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use ring_arith::Engine;

use super::{OUT_OF_TIME, Run, Timing};

/// The tools, and the exit code that reports a finding.
const TOOLS: [&str; 2] = ["memcheck", "racecheck"];
const FOUND: &str = "9";
/// Seconds for each tool at most: it slows kernels down by orders of magnitude.
const LIMIT: u64 = 100;
/// Checks that run every kind of matrix kernel, and with it most that use shared memory.
const CHECKS: &str = "check/convolutions";

pub(crate) fn run(run: &mut Run) {
    let Some(program) = find() else {
        println!("compute-sanitizer is not installed: that part is left out");
        return;
    };
    for tool in TOOLS {
        let (engine, ordinal) = (run.engine.clone(), run.ordinal.to_string());
        let left = run.end.saturating_duration_since(Instant::now()).as_secs().saturating_sub(10);
        let limit = LIMIT.min(left).to_string();
        run.part(&format!("sanitizer/{tool}"), |case| {
            let clock = Instant::now();
            let output = Command::new(&program)
                .args(["--tool", tool, "--error-exitcode", FOUND])
                .arg(env::current_exe().context("this program has a path")?)
                .args(["--small", "--only", CHECKS, "--limit", &limit, "--device", &ordinal])
                .output()
                .with_context(|| format!("cannot start {}", program.display()))?;
            if output.status.code() == Some(OUT_OF_TIME) {
                println!("{tool} found nothing in {limit} s and was not done then");
            } else if !output.status.success() {
                let all = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&all).into_owned();
                bail!("{tool} ended with {}:\n{}", output.status, tail(&text));
            }
            let timing = Timing::from_runs(vec![clock.elapsed().as_secs_f64()], None);
            case.engine(&engine.name()).size(CHECKS).timing(timing);
            Ok(())
        });
    }
}

/// On the path, or where CUDA and its tools put it.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/local/cuda/bin")]);
    folders.map(|folder| folder.join("compute-sanitizer")).find(|file| file.is_file())
}

/// The last lines, where the verdict stands.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
