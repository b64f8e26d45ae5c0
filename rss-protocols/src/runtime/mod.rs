//! The runtime of every protocol of this crate: roles, streams, links, chunks and rounds.

pub(crate) mod chunks;
pub(crate) mod fss;
pub(crate) mod launch;
pub(crate) mod links;
pub(crate) mod prss;
pub(crate) mod roles;
pub(crate) mod rounds;
