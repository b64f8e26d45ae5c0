//! Correlated randomness: masks from keys in common with the dealer, and what the dealer shares of them.

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, Shape, Tensor};

use crate::{
    Dealt,
    share::{Form, Group, low},
};

impl<E: Engine> Dealt<E> {
    /// The number of a stream that has not been used.
    pub(crate) fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        let stream = self.streams;
        mutant!("stream: the same again", stream = 1);
        stream
    }

    /// Words of a stream that this party and `peer` can make and nobody else.
    pub(crate) fn common(&self, peer: Party, stream: u64, form: &Form) -> Result<Tensor> {
        let mut words = vec![0; form.shape.len()];
        if let Some(key) = &self.keys[peer.0] {
            key.stream(stream).fill(0, &mut words);
        }
        if let Group::Words { bits } = form.group {
            words.iter_mut().for_each(|word| *word = low(*word, bits));
        }
        Ok(Tensor::new(form.shape.clone(), words)?)
    }

    /// A random tensor: this party's addend, and at the dealer the sum of all addends. Local.
    pub(crate) fn random(&mut self, form: &Form) -> Result<Tensor> {
        let stream = self.next_stream();
        if !self.deals() {
            return self.common(self.dealer(), stream, form);
        }
        let mut total = Tensor::zeros(form.shape.clone());
        for party in self.peers() {
            total = form.group.add(&total, &self.common(party, stream, form)?)?;
        }
        Ok(total)
    }

    /// Shares tensors that the dealer knows: it alone calls `values`. All addends but the last party's are random; the
    /// dealer sends that one, all tensors in one message. The dealer gets the values.
    pub(crate) fn deal(
        &mut self,
        forms: &[Form],
        values: impl FnOnce() -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        let streams: Vec<_> = forms.iter().map(|_| self.next_stream()).collect();
        let last = Party(self.computing() - 1);
        if self.is(last) {
            return self.receive(self.dealer(), forms);
        }
        if !self.deals() {
            let addends = forms.iter().zip(streams);
            return addends
                .map(|(form, stream)| self.common(self.dealer(), stream, form))
                .collect();
        }
        let mut rest = Vec::with_capacity(forms.len());
        let values = values()?;
        for ((form, stream), value) in forms.iter().zip(streams).zip(&values) {
            let mut left = value.clone();
            for party in self.peers().filter(|&party| party != last) {
                let addend = self.common(party, stream, form)?;
                mutant!(
                    "dealt: the value without masks",
                    addend = Tensor::zeros(form.shape.clone())
                );
                left = form.group.subtract(&left, &addend)?;
            }
            rest.push(left);
        }
        self.send(last, forms, &rest)?;
        Ok(values)
    }

    /// Sends tensors in one message.
    pub(crate) fn send(&mut self, to: Party, forms: &[Form], tensors: &[Tensor]) -> Result<()> {
        let mut body = Vec::new();
        for (form, tensor) in forms.iter().zip(tensors) {
            match form.group {
                Group::Words { bits } if bits < 64 => {
                    let words = self.upload(tensor.clone())?;
                    let planes = self.engine.to_planes(&words, 0, bits)?;
                    body.extend_from_slice(&self.download(&planes)?.to_bytes());
                }
                _ => body.extend_from_slice(&tensor.to_bytes()),
            }
        }
        if body.is_empty() {
            return Ok(());
        }
        Ok(self.transport.send(to, bytes::Bytes::from(body).into())?)
    }

    /// Receives tensors in one message.
    pub(crate) fn receive(&mut self, from: Party, forms: &[Form]) -> Result<Vec<Tensor>> {
        let shapes = forms.iter().map(|form| match form.group {
            Group::Words { bits } if bits < 64 => {
                Shape::new([bits as usize, form.shape.len().div_ceil(64)])
            }
            _ => Ok(form.shape.clone()),
        });
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let due: usize = shapes.iter().map(|shape| 8 * shape.len()).sum();
        if due == 0 {
            return Ok(forms.iter().map(|form| Tensor::zeros(form.shape.clone())).collect());
        }
        let mut body = self.transport.receive(from)?.body;
        if body.len() != due {
            let reason = format!("sent {} bytes where {due} are due", body.len());
            return Err(self.transport.accuse(from, &reason).into());
        }
        let mut tensors = Vec::with_capacity(forms.len());
        for (form, shape) in forms.iter().zip(shapes) {
            let part = Tensor::from_bytes(shape.clone(), body.split_to(8 * shape.len()))?;
            tensors.push(match form.group {
                Group::Words { bits } if bits < 64 => {
                    let planes = self.upload(part)?;
                    self.download(&self.engine.from_planes(&planes, 0, &form.shape)?)?
                }
                _ => part,
            });
        }
        Ok(tensors)
    }
}
