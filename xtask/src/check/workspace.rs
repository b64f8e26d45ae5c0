//! The workspace's crates and their source files.

use std::fs;
use std::path::Path;

use anyhow::Result;
use cargo_metadata::{Metadata, MetadataCommand};

/// The crates of the workspace at `root`, as its lock has them.
pub(in crate::check) fn metadata(root: &Path) -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    let command = command.manifest_path(root.join("Cargo.toml")).no_deps();
    Ok(command.other_options(["--locked".to_owned()]).exec()?)
}

/// Visits all Rust files under a folder, if it is there, with their texts.
pub(in crate::check) fn for_each_source(
    folder: &Path,
    visit: &mut impl FnMut(&Path, &str),
) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            for_each_source(&path, visit)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path, &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
