#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// `mutant!` is nothing outside of tests.
#[macro_use(mutant)]
extern crate mpc_core;

mod bits;
mod carry;
mod compare;
mod correlated;
mod linear;
mod monomials;
mod open;
#[cfg(test)]
mod privacy;
mod product;
mod protocol;
mod rectify;
mod servers;
mod share;
#[cfg(test)]
mod tests;
mod trig_sum;
mod truncate;

use mpc_core::{Error, Result, TruncationMode, sharing::CommonKey};
use net::{PairKey, Party, Session, Transport};
use ring_arith::{Engine, Generator, StreamKey, Tensor};

pub use servers::MaskedSharing;
pub use share::{BitShare, Share};

/// Most parties that compute.
pub const MOST_PARTIES: usize = 16;

/// One party: one of those that compute, or the dealer, which is the last party of the session.
pub struct Dealt<E: Engine> {
    engine: E,
    transport: Box<dyn Transport>,
    generator: Generator,
    /// The mode in which functions truncate.
    truncation: TruncationMode,
    /// Keys in common with each other party.
    pairs: Vec<Option<PairKey>>,
    /// The keys of a job's streams, derived from those.
    keys: Vec<Option<StreamKey>>,
    /// Streams used in the job so far. All parties count alike, so no stream is used twice.
    streams: u64,
    /// Jobs begun so far.
    jobs: u64,
    /// A key that all parties know, once the dealer has sent it.
    common: CommonKey,
}

impl<E: Engine> Dealt<E> {
    /// A party of a session of 2 to [`MOST_PARTIES`] parties that compute, and the dealer. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the session has another number of parties, or lacks a key.
    pub fn new(session: Session, engine: E) -> Result<Self> {
        let me = session.transport.me().0;
        let pairs = session.pair_keys;
        let complete = pairs.iter().enumerate().all(|(peer, key)| key.is_some() == (peer != me));
        let fits = (3..=MOST_PARTIES + 1).contains(&pairs.len());
        if !fits || pairs.len() != session.transport.parties() || !complete {
            let reason = format!(
                "needs 2 to {MOST_PARTIES} parties, a dealer after them, and a key for each pair"
            );
            return Err(invalid("masked sharing", reason));
        }
        let generator = match &session.prg {
            None => Generator::Aes128Ctr,
            Some(name) => Generator::named(name)
                .ok_or_else(|| invalid("masked sharing", format!("no generator `{name}`")))?,
        };
        let mut party = Self {
            engine,
            transport: session.transport,
            generator,
            truncation: TruncationMode::Default,
            pairs,
            keys: Vec::new(),
            streams: 0,
            jobs: 0,
            common: CommonKey::default(),
        };
        party.derive_keys(&[0; 32]);
        Ok(party)
    }

    /// Ends the session. Waits until the others have ended it too.
    ///
    /// # Errors
    /// [`Error::Net`] if a party has failed or sent more than was due.
    pub fn close(self) -> Result<()> {
        Ok(self.transport.close()?)
    }

    /// Keys for the streams of the current job.
    fn derive_keys(&mut self, digest: &[u8; 32]) {
        let mut keys = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            keys.push(pair.as_ref().map(|pair| {
                let mut hash = blake3::Hasher::new_derive_key("trefoil dealt-protocols 2026 a job");
                hash.update(&pair.0).update(&self.jobs.to_le_bytes()).update(digest);
                StreamKey::new(self.generator, hash.finalize().as_bytes())
            }));
        }
        self.keys = keys;
    }

    /// Number of parties that compute.
    fn computing(&self) -> usize {
        self.pairs.len() - 1
    }

    fn is(&self, party: Party) -> bool {
        self.transport.me() == party
    }

    /// The party that adds what all parties know.
    fn is_first(&self) -> bool {
        let first = self.is(Party(0));
        mutant!("public addend: added by all", first = true);
        first
    }

    fn dealer(&self) -> Party {
        Party(self.computing())
    }

    fn deals(&self) -> bool {
        self.is(self.dealer())
    }

    /// The parties that compute, except this one.
    fn peers(&self) -> impl Iterator<Item = Party> + use<E> {
        let me = self.transport.me();
        (0..self.computing()).map(Party).filter(move |&peer| peer != me)
    }

    fn download(&self, tensor: &E::Tensor) -> Result<Tensor> {
        Ok(self.engine.download(tensor)?)
    }

    fn upload(&self, tensor: Tensor) -> Result<E::Tensor> {
        Ok(self.engine.upload(tensor)?)
    }
}

fn invalid(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Invalid { op, reason: reason.into() }
}
