//! What a server tells a client about models and jobs.

use super::{Core, Job, Queue, Running, access::sees, clients::Visit};
use crate::{
    Error, Id, Result,
    store::Manifest,
    watch::Place,
    wire::{JobState, ModelState, PublicModel, Reply, Stage, say},
};

/// Most models on a page.
const PAGE: usize = 64;

impl Visit<'_> {
    /// Sends a page of the models that the client may use.
    pub(super) fn list(&mut self, after: Option<&str>) -> Result<()> {
        let names = self.core.store.names()?;
        let mut models = Vec::with_capacity(PAGE);
        let mut more = false;
        for name in names.iter().filter(|name| after.is_none_or(|after| name.as_str() > after)) {
            let Some(manifest) = self.core.store.peek(name) else { continue };
            if !sees(self.client, &manifest) {
                continue;
            }
            if models.len() == PAGE {
                more = true;
                break;
            }
            let damage = self.core.store.manifest(name).err().map(|error| error.to_string());
            models.push(line(self.client, manifest, damage));
        }
        say(self.channel, &Reply::Models { models, more })
    }

    /// Sends what is public about a model.
    pub(super) fn describe(&mut self, name: &str) -> Result<()> {
        let manifest = self.core.readable(self.client, name)?;
        let readers = (manifest.owner == self.client).then_some(manifest.readers);
        let Manifest { version, owner, about, ranges, .. } = manifest;
        let public = PublicModel { version, owner, readers, about, ranges };
        let bytes = serde_json::to_vec(&public)
            .map_err(|cause| Error::Internal(format!("model `{name}`: {cause}")))?;
        say(self.channel, &Reply::Model { bytes: bytes.len() as u64 })?;
        self.send(bytes.into())
    }

    /// Sends which of the client's jobs are here.
    pub(super) fn jobs(&mut self) -> Result<()> {
        let jobs = self.core.jobs_of(self.client);
        say(self.channel, &Reply::Jobs(jobs))
    }

    /// Ends a job of the client's.
    pub(super) fn cancel(&mut self, id: Id) -> Result<()> {
        self.core.cancel_of(self.client, id)?;
        say(self.channel, &Reply::Done)
    }
}

fn line(client: &str, manifest: Manifest, damage: Option<String>) -> ModelState {
    let about = manifest.about;
    ModelState {
        name: manifest.name,
        version: manifest.version,
        readers: (manifest.owner == client).then_some(manifest.readers),
        owner: manifest.owner,
        put_at: manifest.put_at,
        weights: about.weights,
        inputs: about.inputs.into_iter().map(|input| input.dims).collect(),
        outputs: about.outputs.into_iter().map(|output| output.dims).collect(),
        damage,
    }
}

impl Core {
    /// A client's jobs that wait or run here, the oldest first.
    fn jobs_of(&self, client: &str) -> Vec<JobState> {
        let state = self.state();
        let mut jobs: Vec<JobState> = Vec::new();
        if let Some(running) = state.running.as_ref().filter(|running| running.client == client) {
            jobs.push(running.describe());
        }
        let waiting = state.jobs.iter().filter(|(_, job)| job.client == client);
        jobs.extend(waiting.map(|(&id, job)| {
            let before = match &state.queue {
                Queue::Leader(leader) => leader.position(id),
                Queue::Follower(_) => None,
            };
            job.describe(id, Stage::Waiting { before })
        }));
        jobs.sort_by_key(|job| std::cmp::Reverse(job.seconds));
        jobs
    }

    /// Ends a client's job: one that waits is dropped, and the session is ended that computes one, so
    /// that all three servers are free for the next within moments.
    fn cancel_of(&self, client: &str, id: Id) -> Result<()> {
        let reason = format!("client {client} has cancelled it");
        let mut state = self.state();
        if let Some(running) = state.running.as_ref().filter(|running| running.job.job == id) {
            if running.client == client {
                running.canceller.cancel(&reason);
                return Ok(());
            }
        } else if state.jobs.get(&id).is_some_and(|job| job.client == client) {
            let lost = state.queue.cancel(id, &reason);
            drop(state);
            if lost {
                self.give_up(vec![(id, reason)]);
            }
            return Ok(());
        }
        Err(Error::refused(
            format_args!("job {id}"),
            format!("client {client} has no such job here"),
        ))
    }
}

impl Job {
    pub(super) fn describe(&self, id: Id, stage: Stage) -> JobState {
        let (kind, model) = self.work.name();
        let seconds = self.since.elapsed().as_secs();
        JobState { job: id, kind: kind.to_owned(), model: model.to_owned(), stage, seconds }
    }
}

impl Running {
    fn describe(&self) -> JobState {
        let place: Place = self.watched.place();
        JobState { stage: Stage::Working(place), ..self.job.clone() }
    }
}
