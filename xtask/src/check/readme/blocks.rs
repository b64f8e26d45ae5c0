//! The code blocks of a Markdown file, and the check that each needs.

use anyhow::{Result, bail};

/// A fenced block.
pub(super) struct Block<'a> {
    /// The line of its opening fence, counted from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) lines: Vec<&'a str>,
    /// The command of a comment `<!-- without torch: ... -->` above a Python block: it makes the
    /// files that the block would have left.
    pub(super) instead: Option<&'a str>,
}

/// The kind of a block, by the word after its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Compiled, and mostly run, as a documentation test of its crate.
    Rust,
    /// Commands after `$ `, each followed by its output.
    Console,
    /// A script, run where PyTorch is installed.
    Python,
    /// A picture or a formula: nothing that could be run.
    Text,
}

/// The fenced blocks of `text`.
///
/// # Errors
/// If no test covers a block's kind, or a command is where it is not run.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut instead = None;
    while let Some((number, line)) = lines.next() {
        let start = line.trim_start();
        if let Some(comment) = start.strip_prefix("<!-- without torch: ") {
            instead = comment.strip_suffix(" -->");
        }
        let Some(info) = start.strip_prefix("```") else { continue };
        let kind = match kind(info.trim()) {
            Ok(kind) => kind,
            Err(reason) => bail!("line {}: {reason}", number + 1),
        };
        let body = lines.by_ref().map(|(_, line)| line);
        let body: Vec<_> = body.take_while(|line| line.trim() != "```").collect();
        if kind == Kind::Text
            && let Some(command) = body.iter().find(|line| is_command(line))
        {
            bail!("line {}: `{command}` belongs into a `console` block, to be run", number + 1);
        }
        blocks.push(Block { line: number + 1, kind, lines: body, instead: instead.take() });
    }
    Ok(blocks)
}

fn kind(info: &str) -> Result<Kind, String> {
    match info {
        "rust" | "rust,no_run" => Ok(Kind::Rust),
        "console" => Ok(Kind::Console),
        "python" => Ok(Kind::Python),
        "text" => Ok(Kind::Text),
        other => Err(format!(
            "nothing tests a block marked `{other}`; use rust, console, python or text"
        )),
    }
}

fn is_command(line: &str) -> bool {
    ["$ ", "cargo ", "trefoil ", "python"].iter().any(|start| line.starts_with(start))
}

/// A command of a `console` block and its expected output.
pub(super) struct Command<'a> {
    pub(super) text: String,
    pub(super) prints: Vec<&'a str>,
}

/// The commands of a `console` block. A command whose line ends in `\` continues in the next.
///
/// # Errors
/// If the block opens with something else than a command.
pub(super) fn commands<'a>(block: &Block<'a>) -> Result<Vec<Command<'a>>> {
    let mut commands: Vec<Command<'a>> = Vec::new();
    for line in &block.lines {
        let last = commands.last_mut();
        if let Some(text) = line.strip_prefix("$ ") {
            commands.push(Command { text: text.trim().to_owned(), prints: Vec::new() });
        } else if let Some(last) = last {
            match last.text.strip_suffix('\\') {
                Some(start) if last.prints.is_empty() => {
                    last.text = format!("{} {}", start.trim_end(), line.trim());
                }
                _ => last.prints.push(line),
            }
        } else {
            bail!("line {}: a `console` block opens with a command behind `$ `", block.line);
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart_by_the_word_behind_their_fence() {
        let text =
            "a\n```console\n$ x\n```\n<!-- without torch: cp a b -->\n```python\nimport a\n```\n";
        let blocks = blocks(text).unwrap();
        let kinds: Vec<_> = blocks.iter().map(|block| (block.line, block.kind)).collect();
        assert_eq!(kinds, [(2, Kind::Console), (6, Kind::Python)]);
        assert_eq!((blocks[0].instead, blocks[1].instead), (None, Some("cp a b")));
    }

    #[test]
    fn a_block_that_nothing_tests_is_refused() {
        for (text, line) in
            [("```sh\nx\n```", 1), ("\n```rust,ignore\nx\n```", 2), ("```\nx\n```", 1)]
        {
            let error = blocks(text).err().unwrap().to_string();
            assert!(error.starts_with(&format!("line {line}: nothing tests")), "{error}");
        }
        let error = blocks("```text\n$ trefoil demo\n```").err().unwrap().to_string();
        assert!(error.contains("belongs into a `console` block"), "{error}");
    }

    #[test]
    fn commands_go_on_behind_a_backslash_and_keep_what_they_print() {
        let text = "```console\n$ a \\\n    b\none\n\ntwo\n$ c &\n```\n";
        let blocks = blocks(text).unwrap();
        let commands = commands(&blocks[0]).unwrap();
        assert_eq!(
            (commands[0].text.as_str(), &commands[0].prints[..]),
            ("a b", &["one", "", "two"][..])
        );
        assert_eq!((commands[1].text.as_str(), commands[1].prints.len()), ("c &", 0));
    }
}
