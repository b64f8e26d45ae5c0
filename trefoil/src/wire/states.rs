//! Reports of servers: their state and that of items, jobs and costs.

use mpc_core::Profile;
use serde::{Deserialize, Serialize};

use crate::{
    base::Id,
    cluster::CertificateEnd,
    model::{About, Range},
    store::Readers,
    tapes::TapeState,
    training::{DataSet, Run, Spent},
};

/// The state of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The number of the server.
    pub party: usize,
    /// The version of its program.
    pub program: String,
    /// Seconds since it started.
    pub up_seconds: u64,
    /// The engine.
    pub engine: String,
    /// The state of the links to the others.
    pub link: Link,
    /// True if it is being stopped, and takes no new jobs.
    pub stopping: bool,
    /// Jobs that wait here.
    pub waiting: usize,
    /// The step of the job that runs, if one does.
    pub step: Option<String>,
    /// Jobs done since the start.
    pub done: u64,
    /// Jobs failed since the start.
    pub failed: u64,
    /// Number of current models.
    pub models: usize,
    /// Names of models that cannot be served because their files are damaged.
    pub damaged: Vec<String>,
    /// Clients that are connected, this one included.
    pub clients: usize,
    /// Bytes kept for the parts of jobs that come or wait.
    pub reserved: u64,
    /// The ends of the certificates that it uses.
    pub certificates: Vec<CertificateEnd>,
    /// The server's clock, in seconds since 1970.
    pub clock: u64,
    /// A dealer's tapes that it has, where answers come from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tapes: Vec<TapeState>,
    /// Its number among its party's workers, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Seconds that all jobs which wait or run here will take, by the time of jobs like them before.
    #[serde(default)]
    pub waiting_seconds: f64,
    /// The profile of `party.toml`; where it is `auto`, also the links by which profiles are chosen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// One of several workers of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its number, from 0.
    pub number: u16,
    /// The greatest number of them.
    pub of: u16,
}

/// The state of a server's session with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// All are in one session.
    Up,
    /// This server tries to reach the others.
    Down {
        /// Why the session is missing.
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
    /// The clients that may run it, in addition to its owner. Only the owner gets this.
    pub readers: Option<Readers>,
    /// The time when it was put, in seconds since 1970.
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
    /// The client that owns it.
    pub owner: String,
    /// The clients that may name it in a run, in addition to its owner. Only the owner gets this.
    pub readers: Option<Readers>,
    /// The time when it was put, in seconds since 1970.
    pub put_at: u64,
    /// The public description.
    pub set: DataSet,
    /// The privacy that runs have spent.
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
    /// The client that owns it.
    pub owner: String,
    /// The time when the state that is kept was written, in seconds since 1970.
    pub put_at: u64,
    /// The public description.
    pub run: Run,
    /// Why it cannot continue, if it cannot.
    pub damage: Option<String>,
}

/// All that is public about one version of a model. The servers agree on it, or it is not used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicModel {
    /// The version.
    pub version: Id,
    /// The client that put it.
    pub owner: String,
    /// The clients that may run it, in addition to its owner. Only the owner gets this.
    pub readers: Option<Readers>,
    /// The public description.
    pub about: About,
    /// The range that the owner states for each input, in their order; empty if none.
    pub ranges: Vec<Option<Range>>,
}

/// A job at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// Its name.
    pub job: Id,
    /// The kind of job, such as `infer` or `put`.
    pub kind: String,
    /// The model.
    pub model: String,
    /// The progress.
    pub stage: Stage,
    /// Seconds since it came.
    pub seconds: u64,
}

/// The progress of a job at one server.
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

/// The cost of a job at one server.
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
    /// The profile, where the servers choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The costs of the steps, in the order of execution; empty unless a profile was asked for.
    pub steps: Vec<StepCost>,
}

/// The cost of one step at one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The step.
    pub name: String,
    /// Seconds spent in it.
    pub seconds: f64,
    /// Bytes sent to the other servers.
    pub bytes: u64,
    /// Causal depth when it ends: the growth of the servers' largest is its rounds.
    pub depth: u32,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Cost {
    /// The traffic alone, without times: the same wherever the same plan runs.
    #[must_use]
    pub fn timeless(mut self) -> Self {
        self.seconds = 0.0;
        self.steps.iter_mut().for_each(|step| step.seconds = 0.0);
        self
    }
}

/// The place of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The step of the protocol.
    pub step: String,
    /// Layers that are done.
    pub done: usize,
    /// Layers in all; 0 outside of a model.
    pub of: usize,
}
