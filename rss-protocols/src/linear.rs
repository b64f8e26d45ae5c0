//! Linear operations; no communication.

use std::sync::Arc;

use mpc_core::{Error, Linear, Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Source, View};

use crate::{
    BitShare, Rss, Share,
    kernels::{Combine, Difference, Negate, Scale, Shift, Sum, Xor, XorWord},
    runtime::launch::{array, invalid, made, map, slice, whole, words},
    share::reusable::ReusableBit,
};

impl<E: Engine> Rss<E> {
    /// Applies a step to component 0, which parties 0 and 2 hold.
    fn first(
        &self,
        x: &Share<E::Tensor>,
        step: impl Fn(&E::Tensor) -> ring_arith::Result<E::Tensor>,
    ) -> Result<Share<E::Tensor>> {
        Ok(match self.party().0 {
            0 => Share::new(step(x.mine())?, x.next().clone())?,
            2 => Share::new(x.mine().clone(), step(x.next())?)?,
            _ => x.clone(),
        })
    }

    pub(crate) fn linear_map(
        &self,
        how: &Linear<'_, E::Tensor>,
        x: &Share<E::Tensor>,
    ) -> Result<Share<E::Tensor>> {
        let engine = &self.engine;
        let shape = x.shape();
        Ok(match how {
            Linear::Negate => x.each(|c| map(engine, &Negate, shape, [c], &[]))?,
            Linear::Scale(by) => x.each(|c| map(engine, &Scale, shape, [c], &[*by]))?,
            Linear::Shift(by) => self.first(x, |c| map(engine, &Shift, shape, [c], &[*by]))?,
            Linear::AddPublic(y) => {
                same_shape("add", shape, y.shape())?;
                self.first(x, |c| map(engine, &Sum, shape, [c, y], &[]))?
            }
            Linear::TimesPublic(op, y) => x.each(|c| engine.bilinear(op, &[(c, y)], &[]))?,
            Linear::PublicTimes(op, y) => x.each(|c| engine.bilinear(op, &[(y, c)], &[]))?,
            Linear::View(View::Pad { before, after, value }) if *value != 0 => {
                let (before, after) = (before.clone(), after.clone());
                let zeros = View::Pad { before: before.clone(), after: after.clone(), value: 0 };
                let padded = View::Pad { before, after, value: *value };
                let [mine, next] = [0, 2].map(|party| self.party().0 == party);
                Share::new(
                    engine.view(x.mine(), if mine { &padded } else { &zeros })?,
                    engine.view(x.next(), if next { &padded } else { &zeros })?,
                )?
            }
            Linear::View(view) => x.each(|c| engine.view(c, view))?,
            Linear::Sum(axes) => x.each(|c| engine.sum(c, axes))?,
            Linear::WindowSum(window) => x.each(|c| engine.window_sum(c, window))?,
        })
    }

    pub(crate) fn sum_or_difference(
        &self,
        x: &Share<E::Tensor>,
        y: &Share<E::Tensor>,
        subtract: bool,
    ) -> Result<Share<E::Tensor>> {
        let op = if subtract { "sub" } else { "add" };
        same_shape(op, x.shape(), y.shape())?;
        Ok(x.with(y, |a, b| {
            if subtract {
                map(&self.engine, &Difference, a.shape(), [a, b], &[])
            } else {
                map(&self.engine, &Sum, a.shape(), [a, b], &[])
            }
        })?)
    }

    /// `sum(c * x) + constant` for several terms, in one pass over up to four of them.
    pub(crate) fn combination(
        &self,
        terms: &[(u64, &Share<E::Tensor>)],
        constant: u64,
    ) -> Result<Share<E::Tensor>> {
        let Some(((_, first), rest)) = terms.split_first() else {
            return Err(invalid("combine", "a combination needs at least one term"));
        };
        for (_, x) in rest {
            same_shape("combine", first.shape(), x.shape())?;
        }
        if let [(1, x)] = terms {
            return match constant {
                0 => Ok((*x).clone()),
                by => self.linear_map(&Linear::Shift(by), x),
            };
        }
        let (engine, zeros, shape) = (&self.engine, &self.zeros, first.shape());
        let mine: Vec<_> = terms.iter().map(|(c, x)| (*c, x.mine())).collect();
        let next: Vec<_> = terms.iter().map(|(c, x)| (*c, x.next())).collect();
        // Component 0 has the constant.
        let [of_mine, of_next] =
            [0, 2].map(|party| if self.party().0 == party { constant } else { 0 });
        Ok(Share::new(
            weighted(engine, zeros, shape, &mine, of_mine)?,
            weighted(engine, zeros, shape, &next, of_next)?,
        )?)
    }

    pub(crate) fn join(&self, xs: &[&Share<E::Tensor>], axis: usize) -> Result<Share<E::Tensor>> {
        let mine: Vec<_> = xs.iter().map(|x| x.mine()).collect();
        let next: Vec<_> = xs.iter().map(|x| x.next()).collect();
        Ok(Share::new(self.engine.concat(&mine, axis)?, self.engine.concat(&next, axis)?)?)
    }

    /// A public tensor as component 0.
    pub(crate) fn public(&self, value: &E::Tensor) -> Result<Share<E::Tensor>> {
        let zero = self.zero_like(value.shape())?;
        Ok(match self.party().0 {
            0 => Share::new(value.clone(), zero)?,
            1 => Share::new(zero.clone(), zero)?,
            _ => {
                let held = value;
                mutant!("constant: held by party 0 alone", held = &zero);
                Share::new(zero.clone(), held.clone())?
            }
        })
    }

    pub(crate) fn zero_like(&self, shape: &Shape) -> Result<E::Tensor> {
        let source = Source::PerRow { tensor: &self.zeros, offset: 0 };
        Ok(made(&self.engine, shape, source)?)
    }

    // -- bits ------------------------------------------------------------------------------------

    pub(crate) fn public_bits(&self, value: &BitTensor<E::Tensor>) -> Result<BitShare<E::Tensor>> {
        let zero = self.zero_like(value.planes().shape())?;
        let zero = BitTensor::new(value.shape().clone(), zero)?;
        Ok(match self.party().0 {
            0 => BitShare::new(value.clone(), zero)?,
            1 => BitShare::new(zero.clone(), zero)?,
            _ => BitShare::new(zero, value.clone())?,
        })
    }

    pub(crate) fn exclusive_or(
        &self,
        x: &BitShare<E::Tensor>,
        y: &BitShare<E::Tensor>,
    ) -> Result<BitShare<E::Tensor>> {
        same_bits("xor", x, y)?;
        let mine = self.xor_planes(x.mine(), y.mine())?;
        Ok(BitShare::new(mine, self.xor_planes(x.next(), y.next())?)?)
    }

    fn xor_planes(
        &self,
        x: &BitTensor<E::Tensor>,
        y: &BitTensor<E::Tensor>,
    ) -> Result<BitTensor<E::Tensor>> {
        let planes = [x.planes(), y.planes()];
        let planes = map(&self.engine, &Xor, planes[0].shape(), planes, &[])?;
        Ok(BitTensor::new(x.shape().clone(), planes)?)
    }

    pub(crate) fn complement(&self, x: &BitShare<E::Tensor>) -> Result<BitShare<E::Tensor>> {
        let bits = match self.party().0 {
            0 => BitShare::new(self.flipped(x.mine())?, x.next().clone())?,
            2 => BitShare::new(x.mine().clone(), self.flipped(x.next())?)?,
            _ => x.clone(),
        };
        Ok(match x.reusable() {
            Some(bit) => {
                let negated = !bit.negated;
                mutant!("kept: the opposite forgotten", negated = bit.negated);
                bits.reusable_as(ReusableBit { negated, ..bit.clone() })
            }
            None => bits,
        })
    }

    fn flipped(&self, x: &BitTensor<E::Tensor>) -> Result<BitTensor<E::Tensor>> {
        let planes = x.planes();
        let flipped = map(&self.engine, &XorWord, planes.shape(), [planes], &[u64::MAX])?;
        Ok(BitTensor::new(x.shape().clone(), flipped)?)
    }

    pub(crate) fn picked(
        &self,
        x: &BitShare<E::Tensor>,
        picks: &[Option<u32>],
    ) -> Result<BitShare<E::Tensor>> {
        let width = x.width();
        if let Some(j) = picks.iter().flatten().find(|&&j| j as usize >= width) {
            return Err(invalid("pick planes", format!("plane {j} of {width}")));
        }
        check_width("pick planes", picks.len())?;
        if let Some(start) = first_of_run(picks) {
            let end = start + picks.len();
            return Ok(x.each(x.shape(), |planes| slice(&self.engine, planes, 0, start, end))?);
        }
        let zero = self.zero_like(&Shape::new([1, x.mine().words()])?)?;
        // A plane of zeros follows the others, for those that are not picked.
        let indices = picks.iter().map(|pick| pick.map_or(width, |j| j as usize)).collect();
        let view = View::Gather { axis: 0, indices };
        let holes = picks.iter().any(Option::is_none);
        Ok(x.each(x.shape(), |planes| {
            if holes {
                self.engine.view(&self.engine.concat(&[planes, &zero], 0)?, &view)
            } else {
                self.engine.view(planes, &view)
            }
        })?)
    }

    pub(crate) fn joined(&self, xs: &[&BitShare<E::Tensor>]) -> Result<BitShare<E::Tensor>> {
        let Some(first) = xs.first() else {
            return Err(invalid("join planes", "nothing to join"));
        };
        for x in xs {
            same_shape("join planes", first.shape(), x.shape())?;
        }
        check_width("join planes", xs.iter().map(|x| x.width()).sum())?;
        let mine: Vec<_> = xs.iter().map(|x| x.mine().planes()).collect();
        let next: Vec<_> = xs.iter().map(|x| x.next().planes()).collect();
        Ok(BitShare::new(
            BitTensor::new(first.shape().clone(), self.engine.concat(&mine, 0)?)?,
            BitTensor::new(first.shape().clone(), self.engine.concat(&next, 0)?)?,
        )?)
    }

    pub(crate) fn reshaped_bits(
        &self,
        x: &BitShare<E::Tensor>,
        shape: &Shape,
    ) -> Result<BitShare<E::Tensor>> {
        let mine = x.mine().reshape(shape.clone())?;
        let bits = BitShare::new(mine, x.next().reshape(shape.clone())?)?;
        Ok(match x.reusable() {
            Some(bit) => bits.reusable_as(bit.clone()),
            None => bits,
        })
    }

    pub(crate) fn rows_of_bits(
        &self,
        x: &BitShare<E::Tensor>,
        places: &Arc<[usize]>,
    ) -> Result<BitShare<E::Tensor>> {
        let mine = x.mine().rows(&self.engine, places)?;
        Ok(BitShare::new(mine, x.next().rows(&self.engine, places)?)?)
    }
}

/// `sum(c * x) + constant` of tensors of one shape, four in a pass.
pub(crate) fn weighted<E: Engine>(
    engine: &E,
    zeros: &E::Tensor,
    shape: &Shape,
    terms: &[(u64, &E::Tensor)],
    constant: u64,
) -> Result<E::Tensor> {
    let (now, mut later) = terms.split_at(terms.len().min(4));
    let first: Vec<_> = now.iter().map(|(c, x)| (*c, whole(*x))).collect();
    let mut sum = combine(engine, zeros, shape, first, constant)?;
    while !later.is_empty() {
        let (now, rest) = later.split_at(later.len().min(3));
        later = rest;
        let mut some: Vec<_> = now.iter().map(|(c, x)| (*c, whole(*x))).collect();
        some.push((1, whole(&sum)));
        sum = combine(engine, zeros, shape, some, 0)?;
    }
    Ok(sum)
}

/// At most four terms and a constant, in one pass.
fn combine<'x, E: Engine>(
    engine: &E,
    zeros: &'x E::Tensor,
    shape: &Shape,
    mut terms: Vec<(u64, Source<'x, E::Tensor>)>,
    constant: u64,
) -> Result<E::Tensor> {
    // Nothing times nothing.
    terms.resize_with(4, || (0, Source::PerRow { tensor: zeros, offset: 0 }));
    let mut params: Vec<_> = terms.iter().map(|(factor, _)| *factor).collect();
    params.push(constant);
    let sources = array(terms.into_iter().map(|(_, source)| source).collect());
    let [sum] = words(engine, &Combine, shape, sources, &params)?;
    Ok(sum)
}

/// The first plane, if planes are taken in one run.
fn first_of_run(picks: &[Option<u32>]) -> Option<usize> {
    let start = picks.first().copied().flatten()?;
    picks.iter().copied().eq((start..).take(picks.len()).map(Some)).then_some(start as usize)
}

pub(crate) fn check_width(op: &'static str, width: usize) -> Result<()> {
    if (1..=64).contains(&width) {
        return Ok(());
    }
    Err(invalid(op, format!("{width} bits; a tensor of bits has 1 to 64")))
}

pub(crate) fn same_shape(op: &'static str, lhs: &Shape, rhs: &Shape) -> Result<()> {
    if lhs == rhs {
        return Ok(());
    }
    Err(Error::Shapes { op, lhs: lhs.clone(), rhs: rhs.clone() })
}

pub(crate) fn same_bits<T: EngineTensor>(
    op: &'static str,
    x: &BitShare<T>,
    y: &BitShare<T>,
) -> Result<()> {
    same_shape(op, x.shape(), y.shape())?;
    if x.width() == y.width() {
        return Ok(());
    }
    Err(invalid(op, format!("operands of {} and {} bits", x.width(), y.width())))
}
