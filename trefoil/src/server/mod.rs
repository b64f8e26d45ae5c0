//! One of the three servers: clients on one side, the two other servers on the other.
//!
//! A thread per client takes requests and parts and puts jobs into the queue; one thread runs the
//! session with the other servers, in which jobs run one after the other. After a failure the session
//! is dropped and begun anew; queue and models outlive it.

mod cache;
mod clients;
mod jobs;
mod session;

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    time::Instant,
};

use bytes::Bytes;
use ring_arith::{CpuEngine, Engine, Tensor};

use crate::{
    About, Digest, Error, Id, Result, Shares,
    config::Limits,
    queue::{Follower, Full, Leader},
    store::Store,
    watch::Watched,
    wire::{Cost, Link, Status},
};
use cache::Cache;

/// One server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Core>);

struct Core {
    me: usize,
    limits: Limits,
    engine: CpuEngine,
    store: Store,
    cache: Cache,
    state: Mutex<State>,
    /// Signalled when a job comes.
    wake: Condvar,
    started: Instant,
    /// Bytes that parts of jobs take.
    reserved: AtomicU64,
    /// Connected clients.
    clients: AtomicUsize,
}

struct State {
    queue: Queue,
    jobs: HashMap<Id, Job>,
    link: Link,
    /// Since when `link` is what it is.
    since: Instant,
    /// A hand on the session's transport while a job runs.
    running: Option<(Id, Watched)>,
    done: u64,
    failed: u64,
}

enum Queue {
    Leader(Leader),
    Follower(Follower),
}

/// This server's part of a job.
struct Job {
    client: String,
    work: Work,
    outcome: mpsc::Sender<Outcome>,
    _reserved: Reserved,
}

enum Work {
    Put { name: String, about: Box<About>, plan: Bytes, shares: Shares },
    Remove { name: String },
    Infer { model: String, inputs: Shares, profile: bool },
}

/// How a job ended, for the client.
type Outcome = Result<Output, String>;

enum Output {
    Nothing,
    Components(Vec<Tensor>, Box<Cost>),
}

/// Room for the parts of a job, given back when dropped.
struct Reserved(Arc<Core>, u64);

/// A part of a job that is being sent.
struct Coming(Arc<Core>, Id);

impl Server {
    /// A server that keeps its shares in `store` and computes on `engine`.
    #[must_use]
    pub fn new(me: usize, limits: Limits, store: Store, engine: CpuEngine) -> Self {
        let (capacity, limit) = (limits.queue, limits.parts_limit());
        let queue = match me {
            0 => Queue::Leader(Leader::new(capacity, limit)),
            _ => Queue::Follower(Follower::new(capacity, limit)),
        };
        let link = Link::Down { reason: "the servers have not met yet".to_owned() };
        let state = State {
            queue,
            jobs: HashMap::new(),
            link,
            since: Instant::now(),
            running: None,
            done: 0,
            failed: 0,
        };
        let cache = Cache::new(limits.cache_mib << 20);
        Self(Arc::new(Core {
            me,
            limits,
            engine,
            store,
            cache,
            state: Mutex::new(state),
            wake: Condvar::new(),
            started: Instant::now(),
            reserved: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
        }))
    }

    /// What this server knows about itself.
    ///
    /// # Errors
    /// [`Error::File`] if the store cannot be read.
    pub fn status(&self) -> Result<Status> {
        let core = &self.0;
        let held = core.store.inventory()?;
        let state = core.state();
        Ok(Status {
            party: core.me,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            up_seconds: core.started.elapsed().as_secs(),
            engine: core.engine.name(),
            link: state.link.clone(),
            waiting: state.queue.len(),
            step: state.running.as_ref().map(|(_, watched)| watched.place().step),
            done: state.done,
            failed: state.failed,
            models: held.iter().filter(|held| held.visible.is_some()).count(),
            damaged: held
                .into_iter()
                .filter(|held| held.damage.is_some())
                .map(|held| held.name)
                .collect(),
        })
    }

    /// Reads every file of every model, so that damage is known before somebody asks for the model. Jobs
    /// go on meanwhile.
    ///
    /// # Errors
    /// [`Error::File`] if the store cannot be read.
    pub fn check_store(&self) -> Result<()> {
        let store = &self.0.store;
        let began = Instant::now();
        let (mut models, mut bytes, mut bad) = (0, 0, 0);
        for held in store.inventory()? {
            models += 1;
            match store.verify(&held.name) {
                Ok(read) => bytes += read,
                Err(error) => {
                    bad += 1;
                    tracing::error!(%error, "a model cannot be served");
                }
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!(models, damaged = bad, bytes, seconds, "read all models");
        Ok(())
    }
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic may leave behind is a job that nobody runs, which expires.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_link(&self, link: Link) {
        let mut state = self.state();
        state.link = link;
        state.since = Instant::now();
    }

    /// Room for `bytes` more of parts.
    fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reserved> {
        let limit = self.limits.memory_mib << 20;
        let grow = |held: u64| held.checked_add(bytes).filter(|&held| held <= limit);
        let grown = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, grow);
        grown.map(|_| Reserved(self.clone(), bytes)).map_err(|held| {
            let reason = format!(
                "no room for a job of {} MiB beside {} MiB of waiting ones (limits.memory_mib is {}); \
                 try again later",
                bytes >> 20,
                held >> 20,
                self.limits.memory_mib
            );
            Error::refused(format_args!("party {}", self.me), reason)
        })
    }

    /// Says that a client sends this server's part of a job, until the answer is dropped.
    fn announce(self: &Arc<Self>, id: Id) -> Coming {
        self.state().queue.announce(id, true);
        Coming(self.clone(), id)
    }

    fn submit(&self, id: Id, digest: Digest, job: Job) -> Result<()> {
        let mut state = self.state();
        let now = Instant::now();
        match &mut state.queue {
            Queue::Leader(leader) => leader.submit(id, digest, now),
            Queue::Follower(follower) => follower.submit(id, digest, now),
        }
        .map_err(|full: Full| Error::refused(format_args!("party {}", self.me), full))?;
        state.jobs.insert(id, job);
        self.wake.notify_all();
        Ok(())
    }

    /// Ends jobs that will not run. Their clients are told why, if they still listen.
    fn give_up(&self, lost: Vec<(Id, String)>) {
        for (id, reason) in lost {
            let job = self.state().jobs.remove(&id);
            if let Some(job) = job {
                self.finish(job, Err(reason));
            }
        }
    }

    fn finish(&self, job: Job, outcome: Outcome) {
        let mut state = self.state();
        *(if outcome.is_ok() { &mut state.done } else { &mut state.failed }) += 1;
        drop(state);
        // The client may have left; then nobody wants to know.
        let _ = job.outcome.send(outcome);
    }
}

impl Queue {
    fn announce(&mut self, id: Id, coming: bool) {
        match self {
            Self::Leader(leader) => leader.announce(id, coming),
            Self::Follower(follower) => follower.announce(id, coming),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leader(leader) => leader.len(),
            Self::Follower(follower) => follower.len(),
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.state().queue.announce(self.1, false);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(self.1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
