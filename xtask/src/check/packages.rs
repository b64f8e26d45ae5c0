//! Packages the crates that others can depend on, as a registry would take them.

use std::fs;
use std::path::{Component, Path};

use anyhow::{Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};

use super::runner::Cargo;

/// Packages each crate that may be published, from files that lie within it.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .other_options(["--locked".to_owned()])
        .exec()?;
    let published = published(&metadata);
    let mut faults = Vec::new();
    for package in &published {
        let folder = package.manifest_path.with_file_name("src");
        includes_within(folder.as_std_path(), folder.as_std_path(), &mut faults)?;
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    // On a fresh machine nothing is known of the registry yet, and packaging is to ask nobody.
    Cargo::new(root, &["fetch", "--locked"]).quiet()?;
    let mut command = vec!["package", "--no-verify", "--offline", "--allow-dirty", "--locked"];
    for package in &published {
        command.extend(["--package", package.name.as_str()]);
    }
    Cargo::new(root, &command).quiet()?;
    Ok(vec![format!("{} crates can be packaged", published.len())])
}

fn published(metadata: &Metadata) -> Vec<&Package> {
    let packages = metadata.workspace_packages().into_iter();
    packages.filter(|package| package.publish.is_none()).collect()
}

/// Finds files of code that include one outside of their package: a package does not have it.
fn includes_within(source: &Path, folder: &Path, faults: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            includes_within(source, &path, faults)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let depth = folder.strip_prefix(source).unwrap_or(folder).components().count();
            let text = fs::read_to_string(&path)?;
            let outside = included(&text).filter(|file| leaves(file, depth + 1));
            faults.extend(outside.map(|file| format!("{} includes {file}", path.display())));
        }
    }
    Ok(())
}

/// The files that code includes, tests apart.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    ["include_str!(\"", "include_bytes!(\"", "include!(\""]
        .into_iter()
        .flat_map(|call| code.split(call).skip(1))
        .filter_map(|rest| rest.split('"').next())
}

/// True if a relative path goes up by more than `depth` folders.
fn leaves(file: &str, depth: usize) -> bool {
    let up = Path::new(file).components().take_while(|part| *part == Component::ParentDir);
    up.count() > depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_outside_of_the_package_is_found() {
        let text = "const A: &str = include_str!(\"../README.md\");\nconst B: &[u8] = \
                    include_bytes!(\"../../other/data.gz\");\n";
        let outside: Vec<_> = included(text).filter(|file| leaves(file, 1)).collect();
        assert_eq!(outside, ["../../other/data.gz"]);
        assert!(included(text).all(|file| !leaves(file, 2)));
    }
}
