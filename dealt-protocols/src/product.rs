//! Sums of bilinear maps.

use std::iter;

use mpc_core::{Error, ProductOf, Result};
use ring_arith::{Engine, EngineTensor, Tensor, View};

use crate::{
    Dealt, Share, invalid,
    open::{Addend, Masked},
    share::{Form, Group},
};

impl<E: Engine> Dealt<E> {
    /// The sums of products, under fresh masks. One round, 8 bytes an element of the result to each party.
    ///
    /// With `x = a + b` and `y = c + d`, where `b` and `d` are public, `x y = a c + b c + x d`. The dealer shares `a c`, and
    /// the rest is linear in the addends of `a` and `c`.
    pub(crate) fn sums_of_products(
        &mut self,
        jobs: &[ProductOf<'_, Self>],
    ) -> Result<Vec<Share<E::Tensor>>> {
        let sums = self.addends_of_products(jobs)?;
        self.remask(&sums)?.into_iter().map(|sum| self.share(sum)).collect()
    }

    /// This party's addends of the sums.
    fn addends_of_products(&mut self, jobs: &[ProductOf<'_, Self>]) -> Result<Vec<Addend>> {
        let mine = jobs.iter().map(|job| self.without_masks_product(job));
        let mine = mine.collect::<Result<Vec<_>>>()?;
        let forms: Vec<_> = mine.iter().map(|sum| Form::words(sum.shape())).collect();
        let engine = self.engine.clone();
        let of_masks = self.deal(&forms, || {
            let sums = jobs.iter().map(|job| {
                let terms = job.terms.iter().map(|term| {
                    let factors = (&term.lhs.mask, &term.rhs.mask);
                    Ok(engine.download(&engine.bilinear(&term.op, &[factors], &[])?)?)
                });
                add_up(terms)
            });
            sums.collect()
        })?;
        let sums = iter::zip(&mine, &of_masks);
        sums.map(|(x, y)| Ok(Addend::words(Group::WORDS.add(x, y)?))).collect()
    }

    /// This party's addend of a sum, less the products of masks.
    fn without_masks_product(&self, job: &ProductOf<'_, Self>) -> Result<Tensor> {
        let terms = job.terms.iter().map(|term| {
            let (x, y) = (term.lhs, term.rhs);
            let op = &term.op;
            let result = if self.deals() {
                let shape = op.output_shape(x.mask.shape(), y.mask.shape())?;
                return Ok(Tensor::zeros(shape));
            } else if self.is_first() {
                let lhs = self.zip_words(&x.mask, &x.masked, u64::wrapping_add)?;
                self.engine.bilinear(op, &[(&x.masked, &y.mask), (&lhs, &y.masked)], &[])?
            } else {
                self.engine.bilinear(op, &[(&x.masked, &y.mask), (&x.mask, &y.masked)], &[])?
            };
            self.download(&result)
        });
        let mut sum = add_up(terms)?;
        for (addend, shift) in &job.summands {
            let wide = View::Broadcast(sum.shape().clone());
            let addend = self.download(&self.engine.view(&self.addend_of(addend)?, &wide)?)?;
            let shift = *shift;
            sum = crate::share::zip(&sum, &addend, |sum, x| {
                sum.wrapping_add(x.checked_shl(shift).unwrap_or(0))
            })?;
        }
        Ok(sum)
    }

    /// This party's addend of a masked tensor.
    pub(crate) fn addend_of(&self, x: &Share<E::Tensor>) -> Result<E::Tensor> {
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
    let first = terms.next().ok_or_else(|| invalid("products", "a sum of nothing"))??;
    terms.try_fold(first, |sum, term| {
        let term = term?;
        if sum.shape() != term.shape() {
            let lhs = sum.shape().clone();
            return Err(Error::Shapes { op: "products", lhs, rhs: term.shape().clone() });
        }
        Group::WORDS.add(&sum, &term)
    })
}
