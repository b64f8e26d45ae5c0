//! The state of a server that its threads share: jobs that wait, and the one that runs.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::Instant,
};

use mpc_core::Released;
use net::Canceller;

use super::{
    jobs::Work,
    queue::{Follower, Joins, Leader},
    quota::Reserved,
};
use crate::{
    base::{Digest, Id},
    wire::{Cost, JobState, Link, Place, Stage, Watched},
};

pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) jobs: HashMap<Id, Job>,
    pub(super) link: Link,
    /// Since when `link` is what it is.
    pub(super) since: Instant,
    pub(super) running: Option<Running>,
    pub(super) done: u64,
    pub(super) failed: u64,
    /// For each client, the number of jobs that are done and of those that have failed.
    pub(super) ended: HashMap<String, (u64, u64)>,
    /// True if this server is being stopped.
    pub(super) ending: Ending,
    /// Ends the session that there is, or that is being begun.
    pub(super) session: Option<Canceller>,
}

/// The stages of stopping a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    No,
    /// It takes no new jobs.
    Draining,
    /// It begins no new session.
    Now,
}

pub(super) enum Queue {
    Leader(Leader),
    Follower(Follower),
}

/// This server's part of a job.
pub(super) struct Job {
    pub(super) client: String,
    pub(super) work: Work,
    pub(super) outcome: mpsc::Sender<Outcome>,
    /// The digest of the public part of its request.
    pub(super) digest: Digest,
    /// The jobs with which it may run.
    pub(super) joins: Option<Joins>,
    /// The time when it was complete here.
    pub(super) since: Instant,
    /// Bytes of shares that came with it.
    pub(super) received: u64,
    pub(super) _reserved: Arc<Reserved>,
}

/// The job that runs, or several that run as one.
pub(super) struct Running {
    /// Each with its client.
    pub(super) jobs: Vec<(JobState, String)>,
    /// The run that it trains or opens, if it does.
    pub(super) run: Option<String>,
    /// The cancelled jobs among several, and why: they run to their end with the others, but their answers are
    /// dropped.
    pub(super) cancelled: HashMap<Id, String>,
    /// A hand on the session's transport.
    pub(super) watched: Watched,
    /// Ends the session, and the job with it.
    pub(super) canceller: Canceller,
    pub(super) phase: Phase,
}

/// The phase of the running job, as far as it matters to a thread that wants to end it. Ending the session also ends
/// any job that one of the servers has begun since. So it is allowed only while that cannot happen.
#[derive(Debug)]
pub(super) enum Phase {
    /// The others wait for this server's word on the job. A reason to end it becomes its word against it.
    Preparing(Option<String>),
    /// This server has given its word, and the others may have refused the job and gone on by now. A
    /// reason to end it waits until it is known that the job runs.
    Voting(Option<String>),
    /// The others cannot end the job without what this server has yet to send.
    Computing,
    /// This server has sent its last word on the job, and the others may have gone on.
    Ending,
}

/// The end of a job, for the client.
pub(super) type Outcome = Result<Output, Failure>;

/// Why a job ended without a result.
pub(super) struct Failure {
    /// The error, and its remedy.
    pub reason: String,
    /// The parties of which one did not follow the protocol, and the check that showed it.
    pub cheated: Option<([usize; 2], String)>,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self { reason, cheated: None }
    }
}

pub(super) enum Output {
    Nothing,
    Answer(Vec<Released>, Box<Cost>),
}

impl Job {
    pub(super) fn describe(&self, id: Id, stage: Stage) -> JobState {
        let (kind, model) = self.work.name();
        let seconds = self.since.elapsed().as_secs();
        JobState { job: id, kind: kind.to_owned(), model: model.to_owned(), stage, seconds }
    }
}

impl Running {
    /// True if this job is among those that run.
    pub(super) fn has(&self, id: Id) -> bool {
        self.jobs.iter().any(|(job, _)| job.job == id)
    }

    /// True if the job trains or opens this run.
    pub(super) fn is_of_run(&self, name: &str) -> bool {
        self.run.as_deref() == Some(name)
    }

    /// Ends one job, or keeps its answer back where others run with it. False if the end is near anyway.
    pub(super) fn cancel(&mut self, id: Id, reason: &str) -> bool {
        if self.jobs.len() == 1 {
            return self.end(reason);
        }
        let ends = matches!(self.phase, Phase::Ending);
        if !ends {
            self.cancelled.entry(id).or_insert_with(|| reason.to_owned());
        }
        !ends
    }

    /// Ends all that runs, now or as soon as that touches no other job. False if the end is near anyway.
    pub(super) fn end(&mut self, reason: &str) -> bool {
        match &mut self.phase {
            Phase::Preparing(cancel) | Phase::Voting(cancel) => {
                cancel.get_or_insert_with(|| reason.to_owned());
            }
            Phase::Computing => self.canceller.cancel(reason),
            Phase::Ending => return false,
        }
        true
    }

    /// A client's jobs among those that run.
    pub(super) fn of(&self, client: &str) -> impl Iterator<Item = JobState> {
        let place: Place = self.watched.place();
        let mine = self.jobs.iter().filter(move |(_, of)| of == client);
        mine.map(move |(job, _)| JobState { stage: Stage::Working(place.clone()), ..job.clone() })
    }
}

impl Queue {
    pub(super) fn cancel(&mut self, id: Id, reason: &str) -> bool {
        match self {
            Self::Leader(leader) => leader.cancel(id, reason),
            // The leader may count on it; then it stays until it runs or is dropped.
            Self::Follower(follower) => follower.cancel(id),
        }
    }

    pub(super) fn announce(&mut self, id: Id, coming: bool) {
        match self {
            Self::Leader(leader) => leader.announce(id, coming),
            Self::Follower(follower) => follower.announce(id, coming),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leader(leader) => leader.len(),
            Self::Follower(follower) => follower.len(),
        }
    }
}
