//! A model, data set or run that is put into the store.

use bytes::Bytes;
use gpu_kernels::AnyEngine;
use mpc_core::ServerProtocol;

use super::{Agreed, JobInfo, Kind, Offer, Ready};
use crate::{
    base::{Id, Result},
    server::{Outcome, Output, access::bytes_held, worker::Worker},
    store::{Content, NewItem, Readers, StoredShares},
};

pub(in crate::server) struct Put {
    pub(in crate::server) name: String,
    pub(in crate::server) content: Box<Content>,
    pub(in crate::server) readers: Readers,
    pub(in crate::server) plan: Bytes,
    pub(in crate::server) shares: StoredShares,
    /// The tokenizer of a language model; empty for what has none.
    pub(in crate::server) tokenizer: Bytes,
    /// True if it may take the place of an item that is there.
    pub(in crate::server) replace: bool,
}

/// A version of an item beside the current one.
pub(in crate::server) struct Staged {
    name: String,
    version: Id,
}

impl<P: ServerProtocol<Engine = AnyEngine>> Ready<P> for Staged {
    fn offer(&self, _: &mut Worker<'_, P>) -> Result<Offer> {
        Ok(Offer::default())
    }

    fn give_up(self, worker: &mut Worker<'_, P>) -> Result<()> {
        worker.core.store.discard(&self.name, self.version)
    }
}

impl<P: ServerProtocol<Engine = AnyEngine>> Kind<P> for Put {
    type Ready = Staged;

    const COMPUTES: bool = false;

    /// Writes the item beside the current one.
    fn prepare(&self, worker: &mut Worker<'_, P>, job: JobInfo<'_>) -> Result<Staged> {
        let Self { name, content, readers, plan, shares, tokenizer, replace } = self;
        let (core, owner) = (worker.core, job.client);
        core.may_put(owner, name, content.kind(), *replace)?;
        let clear = plan.len() + tokenizer.len();
        core.quotas.check_keep(&core.store, owner, name, bytes_held(shares) + clear as u64)?;
        let version = job.id;
        core.store.stage(&NewItem {
            name,
            version,
            content,
            owner,
            readers,
            plan,
            shares,
            tokenizer,
        })?;
        Ok(Staged { name: name.clone(), version })
    }

    fn run(
        &mut self,
        Staged { name, version }: Staged,
        worker: &mut Worker<'_, P>,
        _: JobInfo<'_>,
        _: &Agreed,
    ) -> Result<Outcome> {
        worker.core.store.commit(&name, version)?;
        worker.ahead.push_back(name);
        Ok(Ok(Output::Nothing))
    }
}
