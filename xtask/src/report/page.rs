//! The page: text, charts and tables in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::published::SOURCES;
use super::records::{Records, name};
use crate::record::{OURS, Record};

/// A page that grows from top to bottom.
pub(super) struct Page {
    text: String,
    cited: Vec<usize>,
}

impl Page {
    /// Opens the page: its purpose, and the machines of the measurements.
    pub(super) fn new(records: &Records) -> Page {
        let mut text = String::from(
            "# Measured\n\n\
             Made by `cargo xtask report` from the lines of JSON in `results/`, which `cargo xtask bench` \
             wrote; nothing here is copied by hand. Times are medians and hold the whole protocol, from \
             shares to shares. `cargo xtask bench SUITE --only CASE` measures a row again, \
             `cargo xtask bench protocols --with-peers` other systems in turn with ours.\n\n",
        );
        let mut machines: Vec<(&str, Vec<&str>)> = Vec::new();
        for record in records.all() {
            let known = machines.iter().position(|(machine, _)| *machine == record.machine);
            let at = known.unwrap_or_else(|| {
                machines.push((&record.machine, Vec::new()));
                machines.len() - 1
            });
            if !machines[at].1.contains(&record.commit.as_str()) {
                machines[at].1.push(&record.commit);
            }
        }
        text += "| machine | commits |\n|---|---|\n";
        for (machine, commits) in machines {
            text += &format!("| {machine} | {} |\n", commits.join(", "));
        }
        Page { text, cited: Vec::new() }
    }

    pub(super) fn section(&mut self, title: &str, text: &str) {
        self.text += &format!("\n## {title}\n\n{text}\n");
    }

    /// A paragraph, or a table that is made already.
    pub(super) fn text(&mut self, text: &str) {
        self.text += &format!("\n{text}\n");
    }

    /// Shows a chart, and returns the path to save it at.
    pub(super) fn chart(&mut self, file: &str, title: &str) -> PathBuf {
        self.text += &format!("\n![{title}](charts/{file}.svg)\n");
        Path::new(super::BENCH).join("charts").join(format!("{file}.svg"))
    }

    /// Names a source among those at the end.
    pub(super) fn cite(&mut self, source: usize) {
        if !self.cited.contains(&source) {
            self.cited.push(source);
        }
    }

    /// A table of records.
    pub(super) fn rows<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        self.text += "\n| case | system | size | time | bytes per party | rounds | largest error |\n\
                      |---|---|---|---|---|---|---|\n";
        for record in records {
            let _ = writeln!(
                self.text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                name(record),
                system(record),
                record.size.as_deref().unwrap_or(""),
                record.seconds_median.map(time).unwrap_or_default(),
                record.bytes_per_party.map(bytes).unwrap_or_default(),
                record.rounds.map(|rounds| rounds.to_string()).unwrap_or_default(),
                record.max_abs_error.map(|error| format!("{error:.1e}")).unwrap_or_default(),
            );
        }
    }

    /// Writes the page, with the sources that it cites.
    pub(super) fn save(mut self, path: &Path) -> Result<()> {
        if !self.cited.is_empty() {
            self.text += "\n## Sources of published figures\n\n";
            self.cited.sort_unstable();
            for source in &self.cited {
                self.text += &format!("- {}\n", SOURCES[*source]);
            }
        }
        Ok(fs::write(path, self.text)?)
    }
}

/// Whose program it was, and how it was set up.
fn system(record: &Record) -> String {
    let who = if record.system == OURS { None } else { Some(record.system.clone()) };
    let threads = record.threads.map(|threads| format!("{threads} thr"));
    let parts =
        [who, record.protocol.clone(), record.engine.clone(), record.network.clone(), threads];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

pub(super) fn bytes(count: u64) -> String {
    match count as f64 {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.2} MB", n / 1e6),
        n if n >= 1e3 => format!("{:.1} kB", n / 1e3),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!([time(2.0), time(0.0021), time(4.2e-5)], ["2.00 s", "2.10 ms", "42.0 us"]);
        assert_eq!([bytes(12), bytes(1500), bytes(2_500_000)], ["12 B", "1.5 kB", "2.50 MB"]);
    }

    #[test]
    fn a_system_is_described_by_what_is_known_of_it() {
        let ours = Record { system: OURS.into(), threads: Some(1), ..Record::default() };
        assert_eq!(system(&ours), "1 thr");
        let other =
            Record { system: "S 1".into(), network: Some("tcp".into()), ..Record::default() };
        assert_eq!(system(&other), "S 1, tcp");
    }
}
