//! Into and out of the protocol.

use mpc_core::{Result, ShareTensor};
use net::Party;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Source, Tensor};

use crate::{
    BitShare, Rss, Share,
    kernels::{MaskedDifference, MaskedSum, Xor3},
    party::Setting,
    runtime::{
        chunks::DEALER,
        launch::{invalid, made, map, whole, words},
        prss::Key,
        roles::{Pair, Roles},
    },
};

/// Words of a hash.
const HASH: usize = 4;

impl<E: Engine> Rss<E> {
    /// Shares the tensors that `owner` holds: one component is a stream shared with the party before it,
    /// one is public coins, and the rest goes to the party after it. With a pinned dealer, the owner shares
    /// the stream with the dealer.
    ///
    /// Cost: 64 bits, 1 round.
    pub(crate) fn share_inputs(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let me = self.party();
        // The owner is the dealer: its key with the party before it is that with the right evaluator.
        let swapped = self.setting == Setting::Dealt && owner.after(2, 3) != DEALER;
        mutant!("input: sent to the dealer", swapped = false);
        let roles = Roles::new(me, owner, swapped);
        let links = self.links.get_mut();
        let mut shares = Vec::with_capacity(shapes.len());
        for (i, shape) in shapes.iter().enumerate() {
            let nonce = self.keys.operation();
            let coins = self.keys.public(nonce);
            let coins = || stream(&coins);
            let mut streams = self.keys.streams(&roles, nonce);
            let mask = streams.sample(Key::Right, shape.len());
            let mask = || streams.words(mask);
            // x_owner is a stream, x_(owner + 1) is sent, x_(owner + 2) is the coins; swapped, the first
            // two change places. A rounding that follows sees a random component 2; it hides nothing.
            let pair = if me == owner {
                let value = &values.unwrap_or_default()[i];
                let sources = [whole(value), mask(), coins()];
                let [sent] = words(&self.engine, &MaskedDifference, shape, sources, &[])?;
                links.send(&self.engine, roles.left(), &sent)?;
                Pair(made(&self.engine, shape, mask())?, sent)
            } else if me == roles.left() {
                let public = made(&self.engine, shape, coins())?;
                Pair(links.receive(&self.engine, owner, shape.clone())?, public)
            } else {
                let public = made(&self.engine, shape, coins())?;
                Pair(public, made(&self.engine, shape, mask())?)
            };
            let [mine, next] = roles.mine_and_next(pair);
            shares.push(Share::new(mine, next)?);
        }
        links.flush_all()?;
        Ok(shares)
    }

    /// Reveals tensors to all: every party sends its own component to the party after it.
    ///
    /// Cost: 192 bits, 1 round, and a hash a party, 96 bytes in all. With a dealer 128 bits and no hash; to
    /// the dealer everything is 0.
    pub(crate) fn reveal_to_all(&mut self, shares: &[&Share<E::Tensor>]) -> Result<Vec<E::Tensor>> {
        self.verify()?;
        if self.deals() {
            return shares.iter().map(|share| self.zero_like(share.shape())).collect();
        }
        let components: Vec<_> = shares.iter().map(|share| (share.mine(), share.next())).collect();
        let missing = self.exchange_components(&components)?;
        shares.iter().zip(&missing).map(|(share, missing)| self.complete(share, missing)).collect()
    }

    /// Sends own components to the party after this one, which lacks them, and hashes of the next ones to
    /// the party before, which gets those from their other holder. Returns the components that this party
    /// lacks.
    fn exchange_components(
        &mut self,
        components: &[(&E::Tensor, &E::Tensor)],
    ) -> Result<Vec<E::Tensor>> {
        if self.setting == Setting::Dealt {
            return self.exchange_with_the_other(components);
        }
        let me = self.party();
        let shapes: Vec<_> = components.iter().map(|(mine, _)| mine.shape().clone()).collect();
        for (mine, _) in components {
            self.links.get_mut().send(&self.engine, me.after(1, 3), mine)?;
        }
        let vouched: Vec<_> = components.iter().map(|(_, next)| *next).collect();
        self.vouch(me.after(2, 3), &vouched)?;
        self.receive_vouched(&shapes)
    }

    /// Sends a hash of tensors that a party gets from somebody else.
    fn vouch(&mut self, to: Party, tensors: &[&E::Tensor]) -> Result<()> {
        if tensors.iter().all(|tensor| tensor.len() == 0) {
            return Ok(());
        }
        let hash = self.engine.upload(self.hash(tensors)?)?;
        self.links.get_mut().send(&self.engine, to, &hash)
    }

    /// Receives components from the party before this one, and their hash from the one after it.
    fn receive_vouched(&mut self, shapes: &[Shape]) -> Result<Vec<E::Tensor>> {
        let [next, previous] = [1, 2].map(|n| self.party().after(n, 3));
        let mut came = Vec::with_capacity(shapes.len());
        for shape in shapes {
            came.push(self.links.get_mut().receive(&self.engine, previous, shape.clone())?);
        }
        let all: Vec<_> = came.iter().collect();
        if all.iter().all(|tensor| tensor.len() == 0) {
            return Ok(came);
        }
        let hash = Shape::new([HASH])?;
        let told = self.links.get_mut().receive(&self.engine, next, hash)?;
        if self.engine.download(&told)?.words() == self.hash(&all)?.words() {
            return Ok(came);
        }
        let reason = format!(
            "it sent a component to be opened of which {next} has another version: one of the two \
             changed it"
        );
        Err(self.links.get_mut().accuse(previous, &reason))
    }

    pub(crate) fn hash(&self, tensors: &[&E::Tensor]) -> Result<Tensor> {
        let mut hash =
            blake3::Hasher::new_derive_key("trefoil rss-protocols 2026 opened components");
        mutant!("opening: the hash of the first tensor alone", tensors = &tensors[..1]);
        for tensor in tensors {
            hash.update(&self.engine.download(tensor)?.to_bytes());
        }
        let bytes = bytes::Bytes::copy_from_slice(hash.finalize().as_bytes());
        Ok(Tensor::from_bytes(Shape::new([HASH])?, bytes)?)
    }

    /// Adds the component that this party lacked.
    pub(crate) fn complete(
        &self,
        share: &Share<E::Tensor>,
        missing: &E::Tensor,
    ) -> Result<E::Tensor> {
        let inputs = [share.mine(), share.next(), missing];
        Ok(map(&self.engine, &MaskedSum, share.shape(), inputs, &[])?)
    }

    /// Reveals tensors to one party, which gets the component it lacks from the party before it.
    ///
    /// Cost: 64 bits, 1 round, and a hash of 32 bytes.
    pub(crate) fn reveal_to(
        &mut self,
        to: Party,
        shares: &[&Share<E::Tensor>],
    ) -> Result<Option<Vec<E::Tensor>>> {
        self.verify()?;
        if self.setting == Setting::Dealt {
            return self.reveal_to_the_other(to, shares);
        }
        let me = self.party();
        if me.after(1, 3) == to {
            for share in shares {
                self.links.get_mut().send(&self.engine, to, share.mine())?;
            }
        }
        if me.after(2, 3) == to {
            let vouched: Vec<_> = shares.iter().map(|share| share.next()).collect();
            self.vouch(to, &vouched)?;
        }
        self.links.get_mut().flush_all()?;
        if me != to {
            return Ok(None);
        }
        let shapes: Vec<_> = shares.iter().map(|share| share.shape().clone()).collect();
        let missing = self.receive_vouched(&shapes)?;
        let opened = shares.iter().zip(&missing);
        opened
            .map(|(share, missing)| self.complete(share, missing))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Reveals bits to all. Cost: 3 bits for each, 1 round, and a hash a party, 96 bytes in all; with a
    /// dealer 2 bits and no hash.
    pub(crate) fn reveal_bits(
        &mut self,
        bits: &[&BitShare<E::Tensor>],
    ) -> Result<Vec<BitTensor<E::Tensor>>> {
        self.verify()?;
        if self.deals() {
            let mut zeros = Vec::with_capacity(bits.len());
            for bit in bits {
                let planes = self.zero_like(bit.mine().planes().shape())?;
                zeros.push(BitTensor::new(bit.shape().clone(), planes)?);
            }
            return Ok(zeros);
        }
        let planes: Vec<_> =
            bits.iter().map(|bit| (bit.mine().planes(), bit.next().planes())).collect();
        let missing = self.exchange_components(&planes)?;
        let mut opened = Vec::with_capacity(bits.len());
        for ((bit, (mine, next)), missing) in bits.iter().zip(planes).zip(&missing) {
            let all = map(&self.engine, &Xor3, mine.shape(), [mine, next, missing], &[])?;
            opened.push(BitTensor::new(bit.shape().clone(), all)?);
        }
        Ok(opened)
    }

    /// Refuses inputs that the owner did not pass, or not in the shapes announced.
    pub(crate) fn check_inputs(
        &self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<()> {
        self.check_computes("input", owner)?;
        if self.party() != owner {
            return Ok(());
        }
        self.check_values(shapes, values)
    }

    /// Refuses values that are not those of the shapes announced.
    pub(crate) fn check_values(
        &self,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<()> {
        let values = values.unwrap_or_default();
        if values.len() != shapes.len() {
            let reason = format!("{} values for {} shapes", values.len(), shapes.len());
            return Err(invalid("input", reason));
        }
        match shapes.iter().zip(values).find(|(shape, value)| *shape != value.shape()) {
            Some((shape, value)) => {
                let reason = format!("a value {:?} was announced as {shape:?}", value.shape());
                Err(invalid("input", reason))
            }
            None => Ok(()),
        }
    }
}

fn stream<T>(stream: &ring_arith::Stream) -> Source<'_, T> {
    Source::Stream { stream, offset: 0, row_stride: 0 }
}
