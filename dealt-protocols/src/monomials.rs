//! Products of up to eight shared bits, whose masks' products the dealer shares.
//!
//! With `x_k = a_k ^ b_k` for a mask `a_k` and a public `b_k`, the product of a set `S` of bits is the exclusive or, over
//! all subsets `T` of `S`, of the product of `a_k` in `T` and of `b_k` in the rest: linear in what the dealer shares.
//! So it needs no message among the parties.

use std::collections::BTreeSet;

use mpc_core::{Error, Result};
use ring_arith::{Engine, Tensor};

use crate::{
    Dealt,
    share::{Form, Planes, zip},
};

/// Factors of one shape, and the sets of them to multiply: bit `k` of a set stands for factor `k`.
pub(crate) struct Monomials<'a> {
    pub(crate) factors: &'a [Planes],
    pub(crate) wanted: &'a [u8],
}

impl Monomials<'_> {
    /// The sets of at least two masks whose products are needed, each once.
    fn sets(&self) -> Vec<u8> {
        let mut sets = BTreeSet::new();
        for &wanted in self.wanted {
            sets.extend(subsets(wanted).filter(|set| set.count_ones() > 1));
        }
        sets.into_iter().collect()
    }

    /// The product of the masks in a set.
    fn of_masks(&self, set: u8) -> Result<Tensor> {
        let mut masks = members(set).map(|k| &self.factors[k].mask);
        let first = masks.next().cloned().unwrap_or_else(|| Tensor::scalar(u64::MAX));
        masks.try_fold(first, |product, mask| zip(&product, mask, |x, y| x & y))
    }

    /// This party's addend of the product of a set; `dealt` are those of the masks' products. Block by block, so that
    /// terms stay in the cache.
    fn product(&self, wanted: u8, sets: &[u8], dealt: &[Tensor], first: bool) -> Result<Tensor> {
        const BLOCK: usize = 1024;
        let shape = self.factors[0].shape().clone();
        // Each term: the addends of a product of masks, or none for the public term, and the public factors.
        let mut terms = Vec::new();
        for set in subsets(wanted) {
            let masks = match (set.count_ones(), sets.binary_search(&set)) {
                (0, _) if !first => continue,
                (0, _) => None,
                (1, _) => Some(self.factors[set.trailing_zeros() as usize].mask.words()),
                (_, Ok(at)) => Some(dealt[at].words()),
                (_, Err(_)) => return Err(Error::unanswered("products of bits")),
            };
            let public = members(wanted & !set).map(|k| self.factors[k].masked.words());
            terms.push((masks, public.collect::<Vec<_>>()));
        }
        let mut sum = vec![0; shape.len()];
        let mut term = [0; BLOCK];
        for (block, sum) in sum.chunks_mut(BLOCK).enumerate() {
            let place = block * BLOCK..block * BLOCK + sum.len();
            let term = &mut term[..sum.len()];
            for (masks, public) in &terms {
                match masks {
                    Some(masks) => term.copy_from_slice(&masks[place.clone()]),
                    None => term.fill(u64::MAX),
                }
                for factor in public {
                    let factor = &factor[place.clone()];
                    term.iter_mut().zip(factor).for_each(|(term, &b)| *term &= b);
                }
                sum.iter_mut().zip(&*term).for_each(|(sum, &term)| *sum ^= term);
            }
        }
        Ok(Tensor::new(shape, sum)?)
    }
}

/// All subsets of a set, the empty one and the set itself among them.
fn subsets(set: u8) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(move |subset| subset & !set == 0)
}

/// The indices of a set's members.
fn members(set: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |k| set >> k & 1 == 1)
}

impl<E: Engine> Dealt<E> {
    /// This party's addends of products of bits. Nothing is sent but by the dealer: a bit for each product of masks.
    pub(crate) fn monomials(&mut self, jobs: &[Monomials<'_>]) -> Result<Vec<Vec<Tensor>>> {
        let sets: Vec<_> = jobs.iter().map(Monomials::sets).collect();
        let mut forms = Vec::new();
        for (job, sets) in jobs.iter().zip(&sets) {
            forms.extend(sets.iter().map(|_| Form::planes(job.factors[0].shape())));
        }
        let mut dealt = &self.deal(&forms, || {
            let all = jobs.iter().zip(&sets);
            all.flat_map(|(job, sets)| sets.iter().map(|&set| job.of_masks(set))).collect()
        })?[..];
        let first = self.is_first();
        let mut results = Vec::with_capacity(jobs.len());
        for (job, sets) in jobs.iter().zip(&sets) {
            let (mine, rest) = dealt.split_at(sets.len());
            dealt = rest;
            let products = job.wanted.iter().map(|&set| job.product(set, sets, mine, first));
            results.push(products.collect::<Result<Vec<_>>>()?);
        }
        Ok(results)
    }
}
