//! The output of the program: text for people, one JSON document for machines, bars for long work.

use std::{
    io::{self, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::arguments::Global;
use crate::{
    base::{
        Error, Result,
        format::{escaped, in_json, plain},
    },
    client::Watch,
    wire::Place,
};

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

    /// True if results are texts, which may come in pieces.
    #[must_use]
    pub fn is_for_people(&self) -> bool {
        !self.json
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
    /// Does something that prints, while the bar is hidden.
    pub fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bar.suspend(act)
    }

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
