//! The queue of jobs: one order for all servers, decided by party 0.
//!
//! A client sends its parts of a job to the servers over a connection to each, so they arrive at different moments
//! and some may never arrive. Party 0, the *leader*, keeps the order of arrival at itself. Each turn it sends the
//! *followers* the jobs that it holds and asks which of them they hold too. Of those that all hold, one of the client
//! whose turn was longest ago runs, the first of its jobs: so nobody waits for all jobs of another one. Whatever does
//! not get complete within a limit is given back to its client with the reason, and never holds up the jobs behind
//! it; the limit does not run while a part is on its way.
//!
//! Both halves are pure: time is passed in, nothing is sent. The messages between servers are data,
//! [`Turn`] and [`Answer`].

mod follower;
mod leader;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, time::Duration};

use serde::{Deserialize, Serialize};

use crate::wire::LOST;

use crate::base::{Digest, Id};

pub use follower::Follower;
pub use leader::Leader;

/// The leader's message of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Jobs the leader holds and does not know to be held by all.
    pub ask: Vec<(Id, Digest)>,
    /// All other jobs the leader holds or is being sent.
    pub keep: Vec<Id>,
    /// Jobs that will not run, and why.
    pub drop: Vec<(Id, String)>,
    /// The jobs to run now, together if there are several; no answer is wanted then.
    pub run: Vec<Id>,
}

/// A follower's answers to [`Turn::ask`], in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// One for each job asked for.
    pub held: Vec<Held>,
}

/// True if a follower holds its part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// Not yet.
    No,
    /// It does not hold the job yet.
    Coming,
    /// It does, and will until it has run or is dropped.
    Yes,
    /// It holds another job of that id.
    Differs,
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Too many wait.
    #[error("{0} jobs wait already; try again later")]
    Queue(usize),
    /// The id is in use.
    #[error("a job of this id waits already; send every job under a fresh id")]
    Id,
}

/// The jobs with which a job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joins {
    /// The same for jobs that may run together.
    pub like: Digest,
    /// Its examples.
    pub examples: usize,
    /// The most examples of jobs that run together.
    pub most: usize,
}

fn announce(all: &mut HashSet<Id>, id: Id, coming: bool) {
    if coming {
        all.insert(id);
    } else {
        all.remove(&id);
    }
}

fn missing(held: &[bool], limit: Duration) -> String {
    let absent: Vec<_> = (0..held.len()).filter(|&party| !held[party]).collect();
    let names: Vec<_> = absent.iter().map(|party| format!("party {party}")).collect();
    format!(
        "the parts of this job did not reach {} within {} s; check the connection to it, after which {LOST}",
        names.join(" and "),
        limit.as_secs()
    )
}
