//! Sharing by clients that do not compute, and the release of results to them.
//!
//! With three servers a word `x = x0 + x1 + x2` modulo 2^64, and server `i` holds `(x_i, x_{i+1})`. Components 0 and 1
//! of a client's sharing are pseudo-random streams under two fresh keys, and only the keys are sent. Server 0 gets two
//! keys, servers 1 and 2 a key and component 2. In all 16 bytes are sent for each word instead of 48. With two servers
//! and a dealer `x = u + v`; server 0 gets the key of `u`, server 1 the words of `v`, and they share the addends by
//! [`Rss::input_sums`] when they compute.
//!
//! Results are released under shares of zero, so that a client learns nothing of the components that servers computed
//! with. Of three servers each sends a component and the hash of the next one's, which two know: no single server can
//! change the client's result unnoticed. Two servers do not hold common components that a client could compare.

use mpc_core::{
    Deal, Held, Parcel, Result, ShareTensor, Sharing,
    sharing::{
        Component, Contents, Released, add_up, check_words, expand, fill_random, fresh_key,
        incomplete, remainders, suspects,
    },
};
use net::Party;
use ring_arith::{Engine, EngineTensor, Generator, Shape, StreamKey, Tensor};
use zeroize::Zeroizing;

use crate::{
    DEALER, Rss, Share,
    kernels::{Difference, Sum},
    party::Setting,
    runtime::launch::{invalid, made, map},
    runtime::prss::Key,
    runtime::roles::Roles,
};

/// Words of what each server adds to the common key.
const KEY: usize = 4;

/// The generator of shares of zero.
const GENERATOR: Generator = Generator::Aes128Ctr;

/// Three servers, each with two of three components.
#[derive(Debug)]
pub struct Replicated;

/// Two servers with an addend each, who compute with a dealer's tapes.
#[derive(Debug)]
pub struct Addends;

impl Sharing for Replicated {
    fn name(&self) -> &'static str {
        "rss"
    }

    fn servers(&self) -> usize {
        3
    }

    fn components(&self) -> usize {
        2
    }

    /// Component `i` is the first at server `i` and the second at the server before it.
    fn twins(&self) -> &'static [[Component; 2]] {
        &[[(2, 1), (0, 0)], [(0, 1), (1, 0)], [(1, 1), (2, 0)]]
    }

    fn contents(&self, server: usize) -> Contents {
        if server == 0 {
            Contents { keys: 2, words: false }
        } else {
            Contents { keys: 1, words: true }
        }
    }

    fn streams(&self, server: usize) -> Vec<Option<usize>> {
        match server {
            0 => vec![Some(0), Some(1)],
            1 => vec![Some(0), None],
            _ => vec![None, Some(0)],
        }
    }

    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>> {
        let keys = [fresh_key()?, fresh_key()?];
        let words = remainders(secrets, &keys)?;
        let [zero, one] = keys;
        Ok(vec![
            Parcel { keys: vec![zero.clone(), one.clone()], words: Vec::new() },
            Parcel { keys: vec![one], words: words.clone() },
            Parcel { keys: vec![zero], words },
        ])
    }

    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        let Parcel { keys, words } = parcel;
        match (server, &keys[..]) {
            (0, [zero, one]) if words.is_empty() => {
                let zero = expand(zero, shapes)?;
                let one = expand(one, shapes)?;
                Ok(zero.into_iter().zip(one).map(|(mine, next)| vec![mine, next]).collect())
            }
            (1 | 2, [key]) => {
                check_words(&words, shapes)?;
                let stream = expand(key, shapes)?;
                let pairs = stream.into_iter().zip(words);
                // Server 1 holds components 0 and 1, server 2 components 2 and 0.
                let mut held: Vec<_> = pairs.map(|(stream, words)| vec![stream, words]).collect();
                if server == 2 {
                    held.iter_mut().for_each(|components| components.reverse());
                }
                Ok(held)
            }
            _ => Err(incomplete()),
        }
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        if released.len() != self.servers() {
            return Err(incomplete());
        }
        let differs = self.twins().iter().map(|&[(voucher, _), (holder, _)]| {
            released[voucher].vouched != Some(hash(&released[holder].words))
        });
        let differs: Vec<_> = differs.collect();
        if let Some(suspects) = suspects(self.twins(), &differs) {
            let reason = format!(
                "the answer was changed by {suspects}: what two servers hold in common came in two \
                 versions; do not use it, and tell their operators"
            );
            return Err(invalid("reveal", reason));
        }
        add_up(released)
    }
}

impl Sharing for Addends {
    fn name(&self) -> &'static str {
        "rss-dealt"
    }

    fn servers(&self) -> usize {
        2
    }

    fn components(&self) -> usize {
        1
    }

    fn twins(&self) -> &'static [[Component; 2]] {
        &[]
    }

    fn contents(&self, server: usize) -> Contents {
        Contents { keys: usize::from(server == 0), words: server != 0 }
    }

    fn streams(&self, server: usize) -> Vec<Option<usize>> {
        vec![(server == 0).then_some(0)]
    }

    fn deal(&self, secrets: Vec<Tensor>) -> Result<Vec<Parcel>> {
        let keys = [fresh_key()?];
        let words = remainders(secrets, &keys)?;
        let [key] = keys;
        Ok(vec![Parcel { keys: vec![key], words: Vec::new() }, Parcel { keys: Vec::new(), words }])
    }

    fn accept(&self, server: usize, parcel: Parcel, shapes: &[Shape]) -> Result<Vec<Held>> {
        let Parcel { keys, words } = parcel;
        let addends = match (server, &keys[..]) {
            (0, [key]) if words.is_empty() => expand(key, shapes)?,
            (1, []) => {
                check_words(&words, shapes)?;
                words
            }
            _ => return Err(incomplete()),
        };
        Ok(addends.into_iter().map(|addend| vec![addend]).collect())
    }

    fn reveal(&self, released: &[Released]) -> Result<Tensor> {
        if released.len() != self.servers() {
            return Err(incomplete());
        }
        add_up(released)
    }
}

impl<E: Engine> Deal for Rss<E> {
    fn sharing(&self) -> &'static dyn Sharing {
        match self.setting {
            Setting::Three => &Replicated,
            Setting::Dealt => &Addends,
        }
    }

    /// With three servers one round, once a session: 32 bytes to each of the others.
    fn agree(&mut self) -> Result<()> {
        match self.setting {
            Setting::Three => self.common_key().map(drop),
            Setting::Dealt => Ok(()),
        }
    }

    /// With a dealer the same for it as for the servers, which it knows when it makes the tape.
    fn seed(&mut self) -> Result<u64> {
        if self.setting == Setting::Dealt {
            let nonce = self.keys.operation();
            let mut word = [0];
            self.keys.public(nonce).fill(0, &mut word);
            return Ok(word[0]);
        }
        let [key] = self.common_keys("trefoil rss-protocols 2026 a seed that servers know")?;
        Ok(key[..8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    }

    /// With three servers nothing is sent. With two: one round, a word of each element.
    fn accept(&mut self, shapes: &[Shape], held: Vec<Held>) -> Result<Vec<Self::Share>> {
        if self.setting == Setting::Dealt {
            let addends: Vec<_> = held.into_iter().flatten().collect();
            if self.deals() {
                return self.input_sums(shapes, None);
            }
            check_words(&addends, shapes)?;
            let engine = &self.engine;
            let addends = addends.into_iter().map(|addend| engine.upload(addend));
            let addends = addends.collect::<ring_arith::Result<Vec<_>>>()?;
            return self.input_sums(shapes, Some(&addends));
        }
        if held.len() != shapes.len() {
            return Err(incomplete());
        }
        let shares = held.into_iter().zip(shapes).map(|(held, shape)| {
            let [mine, next] = held.try_into().map_err(|_| incomplete())?;
            check_words(std::slice::from_ref(&mine), std::slice::from_ref(shape))?;
            Ok(Share::new(self.engine.upload(mine)?, self.engine.upload(next)?)?)
        });
        shares.collect()
    }

    fn hold(&self, shares: &[&Self::Share]) -> Result<Vec<Held>> {
        self.verify()?;
        let held = shares.iter().map(|share| {
            let [mine, next] = [share.mine(), share.next()];
            Ok(match self.setting {
                Setting::Three => vec![self.engine.download(mine)?, self.engine.download(next)?],
                Setting::Dealt => vec![self.engine.download(&self.addend(share)?)?],
            })
        });
        held.collect()
    }

    fn verify(&mut self) -> Result<()> {
        self.talk(|rss| Rss::verify(rss))
    }

    /// Nothing is sent between servers but the proofs of a checked session. The dealer does not hold results and releases
    /// none.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>> {
        self.verify()?;
        match self.setting {
            Setting::Three => self.release_components(shares),
            Setting::Dealt => self.release_addends(shares),
        }
    }
}

impl<E: Engine> Rss<E> {
    /// The key that three servers alone know: each contributes to it over its links, once a session.
    fn common_key(&mut self) -> Result<Zeroizing<[u8; 32]>> {
        if let Some(common) = &self.common {
            return Ok(common.clone());
        }
        let me = self.party();
        let mut own = Zeroizing::new([0; 32]);
        fill_random(&mut own)?;
        let common = self.talk(|rss| {
            rss.enter("agree on a key");
            let links = rss.links.get_mut();
            let shape = Shape::new([KEY])?;
            let bytes = bytes::Bytes::copy_from_slice(&*own);
            let own = rss.engine.upload(Tensor::from_bytes(shape, bytes)?)?;
            let others = [me.after(1, 3), me.after(2, 3)];
            for other in others {
                links.send(&rss.engine, other, &own)?;
            }
            links.flush_all()?;
            let mut all = [0; 3].map(|_| own.clone());
            for other in others {
                all[other.0] = links.receive(&rss.engine, other, Shape::new([KEY])?)?;
            }
            let mut hash = blake3::Hasher::new_derive_key(
                "trefoil rss-protocols 2026 common key of the servers",
            );
            for contribution in &all {
                hash.update(&rss.engine.download(contribution)?.to_bytes());
            }
            Ok(Zeroizing::new(*hash.finalize().as_bytes()))
        })?;
        self.common = Some(common.clone());
        Ok(common)
    }

    /// Keys that only the three servers know, new ones at each call.
    fn common_keys<const N: usize>(&mut self, context: &str) -> Result<[Zeroizing<[u8; 32]>; N]> {
        let common = self.common_key()?;
        let nonce = self.keys.operation();
        let job = self.keys.job();
        mutant!("release: the shares of zero of no job", job = 0);
        Ok(std::array::from_fn(|number| {
            let mut hash = blake3::Hasher::new_derive_key(context);
            hash.update(&*common).update(&job.to_le_bytes()).update(&nonce.to_le_bytes());
            hash.update(&(number as u64).to_le_bytes());
            Zeroizing::new(*hash.finalize().as_bytes())
        }))
    }

    /// A server's own component and the hash of the next one, under shares of zero: `s0`, `s1` and `-s0 - s1`.
    fn release_components(&mut self, shares: &[&Share<E::Tensor>]) -> Result<Vec<Released>> {
        let keys = self.common_keys("trefoil rss-protocols 2026 shares of zero for results")?;
        let keys = keys.map(|key: Zeroizing<[u8; 32]>| StreamKey::new(GENERATOR, &key));
        let me = self.party().0;
        let released = shares.iter().enumerate().map(|(index, share)| {
            let fresh = |component: usize, words: &E::Tensor| {
                let words = self.engine.download(words)?;
                refreshed(words, component, &keys, index)
            };
            let next = fresh((me + 1) % 3, share.next())?;
            Ok(Released { words: fresh(me, share.mine())?, vouched: Some(hash(&next)) })
        });
        released.collect()
    }

    /// `x0 + z` at one of two servers and `x1 + x2 - z` at the other, `z` a stream that they have in common.
    fn release_addends(&mut self, shares: &[&Share<E::Tensor>]) -> Result<Vec<Released>> {
        let roles = Roles::new(self.party(), DEALER, false);
        let nonce = self.keys.operation();
        let mut streams = self.keys.streams(&roles, nonce);
        let mut released = Vec::with_capacity(shares.len());
        for share in shares {
            let shape = share.shape();
            let mask = streams.sample(Key::Peers, shape.len());
            #[cfg(test)]
            let first = crate::runtime::prss::Sample { first: 0, ..mask };
            mutant!("release of addends: one mask for all tensors", mask = first);
            if self.deals() {
                continue;
            }
            let mask = made(&self.engine, shape, streams.words(mask))?;
            let addend = self.addend(share)?;
            let fresh = if self.party() == Party(0) {
                map(&self.engine, &Sum, shape, [&addend, &mask], &[])?
            } else {
                map(&self.engine, &Difference, shape, [&addend, &mask], &[])?
            };
            released.push(Released { words: self.engine.download(&fresh)?, vouched: None });
        }
        Ok(released)
    }

    /// The addend of `x = x0 + (x1 + x2)` that one of two servers knows.
    fn addend(&self, share: &Share<E::Tensor>) -> Result<E::Tensor> {
        let [mine, next] = [share.mine(), share.next()];
        if self.party() == Party(0) {
            return Ok(mine.clone());
        }
        Ok(map(&self.engine, &Sum, share.shape(), [mine, next], &[])?)
    }
}

/// A component and its share of zero.
fn refreshed(
    words: Tensor,
    component: usize,
    keys: &[StreamKey; 2],
    index: usize,
) -> Result<Tensor> {
    mutant!("release: one share of zero for all tensors", index = 0);
    let mut fresh = words.words().to_vec();
    for (at, key) in keys.iter().enumerate() {
        if component != at && component != 2 {
            continue;
        }
        let mut stream = Zeroizing::new(vec![0; fresh.len()]);
        key.stream(index as u64).fill(0, &mut stream);
        mutant!("release: components not masked", stream = Zeroizing::new(vec![0; fresh.len()]));
        for (word, zero) in fresh.iter_mut().zip(stream.iter()) {
            *word =
                if component == at { word.wrapping_add(*zero) } else { word.wrapping_sub(*zero) };
        }
    }
    Ok(Tensor::new(words.shape().clone(), fresh)?)
}

/// The hash of a component that is released, with its shape.
fn hash(component: &Tensor) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 released component");
    let dims = component.shape().dims();
    hash.update(&(dims.len() as u64).to_le_bytes());
    for &dim in dims {
        hash.update(&(dim as u64).to_le_bytes());
    }
    hash.update(&component.to_bytes());
    *hash.finalize().as_bytes()
}
