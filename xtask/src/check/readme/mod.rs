//! Every code block of every Markdown file is held to what it says: Rust by the documentation tests,
//! console sessions and Python scripts here.

mod blocks;
mod compare;
mod session;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::built;
use super::tidy;
use blocks::{Block, Kind};
use session::{Session, Step};

/// Runs the console sessions and Python scripts of all Markdown files, each file in a folder of its own.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut programs = None;
    let mut told = Vec::new();
    let files = tidy::files(root)?;
    for file in files.iter().filter(|file| file.extension() == Some("md".as_ref())) {
        let text = fs::read_to_string(root.join(file))?;
        let name = file.display();
        let blocks = blocks::blocks(&text).with_context(|| name.to_string())?;
        check_rust(root, file, &blocks)?;
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

/// Rust blocks are tested where the file is the front page of its crate.
fn check_rust(root: &Path, file: &Path, blocks: &[Block<'_>]) -> Result<()> {
    let Some(block) = blocks.iter().find(|block| block.kind == Kind::Rust) else { return Ok(()) };
    let library = root.join(file).with_file_name("src").join("lib.rs");
    let included = fs::read_to_string(&library)
        .is_ok_and(|text| text.starts_with("#![doc = include_str!(\"../README.md\")]"));
    if !included || !file.ends_with("README.md") {
        bail!(
            "{}:{}: no documentation test compiles this block; only a README.md that its crate's \
             src/lib.rs includes may hold Rust",
            file.display(),
            block.line
        );
    }
    Ok(())
}

/// What is to be run, in the order of the file.
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
