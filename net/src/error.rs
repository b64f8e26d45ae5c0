//! Failures of the network, of a peer and of the caller, kept apart.

use std::{io, time::Duration};

use crate::Party;

/// The result of talking to a peer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a session ended or a call was refused. After any of these but [`Error::Misuse`] the session is
/// dead: every later call returns [`Error::Dead`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network failed, or the peer's process ended.
    #[error("link to {peer} failed in step `{step}`: {cause}")]
    Link {
        /// The peer.
        peer: Party,
        /// The step this party was in.
        step: String,
        /// The error from the operating system or from TLS.
        cause: io::Error,
    },
    /// The peer is connected but silent.
    #[error("{peer} sent nothing for {waited:?} in step `{step}`")]
    Stalled {
        /// The peer.
        peer: Party,
        /// The step this party was in.
        step: String,
        /// The time that this party waited.
        waited: Duration,
    },
    /// The peer sent what no correct peer sends.
    #[error("{peer} broke the protocol in step `{step}`: {reason}")]
    Violation {
        /// The peer.
        peer: Party,
        /// The step this party was in.
        step: String,
        /// The fault in the message.
        reason: String,
    },
    /// The parties were not started for the same job.
    #[error("{field} differs: this party has {mine}, {peer} has {theirs}")]
    Mismatch {
        /// The peer.
        peer: Party,
        /// What differs.
        field: &'static str,
        /// This party's value.
        mine: String,
        /// The peer's value.
        theirs: String,
    },
    /// The peer, or this process, cancelled the session.
    #[error("session cancelled by {by}: {reason}")]
    Cancelled {
        /// Who.
        by: Party,
        /// Why.
        reason: String,
    },
    /// A peer ended the session since a party sent it what no correct party sends.
    #[error("{peer} broke the protocol, as {by} found {reason}")]
    Accused {
        /// The party that sent it, or this party itself.
        peer: Party,
        /// The party that found it.
        by: Party,
        /// The step and the fault.
        reason: String,
    },
    /// The session ended earlier.
    #[error("the session is over: {0}")]
    Dead(String),
    /// The caller did what the interface forbids.
    #[error("misuse: {0}")]
    Misuse(String),
    /// The connection between a client and a server failed or was refused.
    #[error("connection with {with}: {reason}")]
    Channel {
        /// The other side's role and address.
        with: String,
        /// What happened.
        reason: String,
    },
    /// Addresses, certificates or files are unusable.
    #[error("{what}: {reason}")]
    Config {
        /// The setting or file.
        what: String,
        /// The fault and its remedy.
        reason: String,
    },
}

impl Error {
    pub(crate) fn no_such_peer(me: Party, peer: Party, parties: usize) -> Self {
        let reason = format!("{me} of {parties} has no link to {peer}");
        Self::Misuse(reason)
    }
}
