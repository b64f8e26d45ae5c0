//! The lists of models and jobs that a server gives to a client.

use super::Visit;
use crate::{
    base::{Error, Id, Result},
    server::{Core, Queue, access::sees},
    store::{Content, Entry, Manifest},
    training::Spent,
    wire::{DataState, JobState, ModelState, PublicModel, Reply, RunState, Stage, Status, say},
};

/// The most models on a page.
const PAGE: usize = 64;

impl Visit<'_> {
    /// Sends a page of the models that the client may use.
    pub(super) fn list(&mut self, after: Option<&str>) -> Result<()> {
        let line = |manifest, damage| line(self.client, manifest, damage);
        let (models, more) = self.page(after, line)?;
        say(self.channel, &Reply::Models { models, more })
    }

    /// Sends a page of the data sets that the client may use.
    pub(super) fn list_data(&mut self, after: Option<&str>) -> Result<()> {
        let (sets, more) = self.page(after, |manifest, damage| {
            let Content::Data(set) = manifest.content else { return None };
            let Manifest { name, version, owner, readers, put_at, .. } = manifest;
            let readers = (owner == self.client).then_some(readers);
            // Of a count that cannot be read nothing is known: the set cannot be used.
            let (spent, damage) = match self.core.store.ledger().spent(&owner, &name) {
                Ok(spent) => (spent, damage),
                Err(error) => (Spent::default(), Some(error.to_string())),
            };
            Some(DataState { name, version, owner, readers, put_at, set, spent, damage })
        })?;
        say(self.channel, &Reply::DataSets { sets, more })
    }

    /// Sends a page of the client's runs, and of those that use its data.
    pub(super) fn list_runs(&mut self, after: Option<&str>) -> Result<()> {
        let (runs, more) = self.page(after, |manifest, damage| {
            let Content::Run(run) = manifest.content else { return None };
            let Manifest { name, owner, put_at, .. } = manifest;
            Some(RunState { name, owner, put_at, run: *run, damage })
        })?;
        say(self.channel, &Reply::Runs { runs, more })
    }

    /// A page of the items that `describe` makes of the entries that the client may see, and true
    /// if there are more.
    fn page<T>(
        &self,
        after: Option<&str>,
        describe: impl Fn(Manifest, Option<String>) -> Option<T>,
    ) -> Result<(Vec<T>, bool)> {
        let names = self.core.store.names()?;
        let mut page = Vec::with_capacity(PAGE);
        for name in names.iter().filter(|name| after.is_none_or(|after| name.as_str() > after)) {
            let Entry::Kept { manifest, damage } = self.core.store.entry(name) else { continue };
            if !sees(self.client, &manifest) {
                continue;
            }
            let Some(item) = describe(*manifest, damage.map(|error| error.to_string())) else {
                continue;
            };
            if page.len() == PAGE {
                return Ok((page, true));
            }
            page.push(item);
        }
        Ok((page, false))
    }

    /// Sends what is public about a model.
    pub(super) fn describe(&mut self, name: &str) -> Result<()> {
        let manifest = self.core.readable(self.client, name)?;
        manifest.model()?;
        let manifest = self.core.store.labelled(manifest)?;
        let (about, ranges) = manifest.model()?;
        let (about, ranges) = (about.clone(), ranges.to_vec());
        let readers = (manifest.owner == self.client).then_some(manifest.readers);
        let Manifest { version, owner, .. } = manifest;
        let public = PublicModel { version, owner, readers, about, ranges };
        let bytes = serde_json::to_vec(&public)
            .map_err(|cause| Error::Internal(format!("model `{name}`: {cause}")))?;
        say(self.channel, &Reply::Model { bytes: bytes.len() as u64 })?;
        self.send(bytes.into())
    }

    /// Sends the tokenizer of a language model.
    pub(super) fn tokenizer(&mut self, name: &str) -> Result<()> {
        let manifest = self.core.readable(self.client, name)?;
        let bytes = self.core.store.tokenizer(name, &manifest)?;
        say(self.channel, &Reply::Tokenizer { bytes: bytes.len() as u64 })?;
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

fn line(client: &str, manifest: Manifest, damage: Option<String>) -> Option<ModelState> {
    let Content::Model { about, .. } = manifest.content else { return None };
    Some(ModelState {
        name: manifest.name,
        version: manifest.version,
        readers: (manifest.owner == client).then_some(manifest.readers),
        owner: manifest.owner,
        put_at: manifest.put_at,
        weights: about.weights,
        inputs: about.inputs.into_iter().map(|input| input.dims).collect(),
        outputs: about.outputs.into_iter().map(|output| output.dims).collect(),
        damage,
    })
}

impl Core {
    /// Takes out of a server's state what is not a client's own: others' jobs, connections and steps are for operators.
    pub(super) fn hide_others(&self, client: &str, status: &mut Status) {
        let usable = |name: &String| {
            self.store.entry(name).manifest().is_some_and(|manifest| sees(client, manifest))
        };
        status.models =
            self.store.names().unwrap_or_default().iter().filter(|it| usable(it)).count();
        (status.clients, status.reserved) = self.quotas.held_by(client);
        let state = self.state();
        status.waiting = state.jobs.values().filter(|job| job.client == client).count();
        (status.done, status.failed) = state.ended.get(client).copied().unwrap_or_default();
        let runs =
            state.running.as_ref().is_some_and(|running| running.of(client).next().is_some());
        if !runs {
            status.step = None;
        }
    }

    /// A client's jobs that wait or run here, the oldest first.
    fn jobs_of(&self, client: &str) -> Vec<JobState> {
        let state = self.state();
        let mut jobs: Vec<JobState> = Vec::new();
        if let Some(running) = &state.running {
            jobs.extend(running.of(client));
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

    /// Ends a client's job. A waiting job is dropped, a job that is being prepared is refused, and a job that runs
    /// ends with its session. So all servers are free for the next job within moments.
    fn cancel_of(&self, client: &str, id: Id) -> Result<()> {
        let reason = format!("client {client} has cancelled it");
        let mut state = self.state();
        if let Some(running) = state.running.as_mut().filter(|running| running.has(id)) {
            if running.of(client).any(|job| job.job == id) {
                if running.cancel(id, &reason) {
                    return Ok(());
                }
                return Err(Error::refused(format_args!("job {id}"), "it is about to end"));
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
