//! A model that runs on a client's inputs, alone or with those of other clients.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use gpu_kernels::AnyEngine;
use mpc_core::{Protocol, ServerProtocol};
use nn_layers::{Observer, Sizes};

use super::{Agreed, JobInfo, Kind, Offer, Part, Ready, Work};
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    model::Program,
    server::{
        Core, Job, Outcome, Output,
        agreement::Proposal,
        cache::{Hashes, Loaded},
        tapes::{Candidate, TapeShare, candidates},
        worker::{Computing, Observing, Worker, compare_counters},
    },
    store::Manifest,
};

pub(in crate::server) struct Infer {
    pub(in crate::server) model: String,
    pub(in crate::server) version: Id,
    pub(in crate::server) inputs: Shares,
    pub(in crate::server) examples: u64,
    /// True if the client gets the cost of each step.
    pub(in crate::server) profile: bool,
}

/// A model, and the tapes from which an answer could come, where answers do.
pub(in crate::server) struct ReadyModel<P: Protocol> {
    loaded: Arc<Loaded<P>>,
    tapes: Option<Vec<Candidate>>,
}

impl<P: Protocol> ReadyModel<P> {
    /// A model that takes nothing from a tape.
    pub(super) fn alone(loaded: Arc<Loaded<P>>) -> Self {
        Self { loaded, tapes: None }
    }

    pub(super) fn into_loaded(self) -> Arc<Loaded<P>> {
        self.loaded
    }
}

impl Infer {
    /// Checks that a client may run it, beside `beside` more examples of the same model at once.
    fn check(&self, core: &Core, client: &str, beside: u64) -> Result<Manifest> {
        let manifest = core.may_infer(client, &self.model, self.version)?;
        core.quotas.check_run(client, &self.model, self.examples.saturating_add(beside))?;
        Ok(manifest)
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Ready<P> for ReadyModel<P> {
    fn offer(&self, _: &mut Worker<'_, P>) -> Result<Offer> {
        let Self { loaded, tapes } = self;
        let model = Some((loaded.version, loaded.program.digest()));
        let (stored, tapes) = (Some(loaded.hashes.clone()), tapes.clone());
        Ok(Offer { model, stored, tapes, ..Offer::default() })
    }

    fn give_up(self, _: &mut Worker<'_, P>) -> Result<()> {
        Ok(())
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Infer {
    type Ready = ReadyModel<P>;

    const COMPUTES: bool = true;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let manifest = self.check(worker.core, job.client, 0)?;
        let loaded = worker.load(&self.model, &manifest)?;
        let batch = loaded.program.batch_of(&self.inputs)?;
        worker.ready(&manifest, loaded, batch)
    }

    fn run(
        &mut self,
        ReadyModel { loaded, .. }: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome> {
        let began = Instant::now();
        let inputs = std::mem::take(&mut self.inputs);
        let ended = worker.answer(agreed, &loaded, vec![inputs], self.profile);
        worker.core.quotas.ran(job.client, &self.model, self.examples, began.elapsed());
        ended.map(only)
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Worker<'_, P> {
    /// Runs jobs that wait for the same model as one. `None` if a server has something against it: then each
    /// is run alone, and only those fail that have to.
    pub(in crate::server) fn run_joined(
        &mut self,
        jobs: &mut [(Id, Job)],
    ) -> Result<Option<Vec<Outcome>>> {
        self.jobs += 1;
        let prepared = self.prepare_joined(jobs);
        let digests: Vec<&[u8]> =
            jobs.iter().map(|(_, job)| job.digest.as_bytes().as_slice()).collect();
        let parts = jobs.iter().flat_map(|(_, job)| job.work.inputs());
        let parts = Hashes::new(self.core.sharing(), parts);
        let offer = match &prepared {
            Ok(ready) => Ok(ready.offer(self)?),
            Err(error) => Err(error.to_string()),
        };
        let agreed = self.vote(Digest::of(&digests), parts, offer)?;
        if agreed.verdict().is_some() {
            return Ok(None);
        }
        self.core.compute();
        let ReadyModel { loaded, .. } = prepared?;
        let take = |(_, job): &mut (Id, Job)| {
            inference(&mut job.work).map(|infer| std::mem::take(&mut infer.inputs))
        };
        let callers = jobs.iter_mut().map(take).collect::<Result<_>>()?;
        let began = Instant::now();
        let ended = self.answer(&agreed, &loaded, callers, false);
        let nanoseconds = began.elapsed().as_nanos() as u64;
        for ((_, job), part) in jobs.iter().zip(Part::of_all(jobs)) {
            let took = Duration::from_nanos(part.of(nanoseconds));
            self.core.quotas.ran(&job.client, job.work.name().1, part.examples(), took);
        }
        Ok(Some(ended?.into_iter().map(Ok).collect()))
    }

    /// Checks each of the jobs, and that there is room for all at once.
    fn prepare_joined(&mut self, jobs: &mut [(Id, Job)]) -> Result<ReadyModel<P>> {
        let core = self.core;
        let mut found: Option<(Manifest, Arc<Loaded<P>>)> = None;
        let mut batch = 0;
        let mut examples: HashMap<&str, u64> = HashMap::new();
        for (_, job) in jobs {
            let infer = inference(&mut job.work)?;
            let beside = examples.entry(&job.client).or_default();
            let manifest = infer.check(core, &job.client, *beside)?;
            *beside = beside.saturating_add(infer.examples);
            let loaded = match &found {
                Some((known, loaded))
                    if known.name == infer.model && known.version == manifest.version =>
                {
                    loaded
                }
                Some(_) => return Err(Error::refused("jobs", "they are not for the same model")),
                None => {
                    let loaded = self.load(&infer.model, &manifest)?;
                    &found.insert((manifest, loaded)).1
                }
            };
            batch += loaded.program.batch_of(&infer.inputs)?;
        }
        let none = || Error::Internal("no jobs to join".to_owned());
        let (manifest, loaded) = found.ok_or_else(none)?;
        loaded.program.check_memory(batch, &core.limits)?;
        self.ready(&manifest, loaded, batch)
    }

    /// Makes sure that a model can run on a batch, at a place of a tape where answers come from tapes.
    fn ready(
        &mut self,
        manifest: &Manifest,
        loaded: Arc<Loaded<P>>,
        batch: usize,
    ) -> Result<ReadyModel<P>> {
        let core = self.core;
        let found = core
            .shelf
            .as_ref()
            .map(|shelf| candidates(core, shelf, manifest, &loaded.program, batch));
        let tapes = found.transpose()?;
        let batch = tapes.iter().flatten().map(Candidate::examples).max().unwrap_or(batch);
        core.check_room(&loaded.program, batch)?;
        self.take_profile(core.profile(&loaded.program, batch.into())?);
        Ok(ReadyModel { loaded, tapes })
    }

    /// Runs a model on the inputs of each caller, at a place of a tape where answers come from tapes. Returns what each
    /// gets; the cost is that of the whole.
    fn answer(
        &mut self,
        agreed: &Agreed,
        model: &Loaded<P>,
        callers: Vec<Shares>,
        profile: bool,
    ) -> Result<Vec<Output>> {
        match Proposal::tape(&agreed.proposals).transpose() {
            Ok(None) => self.infer(&agreed.terms, model, callers, profile),
            Ok(Some(tape)) => self.play(tape, model, callers, profile),
            Err(reason) => Err(Error::refused("servers", reason)),
        }
    }

    /// Runs a model on the inputs of each caller together with the other servers.
    fn infer(
        &mut self,
        terms: &Digest,
        model: &Loaded<P>,
        callers: Vec<Shares>,
        profile: bool,
    ) -> Result<Vec<Output>> {
        let program = &model.program;
        let weights = model.weights()?;
        self.computed(terms, profile, |mpc, observer| {
            Ok(match <[Shares; 1]>::try_from(callers) {
                Ok([inputs]) => vec![program.run(mpc, weights, inputs, observer)?],
                Err(callers) => program.run_joined(mpc, weights, callers, observer)?,
            })
        })
    }

    /// Computes the results for each caller, and returns what each gets. The cost is that of the whole.
    pub(super) fn computed(
        &mut self,
        terms: &Digest,
        profile: bool,
        work: impl FnOnce(&mut P, &mut dyn Observer) -> Result<Vec<Vec<P::Share>>>,
    ) -> Result<Vec<Output>> {
        self.computing.mpc()?.begin_job(terms.as_bytes())?;
        let each = self.observed(|mpc, observer| {
            let each = work(mpc, observer)?;
            mpc.verify()?;
            Ok(each)
        })?;
        let mut cost = self.control.cost();
        if !profile {
            cost.steps.clear();
        }
        let mpc = self.computing.mpc()?;
        cost.profile = self.core.profiles.get().map(|_| mpc.profile());
        compare_counters(self.core, &mut self.control, mpc.operations())?;
        let answer = |outputs: &Vec<P::Share>| {
            let released = mpc.release(&outputs.iter().collect::<Vec<_>>())?;
            Ok(Output::Answer(released, Box::new(cost.clone())))
        };
        each.iter().map(answer).collect()
    }

    /// Runs a model on the inputs of each caller with what the next place of a tape has. The place is spent before that.
    fn play(
        &mut self,
        tape: Id,
        model: &Loaded<P>,
        callers: Vec<Shares>,
        profile: bool,
    ) -> Result<Vec<Output>> {
        let Computing::Tapes(players) = &mut self.computing else {
            return Err(Error::Internal("these servers have no tapes".to_owned()));
        };
        let player = players.player(self.core, &self.control, tape, model)?;
        player.take_place(self.core)?;
        let mut observer = Observing::begin(&self.control, &self.canceller);
        let each = player.run(model, callers, &mut observer);
        let each = observer.end(self.core.me, each)?;
        let mut cost = self.control.cost();
        cost.tape = player.played();
        if !profile {
            cost.steps.clear();
        }
        compare_counters(self.core, &mut self.control, player.operations())?;
        let answer = |results: &Vec<TapeShare>| {
            Ok(Output::Answer(player.release(results)?, Box::new(cost.clone())))
        };
        each.iter().map(answer).collect()
    }
}

/// The answer of a job for one caller.
pub(super) fn only(outputs: Vec<Output>) -> Outcome {
    outputs.into_iter().next().ok_or_else(|| "its answer was lost".to_owned().into())
}

/// The inference of a job that is joined with others.
fn inference(work: &mut Work) -> Result<&mut Infer> {
    match work {
        Work::Infer(infer) => Ok(infer),
        _ => Err(Error::Internal("a job that is not an inference was joined".to_owned())),
    }
}

impl Core {
    /// Makes sure that there is memory for a batch. A device itself reports that it lacks room.
    pub(super) fn check_room(&self, program: &Program, sizes: impl Into<Sizes>) -> Result<()> {
        if matches!(self.engine, AnyEngine::Cpu(_)) {
            program.check_room(sizes)?;
        }
        Ok(())
    }
}
