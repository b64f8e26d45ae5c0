//! One of the servers: clients on one side, the other servers on the other.
//!
//! A thread per client takes requests and parts and puts jobs into the queue; one thread runs the session with the
//! other servers, in which jobs run one after the other. After a failure the server drops the session and begins
//! another; queue and store outlive it.

mod access;
mod agreement;
pub mod audit;
mod cache;
mod clients;
pub(crate) mod control;
mod conversations;
mod jobs;
#[cfg(feature = "liar")]
mod liar;
pub mod observe;
mod profiles;
pub mod queue;
mod quota;
mod rebuild;
mod reload;
mod rows;
mod serve;
mod session;
mod state;
mod tapes;
mod trainings;
mod worker;

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cluster_protocols::Computing;
use gpu_kernels::AnyEngine;
use mpc_core::Sharing;
use net::{Identity, LeftOut, LogLimit};
use ring_arith::Engine;

use audit::{Audit, Event, JobLine};
use cache::Programs;
use jobs::Part;
use observe::{Metrics, Outcome as Ended};
use profiles::Profiles;
use queue::{Follower, Full, Leader};
use quota::Quotas;
pub use rebuild::Report;
pub(crate) use serve::stop_signals;
pub use serve::{open_store, party_holder, party_identity, rebuild_store, serve};
use state::{Ending, Failure, Job, Outcome, Output, Phase, Queue, Running, State};

use crate::{
    base::{Error, Id, PROGRAM, Result, files},
    cluster::{CertificateEnd, now},
    config::{Access, Cells, Limits},
    store::Store,
    tapes::Shelf,
    wire::{Cell, Link, Status},
};

/// The time in which like lines of the log are written once, and otherwise counted.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The interval at which a server that is being stopped checks if its jobs have ended.
const LOOK: Duration = Duration::from_millis(10);

/// One server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Core>);

struct Core {
    me: usize,
    cells: Option<Cells>,
    limits: Limits,
    access: Access,
    engine: AnyEngine,
    computing: Computing,
    /// The choices of profiles, if they are made by the links.
    profiles: OnceLock<Profiles>,
    store: Store,
    /// A dealer's tapes, where answers come from them.
    shelf: Option<Shelf>,
    /// The plans of the models.
    programs: Programs,
    state: Mutex<State>,
    /// Signalled when a job comes.
    wake: Condvar,
    /// True if the thread that keeps the session with the others lives.
    alive: AtomicBool,
    started: Instant,
    /// The use of this server by each client.
    quotas: Arc<Quotas>,
    /// The ends of the certificates in use.
    certificates: Mutex<Vec<CertificateEnd>>,
    /// Held by the thread that predicts what a job would send.
    predicting: Mutex<()>,
    /// Refusals that clients cause, by client, and by what was asked for with the kind of the reason.
    refusals: LogLimit<String, (&'static str, &'static str)>,
    /// Sessions that could not be begun, by reason.
    sessions: LogLimit<(), String>,
    /// The counts of ended jobs, for operators.
    metrics: Metrics,
    /// The record of requests and their clients.
    audit: Audit,
}

/// The identity of a server among all of them.
#[derive(Debug, Clone)]
pub struct ServerId {
    /// The number of its party.
    pub party: usize,
    /// Its number among its party's workers, if there are several.
    pub cells: Option<Cells>,
}

impl From<usize> for ServerId {
    fn from(party: usize) -> Self {
        Self { party, cells: None }
    }
}

/// A part of a job that is being sent.
struct Coming(Arc<Core>, Id);

impl Server {
    /// A server that keeps its shares in `store`, computes on `engine` by the protocol `computing` and records
    /// requests in `audit`.
    #[must_use]
    pub fn new(
        id: impl Into<ServerId>,
        access: Access,
        limits: Limits,
        store: Store,
        engine: AnyEngine,
        computing: Computing,
        audit: Audit,
    ) -> Self {
        let ServerId { party: me, cells } = id.into();
        let sharing = computing.protocol.sharing();
        let (capacity, limit) = (limits.queue, limits.parts_limit());
        let queue = match me {
            0 => Queue::Leader(Leader::new(sharing.servers(), capacity, limit)),
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
            ended: HashMap::new(),
            ending: Ending::No,
            session: None,
        };
        let shelf = computing.protocol.plays_tapes();
        let shelf = shelf.then(|| Shelf::new(store.root(), store.holder(), store.key().cloned()));
        let quotas = Arc::new(Quotas::new(me, limits.clone(), store.ledger()));
        Self(Arc::new(Core {
            me,
            cells,
            limits,
            access,
            engine,
            computing,
            profiles: OnceLock::new(),
            store,
            shelf,
            programs: Programs::default(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            alive: AtomicBool::new(true),
            started: Instant::now(),
            quotas,
            certificates: Mutex::default(),
            predicting: Mutex::default(),
            refusals: LogLimit::new(LOG_PAUSE),
            sessions: LogLimit::new(LOG_PAUSE),
            metrics: Metrics::default(),
            audit,
        }))
    }

    /// From the next session on, chooses the profile for each model by the measured links. All servers must do so.
    pub fn choose_profiles(&self) {
        self.0.profiles.get_or_init(Profiles::default);
    }

    /// The counts of this server.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The free bytes and all bytes of the disk with its data, if the system reports them.
    pub(crate) fn disk(&self) -> Option<(u64, u64)> {
        files::disk(self.0.store.root())
    }

    /// Begins the audit log's account of this run of the server.
    pub(crate) fn record_start(&self) {
        let engine = self.engine();
        let program = PROGRAM;
        self.0.audit.record(&Event::Started { program, engine: &engine });
    }

    /// Refuses a list of revoked certificates that is older than one this server has used.
    ///
    /// # Errors
    /// As [`check_revocations`].
    pub(crate) fn check_revocations(&self, identity: &Identity) -> Result<()> {
        check_revocations(&self.0.store, identity)
    }

    /// True if the thread lives that runs jobs with the other servers.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.alive.load(Ordering::Relaxed)
    }

    /// True if new jobs can run here.
    ///
    /// # Errors
    /// Why they cannot, for operators.
    pub fn readiness(&self) -> Result<(), String> {
        self.0.audit.check(self.0.me).map_err(|error| error.to_string())?;
        let state = self.0.state();
        if state.ending != Ending::No {
            return Err("being stopped".to_owned());
        }
        match &state.link {
            Link::Up => Ok(()),
            Link::Down { reason } => {
                let cell = self.0.cells.as_ref();
                let which = cell.map_or(String::new(), |cell| format!("cell {} is ", cell.number));
                Err(format!("{which}not linked: {reason}"))
            }
        }
    }

    /// The name of the engine on which this server computes.
    #[must_use]
    pub fn engine(&self) -> String {
        self.0.engine.name()
    }

    /// The state of this server, for its operator.
    ///
    /// # Errors
    /// [`Error::File`] if the store cannot be read.
    pub fn status(&self) -> Result<Status> {
        let core = &self.0;
        let held = core.store.inventory()?;
        let (clients, reserved) = core.quotas.held();
        let state = core.state();
        Ok(Status {
            party: core.me,
            program: PROGRAM.to_owned(),
            up_seconds: core.started.elapsed().as_secs(),
            engine: self.engine(),
            link: state.link.clone(),
            stopping: state.ending != Ending::No,
            waiting: state.queue.len(),
            step: state.running.as_ref().map(|running| running.watched.place().step),
            done: state.done,
            failed: state.failed,
            models: held.iter().filter(|held| held.visible.is_some()).count(),
            damaged: held
                .into_iter()
                .filter(|held| held.damage.is_some())
                .map(|held| held.name)
                .collect(),
            clients,
            reserved,
            certificates: self.certificates(),
            clock: now(),
            tapes: Vec::new(),
            cell: core.cells.as_ref().map(|cells| Cell { number: cells.number, of: cells.count }),
            waiting_seconds: core.waiting_seconds(&state),
            profile: core.profile_line(),
        })
    }

    /// Takes no new jobs, ends those that it has taken, then its session: [`Server::keep_session`] returns. A job
    /// that is not done after [`Limits::drain_seconds`] fails. Returns the number of these jobs.
    pub fn stop(&self) -> usize {
        let core = &self.0;
        core.state().ending = Ending::Draining;
        core.audit.record(&Event::Stopping);
        let until = Instant::now() + core.limits.drain_limit();
        while core.quotas.jobs() > 0 && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let left = core.quotas.jobs();
        let mut state = core.state();
        state.ending = Ending::Now;
        if let Some(session) = &state.session {
            session.cancel(&format!("party {} is being stopped", core.me));
        }
        left
    }

    /// Gives back what was leased of clients' days and not used: this server has stopped.
    ///
    /// # Errors
    /// [`Error::File`] if the store cannot be written.
    pub(crate) fn give_back(&self) -> Result<()> {
        self.0.quotas.give_back()
    }

    /// Says how many like lines were left out of the log.
    pub(crate) fn log_left_out(&self) {
        for LeftOut { group, kind, lines } in self.0.refusals.left_out() {
            let client = group.as_deref().unwrap_or("others");
            let (request, kind) = kind.unwrap_or(("others", "others"));
            tracing::info!(client, request, kind, lines, "refusals left out of the log");
        }
        for LeftOut { kind, lines, .. } in self.0.sessions.left_out() {
            let reason = kind.as_deref().unwrap_or("others");
            tracing::info!(reason, lines, "failed sessions left out of the log");
        }
    }

    /// The ends of the certificates in use.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateEnd> {
        self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Plays the tapes of dealers whom this authority certifies.
    pub fn trust(&self, authority: net::Trust) {
        if let Some(shelf) = &self.0.shelf {
            shelf.trust(authority);
        }
    }

    /// Says when the certificates in use end.
    pub fn set_certificates(&self, ends: Vec<CertificateEnd>) {
        *self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    /// Reads every file of every model, so that damage is known before a client asks for the model. Jobs go on
    /// meanwhile.
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

/// Refuses a list of revoked certificates that is older than one this server has used, or that is gone: it would let
/// revoked clients in again. The number of the list is kept with what the server counts.
///
/// # Errors
/// [`Error::Config`] that names both numbers.
pub(crate) fn check_revocations(store: &Store, identity: &Identity) -> Result<()> {
    let found = identity.revocation_number()?.unwrap_or(0);
    let known = store.ledger().revoke(found)?;
    if found < known {
        let reason = format!(
            "its number is {found}, and this server has used number {known}: an older list lets revoked clients in \
             again; copy the newest one from the authority's folder"
        );
        return Err(Error::config("list of revoked certificates", reason));
    }
    Ok(())
}

impl Core {
    /// The clients' side of the protocol.
    fn sharing(&self) -> &'static dyn Sharing {
        self.computing.protocol.sharing()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic may leave a job that no thread runs, which expires.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that the jobs which wait or run here will take, by that of jobs like them before.
    fn waiting_seconds(&self, state: &State) -> f64 {
        let waiting = state.jobs.values().map(|job| job.work.name());
        let running = state.running.iter().flat_map(|running| &running.jobs);
        let running = running.map(|(job, _)| (job.kind.as_str(), job.model.as_str()));
        waiting.chain(running).map(|(kind, name)| self.metrics.mean_seconds(kind, name)).sum()
    }

    fn set_link(&self, link: Link) {
        let mut state = self.state();
        state.link = link;
        state.since = Instant::now();
    }

    /// Says that a client sends this server's part of a job, until the answer is dropped.
    ///
    /// # Errors
    /// [`Error::Stopping`] if no new jobs are taken.
    fn announce(self: &Arc<Self>, id: Id) -> Result<Coming> {
        self.takes_jobs()?;
        self.state().queue.announce(id, true);
        Ok(Coming(self.clone(), id))
    }

    /// Checks that new jobs are taken. The answer stays valid for a caller that has reserved room for a job before.
    fn takes_jobs(&self) -> Result<()> {
        self.audit.check(self.me)?;
        if self.state().ending == Ending::No {
            return Ok(());
        }
        Err(Error::Stopping { party: self.me })
    }

    fn submit(&self, id: Id, job: Job) -> Result<()> {
        let digest = job.digest;
        let mut state = self.state();
        let now = Instant::now();
        match &mut state.queue {
            Queue::Leader(leader) => leader.submit(id, digest, &job.client, job.joins, now),
            Queue::Follower(follower) => follower.submit(id, digest, now),
        }
        .map_err(|full: Full| Error::refused(format_args!("party {}", self.me), full))?;
        state.jobs.insert(id, job);
        self.wake.notify_all();
        Ok(())
    }

    /// Ends jobs that will not run. Their clients get the reason, if they are still connected.
    fn give_up(&self, lost: Vec<(Id, String)>) {
        for (id, reason) in lost {
            let job = self.state().jobs.remove(&id);
            if let Some(job) = job {
                self.finish(id, job, Part::WHOLE, Duration::ZERO, Err(reason.into()));
            }
        }
    }

    fn finish(&self, id: Id, job: Job, part: Part, took: Duration, outcome: Outcome) {
        let (kind, name) = job.work.name();
        let (ended, cost) = match &outcome {
            Ok(Output::Answer(_, cost)) => (Ended::Done, Some(&**cost)),
            Ok(Output::Nothing) => (Ended::Done, None),
            Err(Failure { cheated: Some(_), .. }) => (Ended::Cheated, None),
            Err(_) => (Ended::Failed, None),
        };
        self.audit.record(&Event::Job(JobLine {
            client: &job.client,
            kind,
            name,
            job: id,
            examples: job.work.examples(),
            received_bytes: job.received,
            joined: (part.jobs > 1).then_some(part.jobs),
            sent_bytes: cost.map_or(0, |cost| part.of(cost.bytes)),
            rounds: cost.map_or(0, |cost| cost.rounds),
            seconds: took.as_secs_f64(),
            outcome: ended.name(),
            reason: outcome.as_ref().err().map(|failure| failure.reason.as_str()),
        }));
        let taken = cost.map(|cost| (part.of(cost.bytes), part.is_first().then_some(cost.rounds)));
        self.metrics.ended(kind, name, &job.client, ended, took.as_secs_f64(), taken);
        let mut state = self.state();
        *(if outcome.is_ok() { &mut state.done } else { &mut state.failed }) += 1;
        let (done, failed) = state.ended.entry(job.client.clone()).or_default();
        *(if outcome.is_ok() { done } else { failed }) += 1;
        drop(state);
        // The client may have left; then the outcome is dropped.
        let _ = job.outcome.send(outcome);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.state().queue.announce(self.1, false);
    }
}

#[cfg(test)]
mod tests;
