//! Clients' requests about models: to put them, to run them, and to predict the cost of a run.

use std::{sync::PoisonError, time::Instant};

use cluster_protocols::Computing;
use mpc_core::Settings;
use nn_layers::Sizes;
use ring_arith::Shape;

use super::{Order, PARSED, PLAN, Visit, words_of};
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    local,
    model::{About, LARGEST_TOKENIZER, NO_TAPES, Program, check_ranges, weight_sharing},
    server::{
        Coming, Core,
        access::bytes_of,
        jobs::{Extend, Infer, Put, Work},
        queue::Joins,
        quota::Reserved,
        tapes::{Candidate, candidates},
    },
    store::{Content, Manifest},
    wire::{Cost, Reply, Request, check_shapes, check_upload, receive_bytes, say},
};

/// Longest description of a model in bytes: its labels, and little more.
const ABOUT: u64 = 2 << 20;

/// The most positions of a conversation: memory ends it far earlier.
const MOST_POSITIONS: usize = 1 << 32;

impl Visit<'_> {
    /// Takes a model.
    pub(super) fn put(&mut self, request: &Request) -> Result<()> {
        let Request::Put {
            job,
            name,
            about,
            plan,
            tokenizer,
            words,
            public_weights,
            readers,
            ranges,
            replace,
        } = request
        else {
            return Err(Error::Internal("not a model".to_owned()));
        };
        let core = self.core;
        core.may_put(self.client, name, "model", *replace)?;
        readers.check()?;
        let clear = [
            ("plan", *plan, PLAN),
            ("description", *about, ABOUT),
            ("tokenizer", *tokenizer, LARGEST_TOKENIZER),
        ];
        for (what, bytes, most) in clear {
            if bytes > most {
                let reason = format!("its {what} has more than {most} bytes");
                return Err(Error::refused("model", reason));
            }
        }
        check_upload(*words, core.limits.upload_bytes())?;
        let sharing = weight_sharing(*public_weights, core.sharing())?;
        if *public_weights && core.shelf.is_some() {
            return Err(Error::refused(format_args!("model `{name}`"), NO_TAPES));
        }
        let bytes = bytes_of(*words, sharing);
        core.quotas.check_keep(
            &core.store,
            self.client,
            name,
            bytes.saturating_add(plan + tokenizer),
        )?;
        let room = bytes.saturating_add(PARSED * (plan + about) + tokenizer);
        let reserved = core.quotas.reserve(self.client, room)?;
        let coming = self.begin(*job)?;
        let mut pace = self.pace();
        let about_bytes = receive_bytes(self.channel, *about as usize, &mut pace)?;
        let about = About::parse(&about_bytes)?;
        let plan = receive_bytes(self.channel, *plan as usize, &mut pace)?;
        let program = Program::parse(&plan)?;
        program.check_about(&about)?;
        if about.public_weights != *public_weights {
            let reason = "its request and its description differ in whether its weights are secret";
            return Err(Error::refused("model", reason));
        }
        let tokenizer = receive_bytes(self.channel, *tokenizer as usize, &mut pace)?;
        about.check_tokenizer(&tokenizer)?;
        check_ranges(ranges, &about)?;
        let shapes = program.weight_shapes();
        if words_of(&shapes) != *words {
            let (planned, announced) = (words_of(&shapes), words);
            let reason = format!("{announced} weights were announced, its plan has {planned}");
            return Err(Error::refused("model", reason));
        }
        program.check_memory(program.plan().fixed_batch().unwrap_or(1), &core.limits)?;
        let content = Content::Model { about: Box::new(about), ranges: ranges.clone() };
        let shares = self.receive_shares(sharing, &shapes, &mut pace)?;
        self.busy = false;
        let work = Work::Put(Put {
            name: name.clone(),
            content: Box::new(content),
            readers: readers.clone(),
            plan: plan.clone(),
            shares,
            tokenizer: tokenizer.clone(),
            replace: *replace,
        });
        let (id, clear) = (*job, &[&about_bytes[..], &plan[..], &tokenizer[..]]);
        let coming = Some(coming);
        self.run(Order { id, request, clear, reserved, coming, joins: None }, work)
    }

    /// Takes inputs for a model.
    pub(super) fn infer(&mut self, request: &Request) -> Result<()> {
        let Request::Infer { job, model, version, inputs, profile } = request else {
            return Err(Error::Internal("not an inference".to_owned()));
        };
        let core = self.core;
        let manifest = core.may_infer(self.client, model, *version)?;
        let program = core.programs.get(&core.store, model, &manifest)?;
        if program.keeps_state() {
            let reason = "it keeps values from step to step, and runs in conversations alone";
            return Err(Error::refused(format_args!("model `{model}`"), reason));
        }
        let shapes = check_shapes(inputs, core.limits.upload_bytes())?;
        let examples = program.check_inputs(&shapes, 0, &core.limits)?;
        core.quotas.check_run(self.client, model, examples)?;
        let batch = program.batch(&shapes)?;
        let words = program.answer_words(&shapes)?;
        let (reserved, coming, inputs) = self.receive_inputs(*job, words, &shapes)?;
        let (model, version, profile) = (model.clone(), *version, *profile);
        let most = core.most_together(&manifest, &program, batch);
        // A profile is of one job.
        let joins = (most > 1 && !profile).then(|| Joins {
            like: Digest::of(&[model.as_bytes(), version.to_string().as_bytes()]),
            examples: batch,
            most,
        });
        let work = Work::Infer(Infer { model, version, inputs, examples, profile });
        let coming = Some(coming);
        let order = Order { id: *job, request, clear: &[], reserved, coming, joins };
        self.run(order, work)
    }

    /// Receives a model's inputs, with room for them and an answer of this many words.
    fn receive_inputs(
        &mut self,
        job: Id,
        answer: u64,
        shapes: &[Shape],
    ) -> Result<(Reserved, Coming, Shares)> {
        // Until its client has read the answer, that takes memory too.
        let words = words_of(shapes).saturating_add(answer);
        let reserved = self.core.quotas.reserve(self.client, words.saturating_mul(16))?;
        let coming = self.begin(job)?;
        let inputs = self.receive_shares(self.core.sharing(), shapes, &mut self.pace())?;
        let inputs = inputs.shares().map_err(|reason| Error::refused("request", reason))?;
        self.busy = false;
        Ok((reserved, coming, inputs))
    }

    /// Takes what comes next in a conversation.
    pub(super) fn extend(&mut self, request: &Request) -> Result<()> {
        let Request::Extend { job, model, version, conversation, at, inputs, steps, profile } =
            request
        else {
            return Err(Error::Internal("not a step of a conversation".to_owned()));
        };
        let core = self.core;
        let manifest = core.may_infer(self.client, model, *version)?;
        let program = core.programs.get(&core.store, model, &manifest)?;
        let refused = |reason: &str| Err(Error::refused(format_args!("model `{model}`"), reason));
        if !program.keeps_state() {
            return refused("it keeps nothing from step to step, and so has no conversations");
        }
        if core.shelf.is_some() {
            return refused(
                "these servers answer from a dealer's tapes, and keep no conversations",
            );
        }
        let shapes = check_shapes(inputs, core.limits.upload_bytes())?;
        let at = positions(*at);
        let steps = program.steps(&shapes, *steps as usize, at, manifest.model()?.0.goes_on())?;
        for (program, sizes) in program.largest(&shapes, &steps) {
            program.check_memory(sizes, &core.limits)?;
        }
        core.quotas.check_run(self.client, model, steps.all as u64)?;
        let (reserved, coming, inputs) = self.receive_inputs(*job, steps.words, &shapes)?;
        let (model, version, conversation) = (model.clone(), *version, *conversation);
        let profile = *profile;
        let extend = Extend { model, version, conversation, steps, inputs, profile };
        let work = Work::Extend(extend);
        let coming = Some(coming);
        self.run(Order { id: *job, request, clear: &[], reserved, coming, joins: None }, work)
    }

    /// Says what an inference would send. It takes the CPU for a moment, so one client is served after the
    /// other, and the time is the client's.
    pub(super) fn predict(
        &mut self,
        (model, version): (&str, Id),
        inputs: &[Vec<usize>],
        at: u64,
    ) -> Result<()> {
        let core = self.core;
        let at = positions(at);
        let manifest = core.may_infer(self.client, model, version)?;
        let program = core.programs.get(&core.store, model, &manifest)?;
        let shapes = check_shapes(inputs, core.limits.upload_bytes())?;
        let whole = &program;
        let program = whole.for_step(&shapes);
        program.check_inputs(&shapes, at, &core.limits)?;
        let one_at_a_time = core.predicting.lock().unwrap_or_else(PoisonError::into_inner);
        core.quotas.check_run(self.client, model, 0)?;
        let began = Instant::now();
        let costs = core.predict((whole, program), &manifest, program.sizes(&shapes, at)?);
        core.quotas.ran(self.client, model, 0, began.elapsed());
        drop(one_at_a_time);
        say(self.channel, &Reply::Predicted(costs?))
    }
}

impl Core {
    /// The most examples of jobs that run together with a job of `batch` examples: as many as a tape has room for, where
    /// answers come from tapes.
    fn most_together(&self, manifest: &Manifest, program: &Program, batch: usize) -> usize {
        let most = program.most_together(&self.limits);
        let Some(shelf) = &self.shelf else { return most };
        // A job for which there is no tape is refused when it is to run.
        let tapes = candidates(self, shelf, manifest, program, batch).unwrap_or_default();
        tapes.iter().map(Candidate::examples).max().map_or(1, |room| most.min(room))
    }

    /// The traffic of a job of these sizes, of a program or one of its longer steps. With tapes it is the traffic of the tape's
    /// batch.
    fn predict(
        &self,
        (whole, program): (&Program, &Program),
        manifest: &Manifest,
        mut sizes: Sizes,
    ) -> Result<Vec<Cost>> {
        if let Some(shelf) = &self.shelf {
            let tapes = candidates(self, shelf, manifest, program, sizes.batch)?;
            sizes.batch = tapes.first().map_or(sizes.batch, Candidate::examples);
        }
        let profile = self.profile(whole, sizes)?;
        let settings = Settings { profile, ..self.computing.settings };
        let mut costs = local::predict(program, sizes, Computing { settings, ..self.computing })?;
        let told = self.profiles.get().map(|_| profile);
        costs.iter_mut().for_each(|cost| cost.profile = told);
        Ok(costs)
    }
}

/// A number of positions; one that no memory holds stays one that is refused.
fn positions(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX).min(MOST_POSITIONS)
}
