//! Secrets of clients that do not compute: their way into a protocol, and the results' way out of
//! it.
//!
//! A client needs only the [`Sharing`] of a protocol. It [deals](Sharing::deal) a secret into parcels, one for each
//! server, and [reveals](Sharing::reveal) a result from what the servers release. A server turns its parcel into the
//! [components](Held) that it holds of the secret. It can keep them on disk. Its protocol, a [`Deal`], accepts them
//! and releases results. Nothing else leaves a server: a protocol that checks before it opens does so in
//! [`Deal::release`].

use std::fmt;

use ring_arith::{Engine, EngineTensor, Generator, Shape, StreamKey, Tensor};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{Error, Plaintext, Protocol, Result};

/// One server's components of a secret tensor: [`Sharing::components`] tensors of its shape.
pub type Held = Vec<Tensor>;

/// A component of a secret at a server: the server, and the component's index in its [`Held`].
pub type Component = (usize, usize);

/// The key of a component that is a pseudo-random stream. Zeroized when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ParcelKey(pub [u8; 32]);

/// One server's message from a client: its part of several secret tensors. `Debug` is missing since
/// it would show keys.
#[must_use]
pub struct Parcel {
    /// Keys of components that are streams.
    pub keys: Vec<ParcelKey>,
    /// Words of a component, tensor by tensor; empty if the server gets only keys.
    pub words: Vec<Tensor>,
}

/// The contents of a server's parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Number of keys.
    pub keys: usize,
    /// True if there are words for each tensor.
    pub words: bool,
}

/// One server's part of a result for a client. `Debug` shows only the shape.
#[derive(Clone, PartialEq, Eq)]
pub struct Released {
    /// Its component, made fresh: together with those of the other servers it gives the result and nothing
    /// else.
    pub words: Tensor,
    /// A hash of a component that another server releases, if both servers hold that component.
    pub vouched: Option<[u8; 32]>,
}

impl fmt::Debug for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Released({:?})", self.words.shape())
    }
}

/// The client's side of a protocol: secret-shares tensors for the servers and reconstructs results.
pub trait Sharing: fmt::Debug + Send + Sync {
    /// The protocol's name: `rss`.
    fn name(&self) -> &'static str;

    /// Number of servers.
    fn servers(&self) -> usize;

    /// Number of components that a server holds of each tensor.
    fn components(&self) -> usize;

    /// Pairs of components that are the same words at two servers.
    fn twins(&self) -> &'static [[Component; 2]];

    /// The contents of a server's parcel.
    fn contents(&self, server: usize) -> Contents;

    /// For each component at a server, the key of its parcel of which the component is the stream ([`expand`]), if it is
    /// one. The key is 32 bytes for the words of all tensors, so a server may keep it in their place.
    fn streams(&self, server: usize) -> Vec<Option<usize>> {
        let _ = server;
        vec![None; self.components()]
    }

    /// Secret-shares tensors under fresh keys from the operating system; returns one parcel for
    /// each server. Each tensor is dropped once it is shared.
    ///
    /// # Errors
    /// If the operating system cannot give randomness, or if memory for a component cannot be
    /// allocated.
    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>>;

    /// A server's components of tensors of these shapes, from the parcel that it received.
    ///
    /// # Errors
    /// [`Error::Invalid`] if keys, words and shapes do not match, or if memory for the words expanded from a key
    /// cannot be allocated.
    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>>;

    /// Reconstructs one result from what the servers released, in the servers' order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if shapes differ, or if a component that two servers hold differs between them: the
    /// error names the servers that may have changed it.
    fn reveal(&self, released: &[Released]) -> Result<Tensor>;
}

/// A protocol at a server whose clients do not compute.
pub trait Deal: Protocol {
    /// The clients' side of the protocol.
    fn sharing(&self) -> &'static dyn Sharing;

    /// Agrees on randomness that all servers know and clients do not, once in a session. [`Deal::seed`]
    /// and [`Deal::release`] need it and agree on it themselves if this was not called.
    ///
    /// # Errors
    /// As [`Protocol`]'s methods; the same holds for those below.
    fn agree(&mut self) -> Result<()>;

    /// A number that all servers know, different at each call. Clients cannot foresee it when they deal their
    /// secrets.
    fn seed(&mut self) -> Result<u64>;

    /// Shares of tensors of these shapes, from the components that this server holds. A party that computes on no
    /// data, such as a dealer, passes an empty `held`.
    fn accept(&mut self, shapes: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>>;

    /// This server's components of shares, to keep and pass to [`Deal::accept`] later. They must not leave the
    /// server.
    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>>;

    /// In a session that checks its parties, proves to the others that all messages until now were the prescribed ones, and
    /// verifies their proofs. [`Deal::hold`] and [`Deal::release`] do it first in any case; a caller that counts the cost of
    /// a job does it before. Else nothing is sent.
    ///
    /// # Errors
    /// [`Error::Cheated`] if a proof is wrong: the session is dead, and nothing may be revealed.
    fn verify(&mut self) -> Result<()> {
        Ok(())
    }

    /// This server's part of results for a client, made fresh: all servers' parts together are uniform among those
    /// that reconstruct to the results.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>>;
}

/// The servers that may have changed a component, if some of a sharing's [twins](Sharing::twins) differ: those that
/// hold a component of every differing pair.
#[must_use]
pub fn suspects(twins: &[[Component; 2]], differs: &[bool]) -> Option<String> {
    let mut holders =
        twins.iter().zip(differs).filter(|(_, differs)| **differs).map(|(pair, _)| pair);
    let [(one, _), (other, _)] = *holders.next()?;
    let mut left = vec![one, other];
    for pair in holders {
        left.retain(|server| pair.iter().any(|(holder, _)| holder == server));
    }
    Some(match left[..] {
        [] => "more than one of the servers".to_owned(),
        [server] => format!("party {server}"),
        _ => left.iter().map(|server| format!("party {server}")).collect::<Vec<_>>().join(" or "),
    })
}

/// Words in the clear: every server has all of them. The plaintext reference has one server; a model whose weights are
/// public is so at all servers of a cluster.
#[derive(Debug)]
pub struct Clear(usize);

/// The most servers that hold the same words in the clear: 16 that compute, and a dealer.
const MOST_SERVERS: usize = 17;

/// All pairs of servers, each after those of smaller numbers: the pairs of the first `n` are the first `n (n - 1) / 2`.
const PAIRS: [[Component; 2]; MOST_SERVERS * (MOST_SERVERS - 1) / 2] = {
    let mut pairs = [[(0, 0); 2]; MOST_SERVERS * (MOST_SERVERS - 1) / 2];
    let (mut one, mut other, mut at) = (0, 1, 0);
    while other < MOST_SERVERS {
        pairs[at] = [(one, 0), (other, 0)];
        at += 1;
        one += 1;
        if one == other {
            one = 0;
            other += 1;
        }
    }
    pairs
};

impl Clear {
    /// Words in the clear at this number of servers, 1 to 17.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number.
    pub fn at(servers: usize) -> Result<&'static Self> {
        static CLEAR: [Clear; MOST_SERVERS] = {
            let mut all = [const { Clear(0) }; MOST_SERVERS];
            let mut at = 0;
            while at < MOST_SERVERS {
                all[at] = Clear(at + 1);
                at += 1;
            }
            all
        };
        servers.checked_sub(1).and_then(|at| CLEAR.get(at)).ok_or_else(|| {
            let reason = format!(
                "words in the clear at {servers} servers; 1 to {MOST_SERVERS} can hold them"
            );
            Error::Invalid { op: "deal", reason }
        })
    }
}

impl Sharing for Clear {
    fn name(&self) -> &'static str {
        "plaintext"
    }

    fn servers(&self) -> usize {
        self.0
    }

    fn components(&self) -> usize {
        1
    }

    fn twins(&self) -> &'static [[Component; 2]] {
        &PAIRS[..self.0 * (self.0 - 1) / 2]
    }

    fn contents(&self, _: usize) -> Contents {
        Contents { keys: 0, words: true }
    }

    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>> {
        let parcel = |_| Parcel { keys: Vec::new(), words: secrets.clone() };
        Ok((0..self.0).map(parcel).collect())
    }

    fn accept(&self, _: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        check_words(&parcel.words, shapes)?;
        Ok(parcel.words.into_iter().map(|words| vec![words]).collect())
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        let [first, others @ ..] = released else { return Err(incomplete()) };
        if others.len() + 1 != self.0 || others.iter().any(|other| other.words != first.words) {
            return Err(incomplete());
        }
        Ok(first.words.clone())
    }
}

impl<E: Engine> Deal for Plaintext<E> {
    fn sharing(&self) -> &'static dyn Sharing {
        static ONE: Clear = Clear(1);
        &ONE
    }

    fn agree(&mut self) -> Result<()> {
        Ok(())
    }

    fn seed(&mut self) -> Result<u64> {
        Ok(0)
    }

    fn accept(&mut self, _: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>> {
        let words = held.into_iter().map(|mut held| held.pop().ok_or_else(incomplete));
        words.map(|words| self.constant(&self.engine().upload(words?)?)).collect()
    }

    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>> {
        let words = shares.iter().map(|share| self.engine().download(share.words()));
        words.map(|words| Ok(vec![words?])).collect()
    }

    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>> {
        let held = self.hold(shares)?;
        Ok(held.into_iter().flatten().map(|words| Released { words, vouched: None }).collect())
    }
}

/// Checks that the words of a parcel are those of tensors of these shapes.
///
/// # Errors
/// [`Error::Invalid`] if not.
pub fn check_words(words: &[Tensor], shapes: &[Shape]) -> Result<()> {
    if words.iter().map(EngineTensor::shape).eq(shapes) {
        return Ok(());
    }
    Err(incomplete())
}

/// The error for dealt or released data with a part missing.
#[must_use]
pub fn incomplete() -> Error {
    invalid("parcel", "the dealt or released data is incomplete".to_owned())
}

/// The remainder of each secret after the streams under these keys are taken off it: a component of an additive sharing
/// whose other components are the streams. Of the streams it holds one block at a time.
///
/// # Errors
/// Those of [`Tensor::new`].
pub fn remainders(secrets: Vec<Tensor>, keys: &[ParcelKey]) -> Result<Vec<Tensor>> {
    const BLOCK: usize = 1 << 14;
    let mut block = Zeroizing::new(vec![0; BLOCK]);
    let mut remainders = Vec::with_capacity(secrets.len());
    for (index, secret) in secrets.into_iter().enumerate() {
        let mut rest = secret.words().to_vec();
        for key in keys {
            let stream = stream_key(key).stream(index as u64);
            for (number, rest) in rest.chunks_mut(block.len()).enumerate() {
                let block = &mut block[..rest.len()];
                stream.fill((number * BLOCK) as u64, block);
                rest.iter_mut().zip(block.iter()).for_each(|(x, r)| *x = x.wrapping_sub(*r));
            }
        }
        remainders.push(Tensor::new(secret.shape().clone(), rest)?);
    }
    Ok(remainders)
}

/// The component of each tensor that is a stream under a key.
///
/// # Errors
/// [`Error::Invalid`] if memory cannot be allocated.
pub fn expand(key: &ParcelKey, shapes: &[Shape]) -> Result<Vec<Tensor>> {
    let key = stream_key(key);
    let mut components = Vec::with_capacity(shapes.len());
    for (index, shape) in shapes.iter().enumerate() {
        let mut words = zeros(shape.len())?;
        key.stream(index as u64).fill(0, &mut words);
        components.push(Tensor::new(shape.clone(), words)?);
    }
    Ok(components)
}

/// A key from the operating system.
///
/// # Errors
/// [`Error::Invalid`] if the system gives no randomness.
pub fn fresh_key() -> Result<ParcelKey> {
    let mut key = ParcelKey([0; 32]);
    fill_random(&mut key.0)?;
    Ok(key)
}

/// Fills a key with randomness from the operating system.
///
/// # Errors
/// [`Error::Invalid`] if the system gives none.
pub fn fill_random(key: &mut [u8; 32]) -> Result<()> {
    getrandom::fill(key)
        .map_err(|cause| invalid("parcel", format!("the system gives no randomness: {cause}")))
}

/// A key that all servers of a session know and clients do not: one server, such as a dealer, draws it and sends it to
/// the others. Zeroized when dropped.
#[derive(Default)]
pub struct CommonKey(Option<Zeroizing<[u8; 32]>>);

impl CommonKey {
    /// Words of the key.
    pub const WORDS: usize = 4;

    /// True once it was drawn or taken.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Draws the key from the operating system. Returns its words, `[4]`, to send to the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the system gives no randomness.
    pub fn draw(&mut self) -> Result<Tensor> {
        let mut key = Zeroizing::new([0; 32]);
        fill_random(&mut key)?;
        let words = Tensor::vector(words_of(&key).to_vec());
        self.0 = Some(key);
        Ok(words)
    }

    /// Takes the words that another server has drawn.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are not as many.
    pub fn take(&mut self, words: &Tensor) -> Result<()> {
        if words.words().len() != Self::WORDS {
            return Err(incomplete());
        }
        let mut key = Zeroizing::new([0; 32]);
        for (bytes, word) in key.as_chunks_mut::<8>().0.iter_mut().zip(words.words()) {
            *bytes = word.to_le_bytes();
        }
        self.0 = Some(key);
        Ok(())
    }

    /// A number that all servers know, another one for each context, job and stream: see [`Deal::seed`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key is not known.
    pub fn seed(&self, context: &str, job: u64, stream: u64) -> Result<u64> {
        let key = self.0.as_ref().ok_or_else(incomplete)?;
        let mut hash = blake3::Hasher::new_derive_key(context);
        hash.update(&**key).update(&job.to_le_bytes()).update(&stream.to_le_bytes());
        let [seed, ..] = words_of(hash.finalize().as_bytes());
        Ok(seed)
    }
}

fn words_of(key: &[u8; 32]) -> [u64; CommonKey::WORDS] {
    let (words, _) = key.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

/// The sum of the released words.
///
/// # Errors
/// [`Error::Invalid`] if nothing is released, or shapes differ.
pub fn add_up(released: &[Released]) -> Result<Tensor> {
    let [first, others @ ..] = released else { return Err(incomplete()) };
    let mut words = first.words.words().to_vec();
    for other in others {
        if other.words.shape() != first.words.shape() {
            let reason = "the servers returned results of different shapes";
            return Err(invalid("reveal", reason.to_owned()));
        }
        let other = other.words.words();
        words.iter_mut().zip(other).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    Ok(Tensor::new(first.words.shape().clone(), words)?)
}

/// Zero words, `len` of them. Another party may have chosen `len`, so a failed allocation is an error.
fn zeros(len: usize) -> Result<Vec<u64>> {
    let mut words = Vec::new();
    words.try_reserve_exact(len).map_err(|_| {
        let reason = format!("this machine has no memory for {len} words; try again later");
        invalid("parcel", reason)
    })?;
    words.resize(len, 0);
    Ok(words)
}

fn stream_key(key: &ParcelKey) -> StreamKey {
    StreamKey::new(Generator::Aes128Ctr, &key.0)
}

fn invalid(op: &'static str, reason: String) -> Error {
    Error::Invalid { op, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_the_clear_are_the_same_at_all_servers() {
        let secrets = || vec![Tensor::vector(vec![1, 2]), Tensor::vector(vec![3])];
        let shapes: Vec<_> = secrets().iter().map(|secret| secret.shape().clone()).collect();
        for servers in [1, 2, 3, 17] {
            let clear = Clear::at(servers).unwrap();
            let parcels = clear.deal(secrets()).unwrap().into_iter().enumerate();
            let held: Vec<_> =
                parcels.map(|(at, parcel)| clear.accept(at, parcel, &shapes).unwrap()).collect();
            assert_eq!(
                held,
                vec![secrets().into_iter().map(|it| vec![it]).collect::<Vec<_>>(); servers]
            );
            // Each server is compared with each other one, once.
            let mut pairs: Vec<_> =
                clear.twins().iter().map(|[one, other]| (one.0, other.0)).collect();
            pairs.sort_unstable();
            let all =
                (0..servers).flat_map(|one| (one + 1..servers).map(move |other| (one, other)));
            assert_eq!(pairs, all.collect::<Vec<_>>());
            let released = Released { words: Tensor::vector(vec![7]), vouched: None };
            let mut all = vec![released; servers];
            assert_eq!(clear.reveal(&all).unwrap().words(), [7]);
            clear.reveal(&all[1..]).unwrap_err();
            all[servers - 1].words = Tensor::vector(vec![8]);
            assert_eq!(clear.reveal(&all).is_ok(), servers == 1);
        }
        for servers in [0, 18] {
            Clear::at(servers).unwrap_err();
        }
    }
}
