//! The work of a job at one server.

use std::{sync::Arc, time::Instant};

use net::{PairKey, Session};

use super::{Core, Job, Outcome, Output, Work, cache::Loaded, session::exchange};
use crate::{
    Error, Id, Result, Shares,
    config::PARTIES,
    program::{self, Mpc},
    share::refresh,
    store::NewModel,
    watch::Watched,
};

/// What runs jobs within one session.
pub(super) struct Worker<'a> {
    core: &'a Core,
    mpc: Mpc,
    control: Watched,
    /// The keys shared with the next party and the one before.
    keys: [PairKey; 2],
}

/// What a server has ready before the three start together.
enum Ready {
    Staged,
    Nothing,
    Model(Arc<Loaded>),
}

impl<'a> Worker<'a> {
    pub(super) fn start(core: &'a Core, session: Session, control: Watched) -> Result<Self> {
        let key =
            |offset: usize| session.pair_keys.get((core.me + offset) % PARTIES).cloned().flatten();
        let no_key = || Error::Internal("a session without keys".to_owned());
        let keys = [key(1).ok_or_else(no_key)?, key(2).ok_or_else(no_key)?];
        let mpc = program::protocol(session, core.engine.clone())?;
        Ok(Self { core, mpc, control, keys })
    }

    /// Runs a job. The inner result is for the client; the outer one is the session's.
    pub(super) fn run(&mut self, id: Id, job: &mut Job) -> Result<Outcome> {
        let prepared = self.prepare(id, job);
        if let Some(reason) = self.vote(prepared.as_ref().err())? {
            if let (Ok(Ready::Staged), Work::Put { name, .. }) = (prepared, &job.work) {
                self.core.store.discard(name, id)?;
            }
            return Ok(Err(reason));
        }
        match (prepared?, &mut job.work) {
            (Ready::Model(loaded), Work::Infer { model, inputs, examples, profile, .. }) => {
                let began = Instant::now();
                let ended = self.infer(id, &loaded, std::mem::take(inputs), *profile);
                self.core.quotas.ran(&job.client, model, *examples, began.elapsed());
                ended.map(Ok)
            }
            (_, Work::Put { name, .. }) => {
                self.core.store.commit(name, id)?;
                if let Some(manifest) = self.core.store.peek(name) {
                    self.core.quotas.keep(name, &job.client, manifest.bytes());
                }
                Ok(Ok(Output::Nothing))
            }
            (_, Work::Share { name, readers }) => {
                self.core.store.share(name, readers)?;
                Ok(Ok(Output::Nothing))
            }
            (_, Work::Remove { name }) => {
                self.core.store.remove(name)?;
                self.core.cache.forget(name);
                self.core.quotas.forget(name);
                Ok(Ok(Output::Nothing))
            }
            _ => Err(Error::Internal("a job without its model".to_owned())),
        }
    }

    /// Does all that can fail at one server alone.
    fn prepare(&self, id: Id, job: &Job) -> Result<Ready> {
        self.core.check_job(job)?;
        match &job.work {
            Work::Put { name, about, readers, ranges, plan, shares, .. } => {
                let owner = job.client.as_str();
                let version = id;
                let model = NewModel { name, version, about, owner, readers, ranges, plan, shares };
                self.core.store.stage(&model).map(|()| Ready::Staged)
            }
            Work::Share { .. } | Work::Remove { .. } => Ok(Ready::Nothing),
            Work::Infer { model, .. } => {
                self.core.cache.load(&self.core.store, model).map(Ready::Model)
            }
        }
    }

    /// Tells the others whether this server is ready, and hears whether they are. Returns the first
    /// reason against the job.
    fn vote(&mut self, mine: Option<&Error>) -> Result<Option<String>> {
        let mine = mine.map(ToString::to_string);
        let mut votes = exchange::<Option<String>>(&mut self.control, "prepare job", &mine)?;
        votes[self.core.me] = mine;
        let against = votes.into_iter().enumerate().find_map(|(party, vote)| Some((party, vote?)));
        Ok(against.map(|(party, reason)| format!("party {party}: {reason}")))
    }

    fn infer(&mut self, id: Id, model: &Loaded, inputs: Shares, profile: bool) -> Result<Output> {
        self.control.begin();
        let inputs = inputs.into_iter().map(program::share).collect::<Result<Vec<_>>>()?;
        let observer = &mut self.control.hand();
        let outputs = model.program.run(&mut self.mpc, &model.weights, inputs, observer)?;
        let mut cost = self.control.cost();
        if !profile {
            cost.steps.clear();
        }
        let keys = [&self.keys[0].0, &self.keys[1].0];
        let fresh = |(index, output)| refresh(output, keys, id, index);
        let components = outputs.iter().enumerate().map(fresh).collect::<Result<_>>()?;
        Ok(Output::Components(components, Box::new(cost)))
    }
}
