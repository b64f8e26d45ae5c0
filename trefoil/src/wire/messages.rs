//! The headers of messages between clients and servers.

use mpc_core::Security;
use serde::{Deserialize, Serialize};

use super::{
    Place,
    states::{Cost, DataState, JobState, ModelState, RunState, Status},
};
use crate::{
    base::{Digest, Id},
    model::Range,
    store::Readers,
    training::{DataSet, Decision, Halt, RunSpec},
};

/// A client's request to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Request {
    /// Are you there?
    Ping,
    /// The server's state.
    Status,
    /// The models that the client may use. The list comes in pages, in the order of their names.
    Models {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// The public description of a model.
    Model {
        /// Its name.
        name: String,
    },
    /// Keep your part of a model. Its public description, plan, tokenizer, keys and words follow.
    Put {
        /// The job; the version of the model.
        job: Id,
        /// The model's name.
        name: String,
        /// Length of what is public about it, written.
        about: u64,
        /// Length of the plan.
        plan: u64,
        /// Length of the tokenizer of a language model; 0 for none.
        #[serde(default)]
        tokenizer: u64,
        /// Number of words of its weights.
        words: u64,
        /// True if every server gets the weights in the clear.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        public_weights: bool,
        /// The clients that may run it, in addition to its owner.
        readers: Readers,
        /// The expected range of each input; empty if none is stated.
        ranges: Vec<Option<Range>>,
        /// Take the place of a model of the same name.
        replace: bool,
    },
    /// Set the clients that may run a model: these and no others.
    Share {
        /// The job.
        job: Id,
        /// The model's name.
        name: String,
        /// The clients that may run it, in addition to its owner.
        readers: Readers,
    },
    /// Forget a model.
    Remove {
        /// The job.
        job: Id,
        /// The model's name.
        name: String,
    },
    /// Run a model. Keys and words follow.
    Infer {
        /// The job.
        job: Id,
        /// The model's name.
        model: String,
        /// The version that the inputs were made for.
        version: Id,
        /// Shapes of the inputs, with the batch.
        inputs: Vec<Vec<usize>>,
        /// Send the profile by layer.
        profile: bool,
    },
    /// The tokenizer of a language model.
    Tokenizer {
        /// The model's name.
        name: String,
    },
    /// Run steps of a model that keeps values from step to step. Keys and words follow.
    Extend {
        /// The job.
        job: Id,
        /// The model's name.
        model: String,
        /// The version that the inputs were made for.
        version: Id,
        /// The client's number for the conversation.
        conversation: Id,
        /// The positions before the first step; a new conversation begins at 0. What lies behind them is forgotten.
        at: u64,
        /// Shapes of the inputs of the first steps, one step after the other.
        inputs: Vec<Vec<usize>>,
        /// All steps. The input of one without inputs is the first result of the step before.
        steps: u32,
        /// Send the profile by layer.
        profile: bool,
    },
    /// Forget a conversation of mine.
    Close {
        /// The job.
        job: Id,
        /// The client's number for it.
        conversation: Id,
    },
    /// The cost of a run of a model on inputs of these shapes. Nothing is run.
    Predict {
        /// The model's name.
        model: String,
        /// Its version.
        version: Id,
        /// Shapes of the inputs, with the batch.
        inputs: Vec<Vec<usize>>,
        /// The positions of a conversation before them.
        #[serde(default)]
        at: u64,
    },
    /// The data sets that the client may use, as [`Request::Models`].
    DataSets {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// Keep your part of a data set. Keys and words follow.
    PutData {
        /// The job; the version of the data set.
        job: Id,
        /// The data set's name.
        name: String,
        /// The public description.
        set: DataSet,
        /// The clients that may name it in a run, in addition to its owner. Each run needs the owner's consent as
        /// well.
        readers: Readers,
        /// Take the place of a data set of the same name.
        replace: bool,
    },
    /// The runs of the client, and those on its data, as [`Request::Models`].
    Runs {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// Keep your part of a run's start. Its training request, keys and words follow.
    PutRun {
        /// The job.
        job: Id,
        /// The run's name.
        name: String,
        /// The data, the course and the openings.
        spec: Box<RunSpec>,
        /// Length of the training request.
        request: u64,
        /// Take the place of a run of the same name.
        replace: bool,
    },
    /// The client's decision about its run, or about a run on its data.
    Decide {
        /// The job.
        job: Id,
        /// The run's name.
        name: String,
        /// The fingerprint of the run.
        fingerprint: Digest,
        /// The decision.
        decision: Decision,
    },
    /// End a run that is mine or uses data of mine, now and without the other servers.
    Halt {
        /// The run's name.
        name: String,
        /// The decision.
        halt: Halt,
    },
    /// Train a run of mine for some steps.
    Train {
        /// The job; if the state is kept, its version.
        job: Id,
        /// The run's name.
        name: String,
        /// The fingerprint of the run.
        fingerprint: Digest,
        /// Steps that are done.
        from: u32,
        /// Steps to do.
        steps: u32,
        /// Keep the state after them on disk.
        keep: bool,
    },
    /// The training request of a run.
    RunRequest {
        /// The run's name.
        name: String,
    },
    /// Send me your part of the network of a run of mine.
    Release {
        /// The job.
        job: Id,
        /// The run's name.
        name: String,
        /// The fingerprint of the run.
        fingerprint: Digest,
        /// Steps that are done.
        step: u32,
    },
    /// Make a model of the state of a run of mine.
    Publish {
        /// The job; the version of the model.
        job: Id,
        /// The run's name.
        run: String,
        /// The fingerprint of the run.
        fingerprint: Digest,
        /// Steps that are done.
        step: u32,
        /// The model's name.
        name: String,
        /// The clients that may run it, in addition to its owner.
        readers: Readers,
        /// Take the place of a model of the same name.
        replace: bool,
    },
    /// The client's jobs that the server holds.
    Jobs,
    /// End a job of mine, whether it waits or runs.
    Cancel {
        /// The job.
        job: Id,
    },
}

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Reply {
    /// The reply to [`Request::Ping`].
    Pong {
        /// The number of the server.
        party: usize,
        /// The version of its program.
        program: String,
        /// The servers' defence against one that lies.
        #[serde(default)]
        security: Security,
    },
    /// The reply to [`Request::Status`].
    Status(Box<Status>),
    /// The reply to [`Request::Models`].
    Models {
        /// A page of them.
        models: Vec<ModelState>,
        /// True if there are more.
        more: bool,
    },
    /// The reply to [`Request::Model`]. A [`PublicModel`](super::PublicModel) follows, written.
    Model {
        /// Its length.
        bytes: u64,
    },
    /// The reply to [`Request::Predict`]: the traffic that each of the servers would send. No seconds are among it.
    Predicted(Vec<Cost>),
    /// The reply to [`Request::Tokenizer`]. The tokenizer follows, as its owner put it.
    Tokenizer {
        /// Its length.
        bytes: u64,
    },
    /// The reply to [`Request::RunRequest`]. The training request follows, written.
    RunRequest {
        /// Its length.
        bytes: u64,
    },
    /// The reply to [`Request::DataSets`].
    DataSets {
        /// A page of them.
        sets: Vec<DataState>,
        /// True if there are more.
        more: bool,
    },
    /// The reply to [`Request::Runs`].
    Runs {
        /// A page of them.
        runs: Vec<RunState>,
        /// True if there are more.
        more: bool,
    },
    /// The reply to [`Request::Jobs`].
    Jobs(Vec<JobState>),
    /// The request is acceptable: send what belongs to it.
    Send,
    /// The job's parts are here and wait for their turn. Said about once a second.
    Waiting {
        /// Jobs before this one, where the server knows.
        before: Option<usize>,
    },
    /// The job runs. Said about once a second.
    Working(Place),
    /// The job is done, without a result.
    Done,
    /// The job is done. This server's part of the results follows.
    Result {
        /// Shapes of the results.
        outputs: Vec<Vec<usize>>,
        /// Hashes of the components that the next server sends; none where servers have none in common.
        next: Vec<Digest>,
        /// The cost.
        cost: Box<Cost>,
    },
    /// This server is being stopped, and takes no new jobs. Nothing was done.
    Stopping {
        /// The number of the server.
        party: usize,
    },
    /// A check of the servers' proofs shows that one of two parties did not follow the protocol. Nothing was revealed.
    Cheated {
        /// The numbers of the two.
        suspects: [usize; 2],
        /// The check.
        step: String,
    },
    /// The job, or the request, failed.
    Failed {
        /// The error, and its remedy.
        reason: String,
    },
}

impl Request {
    /// True if it is part of a training.
    pub(crate) fn trains(&self) -> bool {
        matches!(
            self,
            Self::PutData { .. }
                | Self::PutRun { .. }
                | Self::Train { .. }
                | Self::Release { .. }
                | Self::Publish { .. }
        )
    }

    /// The name of the request in logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Status => "status",
            Self::Models { .. } => "models",
            Self::Model { .. } => "model",
            Self::Put { .. } => "put",
            Self::Share { .. } => "share",
            Self::Remove { .. } => "remove",
            Self::Infer { .. } => "infer",
            Self::Tokenizer { .. } => "tokenizer",
            Self::Extend { .. } => "extend",
            Self::Close { .. } => "close",
            Self::Predict { .. } => "predict",
            Self::DataSets { .. } => "data-sets",
            Self::PutData { .. } => "put-data",
            Self::Runs { .. } => "runs",
            Self::PutRun { .. } => "put-run",
            Self::Decide { .. } => "decide",
            Self::Halt { .. } => "halt",
            Self::Train { .. } => "train",
            Self::RunRequest { .. } => "run-request",
            Self::Release { .. } => "release",
            Self::Publish { .. } => "publish",
            Self::Jobs => "jobs",
            Self::Cancel { .. } => "cancel",
        }
    }

    /// The hash that servers compare: all of the request, what followed it in the clear, and the client.
    #[must_use]
    pub fn digest(&self, client: &str, clear: &[&[u8]]) -> Digest {
        let header = serde_json::to_vec(self).unwrap_or_default();
        let parts: Vec<&[u8]> =
            [&header[..], client.as_bytes()].into_iter().chain(clear.iter().copied()).collect();
        Digest::of(&parts)
    }
}
