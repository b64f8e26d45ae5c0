//! Who may do what: checked by each server for itself, when a client asks and again when the job runs.
//!
//! What all clients may do stands in `party.toml`. A model belongs to the client that put it, which
//! alone may replace, share and remove it, and names who may run it besides.

use ring_arith::EngineTensor;

use super::{Core, Job, Work};
use crate::{
    Error, Id, Result,
    config::check_name,
    store::{Manifest, Readers},
};

/// Most clients that a model is shared with by name.
pub(super) const READERS: usize = 256;

impl Readers {
    /// Whether a client that is not the model's owner may run it.
    #[must_use]
    pub fn include(&self, client: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Named(names) => names.iter().any(|name| name == client),
        }
    }

    /// Checks names that somebody sent.
    ///
    /// # Errors
    /// [`Error::Refused`] if they are too many, or one is not a name.
    pub fn check(&self) -> Result<()> {
        let Self::Named(names) = self else { return Ok(()) };
        if names.len() > READERS {
            let reason = format!("at most {READERS} readers are named; share it with everyone");
            return Err(Error::refused("readers", reason));
        }
        names.iter().try_for_each(|name| {
            check_name("client", name).map_err(|reason| Error::refused("readers", reason))
        })
    }
}

impl Core {
    /// Checks that a client may connect.
    pub(super) fn admit(&self, client: &str) -> Result<()> {
        self.by_operator(self.access.admits(client), client, "connect")
    }

    /// The model of that name, if a client may run it, its owner or not.
    pub(super) fn readable(&self, client: &str, name: &str) -> Result<Manifest> {
        check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
        if self.hides(client, name) {
            // Nobody learns from the answer whether others have a model of that name.
            let reason =
                format!("there is no such model, or it is not shared with client {client}");
            return Err(Error::refused(model(name), reason));
        }
        self.store.manifest(name)
    }

    /// Whether a client is not told of what has this name. Damage is told to all where nobody can read
    /// whose the model is.
    pub(super) fn hides(&self, client: &str, name: &str) -> bool {
        match self.store.peek(name) {
            Some(manifest) => !sees(client, &manifest),
            None => !self.store.is_there(name),
        }
    }

    /// Checks that a client may run a version of a model on so many examples. Returns its manifest.
    pub(super) fn may_infer(&self, client: &str, name: &str, version: Id) -> Result<Manifest> {
        self.by_operator(self.access.may_infer(client), client, "run models")?;
        let manifest = self.readable(client, name)?;
        if manifest.version != version {
            let reason = "it was replaced by another version meanwhile; try again";
            return Err(Error::refused(model(name), reason));
        }
        Ok(manifest)
    }

    /// Checks that a client may put a model under this name.
    pub(super) fn may_put(&self, client: &str, name: &str, replace: bool) -> Result<()> {
        self.may_change(client, name)?;
        if !replace && self.store.is_there(name) {
            let reason = "is there already; use --replace, or another name";
            return Err(Error::refused(model(name), reason));
        }
        Ok(())
    }

    /// Checks that a client may replace, share or remove what has this name. Where this server cannot
    /// read whose it is, the two others decide.
    pub(super) fn may_change(&self, client: &str, name: &str) -> Result<()> {
        check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
        self.by_operator(self.access.may_put(client), client, "put models")?;
        let Some(manifest) = self.store.peek(name) else { return Ok(()) };
        if manifest.owner == client {
            return Ok(());
        }
        let reason = if manifest.readers.include(client) {
            format!("it belongs to client {}, who alone may change it", manifest.owner)
        } else {
            "another client has a model of that name; use another one".to_owned()
        };
        Err(Error::refused(model(name), reason))
    }

    /// Checks a job once more when its turn has come: meanwhile the model may have been replaced,
    /// removed or shared with others.
    pub(super) fn check_job(&self, job: &Job) -> Result<()> {
        let client = &job.client;
        match &job.work {
            Work::Put { name, replace, plan, shares, .. } => {
                self.may_put(client, name, *replace)?;
                let words: u64 = shares.iter().map(|(mine, _)| mine.len() as u64).sum();
                self.quotas.check_keep(client, name, disk_bytes(words, plan.len() as u64))
            }
            Work::Share { name, .. } => {
                self.may_change(client, name)?;
                self.store.manifest(name).map(drop)
            }
            Work::Remove { name } => self.may_change(client, name),
            Work::Infer { model, version, examples, .. } => {
                self.may_infer(client, model, *version)?;
                self.quotas.check_run(client, model, *examples)
            }
        }
    }

    fn by_operator(&self, allowed: bool, client: &str, what: &str) -> Result<()> {
        if allowed {
            return Ok(());
        }
        let reason = format!("client {client} may not {what} here (access in its party.toml)");
        Err(Error::refused(format_args!("party {}", self.me), reason))
    }
}

/// Bytes that a model takes on disk: both components of each word, and the plan.
pub(super) fn disk_bytes(words: u64, plan: u64) -> u64 {
    words.saturating_mul(16).saturating_add(plan)
}

/// Whether a client is told of a model.
pub(super) fn sees(client: &str, manifest: &Manifest) -> bool {
    manifest.owner == client || manifest.readers.include(client)
}

fn model(name: &str) -> String {
    format!("model `{name}`")
}
