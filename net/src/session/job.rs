//! The purpose of a session, and ending it from another thread.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    Error, Party, Result,
    hello::{LONGEST_PRGS, Public},
};

/// The purpose of a session: all parties must agree on it.
#[derive(Debug, Clone)]
pub struct Job {
    pub(super) public: Public,
    pub(super) canceller: Canceller,
}

impl Job {
    /// A session of three parties under a public name. Parties that use another name are not in it.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let id = blake3::derive_key("trefoil net 2026 session name", name.as_bytes());
        let session = id[..16].try_into().expect("32 bytes hold 16");
        let public =
            Public { session, cell: None, parties: 3, prgs: String::new(), config: [0; 32] };
        Self { public, canceller: Canceller::default() }
    }

    /// The number of the workers that meet, where each party has several. A party whose worker has another number, or
    /// none, is told so before any message of the session.
    #[must_use]
    pub fn cell(mut self, number: u16) -> Self {
        self.public.cell = Some(number);
        self
    }

    /// The number of parties, if not three.
    #[must_use]
    pub fn parties(mut self, parties: u16) -> Self {
        self.public.parties = parties;
        self
    }

    /// The generators that this party would draw common randomness from, best first: short names
    /// without spaces and commas. The session takes the first of party 0's that all others name too:
    /// [`crate::Session::prg`].
    #[must_use]
    pub fn prgs<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.public.prgs = names.into_iter().collect::<Vec<_>>().join(",");
        self
    }

    /// The generator that parties of one process take, which all name the same.
    pub(crate) fn first_prg(&self) -> Option<String> {
        let first = self.public.prgs.split(',').next().filter(|name| !name.is_empty());
        first.map(str::to_owned)
    }

    /// The public configuration: model, shapes, precision, and all else that must be equal. Hashed.
    #[must_use]
    pub fn config(mut self, bytes: &[u8]) -> Self {
        self.public.config = blake3::derive_key("trefoil net 2026 job configuration", bytes);
        self
    }

    /// Lets another thread end the session.
    #[must_use]
    pub fn canceller(mut self, canceller: &Canceller) -> Self {
        self.canceller = canceller.clone();
        self
    }

    pub(super) fn check(&self, me: Option<Party>, addresses: usize) -> Result<Party> {
        let parties = usize::from(self.public.parties);
        let misuse = |reason: String| Err(Error::Misuse(reason));
        let prgs = &self.public.prgs;
        if prgs.len() > LONGEST_PRGS || !prgs.bytes().all(|byte| byte.is_ascii_graphic()) {
            return misuse(format!(
                "names of generators have at most {LONGEST_PRGS} printable characters in all"
            ));
        }
        match me {
            None => misuse("a client takes part in no session".to_owned()),
            Some(me) if parties < 2 || me.0 >= parties => {
                misuse(format!("{me} is not in a session of {parties} parties"))
            }
            Some(_) if addresses < parties => {
                misuse(format!("{addresses} addresses are known of {parties} parties"))
            }
            Some(me) => Ok(me),
        }
    }
}

/// Ends a session from any thread.
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<(AtomicBool, Mutex<String>)>);

impl Canceller {
    /// Ends the session: within a tenth of a second its calls fail with [`Error::Cancelled`], and so do those of the
    /// peers, which get the reason. It must not name secrets.
    pub fn cancel(&self, reason: &str) {
        let mut text = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        *text = reason.chars().take(500).collect();
        self.0.0.store(true, Ordering::Release);
    }

    /// Why the session was ended, if it was: for work between two messages, which does not notice by itself.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let ended = self.0.0.load(Ordering::Acquire);
        ended.then(|| self.0.1.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub(crate) fn check(&self, me: Party) -> Result<()> {
        self.reason().map_or(Ok(()), |reason| Err(Error::Cancelled { by: me, reason }))
    }
}
