//! `cargo xtask gpu`: builds the program that checks and measures the CUDA engine, and runs it here.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

/// Builds the program. With `build_only` prints its path, else runs it with `args`; its exit code is
/// ours, since it has said itself what went wrong.
///
/// # Errors
/// If it cannot be built or started.
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
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--package", "xtask", "--features", "gpu"])
        .args(["--bin", "gpu"])
        // Where the program is carried to there is no repository to ask.
        .env("TREFOIL_COMMIT", commit())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the program does not build");
    let metadata = MetadataCommand::new().no_deps().exec().context("cannot read the workspace")?;
    Ok(metadata.target_directory.join("release/gpu").into_std_path_buf())
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
