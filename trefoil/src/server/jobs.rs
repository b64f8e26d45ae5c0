//! The work of a job at one server.

use std::{sync::Arc, time::Instant};

use gpu_kernels::AnyEngine;
use mpc_core::{Deal, Protocol, TruncationMode};
use net::{Canceller, PairKey, Party, Session};
use nn_layers::{Observer, StepInfo};

use super::{
    Core, Job, Outcome, Output, Phase, Work,
    cache::{Loaded, hashes},
    control::exchange,
    tapes::{Candidate, Players, candidates},
    terms::{Marks, Proposal, Tally, Terms},
    train::{Progress, Slice, Trainings},
};
use crate::{
    Digest, Error, Id, Result, Shares,
    audit::{Event, Opening},
    program::{self, Mpc, Share},
    store::{NewItem, Readers},
    training::Run,
    watch::Watched,
};

/// What runs jobs within one session.
pub(super) struct Worker<'a> {
    core: &'a Core,
    computing: Computing,
    control: Watched,
    /// The keys shared with each other server.
    keys: Vec<Option<PairKey>>,
    /// Ends the session, and the job that runs with it.
    canceller: Canceller,
    /// Jobs begun in this session, the same number at all servers.
    jobs: u64,
    /// Trainings under way.
    trainings: Trainings,
}

/// What computes in a session.
enum Computing {
    /// Its protocol.
    Session(Box<Mpc>),
    /// Those of the tapes that are played in it.
    Tapes(Players),
}

impl Computing {
    fn mpc(&mut self) -> Result<&mut Mpc> {
        match self {
            Self::Session(mpc) => Ok(mpc),
            Self::Tapes(_) => Err(Error::Internal("no tape was chosen for this job".to_owned())),
        }
    }
}

/// Notes where a job is, and ends it if the session has been, also where it computes without a message.
struct Observing {
    place: Watched,
    canceller: Canceller,
}

impl Observing {
    /// Starts counting anew.
    fn begin(control: &Watched, canceller: &Canceller) -> Self {
        control.begin();
        Self { place: control.hand(), canceller: canceller.clone() }
    }

    /// What has come of the work; if the session was ended, that, in the same words wherever it was noticed.
    fn end<T>(mut self, me: usize, done: Result<T>) -> Result<T> {
        match self.stops() {
            Some(reason) => Err(Error::Net(net::Error::Cancelled { by: Party(me), reason })),
            None => done,
        }
    }
}

impl Observer for Observing {
    fn stops(&mut self) -> Option<String> {
        self.canceller.reason()
    }

    fn started(&mut self, step: &StepInfo<'_>) {
        self.place.started(step);
    }
}

/// What a server has ready before the three start together.
enum Ready {
    Staged,
    Nothing,
    /// A model, and the tapes that an answer could come from, where answers do.
    Model(Arc<Loaded>, Option<Vec<Candidate>>),
    Training(Box<Progress>),
}

impl<'a> Worker<'a> {
    pub(super) fn start(
        core: &'a Core,
        session: Session,
        control: Watched,
        canceller: Canceller,
    ) -> Result<Self> {
        let keys = session.pair_keys.clone();
        let computing = if core.shelf.is_some() {
            Computing::Tapes(Players::new(&session))
        } else {
            let mut mpc = program::protocol(session, core.engine.clone(), core.options)?;
            mpc.agree()?;
            Computing::Session(Box::new(mpc))
        };
        let trainings = Trainings::new(core.limits.cache_mib << 20);
        Ok(Self { core, computing, control, keys, canceller, jobs: 0, trainings })
    }

    /// Runs a job. The inner result is for the client; the outer one is the session's.
    pub(super) fn run(&mut self, id: Id, job: &mut Job) -> Result<Outcome> {
        self.jobs += 1;
        let prepared = self.prepare(id, job);
        let terms = self.terms(job.digest, &prepared);
        let parts = hashes(job.work.parts());
        let proposals = self.vote(terms.clone(), parts, &prepared)?;
        if let Some(reason) = Proposal::verdict(self.core.sharing, &proposals) {
            match prepared {
                Ok(Ready::Staged) => self.core.store.discard(job.work.name().1, id)?,
                Ok(Ready::Training(progress)) => self.trainings.keep(*progress),
                _ => {}
            }
            return Ok(Err(reason));
        }
        match &job.work {
            Work::Infer { .. } | Work::Train { .. } | Work::Publish { .. } => self.core.compute(),
            _ => self.core.end(),
        }
        let client = job.client.as_str();
        match (prepared?, &mut job.work) {
            (Ready::Model(loaded, _), Work::Infer { model, inputs, examples, profile, .. }) => {
                let began = Instant::now();
                let inputs = std::mem::take(inputs);
                let ended = match Proposal::tape(&proposals).transpose() {
                    Ok(None) => self.infer(&terms.digest(), &loaded, vec![inputs], *profile),
                    Ok(Some(tape)) => self.play(tape, &loaded, inputs, *profile),
                    Err(reason) => Err(Error::refused("servers", reason)),
                };
                self.core.quotas.ran(client, model, *examples, began.elapsed());
                ended.map(|outputs| outputs.into_iter().next().ok_or_else(String::new))
            }
            (Ready::Training(progress), Work::Train { name, steps, keep, .. }) => {
                let began = Instant::now();
                let version = (*keep || progress.keeps_after(*steps)).then_some(id);
                let opened = proposals.iter().map(|one| one.opened).max().unwrap_or(0);
                let ended =
                    self.train(&terms.digest(), client, *progress, (*steps, opened), version);
                self.core.quotas.ran(client, name, 0, began.elapsed());
                ended
            }
            (Ready::Training(progress), Work::Publish { name, readers, .. }) => {
                let began = Instant::now();
                self.core.opens("model", client, &progress, progress.numbers())?;
                let model = (name.as_str(), id, &*readers);
                let ended = self.publish(&terms.digest(), *progress, client, model);
                self.core.quotas.ran(client, name, 0, began.elapsed());
                ended
            }
            (Ready::Training(progress), Work::Release { .. }) => {
                self.core.opens("weights", client, &progress, progress.numbers())?;
                let mpc = self.computing.mpc()?;
                mpc.begin_job(terms.digest().as_bytes())?;
                let released = progress.released(mpc);
                self.trainings.keep(*progress);
                Ok(Ok(Output::Answer(released?, Box::default())))
            }
            (Ready::Staged, work) => {
                let name = work.name().1;
                let manifest = self.core.store.commit(name, id)?;
                self.core.quotas.keep(name, client, manifest.bytes());
                Ok(Ok(Output::Nothing))
            }
            (_, Work::Share { name, readers }) => {
                self.core.store.share(name, readers)?;
                Ok(Ok(Output::Nothing))
            }
            (_, Work::Decide { name, fingerprint, decision }) => {
                self.core.store.decide(name, client, *decision)?;
                self.core.record_decision(client, decision.name(), name, *fingerprint);
                Ok(Ok(Output::Nothing))
            }
            (_, Work::Remove { name }) => {
                self.core.store.remove(name)?;
                self.core.cache.forget(name);
                self.trainings.forget(name);
                self.core.quotas.forget(name);
                Ok(Ok(Output::Nothing))
            }
            _ => Err(without_model()),
        }
    }

    /// Does all that can fail at one server alone.
    fn prepare(&mut self, id: Id, job: &Job) -> Result<Ready> {
        let checked = self.core.check_job(job)?;
        match &job.work {
            Work::Put { name, content, readers, plan, shares, .. } => {
                let (version, owner) = (id, job.client.as_str());
                let item = NewItem { name, version, content, owner, readers, plan, shares };
                self.core.store.stage(&item).map(|()| Ready::Staged)
            }
            Work::Share { .. } | Work::Remove { .. } | Work::Decide { .. } => Ok(Ready::Nothing),
            Work::Infer { model, inputs, .. } => {
                let manifest = checked.ok_or_else(without_model)?;
                let Core { cache, store, engine, shelf, .. } = self.core;
                let loaded = cache.load(store, engine, model, &manifest)?;
                let mut batch = loaded.program.batch_of(inputs)?;
                let found = shelf.as_ref().map(|shelf| {
                    candidates(self.core, shelf, (&loaded.program, loaded.version), batch)
                });
                let found = found.transpose()?;
                let sizes = found.iter().flatten().map(Candidate::examples);
                batch = sizes.max().unwrap_or(batch);
                self.core.check_room(&loaded, batch)?;
                Ok(Ready::Model(loaded, found))
            }
            Work::Train { from, steps, .. } => {
                if self.computing.mpc()?.truncation() == TruncationMode::Exact {
                    let reason = "these servers always round down (`truncation = \"exact\"`), which trains \
                                  nothing; their operators can choose another mode";
                    return Err(Error::refused("run", reason));
                }
                let manifest = checked.ok_or_else(without_model)?;
                let progress = self.trainings.take(self.core, &manifest, *from)?;
                progress.check_steps(*steps, self.core.limits.train_limit())?;
                progress.check_budgets(self.core)?;
                Ok(Ready::Training(Box::new(progress)))
            }
            Work::Release { step, .. } | Work::Publish { step, .. } => {
                let manifest = checked.ok_or_else(without_model)?;
                let progress = self.trainings.take(self.core, &manifest, *step)?;
                Ok(Ready::Training(Box::new(progress)))
            }
        }
    }

    /// Runs jobs that wait for the same model as one. `None` if a server has something against it: then each
    /// is run alone, and only those fail that have to.
    pub(super) fn run_joined(&mut self, jobs: &mut [(Id, Job)]) -> Result<Option<Vec<Outcome>>> {
        self.jobs += 1;
        let prepared = self.prepare_joined(jobs).map(|loaded| Ready::Model(loaded, None));
        let digests: Vec<&[u8]> =
            jobs.iter().map(|(_, job)| job.digest.as_bytes().as_slice()).collect();
        let terms = self.terms(Digest::of(&digests), &prepared);
        let parts = hashes(jobs.iter().flat_map(|(_, job)| job.work.parts()));
        let proposals = self.vote(terms.clone(), parts, &prepared)?;
        if Proposal::verdict(self.core.sharing, &proposals).is_some() {
            return Ok(None);
        }
        self.core.compute();
        let Ready::Model(loaded, _) = prepared? else { return Err(without_model()) };
        let (mut callers, mut counts) = (Vec::new(), Vec::new());
        for (_, job) in jobs.iter_mut() {
            let Work::Infer { inputs, examples, .. } = &mut job.work else {
                return Err(without_model());
            };
            callers.push(std::mem::take(inputs));
            counts.push(*examples);
        }
        let began = Instant::now();
        let ended = self.infer(&terms.digest(), &loaded, callers, false);
        let (time, all) = (began.elapsed(), counts.iter().sum::<u64>().max(1));
        for ((_, job), examples) in jobs.iter().zip(counts) {
            let share = time.mul_f64(examples as f64 / all as f64);
            self.core.quotas.ran(&job.client, job.work.name().1, examples, share);
        }
        Ok(Some(ended?.into_iter().map(Ok).collect()))
    }

    /// Checks each of the jobs, and that there is room for all at once.
    fn prepare_joined(&self, jobs: &[(Id, Job)]) -> Result<Arc<Loaded>> {
        let Core { cache, store, engine, limits, .. } = self.core;
        let mut found: Option<(&str, Arc<Loaded>)> = None;
        let mut batch = 0;
        for (_, job) in jobs {
            let manifest = self.core.check_job(job)?.ok_or_else(without_model)?;
            let Work::Infer { model, inputs, .. } = &job.work else {
                return Err(without_model());
            };
            let loaded = match &found {
                Some((known, loaded)) if *known == model && loaded.version == manifest.version => {
                    loaded
                }
                Some(_) => return Err(Error::refused("jobs", "they are not for the same model")),
                None => &found.insert((model, cache.load(store, engine, model, &manifest)?)).1,
            };
            batch += loaded.program.batch_of(inputs)?;
        }
        let (_, loaded) = found.ok_or_else(without_model)?;
        loaded.program.check_memory(batch, limits)?;
        self.core.check_room(&loaded, batch)?;
        Ok(loaded)
    }

    fn terms(&self, request: Digest, prepared: &Result<Ready>) -> Terms {
        let model = match prepared {
            Ok(Ready::Model(loaded, _)) => Some((loaded.version, loaded.program.digest())),
            Ok(Ready::Training(progress)) => Some(progress.identity()),
            _ => None,
        };
        let options = match &self.computing {
            Computing::Session(mpc) => format!("{:?} {:?}", mpc.options(), mpc.generator()),
            Computing::Tapes(_) => format!("{:?} from tapes", self.core.options),
        };
        Terms::new(options, self.jobs, request, model)
    }

    /// Tells the others whether this server is ready and for what, and hears the same of them. Returns what all
    /// say, from which all make the same.
    fn vote(
        &mut self,
        terms: Terms,
        parts: Vec<Digest>,
        prepared: &Result<Ready>,
    ) -> Result<Vec<Proposal>> {
        let digest = terms.digest();
        let Core { sharing, me, .. } = *self.core;
        let mark = |what: &str, hashes: &[Digest]| {
            Marks::new(sharing, me, &self.keys, &digest, what, hashes)
        };
        let stored = match prepared {
            Ok(Ready::Model(loaded, _)) => loaded.hashes.clone(),
            Ok(Ready::Training(progress)) => progress.hashes(self.computing.mpc()?)?,
            _ => Default::default(),
        };
        let parts = mark("parts", &parts);
        let stored = mark("stored", &stored);
        let cancelled = self.core.vote();
        let against = prepared.as_ref().err().map(ToString::to_string).or(cancelled);
        let tapes = match prepared {
            Ok(Ready::Model(_, tapes)) => tapes.clone(),
            _ => None,
        };
        let opened = match prepared {
            Ok(Ready::Training(progress)) => progress.opened.metrics,
            _ => 0,
        };
        let mine = Proposal { terms, against, parts, stored, tapes, opened };
        let mut all = exchange::<Proposal>(&mut self.control, "prepare job", &mine)?;
        all[me] = mine;
        Ok(all)
    }

    /// Counts and watches what the protocol does, and ends it if the session has been ended.
    fn observed<T>(
        &mut self,
        work: impl FnOnce(&mut Mpc, &mut dyn Observer) -> Result<T>,
    ) -> Result<T> {
        let mut observer = Observing::begin(&self.control, &self.canceller);
        let done = work(self.computing.mpc()?, &mut observer);
        observer.end(self.core.me, done)
    }

    /// Runs a model on the inputs of each caller. Returns what each gets; the cost is that of the whole.
    fn infer(
        &mut self,
        terms: &Digest,
        model: &Loaded,
        callers: Vec<Shares>,
        profile: bool,
    ) -> Result<Vec<Output>> {
        self.computing.mpc()?.begin_job(terms.as_bytes())?;
        let program = &model.program;
        let weights = model.weights()?;
        let each = self.observed(|mpc, observer| match <[Shares; 1]>::try_from(callers) {
            Ok([inputs]) => Ok(vec![program.run(mpc, weights, inputs, observer)?]),
            Err(callers) => program.run_joined(mpc, weights, callers, observer),
        })?;
        let mut cost = self.control.cost();
        if !profile {
            cost.steps.clear();
        }
        let mpc = self.computing.mpc()?;
        compare_counters(self.core, &mut self.control, mpc.operations())?;
        let answer = |outputs: &Vec<Share>| {
            let released = mpc.release(&outputs.iter().collect::<Vec<_>>())?;
            Ok(Output::Answer(released, Box::new(cost.clone())))
        };
        each.iter().map(answer).collect()
    }

    /// Runs a model on a client's inputs with what the next place of a tape has. The place is spent before that.
    fn play(
        &mut self,
        tape: Id,
        model: &Loaded,
        inputs: Shares,
        profile: bool,
    ) -> Result<Vec<Output>> {
        let Computing::Tapes(players) = &mut self.computing else {
            return Err(Error::Internal("these servers have no tapes".to_owned()));
        };
        let player = players.player(self.core, &self.control, tape, model)?;
        player.take_place(self.core)?;
        let mut observer = Observing::begin(&self.control, &self.canceller);
        let outputs = player.run(model, inputs, &mut observer);
        let outputs = observer.end(self.core.me, outputs)?;
        let mut cost = self.control.cost();
        cost.tape = player.played();
        if !profile {
            cost.steps.clear();
        }
        compare_counters(self.core, &mut self.control, player.mpc.operations())?;
        let released = player.mpc.release(&outputs.iter().collect::<Vec<_>>())?;
        Ok(vec![Output::Answer(released, Box::new(cost))])
    }

    /// Does some steps of a training, and keeps the state after them as a version if one is given. Metrics of steps
    /// before `opened` have left some server already. Returns the sums of the metrics, if they leave now, and what
    /// the guard found.
    fn train(
        &mut self,
        terms: &Digest,
        client: &str,
        mut progress: Progress,
        (steps, opened): (u32, u32),
        version: Option<Id>,
    ) -> Result<Outcome> {
        progress.spend(self.core)?;
        self.computing.mpc()?.begin_job(terms.as_bytes())?;
        let Slice { metrics, left } = self.observed(|mpc, observer| {
            let seed = mpc.seed()?;
            progress.train(mpc, steps, seed, observer)
        })?;
        let mut cost = self.control.cost();
        cost.steps.clear();
        let mpc = self.computing.mpc()?;
        compare_counters(self.core, &mut self.control, mpc.operations())?;
        let mut leaves = metrics.filter(|_| progress.run().step > opened).unwrap_or_default();
        if !leaves.is_empty() {
            self.core.opens("metrics", client, &progress, leaves.len() as u64)?;
        }
        leaves.extend(left);
        let released = mpc.release(&leaves.iter().collect::<Vec<_>>())?;
        let kept = match version {
            Some(version) => self.keep_state(&progress, version)?,
            None => None,
        };
        self.trainings.keep(progress);
        Ok(match kept {
            Some(reason) => Err(reason),
            None => Ok(Output::Answer(released, Box::new(cost))),
        })
    }

    /// Makes a model of a training's state.
    fn publish(
        &mut self,
        terms: &Digest,
        progress: Progress,
        client: &str,
        (name, version, readers): (&str, Id, &Readers),
    ) -> Result<Outcome> {
        self.computing.mpc()?.begin_job(terms.as_bytes())?;
        let shares = self.observed(|mpc, _| progress.model_shares(mpc))?;
        let operations = self.computing.mpc()?.operations();
        compare_counters(self.core, &mut self.control, operations)?;
        let staged = progress.stage_model(self.core, version, client, name, readers, &shares);
        self.trainings.keep(progress);
        Ok(match self.bring_into_force(name, version, staged)? {
            Some(reason) => Err(reason),
            None => Ok(Output::Nothing),
        })
    }

    /// Writes a training's state beside the one in force, and brings it into force once all three have it.
    /// Returns why it is not kept, if one of them could not write it.
    fn keep_state(&mut self, progress: &Progress, version: Id) -> Result<Option<String>> {
        let staged = progress.stage_state(self.core, self.computing.mpc()?, version);
        self.bring_into_force(progress.name(), version, staged)
    }

    /// Brings what each server has staged into force, if all three have. Returns why not, if one has not.
    fn bring_into_force(
        &mut self,
        name: &str,
        version: Id,
        staged: Result<()>,
    ) -> Result<Option<String>> {
        let mine = staged.as_ref().err().map(ToString::to_string);
        let mut all = exchange::<Option<String>>(&mut self.control, "keep the result", &mine)?;
        all[self.core.me] = mine;
        let failed = all.iter().enumerate().find_map(|(party, reason)| {
            reason
                .as_ref()
                .map(|reason| format!("party {party} could not keep the result: {reason}"))
        });
        if failed.is_some() {
            if staged.is_ok() {
                self.core.store.discard(name, version)?;
            }
            return Ok(failed);
        }
        let manifest = self.core.store.commit(name, version)?;
        self.core.quotas.keep(name, &manifest.owner, manifest.bytes());
        Ok(None)
    }
}

/// Makes sure that all servers did the same work. Whoever did not must not answer: its results, or the
/// others', belong to something else.
fn compare_counters(core: &Core, control: &mut Watched, operations: u64) -> Result<()> {
    core.end();
    let [sent, received] = control.traffic();
    let mine = Tally::new(operations, &sent, &received);
    let mut all = exchange::<Tally>(control, "finish job", &mine)?;
    all[core.me] = mine;
    match Tally::difference(&all) {
        None => Ok(()),
        Some(reason) => {
            let text = format!("{reason}; nothing was answered");
            Err(Error::refused("servers", text))
        }
    }
}

fn without_model() -> Error {
    Error::Internal("a job without its model".to_owned())
}

impl Core {
    /// Counts for good that something of a run leaves, before it does.
    fn opens(
        &self,
        what: &'static str,
        client: &str,
        progress: &Progress,
        numbers: u64,
    ) -> Result<()> {
        let Run { fingerprint, step, .. } = *progress.run();
        let (weights, metrics) = if what == "metrics" { (0, step) } else { (step, 0) };
        self.store.ledger().open(fingerprint, weights, metrics)?;
        let (run, fingerprint) = (progress.name(), &fingerprint.letters());
        self.audit.record(&Event::Opened(Opening {
            what,
            client,
            run,
            fingerprint,
            step,
            numbers,
        }));
        Ok(())
    }

    /// Makes sure that there is memory for a batch. A device says by itself that it has no room.
    fn check_room(&self, model: &Loaded, batch: usize) -> Result<()> {
        if matches!(self.engine, AnyEngine::Cpu(_)) {
            model.program.check_room(batch)?;
        }
        Ok(())
    }

    /// This server is about to give its word on the running job. Returns why its client, or its time, is
    /// against it.
    fn vote(&self) -> Option<String> {
        match self.enter(Phase::Voting(None)) {
            Some(Phase::Preparing(cancel)) => cancel,
            _ => None,
        }
    }

    /// All three run the job.
    fn compute(&self) {
        if let Some(Phase::Voting(Some(reason))) = self.enter(Phase::Computing)
            && let Some(running) = &mut self.state().running
        {
            running.end(&reason);
        }
    }

    /// This server has no more part in how the job ends.
    fn end(&self) {
        self.enter(Phase::Ending);
    }

    fn enter(&self, phase: Phase) -> Option<Phase> {
        let mut state = self.state();
        state.running.as_mut().map(|running| std::mem::replace(&mut running.phase, phase))
    }
}
