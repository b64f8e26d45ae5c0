//! Sums of bilinear maps.

use std::iter;

use mpc_core::{Error, FinishingOf, ProducedBy, Result, TermOf, provided};
use ring_arith::{Engine, EngineTensor, Tensor};

use crate::{
    Dealt, Share,
    open::{Addend, Masked},
    share::{Form, Group},
};

impl<E: Engine> Dealt<E> {
    /// This party's addends of sums of products, before they are opened under fresh masks.
    ///
    /// With `x = a + b` and `y = c + d`, where `b` and `d` are public, `x y = a c + b c + x d`. The dealer shares `a c`, and
    /// the rest is linear in the addends of `a` and `c`. Its own addends are 0.
    pub(crate) fn addends_of_products(
        &mut self,
        sums: &[&[TermOf<'_, Self>]],
    ) -> Result<Vec<E::Tensor>> {
        let mine = sums.iter().map(|terms| self.without_masks_product(terms));
        let mine = mine.collect::<Result<Vec<_>>>()?;
        let forms: Vec<_> = mine.iter().map(|sum| Form::words(sum.shape())).collect();
        let engine = self.engine.clone();
        let of_masks = self.deal(&forms, || {
            let sums = sums.iter().map(|terms| {
                let terms = terms.iter().map(|term| {
                    let factors = (&term.lhs.mask, &term.rhs.mask);
                    Ok(engine.download(&engine.bilinear(&term.op, &[factors], &[])?)?)
                });
                add_up(terms)
            });
            sums.collect()
        })?;
        let sums = iter::zip(&mine, &of_masks);
        sums.map(|(x, y)| self.upload(Group::WORDS.add(x, y)?)).collect()
    }

    /// Opens addends of sums under fresh masks, and takes the steps that follow. One round, 8 bytes an element to each
    /// party, and those of the final steps.
    pub(crate) fn settle_addends(
        &mut self,
        jobs: &[(&E::Tensor, FinishingOf<'_, Self>)],
    ) -> Result<Vec<ProducedBy<Self>>> {
        let mut addends = Vec::with_capacity(jobs.len());
        for (part, job) in jobs {
            provided::check_summands(job, part.shape())?;
            addends.push(Addend::words(self.download(part)?));
        }
        let sums = self.remask(&addends)?.into_iter().map(|sum| self.share(sum));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        let jobs: Vec<_> = jobs.iter().map(|(_, job)| job.clone()).collect();
        let sums = provided::with_summands(self, &jobs, sums)?;
        self.finish(&jobs, sums)
    }

    /// This party's addend of a sum, less the products of masks.
    fn without_masks_product(&self, terms: &[TermOf<'_, Self>]) -> Result<Tensor> {
        let shape = provided::shape_of_sum(terms)?;
        if self.deals() {
            return Ok(Tensor::zeros(shape));
        }
        let products = terms.iter().map(|term| {
            let (x, y) = (term.lhs, term.rhs);
            let op = &term.op;
            let result = if self.is_first() {
                let lhs = self.zip_words(&x.mask, &x.masked, u64::wrapping_add)?;
                self.engine.bilinear(op, &[(&x.masked, &y.mask), (&lhs, &y.masked)], &[])?
            } else {
                self.engine.bilinear(op, &[(&x.masked, &y.mask), (&x.mask, &y.masked)], &[])?
            };
            self.download(&result)
        });
        add_up(products)
    }

    /// This party's addend of a masked tensor: those of all parties that compute add up to it. At the dealer it is the whole
    /// mask, which belongs to no sum. It must not leave the party.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn addend_of(&self, x: &Share<E::Tensor>) -> Result<E::Tensor> {
        if self.is_first() {
            self.zip_words(&x.mask, &x.masked, u64::wrapping_add)
        } else {
            Ok(x.mask.clone())
        }
    }

    pub(crate) fn share(&self, masked: Masked) -> Result<Share<E::Tensor>> {
        Ok(Share { mask: self.upload(masked.mask)?, masked: self.upload(masked.masked)? })
    }
}

fn add_up(mut terms: impl Iterator<Item = Result<Tensor>>) -> Result<Tensor> {
    let first = terms.next().ok_or_else(|| Error::unanswered("products"))??;
    terms.try_fold(first, |sum, term| Group::WORDS.add(&sum, &term?))
}
