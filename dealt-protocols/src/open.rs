//! Opening: of results, and of masked values.

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, EngineTensor, Tensor};

use crate::{
    Dealt,
    share::{Form, Group},
};

/// A tensor of which each party holds one addend.
pub(crate) struct Addend {
    pub(crate) group: Group,
    pub(crate) words: Tensor,
}

impl Addend {
    pub(crate) fn words(words: Tensor) -> Self {
        Self { group: Group::WORDS, words }
    }

    pub(crate) fn planes(words: Tensor) -> Self {
        Self { group: Group::Planes, words }
    }

    fn form(&self) -> Form {
        Form { group: self.group, shape: self.words.shape().clone() }
    }
}

/// A fresh mask and the tensor masked by it.
pub(crate) struct Masked {
    /// This party's addend; at the dealer the whole mask.
    pub(crate) mask: Tensor,
    /// Known to all parties that compute; 0 at the dealer.
    pub(crate) masked: Tensor,
}

impl<E: Engine> Dealt<E> {
    /// Opens tensors under fresh masks: turns addends into masked sharings. One round; each party sends each other its
    /// addends, masked by its own addends of the new masks.
    pub(crate) fn remask(&mut self, addends: &[Addend]) -> Result<Vec<Masked>> {
        let mut masks = Vec::with_capacity(addends.len());
        let mut hidden = Vec::with_capacity(addends.len());
        for addend in addends {
            let mask = self.random(&addend.form())?;
            let hiding = mask.clone();
            mutant!("remask: addends without masks", hiding = Tensor::zeros(mask.shape().clone()));
            hidden.push(addend.group.subtract(&addend.words, &hiding)?);
            masks.push(mask);
        }
        let forms: Vec<_> = addends.iter().map(Addend::form).collect();
        let opened = self.exchange(None, &forms, hidden)?.unwrap_or_default();
        let pairs = masks.into_iter().zip(opened);
        Ok(pairs.map(|(mask, masked)| Masked { mask, masked }).collect())
    }

    /// Opens sums of addends that hold masks already. The dealer gets zeros. One round.
    pub(crate) fn open_sums(&mut self, addends: &[Addend]) -> Result<Vec<Tensor>> {
        let forms: Vec<_> = addends.iter().map(Addend::form).collect();
        let words = addends.iter().map(|addend| addend.words.clone()).collect();
        Ok(self.exchange(None, &forms, words)?.unwrap_or_default())
    }

    /// Opens tensors to all parties that compute or to one of them: sums of addends that tell nothing but their sum.
    pub(crate) fn reveal_sums(
        &mut self,
        to: Option<Party>,
        addends: &[Addend],
    ) -> Result<Option<Vec<Tensor>>> {
        let forms: Vec<_> = addends.iter().map(Addend::form).collect();
        let hidden = addends.iter().map(|addend| self.blind(addend)).collect::<Result<_>>()?;
        self.exchange(to, &forms, hidden)
    }

    /// Adds to this party's addend random ones that are 0 together: opened, it tells nothing but the sum. Local.
    pub(crate) fn blind(&mut self, addend: &Addend) -> Result<Tensor> {
        let stream = self.next_stream();
        let form = addend.form();
        let mut blinded = addend.words.clone();
        for peer in self.peers().filter(|_| !self.deals()) {
            let mask = self.common(peer, stream, &form)?;
            blinded = if self.transport.me() < peer {
                form.group.add(&blinded, &mask)?
            } else {
                form.group.subtract(&blinded, &mask)?
            };
        }
        mutant!("opening: addends without masks", blinded = addend.words.clone());
        Ok(blinded)
    }

    /// Sums of all parties' addends, to all parties that compute or to one of them. `None` where this party learns
    /// nothing; the dealer gets zeros. One round.
    fn exchange(
        &mut self,
        to: Option<Party>,
        forms: &[Form],
        addends: Vec<Tensor>,
    ) -> Result<Option<Vec<Tensor>>> {
        let learns = to.is_none_or(|to| self.is(to));
        if self.deals() {
            let zeros = forms.iter().map(|form| Tensor::zeros(form.shape.clone())).collect();
            return Ok(learns.then_some(zeros));
        }
        for peer in self.peers().filter(|&peer| to.is_none_or(|to| peer == to)) {
            self.send(peer, forms, &addends)?;
        }
        let mut sums = addends;
        for peer in self.peers().filter(|_| learns) {
            let theirs = self.receive(peer, forms)?;
            for ((sum, form), theirs) in sums.iter_mut().zip(forms).zip(&theirs) {
                *sum = form.group.add(sum, theirs)?;
            }
        }
        Ok(learns.then_some(sums))
    }
}
