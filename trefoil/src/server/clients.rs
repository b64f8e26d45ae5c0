//! The server's side of a client's connection.

use std::{
    sync::{
        Arc, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use mpc_core::{Released, Sharing};
use nn_layers::Sizes;
use ring_arith::{EngineTensor, Shape};

use super::{
    Coming, Core, Failure, Job, Outcome, Output, Queue, Server,
    access::{bytes_of, hides},
    jobs::{Close, Extend, Infer, Put, Remove, Share, Work},
    quota::Reserved,
    tapes::{Candidate, candidates},
};
use crate::{
    audit::Event,
    base::{Digest, Error, Id, Result, Shares},
    local,
    model::{About, LARGEST_TOKENIZER, NO_TAPES, Program, check_ranges, weight_sharing},
    queue::Joins,
    store::{Content, Manifest},
    wire::{
        Channel, Cost, Link, Pace, Reply, Request, check_shapes, check_upload, hear, receive_bytes,
        receive_parcel, say, send_bytes, send_bytes_at,
    },
};

/// A connection without a request for this time is closed.
const IDLE: Duration = Duration::from_secs(600);

/// A client that has begun to send continues within this time.
const UPLOAD: Duration = Duration::from_secs(30);

/// The interval at which a waiting client gets a word.
const WORD: Duration = Duration::from_secs(1);

/// Longest plan in bytes.
pub(super) const PLAN: u64 = 64 << 20;

/// Longest description of a model in bytes: its labels, and little more.
const ABOUT: u64 = 2 << 20;

/// Bytes of memory that a byte of a plan or description may take once it is read.
pub(super) const PARSED: u64 = 16;

/// The most positions of a conversation: memory ends it far earlier.
const MOST_POSITIONS: usize = 1 << 32;

/// A client's connection.
pub(super) struct Visit<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) channel: &'a mut dyn Channel,
    /// The name in the client's certificate.
    pub(super) client: &'a str,
    /// The client has been told to send data, which it may not have finished.
    pub(super) busy: bool,
}

/// A job as it is handed in, beside what its client was asked to send.
pub(super) struct Order<'a> {
    pub(super) id: Id,
    pub(super) request: &'a Request,
    /// The texts that followed the request in the clear.
    pub(super) clear: &'a [&'a [u8]],
    pub(super) reserved: Reserved,
    pub(super) coming: Option<Coming>,
    /// The jobs with which it may run.
    pub(super) joins: Option<Joins>,
}

impl Server {
    /// Answers one client until it leaves. `client` is the name in its certificate.
    pub fn serve_client(&self, channel: &mut dyn Channel, client: &str) {
        let core = &self.0;
        let connected = core.admit(client).and_then(|()| core.quotas.connect(client));
        let outcome = match connected {
            Ok(_connected) => Visit { core, channel, client, busy: false }.serve(),
            Err(error) => {
                core.record_refusal(client, "connect", &error);
                say(channel, &Reply::Failed { reason: error.to_string() })
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(client, %error, "connection ended");
        }
    }
}

impl Visit<'_> {
    fn serve(&mut self) -> Result<()> {
        loop {
            let mut kind = "unreadable";
            let answered = hear(self.channel, IDLE).and_then(|request: Request| {
                kind = request.kind();
                self.answer(&request)
            });
            let error = match answered {
                Ok(()) => continue,
                Err(error @ Error::Unreachable { .. }) => return Err(error),
                Err(error) => error,
            };
            self.core.record_refusal(self.client, kind, &error);
            say(self.channel, &refusal(&error))?;
            if self.busy {
                // Bytes that the client still sends belong to the refused request.
                return Ok(());
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Result<()> {
        if request.trains() {
            self.core.may_train_at_all()?;
        }
        match request {
            Request::Ping => {
                let program = crate::base::PROGRAM.to_owned();
                let security = self.core.computing.settings.security;
                say(self.channel, &Reply::Pong { party: self.core.me, program, security })
            }
            Request::Status => {
                let mut status = Server(self.core.clone()).status()?;
                self.core.hide_others(self.client, &mut status);
                let told = |name: &str| !hides(self.client, &self.core.store.entry(name));
                status.damaged.retain(|name| told(name));
                status.tapes = self.core.tape_states(told)?;
                say(self.channel, &Reply::Status(Box::new(status)))
            }
            Request::Models { after } => self.list(after.as_deref()),
            Request::Model { name } => self.describe(name),
            Request::Put { .. } => self.put(request),
            Request::Share { job, name, readers } => {
                readers.check()?;
                let work = Work::Share(Share { name: name.clone(), readers: readers.clone() });
                self.change(*job, name, request, work)
            }
            Request::Remove { job, name } => {
                self.change(*job, name, request, Work::Remove(Remove { name: name.clone() }))
            }
            Request::Infer { .. } => self.infer(request),
            Request::Tokenizer { name } => self.tokenizer(name),
            Request::Extend { .. } => self.extend(request),
            Request::Close { job, conversation } => {
                let work = Work::Close(Close { conversation: *conversation });
                self.order(*job, request, work)
            }
            Request::Predict { model, version, inputs, at } => {
                self.predict((model, *version), inputs, positions(*at))
            }
            Request::DataSets { after } => self.list_data(after.as_deref()),
            Request::Runs { after } => self.list_runs(after.as_deref()),
            Request::PutData { .. } => self.put_data(request),
            Request::PutRun { .. } => self.put_run(request),
            Request::Decide { .. } => self.decide(request),
            Request::Train { .. } => self.train(request),
            Request::RunRequest { name } => self.run_request(name),
            Request::Halt { name, halt } => self.halt(name, *halt),
            Request::Release { job, name, fingerprint, step } => {
                self.release(*job, name, *fingerprint, *step)
            }
            Request::Publish { .. } => self.publish(request),
            Request::Jobs => self.jobs(),
            Request::Cancel { job } => self.cancel(*job),
        }
    }

    /// Takes a model.
    fn put(&mut self, request: &Request) -> Result<()> {
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
        core.quotas.check_keep(self.client, name, bytes.saturating_add(plan + tokenizer))?;
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
    fn infer(&mut self, request: &Request) -> Result<()> {
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
        // An answer from a tape is one client's.
        let most = if core.shelf.is_some() { 1 } else { program.most_together(&core.limits) };
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
        self.busy = false;
        Ok((reserved, coming, inputs))
    }

    /// Takes what comes next in a conversation.
    fn extend(&mut self, request: &Request) -> Result<()> {
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
    fn predict(
        &mut self,
        (model, version): (&str, Id),
        inputs: &[Vec<usize>],
        at: usize,
    ) -> Result<()> {
        let core = self.core;
        let manifest = core.may_infer(self.client, model, version)?;
        let program = core.programs.get(&core.store, model, &manifest)?;
        let shapes = check_shapes(inputs, core.limits.upload_bytes())?;
        let program = program.for_step(&shapes);
        program.check_inputs(&shapes, at, &core.limits)?;
        let one_at_a_time = core.predicting.lock().unwrap_or_else(PoisonError::into_inner);
        core.quotas.check_run(self.client, model, 0)?;
        let began = Instant::now();
        let costs = core.predict(program, &manifest, program.sizes(&shapes, at)?);
        core.quotas.ran(self.client, model, 0, began.elapsed());
        drop(one_at_a_time);
        say(self.channel, &Reply::Predicted(costs?))
    }

    /// Shares or removes what has a name.
    fn change(&mut self, id: Id, name: &str, request: &Request, work: Work) -> Result<()> {
        self.core.may_change(self.client, name)?;
        self.order(id, request, work)
    }

    /// Queues a job for which the client sends nothing more.
    pub(super) fn order(&mut self, id: Id, request: &Request, work: Work) -> Result<()> {
        let reserved = self.core.quotas.reserve(self.client, 0)?;
        self.core.takes_jobs()?;
        let order = Order { id, request, clear: &[], reserved, coming: None, joins: None };
        self.run(order, work)
    }

    /// Tells the client to send what it announced.
    pub(super) fn begin(&mut self, id: Id) -> Result<Coming> {
        let coming = self.core.announce(id)?;
        self.busy = true;
        say(self.channel, &Reply::Send)?;
        Ok(coming)
    }

    pub(super) fn pace(&self) -> Pace {
        Pace::at_least(UPLOAD, self.core.limits.upload_rate())
    }

    /// Receives this server's parcel of tensors of these shapes, which came to the servers by `sharing`.
    pub(super) fn receive_shares(
        &mut self,
        sharing: &dyn Sharing,
        shapes: &[Shape],
        pace: &mut Pace,
    ) -> Result<Shares> {
        let me = self.core.me;
        let parcel = receive_parcel(self.channel, sharing.contents(me), shapes, pace)?;
        sharing.accept(me, parcel, shapes).map_err(|error| Error::refused_parcel("request", error))
    }

    /// Sends bytes that a header announced.
    pub(super) fn send(&mut self, bytes: Bytes) -> Result<()> {
        send_bytes(self.channel, bytes, &mut |_| {})
    }

    /// Queues a job and keeps its client informed until it has ended.
    pub(super) fn run(&mut self, order: Order<'_>, work: Work) -> Result<()> {
        let Order { id, request, clear, reserved, coming, joins } = order;
        let core = self.core;
        let (outcome, outcomes) = mpsc::channel();
        // Given back once the job has gone and its answer too.
        let reserved = Arc::new(reserved);
        let words: u64 =
            work.parts().iter().flatten().map(|component| component.len() as u64).sum();
        let job = Job {
            client: self.client.to_owned(),
            received: 8 * words,
            work,
            outcome,
            digest: request.digest(self.client, clear),
            joins,
            since: Instant::now(),
            _reserved: reserved.clone(),
        };
        core.submit(id, job)?;
        drop(coming);
        let waited = wait(core, self.channel, id, &outcomes);
        if waited.is_err() {
            core.cancel(id);
        }
        match waited? {
            Ok(Output::Nothing) => say(self.channel, &Reply::Done),
            Ok(Output::Answer(released, cost)) => {
                let dims = |one: &Released| one.words.shape().dims().to_vec();
                let outputs = released.iter().map(dims).collect();
                let next =
                    released.iter().filter_map(|one| one.vouched).map(Digest::from).collect();
                say(self.channel, &Reply::Result { outputs, next, cost })?;
                let mut pace = self.pace();
                released.iter().try_for_each(|one| {
                    send_bytes_at(self.channel, &one.words.to_bytes(), &mut pace)
                })
            }
            Err(Failure { cheated: Some((suspects, step)), .. }) => {
                say(self.channel, &Reply::Cheated { suspects, step })
            }
            Err(Failure { reason, .. }) => say(self.channel, &Reply::Failed { reason }),
        }
    }
}

/// A number of positions; one that no memory holds stays one that is refused.
fn positions(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX).min(MOST_POSITIONS)
}

/// The reply to a client in place of an answer.
fn refusal(error: &Error) -> Reply {
    match error {
        Error::Stopping { party } => Reply::Stopping { party: *party },
        _ => Reply::Failed { reason: error.to_string() },
    }
}

pub(super) fn words_of(shapes: &[Shape]) -> u64 {
    shapes.iter().map(|shape| shape.len() as u64).sum()
}

fn wait(
    core: &Core,
    channel: &mut dyn Channel,
    id: Id,
    outcomes: &mpsc::Receiver<Outcome>,
) -> Result<Outcome> {
    let began = Instant::now();
    loop {
        match outcomes.recv_timeout(WORD) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Err("the job was lost; send it again".to_owned().into()));
            }
            Err(RecvTimeoutError::Timeout) => say(channel, &core.word(id))?,
        }
        if let Some(reason) = core.cut_off(began) {
            core.cancel(id);
            return Ok(Err(reason.into()));
        }
    }
}

impl Core {
    /// Notes that a client was refused something, once a minute for each kind of request and reason.
    fn record_refusal(&self, client: &str, request: &'static str, error: &Error) {
        if !self.refusals.admits(&client.to_owned(), &(request, error.kind())) {
            return;
        }
        let reason = error.to_string();
        tracing::info!(client, request, reason, "refused");
        self.audit.record(&Event::Refused { client, request, reason: &reason });
    }

    /// The traffic of a job of these sizes. With tapes it is the traffic of the tape's
    /// batch.
    fn predict(
        &self,
        program: &Program,
        manifest: &Manifest,
        mut sizes: Sizes,
    ) -> Result<Vec<Cost>> {
        if let Some(shelf) = &self.shelf {
            let tapes = candidates(self, shelf, manifest, program, sizes.batch)?;
            sizes.batch = tapes.first().map_or(sizes.batch, Candidate::examples);
        }
        local::predict(program, sizes, self.computing)
    }

    /// The reply to a waiting client.
    fn word(&self, id: Id) -> Reply {
        let state = self.state();
        match (&state.running, &state.queue) {
            (Some(running), _) if running.has(id) => Reply::Working(running.watched.place()),
            (_, Queue::Leader(leader)) => Reply::Waiting { before: leader.position(id) },
            (_, Queue::Follower(_)) => Reply::Waiting { before: None },
        }
    }

    /// Why a job that has waited since `began` cannot run, if the servers have not been linked for as
    /// long as parts may take.
    fn cut_off(&self, began: Instant) -> Option<String> {
        let state = self.state();
        let limit = self.limits.parts_limit();
        match &state.link {
            Link::Down { reason } if began.elapsed() >= limit && state.since.elapsed() >= limit => {
                Some(format!(
                    "the servers are not linked ({reason}); start or mend the one that is missing, \
                     then try again"
                ))
            }
            _ => None,
        }
    }

    fn cancel(&self, id: Id) {
        let mut state = self.state();
        if state.queue.cancel(id, "its client has left") {
            state.jobs.remove(&id);
        }
    }
}
