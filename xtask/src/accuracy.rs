//! `cargo xtask accuracy`: the page of the functions' domains and errors.

use anyhow::{Context, Result, bail};

use crate::{cargo, check};

/// Measures the errors of all functions of secret numbers, and writes `docs/accuracy.md` again.
///
/// # Errors
/// If a function is less accurate than it states, or the tests cannot be run.
pub fn run() -> Result<()> {
    let root = check::root()?;
    let tested = cargo::command()
        .args(["test", "--quiet", "--locked", "--package", "trefoil-rss", "--test", "integration"])
        .arg("the_page_of_accuracies")
        .current_dir(&root)
        .env("TREFOIL_ACCURACY_PAGE", root.join("docs/accuracy.md"))
        .status()
        .context("cannot start cargo")?;
    if tested.success() { Ok(()) } else { bail!("the measurement ended with {tested}") }
}
