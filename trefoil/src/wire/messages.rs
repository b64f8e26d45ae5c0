//! The headers of messages between clients and servers.

use serde::{Deserialize, Serialize};

use crate::{About, Digest, Id, watch::Place};

/// What a client asks of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Request {
    /// Are you there?
    Ping,
    /// How are you?
    Status,
    /// Which models do you have?
    Models,
    /// Keep your part of a model. Keys, plan and words follow.
    Put {
        /// The job; the version of the model.
        job: Id,
        /// The model's name.
        name: String,
        /// What is public about it.
        about: Box<About>,
        /// Length of the plan.
        plan: u64,
        /// Shapes of the weights.
        weights: Vec<Vec<usize>>,
        /// Take the place of a model of the same name.
        replace: bool,
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
        /// Shapes of the inputs, with the batch.
        inputs: Vec<Vec<usize>>,
        /// Send the profile by layer.
        profile: bool,
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
    Models(Vec<ModelState>),
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
    /// The job is done. This server's components of the results follow.
    Result {
        /// Shapes of the results.
        outputs: Vec<Vec<usize>>,
        /// What it took.
        cost: Box<Cost>,
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
    /// Whether it is linked with both others, or what it waits for.
    pub link: Link,
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
}

/// The state of a server's session with the two others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// All three are in one session.
    Up,
    /// This server tries to reach the others.
    Down {
        /// Why there is no session.
        reason: String,
    },
}

/// A model at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<Id>,
    /// What is public about it.
    pub about: Option<About>,
    /// The client that put it.
    pub owner: Option<String>,
    /// When, in seconds since 1970.
    pub put_at: Option<u64>,
    /// Why it cannot be used, if it cannot.
    pub damage: Option<String>,
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
    /// Causal depth at its end: the growth of the largest of the three is its rounds.
    pub depth: u32,
}

impl Request {
    /// The hash that servers compare: all of the request, the client, and the version of the model it
    /// meets.
    #[must_use]
    pub fn digest(&self, client: &str, version: Option<Id>) -> Digest {
        let header = serde_json::to_vec(self).unwrap_or_default();
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        Digest::of(&[&header, client.as_bytes(), version.as_bytes()])
    }
}
