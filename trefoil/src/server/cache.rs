//! Models in memory: plans of all that were asked for, shares of those used last.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Digest, Error, Id, Result, Shares,
    program::{self, Program, Share, shapes_of},
    store::{Manifest, Store},
};
use gpu_kernels::AnyEngine;
use mpc_core::Held;

/// Bytes that a word of a model takes: two components and their sum, which products keep.
const SHARE: u64 = 24;

/// A model ready to run.
pub(super) struct Loaded {
    pub(super) program: Arc<Program>,
    weights: Weights,
    pub(super) version: Id,
    /// Of all first components that this server holds, all second ones, and so on.
    pub(super) hashes: Vec<Digest>,
    bytes: u64,
}

/// What a server holds of a model's weights.
enum Weights {
    /// Shares, where the engine computes.
    Shares(Vec<Share>),
    /// Addends, which are shared anew under the masks of each tape.
    Addends(Shares),
}

impl Loaded {
    /// The weights, at one of three servers.
    pub(super) fn weights(&self) -> Result<&[Share]> {
        match &self.weights {
            Weights::Shares(shares) => Ok(shares),
            Weights::Addends(_) => Err(Error::Internal("weights are not shared yet".to_owned())),
        }
    }

    /// The weights, at one of two servers with tapes.
    pub(super) fn addends(&self) -> Result<&Shares> {
        match &self.weights {
            Weights::Addends(addends) => Ok(addends),
            Weights::Shares(_) => Err(Error::Internal("weights are shared already".to_owned())),
        }
    }
}

/// Models in memory, up to a number of bytes; the one not used for longest goes first.
pub(super) struct Cache {
    limit: u64,
    /// Whether models are answered from tapes.
    tapes: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    programs: HashMap<String, (Id, Arc<Program>)>,
    /// The one used last stands last.
    models: Vec<(String, Arc<Loaded>)>,
}

/// Hashes of a server's first components of several tensors, of its second ones, and so on.
pub(super) fn hashes<'a>(shares: impl IntoIterator<Item = &'a Held> + Clone) -> Vec<Digest> {
    let components = shares.clone().into_iter().next().map_or(0, Vec::len);
    let of = |at: usize| shares.clone().into_iter().filter_map(move |held| held.get(at));
    (0..components).map(|at| Digest::of_tensors(of(at))).collect()
}

impl Cache {
    pub(super) fn new(limit: u64, tapes: bool) -> Self {
        Self { limit, tapes, inner: Mutex::default() }
    }

    /// The plan of a version.
    pub(super) fn program(
        &self,
        store: &Store,
        name: &str,
        manifest: &Manifest,
    ) -> Result<Arc<Program>> {
        let version = manifest.version;
        if let Some((known, program)) = self.lock().programs.get(name)
            && *known == version
        {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::parse(&store.plan(name, manifest)?)?);
        self.lock().programs.insert(name.to_owned(), (version, program.clone()));
        Ok(program)
    }

    /// A version with its shares, brought to where the engine computes.
    pub(super) fn load(
        &self,
        store: &Store,
        engine: &AnyEngine,
        name: &str,
        manifest: &Manifest,
    ) -> Result<Arc<Loaded>> {
        let version = manifest.version;
        {
            let mut inner = self.lock();
            if let Some(at) = inner.models.iter().position(|(known, _)| known == name) {
                let entry = inner.models.remove(at);
                if entry.1.version == version {
                    inner.models.push(entry.clone());
                    return Ok(entry.1);
                }
            }
        }
        let program = self.program(store, name, manifest)?;
        let shares = store.shares(name, manifest)?;
        let shapes = shapes_of(&shares)?;
        program.check_about(manifest.model()?.0)?;
        program.check_weights(&shapes)?;
        let bytes = shapes.iter().map(|shape| SHARE * shape.len() as u64).sum();
        let hashes = hashes(&shares);
        let weights = if self.tapes {
            Weights::Addends(shares)
        } else {
            Weights::Shares(program::upload(engine, shares)?)
        };
        let loaded = Arc::new(Loaded { program, weights, version, hashes, bytes });
        self.keep(name, loaded.clone());
        Ok(loaded)
    }

    /// Drops a model that was removed.
    pub(super) fn forget(&self, name: &str) {
        let mut inner = self.lock();
        inner.programs.remove(name);
        inner.models.retain(|(known, _)| known != name);
    }

    fn keep(&self, name: &str, loaded: Arc<Loaded>) {
        let mut inner = self.lock();
        inner.models.push((name.to_owned(), loaded));
        let mut held: u64 = inner.models.iter().map(|(_, model)| model.bytes).sum();
        while held > self.limit && inner.models.len() > 1 {
            held -= inner.models.remove(0).1.bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is a single step, so a panic leaves a sound cache behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
