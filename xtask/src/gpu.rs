//! `cargo xtask gpu`: builds the program that checks and measures the CUDA engine, and runs it here.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use crate::cargo;

/// Largest size in bytes of a program that is carried elsewhere.
const CARRIED: u64 = 60_000_000;

/// Builds the program. With `build_only` prints its path, else runs it with `args`. Its exit code is
/// ours, since it reports its own errors.
///
/// # Errors
/// If it cannot be built or started, or is too large to be carried.
pub fn run(build_only: bool, args: &[String]) -> Result<ExitCode> {
    let program = build()?;
    if build_only {
        println!("{}", program.display());
        return Ok(ExitCode::SUCCESS);
    }
    let status = Command::new(&program).args(args).status();
    let status = status.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build() -> Result<PathBuf> {
    let status = cargo::command()
        .args(["rustc", "--quiet", "--release", "--package", "xtask", "--features", "gpu"])
        .args(["--bin", "gpu"])
        // The flag is for this program alone, so that the crates under it are those of other releases.
        .args(["--", "-C", "strip=debuginfo"])
        // The machine that runs the program may not have the repository.
        .env("TREFOIL_COMMIT", commit())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the program does not build");
    let metadata = MetadataCommand::new().no_deps().exec().context("cannot read the workspace")?;
    let program = metadata.target_directory.join("release/gpu").into_std_path_buf();
    let size = fs::metadata(&program).context("the program was built")?.len();
    ensure!(size <= CARRIED, "the program has {size} bytes, too many to carry ({CARRIED})");
    Ok(program)
}

/// The checked-out commit, shortened, with `-dirty` if files differ from it; `unknown` outside git.
pub fn commit() -> String {
    Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
