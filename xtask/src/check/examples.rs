//! Every example of every crate runs to its end.

use std::path::Path;

use anyhow::Result;
use cargo_metadata::{MetadataCommand, TargetKind};

use super::runner::Cargo;

/// Runs each example, without arguments, as a reader would.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata =
        MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let mut ran = Vec::new();
    for package in metadata.workspace_packages() {
        for target in package.targets.iter().filter(|t| t.kind.contains(&TargetKind::Example)) {
            let args = ["run", "--quiet", "--locked", "--package", &package.name, "--example"];
            Cargo::new(root, &args).args(&[&target.name]).quiet()?;
            ran.push(format!("{}/{}", package.name, target.name));
        }
    }
    Ok(vec![ran.join(", ")])
}
