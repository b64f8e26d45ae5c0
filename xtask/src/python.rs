//! The Python package for the check and the benchmarks: found, built, laid out as a wheel would be.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cargo::artifacts;

/// The oldest Python that the package supports.
pub const OLDEST: (u32, u32) = (3, 10);

/// The Python that `PYTHON` names, or the first of the usual ones that is not too old.
pub fn interpreter() -> Option<PathBuf> {
    interpreter_that(&format!("sys.version_info >= {OLDEST:?}"), &["python3", "python"])
}

/// The Python that `PYTHON` names, or the first of these, for which a condition on `sys` and `sysconfig` holds.
pub fn interpreter_that(holds: &str, usual: &[&str]) -> Option<PathBuf> {
    let named = env::var_os("PYTHON").map(PathBuf::from);
    named.into_iter().chain(usual.iter().map(PathBuf::from)).find(|python| {
        let code = format!("import sys, sysconfig; sys.exit(not ({holds}))");
        let ran = Command::new(python).args(["-c", &code]).stdin(Stdio::null()).output();
        ran.is_ok_and(|output| output.status.success())
    })
}

/// The extension module's library.
pub const MODULE: &str = "trefoil_python";

/// Dynamic libraries by their names, built by cargo with these arguments.
///
/// # Errors
/// If one does not build.
pub fn libraries<const N: usize>(
    root: &Path,
    args: &[&str],
    names: [&str; N],
) -> Result<[PathBuf; N]> {
    let args = [&["build", "--lib", "--quiet"], args].concat();
    let built = artifacts(root, &args)?;
    let mut found = names.map(|_| PathBuf::new());
    for (path, name) in found.iter_mut().zip(names) {
        let own = built.iter().filter(|artifact| artifact.target.name == name);
        let mut files = own.flat_map(|artifact| &artifact.filenames);
        let is_dynamic = |file: &&cargo_metadata::camino::Utf8PathBuf| {
            ["so", "dylib", "dll"].iter().any(|ending| file.extension() == Some(ending))
        };
        let file = files.find(is_dynamic);
        *path = file.with_context(|| format!("cargo built no library {name}"))?.into();
    }
    Ok(found)
}

/// The package as a wheel would install it: a folder for `PYTHONPATH` below `folder`.
///
/// # Errors
/// If files cannot be read or written.
pub fn stage(root: &Path, library: &Path, folder: &Path) -> Result<PathBuf> {
    let package = folder.join("package");
    let inside = package.join("trefoil");
    if inside.exists() {
        fs::remove_dir_all(&inside)?;
    }
    fs::create_dir_all(&inside)?;
    for entry in fs::read_dir(root.join("python/trefoil"))? {
        let path = entry?.path();
        let kept = path.extension().is_some_and(|e| e == "py" || e == "pyi" || e == "typed");
        if let Some(name) = path.file_name().filter(|_| kept) {
            fs::copy(&path, inside.join(name))?;
        }
    }
    let ending = if cfg!(windows) { "_trefoil.pyd" } else { "_trefoil.abi3.so" };
    fs::copy(library, inside.join(ending))?;
    Ok(package)
}

/// The Python of an environment with the packages of a list. It is kept until the list changes. The inner
/// error states why they cannot be installed.
///
/// # Errors
/// If the list cannot be read.
pub fn environment(
    root: &Path,
    python: &Path,
    folder: &Path,
    wanted: &Path,
) -> Result<Result<PathBuf, String>> {
    let stamp = folder.join("installed");
    let list =
        fs::read_to_string(wanted).with_context(|| format!("cannot read {}", wanted.display()))?;
    let bin = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let inside = folder.join(bin);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(Ok(inside));
    }
    let run = |program: &Path, args: &[&str]| -> Result<(), String> {
        let ran = Command::new(program).args(args).current_dir(root).stdin(Stdio::null()).output();
        let output = ran.map_err(|cause| format!("{}: {cause}", program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(text.lines().last().unwrap_or("without a word").to_owned())
    };
    let place = folder.to_string_lossy();
    let list_file = wanted.to_string_lossy();
    let pip = ["-m", "pip", "install", "--quiet", "--retries", "2", "--requirement", &*list_file];
    let installed =
        run(python, &["-m", "venv", "--clear", &place]).and_then(|()| run(&inside, &pip));
    if let Err(reason) = installed {
        return Ok(Err(reason));
    }
    fs::write(stamp, list)?;
    Ok(Ok(inside))
}
