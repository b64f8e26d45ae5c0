//! Some steps of a training or an analysis.

use std::time::Instant;

use gpu_kernels::AnyEngine;
use mpc_core::{ServerProtocol, ShareTensor, TruncationMode};

use super::{Agreed, JobInfo, Kind, Offer, Ready};
use crate::{
    base::{Digest, Error, Id, Result},
    server::{
        Core, Outcome, Output,
        audit::{Event, Opening},
        trainings::{Progress, Slice},
        worker::{Worker, compare_counters},
    },
    training::Run,
};

pub(in crate::server) struct Train {
    pub(in crate::server) name: String,
    pub(in crate::server) fingerprint: Digest,
    /// The number of steps before these.
    pub(in crate::server) from: u32,
    pub(in crate::server) steps: u32,
    /// True if the state after them is kept on disk.
    pub(in crate::server) keep: bool,
}

impl<P: ServerProtocol<Engine = AnyEngine>> Ready<P> for Box<Progress<P>> {
    fn offer(&self, worker: &mut Worker<'_, P>) -> Result<Offer> {
        Progress::offer(self, worker.computing.mpc()?)
    }

    /// The training stays in memory.
    fn give_up(self, worker: &mut Worker<'_, P>) -> Result<()> {
        worker.trainings.keep(*self);
        Ok(())
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Train {
    type Ready = Box<Progress<P>>;

    const COMPUTES: bool = true;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let core = worker.core;
        let manifest = core.may_train(job.client, &self.name, self.fingerprint)?;
        core.quotas.check_run(job.client, &self.name, 0)?;
        let progress = worker.progress(&manifest, self.from)?;
        if progress.trains() && worker.computing.mpc()?.truncation() == TruncationMode::Exact {
            let reason = "these servers always round down (`truncation = \"exact\"`), which trains \
                          nothing; their operators can choose another mode";
            return Err(Error::refused("run", reason));
        }
        if progress.join_bits() > 0 && worker.computing.mpc()?.info().helper {
            let reason = "the dealer of these servers' protocol does not learn what a join opens, so they join no data \
                          sets; three servers with `protocol = \"rss\"` do";
            return Err(Error::refused("run", reason));
        }
        progress.check_steps(self.steps, core.limits.train_limit())?;
        progress.check_budgets(core)?;
        Ok(progress)
    }

    fn run(
        &mut self,
        progress: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome> {
        let began = Instant::now();
        let version = (self.keep || progress.keeps_after(self.steps)).then_some(job.id);
        let opened = agreed.proposals.iter().map(|one| one.opened).max().unwrap_or(0);
        let steps = (self.steps, opened);
        let ended = worker.train(&agreed.terms, job.client, *progress, steps, version);
        worker.core.quotas.ran(job.client, &self.name, 0, began.elapsed());
        ended
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Worker<'_, P> {
    /// Joins the data sets of a training that are joined by key, and standardises its rows if it does that, unless that is
    /// done. Then does some of its steps, and
    /// keeps the state after them as a version if one is given. Metrics of steps before `opened`, and what the guard
    /// found there, have left some server already. Returns the sums of the metrics and what the guard found, if they
    /// leave now.
    fn train(
        &mut self,
        terms: &Digest,
        client: &str,
        mut progress: Progress<P>,
        (steps, opened): (u32, u32),
        version: Option<Id>,
    ) -> Result<Outcome> {
        let core = self.core;
        core.joins(client, &progress);
        self.computing.mpc()?.begin_job(terms.as_bytes())?;
        let done = self.observed(|mpc, observer| {
            if let Err(reason) = progress.prepare(mpc)? {
                return Ok(Err(reason));
            }
            progress.spend(core)?;
            let seed = mpc.seed()?;
            let slice = progress.advance(mpc, steps, seed, observer)?;
            mpc.verify()?;
            Ok(Ok(slice))
        })?;
        let mut cost = self.control.cost();
        cost.steps.clear();
        let mpc = self.computing.mpc()?;
        compare_counters(self.core, &mut self.control, mpc.operations())?;
        let Slice { metrics, left } = match done {
            Ok(slice) => slice,
            Err(reason) => return Ok(Err(reason.into())),
        };
        let mut leaves = Vec::new();
        if progress.run().step > opened {
            let what = if metrics.is_some() { "metrics" } else { "guard" };
            leaves.extend(metrics.into_iter().flatten());
            leaves.extend(left);
            let numbers = leaves.iter().map(|share| share.shape().len() as u64).sum();
            if numbers > 0 {
                self.core.opens(what, client, &progress, numbers)?;
            }
        }
        let released = mpc.release(&leaves.iter().collect::<Vec<_>>())?;
        let kept = match version {
            Some(version) => self.keep_state(&progress, version)?,
            None => None,
        };
        self.trainings.keep(progress);
        Ok(match kept {
            Some(reason) => Err(reason.into()),
            None => Ok(Output::Answer(released, Box::new(cost))),
        })
    }

    /// Writes a training's state beside the current one, and makes it current once all servers have it. Returns why
    /// it is not kept, if one of them could not write it.
    fn keep_state(&mut self, progress: &Progress<P>, version: Id) -> Result<Option<String>> {
        let staged = progress.stage_state(self.core, self.computing.mpc()?, version);
        self.bring_into_force(progress.name(), version, staged)
    }
}

impl Core {
    /// Records that joins by key are about to be made, if they are, and the bits that they open.
    fn joins<P: ServerProtocol>(&self, client: &str, progress: &Progress<P>) {
        let numbers = progress.join_bits();
        if numbers > 0 {
            self.records("join", client, progress, numbers);
        }
    }

    /// Counts for good that something of a run leaves, before it does.
    pub(super) fn opens<P: ServerProtocol>(
        &self,
        what: &'static str,
        client: &str,
        progress: &Progress<P>,
        numbers: u64,
    ) -> Result<()> {
        let Run { fingerprint, step, .. } = *progress.run();
        let beside = matches!(what, "metrics" | "guard");
        let (weights, metrics) = if beside { (0, step) } else { (step, 0) };
        self.store.ledger().open(fingerprint, weights, metrics)?;
        self.records(what, client, progress, numbers);
        Ok(())
    }

    /// Writes to the audit log that numbers of a run are opened.
    fn records<P: ServerProtocol>(
        &self,
        what: &'static str,
        client: &str,
        progress: &Progress<P>,
        numbers: u64,
    ) {
        let Run { fingerprint, step, .. } = *progress.run();
        let (run, fingerprint) = (progress.name(), &fingerprint.letters());
        self.audit.record(&Event::Opened(Opening {
            what,
            client,
            run,
            fingerprint,
            step,
            numbers,
        }));
    }
}
