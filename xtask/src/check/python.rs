//! The Python package: built with the tests' profile, and tested by pytest in a separate environment.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::built;
use crate::python::{MODULE, OLDEST, environment, interpreter, libraries, stage};

/// Builds the package and runs its tests and notebooks. Programs that this machine lacks are reported;
/// the check does not fail for them.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    // With the features of the tests, so that little is compiled.
    let args = ["--workspace", "--examples", "--all-features"];
    let [library, stand_in] = libraries(root, &args, [MODULE, "ptx_emu_driver"])?;
    let Some(python) = interpreter() else {
        let (major, minor) = OLDEST;
        return Ok(vec![format!(
            "the package was built and not tested: there is no Python {major}.{minor} or later; install it, \
             or name it in PYTHON"
        )]);
    };
    let folder = root.join("target/python");
    let package = stage(root, &library, &folder)?;
    let wanted = root.join("python/tests/requirements.txt");
    let python = match environment(root, &python, &folder.join("environment"), &wanted)? {
        Ok(python) => python,
        Err(reason) => {
            return Ok(vec![format!(
                "the package was built and not tested: what its tests need could not be installed ({reason})"
            )]);
        }
    };
    let programs = built::executables(root)?.into_iter();
    let program = programs.filter(|p| !p.is_example).find(|p| p.name == "trefoil").map(|p| p.path);
    let output = Command::new(python)
        // Files side by side: of one test the parties' threads rarely keep all cores busy.
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadfile"])
        .arg("python/tests")
        .current_dir(root)
        .env("PYTHONPATH", &package)
        .env("TREFOIL_STAND_IN", stand_in)
        .envs(program.map(|program| ("TREFOIL_PROGRAM", program)))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .context("cannot start pytest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "pytest ended with {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(text.lines().last().map(|line| vec![line.to_owned()]).unwrap_or_default())
}
