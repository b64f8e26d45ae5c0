//! [`Protocol`] for masked sharing with a dealer.

use mpc_core::{
    BitMap, Compare, ComparedBy, FinishingOf, Info, Linear, ProducedBy, ProductOf, Protocol,
    Recipients, Result, TermOf, TrigSum, TruncationMode, provided,
};
use net::Party;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Tensor};

use crate::{
    BitShare, Dealt, Share,
    bits::Uses,
    invalid,
    linear::public_planes,
    open::Addend,
    share::{Form, Group},
};

impl<E: Engine> Protocol for Dealt<E> {
    type Engine = E;
    type Share = Share<E::Tensor>;
    type Bits = BitShare;

    fn info(&self) -> Info {
        let info = Info::new("dealt", self.transport.me(), self.computing());
        Info { truncation: self.truncation, helper: true, ..info }
    }

    fn engine(&self) -> &E {
        &self.engine
    }

    fn step(&mut self, name: &str) {
        self.transport.step(name);
    }

    /// The owner's mask is from a key in common with the dealer; it sends the masked tensors to each other party.
    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Self::Share>> {
        let values = values.unwrap_or_default();
        let owns = self.is(owner);
        let fits = values.iter().map(EngineTensor::shape).eq(shapes);
        if owner >= self.dealer() || owns && !fits {
            let reason = format!("{owner} has {} values for {} shapes", values.len(), shapes.len());
            return Err(invalid("input", reason));
        }
        let forms: Vec<_> = shapes.iter().map(Form::words).collect();
        let mut masks = Vec::with_capacity(shapes.len());
        for form in &forms {
            let stream = self.next_stream();
            masks.push(if owns {
                self.common(self.dealer(), stream, form)?
            } else if self.deals() {
                self.common(owner, stream, form)?
            } else {
                Tensor::zeros(form.shape.clone())
            });
        }
        let masked = if self.deals() {
            shapes.iter().cloned().map(Tensor::zeros).collect()
        } else if owns {
            let mut masked = Vec::with_capacity(shapes.len());
            for (value, mask) in values.iter().zip(&masks) {
                let hiding = mask.clone();
                mutant!("input: without a mask", hiding = Tensor::zeros(mask.shape().clone()));
                masked.push(Group::WORDS.subtract(&self.download(value)?, &hiding)?);
            }
            for peer in self.peers() {
                self.send(peer, &forms, &masked)?;
            }
            masked
        } else {
            self.receive(owner, &forms)?
        };
        let mut shares = Vec::with_capacity(shapes.len());
        for (mask, masked) in masks.into_iter().zip(masked) {
            shares.push(Share { mask: self.upload(mask)?, masked: self.upload(masked)? });
        }
        Ok(shares)
    }

    fn constant(&self, value: &E::Tensor) -> Result<Self::Share> {
        let mask = self.upload(Tensor::zeros(value.shape().clone()))?;
        Ok(Share { mask, masked: value.clone() })
    }

    fn reveal(
        &mut self,
        to: Recipients,
        shares: &[&Self::Share],
    ) -> Result<Option<Vec<E::Tensor>>> {
        let to = match to {
            Recipients::All => None,
            Recipients::One(party) => Some(party),
        };
        let mut masks = Vec::with_capacity(shares.len());
        for share in shares {
            masks.push(Addend::words(self.download(&share.mask)?));
        }
        let Some(masks) = self.reveal_sums(to, &masks)? else { return Ok(None) };
        let mut opened = Vec::with_capacity(shares.len());
        for (mask, share) in masks.into_iter().zip(shares) {
            opened.push(if self.deals() {
                self.upload(mask)?
            } else {
                self.upload(Group::WORDS.add(&mask, &self.download(&share.masked)?)?)?
            });
        }
        Ok(Some(opened))
    }

    fn open_bits(&mut self, shared: &[&Self::Bits]) -> Result<Vec<BitTensor<E::Tensor>>> {
        let masks = shared.iter().map(|bits| Addend::planes(bits.planes.mask.clone()));
        let masks = self.reveal_sums(None, &masks.collect::<Vec<_>>())?.unwrap_or_default();
        let mut opened = Vec::with_capacity(shared.len());
        for (mask, bits) in masks.into_iter().zip(shared) {
            let planes =
                if self.deals() { mask } else { Group::Planes.add(&mask, &bits.planes.masked)? };
            opened.push(BitTensor::new(bits.shape.clone(), self.upload(planes)?)?);
        }
        Ok(opened)
    }

    fn linear(&self, map: &Linear<'_, E::Tensor>, x: &Self::Share) -> Result<Self::Share> {
        self.linear_map(map, x)
    }

    fn add(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        let mask = self.zip_words(&x.mask, &y.mask, u64::wrapping_add)?;
        Ok(Share { mask, masked: self.zip_words(&x.masked, &y.masked, u64::wrapping_add)? })
    }

    fn concat(&self, shares: &[&Self::Share], axis: usize) -> Result<Self::Share> {
        let masks: Vec<_> = shares.iter().map(|share| &share.mask).collect();
        let masked: Vec<_> = shares.iter().map(|share| &share.masked).collect();
        let mask = self.engine.concat(&masks, axis)?;
        Ok(Share { mask, masked: self.engine.concat(&masked, axis)? })
    }

    fn constant_bits(&self, value: &BitTensor<E::Tensor>) -> Result<Self::Bits> {
        BitShare::new(value.shape(), public_planes(self.download(value.planes())?))
    }

    fn linear_bits(&self, map: &BitMap<'_, Self::Bits>) -> Result<Self::Bits> {
        self.linear_map_of_bits(map)
    }

    fn products(&mut self, jobs: &[ProductOf<'_, Self>]) -> Result<Vec<ProducedBy<Self>>> {
        provided::products(self, jobs)
    }

    fn parts(&mut self, sums: &[&[TermOf<'_, Self>]]) -> Result<Vec<E::Tensor>> {
        self.addends_of_products(sums)
    }

    fn settle(
        &mut self,
        jobs: &[(&E::Tensor, FinishingOf<'_, Self>)],
    ) -> Result<Vec<ProducedBy<Self>>> {
        self.settle_addends(jobs)
    }

    /// The addend of the mask, and the masked words.
    fn components(&self, share: &Self::Share) -> Result<Vec<E::Tensor>> {
        Ok(vec![share.mask.clone(), share.masked.clone()])
    }

    fn of_components(&self, words: Vec<E::Tensor>) -> Result<Self::Share> {
        provided::exactly_components(words).map(|[mask, masked]| Share { mask, masked })
    }

    fn to_bits(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        self.all_bits(jobs)
    }

    fn and(&mut self, jobs: &[(&Self::Bits, &Self::Bits)]) -> Result<Vec<Self::Bits>> {
        self.gates(jobs)
    }

    fn bits_to_words(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Vec<Self::Share>>> {
        self.words(jobs)
    }

    fn truncate(
        &mut self,
        jobs: &[(&Self::Share, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Self::Share>> {
        self.truncate_by(jobs, mode)
    }

    fn compare(&mut self, jobs: &[Compare<'_, Self::Share>]) -> Result<Vec<ComparedBy<Self>>> {
        self.comparisons(jobs)
    }

    fn is_zero(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        self.zeros(jobs)
    }

    fn select(&mut self, jobs: &[(&Self::Bits, &[&Self::Share])]) -> Result<Vec<Vec<Self::Share>>> {
        let uses = jobs.iter().map(|(bit, xs)| Uses { bit, word: false, times: xs.to_vec() });
        self.use_bits(&uses.collect::<Vec<_>>())
    }

    fn trig_sum(
        &mut self,
        x: &Self::Share,
        width: u32,
        function: &TrigSum,
    ) -> Result<Option<Self::Share>> {
        self.trig_sum_of(x, width, function)
    }

    fn bit_sums(&mut self, jobs: &[(&Self::Bits, &[&[u64]])]) -> Result<Vec<Vec<Self::Share>>> {
        self.sums_of_bits(jobs)
    }
}
