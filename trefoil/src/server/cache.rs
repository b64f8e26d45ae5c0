//! Models in memory: plans of all that were asked for, shares of those used last.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gpu_kernels::AnyEngine;
use ring_arith::Tensor;

use crate::{
    Digest, Id, Result,
    program::{self, Program, Share},
    store::{Manifest, Store},
};

/// Bytes that a word of a model takes: two components and their sum, which products keep.
const SHARE: u64 = 24;

/// A model ready to run.
pub(super) struct Loaded {
    pub(super) program: Arc<Program>,
    pub(super) weights: Vec<Share>,
    pub(super) version: Id,
    /// Of all components of this server, and of all of the next one.
    pub(super) hashes: [Digest; 2],
    bytes: u64,
}

/// Models in memory, up to a number of bytes; the one not used for longest goes first.
pub(super) struct Cache {
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    programs: HashMap<String, (Id, Arc<Program>)>,
    /// The one used last stands last.
    models: Vec<(String, Arc<Loaded>)>,
}

/// Hashes of a server's components of several tensors, and of the next one's.
pub(super) fn hashes<'a>(
    shares: impl IntoIterator<Item = &'a (Tensor, Tensor)> + Clone,
) -> [Digest; 2] {
    let mine = shares.clone().into_iter().map(|(mine, _)| mine);
    let next = shares.into_iter().map(|(_, next)| next);
    [Digest::of_tensors(mine), Digest::of_tensors(next)]
}

impl Cache {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, inner: Mutex::default() }
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
        let shapes: Vec<_> =
            shares.iter().map(|(mine, _)| ring_arith::EngineTensor::shape(mine).clone()).collect();
        program.check_about(manifest.model()?.0)?;
        program.check_weights(&shapes)?;
        let bytes = shapes.iter().map(|shape| SHARE * shape.len() as u64).sum();
        let hashes = hashes(&shares);
        let weights = program::upload(engine, shares)?;
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
