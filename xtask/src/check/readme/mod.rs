//! Runs the code blocks of every Markdown file: console sessions and Python scripts here, Rust in
//! the documentation tests. A block that nothing would run is a fault, which `tidy` finds first.

mod blocks;
mod compare;
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::built;
use super::tidy;
use blocks::{Block, Kind};
use session::{Session, Step};

/// Runs the console sessions and Python scripts of all Markdown files, each file in a separate folder.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut programs = None;
    let mut told = Vec::new();
    let files = tidy::files(root)?;
    for file in markdown(&files) {
        let text = fs::read_to_string(root.join(file))?;
        let name = file.display();
        let blocks = blocks::blocks(&text).with_context(|| name.to_string())?;
        let steps = steps(&blocks).with_context(|| name.to_string())?;
        if !steps.is_empty() {
            if programs.is_none() {
                programs = Some(built::executables(root)?);
            }
            let session = Session::new(root, &files, programs.as_deref().unwrap_or_default())?;
            let lines = session.run(&steps).with_context(|| name.to_string())?;
            told.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    Ok(told)
}

fn markdown(files: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    files.iter().filter(|file| file.extension().is_some_and(|end| end == "md"))
}

/// The blocks that nothing runs, and commands outside blocks that are run.
pub(super) fn untested(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in markdown(files) {
        let text = fs::read_to_string(root.join(file))?;
        let name = file.display();
        match blocks::blocks(&text) {
            Ok(blocks) => faults.extend(untested_rust(root, file, &blocks)),
            Err(error) => faults.push(format!("{name}: {error:#}")),
        }
    }
    Ok(faults)
}

/// Rust blocks are tested where the file is the front page of its crate.
fn untested_rust(root: &Path, file: &Path, blocks: &[Block<'_>]) -> Option<String> {
    let block = blocks.iter().find(|block| block.kind == Kind::Rust)?;
    let library = root.join(file).with_file_name("src").join("lib.rs");
    let included = fs::read_to_string(&library)
        .is_ok_and(|text| text.starts_with("#![doc = include_str!(\"../README.md\")]"));
    (!included || !file.ends_with("README.md")).then(|| {
        format!(
            "{}: line {}: no documentation test compiles this block; only a README.md that its \
             crate's src/lib.rs includes may hold Rust",
            file.display(),
            block.line
        )
    })
}

/// The steps to run, in the order of the file.
fn steps<'a>(blocks: &'a [Block<'a>]) -> Result<Vec<Step<'a>>> {
    let mut steps = Vec::new();
    for block in blocks {
        match block.kind {
            Kind::Console => {
                steps.extend(blocks::commands(block)?.into_iter().map(Step::Command));
            }
            Kind::Python => steps.push(Step::Python(block)),
            Kind::Rust | Kind::Text => {}
        }
    }
    Ok(steps)
}
