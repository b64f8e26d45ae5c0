//! Into and out of the protocol.

use mpc_core::{Result, ShareTensor};
use net::Party;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Source};

use crate::{
    BitShare, Rss, Share,
    kernels::{Copy, MaskedDifference, MaskedSum, Xor3},
    launch::{flat, invalid, map, whole, words},
};

impl<E: Engine> Rss<E> {
    /// Shares what `owner` holds: a component is a stream that it has in common with the party before
    /// it, one is public coins, the rest goes to the party after it.
    ///
    /// Cost: 64 bits, 1 round.
    pub(crate) fn share_inputs(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Share<E::Tensor>>> {
        let me = self.party();
        let (next, previous) = (owner.after(1, 3), owner.after(2, 3));
        let mut shares = Vec::with_capacity(shapes.len());
        for (i, shape) in shapes.iter().enumerate() {
            let nonce = self.keys.operation();
            let coins = self.keys.public(nonce);
            let coins = || stream(&coins);
            // x_owner is a stream, x_(owner + 1) what is sent, x_(owner + 2) the coins. A rounding that
            // follows sees a random third component; it hides nothing.
            shares.push(if me == owner {
                let value = &values.expect("checked: the owner has values")[i];
                let mask = self.keys.stream(previous, nonce);
                let mask = || stream(&mask);
                let [sent] = words(
                    &self.engine,
                    &MaskedDifference,
                    shape,
                    [whole(value), mask(), coins()],
                    &[],
                )?;
                self.links.put(&self.engine, next, &sent)?;
                let [mine] = words(&self.engine, &Copy, shape, [mask()], &[])?;
                Share::new(mine, sent)?
            } else if me == next {
                let [third] = words(&self.engine, &Copy, shape, [coins()], &[])?;
                let mut cx = self.cx();
                let received =
                    cx.receive(owner, shape.len())?.field(&self.engine, shape.clone())?;
                Share::new(received, third)?
            } else {
                let mask = self.keys.stream(owner, nonce);
                let [third] = words(&self.engine, &Copy, shape, [coins()], &[])?;
                let [first] = words(&self.engine, &Copy, shape, [stream(&mask)], &[])?;
                Share::new(third, first)?
            });
        }
        self.links.flush_all()?;
        Ok(shares)
    }

    /// Reveals tensors to all: every party sends its own component to the party after it.
    ///
    /// Cost: 192 bits, 1 round.
    pub(crate) fn reveal(&mut self, shares: &[&Share<E::Tensor>]) -> Result<Vec<E::Tensor>> {
        let me = self.party();
        for share in shares {
            self.links.put(&self.engine, me.after(1, 3), share.mine())?;
        }
        let mut opened = Vec::with_capacity(shares.len());
        for share in shares {
            opened.push(self.complete(share)?);
        }
        Ok(opened)
    }

    /// Adds the component that this party lacks, from the party before it.
    fn complete(&mut self, share: &Share<E::Tensor>) -> Result<E::Tensor> {
        let from = self.party().after(2, 3);
        let shape = share.shape().clone();
        let mut reader = self.cx().receive(from, shape.len())?;
        let missing = reader.field(&self.engine, shape.clone())?;
        let inputs = [share.mine(), share.next(), &missing];
        Ok(map(&self.engine, &MaskedSum, &shape, inputs, &[])?)
    }

    /// Reveals tensors to one party, which gets the component it lacks from the party before it.
    ///
    /// Cost: 64 bits, 1 round.
    pub(crate) fn reveal_to(
        &mut self,
        to: Party,
        shares: &[&Share<E::Tensor>],
    ) -> Result<Option<Vec<E::Tensor>>> {
        let me = self.party();
        if me.after(1, 3) == to {
            for share in shares {
                self.links.put(&self.engine, to, share.mine())?;
            }
            self.links.flush_all()?;
        }
        if me != to {
            return Ok(None);
        }
        shares.iter().map(|share| self.complete(share)).collect::<Result<Vec<_>>>().map(Some)
    }

    /// Reveals bits to all. Cost: 3 bits for each, 1 round.
    pub(crate) fn reveal_bits(
        &mut self,
        bits: &[&BitShare<E::Tensor>],
    ) -> Result<Vec<BitTensor<E::Tensor>>> {
        let me = self.party();
        for bit in bits {
            self.links.put(&self.engine, me.after(1, 3), bit.mine().planes())?;
        }
        let mut opened = Vec::with_capacity(bits.len());
        for bit in bits {
            let planes = [bit.mine().planes(), bit.next().planes()];
            let shape = planes[0].shape().clone();
            let mut reader = self.cx().receive(me.after(2, 3), shape.len())?;
            let missing = reader.field(&self.engine, shape.clone())?;
            let inputs = [planes[0], planes[1], &missing];
            let all = map(&self.engine, &Xor3, &shape, inputs, &[])?;
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
        if owner.0 >= 3 {
            return Err(invalid("input", format!("{owner} does not exist; there are 3")));
        }
        if self.party() != owner {
            return Ok(());
        }
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

    /// The two components of a share as one axis.
    pub(crate) fn flat_pair(&self, x: &Share<E::Tensor>) -> Result<(E::Tensor, E::Tensor)> {
        Ok((flat(&self.engine, x.mine())?, flat(&self.engine, x.next())?))
    }
}

fn stream<T>(stream: &ring_arith::Stream) -> Source<'_, T> {
    Source::Stream { stream, offset: 0, row_stride: 0 }
}
