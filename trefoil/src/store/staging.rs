//! Claims of workers: on a version that one is about to bring, and on a name that one is changing.
//!
//! A claim names its worker and ends by itself. Until then others leave alone what it is on; only its worker, or anyone
//! after its end, finishes or undoes that.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    STAGED, Store,
    backing::Tag,
    item,
    manifest::{now, parse_sealed, sealed},
};
use crate::base::{Error, Id, Result};

/// The suffix of a claim on a version.
const CLAIM: &str = "claim";

/// The folder of claims on names.
const CHANGES: &str = "changes";

/// The longest wait for another worker that is changing a name, and the pause between two looks at it.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// A user of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worker {
    /// One server, which has the store to itself.
    Alone,
    /// One of several cells of a party, by its number.
    Cell(u16),
}

/// A worker's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    worker: Worker,
    /// When it ends, in seconds since 1970.
    until: u64,
}

/// A name that this worker is changing. It stays claimed if this is dropped: what was begun is finished or undone first.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change(Option<(String, Tag)>);

impl Claim {
    fn is_over(&self) -> bool {
        self.until <= now()
    }
}

impl std::fmt::Display for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Alone => f.write_str("the server"),
            Self::Cell(cell) => write!(f, "cell {cell}"),
        }
    }
}

impl Store {
    /// The claim with which this worker begins something now.
    fn new_claim(&self) -> Claim {
        Claim { worker: self.worker, until: now() + self.hold.as_secs() }
    }

    /// True if a claim is this worker's. A server that has the store to itself takes over those of cells before it.
    fn has_made(&self, claim: Claim) -> bool {
        self.worker == Worker::Alone || claim.worker == self.worker
    }

    pub(super) fn claim_version(&self, name: &str, version: Id) -> Result<()> {
        let claim = sealed(&self.new_claim())?;
        let place = item(name, format_args!("{version}.{CLAIM}"));
        self.backing.write(&place, &mut |file| file.write_all(&claim))
    }

    pub(super) fn remove_claim(&self, name: &str, version: Id) -> Result<()> {
        let place = item(name, format_args!("{version}.{CLAIM}"));
        self.backing.remove(&place, None).map(drop)
    }

    /// The claim on a version. One that cannot be read is over.
    fn claim_on(&self, name: &str, version: Id) -> Result<Option<Claim>> {
        let place = item(name, format_args!("{version}.{CLAIM}"));
        let found = self.backing.read(&place)?;
        Ok(found.and_then(|object| parse_sealed(&object.bytes).ok()))
    }

    /// True if this worker may finish or undo a version that is staged: it has staged it itself, or the claim
    /// of the one that did is over.
    pub(super) fn is_ours(&self, name: &str, version: Id) -> Result<bool> {
        let claim = self.claim_on(name, version)?;
        Ok(claim.is_none_or(|claim| self.has_made(claim) || claim.is_over()))
    }

    /// True if a version that is not staged is being written. What this worker was writing before it started is not.
    pub(super) fn is_coming(&self, name: &str, version: Id, starting: bool) -> Result<bool> {
        let claim = self.claim_on(name, version)?;
        Ok(claim.is_some_and(
            |claim| {
                if self.has_made(claim) { !starting } else { !claim.is_over() }
            },
        ))
    }

    /// Versions of a name that wait to become current.
    pub(super) fn staged(&self, name: &str) -> Result<Vec<Id>> {
        let version = |file: String| file.strip_suffix(&format!(".{STAGED}"))?.parse().ok();
        Ok(self.files_under(name)?.into_iter().filter_map(version).collect())
    }

    /// Keeps other cells from changing a name until the answer is given back. Waits a moment for one that is at it. A
    /// server that has its store to itself claims nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the worker which is changing it.
    pub(crate) fn begin_change(&self, name: &str) -> Result<Change> {
        if self.worker == Worker::Alone {
            return Ok(Change(None));
        }
        let place = format!("{CHANGES}/{name}");
        let began = Instant::now();
        loop {
            let mine = sealed(&self.new_claim())?;
            let found = self.backing.read(&place)?;
            let held = found.as_ref().and_then(|object| parse_sealed::<Claim>(&object.bytes).ok());
            let held = held.filter(|claim| claim.worker != self.worker && !claim.is_over());
            let Some(claim) = held else {
                let tag = found.map(|object| object.tag);
                if self.backing.swap(&place, &mine, tag.as_ref())? {
                    let tag = self.backing.read(&place)?.map(|object| object.tag);
                    return Ok(Change(tag.map(|tag| (place, tag))));
                }
                continue;
            };
            if began.elapsed() >= PATIENCE {
                let reason = format!(
                    "{} is changing it; try again, at the latest in {} s",
                    claim.worker,
                    claim.until.saturating_sub(now())
                );
                return Err(Error::refused(format_args!("`{name}`"), reason));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Lets others change a name again: all servers have done what they had to.
    ///
    /// # Errors
    /// [`Error::File`] if the claim cannot be removed.
    pub(crate) fn end_change(&self, Change(change): Change) -> Result<()> {
        let Some((place, tag)) = change else { return Ok(()) };
        self.backing.remove(&place, Some(&tag)).map(drop)
    }

    /// Gives back the names that this worker was changing when its last session died. What it had begun is finished or
    /// undone by now.
    ///
    /// # Errors
    /// [`Error::File`] if claims cannot be read or removed.
    pub(crate) fn end_old_changes(&self) -> Result<()> {
        for name in self.backing.list(CHANGES)? {
            let place = format!("{CHANGES}/{name}");
            let Some(object) = self.backing.read(&place)? else { continue };
            let claim = parse_sealed::<Claim>(&object.bytes);
            if claim.is_ok_and(|claim| claim.worker == self.worker) {
                self.backing.remove(&place, Some(&object.tag))?;
            }
        }
        Ok(())
    }
}
