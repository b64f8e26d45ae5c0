//! The headers of messages between clients and servers.

use serde::{Deserialize, Serialize};

use crate::{
    About, Digest, Id,
    certificates::CertificateEnd,
    store::{Range, Readers},
    tapes::TapeState,
    training::{DataSet, Decision, Halt, Run, RunSpec, Spent},
    watch::Place,
};

/// What a client asks of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Request {
    /// Are you there?
    Ping,
    /// How are you?
    Status,
    /// Which models may I use? Their list comes in pages, in the order of their names.
    Models {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// What is public about this model?
    Model {
        /// Its name.
        name: String,
    },
    /// Keep your part of a model. What is public about it, its plan, keys and words follow.
    Put {
        /// The job; the version of the model.
        job: Id,
        /// The model's name.
        name: String,
        /// Length of what is public about it, written.
        about: u64,
        /// Length of the plan.
        plan: u64,
        /// Number of words of its weights.
        words: u64,
        /// Who may run it besides its owner.
        readers: Readers,
        /// What is expected of each input; empty if nothing is.
        ranges: Vec<Option<Range>>,
        /// Take the place of a model of the same name.
        replace: bool,
    },
    /// Let others run a model, these and no more.
    Share {
        /// The job.
        job: Id,
        /// The model's name.
        name: String,
        /// Who may run it besides its owner.
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
    /// What would running a model on inputs of these shapes send? Nothing is run.
    Predict {
        /// The model's name.
        model: String,
        /// Its version.
        version: Id,
        /// Shapes of the inputs, with the batch.
        inputs: Vec<Vec<usize>>,
    },
    /// Which data sets may I use? As [`Request::Models`].
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
        /// What is public about it.
        set: DataSet,
        /// Who may name it in a run besides its owner. Each run needs the owner's consent as well.
        readers: Readers,
        /// Take the place of a data set of the same name.
        replace: bool,
    },
    /// Which runs are mine, or use data of mine? As [`Request::Models`].
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
        /// What is to be trained on what.
        spec: Box<RunSpec>,
        /// Length of the training request.
        request: u64,
        /// Take the place of a run of the same name.
        replace: bool,
    },
    /// What I allow of a run that is mine or uses data of mine.
    Decide {
        /// The job.
        job: Id,
        /// The run's name.
        name: String,
        /// Of the run.
        fingerprint: Digest,
        /// What.
        decision: Decision,
    },
    /// End a run that is mine or uses data of mine, now and whatever the other servers do.
    Halt {
        /// The run's name.
        name: String,
        /// What.
        halt: Halt,
    },
    /// Train a run of mine for some steps.
    Train {
        /// The job; if the state is kept, its version.
        job: Id,
        /// The run's name.
        name: String,
        /// Of the run.
        fingerprint: Digest,
        /// Steps that are done.
        from: u32,
        /// Steps to do.
        steps: u32,
        /// Keep the state after them on disk.
        keep: bool,
    },
    /// What is trained in this run, and how?
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
        /// Of the run.
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
        /// Of the run.
        fingerprint: Digest,
        /// Steps that are done.
        step: u32,
        /// The model's name.
        name: String,
        /// Who may run it besides its owner.
        readers: Readers,
        /// Take the place of a model of the same name.
        replace: bool,
    },
    /// Which jobs of mine do you hold?
    Jobs,
    /// End a job of mine, whether it waits or runs.
    Cancel {
        /// The job.
        job: Id,
    },
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Ping`].
    Pong {
        /// Which server answers.
        party: usize,
        /// The version of its program.
        program: String,
    },
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Models`].
    Models {
        /// A page of them.
        models: Vec<ModelState>,
        /// Whether there are more.
        more: bool,
    },
    /// To [`Request::Model`]. A [`PublicModel`] follows, written.
    Model {
        /// Its length.
        bytes: u64,
    },
    /// To [`Request::Predict`]: what each of the servers would send. No seconds are among it.
    Predicted(Vec<Cost>),
    /// To [`Request::RunRequest`]. The training request follows, written.
    RunRequest {
        /// Its length.
        bytes: u64,
    },
    /// To [`Request::DataSets`].
    DataSets {
        /// A page of them.
        sets: Vec<DataState>,
        /// Whether there are more.
        more: bool,
    },
    /// To [`Request::Runs`].
    Runs {
        /// A page of them.
        runs: Vec<RunState>,
        /// Whether there are more.
        more: bool,
    },
    /// To [`Request::Jobs`].
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
    /// The job is done and has no result.
    Done,
    /// The job is done. What this server releases of the results follows.
    Result {
        /// Shapes of the results.
        outputs: Vec<Vec<usize>>,
        /// Hashes of the components that the next server sends; none where servers have none in common.
        next: Vec<Digest>,
        /// What it took.
        cost: Box<Cost>,
    },
    /// This server is being stopped, and takes no new jobs. Nothing was done.
    Stopping {
        /// Which server this is.
        party: usize,
    },
    /// The job, or the request, failed.
    Failed {
        /// What is wrong and what to do.
        reason: String,
    },
}

/// What one server knows about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Which server.
    pub party: usize,
    /// The version of its program.
    pub program: String,
    /// Seconds since it started.
    pub up_seconds: u64,
    /// What it computes on.
    pub engine: String,
    /// Whether it is linked with the others, or what it waits for.
    pub link: Link,
    /// Whether it is being stopped, and takes no new jobs.
    pub stopping: bool,
    /// Jobs that wait here.
    pub waiting: usize,
    /// The step of the job that runs, if one does.
    pub step: Option<String>,
    /// Jobs done since the start.
    pub done: u64,
    /// Jobs failed since the start.
    pub failed: u64,
    /// Number of models in force.
    pub models: usize,
    /// Names of models that cannot be served because their files are damaged.
    pub damaged: Vec<String>,
    /// Clients that are connected, this one included.
    pub clients: usize,
    /// Bytes kept for the parts of jobs that come or wait.
    pub reserved: u64,
    /// When the certificates that it uses end.
    pub certificates: Vec<CertificateEnd>,
    /// What its clock says, in seconds since 1970.
    pub clock: u64,
    /// A dealer's tapes that it has, where answers come from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tapes: Vec<TapeState>,
}

/// The state of a server's session with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// All are in one session.
    Up,
    /// This server tries to reach the others.
    Down {
        /// Why there is no session.
        reason: String,
    },
}

/// A line in a server's list of models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Id,
    /// The client that put it.
    pub owner: String,
    /// Who may run it besides its owner, whom alone this is told.
    pub readers: Option<Readers>,
    /// When it was put, in seconds since 1970.
    pub put_at: u64,
    /// Number of secret weights.
    pub weights: u64,
    /// Dimensions of its inputs, without the batch.
    pub inputs: Vec<Vec<usize>>,
    /// Dimensions of its outputs, without the batch.
    pub outputs: Vec<Vec<usize>>,
    /// Why it cannot be used, if it cannot.
    pub damage: Option<String>,
}

/// A line in a server's list of data sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Id,
    /// The client whose it is.
    pub owner: String,
    /// Who may name it in a run besides its owner, whom alone this is told.
    pub readers: Option<Readers>,
    /// When it was put, in seconds since 1970.
    pub put_at: u64,
    /// What is public about it.
    pub set: DataSet,
    /// What runs have told of a row of it.
    pub spent: Spent,
    /// Why it cannot be used, if it cannot.
    pub damage: Option<String>,
}

/// A line in a server's list of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Its name.
    pub name: String,
    /// The client whose it is.
    pub owner: String,
    /// When the state that is kept was written, in seconds since 1970.
    pub put_at: u64,
    /// What is public about it.
    pub run: Run,
    /// Why it cannot go on, if it cannot.
    pub damage: Option<String>,
}

/// All that is public about one version of a model. The servers say the same of it, or it is not
/// used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicModel {
    /// The version.
    pub version: Id,
    /// The client that put it.
    pub owner: String,
    /// Who may run it besides its owner, whom alone this is told.
    pub readers: Option<Readers>,
    /// What the model is.
    pub about: About,
    /// What its owner expects of each input, in their order; empty if nothing.
    pub ranges: Vec<Option<Range>>,
}

/// A job at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// Its name.
    pub job: Id,
    /// What it does, such as `infer` or `put`.
    pub kind: String,
    /// The model.
    pub model: String,
    /// How far it is.
    pub stage: Stage,
    /// Seconds since it came.
    pub seconds: u64,
}

/// How far a job is at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It waits for its turn.
    Waiting {
        /// Jobs before this one, where the server knows.
        before: Option<usize>,
    },
    /// It runs.
    Working(Place),
}

/// What a job took at one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Bytes sent to the other servers.
    pub bytes: u64,
    /// Messages sent to the other servers.
    pub messages: u64,
    /// Rounds, as this server counted them.
    pub rounds: u32,
    /// Causal depth at the start.
    pub first_depth: u32,
    /// Bytes taken from a dealer's tape.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tape: u64,
    /// In the order of execution; empty unless a profile was asked for.
    pub steps: Vec<StepCost>,
}

/// What one step took at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The step.
    pub name: String,
    /// Seconds spent in it.
    pub seconds: f64,
    /// Bytes sent to the other servers.
    pub bytes: u64,
    /// Causal depth at its end: the growth of the servers' largest is its rounds.
    pub depth: u32,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Cost {
    /// What was sent, without how long it took: the same wherever the same plan runs.
    #[must_use]
    pub fn timeless(mut self) -> Self {
        self.seconds = 0.0;
        self.steps.iter_mut().for_each(|step| step.seconds = 0.0);
        self
    }
}

impl Request {
    /// Whether it is part of a training.
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

    /// What is asked for, as logs name it.
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
