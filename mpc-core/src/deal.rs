//! Secrets of clients that do not compute: how they enter a protocol, and how results leave it.
//!
//! A client knows a protocol by its [`Sharing`] alone: it [deals](Sharing::deal) a secret into parcels, one for each
//! server, and [reveals](Sharing::reveal) what the servers release. A server turns its parcel into what it
//! [holds](Held) of the secret, which can be kept on disk, and its protocol, a [`Deal`], takes that in and releases
//! results. Nothing else leaves a server: a protocol that checks before it opens does so in [`Deal::release`].

use std::fmt;

use ring_arith::{Engine, EngineTensor, Shape, Tensor};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Error, Plaintext, Protocol, Result};

/// What one server holds of a secret tensor: components of its shape, as many as [`Sharing::components`] says.
pub type Held = Vec<Tensor>;

/// A component of a secret at a server: the server, and which of the components in its [`Held`].
pub type Component = (usize, usize);

/// The key of a component that is a pseudo-random stream. Zeroized when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ParcelKey(pub [u8; 32]);

/// What one server gets of several secret tensors. `Debug` would show keys, so there is none.
#[must_use]
pub struct Parcel {
    /// Keys of components that are streams.
    pub keys: Vec<ParcelKey>,
    /// Words of a component, tensor by tensor; none if the server gets keys alone.
    pub words: Vec<Tensor>,
}

/// What a server's parcel consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Number of keys.
    pub keys: usize,
    /// Whether there are words for each tensor.
    pub words: bool,
}

/// What a server gives a client of one result. `Debug` shows the shape alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Released {
    /// Its component, made fresh: with those of the other servers it tells the result, and nothing besides.
    pub words: Tensor,
    /// A hash of a component that another server releases, where two have it in common.
    pub vouched: Option<[u8; 32]>,
}

impl fmt::Debug for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Released({:?})", self.words.shape())
    }
}

/// How secrets are cut for the servers of a protocol, and results put together: all that a client knows of it.
pub trait Sharing: fmt::Debug + Send + Sync {
    /// The protocol's name: `rss`.
    fn name(&self) -> &'static str;

    /// Number of servers.
    fn servers(&self) -> usize;

    /// Components that a server holds of each tensor.
    fn components(&self) -> usize;

    /// Pairs of components that are the same words at two servers.
    fn twins(&self) -> &'static [[Component; 2]];

    /// What a server's parcel consists of.
    fn contents(&self, server: usize) -> Contents;

    /// Cuts tensors under fresh keys from the operating system; one parcel for each server.
    ///
    /// # Errors
    /// If the system has no randomness, or this machine no memory for a component.
    fn deal(&self, secrets: &[Tensor]) -> Result<Vec<Parcel>>;

    /// What a server holds of tensors of these shapes whose parcel came.
    ///
    /// # Errors
    /// [`Error::Invalid`] if keys, words and shapes do not fit together, or if this machine has no memory for the
    /// words that come of a key.
    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>>;

    /// Puts together what the servers released of one result, in their order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if what two servers have in common differs, naming who may have changed it, or if shapes
    /// differ.
    fn reveal(&self, released: &[Released]) -> Result<Tensor>;
}

/// A protocol at a server whose clients do not compute.
pub trait Deal: Protocol {
    /// How clients cut secrets for it.
    fn sharing(&self) -> &'static dyn Sharing;

    /// Agrees on what all servers know and no client does, if that has not been done in this session: what
    /// [`Deal::seed`] and [`Deal::release`] need, which do it themselves otherwise.
    ///
    /// # Errors
    /// As [`Protocol`]'s methods; the same holds for those below.
    fn agree(&mut self) -> Result<()>;

    /// A number that all servers know, another one at each call, and that no client could foresee when it dealt its
    /// secrets.
    fn seed(&mut self) -> Result<u64>;

    /// Shares of tensors of these shapes of which this server holds components. Who computes on nobody's data, such
    /// as a dealer, passes none.
    fn accept(&mut self, shapes: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>>;

    /// What this server holds of shares, to be kept and passed to [`Deal::accept`] later. It must not leave the
    /// server.
    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>>;

    /// This server's part of results for a client, made fresh: all servers' parts together are uniform among those
    /// that tell the results.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>>;
}

/// To whom it points that some of a sharing's [twins](Sharing::twins) differ, if some do: whoever has a part in all of
/// them.
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

/// The reference's: every server has the words themselves, and nothing is secret.
#[derive(Debug)]
pub struct Clear;

impl Sharing for Clear {
    fn name(&self) -> &'static str {
        "plaintext"
    }

    fn servers(&self) -> usize {
        1
    }

    fn components(&self) -> usize {
        1
    }

    fn twins(&self) -> &'static [[Component; 2]] {
        &[]
    }

    fn contents(&self, _: usize) -> Contents {
        Contents { keys: 0, words: true }
    }

    fn deal(&self, secrets: &[Tensor]) -> Result<Vec<Parcel>> {
        Ok(vec![Parcel { keys: Vec::new(), words: secrets.to_vec() }])
    }

    fn accept(&self, _: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        check_words(&parcel.words, shapes)?;
        Ok(parcel.words.into_iter().map(|words| vec![words]).collect())
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        let [one] = released else { return Err(incomplete()) };
        Ok(one.words.clone())
    }
}

impl<E: Engine> Deal for Plaintext<E> {
    fn sharing(&self) -> &'static dyn Sharing {
        &Clear
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

/// The error where something of what was dealt or released is missing.
#[must_use]
pub fn incomplete() -> Error {
    let reason = "what came of the secret is not complete".to_owned();
    Error::Invalid { op: "parcel", reason }
}
