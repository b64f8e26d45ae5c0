//! Packages the crates that others can depend on, as a registry would take them.

use std::path::{Component, Path};

use anyhow::{Result, bail};
use cargo_metadata::{Metadata, Package};

use super::runner::Cargo;
use super::workspace::{for_each_source, metadata};

/// Packages each crate that may be published, from files that lie within it.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = metadata(root)?;
    let published = published(&metadata);
    let mut faults = Vec::new();
    for package in &published {
        let folder = package.manifest_path.with_file_name("src");
        let folder = folder.as_std_path();
        for_each_source(folder, &mut |path, text| {
            // A file of the folder itself leaves the package by two steps up.
            let depth = path.strip_prefix(folder).unwrap_or(path).components().count();
            let outside = included(text).filter(|file| leaves(file, depth));
            faults.extend(outside.map(|file| format!("{} includes {file}", path.display())));
        })?;
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
