//! The files that cargo builds, as it reports them.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Artifact, Message};

/// Builds with cargo and these arguments; returns the artifacts, fresh or existing.
///
/// # Errors
/// If it does not build.
pub fn artifacts(root: &Path, args: &[&str]) -> Result<Vec<Artifact>> {
    let output = Command::new(program())
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

/// The cargo that runs us, else whichever is installed.
pub fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
