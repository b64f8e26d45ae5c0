//! The commands of the root README work as they are written.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::runner::Cargo;

/// Runs each `cargo run` line in the README's `sh` blocks. Those that start a server or need
/// files of the reader's own stand in `console` blocks and are not run.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join("README.md");
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let commands = commands(&text);
    if commands.is_empty() {
        bail!("{} shows no command in an `sh` block", path.display());
    }
    let mut ran = Vec::new();
    for command in commands.iter().filter(|command| command.starts_with("cargo run ")) {
        let words: Vec<&str> = command.split_ascii_whitespace().skip(1).collect();
        Cargo::new(root, &words).quiet()?;
        ran.push(command.clone());
    }
    Ok(ran)
}

/// The lines of all fenced `sh` blocks, without comments and empty lines.
fn commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            let command = line.split(" #").next().unwrap_or(line).trim();
            if !command.is_empty() && !command.starts_with('#') {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_lines_of_sh_blocks() {
        let text = "a\n```sh\n# first\ncargo run -p x # then\n```\n```rust\nlet x;\n```\n";
        assert_eq!(commands(text), ["cargo run -p x"]);
    }
}
