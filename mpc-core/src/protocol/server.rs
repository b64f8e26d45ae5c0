//! Protocols that servers run, one job after the other, on the secrets of clients.

use net::Session;

use crate::{Deal, Profile, Result, Security, TruncationMode};

/// Settings of a protocol, the same at all servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// The truncation of functions that name none.
    pub truncation: TruncationMode,
    /// The resource to save.
    pub profile: Profile,
    /// The defence against a party that lies.
    pub security: Security,
}

/// A protocol at a server that runs many jobs in one session.
///
/// A program that is generic over this trait runs any protocol: it starts the protocol on a session, agrees on common
/// randomness ([`Deal::agree`]), and begins one job after the other. Before a job it compares the digest of the job,
/// [`ServerProtocol::described`] and the number of jobs with the other servers, and after it the number of
/// operations. Here [`Deal::accept`] sends nothing: a server calls it before it knows that the others run the job.
pub trait ServerProtocol: Deal + Sized {
    /// Starts the protocol. Nothing is sent.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the session has another number of parties than the protocol needs, or lacks a key,
    /// or if the protocol has no such truncation or profile.
    fn start(session: Session, engine: Self::Engine, settings: Settings) -> Result<Self>;

    /// Begins a job, whose randomness is independent of the jobs before it. Nothing is sent.
    ///
    /// The argument `digest` is a hash of all public data that the job's messages depend on. All parties call this at
    /// the same place with the same digest. A protocol may mix it into its keys.
    ///
    /// # Errors
    /// If the session has ended, or, where the protocol can tell, a party sent more in the job before than was due.
    fn begin_job(&mut self, digest: &[u8; 32]) -> Result<()>;

    /// Operations of the job so far, the same number at all parties.
    fn operations(&self) -> u64;

    /// All choices that must be the same at all servers, as text to compare.
    fn described(&self) -> String;
}
