//! Sums of products of different kinds or shapes, in a checked session.
//!
//! A relation speaks of maps of one kind and shape. Those of every other kind are products of their own, which are not
//! truncated, and become summands of the first: 192 bits for each element and one round more.

use mpc_core::{Finish, ProducedBy, Product, Protocol, Result, Term};
use ring_arith::{Engine, EngineTensor};

use super::stated::alike;
use crate::{BitShare, Rss, Share};

type Job<'a, T> = Product<'a, Share<T>, BitShare<T>>;

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
        let (mut first, mut others, mut of) = (Vec::new(), Vec::new(), Vec::new());
        for (at, job) in jobs.iter().enumerate() {
            let mut kinds = by_kind(job).into_iter();
            first.push(kinds.next().unwrap_or_default());
            for terms in kinds {
                others.push(Product {
                    terms,
                    summands: Vec::new(),
                    finish: Finish::Raw,
                    sums: None,
                });
                of.push(at);
            }
        }
        let others = self.products(&others)?;
        let jobs = jobs.iter().zip(first).enumerate().map(|(at, (job, terms))| {
            let added = of.iter().zip(&others).filter(|(of, _)| **of == at);
            let mut job = Product { terms, ..job.clone() };
            job.summands.extend(added.map(|(_, other)| (&other.share, 0)));
            job
        });
        self.products(&jobs.collect::<Vec<_>>())
    }
}
