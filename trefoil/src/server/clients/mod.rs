//! The server's side of a client's connection.

mod lists;
mod models;
mod training;

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use mpc_core::{Released, Sharing};
use ring_arith::{EngineTensor, Shape};

use super::{
    Coming, Core, Failure, Job, Outcome, Output, Queue, Server,
    access::hides,
    audit::Event,
    jobs::{Close, Remove, Share, Work},
    queue::Joins,
    quota::Reserved,
};
use crate::{
    base::{Digest, Error, Id, PROGRAM, Result},
    store::StoredShares,
    wire::{
        Channel, LOST, Link, Pace, Reply, Request, hear, receive_parcel, say, send_bytes,
        send_bytes_at,
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

/// Bytes of memory that a byte of a plan or description may take once it is read.
pub(super) const PARSED: u64 = 16;

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
                let program = PROGRAM.to_owned();
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
                self.predict((model, *version), inputs, *at)
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
    ) -> Result<StoredShares> {
        let me = self.core.me;
        let parcel = receive_parcel(self.channel, sharing.contents(me), shapes, pace)?;
        StoredShares::received(sharing, me, parcel, shapes)
            .map_err(|error| Error::refused_parcel("request", error))
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
        let job = Job {
            client: self.client.to_owned(),
            received: 8 * work.words(),
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
        self.metrics.refused(client);
        if !self.refusals.admits(&client.to_owned(), &(request, error.kind())) {
            return;
        }
        let reason = error.to_string();
        tracing::info!(client, request, reason, "refused");
        self.audit.record(&Event::Refused { client, request, reason: &reason });
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
                    "the servers are not linked ({reason}); start or mend the one that is missing, after which {LOST}"
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
