//! The programs and examples that the tests' build has left, so that later steps start them directly.

use std::path::{Path, PathBuf};

use anyhow::Result;
use cargo_metadata::TargetKind;

use crate::cargo::artifacts;

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
    let args = ["test", "--workspace", "--all-features", "--no-run", "--quiet"];
    let mut found = Vec::new();
    for artifact in artifacts(root, &args)? {
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
