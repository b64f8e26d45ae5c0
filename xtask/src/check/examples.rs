//! Every example of every crate runs to its end.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::built;

/// Runs each example, without arguments, as a reader would.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut ran = Vec::new();
    for example in built::executables(root)?.into_iter().filter(|built| built.is_example) {
        let output = Command::new(&example.path)
            .current_dir(root)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", example.path.display()))?;
        if !output.status.success() {
            io::stdout().write_all(&output.stdout)?;
            io::stderr().write_all(&output.stderr)?;
            bail!("the example {} ended with {}", example.name, output.status);
        }
        ran.push(example.name);
    }
    Ok(vec![ran.join(", ")])
}
