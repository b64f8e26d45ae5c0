//! Rules about the files themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{costs, names, readme, words};

/// Longest source file. The middle one should have a third of this.
const MAX_LINES: usize = 800;
/// Largest file of any kind: models and data in the repository are small.
const MAX_BYTES: u64 = 1 << 20;

/// Crates whose SIMD files hold `unsafe` code.
const UNSAFE_CRATES: &[&str] = &["ring-arith", "gpu-kernels", "dist-proofs"];

/// Crates whose only `unsafe` code is that of macros, so that it cannot be forbidden.
const MACRO_CRATES: &[&str] = &["python"];

/// Checks every file under version control, and states their number.
pub(super) fn check(root: &Path) -> Result<String> {
    let files = files(root)?;
    let mut faults = Vec::new();
    for file in &files {
        let path = root.join(file);
        let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if size > MAX_BYTES {
            faults.push(format!("{}: {size} bytes, more than {MAX_BYTES}", file.display()));
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", file.display()))?;
        let found = match str::from_utf8(&bytes) {
            Ok(text) => faults_of(file, text),
            Err(_) => binary_faults(&bytes),
        };
        faults.extend(found.iter().map(|fault| format!("{}{fault}", file.display())));
    }
    faults.extend(missing_files(&files));
    faults.extend(tests_left_out(root, &files)?);
    faults.extend(names::missing(root, &files)?);
    faults.extend(costs::unstated(root)?);
    faults.extend(readme::untested(root, &files)?);
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(format!("{} files", files.len()))
}

/// Files of integration tests that their crate's `tests/main.rs` does not name: they would not run.
fn tests_left_out(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for main in files.iter().filter(|file| file.ends_with("tests/main.rs")) {
        let text = fs::read_to_string(root.join(main))?;
        let beside = files.iter().filter(|file| file.parent() == main.parent() && *file != main);
        for file in beside.filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            if !text.contains(&format!("mod {name};")) {
                faults.push(format!("{}: add `mod {name};` to {}", file.display(), main.display()));
            }
        }
    }
    Ok(faults)
}

/// The files of the repository, relative to its root; without git all but build output.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    if let Ok(output) = listed
        && output.status.success()
    {
        let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let names = text.split('\0').filter(|name| !name.is_empty());
        return Ok(names.map(PathBuf::from).filter(|file| root.join(file).is_file()).collect());
    }
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files)?;
    Ok(files)
}

fn walk(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let file = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            let skipped = ["target", ".git", ".venv"].iter().any(|name| *name == entry.file_name());
            if !skipped {
                walk(root, &file, files)?;
            }
        } else {
            files.push(file);
        }
    }
    Ok(())
}

/// The faults of one text file, each starting with `:line:` or `:`.
fn faults_of(file: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = file.to_string_lossy();
    if name.ends_with(".rs") {
        faults.extend(source_faults(file, text));
    }
    if name.ends_with(".rs") || name.ends_with(".md") {
        faults.extend(words::old(file, text));
    }
    if name != "Cargo.lock" {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = unwanted().into_iter().find(|word| line.contains(word.as_str())) {
                faults.push(format!(":{}: contains `{word}`", number + 1));
            }
        }
    }
    faults
}

/// A binary file, such as a model, must not carry the paths of the machine that made it.
fn binary_faults(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let found = machine_paths().into_iter().filter(|path| text.contains(path.as_str()));
    found.map(|path| format!(": contains `{path}`")).collect()
}

/// The rules for Rust files.
fn source_faults(file: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") && !text.starts_with("#![doc = include_str!") {
        faults.push(":1: does not open with a `//!` sentence".to_owned());
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!(": {lines} lines, more than {MAX_LINES}; split it"));
    }
    let folder = file.components().next().map(|part| part.as_os_str().to_string_lossy());
    let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
    let is_one_of = |crates: &[&str]| folder.as_ref().is_some_and(|name| crates.contains(&&**name));
    let lint =
        if is_one_of(MACRO_CRATES) { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if is_root && !is_one_of(UNSAFE_CRATES) && !text.contains(lint) {
        faults.push(format!(": lacks `{lint}`"));
    }
    faults
}

/// Marks of unfinished work, ignored tests and paths of somebody's machine. Spelt in pieces, for
/// this file is checked too.
fn unwanted() -> Vec<String> {
    let marks = [("TO", "DO"), ("FIX", "ME"), ("XX", "X:"), ("todo", "!("), ("dbg", "!(")];
    let more = [("unimplemented", "!("), ("#[ign", "ore")];
    let words = marks.iter().chain(&more).map(|(start, end)| format!("{start}{end}"));
    words.chain(machine_paths()).collect()
}

fn machine_paths() -> Vec<String> {
    let paths = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/tm", "p/"), ("/Us", "ers/")];
    paths.iter().map(|(start, end)| format!("{start}{end}")).collect()
}

/// The files that a crate must have as well as its code, and lacks.
fn missing_files(files: &[PathBuf]) -> Vec<String> {
    let has = |path: &Path| files.iter().any(|file| file == path);
    let mut missing = Vec::new();
    for library in files.iter().filter(|file| file.ends_with("src/lib.rs")) {
        let Some(folder) = library.parent().and_then(Path::parent) else { continue };
        if folder == Path::new("xtask") {
            continue;
        }
        for wanted in ["README.md", "CHANGELOG.md"] {
            if !has(&folder.join(wanted)) {
                missing.push(format!("{}: has no {wanted}", folder.display()));
            }
        }
        if !files.iter().any(|file| file.starts_with(folder.join("examples"))) {
            missing.push(format!("{}: has no example in examples/", folder.display()));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &str, text: &str) -> Vec<String> {
        faults_of(Path::new(file), text)
    }

    #[test]
    fn a_clean_file_has_no_faults() {
        assert!(faults("net/src/frame.rs", "//! Frames.\n\nfn f() {}\n").is_empty());
    }

    #[test]
    fn each_rule_is_broken_by_its_example() {
        assert!(faults("net/src/frame.rs", "fn f() {}\n")[0].contains("//!"));
        let marked = format!("//! A.\n// {}{}: later\n", "TO", "DO");
        assert_eq!(faults("net/src/frame.rs", &marked).len(), 1);
        let path = format!("read {}{}x", "/ro", "ot/");
        assert!(faults("README.md", &path)[0].starts_with(":1:"));
        let long = format!("//! A.\n{}", "\n".repeat(MAX_LINES));
        assert!(faults("net/src/frame.rs", &long)[0].contains("split it"));
        assert!(faults("net/src/lib.rs", "//! A.\n")[0].contains("unsafe_code"));
        assert!(faults("ring-arith/src/lib.rs", "//! A.\n").is_empty());
        assert_eq!(binary_faults(&[b"\xff", path.as_bytes()].concat()).len(), 1);
    }

    #[test]
    fn a_library_without_readme_changelog_and_example_is_named() {
        let files = ["net/src/lib.rs", "net/README.md"].map(PathBuf::from);
        let missing = missing_files(&files);
        assert_eq!(missing.len(), 2);
        assert!(missing[0].contains("CHANGELOG.md") && missing[1].contains("examples"));
    }
}
