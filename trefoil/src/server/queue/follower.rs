//! A follower's half of the queue: the parts of jobs that it holds.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::{Answer, Full, Held, Turn, announce, missing};
use crate::base::{Digest, Id};

/// A follower's half.
#[derive(Debug)]
pub struct Follower {
    jobs: HashMap<Id, Part>,
    coming: HashSet<Id>,
    capacity: usize,
    limit: Duration,
}

#[derive(Debug)]
struct Part {
    digest: Digest,
    /// The time when the part came, or the leader last named it.
    seen: Instant,
    /// The leader knows that it is here.
    promised: bool,
    /// Its client has gone since.
    left: bool,
}

impl Follower {
    /// An empty store of at most `capacity` parts, each kept for `limit` without the leader's word.
    #[must_use]
    pub fn new(capacity: usize, limit: Duration) -> Self {
        Self { jobs: HashMap::new(), coming: HashSet::new(), capacity, limit }
    }

    /// A client begins to send this server's part of a job, or has ended.
    pub fn announce(&mut self, id: Id, coming: bool) {
        announce(&mut self.coming, id, coming);
    }

    /// Takes a part.
    ///
    /// # Errors
    /// [`Full`] if the queue is full or the id is taken.
    pub fn submit(&mut self, id: Id, digest: Digest, now: Instant) -> Result<(), Full> {
        if self.jobs.contains_key(&id) {
            return Err(Full::Id);
        }
        if self.jobs.len() >= self.capacity {
            return Err(Full::Queue(self.jobs.len()));
        }
        self.jobs.insert(id, Part { digest, seen: now, promised: false, left: false });
        Ok(())
    }

    /// Number of parts held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// True if none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Hears the leader's turn. Parts to run or drop have left the store afterwards; the caller looks
    /// after them.
    pub fn hear(&mut self, turn: &Turn, now: Instant) -> Answer {
        let asked = turn.ask.iter().map(|(id, _)| id);
        for id in asked.chain(&turn.keep) {
            if let Some(part) = self.jobs.get_mut(id) {
                part.seen = now;
            }
        }
        for id in turn.drop.iter().map(|(id, _)| id).chain(&turn.run) {
            self.jobs.remove(id);
        }
        let mut held = |(id, digest): &(Id, Digest)| match self.jobs.get_mut(id) {
            None if self.coming.contains(id) => Held::Coming,
            None => Held::No,
            Some(part) if part.digest == *digest => {
                part.promised = true;
                Held::Yes
            }
            Some(_) => Held::Differs,
        };
        Answer { held: turn.ask.iter().map(&mut held).collect() }
    }

    /// Gives up parts that the leader does not speak of. Says which, and why.
    pub fn expire(&mut self, now: Instant) -> Vec<(Id, String)> {
        let late = |part: &Part| now.saturating_duration_since(part.seen) >= self.limit;
        let lost: Vec<Id> =
            self.jobs.iter().filter(|(_, part)| late(part)).map(|(id, _)| *id).collect();
        let reason = missing(&[false, true, true], self.limit);
        for id in &lost {
            self.jobs.remove(id);
        }
        lost.into_iter().map(|id| (id, reason.clone())).collect()
    }

    /// Takes out a part whose client has gone. One that the leader counts on stays until it runs or
    /// is dropped. Says whether it went.
    pub fn cancel(&mut self, id: Id) -> bool {
        let Some(part) = self.jobs.get_mut(&id) else { return false };
        if part.promised {
            part.left = true;
            return false;
        }
        self.jobs.remove(&id);
        true
    }

    /// A session has begun: the leader gets the whole limit to speak of the parts held. Those whose clients have
    /// gone are given up, since the leader that counted on them may be another; says which, and why.
    pub fn new_session(&mut self, now: Instant) -> Vec<(Id, String)> {
        let left = self.jobs.extract_if(|_, part| part.left);
        let lost = left.map(|(id, _)| (id, "its client has left".to_owned())).collect();
        for part in self.jobs.values_mut() {
            part.seen = now;
            part.promised = false;
        }
        lost
    }
}
