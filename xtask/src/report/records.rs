//! The newest line of every case that the benchmarks left.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::record::{OURS, Record};

/// Records, one for each case, system, engine, network, number of threads and machine.
pub(super) struct Records(Vec<Record>);

impl Records {
    /// Reads all `*.jsonl` files of a folder, in the order of their names. Of lines about the same, the
    /// last counts.
    ///
    /// # Errors
    /// If the folder has none, or a line is not a record.
    pub(super) fn read(folder: &Path) -> Result<Records> {
        let listed = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
        let mut files: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension() == Some("jsonl".as_ref()));
        files.sort();
        let mut all = Vec::new();
        for path in &files {
            for (number, line) in fs::read_to_string(path)?.lines().enumerate() {
                let record = serde_json::from_str(line)
                    .with_context(|| format!("{}:{}", path.display(), number + 1))?;
                all.push(record);
            }
        }
        if all.is_empty() {
            let advice = "measure first: cargo xtask bench --json FILE";
            bail!("{} holds no measurement; {advice}", folder.display());
        }
        Ok(Records::of(all))
    }

    /// Of records about the same, the last.
    pub(super) fn of(all: Vec<Record>) -> Records {
        let mut records = Records(Vec::new());
        all.into_iter().for_each(|record| records.put(record));
        records
    }

    fn put(&mut self, mut record: Record) {
        if record.system.is_empty() {
            record.system = OURS.to_owned();
        }
        match self.0.iter_mut().find(|known| about(known) == about(&record)) {
            Some(known) => *known = record,
            None => self.0.push(record),
        }
    }

    /// All records, in the order in which their cases were first met.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.0.iter()
    }

    /// Records with a time, of cases below `suite/case`.
    pub(super) fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Record> {
        self.0.iter().filter(move |record| {
            record.seconds_median.is_some()
                && name(record).strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// `suite/case`.
pub(super) fn name(record: &Record) -> String {
    format!("{}/{}", record.suite, record.case)
}

/// The key of a record: case, system and conditions.
fn about(record: &Record) -> impl PartialEq {
    (
        name(record),
        record.system.clone(),
        record.engine.clone(),
        record.network.clone(),
        record.threads,
        record.reference.clone(),
        record.machine.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &str, seconds: f64) -> Record {
        let seconds_median = Some(seconds);
        Record { suite: "s".into(), case: case.into(), seconds_median, ..Record::default() }
    }

    #[test]
    fn the_last_line_about_the_same_counts() {
        let other = Record { system: "other".into(), ..record("relu/10", 9.0) };
        let records = Records::of(vec![
            record("relu/10", 2.0),
            record("relu/100", 3.0),
            record("relu/10", 1.0),
            other,
        ]);
        let seconds: Vec<_> = records.below("s/relu").map(|r| r.seconds_median.unwrap()).collect();
        assert_eq!(seconds, [1.0, 3.0, 9.0]);
        assert_eq!(records.below("s/rel").count(), 0);
    }
}
