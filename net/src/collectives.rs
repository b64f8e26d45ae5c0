//! Messages among all parties at once: broadcast, scatter, gather, sums, barrier.
//!
//! Every party calls the same method in the same order, as with all messages. Sums are of words modulo 2^64, so their order
//! does not matter.

use bytemuck::{cast_slice, pod_read_unaligned};
use bytes::Bytes;

use crate::{Error, Message, Party, Result, Transport};

/// Messages among all parties of a session, over any [`Transport`].
///
/// Costs are for `p` parties; bytes are those of bodies. After an error but [`Error::Misuse`] the session is over.
pub trait Collectives: Transport {
    /// Gives the bytes of `root` to all parties; the others pass `None`.
    ///
    /// # Cost
    /// One round. The root sends its bytes `p - 1` times.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the root passes nothing, or another party something. See [`crate::Error`] for failures of
    /// links.
    fn broadcast(&mut self, root: Party, body: Option<Bytes>) -> Result<Bytes> {
        let body = own_part(self, root, body)?;
        let Some(body) = body else { return Ok(self.receive(root)?.body) };
        send_to_all(self, &body)?;
        Ok(body)
    }

    /// Gives each party one of the parts of `root`, in the parties' order; the others pass `None`.
    ///
    /// # Cost
    /// One round. The root sends all parts but its own.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`], and [`Error::Misuse`] if there are not as many parts as parties.
    fn scatter(&mut self, root: Party, parts: Option<Vec<Bytes>>) -> Result<Bytes> {
        let Some(parts) = own_part(self, root, parts)? else {
            return Ok(self.receive(root)?.body);
        };
        if parts.len() != self.parties() {
            let reason = format!("{} parts for {} parties", parts.len(), self.parties());
            return Err(Error::Misuse(reason));
        }
        for peer in peers(self) {
            self.send(peer, Message::from(parts[peer.0].clone()))?;
        }
        Ok(parts[root.0].clone())
    }

    /// Gives `root` the bytes of all parties, in their order; the others get `None`.
    ///
    /// # Cost
    /// One round. Each party but the root sends its bytes once.
    ///
    /// # Errors
    /// See [`crate::Error`].
    fn gather(&mut self, root: Party, own: Bytes) -> Result<Option<Vec<Bytes>>> {
        if self.me() != root {
            self.send(root, Message::from(own))?;
            return Ok(None);
        }
        received(self, own).map(Some)
    }

    /// Gives all parties the bytes of all, in the parties' order.
    ///
    /// # Cost
    /// One round. Each party sends its bytes `p - 1` times.
    ///
    /// # Errors
    /// See [`crate::Error`].
    fn all_gather(&mut self, own: Bytes) -> Result<Vec<Bytes>> {
        send_to_all(self, &own)?;
        received(self, own)
    }

    /// Gives `root` the sums of the parties' words, place by place; the others get `None`. All pass as many.
    ///
    /// # Cost
    /// One round. Each party but the root sends 8 bytes a word.
    ///
    /// # Errors
    /// [`Error::Violation`] if a peer sends another number of words. See [`crate::Error`].
    fn reduce(&mut self, root: Party, own: Vec<u64>) -> Result<Option<Vec<u64>>> {
        if self.me() != root {
            self.send(root, Message::from(bytes(&own)))?;
            return Ok(None);
        }
        let mut sums = own;
        for peer in peers(self) {
            let words = words(self, peer, sums.len())?;
            add(&mut sums, &words);
        }
        Ok(Some(sums))
    }

    /// Gives all parties the sums of the parties' words, place by place. All pass as many.
    ///
    /// # Cost
    /// Two rounds, and about `16 (p - 1) / p` bytes a word from each party: each adds up a part of the places and sends
    /// the sums to all. Of two parties, or of fewer words than parties, one round and `8 (p - 1)` bytes a word.
    ///
    /// # Errors
    /// As [`Collectives::reduce`].
    fn all_reduce(&mut self, own: Vec<u64>) -> Result<Vec<u64>> {
        let (parties, me, n) = (self.parties(), self.me().0, own.len());
        let mut sums = own;
        if parties <= 2 || n < parties {
            send_to_all(self, &bytes(&sums))?;
            for peer in peers(self) {
                let words = words(self, peer, n)?;
                add(&mut sums, &words);
            }
            return Ok(sums);
        }
        let part = |party: usize| party * n / parties..(party + 1) * n / parties;
        for peer in peers(self) {
            self.send(peer, Message::from(bytes(&sums[part(peer.0)])))?;
        }
        for peer in peers(self) {
            let words = words(self, peer, part(me).len())?;
            add(&mut sums[part(me)], &words);
        }
        send_to_all(self, &bytes(&sums[part(me)]))?;
        for peer in peers(self) {
            let words = words(self, peer, part(peer.0).len())?;
            sums[part(peer.0)].copy_from_slice(&words);
        }
        Ok(sums)
    }

    /// Waits until all parties have come to this call.
    ///
    /// # Cost
    /// One round, and no bytes: an empty message to each other party.
    ///
    /// # Errors
    /// [`Error::Violation`] if a peer sends something else. See [`crate::Error`].
    fn barrier(&mut self) -> Result<()> {
        send_to_all(self, &Bytes::new())?;
        for peer in peers(self) {
            if !self.receive(peer)?.body.is_empty() {
                return Err(self.accuse(peer, "a message at a barrier"));
            }
        }
        Ok(())
    }
}

impl<T: Transport + ?Sized> Collectives for T {}

/// All parties but this one.
fn peers<T: Transport + ?Sized>(transport: &T) -> impl Iterator<Item = Party> + use<T> {
    let me = transport.me();
    (0..transport.parties()).map(Party).filter(move |peer| *peer != me)
}

fn send_to_all<T: Transport + ?Sized>(transport: &mut T, body: &Bytes) -> Result<()> {
    peers(transport).try_for_each(|peer| transport.send(peer, Message::from(body.clone())))
}

/// The root's value, which the root alone passes.
fn own_part<T: Transport + ?Sized, V>(
    transport: &T,
    root: Party,
    value: Option<V>,
) -> Result<Option<V>> {
    match (transport.me() == root, value) {
        (true, None) => Err(Error::Misuse(format!("{root} has nothing to send"))),
        (false, Some(_)) => Err(Error::Misuse(format!("only {root} sends something here"))),
        (_, value) => Ok(value),
    }
}

/// The bytes of all parties, of which this one's are there.
fn received<T: Transport + ?Sized>(transport: &mut T, own: Bytes) -> Result<Vec<Bytes>> {
    let mut all = vec![own; transport.parties()];
    for peer in peers(transport) {
        all[peer.0] = transport.receive(peer)?.body;
    }
    Ok(all)
}

/// A peer's words, of which `n` are expected.
fn words<T: Transport + ?Sized>(transport: &mut T, peer: Party, n: usize) -> Result<Vec<u64>> {
    let body = transport.receive(peer)?.body;
    if body.len() != 8 * n {
        let reason = format!("{} bytes in the place of {n} words", body.len());
        return Err(transport.accuse(peer, &reason));
    }
    Ok(body.chunks_exact(8).map(pod_read_unaligned).collect())
}

fn bytes(words: &[u64]) -> Bytes {
    Bytes::copy_from_slice(cast_slice(words))
}

fn add(sums: &mut [u64], words: &[u64]) {
    sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
}
