//! The rights of clients: each server checks them for itself, when a client asks and again when the job runs.
//!
//! `party.toml` states what all clients may do. A model belongs to the client that put it: this
//! owner alone may replace, share and remove it, and names the other clients that may run it.

use mpc_core::Sharing;

use super::{Core, audit::Event};
use crate::{
    base::{Digest, Error, Id, Result, check::check_name, format::did_you_mean},
    store::{Content, Entry, Manifest, Readers, StoredShares},
    training::{Decision, Halt, Used},
};

/// The most clients that a model is shared with by name.
pub(super) const READERS: usize = 256;

impl Readers {
    /// True if a client that is not the model's owner may run it.
    #[must_use]
    pub fn include(&self, client: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Named(names) => names.iter().any(|name| name == client),
        }
    }

    /// Checks names that a client sent.
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
        let entry = self.store.entry(name);
        if hides(client, &entry) {
            // Nobody learns from the answer whether others have a model of that name.
            let near = self.near(client, name);
            let reason =
                format!("there is no such model, or it is not shared with client {client}{near}");
            return Err(Error::refused(model(name), reason));
        }
        entry.usable(name)
    }

    /// A remark on the name that was probably meant, of those that the client may see.
    fn near(&self, client: &str, name: &str) -> String {
        let seen = |known: &String| {
            self.store.entry(known).manifest().is_some_and(|manifest| sees(client, manifest))
        };
        let names = self.store.names().unwrap_or_default();
        did_you_mean(name, names.iter().filter(|known| seen(known)).map(String::as_str))
    }

    /// Checks that a client may run a version of a model on this many examples. Returns its
    /// manifest.
    pub(super) fn may_infer(&self, client: &str, name: &str, version: Id) -> Result<Manifest> {
        self.by_operator(self.access.may_infer(client), client, "run models")?;
        let manifest = self.readable(client, name)?;
        if manifest.version != version {
            let reason = "it was replaced by another version meanwhile; try again";
            return Err(Error::refused(model(name), reason));
        }
        manifest.model()?;
        Ok(manifest)
    }

    /// True if whoever has this name may run a model, and so see its answers, as a client.
    pub(super) fn may_see_answers(&self, name: &str, manifest: &Manifest) -> bool {
        let named = manifest.owner == name || manifest.readers.include(name);
        named && self.access.admits(name) && self.access.may_infer(name)
    }

    /// Checks that a client may put something of this kind under this name.
    pub(super) fn may_put(
        &self,
        client: &str,
        name: &str,
        kind: &str,
        replace: bool,
    ) -> Result<()> {
        let entry = self.may_change(client, name)?;
        let there = entry.manifest().map(|manifest| manifest.content.kind());
        if let Some(there) = there.filter(|there| *there != kind) {
            let reason = format!("there is a {there} of that name; remove it, or use another name");
            return Err(Error::refused(model(name), reason));
        }
        if !replace && !matches!(entry, Entry::Absent) {
            let reason = "is there already; use --replace, or another name";
            return Err(Error::refused(model(name), reason));
        }
        Ok(())
    }

    /// Checks that a client may replace, share or remove what has this name, and returns that. If this server cannot
    /// read the owner, the two others decide.
    pub(super) fn may_change(&self, client: &str, name: &str) -> Result<Entry> {
        check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
        self.by_operator(self.access.may_put(client), client, "put models")?;
        let entry = self.store.entry(name);
        let Some(manifest) = entry.manifest().filter(|manifest| manifest.owner != client) else {
            return Ok(entry);
        };
        let reason = if manifest.readers.include(client) {
            format!("it belongs to client {}, who alone may change it", manifest.owner)
        } else {
            "another client has a model of that name; use another one".to_owned()
        };
        Err(Error::refused(model(name), reason))
    }

    /// Checks that these servers train.
    pub(super) fn may_train_at_all(&self) -> Result<()> {
        if self.shelf.is_none() {
            return Ok(());
        }
        let reason = "these servers answer from tapes and train nothing; three servers with `protocol = \"rss\"` do";
        Err(Error::refused("servers", reason))
    }

    /// The data set of that name and version, which a client may name in a run.
    pub(super) fn usable_data(&self, client: &str, used: &Used) -> Result<Manifest> {
        let manifest = self.readable(client, &used.name)?;
        manifest.data()?;
        if manifest.version != used.version {
            let reason = "it was replaced by another version; make the run again";
            return Err(Error::refused(format_args!("data set `{}`", used.name), reason));
        }
        Ok(manifest)
    }

    /// A client's own run.
    pub(super) fn own_run(
        &self,
        client: &str,
        name: &str,
        fingerprint: Digest,
    ) -> Result<Manifest> {
        let manifest = self.this_run(client, name, fingerprint)?;
        if manifest.owner != client {
            let reason = format!("it belongs to client {}", manifest.owner);
            return Err(Error::refused(format_args!("run `{name}`"), reason));
        }
        Ok(manifest)
    }

    /// The run that a client looked at, if it is still the same.
    fn this_run(&self, client: &str, name: &str, fingerprint: Digest) -> Result<Manifest> {
        let manifest = self.readable(client, name)?;
        if manifest.run()?.fingerprint != fingerprint {
            let reason = "it is another run by now; look at it with `trefoil run show`";
            return Err(Error::refused(format_args!("run `{name}`"), reason));
        }
        Ok(manifest)
    }

    /// A run whose weights may leave for a client after a step: its own, or one that names it among its recipients.
    pub(super) fn may_release(
        &self,
        client: &str,
        name: &str,
        fingerprint: Digest,
        step: u32,
    ) -> Result<Manifest> {
        let manifest = self.readable(client, name)?;
        let run = manifest.run()?;
        let named = run.spec.recipients.iter().any(|recipient| recipient == client);
        if named && run.fingerprint == fingerprint {
            return opens(manifest, step);
        }
        self.may_publish(client, name, fingerprint, step)
    }

    /// A run of a client's own of which a model may be made after a step.
    pub(super) fn may_publish(
        &self,
        client: &str,
        name: &str,
        fingerprint: Digest,
        step: u32,
    ) -> Result<Manifest> {
        opens(self.own_run(client, name, fingerprint)?, step)
    }

    /// Checks that a client may go on with a run: it is its own, it is not stopped, and the owners of all data
    /// consent.
    pub(super) fn may_train(
        &self,
        client: &str,
        name: &str,
        fingerprint: Digest,
    ) -> Result<Manifest> {
        let manifest = self.own_run(client, name, fingerprint)?;
        let run = manifest.run()?;
        check_consent(&manifest)?;
        check_range(&manifest)?;
        if run.stopped {
            let reason = format!("it is stopped; `trefoil run resume {name}` resumes it");
            return Err(Error::refused(format_args!("run `{name}`"), reason));
        }
        run.spec.data.iter().try_for_each(|used| self.usable_data(client, used).map(drop))?;
        Ok(manifest)
    }

    /// Checks that a client may decide this about a run: its owner, or an owner of its data.
    pub(super) fn may_decide(
        &self,
        client: &str,
        name: &str,
        fingerprint: Digest,
        decision: Decision,
    ) -> Result<()> {
        match decision {
            Decision::Resume => check_range(&self.own_run(client, name, fingerprint)?),
            Decision::Approve => uses_data_of(client, &self.this_run(client, name, fingerprint)?),
        }
    }

    /// Halts a run here, for good or until it is approved or resumed, and ends the job that works on it.
    pub(super) fn halt(&self, client: &str, name: &str, halt: Halt) -> Result<()> {
        let manifest = self.readable(client, name)?;
        let fingerprint = manifest.run()?.fingerprint;
        let reason = match halt {
            Halt::Withdraw => {
                uses_data_of(client, &manifest)?;
                format!("client {client} has withdrawn its consent")
            }
            Halt::Stop => {
                self.own_run(client, name, fingerprint)?;
                format!("client {client} has stopped it")
            }
            Halt::Diverge => {
                self.own_run(client, name, fingerprint)?;
                format!("client {client} has found that it diverged")
            }
        };
        self.store.halt(name, client, halt)?;
        self.record_decision(client, halt.name(), name, fingerprint);
        // A job that has not begun sees what was written; one that has begun is ended.
        if let Some(running) =
            self.state().running.as_mut().filter(|running| running.is_of_run(name))
        {
            running.end(&reason);
        }
        Ok(())
    }

    /// Writes to the audit log what a client has decided about a run here.
    pub(super) fn record_decision(
        &self,
        client: &str,
        decision: &'static str,
        run: &str,
        fingerprint: Digest,
    ) {
        let fingerprint = &fingerprint.letters();
        self.audit.record(&Event::Decided { client, decision, run, fingerprint });
    }

    fn by_operator(&self, allowed: bool, client: &str, what: &str) -> Result<()> {
        if allowed {
            return Ok(());
        }
        let reason = format!("client {client} may not {what} here (access in its party.toml)");
        Err(Error::refused(format_args!("party {}", self.me), reason))
    }
}

/// Checks that the owners of all data of a run consent.
fn check_consent(manifest: &Manifest) -> Result<()> {
    let name = &manifest.name;
    let missing = manifest.run()?.missing(&manifest.owner);
    if missing.is_empty() {
        return Ok(());
    }
    let reason =
        format!("it waits for the consent of {}: `trefoil run approve {name}`", missing.join(", "));
    Err(Error::refused(format_args!("run `{name}`"), reason))
}

/// Refuses a run whose owner has found that its numbers left their range: they cannot be right.
fn check_range(manifest: &Manifest) -> Result<()> {
    if !manifest.run()?.diverged {
        return Ok(());
    }
    let reason = "it has diverged: its numbers left the range in which they are right; begin another with a smaller rate \
                  (`--replace`, in Python replace=True), or remove it with `trefoil run remove`";
    Err(Error::refused(format_args!("run `{}`", manifest.name), reason))
}

/// A run of which the weights may leave after a step, as agreed with the owners of its data.
fn opens(manifest: Manifest, step: u32) -> Result<Manifest> {
    check_consent(&manifest)?;
    check_range(&manifest)?;
    let run = manifest.run()?;
    let refused =
        |reason: String| Err(Error::refused(format_args!("run `{}`", manifest.name), reason));
    if !run.spec.openings.opens_weights(step) {
        return refused(format!(
            "its {} leave after steps {:?} and not after step {step}: the owners of its data have consented to that",
            run.spec.task.leaves(),
            run.spec.openings.weights
        ));
    }
    if run.step != step {
        let kept = run.step;
        return refused(format!(
            "this server has kept its state after step {kept}, and not after step {step}"
        ));
    }
    Ok(manifest)
}

fn uses_data_of(client: &str, manifest: &Manifest) -> Result<()> {
    if manifest.run()?.owners.iter().any(|owner| owner == client) {
        return Ok(());
    }
    let reason = "it uses no data of yours";
    Err(Error::refused(format_args!("run `{}`", manifest.name), reason))
}

/// Bytes that all components of shares take.
pub(super) fn bytes_held(shares: &StoredShares) -> u64 {
    8 * shares.expanded_words()
}

/// Bytes that a number of words takes at a server, which holds the components of this sharing.
pub(super) fn bytes_of(words: u64, sharing: &dyn Sharing) -> u64 {
    words.saturating_mul(8 * sharing.components() as u64)
}

/// True if a name's entry is hidden from a client. Damage is shown to all if the owner cannot be read.
pub(super) fn hides(client: &str, entry: &Entry) -> bool {
    match entry {
        Entry::Absent => true,
        Entry::Unreadable(_) => false,
        Entry::Kept { manifest, .. } => !sees(client, manifest),
    }
}

/// True if a client may see a manifest's contents: its owner and those who may use it. A run is also seen by the
/// owners of its data and those who get its weights.
pub(super) fn sees(client: &str, manifest: &Manifest) -> bool {
    let concerned = matches!(&manifest.content, Content::Run(run)
        if run.owners.iter().chain(&run.spec.recipients).any(|name| name == client));
    manifest.owner == client || manifest.readers.include(client) || concerned
}

fn model(name: &str) -> String {
    format!("model `{name}`")
}
