//! The server's side for clients that train or analyse: their data sets, their runs, and their consent.

use std::{sync::PoisonError, time::Instant};

use super::{Order, PARSED, PLAN, Visit, words_of};
use crate::{
    base::{Digest, Error, Id, Result},
    server::{
        access::bytes_of,
        jobs::{Decide, Publish, Put, Release, Train, Work},
        trainings::Derived,
    },
    store::{Content, Readers},
    training::{Halt, Run, RunSpec, Task},
    wire::{Reply, Request, check_upload, receive_bytes, say},
};

/// Bytes that a word of a run takes in memory: two components, and their sum, which products keep.
const SHARE: u64 = 24;

/// Words that a join takes for a row of either set, beside its columns, and copies of these.
const JOIN: u64 = 400;
const COPIES: u64 = 8;

impl Visit<'_> {
    /// Takes a data set.
    pub(super) fn put_data(&mut self, request: &Request) -> Result<()> {
        let Request::PutData { job, name, set, readers, replace } = request else {
            return Err(Error::Internal("not a data set".to_owned()));
        };
        let core = self.core;
        core.may_put(self.client, name, "data set", *replace)?;
        readers.check()?;
        set.check()?;
        let words = set.words()?;
        check_upload(words, core.limits.upload_bytes())?;
        let bytes = bytes_of(words, core.sharing());
        core.quotas.check_keep(&core.store, self.client, name, bytes)?;
        let reserved = core.quotas.reserve(self.client, bytes)?;
        let coming = self.begin(*job)?;
        let mut pace = self.pace();
        let shares = self.receive_shares(self.core.sharing(), &set.shapes()?, &mut pace)?;
        self.busy = false;
        let work = Work::Put(Put {
            name: name.clone(),
            content: Box::new(Content::Data(set.clone())),
            readers: readers.clone(),
            plan: bytes::Bytes::new(),
            shares,
            tokenizer: bytes::Bytes::new(),
            replace: *replace,
        });
        let (id, coming) = (*job, Some(coming));
        self.run(Order { id, request, clear: &[], reserved, coming, joins: None }, work)
    }

    /// Takes the start of a run.
    pub(super) fn put_run(&mut self, request: &Request) -> Result<()> {
        let Request::PutRun { job, name, spec, request: length, replace } = request else {
            return Err(Error::Internal("not a run".to_owned()));
        };
        let core = self.core;
        core.may_put(self.client, name, "run", *replace)?;
        spec.check()?;
        if *length > PLAN {
            let reason = format!("its request has more than {PLAN} bytes");
            return Err(Error::refused("run", reason));
        }
        // Room for the weights is reserved once the request, which says how many there are, is known.
        let reserved = core.quotas.reserve(self.client, PARSED * length)?;
        let coming = self.begin(*job)?;
        let mut pace = self.pace();
        let bytes = receive_bytes(self.channel, *length as usize, &mut pace)?;
        let derived = self.derive(name, &bytes, spec)?;
        let run = self.check_run(*job, name, spec, &derived)?;
        let shapes = derived.planned.start_shapes();
        let words = words_of(&shapes);
        check_upload(words, core.limits.upload_bytes())?;
        let room = bytes_of(words, core.sharing());
        core.quotas.check_keep(&core.store, self.client, name, room.saturating_add(*length))?;
        let room = core.quotas.reserve(self.client, room)?;
        let shares = self.receive_shares(self.core.sharing(), &shapes, &mut pace)?;
        self.busy = false;
        let work = Work::Put(Put {
            name: name.clone(),
            content: Box::new(Content::Run(Box::new(run))),
            readers: Readers::Named(Vec::new()),
            plan: bytes.clone(),
            shares,
            tokenizer: bytes::Bytes::new(),
            replace: *replace,
        });
        drop(reserved);
        let (id, clear, reserved) = (*job, &[&bytes[..]], room);
        let coming = Some(coming);
        self.run(Order { id, request, clear, reserved, coming, joins: None }, work)
    }

    /// Derives what a request asks for.
    fn derive(&self, name: &str, request: &[u8], spec: &RunSpec) -> Result<Derived> {
        let core = self.core;
        let derive = || Derived::new(request, &spec.task, core.limits.upload_bytes());
        if spec.task != Task::Analysis {
            return derive();
        }
        // Steps without numbers take time too: one analysis at a time, on its client's account.
        let _one_at_a_time = core.predicting.lock().unwrap_or_else(PoisonError::into_inner);
        core.quotas.check_run(self.client, name, 0)?;
        let began = Instant::now();
        let derived = derive();
        core.quotas.ran(self.client, name, 0, began.elapsed());
        derived
    }

    /// The run to keep, if this server can keep it and its data sets are there.
    fn check_run(&self, job: Id, name: &str, spec: &RunSpec, derived: &Derived) -> Result<Run> {
        let core = self.core;
        let planned = &derived.planned;
        let mut sets = Vec::new();
        for used in &spec.data {
            let manifest = core.usable_data(self.client, used)?;
            sets.push((manifest.data()?.clone(), manifest.owner));
        }
        let mut words: u64 = 0;
        for (set, _) in &sets {
            words = words.saturating_add(set.words()?);
        }
        for (both, used) in sets.windows(2).zip(&spec.data[1..]) {
            if used.position.join().is_some() {
                for (set, _) in both {
                    let keys = JOIN.saturating_mul(set.rows as u64);
                    let copies = COPIES.saturating_mul(set.words()?);
                    words = words.saturating_add(keys).saturating_add(copies);
                }
            }
        }
        words = words.saturating_add(planned.peak_words()?);
        if words.saturating_mul(SHARE) > core.limits.job_bytes() {
            let reason = format!(
                "it may need {} MiB of memory; this server gives a job {} MiB (limits.job_memory_mib); \
                 use a smaller batch or less data, or raise the limit on all servers",
                words.saturating_mul(SHARE) >> 20,
                core.limits.job_memory_mib
            );
            return Err(Error::refused("run", reason));
        }
        Run::new(name, self.client, job, spec.clone(), derived.request, planned, &sets)
    }

    /// Notes what the client allows of a run.
    pub(super) fn decide(&mut self, request: &Request) -> Result<()> {
        let Request::Decide { job, name, fingerprint, decision } = request else {
            return Err(Error::Internal("not a decision".to_owned()));
        };
        self.core.may_decide(self.client, name, *fingerprint, *decision)?;
        let (name, fingerprint, decision) = (name.clone(), *fingerprint, *decision);
        self.order(*job, request, Work::Decide(Decide { name, fingerprint, decision }))
    }

    /// Halts a run here, independent of the other servers.
    pub(super) fn halt(&mut self, name: &str, halt: Halt) -> Result<()> {
        self.core.halt(self.client, name, halt)?;
        say(self.channel, &Reply::Done)
    }

    /// Continues a run.
    pub(super) fn train(&mut self, request: &Request) -> Result<()> {
        let Request::Train { job, name, fingerprint, from, steps, keep } = request else {
            return Err(Error::Internal("not a training".to_owned()));
        };
        self.core.may_train(self.client, name, *fingerprint)?;
        self.core.quotas.check_run(self.client, name, 0)?;
        let (fingerprint, from, steps, keep) = (*fingerprint, *from, *steps, *keep);
        let work = Work::Train(Train { name: name.clone(), fingerprint, from, steps, keep });
        self.order(*job, request, work)
    }

    /// Sends the training request of a run that is the client's, or uses its data.
    pub(super) fn run_request(&mut self, name: &str) -> Result<()> {
        let manifest = self.core.readable(self.client, name)?;
        manifest.run()?;
        let request = self.core.store.plan(name, &manifest)?;
        say(self.channel, &Reply::RunRequest { bytes: request.len() as u64 })?;
        self.send(request.into())
    }

    /// Sends the network of a run to its owner, or to a recipient.
    pub(super) fn release(
        &mut self,
        job: Id,
        name: &str,
        fingerprint: Digest,
        step: u32,
    ) -> Result<()> {
        self.core.may_release(self.client, name, fingerprint, step)?;
        let name = name.to_owned();
        let request = Request::Release { job, name: name.clone(), fingerprint, step };
        self.order(job, &request, Work::Release(Release { name, fingerprint, step }))
    }

    /// Makes a model of a run.
    pub(super) fn publish(&mut self, request: &Request) -> Result<()> {
        let Request::Publish { job, run, fingerprint, step, name, readers, replace } = request
        else {
            return Err(Error::Internal("not a model of a run".to_owned()));
        };
        readers.check()?;
        self.core.may_publish(self.client, run, *fingerprint, *step)?;
        self.core.may_put(self.client, name, "model", *replace)?;
        let work = Work::Publish(Publish {
            run: run.clone(),
            fingerprint: *fingerprint,
            step: *step,
            name: name.clone(),
            readers: readers.clone(),
            replace: *replace,
        });
        self.order(*job, request, work)
    }
}
