//! Checks that replaced words, for which the field has others, do not return.

use std::path::Path;

/// A folder or file, a word that must not stand in it, whole or as a part of a name, and the word of the field.
const OLD_WORDS: &[(&str, &str, &str)] = &[
    ("rss-protocols", "pivot", "dealer"),
    ("rss-protocols", "pivots", "dealers"),
    ("rss-protocols", "seat", "roles"),
    ("rss-protocols", "mirrored", "swapped"),
    ("rss-protocols", "turns", "rotation"),
    ("rss-protocols", "bundle", "message"),
    ("rss-protocols", "partner", "peer"),
    ("rss-protocols/src", "planted", "mutant"),
    ("rss-protocols/src", "anew", "again"),
    ("mpc-core/src", "planted", "mutant"),
];

/// The old words in a file, each starting with `:line:`.
pub(super) fn old(file: &Path, text: &str) -> Vec<String> {
    let here: Vec<_> = OLD_WORDS.iter().filter(|(folder, ..)| file.starts_with(folder)).collect();
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_ascii_lowercase) {
            if let Some((_, old, new)) = here.iter().find(|(_, old, _)| *old == word) {
                faults.push(format!(":{}: `{old}` is called `{new}` here", number + 1));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_word_is_found_whole_and_in_a_name_but_not_in_another_word_or_folder() {
        let text = "let next_pivot = 1;\n// Seat of honour\nlet seating = 2;\n";
        let faults = old(Path::new("rss-protocols/src/party.rs"), text);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with(":1: `pivot`") && faults[1].starts_with(":2: `seat`"));
        assert!(old(Path::new("net/src/hub.rs"), text).is_empty());
    }
}
