//! This party's addends of sums of products, before anything is sent.

use mpc_core::{Error, Linear, Result, Term, provided};
use ring_arith::{Addend, AddendSource, Bilinear, Engine, EngineTensor, Shape, View};

use super::{Job, Steps, operands, split::LocalProduct, stated::Stated};
use crate::{
    Rss, Share,
    kernels::Scale,
    runtime::launch::{self, flat},
};

/// This party's components of a job's summands.
struct Addends<T> {
    /// One of the result's size, and its factor.
    plus: Option<(T, u64)>,
    rest: Vec<T>,
}

impl<E: Engine> Rss<E> {
    /// This party's addend of a product, and the product's shape.
    pub(super) fn product_of(
        &self,
        job: &Job<'_, E::Tensor>,
    ) -> Result<(Shape, LocalProduct<E::Tensor>)> {
        let shape = provided::shape_of_sum(&job.terms)?;
        let product = match &job.terms[..] {
            [term] if term.op == Bilinear::Mul => {
                self.elementwise([term.lhs, term.rhs], job, &shape)?
            }
            _ => self.map(job, &shape)?,
        };
        Ok((shape, product))
    }

    /// The sum of all addends, shifted and of the product's shape.
    fn sum_of_addends(
        &self,
        job: &Job<'_, E::Tensor>,
        shape: &Shape,
    ) -> Result<Option<Share<E::Tensor>>> {
        if job.summands.is_empty() {
            return Ok(None);
        }
        let view = View::Broadcast(shape.clone());
        let mut wide = Vec::with_capacity(job.summands.len());
        for &(addend, shift) in &job.summands {
            wide.push((1 << shift, self.linear_map(&Linear::View(&view), addend)?));
        }
        let terms: Vec<_> = wide.iter().map(|(factor, share)| (*factor, share)).collect();
        self.combination(&terms, 0).map(Some)
    }

    /// This party's addend of one elementwise product.
    fn elementwise(
        &self,
        [x, y]: [&Share<E::Tensor>; 2],
        job: &Job<'_, E::Tensor>,
        shape: &Shape,
    ) -> Result<LocalProduct<E::Tensor>> {
        let [x, x1] = self.flat_pair(x)?;
        let [y, y1] = self.flat_pair(y)?;
        let addend = self.sum_of_addends(job, shape)?;
        let plus = addend.map(|addend| self.flat_pair(&addend)).transpose()?;
        Ok(LocalProduct::Elementwise { factors: [x, x1, y, y1], plus })
    }

    /// This party's addend of other maps. Of a job's addends each party adds its own component: broadcast ones with the
    /// first map, and the first one of the result's size with the masks, without a separate pass.
    fn map(&self, job: &Job<'_, E::Tensor>, shape: &Shape) -> Result<LocalProduct<E::Tensor>> {
        let Addends { plus, rest } = self.own_addends(&job.summands, shape)?;
        let sum = self.sum_of_terms(&job.terms, rest)?;
        let stated = if self.is_checked() { Some(self.stated(job, shape)?) } else { None };
        Ok(LocalProduct::Made { part: flat(&self.engine, &sum)?, plus, stated })
    }

    /// This party's addend of a sum of which it has a part.
    pub(super) fn product_of_part(
        &self,
        part: &E::Tensor,
        job: &Steps<'_, E::Tensor>,
    ) -> Result<LocalProduct<E::Tensor>> {
        let engine = &self.engine;
        let shape = part.shape();
        let Addends { plus, rest } = self.own_addends(&job.summands, shape)?;
        let mut part = part.clone();
        for addend in rest {
            let wide = engine.view(&addend, &View::Broadcast(shape.clone()))?;
            mutant!(
                "settle: a broadcast summand left out",
                wide = launch::map(engine, &Scale, shape, [&part], &[0])?
            );
            part = launch::add(engine, &part, &wide)?;
        }
        Ok(LocalProduct::Made { part: flat(engine, &part)?, plus, stated: None })
    }

    /// This party's components of summands: the first one of the result's size with its factor, and the others, shifted.
    fn own_addends(
        &self,
        summands: &[(&Share<E::Tensor>, u32)],
        shape: &Shape,
    ) -> Result<Addends<E::Tensor>> {
        let engine = &self.engine;
        let mut plus = None;
        let mut rest = Vec::new();
        for &(addend, shift) in summands {
            let own = addend.mine();
            let factor = 1 << shift;
            if plus.is_none() && own.len() == shape.len() {
                mutant!("product: an addend without its shift", factor = 1);
                plus = Some((flat(engine, own)?, factor));
            } else {
                rest.push(launch::map(engine, &Scale, own.shape(), [own], &[factor])?);
            }
        }
        Ok(Addends { plus, rest })
    }

    /// This party's part of a sum of maps, each added to those before it; the first one to `added`.
    pub(super) fn sum_of_terms(
        &self,
        terms: &[Term<'_, Share<E::Tensor>>],
        mut added: Vec<E::Tensor>,
    ) -> Result<E::Tensor> {
        for term in terms {
            let pairs = operands::terms(&self.engine, &term.op, term.lhs, term.rhs)?;
            let pairs: Vec<_> = pairs.iter().map(|(x, y)| (x, y)).collect();
            let addends = added
                .iter()
                .map(|tensor| Addend { source: AddendSource::Tensor(tensor), negate: false });
            let addends: Vec<_> = addends.collect();
            mutant!("product: the last term alone", addends = Vec::new());
            let sum = self.engine.bilinear(&term.op, &pairs, &addends)?;
            added = vec![sum];
        }
        // The sum of all terms is the only one left.
        added.pop().ok_or_else(|| Error::unanswered("product"))
    }

    /// The products of a job, for its relations.
    fn stated(&self, job: &Job<'_, E::Tensor>, shape: &Shape) -> Result<Stated<E::Tensor>> {
        let plus = self.sum_of_addends(job, shape)?;
        let plus = plus.map(|plus| self.flat_pair(&plus)).transpose()?;
        if job.terms.iter().any(|term| term.op != Bilinear::Mul) {
            return Ok(Stated::map(&job.terms, plus, shape.len()));
        }
        let mut terms = Vec::with_capacity(job.terms.len());
        for term in &job.terms {
            let [x, x1] = self.flat_pair(term.lhs)?;
            let [y, y1] = self.flat_pair(term.rhs)?;
            terms.push([x, x1, y, y1]);
        }
        Ok(Stated::words(terms, plus))
    }
}
