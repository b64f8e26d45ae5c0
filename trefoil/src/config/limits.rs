//! Bounds on what peers and clients can make a server do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::check::check_range;

/// Bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest part of one job that a client may send, in MiB.
    pub upload_mib: u64,
    /// The most words that one layer's result may have, over the whole batch.
    pub activation_mwords: u64,
    /// The most memory that a model may need while it runs, as predicted from its plan, in MiB.
    pub job_memory_mib: u64,
    /// The most memory that the parts of waiting jobs may take, in MiB.
    pub memory_mib: u64,
    /// The most jobs that may wait.
    pub queue: usize,
    /// The most examples of jobs that wait for the same model and run as one, where the model allows it; party 0
    /// decides. 1 lets every job run alone.
    pub joined_examples: usize,
    /// The most clients connected at once.
    pub clients: usize,
    /// The most memory that loaded models may take, and as much again trainings between their slices, in MiB.
    pub cache_mib: u64,
    /// The most memory that conversations may take between their steps, in MiB.
    pub conversations_mib: u64,
    /// The longest time that a job waits for its parts to reach all servers, in seconds.
    pub parts_seconds: u64,
    /// The longest time that a running job waits for a silent server, in seconds.
    pub peer_seconds: u64,
    /// The longest time that a job may run, in seconds.
    pub job_seconds: u64,
    /// The longest time for a slice of a training, unless one step takes longer, in seconds; three times that ends
    /// it.
    pub train_seconds: u64,
    /// The time for which a server that is being stopped continues with the jobs that it has taken,
    /// in seconds.
    pub drain_seconds: u64,
    /// The least rate at which a client must send its part of a job, and read its answer, in KiB a second.
    pub upload_kib_per_second: u64,
    /// The most connections of one client.
    pub client_connections: usize,
    /// The most memory that the parts of one client's waiting jobs may take, in MiB.
    pub client_memory_mib: u64,
    /// The most jobs of one client that may come or wait.
    pub client_jobs: usize,
    /// The most models of one client.
    pub client_models: usize,
    /// The most room on disk that the models of one client may take, in MiB.
    pub client_disk_mib: u64,
    /// The most seconds a day for which this server computes for one client.
    pub client_seconds_per_day: u64,
    /// The most examples a day on which one client may run one model.
    pub client_answers_per_day: u64,
}

impl Default for Limits {
    /// Together they fit a machine of 24 GiB.
    fn default() -> Self {
        Self {
            upload_mib: 4096,
            activation_mwords: 256,
            job_memory_mib: 10_240,
            memory_mib: 5120,
            queue: 1024,
            joined_examples: 128,
            clients: 256,
            cache_mib: 3072,
            conversations_mib: 1024,
            parts_seconds: 10,
            peer_seconds: 10,
            job_seconds: 3600,
            train_seconds: 5,
            drain_seconds: 30,
            upload_kib_per_second: 16,
            client_connections: 64,
            client_memory_mib: 4096,
            client_jobs: 64,
            client_models: 100,
            client_disk_mib: 65_536,
            client_seconds_per_day: 86_400,
            client_answers_per_day: 1_000_000,
        }
    }
}

impl Limits {
    /// Largest part of one job, in bytes.
    pub fn upload_bytes(&self) -> u64 {
        self.upload_mib << 20
    }

    /// Largest result of a layer, in words.
    pub fn activation_words(&self) -> u64 {
        self.activation_mwords << 20
    }

    /// The most memory of a running model, in bytes.
    pub fn job_bytes(&self) -> u64 {
        self.job_memory_mib << 20
    }

    /// The most memory that all clients together can make this server hold at once, in bytes: parts, models, trainings
    /// between their slices, conversations, and the model that runs.
    fn memory(&self) -> u64 {
        (self.memory_mib + 2 * self.cache_mib + self.conversations_mib + self.job_memory_mib) << 20
    }

    /// The warning for a machine that has fewer bytes of memory than these limits promise.
    #[must_use]
    pub fn oversized(&self, machine: u64) -> Option<String> {
        (self.memory() > machine).then(|| {
            format!(
                "clients can make this server hold {} MiB (limits.memory_mib, twice cache_mib, conversations_mib and \
                 job_memory_mib together), and this machine has {} MiB of memory; set lower limits, or the system may \
                 end the server under load",
                self.memory() >> 20,
                machine >> 20
            )
        })
    }

    /// The least rate of a client that sends, in bytes a second.
    pub fn upload_rate(&self) -> u64 {
        self.upload_kib_per_second << 10
    }

    /// [`Limits::parts_seconds`] as a duration.
    pub fn parts_limit(&self) -> Duration {
        Duration::from_secs(self.parts_seconds)
    }

    /// [`Limits::peer_seconds`] as a duration.
    pub fn peer_limit(&self) -> Duration {
        Duration::from_secs(self.peer_seconds)
    }

    /// [`Limits::job_seconds`] as a duration.
    pub fn job_limit(&self) -> Duration {
        Duration::from_secs(self.job_seconds)
    }

    /// [`Limits::train_seconds`] as a duration.
    pub fn train_limit(&self) -> Duration {
        Duration::from_secs(self.train_seconds)
    }

    /// [`Limits::drain_seconds`] as a duration.
    pub fn drain_limit(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_range("limits.upload_mib", self.upload_mib, 1, 1 << 20)?;
        check_range("limits.activation_mwords", self.activation_mwords, 1, 1 << 16)?;
        check_range("limits.memory_mib", self.memory_mib, 1, 1 << 24)?;
        check_range("limits.queue", self.queue as u64, 1, 1 << 16)?;
        check_range("limits.joined_examples", self.joined_examples as u64, 1, 1 << 16)?;
        check_range("limits.clients", self.clients as u64, 1, 1 << 16)?;
        check_range("limits.cache_mib", self.cache_mib, 1, 1 << 24)?;
        check_range("limits.conversations_mib", self.conversations_mib, 1, 1 << 24)?;
        check_range("limits.parts_seconds", self.parts_seconds, 1, 3600)?;
        check_range("limits.peer_seconds", self.peer_seconds, 1, 3600)?;
        check_range("limits.job_seconds", self.job_seconds, 1, 1 << 20)?;
        check_range("limits.train_seconds", self.train_seconds, 1, 1 << 20)?;
        check_range("limits.drain_seconds", self.drain_seconds, 1, 1 << 20)?;
        check_range("limits.job_memory_mib", self.job_memory_mib, 1, 1 << 24)?;
        check_range("limits.upload_kib_per_second", self.upload_kib_per_second, 1, 1 << 20)?;
        check_range("limits.client_connections", self.client_connections as u64, 1, 1 << 16)?;
        check_range("limits.client_memory_mib", self.client_memory_mib, 1, 1 << 24)?;
        check_range("limits.client_jobs", self.client_jobs as u64, 1, 1 << 16)?;
        check_range("limits.client_models", self.client_models as u64, 1, 1 << 16)?;
        check_range("limits.client_disk_mib", self.client_disk_mib, 1, 1 << 32)?;
        check_range("limits.client_seconds_per_day", self.client_seconds_per_day, 1, 86_400)?;
        check_range("limits.client_answers_per_day", self.client_answers_per_day, 1, 1 << 48)
    }
}
