//! The audit log: which client asked this server for what, when, how large it was and how it ended, one JSON
//! object a line. It is apart from the log on standard error, which is for finding faults.
//!
//! Nothing that a client shared is in it, and nothing that was computed: names, sizes, times and reasons alone. A
//! job's line is on the disk before its client gets the result. While lines cannot be written they are kept, and no
//! new jobs are taken. Lines are numbered, and each ends with a hash of itself and of the one before, so that
//! [`verify`] finds a line that was changed or taken out.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use time::{UtcDateTime, format_description::well_known::Rfc3339};

use crate::{
    base::{Error, Id, Result, files::append_private},
    config::AuditLog,
};

/// The audit log of a server, if its operator wants one.
pub struct Audit(Option<Mutex<Log>>);

/// The event that a line records.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// The server has started.
    Started { program: &'a str, engine: &'a str },
    /// The server has been asked to stop.
    Stopping,
    /// A client was not let in, or a request of one was refused before it became a job: once a minute for each kind of
    /// request.
    Refused { client: &'a str, request: &'static str, reason: &'a str },
    /// A client has approved, withdrawn from, stopped or resumed a run here.
    Decided { client: &'a str, decision: &'static str, run: &'a str, fingerprint: &'a str },
    /// Something of a run leaves this server: `metrics` with what the guard found, that alone as `guard`, `weights` or,
    /// as a model, `model`.
    Opened(Opening<'a>),
    /// A job has ended.
    Job(JobLine<'a>),
    /// The operators have rebuilt what server `of` had lost under a name.
    Rebuilt { of: usize, name: &'a str },
}

/// The record of an opening.
#[derive(Debug, Serialize)]
pub(crate) struct Opening<'a> {
    pub what: &'static str,
    /// The client that gets it.
    pub client: &'a str,
    pub run: &'a str,
    pub fingerprint: &'a str,
    /// The step after which it leaves.
    pub step: u32,
    /// The number of numbers.
    pub numbers: u64,
}

/// The record of a job.
#[derive(Debug, Serialize)]
pub(crate) struct JobLine<'a> {
    pub client: &'a str,
    /// `infer`, `put`, `train` and so on.
    pub kind: &'static str,
    /// The model, data set or run.
    pub name: &'a str,
    /// The client's name for it at all three servers.
    pub job: Id,
    /// Examples of an inference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Bytes of shares that its client sent to this server.
    pub received_bytes: u64,
    /// The number of jobs that ran as one with it, itself among them, if there were others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<usize>,
    /// Bytes that the job sent from here to the other servers: of jobs that ran as one, each has its part by examples.
    pub sent_bytes: u64,
    /// Rounds that it took, the same for all that ran as one.
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
    number: u64,
    time: String,
    party: usize,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

struct Log {
    party: usize,
    path: PathBuf,
    /// The most bytes of a file, unless one line has more.
    most: u64,
    /// The most older files.
    keep: u32,
    file: File,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Lines that have not been written.
    pending: Vec<u8>,
    /// The number of the next line, and the hash of the last.
    next: u64,
    chain: Chain,
}

/// The hash at the end of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Chain([u8; 32]);

impl Chain {
    /// The hash of a line after one with this hash. `line` is a JSON object without its last brace.
    fn next(&self, line: &[u8]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 audit log");
        hash.update(&self.0).update(line);
        Self(hash.finalize().into())
    }

    fn letters(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn parse(letters: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let pairs = letters.as_bytes().chunks(2);
        if letters.len() != 64 || !letters.is_ascii() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// The text before the hash at the end of a line.
const MARK: &str = ",\"chain\":\"";

/// A line without its hash, its number, and the hash.
fn parse(line: &str) -> Option<(&str, u64, Chain)> {
    let (body, rest) = line.rsplit_once(MARK)?;
    let chain = Chain::parse(rest.strip_suffix("\"}")?)?;
    let number = body.strip_prefix("{\"number\":")?.split(',').next()?.parse().ok()?;
    Some((body, number, chain))
}

/// The result of checking the files of an audit log.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// The numbers of the first line and of the last.
    pub first: u64,
    /// See above.
    pub last: u64,
    /// The hash at the end of the last line: if it is noted, any later change of the lines before it shows.
    pub head: String,
}

/// Checks that no line of an audit log was changed or taken out, and that none is missing between its files, which
/// are given from the oldest to the newest. A hash cannot show that lines are missing at the end: compare `head` with
/// one noted elsewhere.
///
/// # Errors
/// [`Error::Input`] naming the file and the line.
pub fn verify(files: &[PathBuf]) -> Result<Verified> {
    let mut seen: Option<(u64, u64, Chain)> = None;
    for path in files {
        let bad = |line: usize, reason: &str| {
            Error::input(format_args!("{}: line {}", path.display(), line + 1), reason)
        };
        let text = fs::read_to_string(path).map_err(|cause| Error::input(path.display(), cause))?;
        for (at, line) in text.lines().enumerate() {
            let (body, number, chain) =
                parse(line).ok_or_else(|| bad(at, "is no line of an audit log"))?;
            let before = match seen {
                Some((_, last, before)) if number == last + 1 => Some(before),
                Some((_, last, _)) => {
                    let reason = format!("has number {number} after {last}: lines are missing");
                    return Err(bad(at, &reason));
                }
                None if number == 0 => Some(Chain::default()),
                // Of the oldest file that is kept the line before is gone.
                None => None,
            };
            if before.is_some_and(|before| before.next(body.as_bytes()) != chain) {
                return Err(bad(at, "was changed, or the one before it was"));
            }
            let first = seen.map_or(number, |(first, ..)| first);
            seen = Some((first, number, chain));
        }
    }
    let (first, last, head) =
        seen.ok_or_else(|| Error::input("audit log", "its files have no line"))?;
    Ok(Verified { first, last, head: head.letters() })
}

impl Audit {
    /// A log that records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Continues the log of a server that has one.
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
    /// [`Error::Refused`] for clients, without the path of the file.
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
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        Read::by_ref(&mut file).take(length).read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if (whole as u64) < length {
            // The machine went down within a line, which was not reported to any client.
            file.set_len(whole as u64)?;
            length = whole as u64;
        }
        let last = text[..whole].lines().next_back().map(str::to_owned);
        // An empty file continues where the one before it ended.
        let last = match last {
            None => fs::read_to_string(numbered(path, 1))
                .ok()
                .and_then(|text| text.lines().next_back().map(str::to_owned)),
            last => last,
        };
        let (next, chain) = match last.as_deref().map(parse) {
            Some(Some((_, number, chain))) => (number + 1, chain),
            Some(None) => {
                let reason = "its last line is not a line of an audit log; move the file away";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            None => (0, Chain::default()),
        };
        let path = path.to_owned();
        Ok(Self { party, path, most, keep, file, length, pending: Vec::new(), next, chain })
    }

    fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        let time = UtcDateTime::now().format(&Rfc3339).map_err(io::Error::other)?;
        let start = self.pending.len();
        let line = Line { number: self.next, time, party: self.party, event };
        let written = serde_json::to_writer(&mut self.pending, &line);
        if written.is_err() {
            self.pending.truncate(start);
        }
        written?;
        self.pending.pop();
        self.chain = self.chain.next(&self.pending[start..]);
        self.next += 1;
        self.pending.extend_from_slice(format!("{MARK}{}\"}}\n", self.chain.letters()).as_bytes());
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
        let written = self.file.write_all(&self.pending).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // The part of a line that a full disk took would make the next one unreadable.
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::folder;

    fn refuse(log: &mut Log, reason: &str) {
        log.push(&Event::Refused { client: "mallory", request: "infer", reason }).expect("a line");
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }

    #[test]
    fn a_line_torn_by_a_crash_does_not_spoil_the_next() {
        let path = folder("audit-torn").join("audit.jsonl");
        let mut log = Log::open(1, &path, 1 << 20, 2).expect("a log");
        refuse(&mut log, "first");
        log.write().expect("written");
        log.file.write_all(b"{\"number\":1,\"time\":\"2026-").expect("a torn line");
        let mut log = Log::open(1, &path, 1 << 20, 2).expect("a log");
        refuse(&mut log, "no");
        log.write().expect("written");
        assert_eq!(verify(std::slice::from_ref(&path)).expect("sound").last, 1);
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
        let files = [numbered(&path, 2), numbered(&path, 1), path.clone()];
        let found = verify(&files).expect("a chain over all files");
        assert_eq!((found.first, found.last), (numbers[0] as u64, 39));
        let text = verify(&[files[0].clone(), files[2].clone()]).unwrap_err().to_string();
        assert!(text.contains("lines are missing"), "{text}");
        assert!(!numbered(&path, 3).exists());
    }

    #[test]
    fn a_line_that_was_changed_or_taken_out_is_found() {
        let path = folder("audit-chain").join("audit.jsonl");
        let mut log = Log::open(0, &path, 1 << 20, 2).expect("a log");
        for reason in ["a", "b", "c", "d"] {
            refuse(&mut log, reason);
        }
        log.write().expect("written");
        let files = [path.clone()];
        let sound = fs::read_to_string(&path).expect("a file");
        let head = verify(&files).expect("sound").head;
        let lines: Vec<&str> = sound.lines().collect();
        let changed = |at: usize, to: &str| {
            let mut lines = lines.clone();
            lines[at] = to;
            lines.join("\n") + "\n"
        };
        let other = lines[1].replace("\"b\"", "\"x\"");
        let (body, _, _) = parse(&other).expect("a line");
        let forged =
            format!("{body}{MARK}{}\"}}", Chain::default().next(body.as_bytes()).letters());
        for (text, line) in [
            (changed(1, &other), "line 2: was changed"),
            (changed(1, &forged), "line 2: was changed"),
            (changed(1, "{}"), "line 2: is no line"),
            ([lines[0], lines[2], lines[3]].join("\n"), "line 2: has number 2 after 0"),
        ] {
            fs::write(&path, text).expect("a file");
            let text = verify(&files).unwrap_err().to_string();
            assert!(text.contains(line), "{line}: {text}");
        }
        // Only the head shows that lines were cut off at the end.
        fs::write(&path, lines[..3].join("\n") + "\n").expect("a file");
        assert_ne!(verify(&files).expect("sound as far as it goes").head, head);
    }

    #[test]
    fn lines_that_cannot_be_written_are_kept_and_jobs_refused() {
        let path = folder("audit-full").join("audit.jsonl");
        let audit = Audit(Some(Mutex::new(Log::open(2, &path, 1 << 20, 2).expect("a log"))));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
        let good = std::mem::replace(&mut audit.lock().expect("a log").file, full);
        audit.record(&Event::Refused { client: "mallory", request: "put", reason: "first" });
        let error = audit.check(2).expect_err("nothing can be written").to_string();
        assert!(
            error.contains("party 2") && error.contains("audit log cannot be written"),
            "{error}"
        );
        assert!(!error.contains("jsonl"), "{error}");
        audit.lock().expect("a log").file = good;
        audit.check(2).expect("it can be written again");
        audit.record(&Event::Refused { client: "mallory", request: "put", reason: "second" });
        let reasons: Vec<_> = lines(&path).iter().map(|line| line["reason"].clone()).collect();
        assert_eq!(reasons, ["first", "second"]);
    }
}
