//! Models in memory: plans of all that were asked for, shares of those used last in a session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mpc_core::{Deal, Held};

use super::Core;
use crate::{
    Digest, Error, Id, Result, Shares,
    program::{Program, shapes_of},
    store::{Manifest, Store},
};

/// A model ready to run.
pub(super) struct Loaded<S> {
    pub(super) program: Arc<Program>,
    weights: Weights<S>,
    pub(super) version: Id,
    /// Hashes of all first components that this server holds, all second ones, and so on.
    pub(super) hashes: Vec<Digest>,
    bytes: u64,
}

/// A server's part of a model's weights.
enum Weights<S> {
    /// Shares, where the engine computes.
    Shares(Vec<S>),
    /// Components, which are shared again under the masks of each tape.
    Held(Shares),
}

impl<S> Loaded<S> {
    /// The weights in the session's protocol.
    pub(super) fn weights(&self) -> Result<&[S]> {
        match &self.weights {
            Weights::Shares(shares) => Ok(shares),
            Weights::Held(_) => Err(Error::Internal("weights are not shared yet".to_owned())),
        }
    }

    /// The weights, where each tape shares them again.
    pub(super) fn held(&self) -> Result<&Shares> {
        match &self.weights {
            Weights::Held(held) => Ok(held),
            Weights::Shares(_) => Err(Error::Internal("weights are shared already".to_owned())),
        }
    }
}

/// Hashes of a server's first components of several tensors, of its second ones, and so on.
pub(super) fn hashes<'a>(shares: impl IntoIterator<Item = &'a Held> + Clone) -> Vec<Digest> {
    let components = shares.clone().into_iter().next().map_or(0, Vec::len);
    let of = |at: usize| shares.clone().into_iter().filter_map(move |held| held.get(at));
    (0..components).map(|at| Digest::of_tensors(of(at))).collect()
}

/// The plans of the models that were asked for.
#[derive(Default)]
pub(super) struct Programs(Mutex<HashMap<String, (Id, Arc<Program>)>>);

impl Programs {
    /// The plan of a version.
    pub(super) fn get(
        &self,
        store: &Store,
        name: &str,
        manifest: &Manifest,
    ) -> Result<Arc<Program>> {
        let version = manifest.version;
        if let Some((known, program)) = self.lock().get(name)
            && *known == version
        {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::parse(&store.plan(name, manifest)?)?);
        self.lock().insert(name.to_owned(), (version, program.clone()));
        Ok(program)
    }

    /// Drops the plan of a model that was removed.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Id, Arc<Program>)>> {
        // Every change is a single step, so a panic leaves a sound map behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Models in memory for one session, up to a number of bytes; the one not used for longest goes first.
pub(super) struct Models<S> {
    limit: u64,
    /// The one used last stands last.
    known: Vec<(String, Arc<Loaded<S>>)>,
}

impl<S> Models<S> {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, known: Vec::new() }
    }

    /// A version with its shares, brought to where the engine computes. Without a protocol it keeps the components as
    /// they are.
    pub(super) fn load<P: Deal<Share = S>>(
        &mut self,
        core: &Core,
        mpc: Option<&mut P>,
        name: &str,
        manifest: &Manifest,
    ) -> Result<Arc<Loaded<S>>> {
        let version = manifest.version;
        if let Some(at) = self.known.iter().position(|(known, _)| known == name) {
            let entry = self.known.remove(at);
            if entry.1.version == version {
                self.known.push(entry.clone());
                return Ok(entry.1);
            }
        }
        let program = core.programs.get(&core.store, name, manifest)?;
        let held = core.store.shares(name, manifest)?;
        let shapes = shapes_of(&held)?;
        program.check_about(manifest.model()?.0)?;
        program.check_weights(&shapes)?;
        // Of a word, the components and their sum, which products keep.
        let word = 8 * (core.sharing().components() as u64 + 1);
        let bytes = shapes.iter().map(|shape| word * shape.len() as u64).sum();
        let hashes = hashes(&held);
        let weights = match mpc {
            Some(mpc) => Weights::Shares(mpc.accept(&shapes, held)?),
            None => Weights::Held(held),
        };
        let loaded = Arc::new(Loaded { program, weights, version, hashes, bytes });
        self.keep(name, loaded.clone());
        Ok(loaded)
    }

    /// Drops a model that was removed.
    pub(super) fn forget(&mut self, name: &str) {
        self.known.retain(|(known, _)| known != name);
    }

    fn keep(&mut self, name: &str, loaded: Arc<Loaded<S>>) {
        self.known.push((name.to_owned(), loaded));
        let mut held: u64 = self.known.iter().map(|(_, model)| model.bytes).sum();
        while held > self.limit && self.known.len() > 1 {
            held -= self.known.remove(0).1.bytes;
        }
    }
}
