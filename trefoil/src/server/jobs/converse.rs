//! Steps of conversations: a model runs on what comes next, behind what servers keep of the text so far. A result can be
//! the input of the next step without being opened.

use std::time::Instant;

use gpu_kernels::AnyEngine;
use mpc_core::{Protocol, ServerProtocol};

use super::{
    Agreed, JobInfo, Kind,
    infer::{ReadyModel, only},
};
use crate::{
    base::{Id, Result, Shares},
    model::{Given, Steps, shapes_of},
    server::{Outcome, Output, conversations::Behind, worker::Worker},
};

/// Steps, one after the other.
pub(in crate::server) struct Extend {
    pub(in crate::server) model: String,
    pub(in crate::server) version: Id,
    pub(in crate::server) conversation: Id,
    /// The conversation forgets what lies behind the positions before them.
    pub(in crate::server) steps: Steps,
    /// Those of the first steps, one step after the other.
    pub(in crate::server) inputs: Shares,
    /// True if the client gets the cost of each layer.
    pub(in crate::server) profile: bool,
}

/// The end of a conversation.
pub(in crate::server) struct Close {
    pub(in crate::server) conversation: Id,
}

/// The results of several steps, each along its first axis, and what the guards of all steps say.
fn joined<P: Protocol>(
    mpc: &P,
    answers: Vec<Vec<P::Share>>,
    left: Vec<P::Share>,
) -> Result<Vec<Vec<P::Share>>> {
    let results = answers.first().map_or(0, Vec::len);
    let each = (0..results).map(|at| answers.iter().map(|answer| &answer[at]).collect::<Vec<_>>());
    let guard = (!left.is_empty()).then(|| left.iter().collect());
    let join = |parts: Vec<&P::Share>| match parts.as_slice() {
        [one] => Ok((*one).clone()),
        several => Ok(mpc.concat(several, 0)?),
    };
    Ok(vec![each.chain(guard).map(join).collect::<Result<_>>()?])
}

impl Extend {
    fn behind<'a>(&self, client: &'a str) -> Behind<'a> {
        let given = self.steps.given > 0;
        Behind { client, id: self.conversation, at: self.steps.at, given }
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Extend {
    type Ready = ReadyModel<P>;

    const COMPUTES: bool = true;

    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Self::Ready> {
        let core = worker.core;
        let manifest = core.may_infer(job.client, &self.model, self.version)?;
        core.quotas.check_run(job.client, &self.model, self.steps.all as u64)?;
        let loaded = worker.load(&self.model, &manifest)?;
        let bytes = loaded.program.kept_bytes(self.steps.end, core.sharing().components())?;
        worker.conversations.check(self.behind(job.client), self.version, bytes)?;
        for (program, sizes) in loaded.program.largest(&shapes_of(&self.inputs)?, &self.steps) {
            core.check_room(program, sizes)?;
        }
        worker.take_profile(core.profile(&loaded.program, loaded.program.usual_sizes())?);
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
        let mut inputs = std::mem::take(&mut self.inputs).into_iter();
        let program = &loaded.program;
        let mpc = worker.computing.mpc()?;
        let (place, model) = (self.behind(job.client), (self.model.as_str(), self.version));
        let mut conversation = worker.conversations.take(mpc, place, program.plan(), model)?;
        let weights = loaded.weights()?;
        let (steps, each) = (self.steps, program.plan().step_inputs().count());
        let guarded = !program.plan().guarded().is_empty();
        let outputs = worker.computed(&agreed.terms, self.profile, |mpc, observer| {
            // What comes behind all but the last input is not asked for, but whether numbers kept their range is.
            let (mut answers, mut left) = (Vec::new(), Vec::new());
            for step in 0..steps.all {
                let shared: Shares = inputs.by_ref().take(each).collect();
                let shapes = shapes_of(&shared)?;
                let last = conversation.last.take();
                let given = match last.filter(|_| step >= steps.given) {
                    Some(result) => Given::Result(result),
                    None => Given::Shared(&shapes, shared),
                };
                let caches = &mut conversation.caches;
                let program = program.for_step(&shapes);
                let mut results = program.run_step(mpc, weights, caches, given, observer)?;
                conversation.last = results.first().cloned();
                left.extend(if guarded { results.pop() } else { None });
                if step + 1 >= steps.given {
                    answers.push(results);
                }
            }
            joined(mpc, answers, left)
        });
        worker.core.quotas.ran(job.client, &self.model, steps.all as u64, began.elapsed());
        let bytes = program.kept_bytes(steps.end, worker.core.sharing().components())?;
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
