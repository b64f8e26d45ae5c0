//! Wheels of the Python package: for glibc from 2.28 on, for musl, and for macOS from 11 on.
//!
//! maturin builds them with zig as linker, which knows the symbols of every glibc and of macOS, so that this machine's
//! own system does not matter. Both are installed from the Python registry into an environment under `target/python`. A
//! wheel that this machine can run is installed into a fresh environment, where the README's example runs.
//!
//! One wheel of a target serves every usual Python from 3.10 on. Python without its global lock, the free-threaded build,
//! needs a wheel for its version.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo;
use crate::check;
use crate::python::{environment, interpreter, interpreter_that};

/// A target of Rust and the tag that its wheel gets.
struct Target {
    name: &'static str,
    tag: &'static str,
}

const TARGETS: &[Target] = &[
    Target { name: "x86_64-unknown-linux-gnu", tag: "manylinux_2_28" },
    Target { name: "x86_64-unknown-linux-musl", tag: "musllinux_1_2" },
    Target { name: "aarch64-unknown-linux-gnu", tag: "manylinux_2_28" },
    Target { name: "aarch64-unknown-linux-musl", tag: "musllinux_1_2" },
    Target { name: "x86_64-apple-darwin", tag: "macosx_11_0" },
    Target { name: "aarch64-apple-darwin", tag: "macosx_11_0" },
];

/// The oldest macOS that a wheel runs on: the first on Apple's own processors.
const OLDEST_MACOS: &str = "11.0";

/// The Python without a global lock that a wheel of its own is for.
const FREE_THREADED: &str = "python3.14t";

/// The largest wheel, in bytes: compiled protocols and layers take two thirds, tokenizers and their tables a tenth.
const MOST: u64 = 10_000_000;

/// Builds a wheel for each of the named targets, those of this machine's processor without names: for every usual Python,
/// or for the free-threaded one. A target whose standard library is missing does not keep the others from being built.
///
/// # Errors
/// If Python or a standard library of Rust is missing, or a tool cannot be installed. If a wheel is too large, has
/// another tag, needs more than NumPy, holds a crate that its bill of materials does not name, or does not run the
/// README's example.
pub fn run(targets: &[String], free_threaded: bool) -> Result<()> {
    let root = check::root()?;
    let folder = root.join("target/python");
    let python = if free_threaded {
        interpreter_that("sysconfig.get_config_var('Py_GIL_DISABLED')", &[FREE_THREADED])
            .context("there is no free-threaded Python; name one in PYTHON")?
    } else {
        interpreter().context("there is no Python 3.10 or later; name one in PYTHON")?
    };
    let wanted = root.join("python/wheel-requirements.txt");
    let tools = match environment(&root, &python, &folder.join("wheel-environment"), &wanted)? {
        Ok(python) => python,
        Err(reason) => bail!("maturin and zig could not be installed: {reason}"),
    };
    let mut missing = Vec::new();
    for target in chosen(targets)? {
        if let Err(reason) = standard_library(&root, target.name)? {
            eprintln!("no wheel for {}: {reason}", target.name);
            missing.push(target.name);
            continue;
        }
        let kind = if free_threaded { "-free-threaded" } else { "" };
        let out = folder.join("wheels").join(format!("{}{kind}", target.name));
        let only_for = free_threaded.then(|| interpreter_of(target.name, &python));
        build(&root, &tools, target, only_for, &out)?;
        let wheel = only_wheel(&out)?;
        let size = fs::metadata(&wheel)?.len();
        println!("{} ({:.2} MB)", wheel.display(), size as f64 / 1e6);
        ensure!(size <= MOST, "the wheel has {size} bytes, more than {MOST}");
        let pythons = if free_threaded { "-cp314t-" } else { "-abi3-" };
        for tag in [target.tag, pythons] {
            ensure!(wheel.to_string_lossy().contains(tag), "the wheel is not tagged {tag}");
        }
        let metadata = metadata(&tools, &wheel)?;
        let needs = requirements(&metadata);
        ensure!(needs == ["numpy"], "the wheel needs {needs:?}, not NumPy alone");
        let bill = bill_of_materials(&tools, &wheel)?;
        let unnamed = unnamed(&linked(&root, target.name)?, &bill)?;
        ensure!(unnamed.is_empty(), "the wheel's bill of materials lacks {}", unnamed.join(", "));
        let beside = wheel.with_extension("cyclonedx.json");
        fs::write(&beside, bill)?;
        println!("{}", beside.display());
        if runs_here(target.name) {
            try_out(&root, &python, &wheel, &folder.join("wheel-trial"))?;
            println!("installed into a fresh environment, it runs the README's example");
        }
    }
    ensure!(
        missing.is_empty(),
        "Rust's standard library is missing for {}; every other wheel was built",
        missing.join(" and ")
    );
    Ok(())
}

/// The named targets, or those of this machine's processor.
fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    let unknown = names.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name));
    if let Some(name) = unknown {
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no target `{name}`; targets are {}", known.join(", "));
    }
    let wanted = |target: &&Target| match names {
        [] => target.name.starts_with(env::consts::ARCH),
        named => named.iter().any(|name| name == target.name),
    };
    Ok(TARGETS.iter().filter(wanted).collect())
}

/// True if a wheel for this target runs on this machine, as this program does.
fn runs_here(target: &str) -> bool {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    cfg!(target_os = "linux") && target == format!("{}-unknown-linux-{libc}", env::consts::ARCH)
}

/// The interpreter that a wheel is built for: the given one where the wheel runs here. maturin knows the settings of the
/// same version on other systems by its name.
fn interpreter_of<'a>(target: &str, python: &'a Path) -> &'a Path {
    if runs_here(target) { python } else { Path::new(FREE_THREADED) }
}

/// Installs a target's standard library if the compiler lacks it. The inner error states why that
/// failed.
fn standard_library(root: &Path, target: &str) -> Result<Result<(), String>> {
    // The wrapper that rustup puts in the place of cargo names the toolchain to all its children.
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root)
        .output()
        .context("cannot start rustc")?;
    ensure!(asked.status.success(), "rustc does not know {target}: {}", last_line(&asked));
    let folder = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    let is_there = || {
        fs::read_dir(&folder).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
        })
    };
    if is_there() {
        return Ok(Ok(()));
    }
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    let reason = match added {
        Ok(output) if output.status.success() && is_there() => return Ok(Ok(())),
        Ok(output) => format!("`rustup target add {target}` fails ({})", last_line(&output)),
        Err(cause) => format!("rustup, which would get it, cannot be started ({cause})"),
    };
    let place = folder.display();
    Ok(Err(format!("its standard library is not in {place}, and {reason}")))
}

/// The last thing that a program complained of.
fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("without a word").trim().to_owned()
}

/// Builds the wheel of a target: for one Python alone, or for every one from the oldest on.
fn build(
    root: &Path,
    tools: &Path,
    target: &Target,
    only_for: Option<&Path>,
    out: &Path,
) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    let bin = tools.parent().context("a Python lies in a folder")?;
    let path = env::var_os("PATH").unwrap_or_default();
    let all = [bin.to_path_buf()].into_iter().chain(env::split_paths(&path));
    let mut command = Command::new(tools);
    command
        .args(["-m", "maturin", "build", "--manifest-path", "python/Cargo.toml", "--zig"])
        .args(["--target", target.name, "--out"])
        .arg(out);
    if target.tag.contains("linux") {
        command.args(["--compatibility", target.tag]);
    }
    if let Some(python) = only_for {
        command.arg("--interpreter").arg(python);
    }
    let status = command
        .current_dir(root)
        .env("PATH", env::join_paths(all)?)
        .env("MACOSX_DEPLOYMENT_TARGET", OLDEST_MACOS)
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

/// Prints the file of a wheel whose name has the given end.
const PRINT: &str = "import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = [name for name in wheel.namelist() if name.endswith(sys.argv[2])]
assert len(names) == 1, f'{len(names)} files end with {sys.argv[2]}'
print(wheel.read(names[0]).decode())";

fn metadata(python: &Path, wheel: &Path) -> Result<String> {
    file_of(python, wheel, ".dist-info/METADATA")
}

/// The CycloneDX list of the crates in a wheel, which maturin adds (PEP 770).
fn bill_of_materials(python: &Path, wheel: &Path) -> Result<String> {
    file_of(python, wheel, ".cyclonedx.json")
}

fn file_of(python: &Path, wheel: &Path, ending: &str) -> Result<String> {
    let read = Command::new(python).args(["-c", PRINT]).arg(wheel).arg(ending).output()?;
    ensure!(read.status.success(), "the wheel cannot be read: {}", last_line(&read));
    Ok(String::from_utf8_lossy(&read.stdout).into_owned())
}

/// Crates that are linked into the package for a target, as cargo resolves them: `NAME@VERSION`.
fn linked(root: &Path, target: &str) -> Result<Vec<String>> {
    let args = ["tree", "--package", "trefoil-python", "--edges", "normal", "--prefix", "none"];
    let tree = cargo::command()
        .args(args)
        .args(["--locked", "--format", "{p}", "--target", target])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    ensure!(tree.status.success(), "cargo tree fails: {}", last_line(&tree));
    Ok(packages(&String::from_utf8_lossy(&tree.stdout)))
}

/// `NAME@VERSION` of each line `NAME vVERSION ...`, each once.
fn packages(tree: &str) -> Vec<String> {
    let packages = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name}@{}", rest.split_whitespace().next()?))
    });
    packages.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The packages that a bill of materials does not name.
fn unnamed(packages: &[String], bill: &str) -> Result<Vec<String>> {
    let bill: Value = serde_json::from_str(bill).context("the bill of materials is not JSON")?;
    let listed = bill["components"].as_array().into_iter().flatten();
    let named: BTreeSet<_> = listed
        .chain([&bill["metadata"]["component"]])
        .filter_map(|one| Some(format!("{}@{}", one["name"].as_str()?, one["version"].as_str()?)))
        .collect();
    Ok(packages.iter().filter(|package| !named.contains(*package)).cloned().collect())
}

/// Names of the packages that a wheel needs, by its metadata.
fn requirements(metadata: &str) -> Vec<&str> {
    // The description follows the first empty line, and may have such lines too.
    let header = metadata.lines().take_while(|line| !line.is_empty());
    let needs = header.filter_map(|line| line.strip_prefix("Requires-Dist: "));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    needs.map(|need| need.split(|c| !is_name(c)).next().unwrap_or(need)).collect()
}

/// Installs a wheel into a fresh environment, and runs the first example of the package's README there.
fn try_out(root: &Path, python: &Path, wheel: &Path, folder: &Path) -> Result<()> {
    let example = first_example(&fs::read_to_string(root.join("python/README.md"))?)
        .context("python/README.md has no block of Python")?;
    let run = |command: &mut Command| -> Result<()> {
        let output = command.stdin(Stdio::null()).output().context("cannot start Python")?;
        ensure!(output.status.success(), "{command:?} fails: {}", last_line(&output));
        Ok(())
    };
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    let inside = folder.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--retries", "2"];
    run(Command::new(&inside).args(pip).arg(wheel))?;
    // In another folder: the sources in this one are no package without their compiled half.
    run(Command::new(&inside).args(["-c", &example]).current_dir(folder))
}

/// The first block of Python in a page.
fn first_example(page: &str) -> Option<String> {
    let (_, behind) = page.split_once("```python\n")?;
    let (block, _) = behind.split_once("```")?;
    Some(block.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_those_of_the_header() {
        let metadata = "Name: trefoil\nRequires-Dist: numpy>=1.25\nRequires-Dist: a.b-c ; extra == 'd'\n\n\
                        Requires-Dist: of the description";
        assert_eq!(requirements(metadata), ["numpy", "a.b-c"]);
    }

    #[test]
    fn a_linked_crate_that_the_bill_of_materials_does_not_name_is_found() {
        let tree = "trefoil-python v0.1.0 (/here)\nring v0.17.8\nsyn v2.0.1 (proc-macro)\nring v0.17.8 (*)\n";
        let linked = packages(tree);
        assert_eq!(linked, ["ring@0.17.8", "syn@2.0.1", "trefoil-python@0.1.0"]);
        let bill = r#"{
            "metadata": { "component": { "name": "trefoil-python", "version": "0.1.0" } },
            "components": [{ "name": "ring", "version": "0.17.7" }, { "name": "syn", "version": "2.0.1" }]
        }"#;
        assert_eq!(unnamed(&linked, bill).unwrap(), ["ring@0.17.8"]);
        unnamed(&linked, "no JSON").unwrap_err();
    }

    #[test]
    fn targets_are_this_processors_or_the_named_ones() {
        let named = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            chosen(&names).map(|found| found.iter().map(|target| target.name).collect::<Vec<_>>())
        };
        assert!(named(&[]).unwrap().iter().all(|name| name.starts_with(env::consts::ARCH)));
        let musl = "aarch64-unknown-linux-musl";
        assert_eq!(named(&[musl]).unwrap(), [musl]);
        let error = named(&[musl, "riscv"]).unwrap_err().to_string();
        assert!(error.contains("`riscv`") && error.contains(musl), "{error}");
    }

    #[test]
    fn the_readme_begins_with_an_example() {
        let page = fs::read_to_string(check::root().unwrap().join("python/README.md")).unwrap();
        let example = first_example(&page).unwrap();
        assert!(example.starts_with("import numpy") && example.contains("reveal()"), "{example}");
    }
}
