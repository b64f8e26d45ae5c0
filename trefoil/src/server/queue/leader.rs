//! The leader's half of the queue: the order of jobs, and which of them all servers hold.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::{Answer, Full, Held, Joins, Turn, announce, missing};
use crate::base::{Digest, Id};

/// The leader's half.
#[derive(Debug)]
pub struct Leader {
    /// Number of servers.
    servers: usize,
    jobs: VecDeque<Waiting>,
    coming: HashSet<Id>,
    capacity: usize,
    limit: Duration,
    dropped: Vec<(Id, String)>,
    /// Jobs that have run.
    ran: u64,
    /// For each client, the number of jobs that had run when its last one began.
    turns: HashMap<String, u64>,
    /// The last turn ran a job, and so asked for none.
    has_run: bool,
}

#[derive(Debug)]
struct Waiting {
    id: Id,
    client: String,
    digest: Digest,
    since: Instant,
    held: Vec<bool>,
    joins: Option<Joins>,
    /// Why it can never run: a follower holds something else. It stays until all hold their parts, so that a client
    /// that sent one gets this reason, not a missing part.
    differs: Option<String>,
}

impl Leader {
    /// An empty queue for `servers` servers, of at most `capacity` jobs that may wait `limit` for their parts.
    #[must_use]
    pub fn new(servers: usize, capacity: usize, limit: Duration) -> Self {
        Self {
            servers,
            jobs: VecDeque::new(),
            coming: HashSet::new(),
            capacity,
            limit,
            dropped: Vec::new(),
            ran: 0,
            turns: HashMap::new(),
            has_run: false,
        }
    }

    /// A client begins to send this server's part of a job, or has ended.
    pub fn announce(&mut self, id: Id, coming: bool) {
        announce(&mut self.coming, id, coming);
    }

    /// Puts a client's job at the end. `joins` names the others with which it may run, if any.
    ///
    /// # Errors
    /// [`Full`] if the queue is full or the id is taken.
    pub fn submit(
        &mut self,
        id: Id,
        digest: Digest,
        client: &str,
        joins: Option<Joins>,
        now: Instant,
    ) -> Result<(), Full> {
        if self.jobs.iter().any(|job| job.id == id) {
            return Err(Full::Id);
        }
        if self.jobs.len() >= self.capacity {
            return Err(Full::Queue(self.jobs.len()));
        }
        let mut held = vec![false; self.servers];
        held[0] = true;
        let client = client.to_owned();
        self.jobs.push_back(Waiting { id, client, digest, since: now, held, joins, differs: None });
        Ok(())
    }

    /// Number of jobs that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// True if no job waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// True if the next turn will run a job.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.jobs.iter().any(Waiting::is_ready)
    }

    /// The number of jobs before this one. Jobs of clients that have had their turn may run later.
    #[must_use]
    pub fn position(&self, id: Id) -> Option<usize> {
        self.jobs.iter().position(|job| job.id == id)
    }

    /// The next message. The jobs of [`Turn::run`] have left the queue.
    pub fn turn(&mut self) -> Turn {
        let run = if self.asks_first() { Vec::new() } else { self.next() };
        self.has_run = !run.is_empty();
        let mut turn = Turn { run, drop: std::mem::take(&mut self.dropped), ..Turn::default() };
        for job in &self.jobs {
            if turn.run.is_empty() && !job.is_ready() {
                turn.ask.push((job.id, job.digest));
            } else {
                turn.keep.push(job.id);
            }
        }
        turn.keep.extend(&self.coming);
        turn
    }

    /// True if a job that may be complete by now comes before all that are known to be. Between two runs
    /// the followers are asked once, else a client with many complete jobs would have them all run.
    fn asks_first(&self) -> bool {
        let last_turn = |job: &Waiting| self.turns.get(&job.client).copied();
        let ready = self.jobs.iter().filter(|job| job.is_ready()).map(last_turn).min();
        let mut others = self.jobs.iter().filter(|job| !job.is_ready()).map(last_turn);
        self.has_run && ready.is_some_and(|ready| others.any(|other| other < ready))
    }

    /// Takes out the job that is next, if one is complete, and those that run with it.
    fn next(&mut self) -> Vec<Id> {
        let ready = self.jobs.iter().enumerate().filter(|(_, job)| job.is_ready());
        let last_turn = |job: &Waiting| self.turns.get(&job.client).copied();
        let mut order: Vec<(usize, &Waiting)> = ready.collect();
        order.sort_by_key(|(at, job)| (last_turn(job), *at));
        let Some(&(_, first)) = order.first() else { return Vec::new() };
        let mut room = first.joins.map_or(0, |joins| joins.most.saturating_sub(joins.examples));
        let like = first.joins.map(|joins| joins.like);
        let joins = |job: &Waiting, room: &mut usize| {
            let Some(joins) = job.joins.filter(|joins| Some(joins.like) == like) else {
                return false;
            };
            let left = room.checked_sub(joins.examples);
            *room = left.unwrap_or(*room);
            left.is_some()
        };
        let (_, others) = order.split_at(1);
        let others = others.iter().filter(|(_, job)| joins(job, &mut room));
        let run: Vec<Id> = std::iter::once(first.id).chain(others.map(|(_, job)| job.id)).collect();
        for id in &run {
            let Some(job) = self.position(*id).and_then(|at| self.jobs.remove(at)) else {
                continue;
            };
            self.ran += 1;
            self.turns.insert(job.client, self.ran);
        }
        run
    }

    /// Takes a follower's answer to a turn. Says which jobs can never run, and why.
    ///
    /// # Errors
    /// A sentence, if the answer does not fit the question.
    pub fn answered(
        &mut self,
        party: usize,
        turn: &Turn,
        answer: &Answer,
        now: Instant,
    ) -> Result<Vec<(Id, String)>, String> {
        if answer.held.len() != turn.ask.len() {
            let (asked, got) = (turn.ask.len(), answer.held.len());
            return Err(format!("party {party} answered {got} questions of {asked}"));
        }
        for (&(id, _), held) in turn.ask.iter().zip(&answer.held) {
            let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) else { continue };
            match held {
                Held::No => {}
                Held::Coming => job.since = now,
                Held::Yes => job.held[party] = true,
                Held::Differs => {
                    job.held[party] = true;
                    job.differs.get_or_insert_with(|| other(party));
                }
            }
        }
        let complete = self.jobs.iter().filter(|job| job.held.iter().all(|&held| held));
        let reason = |job: &Waiting| Some((job.id, job.differs.clone()?));
        let lost: Vec<_> = complete.filter_map(reason).collect();
        self.forget(&lost);
        Ok(lost)
    }

    /// Gives up jobs whose parts have not come in time. Says which, and why.
    pub fn expire(&mut self, now: Instant) -> Vec<(Id, String)> {
        let late = |job: &&Waiting| now.saturating_duration_since(job.since) >= self.limit;
        let incomplete = |job: &&Waiting| !job.is_ready();
        let lost: Vec<_> = self
            .jobs
            .iter()
            .filter(late)
            .filter(incomplete)
            .map(|job| {
                let reason = || missing(&job.held, self.limit);
                (job.id, job.differs.clone().unwrap_or_else(reason))
            })
            .collect();
        self.forget(&lost);
        lost
    }

    /// Takes a job out, for a reason that the followers get. Returns true if it still waited.
    pub fn cancel(&mut self, id: Id, reason: &str) -> bool {
        let waits = self.position(id).is_some();
        if waits {
            self.forget(&[(id, reason.to_owned())]);
        }
        waits
    }

    /// The followers must be asked again: a session has begun, and they may have restarted.
    pub fn new_session(&mut self, now: Instant) {
        for job in &mut self.jobs {
            job.held[1..].fill(false);
            job.differs = None;
            job.since = now;
        }
    }

    fn forget(&mut self, lost: &[(Id, String)]) {
        self.jobs.retain(|job| lost.iter().all(|(id, _)| *id != job.id));
        self.dropped.extend_from_slice(lost);
    }
}

impl Waiting {
    /// True if all servers hold the same.
    fn is_ready(&self) -> bool {
        self.differs.is_none() && self.held.iter().all(|&held| held)
    }
}

fn other(party: usize) -> String {
    format!(
        "party {party} was asked for something else under the same job, or holds another version of the \
         model; list the models, then try again"
    )
}
