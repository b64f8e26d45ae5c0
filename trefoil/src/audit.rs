//! The audit log: which client asked this server for what, when, how large it was and how it ended, one JSON
//! object a line. It is apart from the log on standard error, which is for finding faults.
//!
//! Nothing that a client shared is in it, and nothing that was computed: names, sizes, times and reasons alone.
//! A job's line is written before its client hears how the job ended. While lines cannot be written they are kept,
//! and no new jobs are taken.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use time::{UtcDateTime, format_description::well_known::Rfc3339};

use crate::{Error, Id, Result, config::AuditLog, store::append_private};

/// The audit log of a server, if its operator wants one.
pub struct Audit(Option<Mutex<Log>>);

/// What a line tells.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// The server has started.
    Started { program: &'a str, engine: &'a str },
    /// The server has been asked to stop.
    Stopping,
    /// A client was not let in, or a request of one was refused before it became a job. Like ones are told once a
    /// minute.
    Refused { client: &'a str, reason: &'a str },
    /// A job has ended.
    Job(JobLine<'a>),
}

/// What is told of a job.
#[derive(Debug, Serialize)]
pub(crate) struct JobLine<'a> {
    pub client: &'a str,
    /// `infer`, `put`, `train` and so on.
    pub kind: &'static str,
    /// The model, data set or run.
    pub name: &'a str,
    /// What its client called it at all three servers.
    pub job: Id,
    /// Examples of an inference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Bytes of shares that its client sent to this server.
    pub received_bytes: u64,
    /// Bytes that the job sent from here to the other servers.
    pub sent_bytes: u64,
    pub rounds: u32,
    /// Seconds that it ran.
    pub seconds: f64,
    pub outcome: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    party: usize,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

struct Log {
    party: usize,
    path: PathBuf,
    /// Most bytes of a file, unless one line has more.
    most: u64,
    /// Most older files.
    keep: u32,
    file: File,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Lines that have not been written.
    pending: Vec<u8>,
}

impl Audit {
    /// None is kept.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Goes on with the log of a server where one is wanted.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn open(party: usize, settings: Option<&AuditLog>) -> Result<Self> {
        let Some(settings) = settings else { return Ok(Self::off()) };
        let AuditLog { file, rotate_mib, keep } = settings;
        let log = Log::open(party, file, rotate_mib << 20, *keep)
            .map_err(|cause| Error::file(file, cause))?;
        Ok(Self(Some(Mutex::new(log))))
    }

    /// Writes a line. One that cannot be written is kept until it can.
    pub(crate) fn record(&self, event: &Event<'_>) {
        let Some(mut log) = self.lock() else { return };
        if let Err(error) = log.push(event).and_then(|()| log.write()) {
            tracing::error!(path = %log.path.display(), %error, "the audit log cannot be written; no new jobs are taken");
        }
    }

    /// Checks that all lines have been written, or writes them now.
    ///
    /// # Errors
    /// [`Error::Refused`] for clients, who are not told where the file is.
    pub(crate) fn check(&self, party: usize) -> Result<()> {
        let Some(mut log) = self.lock() else { return Ok(()) };
        log.write().map_err(|error| {
            let reason = format!(
                "its audit log cannot be written ({}); its operator must mend that",
                error.kind()
            );
            Error::refused(format_args!("party {party}"), reason)
        })
    }

    fn lock(&self) -> Option<MutexGuard<'_, Log>> {
        // A line is whole in memory before anything is written.
        self.0.as_ref().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Log {
    /// `most` is in bytes.
    fn open(party: usize, path: &Path, most: u64, keep: u32) -> io::Result<Self> {
        let mut file = append_private(path)?;
        let mut length = file.metadata()?.len();
        if length > 0 && !ends_with_line(&mut file)? {
            // The machine went down within a line.
            file.write_all(b"\n")?;
            length += 1;
        }
        let path = path.to_owned();
        Ok(Self { party, path, most, keep, file, length, pending: Vec::new() })
    }

    fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        let time = UtcDateTime::now().format(&Rfc3339).map_err(io::Error::other)?;
        let start = self.pending.len();
        let line = Line { time, party: self.party, event };
        let written = serde_json::to_writer(&mut self.pending, &line);
        if written.is_err() {
            self.pending.truncate(start);
        }
        written?;
        self.pending.push(b'\n');
        Ok(())
    }

    /// Writes what has not been written, as whole lines or not at all.
    fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let added = self.pending.len() as u64;
        if self.length > 0 && self.length + added > self.most {
            self.rotate()?;
        }
        let written = self.file.write_all(&self.pending);
        if written.is_err() {
            // What a full disk took of a line would make the next one unreadable.
            self.file.set_len(self.length)?;
        }
        written?;
        self.length += added;
        self.pending.clear();
        Ok(())
    }

    /// Begins a new file. The old ones move up by one, the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let path = &self.path;
        for number in (1..self.keep).rev() {
            rename_if_there(&numbered(path, number), &numbered(path, number + 1))?;
        }
        rename_if_there(path, &numbered(path, 1))?;
        self.file = append_private(path)?;
        self.length = 0;
        Ok(())
    }
}

/// An older file: `audit.jsonl.1` is the one before the present.
fn numbered(path: &Path, number: u32) -> PathBuf {
    path.with_added_extension(number.to_string())
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn ends_with_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::folder;

    fn refuse(log: &mut Log, reason: &str) {
        log.push(&Event::Refused { client: "mallory", reason }).expect("a line");
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }

    #[test]
    fn a_line_torn_by_a_crash_does_not_spoil_the_next() {
        let path = folder("audit-torn").join("audit.jsonl");
        fs::write(&path, "{\"time\":\"2026-").expect("a file");
        let mut log = Log::open(1, &path, 1 << 20, 2).expect("a log");
        refuse(&mut log, "no");
        log.write().expect("written");
        let text = fs::read_to_string(&path).expect("a file");
        let last = text.lines().nth(1).expect("a second line");
        let line: Value = serde_json::from_str(last).expect("a JSON object");
        assert_eq!(line["event"], "refused");
        assert_eq!(line["party"], 1);
        let time = line["time"].as_str().expect("a time");
        assert!(time.starts_with("20") && &time[10..11] == "T" && time.ends_with('Z'), "{time}");
    }

    #[test]
    fn files_are_rotated_and_the_oldest_goes() {
        let path = folder("audit-rotated").join("audit.jsonl");
        let mut log = Log::open(0, &path, 1024, 2).expect("a log");
        for number in 0..40 {
            refuse(&mut log, &format!("{number} {}", "x".repeat(100)));
            log.write().expect("written");
        }
        let mut numbers = Vec::new();
        for path in [numbered(&path, 2), numbered(&path, 1), path.clone()] {
            assert!(fs::metadata(&path).expect("a file").len() <= 1024);
            for line in lines(&path) {
                let number = line["reason"].as_str().and_then(|reason| reason.split(' ').next());
                numbers.push(number.expect("a number").parse::<usize>().expect("a number"));
            }
        }
        assert!(numbers[0] > 0, "the oldest file is still there");
        assert_eq!(numbers, (numbers[0]..40).collect::<Vec<_>>());
        assert!(!numbered(&path, 3).exists());
    }

    #[test]
    fn lines_that_cannot_be_written_are_kept_and_jobs_refused() {
        let path = folder("audit-full").join("audit.jsonl");
        let audit = Audit(Some(Mutex::new(Log::open(2, &path, 1 << 20, 2).expect("a log"))));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
        let good = std::mem::replace(&mut audit.lock().expect("a log").file, full);
        audit.record(&Event::Refused { client: "mallory", reason: "first" });
        let error = audit.check(2).expect_err("nothing can be written").to_string();
        assert!(
            error.contains("party 2") && error.contains("audit log cannot be written"),
            "{error}"
        );
        assert!(!error.contains("jsonl"), "{error}");
        audit.lock().expect("a log").file = good;
        audit.check(2).expect("it can be written again");
        audit.record(&Event::Refused { client: "mallory", reason: "second" });
        let reasons: Vec<_> = lines(&path).iter().map(|line| line["reason"].clone()).collect();
        assert_eq!(reasons, ["first", "second"]);
    }
}
