//! The programs and examples that the tests' build has left, so that later steps start them directly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, TargetKind};

/// An executable of the workspace.
pub(super) struct Executable {
    /// The name of its program or example.
    pub(super) name: String,
    pub(super) is_example: bool,
    pub(super) path: PathBuf,
}

/// All programs and examples, in the profile and with the features of the tests: nothing is compiled
/// where the tests have run before.
pub(super) fn executables(root: &Path) -> Result<Vec<Executable>> {
    let output = Command::new(crate::python::cargo_program())
        .args(["test", "--workspace", "--all-features", "--locked", "--no-run", "--quiet"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the workspace does not build: cargo ended with {}", output.status);
    }
    let mut found = Vec::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let is = |kind| artifact.target.kind.contains(&kind);
        let (is_example, is_program) = (is(TargetKind::Example), is(TargetKind::Bin));
        if let Some(path) = artifact.executable
            && !artifact.profile.test
            && (is_example || is_program)
        {
            found.push(Executable {
                name: artifact.target.name,
                is_example,
                path: path.into_std_path_buf(),
            });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
