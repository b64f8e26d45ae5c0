#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// `mutant!` is nothing outside of tests.
#[macro_use(mutant)]
extern crate mpc_core;

mod masks;
mod protocol;
mod servers;
mod share;
#[cfg(test)]
mod tests;

use std::iter;

use mpc_core::{Error, Result, sharing::CommonKey};
use net::{PairKey, Party, Session, Transport};
use ring_arith::{Engine, EngineTensor, Generator, Shape, StreamKey, Tensor};

pub use servers::TwoAndDealer;
use share::Group;
pub use share::{BitShare, Share};

/// One party: one of those that compute, or the dealer, which is the last party of the session.
pub struct Additive<E: Engine> {
    engine: E,
    transport: Box<dyn Transport>,
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

impl<E: Engine> Additive<E> {
    /// A party of a session of at least three: two that compute, and the dealer. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the session has fewer parties or lacks a key.
    pub fn new(session: Session, engine: E) -> Result<Self> {
        let (me, pairs) = (session.transport.me().0, session.pair_keys);
        let complete = pairs.iter().enumerate().all(|(peer, key)| key.is_some() == (peer != me));
        if pairs.len() < 3 || pairs.len() != session.transport.parties() || !complete {
            let reason = "needs two parties, a dealer, and a key for each pair".to_owned();
            return Err(Error::Invalid { op: "additive sharing", reason });
        }
        let keys = Self::keys_of_job(&pairs, 0, &[0; 32]);
        let transport = session.transport;
        Ok(Self {
            engine,
            transport,
            pairs,
            keys,
            streams: 0,
            jobs: 0,
            common: CommonKey::default(),
        })
    }

    /// Ends the session. Waits until the others have ended it too.
    ///
    /// # Errors
    /// [`Error::Net`] if a party has failed or sent more than was due.
    pub fn close(self) -> Result<()> {
        Ok(self.transport.close()?)
    }

    fn keys_of_job(
        pairs: &[Option<PairKey>],
        job: u64,
        digest: &[u8; 32],
    ) -> Vec<Option<StreamKey>> {
        let key = |pair: &PairKey| {
            let mut hash = blake3::Hasher::new_derive_key("trefoil additive-dealer 2026 a job");
            hash.update(&pair.0).update(&job.to_le_bytes()).update(digest);
            StreamKey::new(Generator::ChaCha12, hash.finalize().as_bytes())
        };
        pairs.iter().map(|pair| pair.as_ref().map(key)).collect()
    }

    /// Number of parties that compute.
    fn computing(&self) -> usize {
        self.pairs.len() - 1
    }

    fn is(&self, party: Party) -> bool {
        self.transport.me() == party
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

    fn zip(&self, x: &E::Tensor, y: &E::Tensor, f: impl Fn(u64, u64) -> u64) -> Result<E::Tensor> {
        zip(&self.engine, x, y, f)
    }

    fn map(&self, x: &E::Tensor, f: impl Fn(u64) -> u64) -> Result<E::Tensor> {
        self.zip(x, x, |word, _| f(word))
    }

    fn zeros(&self, shape: &Shape) -> Result<E::Tensor> {
        Ok(self.engine.upload(Tensor::zeros(shape.clone()))?)
    }

    fn send(&mut self, to: Party, tensor: &E::Tensor) -> Result<()> {
        let words = self.engine.download(tensor)?.to_bytes();
        Ok(self.transport.send(to, words.into())?)
    }

    fn receive(&mut self, from: Party, shape: &Shape) -> Result<E::Tensor> {
        let body = self.transport.receive(from)?.body;
        if body.len() != 8 * shape.len() {
            let reason = format!("sent {} bytes where {} are due", body.len(), 8 * shape.len());
            return Err(self.transport.accuse(from, &reason).into());
        }
        Ok(self.engine.upload(Tensor::from_bytes(shape.clone(), body)?)?)
    }

    /// Opens tensors, given this party's addends, to all parties that compute or to one of them. `None` where this party
    /// learns nothing; the dealer gets zeros. One round.
    fn exchange(
        &mut self,
        to: Option<Party>,
        group: Group,
        addends: &[E::Tensor],
    ) -> Result<Option<Vec<E::Tensor>>> {
        let learns = to.is_none_or(|to| self.is(to));
        if self.deals() {
            return Ok(learns.then(|| addends.to_vec()));
        }
        for peer in self.peers().filter(|&peer| to.is_none_or(|to| peer == to)) {
            addends.iter().try_for_each(|addend| self.send(peer, addend))?;
        }
        let mut sums = addends.to_vec();
        for peer in self.peers().filter(|_| learns) {
            for sum in &mut sums {
                let theirs = self.receive(peer, sum.shape())?;
                *sum = self.zip(sum, &theirs, |x, y| group.add(x, y))?;
            }
        }
        Ok(learns.then_some(sums))
    }
}

/// Applies a function to each pair of words of two tensors of one shape.
fn zip<E: Engine>(
    engine: &E,
    x: &E::Tensor,
    y: &E::Tensor,
    f: impl Fn(u64, u64) -> u64,
) -> Result<E::Tensor> {
    if x.shape() != y.shape() {
        let (lhs, rhs) = (x.shape().clone(), y.shape().clone());
        return Err(Error::Shapes { op: "additive sharing", lhs, rhs });
    }
    let (x, y) = (engine.download(x)?, engine.download(y)?);
    let words = iter::zip(x.words(), y.words()).map(|(&x, &y)| f(x, y)).collect();
    Ok(engine.upload(Tensor::new(x.shape().clone(), words)?)?)
}
