//! The ground that everything else stands on: errors, ids and hashes, checks of values, texts, and files at rest.

pub(crate) mod check;
pub(crate) mod encryption;
mod error;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod id;
pub(crate) mod log;
pub(crate) mod memory;

pub use error::{Accusation, Error, Result};
pub use id::{ClusterId, Digest, Holder, Id};

/// This program: its version, and a hash of the sources that decide what servers compute and send each other. Two
/// programs for which it differs do not compute together.
pub const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TREFOIL_SOURCES"));

/// A server's part of several secret tensors.
pub type Shares = Vec<mpc_core::Held>;
