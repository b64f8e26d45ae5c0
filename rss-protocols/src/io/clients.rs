//! Sharing by clients that do not compute, and the release of results to them.
//!
//! With three servers a word `x = x0 + x1 + x2` modulo 2^64, and server `i` holds `(x_i, x_{i+1})`. Components 0 and 1
//! of what a client deals are pseudo-random streams under two fresh keys, so that only their keys travel: server 0 gets
//! two keys, servers 1 and 2 a key and component 2. In all 16 bytes travel for each word instead of 48. With two servers
//! and a dealer `x = u + v`; server 0 gets the key of `u`, server 1 the words of `v`, and they share the addends by
//! [`Rss::input_sums`] when they compute.
//!
//! Results are released under shares of zero, so that a client learns nothing of the components that servers computed
//! with. Of three servers each sends a component and the hash of the next one's, which two know: no server alone can
//! change what the client gets. Two servers have nothing in common that a client could compare.

use mpc_core::{
    Deal, Held, Parcel, ParcelKey, Result, ShareTensor, Sharing,
    deal::{Component, Contents, Released, check_words, incomplete, suspects},
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

/// The generator of components that are streams.
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

    fn deal(&self, secrets: &[Tensor]) -> Result<Vec<Parcel>> {
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
                let (zero, one) = (expand(zero, shapes)?, expand(one, shapes)?);
                Ok(zero.into_iter().zip(one).map(|(mine, next)| vec![mine, next]).collect())
            }
            (1 | 2, [key]) => {
                check_words(&words, shapes)?;
                let stream = expand(key, shapes)?;
                let pairs = stream.into_iter().zip(words);
                // Server 1 holds components 0 and 1, server 2 components 2 and 0.
                let held = |(stream, words)| {
                    if server == 1 { vec![stream, words] } else { vec![words, stream] }
                };
                Ok(pairs.map(held).collect())
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

    fn deal(&self, secrets: &[Tensor]) -> Result<Vec<Parcel>> {
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
        let held = shares.iter().map(|share| {
            let [mine, next] = [share.mine(), share.next()];
            Ok(match self.setting {
                Setting::Three => vec![self.engine.download(mine)?, self.engine.download(next)?],
                Setting::Dealt => vec![self.engine.download(&self.addend(share)?)?],
            })
        });
        held.collect()
    }

    /// Nothing is sent between servers. The dealer, who has no part in results, releases none.
    fn release(&mut self, shares: &[&Self::Share]) -> Result<Vec<Released>> {
        match self.setting {
            Setting::Three => self.release_components(shares),
            Setting::Dealt => self.release_addends(shares),
        }
    }
}

impl<E: Engine> Rss<E> {
    /// What three servers know and nobody else: each contributes to it over its links, once a session.
    fn common_key(&mut self) -> Result<Zeroizing<[u8; 32]>> {
        if let Some(common) = &self.common {
            return Ok(common.clone());
        }
        let me = self.party();
        let mut own = Zeroizing::new([0; 32]);
        fill_random(&mut own)?;
        let common = self.talk(|rss| {
            let links = rss.links.get_mut();
            links.step("agree on a key");
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

    /// Keys that the three servers know and nobody else, at each call others.
    fn common_keys<const N: usize>(&mut self, context: &str) -> Result<[Zeroizing<[u8; 32]>; N]> {
        let common = self.common_key()?;
        let nonce = self.keys.operation();
        let job = self.keys.job();
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

    /// Of `x = x0 + (x1 + x2)` what one of two servers knows.
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
    let mut fresh = words.words().to_vec();
    for (at, key) in keys.iter().enumerate() {
        if component != at && component != 2 {
            continue;
        }
        let mut stream = Zeroizing::new(vec![0; fresh.len()]);
        key.stream(index as u64).fill(0, &mut stream);
        planted!("release: components not masked", stream = Zeroizing::new(vec![0; fresh.len()]));
        for (word, zero) in fresh.iter_mut().zip(stream.iter()) {
            *word =
                if component == at { word.wrapping_add(*zero) } else { word.wrapping_sub(*zero) };
        }
    }
    Ok(Tensor::new(words.shape().clone(), fresh)?)
}

/// What is left of secrets where one component for each key is a stream.
fn remainders(secrets: &[Tensor], keys: &[ParcelKey]) -> Result<Vec<Tensor>> {
    let remainder = |(index, secret): (usize, &Tensor)| {
        let mut stream = Zeroizing::new(zeros(secret.len())?);
        let mut rest = secret.words().to_vec();
        for key in keys {
            stream_key(key).stream(index as u64).fill(0, &mut stream);
            rest.iter_mut().zip(stream.iter()).for_each(|(x, r)| *x = x.wrapping_sub(*r));
        }
        Ok(Tensor::new(secret.shape().clone(), rest)?)
    };
    secrets.iter().enumerate().map(remainder).collect()
}

/// The component of each tensor that is a stream under a key.
fn expand(key: &ParcelKey, shapes: &[Shape]) -> Result<Vec<Tensor>> {
    let key = stream_key(key);
    let component = |(index, shape): (usize, &Shape)| {
        let mut words = zeros(shape.len())?;
        key.stream(index as u64).fill(0, &mut words);
        Ok(Tensor::new(shape.clone(), words)?)
    };
    shapes.iter().enumerate().map(component).collect()
}

/// So many words, of which somebody else may have said how many they are.
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
    StreamKey::new(GENERATOR, &key.0)
}

fn fresh_key() -> Result<ParcelKey> {
    let mut key = ParcelKey([0; 32]);
    fill_random(&mut key.0)?;
    Ok(key)
}

fn fill_random(key: &mut [u8; 32]) -> Result<()> {
    getrandom::fill(key)
        .map_err(|cause| invalid("parcel", format!("the system gives no randomness: {cause}")))
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

/// The sum of what servers released.
fn add_up(released: &[Released]) -> Result<Tensor> {
    let [first, others @ ..] = released else { return Err(incomplete()) };
    let mut words = first.words.words().to_vec();
    for other in others {
        if other.words.shape() != first.words.shape() {
            return Err(invalid("reveal", "the servers returned results of different shapes"));
        }
        let other = other.words.words();
        words.iter_mut().zip(other).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    Ok(Tensor::new(first.words.shape().clone(), words)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use mpc_core::{Protocol, TestWorld};
    use ring_arith::CpuEngine;

    use super::*;
    use crate::Options;

    const N: usize = 40;

    fn secret(shape: &Shape, salt: u64) -> Tensor {
        Tensor::from_fn(shape.clone(), |i| (i as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn held(sharing: &dyn Sharing, secrets: &[Tensor]) -> Vec<Vec<Held>> {
        let shapes: Vec<_> = secrets.iter().map(|secret| secret.shape().clone()).collect();
        let parcels = sharing.deal(secrets).unwrap().into_iter().enumerate();
        parcels.map(|(server, parcel)| sharing.accept(server, parcel, &shapes).unwrap()).collect()
    }

    /// Whether a component of this server is another one's as well, whose number is lower.
    fn counted_before(sharing: &dyn Sharing, at: Component) -> bool {
        sharing
            .twins()
            .iter()
            .any(|pair| pair.contains(&at) && pair.iter().any(|other| *other < at))
    }

    #[test]
    fn servers_hold_components_that_add_up_to_the_secret_and_twins_are_equal() {
        let secrets = [&[3, 5][..], &[], &[0, 4], &[1000]].map(|dims| secret(&shape(dims), 7));
        for sharing in [&Replicated as &dyn Sharing, &Addends] {
            let held = held(sharing, &secrets);
            assert_eq!(held.len(), sharing.servers());
            for (index, secret) in secrets.iter().enumerate() {
                let mut sum = vec![0u64; secret.len()];
                for (server, held) in held.iter().enumerate() {
                    assert_eq!(held[index].len(), sharing.components());
                    for (component, words) in held[index].iter().enumerate() {
                        if counted_before(sharing, (server, component)) {
                            continue;
                        }
                        let words = words.words();
                        sum.iter_mut().zip(words).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
                    }
                }
                assert_eq!(sum, secret.words());
                for [(a, x), (b, y)] in sharing.twins() {
                    assert_eq!(held[*a][index][*x], held[*b][index][*y]);
                }
            }
        }
    }

    #[test]
    fn what_travels_is_two_words_for_three_servers_and_one_for_two() {
        let secrets = [secret(&shape(&[N]), 1)];
        for (sharing, keys, words) in
            [(&Replicated as &dyn Sharing, [2, 1, 1].as_slice(), 2), (&Addends, &[1, 0], 1)]
        {
            let parcels = sharing.deal(&secrets).unwrap();
            let found: Vec<_> = parcels.iter().map(|parcel| parcel.keys.len()).collect();
            assert_eq!(found, keys);
            assert_eq!(parcels.iter().map(|parcel| parcel.words.len()).sum::<usize>(), words);
            for (server, parcel) in parcels.iter().enumerate() {
                let contents = sharing.contents(server);
                assert_eq!(contents.keys, parcel.keys.len());
                assert_eq!(contents.words, !parcel.words.is_empty());
            }
        }
    }

    #[test]
    fn every_dealing_and_every_tensor_has_its_own_randomness() {
        let secrets = [secret(&shape(&[N]), 1), secret(&shape(&[N]), 1)];
        for sharing in [&Replicated as &dyn Sharing, &Addends] {
            let (one, two) = (held(sharing, &secrets), held(sharing, &secrets));
            for server in 0..sharing.servers() {
                assert_ne!(one[server][0][0], one[server][1][0]);
                assert_ne!(one[server][0][0], two[server][0][0]);
            }
        }
    }

    #[test]
    fn a_parcel_that_does_not_fit_its_shapes_or_the_memory_is_refused() {
        let (four, five) = (shape(&[4]), shape(&[5]));
        for sharing in [&Replicated as &dyn Sharing, &Addends] {
            let parcel =
                |server: usize| sharing.deal(&[secret(&four, 1)]).unwrap().swap_remove(server);
            assert!(sharing.accept(1, parcel(1), std::slice::from_ref(&five)).is_err());
            assert!(sharing.accept(0, parcel(1), std::slice::from_ref(&four)).is_err());
            assert!(sharing.accept(1, parcel(1), &[four.clone(), four.clone()]).is_err());
            let huge = [shape(&[1 << 44])];
            let error = sharing.accept(0, parcel(0), &huge).map(drop).unwrap_err().to_string();
            assert!(error.contains("no memory for 17592186044416 words"), "{error}");
        }
    }

    /// What servers release of the same shares, twice.
    fn released(sharing: &'static dyn Sharing) -> (Vec<Vec<Held>>, [Vec<Vec<Released>>; 2]) {
        let secrets = [secret(&shape(&[N]), 3), secret(&shape(&[N]), 3)];
        let held = held(sharing, &secrets);
        let parts = held.clone();
        let program = move |mpc: &mut Rss<CpuEngine>| {
            let shapes = [shape(&[N]), shape(&[N])];
            let parts = parts.get(mpc.me().0).cloned().unwrap_or_default();
            let shares = mpc.accept(&shapes, parts)?;
            let shares: Vec<_> = shares.iter().collect();
            assert_eq!(mpc.sharing().name(), mpc.name());
            Ok((mpc.hold(&shares)?, [mpc.release(&shares)?, mpc.release(&shares)?]))
        };
        let outcomes = if sharing.servers() == 3 {
            TestWorld::new(3).run(|session| Rss::new(session, CpuEngine::new(1)), program)
        } else {
            let make = |session| Rss::dealt(session, CpuEngine::new(1), Options::default());
            TestWorld::new(2).with_dealer().run(make, program)
        };
        let kept: Vec<_> = outcomes.iter().map(|(held, _)| held.clone()).collect();
        if sharing.servers() == 3 {
            assert_eq!(kept, held);
        }
        let each = |at: usize| outcomes.iter().map(|(_, both)| both[at].clone()).collect();
        (kept, [each(0), each(1)])
    }

    #[test]
    fn released_results_tell_themselves_and_no_component() {
        check_releases();
    }

    pub(crate) fn check_releases() {
        for sharing in [&Replicated as &dyn Sharing, &Addends] {
            let (held, twice) = released(sharing);
            let servers = sharing.servers();
            for answer in &twice {
                for index in 0..2 {
                    let parts: Vec<_> =
                        (0..servers).map(|server| answer[server][index].clone()).collect();
                    assert_eq!(sharing.reveal(&parts).unwrap(), secret(&shape(&[N]), 3));
                    assert!(sharing.reveal(&parts[1..]).is_err());
                }
            }
            // Other words in each release and for each tensor, and none that a server holds.
            for server in 0..servers {
                for at in 0..N {
                    let mut words: Vec<u64> = Vec::new();
                    for index in 0..2 {
                        words.extend(held[server][index].iter().map(|held| held.words()[at]));
                        words.extend(
                            twice.each_ref().map(|all| all[server][index].words.words()[at]),
                        );
                    }
                    let others: HashSet<_> = words.iter().collect();
                    assert_eq!(others.len(), words.len(), "server {server}, word {at}: {words:x?}");
                }
            }
        }
    }

    #[test]
    fn a_changed_component_is_an_error_that_names_its_holders() {
        let (_, [answer, _]) = released(&Replicated);
        for server in 0..3 {
            let mut parts: Vec<_> = answer.iter().map(|each| each[0].clone()).collect();
            let mut words = parts[server].words.words().to_vec();
            words[3] ^= 1;
            parts[server].words = Tensor::new(shape(&[N]), words).unwrap();
            let error = Replicated.reveal(&parts).unwrap_err().to_string();
            let before = (server + 2) % 3;
            assert!(error.contains(&format!("party {before} or party {server}:")), "{error}");
            // Whoever changes both of what it sends is alone in it.
            parts[server].vouched = Some([0; 32]);
            let error = Replicated.reveal(&parts).unwrap_err().to_string();
            assert!(error.contains(&format!("changed by party {server}:")), "{error}");
            parts[before].vouched = None;
            parts[before].words = Tensor::zeros(shape(&[N]));
            let error = Replicated.reveal(&parts).unwrap_err().to_string();
            assert!(error.contains("changed by more than one"), "{error}");
        }
    }

    #[test]
    fn agreeing_takes_32_bytes_to_each_of_three_servers_once_and_seeds_are_common() {
        let program = |session: net::Session| {
            let metered = net::Metered::new(session.transport);
            let meter = metered.meter();
            let transport = Box::new(metered);
            let mut mpc = Rss::new(net::Session { transport, ..session }, CpuEngine::new(1))?;
            mpc.agree()?;
            let agreed = meter.stats().bytes_sent();
            mpc.agree()?;
            let seeds = [mpc.seed()?, mpc.seed()?];
            assert_eq!([agreed, meter.stats().bytes_sent()], [64, 64]);
            Ok(seeds)
        };
        let seeds = TestWorld::new(3).try_sessions(program);
        let seeds: Vec<_> = seeds.into_iter().map(Result::unwrap).collect();
        assert!(seeds.iter().all(|seed| seed == &seeds[0]) && seeds[0][0] != seeds[0][1]);
        let make = |session| Rss::dealt(session, CpuEngine::new(1), Options::default());
        let dealt = TestWorld::new(2).with_dealer().run(make, |mpc| Ok([mpc.seed()?, mpc.seed()?]));
        assert!(dealt.iter().all(|seed| seed == &dealt[0]) && dealt[0][0] != dealt[0][1]);
    }
}
