//! Wheels of the Python package: for glibc from 2.28 on, and for musl.
//!
//! maturin builds them with zig as linker, which knows the symbols of every glibc, so that this machine's own does
//! not matter. Both come from the Python registry into an environment under `target/python`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::check;
use crate::python::{environment, interpreter};

/// A target of Rust and the tag that its wheel gets.
const TARGETS: &[(&str, &str)] = &[
    ("x86_64-unknown-linux-gnu", "manylinux_2_28"),
    ("x86_64-unknown-linux-musl", "musllinux_1_2"),
    ("aarch64-unknown-linux-gnu", "manylinux_2_28"),
];

/// The largest wheel, in bytes.
const MOST: u64 = 6_000_000;

/// Builds a wheel for each of the named targets, those of this machine's processor without names.
///
/// # Errors
/// If there is no Python, a tool cannot be installed, or a wheel is too large or needs more than NumPy.
pub fn run(targets: &[String]) -> Result<()> {
    let root = check::root()?;
    let folder = root.join("target/python");
    let python = interpreter().context("there is no Python 3.10 or later; name one in PYTHON")?;
    let wanted = root.join("python/wheel-requirements.txt");
    let tools = folder.join("wheel-environment");
    let python = match environment(&root, &python, &tools, &wanted)? {
        Ok(python) => python,
        Err(reason) => bail!("maturin and zig could not be installed: {reason}"),
    };
    let own = std::env::consts::ARCH;
    let wanted = |target: &str| match targets {
        [] => target.starts_with(own),
        named => named.iter().any(|name| name == target),
    };
    let chosen: Vec<_> = TARGETS.iter().filter(|(target, _)| wanted(target)).collect();
    if chosen.is_empty() || chosen.len() < targets.len() {
        let names: Vec<_> = TARGETS.iter().map(|(target, _)| *target).collect();
        bail!("targets are {}", names.join(", "));
    }
    for (target, tag) in chosen {
        let out = folder.join("wheels").join(target);
        build(&root, &python, target, tag, &out)?;
        let wheel = only_wheel(&out)?;
        let size = fs::metadata(&wheel)?.len();
        println!("{} ({:.2} MB)", wheel.display(), size as f64 / 1e6);
        ensure!(size <= MOST, "the wheel has {size} bytes, more than {MOST}");
        ensure!(wheel.to_string_lossy().contains(tag), "the wheel is not tagged {tag}");
    }
    Ok(())
}

fn build(root: &Path, python: &Path, target: &str, tag: &str, out: &Path) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    let added = Command::new("rustup").args(["target", "add", target]).status();
    ensure!(
        added.is_ok_and(|status| status.success()),
        "rustup cannot add the target {target}; install it in another way"
    );
    let bin = python.parent().context("a Python lies in a folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [bin.to_path_buf()].into_iter().chain(std::env::split_paths(&path));
    let status = Command::new(python)
        .args(["-m", "maturin", "build", "--manifest-path", "python/Cargo.toml", "--zig"])
        .args(["--target", target, "--compatibility", tag, "--out"])
        .arg(out)
        .current_dir(root)
        .env("PATH", std::env::join_paths(all)?)
        .status()
        .context("cannot start maturin")?;
    ensure!(status.success(), "maturin ended with {status}");
    Ok(())
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let mut wheels = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "whl") {
            wheels.push(path);
        }
    }
    ensure!(wheels.len() == 1, "maturin made {} wheels", wheels.len());
    wheels.pop().context("maturin made no wheel")
}
