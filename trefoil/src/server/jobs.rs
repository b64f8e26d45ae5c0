//! The work of a job at one server.

use std::{sync::Arc, time::Instant};

use net::{PairKey, Party, Session, Transport};
use zeroize::Zeroizing;

use super::{
    Core, Job, Outcome, Output, Work,
    cache::{Loaded, hashes},
    session::{exchange, strange},
    terms::{Marks, Proposal, Tally, Terms},
};
use crate::{
    Digest, Error, Id, Result, Shares,
    answer::Refresh,
    config::PARTIES,
    id::fill_random,
    program::{self, Mpc},
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
    /// What the three servers know and nobody else: shares of zero come from it.
    common: Zeroizing<[u8; 32]>,
    /// Jobs begun in this session, the same number at all servers.
    jobs: u64,
}

/// What a server has ready before the three start together.
enum Ready {
    Staged,
    Nothing,
    Model(Arc<Loaded>),
}

impl<'a> Worker<'a> {
    pub(super) fn start(core: &'a Core, session: Session, mut control: Watched) -> Result<Self> {
        let key =
            |offset: usize| session.pair_keys.get((core.me + offset) % PARTIES).cloned().flatten();
        let no_key = || Error::Internal("a session without keys".to_owned());
        let keys = [key(1).ok_or_else(no_key)?, key(2).ok_or_else(no_key)?];
        let common = common_key(&mut control, &session.id)?;
        let mpc = program::protocol(session, core.engine.clone())?;
        Ok(Self { core, mpc, control, keys, common, jobs: 0 })
    }

    /// Runs a job. The inner result is for the client; the outer one is the session's.
    pub(super) fn run(&mut self, id: Id, job: &mut Job) -> Result<Outcome> {
        self.jobs += 1;
        let prepared = self.prepare(id, job);
        let terms = self.terms(job, &prepared);
        if let Some(reason) = self.vote(terms.clone(), job, &prepared)? {
            if let (Ok(Ready::Staged), Work::Put { name, .. }) = (prepared, &job.work) {
                self.core.store.discard(name, id)?;
            }
            return Ok(Err(reason));
        }
        match (prepared?, &mut job.work) {
            (Ready::Model(loaded), Work::Infer { model, inputs, examples, profile, .. }) => {
                let began = Instant::now();
                let ended = self.infer(&terms.digest(), &loaded, std::mem::take(inputs), *profile);
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

    fn terms(&self, job: &Job, prepared: &Result<Ready>) -> Terms {
        let model = match prepared {
            Ok(Ready::Model(loaded)) => Some((loaded.version, loaded.program.digest())),
            _ => None,
        };
        let options = format!("{:?} {:?}", self.mpc.options(), self.mpc.generator());
        Terms::new(options, self.jobs, job.digest, model)
    }

    /// Tells the others whether this server is ready and for what, and hears the same of them. Returns
    /// the first reason against the job, on which all three agree.
    fn vote(
        &mut self,
        terms: Terms,
        job: &Job,
        prepared: &Result<Ready>,
    ) -> Result<Option<String>> {
        let digest = terms.digest();
        let mark = |what, hashes| Marks::new(&self.keys, &digest, what, hashes);
        let parts = match &job.work {
            Work::Put { shares, .. } | Work::Infer { inputs: shares, .. } => hashes(shares),
            Work::Share { .. } | Work::Remove { .. } => Default::default(),
        };
        let stored = match prepared {
            Ok(Ready::Model(loaded)) => loaded.hashes,
            _ => Default::default(),
        };
        let (parts, stored) = (mark("parts", parts), mark("stored", stored));
        let against = prepared.as_ref().err().map(ToString::to_string);
        let mine = Proposal { terms, against, parts, stored };
        let mut all = exchange::<Proposal>(&mut self.control, "prepare job", &mine)?;
        all[self.core.me] = mine;
        Ok(Proposal::verdict(&all))
    }

    fn infer(
        &mut self,
        terms: &Digest,
        model: &Loaded,
        inputs: Shares,
        profile: bool,
    ) -> Result<Output> {
        self.mpc.begin_job(terms.as_bytes())?;
        self.control.begin();
        let inputs = inputs.into_iter().map(program::share).collect::<Result<Vec<_>>>()?;
        let observer = &mut self.control.hand();
        let outputs = model.program.run(&mut self.mpc, &model.weights, inputs, observer)?;
        let mut cost = self.control.cost();
        if !profile {
            cost.steps.clear();
        }
        self.compare_counters()?;
        let refresh = Refresh::new(&self.common, terms);
        let fresh = |(index, output)| refresh.component(self.core.me, output, index);
        let components = outputs.iter().enumerate().map(fresh).collect::<Result<_>>()?;
        Ok(Output::Answer(components, Box::new(cost)))
    }

    /// Makes sure that all three did the same work. Whoever did not must not answer: its results, or the
    /// others', belong to something else.
    fn compare_counters(&mut self) -> Result<()> {
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
