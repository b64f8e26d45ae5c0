//! `cargo xtask operators`: all of ONNX's own operator tests, of the package `onnx`, and the table of operators.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::python::{environment, interpreter};
use crate::{cargo, check};

/// Installs the package, writes its cases, and runs the importer on them: prints the number that are right, and fails
/// if one is wrong. Writes a line for each case to `target/operators/report.txt`, and the table in
/// `models/OPERATORS.md` again. Then three servers answer each case, with the guard on: `target/operators/served/served.txt`
/// has a line for each.
///
/// # Errors
/// If Python is missing, the package cannot be installed, or the tests fail.
pub fn run() -> Result<()> {
    let root = check::root()?;
    let folder = root.join("target/operators");
    std::fs::create_dir_all(&folder)?;
    let python = interpreter().context("there is no Python 3.10 or later; name one in PYTHON")?;
    let wanted = root.join("models/scripts/operator-requirements.txt");
    let python = match environment(&root, &python, &folder.join("environment"), &wanted)? {
        Ok(python) => python,
        Err(reason) => bail!("the package onnx could not be installed: {reason}"),
    };
    let cases = folder.join("cases.gz");
    let written = Command::new(&python)
        .arg(root.join("models/scripts/operator_cases.py"))
        .arg(&cases)
        .status()
        .context("cannot start Python")?;
    if !written.success() {
        bail!("the cases could not be written: Python ended with {written}");
    }
    let tested = cargo::command()
        .args(["test", "--quiet", "--locked", "--package", "trefoil-models", "--lib"])
        .args(["tests::operators", "--", "--nocapture"])
        .current_dir(&root)
        .env("TREFOIL_ONNX_CASES", &cases)
        .env("TREFOIL_ONNX_REPORT", folder.join("report.txt"))
        .env("TREFOIL_ONNX_TABLE", root.join("models/OPERATORS.md"))
        .status()
        .context("cannot start cargo")?;
    if !tested.success() {
        bail!("the tests ended with {tested}");
    }
    let built = cargo::command()
        .args(["build", "--quiet", "--locked", "--package", "trefoil"])
        .current_dir(&root)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the program was not built: cargo ended with {built}");
    }
    let folder = folder.join("served");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir(&folder)?;
    let served = Command::new(python)
        .arg(root.join("models/scripts/served_operators.py"))
        .args([root.join("target/debug/trefoil"), folder])
        .status()
        .context("cannot start Python")?;
    if served.success() { Ok(()) } else { bail!("the served cases ended with {served}") }
}
