//! `trefoil run`: hands a script to the Python package, which starts it three times.

use std::{env, ffi::OsString, path::Path, process::Command};

use crate::base::{Error, Result};

/// Runs a script, named by the first word, with the others as its arguments.
pub(super) fn run(words: &[OsString]) -> Result<()> {
    let script = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    if !Path::new(&script).is_file() {
        let reason = "is neither a command of `trefoil run` nor a Python script; `trefoil run --help` lists them";
        return Err(Error::input(script, reason));
    }
    let python = env::var_os("PYTHON").unwrap_or_else(|| OsString::from("python3"));
    let status = Command::new(&python)
        .args(["-m", "trefoil", "run"])
        .args(words)
        .status()
        .map_err(|cause| {
            let program = python.to_string_lossy().into_owned();
            Error::config(program, format_args!("{cause}; name a Python in the variable PYTHON"))
        })?;
    if status.success() {
        return Ok(());
    }
    let reason = format!(
        "the parties ended with {status}; above is why, or that {} lacks the package `trefoil`",
        python.to_string_lossy()
    );
    Err(Error::input(script, reason))
}
