//! Words and signs of a text, with their lines.

use crate::{Error, Result};

/// A word or sign, and its line.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    pub line: u32,
}

/// Splits the text into words and punctuation, without comments.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let mut out = Vec::new();
    let mut in_comment = false;
    for (number, full) in text.lines().enumerate() {
        let line = number as u32 + 1;
        let mut rest = full;
        loop {
            if in_comment {
                let Some(end) = rest.find("*/") else { break };
                rest = &rest[end + 2..];
                in_comment = false;
            }
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            if rest.starts_with("//") {
                break;
            }
            if rest.starts_with("/*") {
                in_comment = true;
                continue;
            }
            let len = if first == '"' {
                rest[1..].find('"').map(|end| end + 2)
            } else if is_word(first) {
                Some(word_len(rest))
            } else {
                Some(first.len_utf8())
            };
            let Some(len) = len else {
                return Err(Error::Parse { line, reason: "a string does not end".into() });
            };
            // A name such as `%p1` directly before `|` and `%r` before `<` end there.
            out.push(Token { text: &rest[..len], line });
            rest = &rest[len..];
        }
    }
    Ok(out)
}

/// The length of the word at the start; `::` joins parts of an opcode.
fn word_len(text: &str) -> usize {
    let mut len = 0;
    loop {
        len += text[len..].find(|c| !is_word(c)).unwrap_or(text.len() - len);
        if !text[len..].starts_with("::") {
            return len;
        }
        len += 2;
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}
