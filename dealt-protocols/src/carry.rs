//! Carries of the sum of a secret mask and a public word, four positions at a time.
//!
//! A run of positions *generates* a carry, or *propagates* the one that comes into it. Position `j` of `a + b` propagates
//! if `a_j ^ b_j` is 1; it generates `b_j` if not. Four runs, the highest first, are one run with
//! `g = g3 ^ p3 g2 ^ p3 p2 g1 ^ p3 p2 p1 g0` and `p = p3 p2 p1 p0`. Since `b` is public and the dealer knows `a`, the first
//! level takes no message before its results are opened under fresh masks.

use mpc_core::{Error, Result};
use ring_arith::{Engine, EngineTensor, Tensor};

use crate::{
    Dealt,
    monomials::Monomials,
    open::{Addend, Masked},
    share::{Group, Planes, map, zip},
};

/// Runs of positions of one sum, the lowest first.
pub(crate) enum Runs {
    /// Single positions: the planes of `a ^ b`, and of `b`.
    Positions { propagate: Planes, public: Tensor },
    /// Longer runs.
    Long { generate: Planes, propagate: Planes },
}

/// Four runs each, to be made one: the highest first.
struct Fours {
    /// Propagating bits; for long runs the generating ones after them.
    factors: Vec<Planes>,
    /// The planes of `b`, for single positions.
    public: Vec<Tensor>,
}

/// Products of the propagating bits of positions; the last is the whole run's.
const OF_POSITIONS: &[u8] = &[0b1, 0b11, 0b111, 0b1111];

/// The terms of the generating bit, and the propagating one last.
const OF_RUNS: &[u8] = &[0b1_0000, 0b10_0001, 0b100_0011, 0b1000_0111, 0b1111];

impl Runs {
    fn propagate(&self) -> &Planes {
        match self {
            Self::Positions { propagate, .. } | Self::Long { propagate, .. } => propagate,
        }
    }

    /// Four runs each, given the planes of the highest, second, third and lowest: `pick` takes them from planes to
    /// which `below` runs are added at the low end that only propagate.
    fn fours(
        &self,
        below: usize,
        pick: impl Fn(&Planes, usize) -> Result<Planes>,
    ) -> Result<Fours> {
        let words = self.propagate().shape().dims()[1];
        let extended = |planes: &Planes, word| match below {
            0 => Ok(planes.clone()),
            _ => Planes::concat(&[&Planes::public(below, words, word)?, planes]),
        };
        let four = |planes: &Planes| (0..4).map(|k| pick(planes, k)).collect::<Result<Vec<_>>>();
        let mut factors = four(&extended(self.propagate(), u64::MAX)?)?;
        let mut public = Vec::new();
        match self {
            Self::Positions { public: b, .. } => {
                let mask = Tensor::zeros(b.shape().clone());
                let b = four(&extended(&Planes { mask, masked: b.clone() }, 0)?)?;
                public.extend(b.into_iter().map(|planes| planes.masked));
            }
            Self::Long { generate, .. } => factors.extend(four(&extended(generate, 0)?)?),
        }
        Ok(Fours { factors, public })
    }
}

impl Fours {
    /// The products to make: of all runs, or only those of the generating bit.
    fn wanted(&self, propagates: bool) -> &'static [u8] {
        match self.public[..] {
            [] if propagates => OF_RUNS,
            [] => &OF_RUNS[..4],
            _ => OF_POSITIONS,
        }
    }

    /// This party's addend of the generating bit.
    fn generate(&self, products: &[Tensor], first: bool) -> Result<Tensor> {
        let xor = |x: Tensor, y: &Tensor| Group::Planes.add(&x, y);
        if self.public.is_empty() {
            return products[1..4].iter().try_fold(products[0].clone(), xor);
        }
        // b3 (1 ^ p3) ^ b2 (p3 ^ p3 p2) ^ ..
        let one = map(&products[0], |_| if first { u64::MAX } else { 0 })?;
        let mut above = &one;
        let mut sum = map(&one, |_| 0)?;
        for (b, product) in self.public.iter().zip(products) {
            let ends_here = Group::Planes.add(above, product)?;
            sum = Group::Planes.add(&sum, &zip(&ends_here, b, |x, b| x & b)?)?;
            above = product;
        }
        Ok(sum)
    }
}

impl<E: Engine> Dealt<E> {
    /// `top ^ carry` for each sum: `top` is one plane, and the carry is the one out of all positions. A round for each
    /// factor of four in the number of positions.
    pub(crate) fn carries_out(&mut self, sums: Vec<(Runs, Planes)>) -> Result<Vec<Planes>> {
        let (mut runs, tops): (Vec<_>, Vec<_>) = sums.into_iter().unzip();
        let mut results: Vec<Option<Planes>> = tops.iter().map(|_| None).collect();
        loop {
            let left: Vec<_> = (0..runs.len()).filter(|&i| results[i].is_none()).collect();
            if left.is_empty() {
                let results = results.into_iter().map(|bit| bit.ok_or_else(unanswered));
                return results.collect();
            }
            let mut fours = Vec::with_capacity(left.len());
            for &i in &left {
                let count = runs[i].propagate().count();
                let below = count.next_multiple_of(4) - count;
                let highest: Vec<_> = (3..count + below).step_by(4).collect();
                fours.push(runs[i].fours(below, |planes, k| {
                    planes.gather(&highest.iter().map(|at| at - k).collect::<Vec<_>>())
                })?);
            }
            let is_last = |fours: &Fours| fours.factors[0].count() == 1;
            let made = self.join_fours(&fours, |fours| !is_last(fours))?;
            let mut addends = Vec::with_capacity(left.len());
            for ((&i, fours), (generate, propagate)) in left.iter().zip(&fours).zip(made) {
                addends.push(Addend::planes(if is_last(fours) {
                    Group::Planes.add(&generate, &self.addend(&tops[i])?)?
                } else {
                    // Nothing comes into the lowest run.
                    let groups = fours.factors[0].count();
                    Tensor::concat(&[&generate, &propagate.slice(0, 1, groups)?], 0)?
                }));
            }
            let opened = self.remask(&addends)?;
            for ((&i, fours), bits) in left.iter().zip(&fours).zip(opened) {
                let bits = Planes::from(bits);
                if is_last(fours) {
                    results[i] = Some(bits);
                    continue;
                }
                let groups = fours.factors[0].count();
                let none = Planes::public(1, bits.shape().dims()[1], 0)?;
                let propagate = bits.slice(groups, bits.count())?;
                runs[i] = Runs::Long {
                    generate: bits.slice(0, groups)?,
                    propagate: Planes::concat(&[&none, &propagate])?,
                };
            }
        }
    }

    /// The carry out of positions `0..=j`, for every position `j`. A round for each factor of four in the number of
    /// positions.
    pub(crate) fn all_carries(&mut self, mut sums: Vec<Runs>) -> Result<Vec<Planes>> {
        let counts: Vec<_> = sums.iter().map(|runs| runs.propagate().count()).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        let mut span = 1;
        while span == 1 || span < most {
            // Runs that begin at position 0 are complete.
            let from = if span == 1 { 0 } else { span };
            let left: Vec<_> = (0..sums.len()).filter(|&i| from < counts[i]).collect();
            let mut fours = Vec::with_capacity(left.len());
            for &i in &left {
                fours.push(sums[i].fours(3 * span, |planes, k| {
                    let below = (3 - k) * span;
                    planes.slice(below + from, below + counts[i])
                })?);
            }
            let goes_on = |fours: &Fours| fours.factors[0].count() + from > 4 * span;
            let made = self.join_fours(&fours, goes_on)?;
            let mut addends = Vec::with_capacity(left.len());
            for (&i, (generate, propagate)) in left.iter().zip(made) {
                let incomplete = (4 * span).max(from)..counts[i];
                addends.push(Addend::planes(if incomplete.is_empty() {
                    generate
                } else {
                    let propagate =
                        propagate.slice(0, incomplete.start - from, incomplete.end - from)?;
                    Tensor::concat(&[&generate, &propagate], 0)?
                }));
            }
            let opened = self.remask(&addends)?;
            for (&i, bits) in left.iter().zip(opened) {
                sums[i] = runs_by_position(&sums[i], from, 4 * span, Planes::from(bits))?;
            }
            span *= 4;
        }
        let carries = sums.into_iter().map(|runs| match runs {
            Runs::Long { generate, .. } => Ok(generate),
            Runs::Positions { .. } => Err(unanswered()),
        });
        carries.collect()
    }

    /// Four runs each made one: addends of the generating and the propagating bit.
    fn join_fours(
        &mut self,
        fours: &[Fours],
        propagates: impl Fn(&Fours) -> bool,
    ) -> Result<Vec<(Tensor, Tensor)>> {
        let jobs = fours.iter().map(|fours| Monomials {
            factors: &fours.factors,
            wanted: fours.wanted(propagates(fours)),
        });
        let products = self.monomials(&jobs.collect::<Vec<_>>())?;
        let first = self.is_first();
        let mut made = Vec::with_capacity(fours.len());
        for (fours, products) in fours.iter().zip(products) {
            let generate = fours.generate(&products, first)?;
            made.push((generate, products.last().cloned().ok_or_else(unanswered)?));
        }
        Ok(made)
    }

    /// This party's addend of masked bits.
    pub(crate) fn addend(&self, bits: &Planes) -> Result<Tensor> {
        if self.is_first() {
            Group::Planes.add(&bits.mask, &bits.masked)
        } else {
            Ok(bits.mask.clone())
        }
    }
}

/// Runs that end at each position, after those from `from` on were opened: generating bits, then the propagating bits
/// from `complete` on, before which nothing is propagated.
fn runs_by_position(before: &Runs, from: usize, complete: usize, bits: Planes) -> Result<Runs> {
    let count = before.propagate().count();
    let opened = bits.slice(0, count - from)?;
    let generate = match before {
        Runs::Long { generate, .. } => Planes::concat(&[&generate.slice(0, from)?, &opened])?,
        Runs::Positions { .. } => opened,
    };
    let words = bits.shape().dims()[1];
    let none = Planes::public(complete.min(count), words, 0)?;
    let propagate = if complete < count {
        Planes::concat(&[&none, &bits.slice(count - from, bits.count())?])?
    } else {
        none
    };
    Ok(Runs::Long { generate, propagate })
}

impl From<Masked> for Planes {
    fn from(masked: Masked) -> Self {
        Self { mask: masked.mask, masked: masked.masked }
    }
}

fn unanswered() -> Error {
    Error::unanswered("carries")
}
