//! Running cargo as a step: quietly, or shown with its closing lines kept.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::cargo;

/// A cargo command in the workspace.
pub(super) struct Cargo {
    command: Command,
    text: String,
}

impl Cargo {
    pub(super) fn new(root: &Path, args: &[&str]) -> Cargo {
        let mut command = cargo::command();
        command.current_dir(root).stdin(Stdio::null());
        Cargo { command, text: "cargo".to_owned() }.args(args)
    }

    pub(super) fn args(mut self, args: &[&str]) -> Cargo {
        self.command.args(args);
        for arg in args {
            self.text = format!("{} {arg}", self.text);
        }
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Cargo {
        self.command.env(name, value);
        self
    }

    /// Runs it; its output is shown only if it fails. Returns no lines.
    pub(super) fn quiet(mut self) -> Result<Vec<String>> {
        let output =
            self.command.output().with_context(|| format!("cannot start {}", self.text))?;
        if !output.status.success() {
            io::stdout().write_all(&output.stdout)?;
            io::stderr().write_all(&output.stderr)?;
            bail!("{} ended with {}", self.text, output.status);
        }
        Ok(Vec::new())
    }

    /// Runs it with its output shown, and returns the lines that `keep` picks.
    pub(super) fn shown(mut self, keep: fn(&str) -> bool) -> Result<Vec<String>> {
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.text))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut kept, errors) = thread::scope(|scope| {
            let errors = scope.spawn(move || stderr.map(|pipe| copy(pipe, keep)));
            (stdout.map(|pipe| copy(pipe, keep)).unwrap_or_default(), errors.join())
        });
        kept.extend(errors.ok().flatten().unwrap_or_default());
        let status = child.wait()?;
        if !status.success() {
            bail!("{} ended with {status}\n{}", self.text, kept.join("\n"));
        }
        Ok(kept)
    }
}

/// Copies a pipe to standard output line by line and returns the lines that `keep` picks.
fn copy(pipe: impl Read, keep: fn(&str) -> bool) -> Vec<String> {
    let mut kept = Vec::new();
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        if keep(&line) {
            kept.push(line);
        }
    }
    kept
}
