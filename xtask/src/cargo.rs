//! The files that cargo builds, as it reports them.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Artifact, Message};

/// Builds with cargo and these arguments; returns the artifacts, fresh or existing.
///
/// # Errors
/// If it does not build.
pub fn artifacts(root: &Path, args: &[&str]) -> Result<Vec<Artifact>> {
    let output = command()
        .args(args)
        .args(["--locked", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` ended with {}", args.join(" "), output.status);
    }
    let mut artifacts = Vec::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message? {
            artifacts.push(artifact);
        }
    }
    Ok(artifacts)
}

/// A command of the cargo that runs us, else of whichever is installed.
///
/// It gets the environment that a shell would give it: cargo tells a program that it runs about the
/// program's own package, and build scripts that read those variables would run again, and all that
/// depends on them would be built again, each time the caller differs.
pub fn command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
