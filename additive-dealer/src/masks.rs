//! Random masks, what the dealer shares of them, and multiplication by them.

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{Additive, share::Group};

/// A bilinear map of two tensors.
pub(crate) type Map<'a, T> = &'a dyn Fn(&T, &T) -> Result<T>;

/// Two operands and the map of them.
pub(crate) type Term<'a, T> = (&'a T, &'a T, Map<'a, T>);

impl<E: Engine> Additive<E> {
    /// The number of a stream that has not been used.
    pub(crate) fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        let stream = self.streams;
        mutant!("stream: the same again", stream = 1);
        stream
    }

    /// Words of a stream that this party and `peer` can make and nobody else.
    pub(crate) fn common(&self, peer: Party, stream: u64, shape: &Shape) -> Result<E::Tensor> {
        let mut words = vec![0; shape.len()];
        if let Some(key) = &self.keys[peer.0] {
            key.stream(stream).fill(0, &mut words);
        }
        Ok(self.engine.upload(Tensor::new(shape.clone(), words)?)?)
    }

    /// A random tensor: this party's addend, and at the dealer the sum of all addends. Local.
    pub(crate) fn random(&mut self, group: Group, shape: &Shape) -> Result<E::Tensor> {
        let stream = self.next_stream();
        if !self.deals() {
            return self.common(self.dealer(), stream, shape);
        }
        let mut total = self.zeros(shape)?;
        for party in self.peers() {
            let addend = self.common(party, stream, shape)?;
            total = self.zip(&total, &addend, |x, y| group.add(x, y))?;
        }
        Ok(total)
    }

    /// Shares a tensor that the dealer knows. All addends but the last party's are random; the dealer sends that one.
    pub(crate) fn dealt(&mut self, group: Group, value: &E::Tensor) -> Result<E::Tensor> {
        let (stream, shape) = (self.next_stream(), value.shape().clone());
        let last = Party(self.computing() - 1);
        if self.is(last) {
            return self.receive(self.dealer(), &shape);
        }
        if !self.deals() {
            return self.common(self.dealer(), stream, &shape);
        }
        let mut left = value.clone();
        for party in self.peers().filter(|&party| party != last) {
            let addend = self.common(party, stream, &shape)?;
            left = self.zip(&left, &addend, |x, y| group.subtract(x, y))?;
        }
        mutant!("dealt: the last addend too large", left = value.clone());
        self.send(last, &left)?;
        self.zeros(&shape)
    }

    /// Adds to this party's addend random ones that are 0 together: opened, it tells nothing but the sum. Local.
    pub(crate) fn masked(&mut self, group: Group, addend: &E::Tensor) -> Result<E::Tensor> {
        let stream = self.next_stream();
        let mut masked = addend.clone();
        for peer in self.peers().filter(|_| !self.deals()) {
            let mask = self.common(peer, stream, addend.shape())?;
            let first = self.transport.me() < peer;
            masked = self.zip(&masked, &mask, |x, y| {
                if first { group.add(x, y) } else { group.subtract(x, y) }
            })?;
        }
        mutant!("opening: addends without masks", masked = addend.clone());
        Ok(masked)
    }

    /// Bilinear maps `f(x, y)`, by masks `a` and `b` and the dealer's sharing of `f(a, b)`: with `d = x - a` and
    /// `e = y - b` opened, `f(x, y) = f(d, b) + f(a + d, e) + f(a, b)`. One round. Beaver, "Efficient Multiparty
    /// Protocols Using Circuit Randomization", CRYPTO 1991.
    pub(crate) fn multiply(
        &mut self,
        group: Group,
        products: &[Term<'_, E::Tensor>],
    ) -> Result<Vec<E::Tensor>> {
        let (mut masks, mut masked) = (Vec::new(), Vec::new());
        for factor in products.iter().flat_map(|&(x, y, _)| [x, y]) {
            let mask = self.random(group, factor.shape())?;
            mutant!("product: factors without masks", mask = self.zeros(factor.shape())?);
            masked.push(self.zip(factor, &mask, |x, y| group.subtract(x, y))?);
            masks.push(mask);
        }
        let opened = self.exchange(None, group, &masked)?.unwrap_or_default();
        let mut results = Vec::with_capacity(products.len());
        for (i, (.., map)) in products.iter().enumerate() {
            let (a, b) = (&masks[2 * i], &masks[2 * i + 1]);
            let (d, e) = (&opened[2 * i], &opened[2 * i + 1]);
            if self.deals() {
                results.push(self.dealt(group, &map(a, b)?)?);
                continue;
            }
            // What all know is one party's to add.
            let adds = self.is(Party(0));
            mutant!("product: what all know added by all", adds = true);
            let with_d = if adds { self.zip(a, d, |x, y| group.add(x, y))? } else { a.clone() };
            let (left, right) = (map(d, b)?, map(&with_d, e)?);
            let sum = self.zip(&left, &right, |x, y| group.add(x, y))?;
            let of_masks = self.dealt(group, &sum)?;
            results.push(self.zip(&sum, &of_masks, |x, y| group.add(x, y))?);
        }
        Ok(results)
    }
}
