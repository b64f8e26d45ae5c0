//! Sums of products of different kinds or shapes, in a checked session.
//!
//! A relation speaks of maps of one kind and shape. Those of every other kind are products of their own, which are not
//! truncated, and become summands of the first: 192 bits for each element and one round more.

use mpc_core::{Finish, ProducedBy, Product, Protocol, Result, Term};
use ring_arith::{Engine, EngineTensor};

use super::{Job, stated::alike};
use crate::{Rss, Share};

/// True if one relation speaks of all terms.
pub(crate) fn of_one_kind<T: EngineTensor>(job: &Job<'_, T>) -> bool {
    job.terms.iter().all(|term| alike(&job.terms[0], term))
}

/// The terms of a job by their kind and shape, in the order of the first of each.
fn by_kind<'a, T: EngineTensor>(job: &Job<'a, T>) -> Vec<Vec<Term<'a, Share<T>>>> {
    let mut kinds: Vec<Vec<Term<'a, Share<T>>>> = Vec::new();
    for term in &job.terms {
        match kinds.iter_mut().find(|kind| alike(&kind[0], term)) {
            Some(kind) => kind.push(term.clone()),
            None => kinds.push(vec![term.clone()]),
        }
    }
    kinds
}

impl<E: Engine> Rss<E> {
    /// Products whose terms may differ in kind and shape.
    pub(crate) fn products_of_kinds(
        &mut self,
        jobs: &[Job<'_, E::Tensor>],
    ) -> Result<Vec<ProducedBy<Self>>> {
        let mut kinds: Vec<_> = jobs.iter().map(by_kind).collect();
        let firsts: Vec<_> = kinds.iter_mut().map(|kinds| kinds.remove(0)).collect();
        let counts: Vec<_> = kinds.iter().map(Vec::len).collect();
        let (summands, finish, sums) = (Vec::new(), Finish::Raw, None);
        let others: Vec<_> = kinds
            .into_iter()
            .flatten()
            .map(|terms| Product { terms, summands: summands.clone(), finish, sums })
            .collect();
        let others = self.products(&others)?;
        let mut others = others.iter();
        let jobs = jobs.iter().zip(firsts).zip(counts).map(|((job, terms), count)| {
            let mut job = Product { terms, ..job.clone() };
            job.summands.extend(others.by_ref().take(count).map(|other| (&other.share, 0)));
            job
        });
        self.products(&jobs.collect::<Vec<_>>())
    }
}
