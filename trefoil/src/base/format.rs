//! Tables, sizes and times as people read them, and texts from elsewhere made harmless.

/// A table: a heading and rows of cells, columns as wide as need be; numbers are aligned right.
#[must_use]
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let cells = |row: usize, column: usize| match row {
        0 => heading[column],
        row => rows[row - 1].get(column).map_or("", String::as_str),
    };
    let numeric = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).all(|cell| {
            cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '<'))
        })
    };
    let mut text = String::new();
    let widths: Vec<usize> = (0..heading.len())
        .map(|c| (0..=rows.len()).map(|r| cells(r, c).chars().count()).max().unwrap_or(0))
        .collect();
    for row in 0..=rows.len() {
        let mut line = String::new();
        for (column, &width) in widths.iter().enumerate() {
            let cell = cells(row, column);
            let fill = " ".repeat(width - cell.chars().count());
            let gap = if column == 0 { "" } else { "  " };
            line += gap;
            line +=
                &if numeric(column) { format!("{fill}{cell}") } else { format!("{cell}{fill}") };
        }
        text += line.trim_end();
        if row < rows.len() {
            text.push('\n');
        }
    }
    text
}

/// A question whether one of these names was meant, behind a sentence that there is none of another; nothing if none is like
/// it.
#[must_use]
pub fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest(name, names).map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

/// The one of these names that is most like another, if one is enough like it to have been meant; letters' cases do not
/// count.
#[must_use]
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &name);
    let each = names.map(|known| (likeness(known), known)).filter(|(likeness, _)| *likeness > 0.85);
    each.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}

/// Text from elsewhere on one line, without characters that command a terminal: names, labels and servers' texts are
/// shown literally.
#[must_use]
pub fn plain(text: &str) -> String {
    escaped(text, |_| false, |c| c.escape_default().to_string())
}

/// A text in JSON, without such characters: they stand in its strings, where JSON has a form of its own for them.
pub(crate) fn in_json(text: &str) -> String {
    let escape = |c: char| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    escaped(text, |c| c == '\n', escape)
}

/// Replaces control characters, and those that turn the direction of text, but for those that `stay`.
pub(crate) fn escaped(
    text: &str,
    stay: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> String {
    let commands = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}');
        c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if commands(c) && !stay(c) {
            shown.push_str(&escape(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A number of bytes for people: `1.23 MB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.2} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.2} GB")
}

/// A time for people: `1.23 ms`.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value {
        v if v < 1e-3 => format!("{:.0} us", v * 1e6),
        v if v < 1.0 => format!("{:.1} ms", v * 1e3),
        v => format!("{v:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_words_left_and_numbers_right() {
        let rows = [["a", "1"], ["long", "22"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&["name", "n"], &rows), "name   n\na      1\nlong  22");
    }

    #[test]
    fn text_from_elsewhere_commands_no_terminal() {
        let text = "a\u{1b}[31mb\u{9b}2J\u{202e}c\r\nd\u{7f}";
        assert_eq!(plain(text), r"a\u{1b}[31mb\u{9b}2J\u{202e}c\r\nd\u{7f}");
        assert_eq!(plain("Größe 大"), "Größe 大");
        let json = serde_json::json!({ "message": text }).to_string();
        let shown = in_json(&json);
        assert_eq!(shown.chars().find(|c| c.is_control() || *c == '\u{202e}'), None, "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["message"], text);
        let cell = vec![vec!["x\u{1b}[2J\ny".to_owned()]];
        assert_eq!(table(&["label"], &cell), "label\nx\\u{1b}[2J\\ny");
    }

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
        assert_eq!(seconds(0.000_012), "12 us");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(3.21), "3.21 s");
    }
}
