//! Texts as the tokens of a language model, at its clients alone.

use std::{
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use super::read_file;
use crate::{
    base::{Digest, Error, Result},
    model::{LARGEST_TOKENIZER, Program, Text},
};

/// A decoder's sign for bytes that are no whole character.
const INCOMPLETE: char = '\u{fffd}';

/// A tokenizer: the file `tokenizer.json` that language models are published with.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads a file, and returns it with its bytes.
    ///
    /// # Errors
    /// [`Error::Input`] if it is no tokenizer.
    pub fn read(path: &Path) -> Result<(Self, Vec<u8>)> {
        let bytes = read_file(path, LARGEST_TOKENIZER)?;
        let tokenizer =
            Self::parse(&bytes).map_err(|reason| Error::input(path.display(), reason))?;
        Ok((tokenizer, bytes))
    }

    /// Takes the bytes of a file.
    ///
    /// # Errors
    /// The reason if they are no tokenizer.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        // It comes from a model's owner: a damaged one must not look like our fault.
        let read = AssertUnwindSafe(|| tokenizers::Tokenizer::from_bytes(bytes));
        match panic::catch_unwind(read) {
            Ok(Ok(tokenizer)) => Ok(Self(tokenizer)),
            Ok(Err(cause)) => Err(format!("it is no tokenizer.json: {cause}")),
            Err(_) => Err("it is a tokenizer.json that is damaged in an unforeseen way".to_owned()),
        }
    }

    /// The tokens of a text. `first` puts the tokens before it with which the model's texts begin, if there are some.
    ///
    /// # Errors
    /// [`Error::Input`] if the tokenizer does not take the text.
    pub fn encode(&self, text: &str, first: bool) -> Result<Vec<u64>> {
        let encode = AssertUnwindSafe(|| self.0.encode(text, first));
        match panic::catch_unwind(encode) {
            Ok(Ok(encoding)) => Ok(encoding.get_ids().iter().copied().map(u64::from).collect()),
            Ok(Err(cause)) => Err(Error::input("text", cause)),
            Err(_) => Err(Error::input("text", "the model's tokenizer fails on it")),
        }
    }

    /// The text of tokens, without those that only mark a place. Tokens that the tokenizer does not have are left out.
    ///
    /// # Errors
    /// [`Error::Input`] if it cannot be made.
    pub fn decode(&self, tokens: &[u64]) -> Result<String> {
        let known: Vec<u32> =
            tokens.iter().filter_map(|&token| u32::try_from(token).ok()).collect();
        match panic::catch_unwind(AssertUnwindSafe(|| self.0.decode(&known, true))) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(cause)) => Err(Error::input("tokens", cause)),
            Err(_) => Err(Error::input("tokens", "the model's tokenizer fails on them")),
        }
    }

    /// The number of a token.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<u64> {
        self.0.token_to_id(name).map(u64::from)
    }

    /// The number of tokens, with those that were added to the vocabulary.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.0.get_vocab_size(true)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.tokens())
    }
}

/// The description and the bytes of a model's tokenizer. `form` is the text around what a person writes, with `{}` in its
/// place; `stops` are the tokens behind which an answer ends.
///
/// # Errors
/// [`Error::Input`] that names what does not fit the model or the tokenizer.
pub fn text_of(
    path: &Path,
    (form, stops): (String, &[String]),
    program: &Program,
) -> Result<(Text, Vec<u8>)> {
    let (tokenizer, bytes) = Tokenizer::read(path)?;
    let bad = |reason: String| Error::input(path.display(), reason);
    if !program.keeps_state() {
        let reason = "the model keeps nothing from step to step: it takes no text";
        return Err(bad(reason.to_owned()));
    }
    let mut inputs = program.plan().step_inputs();
    let rows = inputs.next().and_then(|input| program.plan().table_rows(input));
    if let Some(rows) = rows.filter(|&rows| rows < tokenizer.tokens()) {
        let tokens = tokenizer.tokens();
        return Err(bad(format!("it has {tokens} tokens, and the model's table {rows} rows")));
    }
    let token = |name: &String| {
        let missing = || bad(format!("it has no token `{name}` for an answer to end with"));
        tokenizer.token(name).ok_or_else(missing)
    };
    let stop = stops.iter().map(token).collect::<Result<_>>()?;
    let text = Text { tokenizer: Digest::of(&[&bytes]), form, stop };
    text.check().map_err(|reason| Error::input("form", reason))?;
    Ok((text, bytes))
}

/// A text whose tokens come one after the other. A character of several tokens comes as a whole.
#[derive(Debug, Default)]
pub struct Unfolding {
    tokens: Vec<u64>,
    /// The text so far, without what is not complete.
    shown: String,
}

impl Unfolding {
    /// The text that a token adds.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn add(&mut self, tokenizer: &Tokenizer, token: u64) -> Result<String> {
        self.tokens.push(token);
        let text = tokenizer.decode(&self.tokens)?;
        let whole = text.trim_end_matches(INCOMPLETE);
        let more = whole.strip_prefix(&self.shown).unwrap_or_default().to_owned();
        self.shown.push_str(&more);
        Ok(more)
    }

    /// All of the text, and what is not complete.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn text(&self, tokenizer: &Tokenizer) -> Result<String> {
        tokenizer.decode(&self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer of bytes, of one word and of one mark.
    fn of_bytes() -> Tokenizer {
        let vocabulary: Vec<_> =
            ["a", "b", "\u{c3}", "\u{a9}", "ab", "\u{120}"].iter().enumerate().collect();
        let vocabulary: serde_json::Map<_, _> =
            vocabulary.into_iter().map(|(at, text)| ((*text).to_owned(), at.into())).collect();
        let file = serde_json::json!({
            "version": "1.0",
            "added_tokens": [{
                "id": 6, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            }],
            "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
            },
            "decoder": {
                "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true
            },
            "model": { "type": "BPE", "vocab": vocabulary, "merges": ["a b"] }
        });
        Tokenizer::parse(file.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn texts_become_tokens_and_come_back() {
        let tokenizer = of_bytes();
        assert_eq!(tokenizer.tokens(), 7);
        assert_eq!(tokenizer.encode("ab a<end>", true).unwrap(), [4, 5, 0, 6]);
        assert_eq!(tokenizer.decode(&[4, 5, 0, 6]).unwrap(), "ab a");
        assert_eq!((tokenizer.token("<end>"), tokenizer.token("<start>")), (Some(6), None));
        // A token beyond the tokenizer, as a table with spare rows may give.
        assert_eq!(tokenizer.decode(&[0, 99, u64::MAX, 1]).unwrap(), "ab");
    }

    #[test]
    fn a_character_of_several_tokens_is_shown_once_it_is_whole() {
        let tokenizer = of_bytes();
        let mut text = Unfolding::default();
        let shown: Vec<_> =
            [0, 2, 3, 4].iter().map(|&token| text.add(&tokenizer, token).unwrap()).collect();
        assert_eq!(shown, ["a", "", "\u{e9}", "ab"]);
        assert_eq!(text.text(&tokenizer).unwrap(), "a\u{e9}ab");
    }

    #[test]
    fn what_is_no_tokenizer_is_refused_with_a_reason() {
        for bytes in [&b""[..], b"{}", b"[1]", b"\xff", br#"{"model":{"type":"BPE"}}"#] {
            let reason = Tokenizer::parse(bytes).unwrap_err();
            assert!(reason.contains("tokenizer.json"), "{reason}");
        }
    }
}
