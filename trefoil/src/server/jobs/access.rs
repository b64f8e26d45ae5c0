//! Changes of who may use an item, and its removal.

use gpu_kernels::AnyEngine;
use mpc_core::ServerProtocol;

use super::{Agreed, JobInfo, Kind};
use crate::{
    base::{Digest, Result},
    server::{Outcome, Output, worker::Worker},
    store::Readers,
    training::Decision,
};

/// Names the readers of an item.
pub(in crate::server) struct Share {
    pub(in crate::server) name: String,
    pub(in crate::server) readers: Readers,
}

/// Removes an item.
pub(in crate::server) struct Remove {
    pub(in crate::server) name: String,
}

/// Consents to a run, or resumes it.
pub(in crate::server) struct Decide {
    pub(in crate::server) name: String,
    pub(in crate::server) fingerprint: Digest,
    pub(in crate::server) decision: Decision,
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Share {
    type Ready = ();

    const COMPUTES: bool = false;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<()> {
        worker.core.may_change(job.client, &self.name)?.usable(&self.name).map(drop)
    }

    fn run(
        &mut self,
        _: (),
        worker: &mut Worker<'_, P>,
        _: JobInfo<'_>,
        _: &Agreed,
    ) -> Result<Outcome> {
        worker.core.store.share(&self.name, &self.readers)?;
        Ok(Ok(Output::Nothing))
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Remove {
    type Ready = ();

    const COMPUTES: bool = false;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<()> {
        worker.core.may_change(job.client, &self.name).map(drop)
    }

    fn run(
        &mut self,
        _: (),
        worker: &mut Worker<'_, P>,
        _: JobInfo<'_>,
        _: &Agreed,
    ) -> Result<Outcome> {
        worker.core.store.remove(&self.name)?;
        worker.forget(&self.name);
        Ok(Ok(Output::Nothing))
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Decide {
    type Ready = ();

    const COMPUTES: bool = false;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<()> {
        worker.core.may_decide(job.client, &self.name, self.fingerprint, self.decision)
    }

    fn run(
        &mut self,
        _: (),
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        _: &Agreed,
    ) -> Result<Outcome> {
        let Self { name, fingerprint, decision } = self;
        worker.core.store.decide(name, job.client, *decision)?;
        worker.core.record_decision(job.client, decision.name(), name, *fingerprint);
        Ok(Ok(Output::Nothing))
    }
}
