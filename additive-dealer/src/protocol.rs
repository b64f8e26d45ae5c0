//! [`Protocol`] for additive sharing with a dealer.

use std::iter;

use mpc_core::{
    BitMap, Error, FinishingOf, Info, Linear, ProducedBy, ProductOf, Protocol, Recipients, Result,
    ShareBits, ShareTensor, TermOf, provided,
};
use net::Party;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, View};

use crate::{
    Additive, BitShare, Share,
    masks::{Map, Term},
    share::Group,
    zip,
};

impl<E: Engine> Protocol for Additive<E> {
    type Engine = E;
    type Share = Share<E::Tensor>;
    type Bits = BitShare<E::Tensor>;

    fn info(&self) -> Info {
        let info = Info::new("additive", self.transport.me(), self.computing());
        Info { helper: true, ..info }
    }

    fn engine(&self) -> &E {
        &self.engine
    }

    fn step(&mut self, name: &str) {
        self.transport.step(name);
    }

    /// Nothing is sent: all addends but the owner's are random, from a key that it has in common with each party.
    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Self::Share>> {
        let values = values.unwrap_or_default();
        if owner >= self.dealer() || self.is(owner) && values.len() != shapes.len() {
            return Err(invalid(
                "input",
                format!("{owner} has {} values for {} shapes", values.len(), shapes.len()),
            ));
        }
        let mut shares = Vec::with_capacity(shapes.len());
        for (i, shape) in shapes.iter().enumerate() {
            let stream = self.next_stream();
            if !self.is(owner) {
                let random = || self.common(owner, stream, shape);
                shares.push(Share(if self.deals() { self.zeros(shape)? } else { random()? }));
                continue;
            }
            let mut left = values[i].clone();
            for peer in self.peers() {
                left = self.zip(&left, &self.common(peer, stream, shape)?, u64::wrapping_sub)?;
            }
            mutant!("input: the owner keeps all", left = values[i].clone());
            shares.push(Share(left));
        }
        Ok(shares)
    }

    /// The first party's addend.
    fn constant(&self, value: &E::Tensor) -> Result<Self::Share> {
        Ok(Share(if self.is(Party(0)) { value.clone() } else { self.zeros(value.shape())? }))
    }

    fn reveal(
        &mut self,
        to: Recipients,
        shares: &[&Self::Share],
    ) -> Result<Option<Vec<E::Tensor>>> {
        let masked = shares.iter().map(|share| self.masked(Group::Words, &share.0));
        let masked = masked.collect::<Result<Vec<_>>>()?;
        let to = match to {
            Recipients::All => None,
            Recipients::One(party) => Some(party),
        };
        self.exchange(to, Group::Words, &masked)
    }

    fn open_bits(&mut self, shared: &[&Self::Bits]) -> Result<Vec<BitTensor<E::Tensor>>> {
        let masked = shared.iter().map(|bits| self.masked(Group::Bits, bits.0.planes()));
        let masked = masked.collect::<Result<Vec<_>>>()?;
        let planes = self.exchange(None, Group::Bits, &masked)?.unwrap_or_default();
        planes.into_iter().zip(shared).map(|(planes, &like)| Ok(bits(like, planes)?.0)).collect()
    }

    fn linear(&self, map: &Linear<'_, E::Tensor>, x: &Self::Share) -> Result<Self::Share> {
        let (engine, x) = (&self.engine, &x.0);
        let first = self.is(Party(0));
        Ok(Share(match *map {
            Linear::Negate => self.map(x, u64::wrapping_neg)?,
            Linear::Scale(c) => self.map(x, |x| x.wrapping_mul(c))?,
            Linear::Shift(c) => self.map(x, |x| if first { x.wrapping_add(c) } else { x })?,
            Linear::AddPublic(c) => {
                self.zip(x, c, |x, c| if first { x.wrapping_add(c) } else { x })?
            }
            Linear::TimesPublic(op, c) => engine.bilinear(op, &[(x, c)], &[])?,
            Linear::PublicTimes(op, c) => engine.bilinear(op, &[(c, x)], &[])?,
            Linear::View(View::Pad { before, after, value }) => {
                let (before, after) = (before.clone(), after.clone());
                let value = if first { *value } else { 0 };
                engine.view(x, &View::Pad { before, after, value })?
            }
            Linear::View(view) => engine.view(x, view)?,
            Linear::Sum(axes) => engine.sum(x, axes)?,
            Linear::WindowSum(window) => engine.window_sum(x, window)?,
        }))
    }

    fn add(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.zip(&x.0, &y.0, u64::wrapping_add).map(Share)
    }

    fn concat(&self, shares: &[&Self::Share], axis: usize) -> Result<Self::Share> {
        let addends: Vec<_> = shares.iter().map(|share| &share.0).collect();
        Ok(Share(self.engine.concat(&addends, axis)?))
    }

    fn constant_bits(&self, value: &BitTensor<E::Tensor>) -> Result<Self::Bits> {
        let value = BitShare(value.clone());
        if self.is(Party(0)) {
            Ok(value)
        } else {
            bits(&value, self.zeros(value.0.planes().shape())?)
        }
    }

    fn linear_bits(&self, map: &BitMap<'_, Self::Bits>) -> Result<Self::Bits> {
        match *map {
            BitMap::Xor(x, y) => {
                same_shape("xor", x, y)?;
                bits(x, self.zip(x.0.planes(), y.0.planes(), |x, y| x ^ y)?)
            }
            BitMap::Not(x) => {
                let flip = if self.is(Party(0)) { u64::MAX } else { 0 };
                bits(x, self.map(x.0.planes(), |word| word ^ flip)?)
            }
            BitMap::Pick(x, planes) => {
                // A plane of zeros follows the others, for those that are not picked.
                let zero = self.zeros(&Shape::new([1, x.0.words()])?)?;
                let all = self.engine.concat(&[x.0.planes(), &zero], 0)?;
                let indices = planes.iter().map(|j| j.map_or(x.width(), |j| j as usize)).collect();
                if planes.iter().flatten().any(|&j| j as usize >= x.width()) {
                    return Err(invalid("pick planes", format!("{planes:?} of {}", x.width())));
                }
                bits(x, self.engine.view(&all, &View::Gather { axis: 0, indices })?)
            }
            BitMap::Join(xs) => {
                let &first = xs.first().ok_or_else(|| invalid("join planes", "nothing to join"))?;
                xs.iter().try_for_each(|x| same_shape("join planes", first, *x))?;
                let planes: Vec<_> = xs.iter().map(|x| x.0.planes()).collect();
                bits(first, self.engine.concat(&planes, 0)?)
            }
            BitMap::Reshape(x, shape) => Ok(BitShare(x.0.reshape(shape.clone())?)),
            BitMap::Rows(x, places) => Ok(BitShare(x.0.rows(&self.engine, places)?)),
        }
    }

    /// One round.
    fn products(&mut self, jobs: &[ProductOf<'_, Self>]) -> Result<Vec<ProducedBy<Self>>> {
        provided::products(self, jobs)
    }

    /// One round, in which the masked factors are opened.
    fn parts(&mut self, sums: &[&[TermOf<'_, Self>]]) -> Result<Vec<E::Tensor>> {
        sums.iter().try_for_each(|terms| provided::shape_of_sum(terms).map(drop))?;
        let engine = self.engine.clone();
        let terms: Vec<_> = sums.iter().copied().flatten().collect();
        let maps = terms.iter().map(|term| {
            |x: &E::Tensor, y: &E::Tensor| Ok(engine.bilinear(&term.op, &[(x, y)], &[])?)
        });
        let maps: Vec<_> = maps.collect();
        let products = terms.iter().zip(&maps).map(|(term, map)| {
            let map: Map<'_, E::Tensor> = map;
            (&term.lhs.0, &term.rhs.0, map)
        });
        let mut products = self.multiply(Group::Words, &products.collect::<Vec<_>>())?.into_iter();
        let mut parts = Vec::with_capacity(sums.len());
        for terms in sums {
            let mut terms = products.by_ref().take(terms.len());
            let first = terms.next().ok_or_else(|| Error::unanswered("products"))?;
            parts
                .push(terms.try_fold(first, |sum, term| self.zip(&sum, &term, u64::wrapping_add))?);
        }
        Ok(parts)
    }

    /// A part is this party's addend of the sum.
    fn settle(
        &mut self,
        jobs: &[(&E::Tensor, FinishingOf<'_, Self>)],
    ) -> Result<Vec<ProducedBy<Self>>> {
        let sums = jobs.iter().map(|(part, _)| Share((*part).clone())).collect();
        let jobs: Vec<_> = jobs.iter().map(|(_, job)| job.clone()).collect();
        provided::finish(self, &jobs, sums)
    }

    fn components(&self, share: &Self::Share) -> Result<Vec<E::Tensor>> {
        Ok(vec![share.0.clone()])
    }

    fn of_components(&self, words: Vec<E::Tensor>) -> Result<Self::Share> {
        provided::exactly_components(words).map(|[addend]| Share(addend))
    }

    /// Every party's addend, of which it knows all bits, is added to the next by a circuit: `ceil(log2 parties)` additions
    /// of `1 + ceil(log2 width)` rounds each.
    fn to_bits(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        let mut numbers = Vec::with_capacity(jobs.len());
        for (x, width) in jobs {
            let planes = self.engine.to_planes(&x.0, 0, *width)?;
            let zeros = self.zeros(planes.shape())?;
            let of = |party| if self.is(Party(party)) { &planes } else { &zeros };
            let addend =
                |party| Ok(BitShare(BitTensor::new(x.shape().clone(), of(party).clone())?));
            numbers.push((0..self.computing()).map(addend).collect::<Result<Vec<_>>>()?);
        }
        while numbers.first().is_some_and(|addends| addends.len() > 1) {
            let pairs = numbers.iter().flat_map(|addends| addends.chunks_exact(2));
            let pairs: Vec<_> = pairs.map(|pair| (&pair[0], &pair[1])).collect();
            let mut sums = self.bit_additions(&pairs)?.into_iter();
            for addends in &mut numbers {
                let pairs = addends.len() / 2;
                let left = if addends.len() % 2 == 1 { addends.pop() } else { None };
                *addends = sums.by_ref().take(pairs).chain(left).collect();
            }
        }
        Ok(numbers.into_iter().flatten().collect())
    }

    /// One round.
    fn and(&mut self, jobs: &[(&Self::Bits, &Self::Bits)]) -> Result<Vec<Self::Bits>> {
        let engine = self.engine.clone();
        let and = |x: &E::Tensor, y: &E::Tensor| zip(&engine, x, y, |x, y| x & y);
        let mut products: Vec<Term<'_, E::Tensor>> = Vec::with_capacity(jobs.len());
        for (x, y) in jobs {
            same_shape("and", *x, *y)?;
            products.push((x.0.planes(), y.0.planes(), &and));
        }
        let planes = self.multiply(Group::Bits, &products)?;
        planes.into_iter().zip(jobs).map(|(planes, (x, _))| bits(*x, planes)).collect()
    }

    /// A random bit `r`, which the dealer shares both ways; with `v = b ^ r` opened, `b = v + r - 2 v r`. One round.
    fn bits_to_words(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Vec<Self::Share>>> {
        let (mut masks, mut masked) = (Vec::new(), Vec::new());
        for bits in jobs {
            let mask = self.random(Group::Bits, bits.0.planes().shape())?;
            mutant!("to words: bits without masks", mask = self.zeros(mask.shape())?);
            masked.push(self.zip(bits.0.planes(), &mask, |x, y| x ^ y)?);
            masks.push(mask);
        }
        let opened = self.exchange(None, Group::Bits, &masked)?.unwrap_or_default();
        let mut results = Vec::with_capacity(jobs.len());
        for ((bits, mask), opened) in jobs.iter().zip(&masks).zip(&opened) {
            let words = |planes| self.engine.from_planes(planes, 0, bits.shape());
            let (mask, opened) = (words(mask)?, words(opened)?);
            let mut planes = Vec::with_capacity(bits.width());
            for j in 0..bits.width() {
                let r = self.map(&mask, |word| word >> j & 1)?;
                let r = self.dealt(Group::Words, &r)?;
                let first = u64::from(self.is(Party(0)));
                planes.push(Share(self.zip(&r, &opened, |r, v| match v >> j & 1 {
                    0 => r,
                    _ => first.wrapping_sub(r),
                })?));
            }
            results.push(planes);
        }
        Ok(results)
    }
}

/// Two numbers by their bits.
type Addends<'a, T> = (&'a BitShare<T>, &'a BitShare<T>);

impl<E: Engine> Additive<E> {
    /// Sums modulo `2^width` of pairs of numbers given by their bits: the adder of Kogge and Stone (IEEE Trans. Computers,
    /// 1973). `1 + ceil(log2 width)` rounds.
    fn bit_additions(
        &mut self,
        pairs: &[Addends<'_, E::Tensor>],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut carries = self.and(pairs)?;
        let sums = pairs.iter().map(|(x, y)| self.xor(x, y)).collect::<Result<Vec<_>>>()?;
        let mut propagate = sums.clone();
        let width = sums.iter().map(ShareBits::width).max().unwrap_or(0);
        mutant!("adder: carries spread once", width = width.min(2));
        let mut span = 1;
        while span < width {
            let (mut operands, mut places) = (Vec::new(), Vec::new());
            for (i, (carry, p)) in iter::zip(&carries, &propagate).enumerate() {
                if p.width() > span {
                    operands.push((p.clone(), self.shifted(carry, span)?));
                    operands.push((p.clone(), self.shifted(p, span)?));
                    places.push(i);
                }
            }
            let mut joined =
                self.and(&operands.iter().map(|(x, y)| (x, y)).collect::<Vec<_>>())?.into_iter();
            for i in places {
                if let (Some(carry), Some(p)) = (joined.next(), joined.next()) {
                    carries[i] = self.xor(&carries[i], &carry)?;
                    propagate[i] = p;
                }
            }
            span *= 2;
        }
        let with_carry = |(sum, carry)| self.xor(sum, &self.shifted(carry, 1)?);
        iter::zip(&sums, &carries).map(with_carry).collect()
    }

    /// `x << by`, of the same width.
    fn shifted(&self, x: &BitShare<E::Tensor>, by: usize) -> Result<BitShare<E::Tensor>> {
        let width = x.width();
        let planes = (0..width).map(|j| j.checked_sub(by).map(|j| j as u32));
        self.pick_planes(x, &planes.collect::<Vec<_>>())
    }
}

/// Planes as bits of the same shape as others.
fn bits<T: EngineTensor>(like: &BitShare<T>, planes: T) -> Result<BitShare<T>> {
    Ok(BitShare(BitTensor::new(like.shape().clone(), planes)?))
}

fn same_shape(op: &'static str, x: &impl ShareTensor, y: &impl ShareTensor) -> Result<()> {
    if x.shape() == y.shape() {
        return Ok(());
    }
    Err(Error::Shapes { op, lhs: x.shape().clone(), rhs: y.shape().clone() })
}

fn invalid(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Invalid { op, reason: reason.into() }
}
