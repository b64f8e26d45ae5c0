//! Checks that the names in documentation exist: links, and sources and tests in backquotes.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

/// Endings by which a word in backquotes is taken for a file of this repository.
const ENDINGS: &[&str] = &[".rs", ".md", ".cu", ".cuh", ".ptx", ".py", "deny.toml", "Cargo.toml"];

/// A word in backquotes with at least this many underscores is taken for the name of a test.
const UNDERSCORES: usize = 4;

/// The names in Markdown files that do not exist, with file and line.
pub(super) fn missing(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let tests = tests(root, files)?;
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.extension() == Some("md".as_ref())) {
        let text = fs::read_to_string(root.join(file))?;
        for (number, line) in prose(&text) {
            let is_there = |name: &str| is_file(files, name) || leads_somewhere(root, file, name);
            let names = code_spans(line).filter(|name| {
                is_source(name) && !is_there(name) || is_test(name) && !tests.contains(*name)
            });
            let links = links(line).filter(|link| !leads_somewhere(root, file, link));
            let fault = |name| format!("{}:{number}: there is no `{name}`", file.display());
            faults.extend(names.chain(links).map(fault));
        }
    }
    Ok(faults)
}

/// The lines outside of fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// The text between backquotes.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of links, without the part from `#` on.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or(target))
}

/// The names of all functions that are tests.
fn tests(root: &Path, files: &[PathBuf]) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for file in files.iter().filter(|file| file.extension() == Some("rs".as_ref())) {
        let text = fs::read_to_string(root.join(file))?;
        // Of the attributes of a test, `#[test]` may be followed by others.
        let mut tested = false;
        for line in text.lines().map(str::trim_start) {
            // A test that tries mutants by others' names is public to them.
            let public =
                ["pub(crate) ", "pub "].iter().find_map(|public| line.strip_prefix(public));
            let plain = public.unwrap_or(line);
            if let Some(name) = plain.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
                if tested {
                    names.insert(name.to_owned());
                }
                tested = false;
            }
            tested |= line == "#[test]";
        }
    }
    Ok(names)
}

fn is_test(name: &str) -> bool {
    name.matches('_').count() >= UNDERSCORES
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_source(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        && name.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c))
}

/// True if some file has this name, which may omit folders at its start.
fn is_file(files: &[PathBuf], name: &str) -> bool {
    files.iter().any(|file| file.ends_with(name))
}

/// True if a link's target is external, or a path that exists. Paths are relative to the file.
fn leads_somewhere(root: &Path, file: &Path, link: &str) -> bool {
    // Links without a path are references to items, which rustdoc checks.
    if link.is_empty() || link.contains("://") || link.contains("::") {
        return true;
    }
    let mut path = root.join(file);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_by_the_end_of_their_path() {
        let files = [PathBuf::from("net/src/frame.rs")];
        assert!(is_file(&files, "frame.rs") && is_file(&files, "src/frame.rs"));
        assert!(!is_file(&files, "me.rs") && !is_file(&files, "cut.rs"));
        assert!(is_source("plan/run.rs") && !is_source("photo.jpg") && !is_source("x: y.rs"));
    }

    #[test]
    fn names_and_links_are_read_from_prose_alone() {
        let text = "see `a.rs` and [b](b.md#c)\n```text\n`d.rs`\n```\nend\n";
        let lines: Vec<_> = prose(text).collect();
        assert_eq!(lines, [(1, "see `a.rs` and [b](b.md#c)"), (5, "end")]);
        assert_eq!(code_spans(lines[0].1).collect::<Vec<_>>(), ["a.rs"]);
        assert_eq!(links(lines[0].1).collect::<Vec<_>>(), ["b.md"]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_its_line() {
        let root = std::env::temp_dir().join(format!("xtask-names-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let text = "`x.rs`\n[here](README.md)\n[gone](../gone.md)\n`it_is_a_good_test`\n\
                    `this_is_not_a_test`\n";
        fs::write(root.join("README.md"), text).unwrap();
        let tests = "#[test]\npub fn it_is_a_good_test() {}\nfn this_is_not_a_test() {}\n";
        fs::write(root.join("a.rs"), tests).unwrap();
        let files = ["README.md", "a.rs"].map(PathBuf::from);
        let faults = missing(&root, &files).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let gone = ["1: there is no `x.rs`", "3: there is no `../gone.md`"];
        let all = [gone[0], gone[1], "5: there is no `this_is_not_a_test`"];
        assert_eq!(faults, all.map(|fault| format!("README.md:{fault}")));
    }
}
