//! Models in memory: plans of all that were asked for, shares of those used last in a session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mpc_core::{Deal, Held, Operand, Protocol, Sharing};
use ring_arith::Shape;

use super::Core;
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    model::{Program, shapes_of},
    store::{Manifest, Store},
};

/// A model ready to run.
pub(super) struct Loaded<P: Protocol> {
    pub(super) program: Arc<Program>,
    weights: Weights<P>,
    pub(super) version: Id,
    pub(super) hashes: Hashes,
    bytes: u64,
}

/// A server's part of a model's weights.
enum Weights<P: Protocol> {
    /// Shares, or words in the clear, where the engine computes.
    Operands(Vec<Operand<P>>),
    /// Components, which are shared again under the masks of each tape.
    Held(Shares),
}

impl<P: Protocol> Loaded<P> {
    /// The weights in the session's protocol.
    pub(super) fn weights(&self) -> Result<&[Operand<P>]> {
        match &self.weights {
            Weights::Operands(operands) => Ok(operands),
            Weights::Held(_) => Err(Error::Internal("weights are not shared yet".to_owned())),
        }
    }

    /// The weights, where each tape shares them again.
    pub(super) fn held(&self) -> Result<&Shares> {
        match &self.weights {
            Weights::Held(held) => Ok(held),
            Weights::Operands(_) => Err(Error::Internal("weights are shared already".to_owned())),
        }
    }
}

/// Hashes of what a server holds of several tensors, by which the servers compare it.
#[derive(Debug, Clone)]
pub(super) struct Hashes {
    /// The way in which the tensors came to the servers.
    pub(super) sharing: &'static dyn Sharing,
    /// Of all first components that this server holds, of all second ones, and so on.
    pub(super) of: Vec<Digest>,
}

impl Hashes {
    /// Hashes of a server's components.
    pub(super) fn new<'a>(
        sharing: &'static dyn Sharing,
        shares: impl IntoIterator<Item = &'a Held> + Clone,
    ) -> Self {
        let components = shares.clone().into_iter().next().map_or(0, Vec::len);
        let of = |at: usize| shares.clone().into_iter().filter_map(move |held| held.get(at));
        Self { sharing, of: (0..components).map(|at| Digest::of_tensors(of(at))).collect() }
    }

    /// Of nothing.
    pub(super) fn none(sharing: &'static dyn Sharing) -> Self {
        Self { sharing, of: Vec::new() }
    }
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

/// The bytes in memory of a secret word at a server: its components and, of several, their sum, which products keep.
pub(super) fn bytes_of_word(sharing: &dyn Sharing) -> u64 {
    let components = sharing.components() as u64;
    8 * (components + u64::from(components > 1))
}

/// Models in memory for one session, up to a number of bytes; the one not used for longest goes first.
pub(super) struct Models<P: Protocol> {
    limit: u64,
    /// The one used last stands last.
    known: Vec<(String, Arc<Loaded<P>>)>,
}

impl<P: Deal> Models<P> {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, known: Vec::new() }
    }

    /// A version with its weights, brought to where the engine computes. Without a protocol it keeps the components as
    /// they are.
    pub(super) fn load(
        &mut self,
        core: &Core,
        mpc: Option<&mut P>,
        name: &str,
        manifest: &Manifest,
    ) -> Result<Arc<Loaded<P>>> {
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
        let sharing = program.weight_sharing(core.sharing())?;
        let words: usize = shapes.iter().map(Shape::len).sum();
        let bytes = words as u64 * bytes_of_word(sharing);
        let hashes = Hashes::new(sharing, &held);
        let weights = match mpc {
            Some(mpc) => Weights::Operands(program.weights(mpc, held)?),
            None => Weights::Held(held),
        };
        let loaded = Arc::new(Loaded { program, weights, version, hashes, bytes });
        self.keep(name, loaded.clone());
        core.metrics.loaded(self.known.len());
        Ok(loaded)
    }

    /// True if there is room for a version of a model of this many bytes beside the other models in memory.
    pub(super) fn has_room(&self, name: &str, bytes: u64) -> bool {
        let others = self.known.iter().filter(|(known, _)| known != name);
        let held: u64 = others.map(|(_, model)| model.bytes).sum();
        held.saturating_add(bytes) <= self.limit
    }

    /// Drops a model that was removed.
    pub(super) fn forget(&mut self, core: &Core, name: &str) {
        self.known.retain(|(known, _)| known != name);
        core.metrics.loaded(self.known.len());
    }

    fn keep(&mut self, name: &str, loaded: Arc<Loaded<P>>) {
        self.known.push((name.to_owned(), loaded));
        let mut held: u64 = self.known.iter().map(|(_, model)| model.bytes).sum();
        while held > self.limit && self.known.len() > 1 {
            held -= self.known.remove(0).1.bytes;
        }
    }
}
