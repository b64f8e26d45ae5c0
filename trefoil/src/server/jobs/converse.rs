//! Steps of conversations: a model runs on what comes next, behind what servers keep of the text so far.

use std::time::Instant;

use gpu_kernels::AnyEngine;
use mpc_core::ServerProtocol;

use super::{
    Agreed, JobInfo, Kind,
    infer::{ReadyModel, only},
};
use crate::{
    Id, Result, Shares,
    program::shapes_of,
    server::{Outcome, Output, conversations::Behind, worker::Worker},
};

/// A step.
pub(in crate::server) struct Extend {
    pub(in crate::server) model: String,
    pub(in crate::server) version: Id,
    pub(in crate::server) conversation: Id,
    /// The positions before it. The conversation forgets what lies behind them.
    pub(in crate::server) at: usize,
    pub(in crate::server) inputs: Shares,
    /// True if the client gets the cost of each layer.
    pub(in crate::server) profile: bool,
}

/// The end of a conversation.
pub(in crate::server) struct Close {
    pub(in crate::server) conversation: Id,
}

impl Extend {
    fn behind<'a>(&self, client: &'a str) -> Behind<'a> {
        Behind { client, id: self.conversation, at: self.at }
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Extend {
    type Ready = ReadyModel<P::Share>;

    const COMPUTES: bool = true;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let core = worker.core;
        let manifest = core.may_infer(job.client, &self.model, self.version)?;
        core.quotas.check_run(job.client, &self.model, 1)?;
        let loaded = worker.load(&self.model, &manifest)?;
        let program = &loaded.program;
        let sizes = program.sizes(&shapes_of(&self.inputs)?, self.at)?;
        let bytes = program.kept_bytes(self.at, core.sharing().components())?;
        worker.conversations.check(self.behind(job.client), self.version, bytes)?;
        core.check_room(&loaded, sizes)?;
        Ok(ReadyModel::alone(loaded))
    }

    fn run(
        &mut self,
        ready: Self::Ready,
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        agreed: &Agreed,
    ) -> Result<Outcome> {
        let (began, loaded) = (Instant::now(), ready.into_loaded());
        let inputs = std::mem::take(&mut self.inputs);
        let shapes = shapes_of(&inputs)?;
        let program = &loaded.program;
        let mpc = worker.computing.mpc()?;
        let (place, model) = (self.behind(job.client), (self.model.as_str(), self.version));
        let mut conversation = worker.conversations.take(mpc, place, program.plan(), model)?;
        let (caches, weights) = (&mut conversation.caches, loaded.weights()?);
        let outputs = worker.computed(&agreed.terms, self.profile, |mpc, observer| {
            Ok(vec![program.run_step(mpc, weights, caches, (&shapes, inputs), observer)?])
        });
        worker.core.quotas.ran(job.client, &self.model, 1, began.elapsed());
        let bytes = program.kept_bytes(self.at, worker.core.sharing().components())?;
        worker.conversations.keep(conversation, bytes);
        outputs.map(only)
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Close {
    type Ready = ();

    const COMPUTES: bool = false;

    fn prepare(&self, _: &mut Worker<'_, P>, _: JobInfo<'_>) -> Result<()> {
        Ok(())
    }

    fn run(
        &mut self,
        _: (),
        worker: &mut Worker<'_, P>,
        job: JobInfo<'_>,
        _: &Agreed,
    ) -> Result<Outcome> {
        worker.conversations.close(job.client, self.conversation);
        Ok(Ok(Output::Nothing))
    }
}
