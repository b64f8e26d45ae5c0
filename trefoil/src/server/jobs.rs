//! The work of a job at one server.

use std::{sync::Arc, time::Instant};

use gpu_kernels::AnyEngine;
use mpc_core::{Protocol, TruncationMode};
use net::{Canceller, PairKey, Party, Session, Transport};
use nn_layers::{Observer, StepInfo};
use zeroize::Zeroizing;

use super::{
    Core, Job, Outcome, Output, Phase, Work,
    cache::{Loaded, hashes},
    session::{exchange, strange},
    terms::{Marks, Proposal, Tally, Terms},
    train::{Progress, Trainings},
};
use crate::{
    Digest, Error, Id, Result, Shares,
    answer::{Refresh, guard_seed},
    config::PARTIES,
    id::fill_random,
    program::{self, Mpc},
    store::{NewItem, Readers},
    watch::Watched,
};

/// What runs jobs within one session.
pub(super) struct Worker<'a> {
    core: &'a Core,
    mpc: Mpc,
    control: Watched,
    /// The keys shared with the next party and the one before.
    keys: [PairKey; 2],
    /// What the three servers know and nobody else: shares of zero come from it.
    common: Zeroizing<[u8; 32]>,
    /// Ends the session, and the job that runs with it.
    canceller: Canceller,
    /// Jobs begun in this session, the same number at all servers.
    jobs: u64,
    /// Trainings under way.
    trainings: Trainings,
}

/// Notes where a job is, and ends it if the session has been, also where it computes without a message.
struct Observing {
    place: Watched,
    canceller: Canceller,
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
    Model(Arc<Loaded>),
    Training(Box<Progress>),
}

impl<'a> Worker<'a> {
    pub(super) fn start(
        core: &'a Core,
        session: Session,
        mut control: Watched,
        canceller: Canceller,
    ) -> Result<Self> {
        let key =
            |offset: usize| session.pair_keys.get((core.me + offset) % PARTIES).cloned().flatten();
        let no_key = || Error::Internal("a session without keys".to_owned());
        let keys = [key(1).ok_or_else(no_key)?, key(2).ok_or_else(no_key)?];
        let common = common_key(&mut control, &session.id)?;
        let mpc = program::protocol(session, core.engine.clone(), core.options)?;
        let trainings = Trainings::default();
        Ok(Self { core, mpc, control, keys, common, canceller, jobs: 0, trainings })
    }

    /// Runs a job. The inner result is for the client; the outer one is the session's.
    pub(super) fn run(&mut self, id: Id, job: &mut Job) -> Result<Outcome> {
        self.jobs += 1;
        let prepared = self.prepare(id, job);
        let terms = self.terms(job.digest, &prepared);
        let parts = hashes(job.work.parts());
        if let Some(reason) = self.vote(terms.clone(), parts, &prepared)? {
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
            (Ready::Model(loaded), Work::Infer { model, inputs, examples, profile, .. }) => {
                let began = Instant::now();
                let inputs = vec![std::mem::take(inputs)];
                let ended = self.infer(&terms.digest(), &loaded, inputs, *profile);
                self.core.quotas.ran(client, model, *examples, began.elapsed());
                ended.map(|outputs| outputs.into_iter().next().ok_or_else(String::new))
            }
            (Ready::Training(progress), Work::Train { name, steps, keep, .. }) => {
                let began = Instant::now();
                let version = keep.then_some(id);
                let ended = self.train(&terms.digest(), *progress, *steps, version);
                self.core.quotas.ran(client, name, 0, began.elapsed());
                ended
            }
            (Ready::Training(progress), Work::Publish { name, readers, .. }) => {
                let began = Instant::now();
                let model = (name.as_str(), id, &*readers);
                let ended = self.publish(&terms.digest(), *progress, client, model);
                self.core.quotas.ran(client, name, 0, began.elapsed());
                ended
            }
            (Ready::Training(progress), Work::Release { .. }) => {
                let components = progress.released(self.core, &self.common, &terms.digest());
                self.trainings.keep(*progress);
                Ok(Ok(Output::Answer(components?, Box::default())))
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
            (_, Work::Decide { name, decision, .. }) => {
                self.core.store.decide(name, client, *decision)?;
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
                let Core { cache, store, engine, .. } = self.core;
                let loaded = cache.load(store, engine, model, &manifest)?;
                self.core.check_room(&loaded, loaded.program.batch_of(inputs)?)?;
                Ok(Ready::Model(loaded))
            }
            Work::Train { from, steps, .. } => {
                if self.mpc.truncation() == TruncationMode::Exact {
                    let reason = "these servers always round down (`truncation = \"exact\"`), which trains \
                                  nothing; their operators can choose another mode";
                    return Err(Error::refused("run", reason));
                }
                let manifest = checked.ok_or_else(without_model)?;
                let progress = self.trainings.take(self.core, &manifest, *from)?;
                progress.check_steps(*steps)?;
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
        let prepared = self.prepare_joined(jobs).map(Ready::Model);
        let digests: Vec<&[u8]> =
            jobs.iter().map(|(_, job)| job.digest.as_bytes().as_slice()).collect();
        let terms = self.terms(Digest::of(&digests), &prepared);
        let parts = hashes(jobs.iter().flat_map(|(_, job)| job.work.parts()));
        if self.vote(terms.clone(), parts, &prepared)?.is_some() {
            return Ok(None);
        }
        self.core.compute();
        let Ready::Model(loaded) = prepared? else { return Err(without_model()) };
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
            Ok(Ready::Model(loaded)) => Some((loaded.version, loaded.program.digest())),
            Ok(Ready::Training(progress)) => Some(progress.identity()),
            _ => None,
        };
        let options = format!("{:?} {:?}", self.mpc.options(), self.mpc.generator());
        Terms::new(options, self.jobs, request, model)
    }

    /// Tells the others whether this server is ready and for what, and hears the same of them. Returns
    /// the first reason against the job, on which all three agree.
    fn vote(
        &mut self,
        terms: Terms,
        parts: [Digest; 2],
        prepared: &Result<Ready>,
    ) -> Result<Option<String>> {
        let digest = terms.digest();
        let mark = |what, hashes| Marks::new(&self.keys, &digest, what, hashes);
        let stored = match prepared {
            Ok(Ready::Model(loaded)) => loaded.hashes,
            Ok(Ready::Training(progress)) => progress.hashes(self.mpc.engine())?,
            _ => Default::default(),
        };
        let (parts, stored) = (mark("parts", parts), mark("stored", stored));
        let cancelled = self.core.vote();
        let against = prepared.as_ref().err().map(ToString::to_string).or(cancelled);
        let mine = Proposal { terms, against, parts, stored };
        let mut all = exchange::<Proposal>(&mut self.control, "prepare job", &mine)?;
        all[self.core.me] = mine;
        Ok(Proposal::verdict(&all))
    }

    /// Counts and watches what the protocol does, and ends it if the session has been ended.
    fn observed<T>(
        &mut self,
        work: impl FnOnce(&mut Mpc, &mut dyn Observer) -> Result<T>,
    ) -> Result<T> {
        self.control.begin();
        let mut observer =
            Observing { place: self.control.hand(), canceller: self.canceller.clone() };
        let done = work(&mut self.mpc, &mut observer);
        // Said in the same words wherever it was noticed.
        match observer.stops() {
            Some(reason) => {
                Err(Error::Net(net::Error::Cancelled { by: Party(self.core.me), reason }))
            }
            None => done,
        }
    }

    /// Runs a model on the inputs of each caller. Returns what each gets; the cost is that of the whole.
    fn infer(
        &mut self,
        terms: &Digest,
        model: &Loaded,
        callers: Vec<Shares>,
        profile: bool,
    ) -> Result<Vec<Output>> {
        self.mpc.begin_job(terms.as_bytes())?;
        let seed = guard_seed(&self.common, terms);
        let (program, weights) = (&model.program, &model.weights);
        let each = self.observed(|mpc, observer| match <[Shares; 1]>::try_from(callers) {
            Ok([inputs]) => Ok(vec![program.run(mpc, weights, inputs, seed, observer)?]),
            Err(callers) => program.run_joined(mpc, weights, callers, seed, observer),
        })?;
        let mut cost = self.control.cost();
        if !profile {
            cost.steps.clear();
        }
        self.compare_counters()?;
        let refresh = Refresh::new(&self.common, terms);
        // No two results are made fresh alike, whosever they are.
        let mut fresh = 0..;
        let mut answer = |outputs: &Shares| {
            let component = |(index, output)| refresh.component(self.core.me, output, index);
            let components = fresh.by_ref().zip(outputs).map(component).collect::<Result<_>>()?;
            Ok(Output::Answer(components, Box::new(cost.clone())))
        };
        each.iter().map(&mut answer).collect()
    }

    /// Does some steps of a training, and keeps the state after them as a version if one is given. Returns the
    /// sums of the metrics.
    fn train(
        &mut self,
        terms: &Digest,
        mut progress: Progress,
        steps: u32,
        version: Option<Id>,
    ) -> Result<Outcome> {
        self.mpc.begin_job(terms.as_bytes())?;
        let seed = guard_seed(&self.common, terms);
        let metrics = self.observed(|mpc, observer| progress.run(mpc, steps, seed, observer))?;
        let mut cost = self.control.cost();
        cost.steps.clear();
        self.compare_counters()?;
        let engine = self.mpc.engine();
        let refresh = Refresh::new(&self.common, terms);
        let fresh = |(index, metric)| {
            refresh.component(self.core.me, &program::download(engine, metric)?, index)
        };
        let components = metrics.iter().enumerate().map(fresh).collect::<Result<_>>()?;
        let kept = match version {
            Some(version) => self.keep_state(&progress, version)?,
            None => None,
        };
        self.trainings.keep(progress);
        Ok(match kept {
            Some(reason) => Err(reason),
            None => Ok(Output::Answer(components, Box::new(cost))),
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
        self.mpc.begin_job(terms.as_bytes())?;
        let shares = self.observed(|mpc, _| progress.model_shares(mpc))?;
        self.compare_counters()?;
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
        let staged = progress.stage_state(self.core, version);
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

    /// Makes sure that all three did the same work. Whoever did not must not answer: its results, or the
    /// others', belong to something else.
    fn compare_counters(&mut self) -> Result<()> {
        self.core.end();
        let [sent, received] = self.control.traffic();
        let mine = Tally::new(self.mpc.operations(), &sent, &received);
        let mut all = exchange::<Tally>(&mut self.control, "finish job", &mine)?;
        all[self.core.me] = mine;
        match Tally::difference(&all) {
            None => Ok(()),
            Some(reason) => {
                let text = format!("{reason}; nothing was answered");
                Err(Error::refused("servers", text))
            }
        }
    }
}

fn without_model() -> Error {
    Error::Internal("a job without its model".to_owned())
}

impl Core {
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

/// A key that the three servers know and nobody else: each contributes to it over its links.
fn common_key(control: &mut Watched, session: &[u8; 16]) -> Result<Zeroizing<[u8; 32]>> {
    let me = control.me().0;
    let mut fresh = [0; 32];
    fill_random(&mut fresh)?;
    let mut all = [[0; 32]; PARTIES];
    all[me] = fresh;
    control.step("agree on a key");
    for party in (0..PARTIES).filter(|&party| party != me) {
        control.send(Party(party), bytes::Bytes::copy_from_slice(&fresh).into())?;
    }
    for party in (0..PARTIES).filter(|&party| party != me) {
        let body = control.receive(Party(party))?.body;
        all[party] = body[..].try_into().map_err(|_| {
            strange(control, party, format_args!("a key of {} bytes came", body.len()))
        })?;
    }
    let mut hash = blake3::Hasher::new_derive_key("trefoil 2026 common key of the servers");
    hash.update(session);
    for fresh in &all {
        hash.update(fresh);
    }
    Ok(Zeroizing::new(hash.finalize().into()))
}
