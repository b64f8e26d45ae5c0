//! The log on standard error: events, for an operator who looks for a fault.

use std::{env, io, sync::OnceLock};

use tracing_subscriber::{
    Layer, Registry, filter::Targets, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use super::{Error, Result};

/// The handle that changes the level of the process's log.
static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts the log of this process: as much as `TREFOIL_LOG` asks for, else `level`, as lines of text or as a JSON
/// object a line.
///
/// # Errors
/// [`Error::Config`] if `TREFOIL_LOG` is not a level.
pub fn start(level: &str, json: bool) -> Result<()> {
    let wanted = env::var("TREFOIL_LOG").unwrap_or_else(|_| level.to_owned());
    let (filter, handle) = reload::Layer::new(parse("TREFOIL_LOG", &wanted)?);
    // Without colours, whatever another crate asks of the library: files and tools read these lines.
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    // A second start would have panicked in `init`.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// Changes how much is logged from now on: `debug`, or `net=debug,info`. Does nothing in a process that has not
/// started the log, such as one that has this crate as a library.
///
/// # Errors
/// [`Error::Config`] if that is not a level.
pub fn set(level: &str) -> Result<()> {
    let filter = parse("log", level)?;
    let Some(handle) = LEVEL.get() else { return Ok(()) };
    handle.reload(filter).map_err(|error| Error::Internal(format!("the log's level: {error}")))
}

/// Checks a level.
///
/// # Errors
/// A sentence that states what a level looks like.
pub(crate) fn check(level: &str) -> Result<(), String> {
    level.parse::<Targets>().map(drop).map_err(|error| advice(&error))
}

fn parse(what: &str, level: &str) -> Result<Targets> {
    level.parse().map_err(|error| Error::config(what, advice(&error)))
}

fn advice(error: &dyn std::fmt::Display) -> String {
    format!("{error}; try `debug`, or `net=debug,info`")
}
