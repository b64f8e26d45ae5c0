//! `cargo xtask docs`: the handbook of `docs/` as pages, by mdbook.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::check;

/// Builds the handbook under `target/book`.
///
/// # Errors
/// If mdbook is not installed, or does not build it.
pub fn run() -> Result<()> {
    let root = check::root()?;
    let out = root.join("target/book");
    let status = Command::new("mdbook")
        .args(["build", "docs", "--dest-dir"])
        .arg(&out)
        .current_dir(&root)
        .status()
        .context("mdbook cannot be started; `cargo install --locked mdbook` installs it")?;
    ensure!(status.success(), "mdbook ended with {status}");
    println!("{}", out.join("index.html").display());
    Ok(())
}
