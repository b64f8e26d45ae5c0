//! The output of the program: text for people, one JSON document for machines, bars for long work.

use std::{
    io::{self, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::{Error, Result, cli::Global, client::Watch, watch::Place};

/// The time after which a bar is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// The template of a bar while the end is unknown.
const SPINNER: &str = "{spinner} {elapsed} {prefix}{msg}";

/// The form in which results are printed.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// The form that the command line asks for.
    #[must_use]
    pub fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet }
    }

    /// Prints a result: `text` for people, or the value as JSON.
    ///
    /// # Errors
    /// [`Error::File`] if the output cannot be written.
    pub fn result(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let shown = if self.json {
            let text = serde_json::to_string_pretty(value)
                .map_err(|cause| Error::Internal(format!("output: {cause}")))?;
            in_json(&text)
        } else {
            escaped(&text(), |c| c == '\n', |c| c.escape_default().to_string())
        };
        print(&shown, "\n")
    }

    /// Prints a piece of a result that comes in pieces, for people.
    ///
    /// # Errors
    /// [`Error::File`] if the output cannot be written.
    pub fn piece(&self, text: &str) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let stays = |c| matches!(c, '\n' | '\t');
        print(&escaped(text, stays, |c| c.escape_default().to_string()), "")
    }

    /// Ends a result that came in pieces: a new line for people, or the value as JSON on one line.
    ///
    /// # Errors
    /// [`Error::File`] if the output cannot be written.
    pub fn end_of_pieces(&self, value: &impl Serialize) -> Result<()> {
        if !self.json {
            return print("", "\n");
        }
        let text = serde_json::to_string(value)
            .map_err(|cause| Error::Internal(format!("output: {cause}")))?;
        print(&in_json(&text), "\n")
    }

    /// Prints a remark for people, unless they want results alone.
    ///
    /// # Errors
    /// [`Error::File`] if the output cannot be written.
    pub fn remark(&self, text: impl AsRef<str>) -> Result<()> {
        if self.json || self.quiet {
            return Ok(());
        }
        print(&escaped(text.as_ref(), |c| c == '\n', |c| c.escape_default().to_string()), "\n")
    }

    /// A bar that shows itself if the work takes longer than two seconds.
    #[must_use]
    pub fn progress(&self, what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_message(what.to_owned());
        let mut progress = Progress { bar: bar.clone(), over: None };
        progress.style(SPINNER);
        if self.json || self.quiet {
            return progress;
        }
        let (over, ended) = mpsc::channel::<()>();
        let show = move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(100));
            }
        };
        // Without a thread only the bar is missing.
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(show).ok();
        progress.over = thread.map(|thread| (over, thread));
        progress
    }

    /// Prints an error to standard error, in the form that was asked for.
    pub fn error(&self, error: &Error) {
        if self.json {
            let (kind, code) = (error.kind(), error.exit_code());
            let body = serde_json::json!({
                "error": { "kind": kind, "message": error.to_string(), "exit_code": code }
            });
            eprintln!("{}", in_json(&body.to_string()));
        } else {
            eprintln!("error: {}", plain(&error.to_string()));
        }
    }
}

/// A bar that shows itself if the work takes longer than two seconds. It goes when dropped.
pub struct Progress {
    bar: ProgressBar,
    /// Dropped to end the thread that shows the bar.
    over: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Job number `index` of several begins, counted from 0.
    pub fn job(&self, index: usize, of: usize) {
        self.bar.set_prefix(format!("job {} of {of}: ", index + 1));
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}

impl Watch for Progress {
    fn sent(&self, bytes: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(bytes);
        self.style("{prefix}{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} ({eta} left)");
    }

    fn word(&self, text: &str) {
        self.bar.set_message(plain(text));
        self.style(SPINNER);
    }

    fn works(&self, place: &Place) {
        self.word(&place.step);
        if place.of > 0 {
            self.bar.set_length(place.of as u64);
            self.bar.set_position(place.done as u64);
            self.style("{elapsed} [{bar:30}] {pos}/{len} {prefix}{msg}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.over.take() {
            drop(over);
            // It has shown the bar or not; either way it has ended.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

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

/// Text from elsewhere on one line, without characters that command a terminal: names, labels and servers' texts are
/// shown literally.
#[must_use]
pub fn plain(text: &str) -> String {
    escaped(text, |_| false, |c| c.escape_default().to_string())
}

/// A text in JSON, without such characters: they stand in its strings, where JSON has a form of its own for them.
fn in_json(text: &str) -> String {
    let escape = |c: char| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    escaped(text, |c| c == '\n', escape)
}

/// Replaces control characters, and those that turn the direction of text, but for those that `stay`.
fn escaped(text: &str, stay: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> String {
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

fn print(text: &str, end: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let printed = write!(out, "{text}{end}").and_then(|()| out.flush());
    match printed {
        // The reader of our output has seen enough.
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => {
            printed.map_err(|cause| Error::File { what: "standard output".to_owned(), cause })
        }
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
