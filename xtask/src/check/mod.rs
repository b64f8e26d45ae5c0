//! `cargo xtask check`: everything CI runs, step by step, ending at the first failure.

mod built;
mod costs;
mod deploy;
mod deps;
mod examples;
mod names;
mod packages;
mod python;
mod readme;
mod runner;
mod tidy;
mod words;
mod workspace;

use std::env;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use runner::Cargo;

/// One step: its name, the remedy for a failure, and the work.
struct Step {
    name: &'static str,
    /// The remedy for a failure.
    remedy: &'static str,
    run: fn(&Path) -> Result<Vec<String>>,
}

/// The steps, the quick ones first.
const STEPS: &[Step] = &[
    Step {
        name: "tidy",
        remedy: "edit the files named above",
        run: |root| tidy::check(root).map(one),
    },
    Step {
        name: "dependencies",
        remedy: "see the table in xtask/src/check/deps.rs and ARCHITECTURE.md",
        run: |root| deps::check(root).map(one),
    },
    Step {
        name: "packages",
        remedy: "a crate that others depend on needs versions of its dependencies and files of its own",
        run: packages::check,
    },
    Step {
        name: "fmt",
        remedy: "run `cargo fmt --all`",
        run: |root| Cargo::new(root, &["fmt", "--all", "--check"]).quiet(),
    },
    Step {
        name: "clippy",
        remedy: "fix the lints above, or allow one with its reason beside it",
        run: |root| {
            let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
            Cargo::new(root, &args).args(&["--", "-D", "warnings"]).quiet()
        },
    },
    Step {
        name: "release",
        remedy: "code under `debug_assertions` is missing in builds for release; what uses it is under it too",
        run: |root| {
            // As in a build for release, but for dependencies, which are then those of the lints.
            let assertions = "profile.dev.debug-assertions=false";
            let dependencies = "profile.dev.package.'*'.debug-assertions=true";
            let args = ["check", "--workspace", "--lib", "--bins", "--all-features", "--locked"];
            Cargo::new(root, &args)
                .args(&["--config", assertions, "--config", dependencies])
                .quiet()
        },
    },
    Step {
        name: "rustdoc",
        remedy: "fix the documentation above",
        run: |root| {
            let args = ["doc", "--workspace", "--no-deps", "--all-features", "--locked"];
            Cargo::new(root, &args).env("RUSTDOCFLAGS", "-D warnings").quiet()
        },
    },
    Step {
        name: "licences",
        remedy: "see deny.toml; `cargo install --locked cargo-deny` if cargo does not know `deny`",
        run: |root| {
            Cargo::new(root, &["deny", "--all-features", "check", "licenses", "bans", "sources"])
                .quiet()
        },
    },
    Step {
        name: "advisories",
        remedy: "update the crate that is named, or say in deny.toml why its flaw is none here",
        run: advisories,
    },
    Step { name: "tests", remedy: "rerun one test with `cargo test -p CRATE NAME`", run: tests },
    Step {
        name: "doc tests",
        remedy: "rerun with `cargo test --doc -p CRATE`",
        run: |root| {
            let args = ["test", "--doc", "--workspace", "--all-features", "--locked"];
            Cargo::new(root, &args).shown(closing_line_of_libtest)
        },
    },
    Step {
        name: "examples",
        remedy: "an example runs without arguments and ends with success",
        run: examples::check,
    },
    Step {
        name: "python",
        remedy: "rerun with `cargo xtask check python`; the package's tests are in python/tests",
        run: python::check,
    },
    Step {
        name: "deploy",
        remedy: "deploy/README.md says what each file is for",
        run: deploy::check,
    },
    Step {
        name: "README commands",
        remedy: "the README's commands must work as they are written",
        run: readme::check,
    },
];

/// Looks for published flaws of the crates we use, where cargo-deny has fetched the database of them: a check must not
/// depend on a service. The workflow `advisories` fetches it each day.
fn advisories(root: &Path) -> Result<Vec<String>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    if !home.is_some_and(|home| home.join("advisory-dbs").is_dir()) {
        return Ok(one("no database here: `cargo deny fetch db` gets it".to_owned()));
    }
    let args = ["deny", "--offline", "--all-features", "check", "advisories"];
    Cargo::new(root, &args).quiet()
}

/// The longest that a step may take; `tests` takes 25 minutes on a fresh machine of two cores.
const LIMIT: Duration = Duration::from_mins(45);

/// Ends the program if a step hangs, and names the step.
struct Watchdog {
    _ended: Sender<()>,
}

impl Watchdog {
    fn over(step: &'static str, remedy: &'static str) -> Self {
        let (ended, wait) = mpsc::channel();
        thread::spawn(move || {
            if wait.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let minutes = LIMIT.as_secs() / 60;
                eprintln!("step `{step}` has not ended after {minutes} minutes\nto do: {remedy}");
                process::exit(1);
            }
        });
        Self { _ended: ended }
    }
}

/// Runs every step, or the one called `only`.
///
/// # Errors
/// If a step fails: the error names the step and its remedy.
pub fn run(only: Option<&str>) -> Result<()> {
    let root = root()?;
    let start = Instant::now();
    let mut done: Vec<(&str, Duration, Vec<String>)> = Vec::new();
    for step in STEPS.iter().filter(|step| only.is_none_or(|only| only == step.name)) {
        println!("==> {}", step.name);
        let start = Instant::now();
        let watchdog = Watchdog::over(step.name, step.remedy);
        let outcome = (step.run)(&root);
        drop(watchdog);
        let seconds = start.elapsed();
        match outcome {
            Ok(lines) => {
                println!("    {} passed in {:.1} s", step.name, seconds.as_secs_f64());
                done.push((step.name, seconds, lines));
            }
            Err(error) => {
                bail!(
                    "step `{}` failed after {:.1} s: {error:#}\nto do: {}",
                    step.name,
                    seconds.as_secs_f64(),
                    step.remedy
                );
            }
        }
    }
    if done.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("no such step; there are: {}", names.join(", "));
    }
    println!("\nall steps passed in {:.1} s", start.elapsed().as_secs_f64());
    for (name, seconds, lines) in done {
        println!("{:>8.1} s  {name}", seconds.as_secs_f64());
        lines.iter().for_each(|line| println!("{:>12}{}", "", line.trim()));
    }
    Ok(())
}

/// The unit and integration tests, by nextest where it is installed.
fn tests(root: &Path) -> Result<Vec<String>> {
    if Cargo::new(root, &["nextest", "--version"]).quiet().is_ok() {
        let args = ["nextest", "run", "--workspace", "--all-features", "--locked"];
        Cargo::new(root, &args).args(&["--no-fail-fast"]).shown(closing_line_of_nextest)
    } else {
        println!("    cargo-nextest is not installed; running `cargo test`");
        let args = ["test", "--workspace", "--all-features", "--locked", "--tests", "--examples"];
        Cargo::new(root, &args).args(&["--no-fail-fast"]).shown(closing_line_of_libtest)
    }
}

fn closing_line_of_nextest(line: &str) -> bool {
    line.trim_start().starts_with("Summary [")
}

/// Summaries of libtest, except those of crates without tests.
fn closing_line_of_libtest(line: &str) -> bool {
    line.starts_with("test result:") && !line.starts_with("test result: ok. 0 passed; 0 failed")
}

fn one(line: String) -> Vec<String> {
    vec![line]
}

/// The workspace's root, as cargo reports it.
pub(crate) fn root() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .context("cannot read the workspace; run this inside it")?;
    Ok(metadata.workspace_root.into_std_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_recognised() {
        assert!(closing_line_of_nextest("     Summary [   2.345s] 120 tests run: 120 passed"));
        assert!(!closing_line_of_nextest("        PASS [   0.004s] net frame::tests::a"));
        assert!(closing_line_of_libtest("test result: FAILED. 1 passed; 2 failed; 0 ignored"));
        assert!(!closing_line_of_libtest("test result: ok. 0 passed; 0 failed; 0 ignored"));
    }
}
