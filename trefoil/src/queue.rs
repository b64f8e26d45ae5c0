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

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::base::{Digest, Id};

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

/// A follower's half.
#[derive(Debug)]
pub struct Follower {
    jobs: HashMap<Id, Part>,
    coming: HashSet<Id>,
    capacity: usize,
    limit: Duration,
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

fn announce(all: &mut HashSet<Id>, id: Id, coming: bool) {
    if coming {
        all.insert(id);
    } else {
        all.remove(&id);
    }
}

fn other(party: usize) -> String {
    format!(
        "party {party} was asked for something else under the same job, or holds another version of the \
         model; list the models, then try again"
    )
}

fn missing(held: &[bool], limit: Duration) -> String {
    let absent: Vec<_> = (0..held.len()).filter(|&party| !held[party]).collect();
    let names: Vec<_> = absent.iter().map(|party| format!("party {party}")).collect();
    format!(
        "the parts of this job did not reach {} within {} s; check the connection to it, then try \
         again",
        names.join(" and "),
        limit.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    const PARTIES: usize = 3;

    struct Servers {
        leader: Leader,
        followers: [Follower; 2],
        now: Instant,
        /// The joins of the jobs that are sent.
        joins: Option<Joins>,
    }

    impl Servers {
        fn new(capacity: usize) -> Self {
            let follower = || Follower::new(capacity, LIMIT);
            let leader = Leader::new(PARTIES, capacity, LIMIT);
            let followers = [follower(), follower()];
            Self { leader, followers, now: Instant::now(), joins: None }
        }

        fn send(&mut self, job: u8, to: &[usize]) {
            self.send_as("client", job, to);
        }

        fn send_as(&mut self, client: &str, job: u8, to: &[usize]) {
            let (id, digest) = names(job);
            for &party in to {
                match party {
                    0 => self.leader.submit(id, digest, client, self.joins, self.now),
                    _ => self.followers[party - 1].submit(id, digest, self.now),
                }
                .unwrap();
            }
        }

        /// One turn; returns the jobs that run and those that were given up.
        fn turn(&mut self) -> (Vec<Id>, Vec<Id>) {
            let turn = self.leader.turn();
            let mut lost = Vec::new();
            for (index, follower) in self.followers.iter_mut().enumerate() {
                let answer = follower.hear(&turn, self.now);
                if turn.run.is_empty() {
                    let lost_here = self.leader.answered(index + 1, &turn, &answer, self.now);
                    lost.extend(lost_here.unwrap());
                }
                lost.extend(follower.expire(self.now));
            }
            lost.extend(self.leader.expire(self.now));
            (turn.run, lost.into_iter().map(|(id, _)| id).collect())
        }

        fn run_order(&mut self, turns: usize) -> Vec<Id> {
            (0..turns).flat_map(|_| self.turn().0).collect()
        }
    }

    fn names(job: u8) -> (Id, Digest) {
        (Id::from([job; 16]), Digest::of(&[&[job]]))
    }

    fn id(job: u8) -> Id {
        names(job).0
    }

    #[test]
    fn jobs_run_in_the_order_in_which_they_reached_party_0() {
        let mut servers = Servers::new(8);
        servers.send(3, &[2, 1, 0]);
        servers.send(1, &[1, 0, 2]);
        servers.send(2, &[0, 1, 2]);
        assert_eq!(servers.run_order(5), [id(3), id(1), id(2)]);
        assert!(servers.leader.is_empty() && servers.followers.iter().all(Follower::is_empty));
    }

    #[test]
    fn a_client_with_many_jobs_lets_others_take_their_turns() {
        let mut servers = Servers::new(16);
        for job in 1..=4 {
            servers.send_as("many", job, &[0, 1, 2]);
        }
        assert_eq!(servers.run_order(2), [id(1)]);
        servers.send_as("one", 5, &[0, 1, 2]);
        servers.send_as("two", 6, &[0, 1, 2]);
        servers.send_as("two", 7, &[0, 1, 2]);
        assert_eq!(servers.run_order(7), [5, 6, 2, 7, 3, 4].map(id));
    }

    #[test]
    fn jobs_that_are_alike_run_together_up_to_their_limit_and_in_the_order_of_their_turns() {
        let mut servers = Servers::new(16);
        let joins = |like: u8, examples: usize| {
            Some(Joins { like: Digest::of(&[&[like]]), examples, most: 8 })
        };
        let jobs = [
            ("a", 1, joins(1, 3)),
            ("b", 2, joins(2, 1)),
            ("c", 3, joins(1, 6)),
            ("d", 4, None),
            ("a", 5, joins(1, 1)),
            ("e", 6, joins(1, 4)),
        ];
        for (client, job, joins) in jobs {
            servers.joins = joins;
            servers.send_as(client, job, &[0, 1, 2]);
        }
        // Its parts have not all come.
        servers.joins = joins(1, 1);
        servers.send_as("f", 7, &[0, 1]);
        assert_eq!(servers.turn().0, []);
        // 3 + 1 + 4 examples; 6 more would be too many, and run when their turn comes.
        assert_eq!(servers.turn().0, [1, 5, 6].map(id));
        assert_eq!(servers.turn().0, [id(2)]);
        servers.send_as("a", 8, &[0, 1, 2]);
        servers.send_as("f", 7, &[2]);
        // They are not known to be complete yet.
        assert_eq!(servers.turn().0, [id(3)]);
        assert_eq!(servers.turn().0, [id(4)]);
        assert_eq!(servers.turn().0, []);
        assert_eq!(servers.turn().0, [7, 8].map(id));
        assert!(servers.leader.is_empty() && servers.followers.iter().all(Follower::is_empty));
    }

    #[test]
    fn a_part_whose_client_has_gone_does_not_outlive_the_session_in_which_it_was_promised() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 1]);
        servers.turn();
        assert!(!servers.followers[0].cancel(id(1)), "the leader counts on it");
        let lost = servers.followers[0].new_session(servers.now);
        assert_eq!(lost.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)]);
        assert!(servers.followers[0].is_empty());
    }

    #[test]
    fn an_incomplete_job_lets_others_pass_and_is_given_up_after_the_limit() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 1]);
        servers.send(2, &[0, 1, 2]);
        servers.send(3, &[1, 2]);
        assert_eq!(servers.run_order(4), [id(2)]);
        servers.now += LIMIT;
        let (_, mut lost) = servers.turn();
        lost.sort();
        // Job 3 is given up by each of the two that hold it; job 1 by party 0, then at its word.
        assert_eq!(lost, [id(1), id(3), id(3)]);
        servers.turn();
        assert!(servers.leader.is_empty() && servers.followers.iter().all(Follower::is_empty));
    }

    #[test]
    fn who_sends_his_part_after_another_was_found_to_differ_hears_the_reason() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0]);
        servers.followers[0].submit(id(1), names(9).1, servers.now).unwrap();
        assert_eq!(servers.turn(), (vec![], vec![]));
        servers.send(1, &[2]);
        assert_eq!(servers.turn(), (vec![], vec![id(1)]));
        let turn = servers.leader.turn();
        assert!(turn.drop[0].1.contains("party 1 was asked for something else"), "{turn:?}");
        assert!(servers.leader.is_empty());
    }

    #[test]
    fn a_complete_job_waits_as_long_as_others_run() {
        let mut servers = Servers::new(8);
        for job in 1..=4 {
            servers.send(job, &[0, 1, 2]);
        }
        servers.turn();
        for job in 1..=4 {
            servers.now += LIMIT * 3 / 4;
            assert_eq!(servers.turn(), (vec![id(job)], vec![]));
        }
    }

    #[test]
    fn a_part_that_comes_late_but_in_time_completes_its_job() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 2]);
        servers.turn();
        servers.now += LIMIT / 2;
        servers.send(1, &[1]);
        assert_eq!(servers.run_order(2), [id(1)]);
    }

    #[test]
    fn a_part_on_its_way_keeps_its_job_however_long_it_takes() {
        for last in 0..PARTIES {
            let mut servers = Servers::new(8);
            let others: Vec<_> = (0..PARTIES).filter(|&party| party != last).collect();
            let announce = |servers: &mut Servers, coming| match last {
                0 => servers.leader.announce(id(1), coming),
                _ => servers.followers[last - 1].announce(id(1), coming),
            };
            announce(&mut servers, true);
            servers.send(1, &others);
            for _ in 0..5 {
                assert_eq!(servers.turn(), (vec![], vec![]), "party {last}");
                servers.now += LIMIT * 3 / 4;
            }
            assert_eq!(servers.turn(), (vec![], vec![]), "party {last}");
            announce(&mut servers, false);
            servers.send(1, &[last]);
            assert_eq!(servers.run_order(2), [id(1)], "party {last}");
            // One that never comes is given up after the limit.
            announce(&mut servers, true);
            servers.send(2, &others);
            servers.turn();
            announce(&mut servers, false);
            servers.now += LIMIT;
            let (_, lost) = servers.turn();
            assert!(lost.contains(&id(2)), "party {last}");
        }
    }

    #[test]
    fn a_job_that_differs_between_servers_is_refused_at_once() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 1]);
        servers.followers[1].submit(id(1), names(9).1, servers.now).unwrap();
        assert_eq!(servers.turn(), (vec![], vec![id(1)]));
        let told = servers.leader.turn();
        assert_eq!(told.drop.len(), 1);
        servers.followers.iter_mut().for_each(|f| drop(f.hear(&told, servers.now)));
        assert!(servers.followers.iter().all(Follower::is_empty));
    }

    #[test]
    fn full_queues_and_reused_ids_are_refused() {
        let mut servers = Servers::new(2);
        servers.send(1, &[0, 1, 2]);
        servers.send(2, &[0, 1, 2]);
        let (id3, digest) = names(3);
        assert_eq!(
            servers.leader.submit(id(1), digest, "client", None, servers.now),
            Err(Full::Id)
        );
        assert_eq!(
            servers.leader.submit(id3, digest, "client", None, servers.now),
            Err(Full::Queue(2))
        );
        assert_eq!(servers.followers[0].submit(id(1), digest, servers.now), Err(Full::Id));
        assert_eq!(servers.followers[0].submit(id3, digest, servers.now), Err(Full::Queue(2)));
        assert_eq!(servers.run_order(3), [id(1), id(2)]);
    }

    #[test]
    fn after_a_restart_of_a_follower_lost_parts_are_asked_for_again() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 1, 2]);
        servers.turn();
        servers.followers[1] = Follower::new(8, LIMIT);
        servers.leader.new_session(servers.now);
        servers.followers[0].new_session(servers.now);
        servers.send(2, &[0, 1, 2]);
        assert_eq!(servers.run_order(3), [id(2)]);
        servers.now += LIMIT;
        assert_eq!(servers.turn(), (vec![], vec![id(1)]));
    }

    #[test]
    fn a_cancelled_job_is_dropped_by_all() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0, 1, 2]);
        servers.leader.cancel(id(1), "its client has left");
        servers.leader.cancel(id(2), "its client has left");
        assert_eq!(servers.turn().0, []);
        servers.send(3, &[0, 1, 2]);
        servers.leader.turn();
        assert!(servers.followers[0].cancel(id(3)), "nobody counts on it yet");
        servers.turn();
        assert!(!servers.followers[1].cancel(id(3)), "a promise is kept");
        servers.leader.cancel(id(3), "its client has left");
        servers.turn();
        assert!(servers.followers.iter().all(Follower::is_empty));
    }

    #[test]
    fn an_answer_of_the_wrong_length_is_refused() {
        let mut servers = Servers::new(8);
        servers.send(1, &[0]);
        let turn = servers.leader.turn();
        let error = servers.leader.answered(1, &turn, &Answer::default(), servers.now);
        let error = error.unwrap_err();
        assert!(error.contains("party 1 answered 0 questions of 1"));
    }

    #[test]
    fn random_histories_never_lose_or_repeat_a_job() {
        // A small generator of our own; the seed is part of the name of the failing case.
        for seed in 0..200u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = move |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut servers = Servers::new(64);
            let (mut ran, mut gone) = (Vec::new(), Vec::new());
            let mut complete = Vec::new();
            for job in 0..40u8 {
                let mut to: Vec<usize> = (0..3).collect();
                let first = random(3) as usize;
                to.rotate_left(first);
                if random(4) == 0 {
                    to.pop();
                } else {
                    complete.push(id(job));
                }
                servers.send(job, &to);
                for _ in 0..random(3) {
                    servers.now += Duration::from_millis(random(500));
                    let (run, lost) = servers.turn();
                    ran.extend(run);
                    gone.extend(lost);
                }
            }
            for _ in 0..200 {
                servers.now += Duration::from_millis(200);
                let (run, lost) = servers.turn();
                ran.extend(run);
                gone.extend(lost);
            }
            assert_eq!(ran, complete, "seed {seed}");
            assert!(gone.iter().all(|id| !ran.contains(id)), "seed {seed}");
            assert!(servers.leader.is_empty(), "seed {seed}");
            assert!(servers.followers.iter().all(Follower::is_empty), "seed {seed}");
        }
    }
}
