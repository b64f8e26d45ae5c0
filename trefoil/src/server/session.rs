//! A server's session with the others: the order of jobs, and the jobs.

use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use cluster_protocols::with_protocol;

use super::{
    Core, Ending, Failure, Job, Phase, Queue, Running, Server,
    control::{listen, reconcile, strange, tell},
    jobs::{Part, Train, Work},
    queue::{Answer, Leader, Turn},
    worker::Worker,
};
use crate::{
    base::{Error, Id, Result},
    config::Limits,
    wire::{Link, Place, Stage, VERSION, Watched},
};
use gpu_kernels::AnyEngine;
use mpc_core::ServerProtocol;
use net::{Canceller, Session, Transport};
use ring_arith::{Engine, Generator};

/// The public name of the servers' sessions.
const SESSION: &str = "trefoil servers";

/// Pauses before a server tries to start a session again: each twice the one before, until one starts.
const AGAIN: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(2);

/// The longest time for which the leader lets the followers wait for its word when nothing happens.
const QUIET: Duration = Duration::from_secs(1);

/// Words of buffers that stay with the engine from one job to the next: enough for a ResNet-50.
const KEPT: usize = 32 << 20;

/// Pauses between questions for parts that are on their way.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(64);

impl Server {
    /// Keeps a session with the other servers until the server is stopped. `begin` starts it again whenever it has
    /// died.
    pub fn keep_session(&self, begin: impl Fn(&net::Job) -> net::Result<Session>) {
        // Also if it ends by a panic.
        let _ended = Ended(&self.0.alive);
        let mut pause = *AGAIN.start();
        while let Some(canceller) = self.0.next_session() {
            let prgs = self.0.engine.generators().into_iter().map(Generator::name);
            let servers = self.0.sharing().servers() as u16;
            let job = net::Job::new(SESSION).parties(servers);
            let mut job = job.prgs(prgs).config(&VERSION.to_le_bytes());
            if let Some(cells) = &self.0.cells {
                job = job.cell(cells.number);
            }
            let session = begin(&job.canceller(&canceller)).map_err(Error::from);
            let outcome = session.and_then(|session| self.0.run_session(session, &canceller));
            let was_up = self.0.state().link == Link::Up;
            if let Err(error) = outcome {
                let reason = error.to_string();
                if self.0.state().ending == Ending::Now {
                    return;
                }
                if self.0.sessions.admits(&(), &reason) {
                    tracing::warn!(reason, "no session with the other servers; trying again");
                }
                self.0.set_link(Link::Down { reason });
            }
            pause = if was_up { *AGAIN.start() } else { (pause * 2).min(*AGAIN.end()) };
            thread::sleep(pause);
        }
    }
}

/// Says that the thread has ended when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Core {
    /// The canceller that ends the next session, unless there is to be none.
    fn next_session(&self) -> Option<Canceller> {
        let mut state = self.state();
        let canceller = Canceller::default();
        state.session = (state.ending != Ending::Now).then(|| canceller.clone());
        state.session.is_some().then_some(canceller)
    }

    /// Runs jobs within a session until it dies. If it died here, the others get the reason.
    fn run_session(&self, session: Session, canceller: &Canceller) -> Result<()> {
        #[cfg(feature = "liar")]
        let session = Session { transport: super::liar::lying(session.transport), ..session };
        let watched = Watched::new(session.transport);
        let transport = Box::new(watched.hand());
        let session = Session { transport, ..session };
        let ended = with_protocol!(self.computing.protocol, P => {
            self.run_jobs::<P>(session, &watched, canceller)
        });
        ended.inspect_err(|error| watched.hand().fail(&error.to_string()))
    }

    fn run_jobs<P: ServerProtocol<Engine = AnyEngine>>(
        &self,
        session: Session,
        watched: &Watched,
        canceller: &Canceller,
    ) -> Result<()> {
        let mut control = watched.hand();
        reconcile(&self.store, &mut control)?;
        self.meet(&mut control)?;
        let mut worker = Worker::<P>::start(self, session, watched.hand(), canceller.clone())?;
        let lost = {
            let (mut state, now) = (self.state(), Instant::now());
            match &mut state.queue {
                Queue::Leader(leader) => {
                    leader.new_session(now);
                    Vec::new()
                }
                Queue::Follower(follower) => follower.new_session(now),
            }
        };
        self.give_up(lost);
        self.set_link(Link::Up);
        tracing::info!("linked with the other servers");
        let mut pause = *PAUSES.start();
        let (clock, strokes) = channel();
        thread::scope(|scope| {
            scope.spawn(|| self.limit_jobs(strokes, canceller));
            let clock = clock;
            loop {
                let next = match self.me {
                    0 => self.lead(&mut control, &mut pause)?,
                    _ => self.follow(&mut control)?,
                };
                if next.is_empty() {
                    worker.load_ahead();
                    continue;
                }
                let run = Run { worker: &mut worker, watched, canceller, clock: &clock };
                self.run_turn(run, &next)?;
            }
        })
    }

    /// Ends a job that runs for too long; the session too, if that does not end the job, for instance because a peer
    /// is stuck. Receives the beginning of each job, with its time limit, and its end.
    fn limit_jobs(&self, strokes: Receiver<Stroke>, canceller: &Canceller) {
        while let Ok((id, limit, name)) = strokes.recv() {
            if strokes.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
                continue;
            }
            let (seconds, me) = (limit.as_secs(), self.me);
            let reason = format!("the job ran longer than {seconds} s ({name} of party {me})");
            if let Some(running) = self.state().running.as_mut().filter(|it| it.has(id)) {
                running.end(&reason);
            }
            if strokes.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                return canceller.cancel(&reason);
            }
        }
    }

    /// One turn of party 0. Returns the jobs that all are to run.
    fn lead(&self, control: &mut Watched, pause: &mut Duration) -> Result<Vec<Id>> {
        let turn = self.with_leader(|leader| leader.turn());
        control.step("next job");
        for party in 1..self.sharing().servers() {
            tell(control, party, &turn)?;
        }
        if !turn.run.is_empty() {
            *pause = *PAUSES.start();
            return Ok(turn.run);
        }
        for party in 1..self.sharing().servers() {
            let answer: Answer = listen(control, party)?;
            let now = Instant::now();
            let lost = self.with_leader(|leader| leader.answered(party, &turn, &answer, now));
            self.give_up(lost.map_err(|reason| strange(control, party, reason))?);
        }
        let lost = self.with_leader(|leader| leader.expire(Instant::now()));
        self.give_up(lost);
        self.wait_for_work(pause);
        Ok(Vec::new())
    }

    /// Returns at once if a job can run, else after a pause that a new job cuts short.
    fn wait_for_work(&self, pause: &mut Duration) {
        let state = self.state();
        let Queue::Leader(leader) = &state.queue else { return };
        if leader.has_ready() {
            return;
        }
        let (count, wait) = (state.jobs.len(), if leader.is_empty() { QUIET } else { *pause });
        let waited = self.wake.wait_timeout_while(state, wait, |state| state.jobs.len() <= count);
        let came = waited.is_ok_and(|(_, timeout)| !timeout.timed_out());
        *pause = if came { *PAUSES.start() } else { (*pause * 2).min(*PAUSES.end()) };
    }

    /// One turn of a follower.
    fn follow(&self, control: &mut Watched) -> Result<Vec<Id>> {
        control.step("next job");
        let turn: Turn = listen(control, 0)?;
        let now = Instant::now();
        let (answer, lost) = {
            let mut state = self.state();
            let Queue::Follower(follower) = &mut state.queue else {
                return Err(Error::Internal("party 0 leads".to_owned()));
            };
            let answer = follower.hear(&turn, now);
            (answer, follower.expire(now))
        };
        if turn.run.is_empty() {
            tell(control, 0, &answer)?;
        }
        self.give_up(turn.drop);
        self.give_up(lost);
        Ok(turn.run)
    }

    fn with_leader<T>(&self, act: impl FnOnce(&mut Leader) -> T) -> T {
        match &mut self.state().queue {
            Queue::Leader(leader) => act(leader),
            Queue::Follower(_) => unreachable!("only party 0 leads"),
        }
    }

    /// Runs the jobs of a turn, as one if there are several and all servers agree to, else one after the other. Their
    /// clients get the results, whatever they are. An error is the end of the session.
    fn run_turn<P: ServerProtocol<Engine = AnyEngine>>(
        &self,
        mut run: Run<'_, '_, P>,
        ids: &[Id],
    ) -> Result<()> {
        let mut jobs = Vec::new();
        let mut lost = None;
        {
            let mut state = self.state();
            for &id in ids {
                match state.jobs.remove(&id) {
                    Some(job) => jobs.push((id, job)),
                    None => lost = lost.or(Some(id)),
                }
            }
        }
        if let Some(id) = lost {
            // A follower that lost its part would break its word; the session ends and another one begins.
            return self
                .end_all(jobs, Error::Internal(format!("this server has no part of job {id}")));
        }
        for (_, job) in &jobs {
            self.metrics.begun(job.since.elapsed().as_secs_f64());
        }
        let mut cancelled = HashMap::new();
        if jobs.len() > 1 {
            let began = Instant::now();
            let ended =
                self.run_group(&mut run, &mut jobs, Phase::Preparing(None), |worker, jobs| {
                    worker.run_joined(jobs)
                });
            cancelled = ended.1;
            match ended.0 {
                Ok(None) => {}
                Ok(Some(outcomes)) => {
                    let parts = Part::of_all(&jobs);
                    for (((id, job), outcome), part) in jobs.into_iter().zip(outcomes).zip(parts) {
                        let cancelled = cancelled.remove(&id);
                        let outcome = cancelled.map_or(outcome, |reason| Err(reason.into()));
                        self.end_job(job, id, part, began.elapsed(), Ok(outcome))?;
                    }
                    return Ok(());
                }
                Err(error) => return self.end_all(jobs, error),
            }
        }
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            let mut one = [job];
            let began = Instant::now();
            let phase = Phase::Preparing(cancelled.remove(&one[0].0));
            let (ended, _) = self.run_group(&mut run, &mut one, phase, |worker, jobs| {
                jobs.iter_mut().map(|(id, job)| worker.run(*id, job)).collect::<Result<Vec<_>>>()
            });
            let [(id, job)] = one;
            let ended = ended.map(|outcomes| outcomes.into_iter().next());
            let outcome = match ended {
                Ok(Some(outcome)) => Ok(outcome),
                Ok(None) => Err(Error::Internal("a job without an end".to_owned())),
                Err(error) => Err(error),
            };
            if let Err(error) = self.end_job(job, id, Part::WHOLE, began.elapsed(), outcome) {
                return self.end_all(jobs.collect(), error);
            }
        }
        Ok(())
    }

    /// Does work on jobs, while which others see that they run. Returns its result, and which of the jobs were
    /// cancelled meanwhile though they could not be ended.
    fn run_group<P: ServerProtocol, T>(
        &self,
        run: &mut Run<'_, '_, P>,
        jobs: &mut [(Id, Job)],
        phase: Phase,
        work: impl FnOnce(&mut Worker<'_, P>, &mut [(Id, Job)]) -> Result<T>,
    ) -> (Result<T>, HashMap<Id, String>) {
        let describe = |(id, job): &(Id, Job)| {
            (job.describe(*id, Stage::Working(Place::default())), job.client.clone())
        };
        self.state().running = Some(Running {
            jobs: jobs.iter().map(describe).collect(),
            run: jobs.first().and_then(|(_, job)| job.work.run()).map(str::to_owned),
            cancelled: HashMap::new(),
            watched: run.watched.hand(),
            canceller: run.canceller.clone(),
            phase,
        });
        let first = jobs.first().map(|(id, job)| {
            let (limit, name) = limit_of(&job.work, &self.limits);
            (*id, limit, name)
        });
        // The receiver has gone only if the last job took too long, and this one will then fail.
        let _ = first.map(|stroke| run.clock.send(stroke));
        let worker = &mut *run.worker;
        let ended = panic::catch_unwind(AssertUnwindSafe(|| work(worker, jobs)));
        let ended = ended.unwrap_or_else(|_| {
            Err(Error::Internal("the program failed an assertion; its log says where".to_owned()))
        });
        let _ = first.map(|stroke| run.clock.send(stroke));
        // A device that cannot even do this fails the next job, with a reason.
        let _ = self.engine.trim(KEPT);
        let running = self.state().running.take();
        (ended, running.map(|running| running.cancelled).unwrap_or_default())
    }

    /// Ends jobs with the session.
    fn end_all(&self, jobs: Vec<(Id, Job)>, error: Error) -> Result<()> {
        let reason = error.to_string();
        for (id, job) in jobs {
            // The session's error is the one that there was first.
            let _ = self.end_job(
                job,
                id,
                Part::WHOLE,
                Duration::ZERO,
                Err(Error::Internal(reason.clone())),
            );
        }
        Err(error)
    }

    fn end_job(
        &self,
        job: Job,
        id: Id,
        part: Part,
        took: Duration,
        ended: Result<super::Outcome>,
    ) -> Result<()> {
        let (outcome, session) = match ended {
            Ok(outcome) => (outcome, Ok(())),
            Err(error) => {
                let cheated = cheated(&error);
                let advice = if cheated.is_some() { FIND_THE_LIAR } else { advice(&error) };
                let reason = format!("the job failed: {error}; {advice}");
                (Err(Failure { reason, cheated }), Err(error))
            }
        };
        match &outcome {
            Ok(_) => tracing::info!(%id, client = job.client, "job done"),
            Err(Failure { reason, .. }) => {
                tracing::warn!(%id, client = job.client, reason, "job failed");
            }
        }
        self.finish(id, job, part, took, outcome);
        session
    }
}

/// The advice to a client whose job failed. A fault of a link or a server passes; an operation of the plan that does
/// not fit its operands fails again.
fn advice(error: &Error) -> &'static str {
    use mpc_core::Error as Mpc;
    use nn_layers::Error as Nn;
    match error {
        Error::Nn(Nn::Mpc(Mpc::Net(_) | Mpc::Ring(_)) | Nn::Ring(_)) => SEND_AGAIN,
        Error::Nn(_) => {
            "its plan cannot be computed so, and would fail again: its owner must put it again"
        }
        _ => SEND_AGAIN,
    }
}

/// The parties of which one did not follow the protocol, and the check that showed it, if that is the error.
fn cheated(error: &Error) -> Option<([usize; 2], String)> {
    use mpc_core::Error::Cheated;
    use nn_layers::Error::Mpc;
    match error {
        Error::Mpc(Cheated { suspects, step }) | Error::Nn(Mpc(Cheated { suspects, step })) => {
            Some((suspects.map(|party| party.0), step.clone()))
        }
        _ => None,
    }
}

/// The advice after a lie.
const FIND_THE_LIAR: &str =
    "nothing was revealed; ask the operators of both, who must find out which of them did it";

/// The advice after a failure that passes.
const SEND_AGAIN: &str =
    "the servers find each other again by themselves, after which it can be sent again";

/// The beginning or the end of a job: how long it may run, and the name of that limit.
type Stroke = (Id, Duration, &'static str);

/// The longest time for a job, and the name of that limit. A slice of a training has one step, or as many as should
/// fit into twice its limit. If the time of a step was unknown, they may not fit.
fn limit_of(work: &Work, limits: &Limits) -> (Duration, &'static str) {
    match work {
        Work::Train(Train { steps, .. }) if *steps > 1 => {
            let limit = (3 * limits.train_limit()).min(limits.job_limit());
            (limit, "3 x limits.train_seconds; ask for fewer steps at once")
        }
        _ => (limits.job_limit(), "limits.job_seconds"),
    }
}

/// The parts that run a job.
struct Run<'a, 'b, P: ServerProtocol> {
    worker: &'a mut Worker<'b, P>,
    watched: &'a Watched,
    canceller: &'a Canceller,
    /// Receives the beginning and the end of each job.
    clock: &'a Sender<Stroke>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Digest;

    #[test]
    fn several_steps_of_a_training_may_run_for_three_times_its_limit_and_one_as_long_as_any_job() {
        let limits = Limits { train_seconds: 5, job_seconds: 3600, ..Limits::default() };
        let train = |steps| {
            let (name, fingerprint) = ("r".to_owned(), Digest::of(&[b"r"]));
            Work::Train(Train { name, fingerprint, from: 0, steps, keep: false })
        };
        assert_eq!(limit_of(&train(2), &limits).0, Duration::from_secs(15));
        assert_eq!(limit_of(&train(1), &limits).0, Duration::from_secs(3600));
        let short = Limits { job_seconds: 7, ..limits };
        assert_eq!(limit_of(&train(2), &short).0, Duration::from_secs(7));
    }

    #[test]
    fn only_what_can_pass_is_to_be_sent_again() {
        let structure = nn_layers::Error::invalid("one-hot", "the positions are no integers");
        let overflow = mpc_core::Error::Overflow { op: "matmul", bits: 70, limit: 63 };
        for error in [structure, nn_layers::Error::Mpc(overflow)] {
            let advice = advice(&Error::Nn(error));
            assert!(advice.contains("must put it again"), "{advice}");
        }
        assert_eq!(advice(&Error::Internal("a worker has gone".to_owned())), SEND_AGAIN);
    }
}
