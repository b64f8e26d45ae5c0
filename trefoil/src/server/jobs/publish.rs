//! Weights of a training or results of an analysis that leave for a client, and weights that become a model.

use std::time::Instant;

use gpu_kernels::AnyEngine;
use mpc_core::ServerProtocol;

use super::{Agreed, JobInfo, Kind};
use crate::{
    base::{Digest, Error, Id, Result},
    server::{
        Outcome, Output,
        trainings::Progress,
        worker::{Worker, compare_counters},
    },
    store::Readers,
    training::Task,
};

/// Releases a training's weights, or an analysis's results, to a client.
pub(in crate::server) struct Release {
    pub(in crate::server) name: String,
    pub(in crate::server) fingerprint: Digest,
    pub(in crate::server) step: u32,
}

/// Makes a model of a training's state.
pub(in crate::server) struct Publish {
    pub(in crate::server) run: String,
    pub(in crate::server) fingerprint: Digest,
    pub(in crate::server) step: u32,
    /// The name of the model.
    pub(in crate::server) name: String,
    pub(in crate::server) readers: Readers,
    /// True if it may take the place of a model that is there.
    pub(in crate::server) replace: bool,
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Release {
    type Ready = Box<Progress<P>>;

    const COMPUTES: bool = false;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let Self { name, fingerprint, step } = self;
        let manifest = worker.core.may_release(job.client, name, *fingerprint, *step)?;
        worker.progress(&manifest, *step)
    }

    fn run(
        &mut self,
        progress: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome> {
        worker.core.opens("weights", job.client, &progress, progress.numbers())?;
        let mpc = worker.computing.mpc()?;
        mpc.begin_job(agreed.terms.as_bytes())?;
        let released = progress.released(mpc);
        worker.trainings.keep(*progress);
        Ok(Ok(Output::Answer(released?, Box::default())))
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Publish {
    type Ready = Box<Progress<P>>;

    const COMPUTES: bool = true;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let Self { run, fingerprint, step, name, replace, .. } = self;
        worker.core.may_put(job.client, name, "model", *replace)?;
        let manifest = worker.core.may_publish(job.client, run, *fingerprint, *step)?;
        if manifest.run()?.spec.task == Task::Analysis {
            let reason = "it is an analysis, of which no model can be made";
            return Err(Error::refused(format_args!("run `{run}`"), reason));
        }
        worker.progress(&manifest, *step)
    }

    fn run(
        &mut self,
        progress: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome> {
        let began = Instant::now();
        worker.core.opens("model", job.client, &progress, progress.numbers())?;
        let model = (self.name.as_str(), job.id, &self.readers);
        let ended = worker.publish(&agreed.terms, *progress, job.client, model);
        worker.core.quotas.ran(job.client, &self.name, 0, began.elapsed());
        ended
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Worker<'_, P> {
    fn publish(
        &mut self,
        terms: &Digest,
        progress: Progress<P>,
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
            Some(reason) => Err(reason.into()),
            None => {
                self.ahead.push_back(name.to_owned());
                Ok(Output::Nothing)
            }
        })
    }
}
