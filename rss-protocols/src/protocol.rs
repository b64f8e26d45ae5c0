//! [`Protocol`] for replicated sharing.

use std::sync::Arc;

use mpc_core::{
    Compare, Compared, Linear, Product, Protocol, Result, ShareTensor, Then, TruncationMode,
};
use net::Party;
use ring_arith::{BitTensor, Engine, Shape};

use crate::{
    BitShare, Rss, Share,
    compare::{CompareUnit, Purpose},
    cut::{Piece, Rooms, assemble, take},
    launch::invalid,
    local::{check_width, same_bits, same_shape},
    plan::{Goal, Plan},
    select::Follow,
    unit,
};

impl<E: Engine> Protocol for Rss<E> {
    type Engine = E;
    type Share = Share<E::Tensor>;
    type Bits = BitShare<E::Tensor>;

    fn name(&self) -> &'static str {
        "rss"
    }

    fn engine(&self) -> &E {
        &self.engine
    }

    fn me(&self) -> Party {
        self.party()
    }

    fn parties(&self) -> usize {
        3
    }

    fn step(&mut self, name: &str) {
        self.links.step(name);
    }

    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[E::Tensor]>,
    ) -> Result<Vec<Self::Share>> {
        self.check_inputs(owner, shapes, values)?;
        self.talk(|rss| rss.share_inputs(owner, shapes, values))
    }

    fn constant(&self, value: &E::Tensor) -> Result<Self::Share> {
        self.public(value)
    }

    fn open(&mut self, shares: &[&Self::Share]) -> Result<Vec<E::Tensor>> {
        self.talk(|rss| rss.reveal(shares))
    }

    fn open_to(&mut self, to: Party, shares: &[&Self::Share]) -> Result<Option<Vec<E::Tensor>>> {
        if to.0 >= 3 {
            return Err(invalid("open", format!("{to} does not exist; there are 3")));
        }
        self.talk(|rss| rss.reveal_to(to, shares))
    }

    fn open_bits(&mut self, bits: &[&Self::Bits]) -> Result<Vec<BitTensor<E::Tensor>>> {
        self.talk(|rss| rss.reveal_bits(bits))
    }

    fn linear(&self, map: &Linear<'_, E::Tensor>, x: &Self::Share) -> Result<Self::Share> {
        self.linear_map(map, x)
    }

    fn add(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.sum_or_difference(x, y, false)
    }

    fn sub(&self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share> {
        self.sum_or_difference(x, y, true)
    }

    fn combine(&self, terms: &[(u64, &Self::Share)], constant: u64) -> Result<Self::Share> {
        self.combination(terms, constant)
    }

    fn concat(&self, shares: &[&Self::Share], axis: usize) -> Result<Self::Share> {
        self.join(shares, axis)
    }

    fn constant_bits(&self, value: &BitTensor<E::Tensor>) -> Result<Self::Bits> {
        self.public_bits(value)
    }

    fn xor(&self, x: &Self::Bits, y: &Self::Bits) -> Result<Self::Bits> {
        self.exclusive_or(x, y)
    }

    fn not(&self, x: &Self::Bits) -> Result<Self::Bits> {
        self.complement(x)
    }

    fn and_public(&self, x: &Self::Bits, mask: u64) -> Result<Self::Bits> {
        self.masked(x, mask)
    }

    fn pick_planes(&self, x: &Self::Bits, planes: &[Option<u32>]) -> Result<Self::Bits> {
        self.picked(x, planes)
    }

    fn join_planes(&self, xs: &[&Self::Bits]) -> Result<Self::Bits> {
        self.joined(xs)
    }

    fn parity(&self, x: &Self::Bits) -> Result<Self::Bits> {
        self.folded(x)
    }

    fn reshape_bits(&self, x: &Self::Bits, shape: &Shape) -> Result<Self::Bits> {
        self.reshaped_bits(x, shape)
    }

    fn bits_width(&self, x: &Self::Bits) -> u32 {
        x.width() as u32
    }

    fn products(&mut self, jobs: &[Product<'_, Self::Share>]) -> Result<Vec<Self::Share>> {
        self.check_products(jobs)?;
        self.talk(|rss| rss.multiply(jobs))
    }

    fn truncate(
        &mut self,
        jobs: &[(&Self::Share, u32)],
        mode: TruncationMode,
    ) -> Result<Vec<Self::Share>> {
        Self::check_truncations(jobs, mode)?;
        self.talk(|rss| rss.divide(jobs, mode))
    }

    fn compare(
        &mut self,
        jobs: &[Compare<'_, Self::Share>],
    ) -> Result<Vec<Compared<Self::Share, Self::Bits>>> {
        for job in jobs {
            if !(1..=64).contains(&job.width) {
                return Err(invalid("compare", format!("width {} is not 1 to 64", job.width)));
            }
            if let Then::Negative(xs) | Then::NonNegative(xs) = job.then {
                for x in xs {
                    same_shape("compare", job.value.shape(), x.shape())?;
                }
            }
        }
        self.talk(|rss| rss.signs(jobs))
    }

    fn is_zero(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|&(_, width)| check_width("is zero", width as usize))?;
        self.talk(|rss| rss.zero_tests(jobs))
    }

    fn to_bits(&mut self, jobs: &[(&Self::Share, u32)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|&(_, width)| check_width("to bits", width as usize))?;
        self.talk(|rss| rss.decompose(jobs))
    }

    fn and(&mut self, jobs: &[(&Self::Bits, &Self::Bits)]) -> Result<Vec<Self::Bits>> {
        jobs.iter().try_for_each(|(x, y)| same_bits("and", x, y))?;
        self.talk(|rss| rss.conjunctions(jobs))
    }

    fn select(&mut self, jobs: &[(&Self::Bits, &[&Self::Share])]) -> Result<Vec<Vec<Self::Share>>> {
        for (bit, xs) in jobs {
            if bit.width() != 1 {
                return Err(invalid("select", format!("{} bits choose; one is due", bit.width())));
            }
            for x in *xs {
                same_shape("select", bit.shape(), x.shape())?;
            }
        }
        self.talk(|rss| rss.selections(jobs))
    }

    fn bits_to_words(&mut self, jobs: &[&Self::Bits]) -> Result<Vec<Vec<Self::Share>>> {
        self.talk(|rss| rss.planes_as_words(jobs))
    }

    fn bit_sums(&mut self, jobs: &[(&Self::Bits, &[&[u64]])]) -> Result<Vec<Vec<Self::Share>>> {
        self.talk(|rss| rss.weighted_sums(jobs))
    }

    fn max_first(
        &mut self,
        x: &Self::Share,
        width: u32,
        index: bool,
    ) -> Result<(Self::Share, Option<Self::Share>)> {
        if x.shape().dims().first().is_none_or(|&k| k == 0) {
            let reason = format!("shape {:?} has no elements along its first axis", x.shape());
            return Err(invalid("max", reason));
        }
        self.talk(|rss| rss.largest(x, width.clamp(2, 64), index))
    }
}

/// How a comparison's pieces lie, and room for the words that follow; `None` for a bit.
type Layout<T> = (Vec<Piece>, Shape, Option<Vec<Rooms<T>>>);

impl<E: Engine> Rss<E> {
    fn signs(
        &mut self,
        jobs: &[Compare<'_, Share<E::Tensor>>],
    ) -> Result<Vec<Compared<Share<E::Tensor>, BitShare<E::Tensor>>>> {
        let (mut units, mut layouts) = (Vec::new(), Vec::new());
        for job in jobs {
            // The sign of one bit alone would be no comparison.
            let plan = self.plan(Goal::Carry, job.width.max(2) as usize - 1);
            let (flip, xs) = match job.then {
                Then::Negative(xs) => (false, xs),
                Then::NonNegative(xs) => (true, xs),
                Then::Bit | Then::Arithmetic => (false, &[][..]),
            };
            let words = xs.iter().map(|x| self.flat_pair(x)).collect::<Result<Vec<_>>>()?;
            let count = match job.then {
                Then::Bit => None,
                Then::Arithmetic => Some(1),
                _ => Some(words.len()),
            };
            let pieces = self.pieces(job.value.shape().len());
            let purpose = |piece: &Piece| -> Result<_> {
                Ok(match job.then {
                    Then::Bit => Purpose::Bit,
                    Then::Arithmetic => Purpose::Follow { flip, follow: Follow::Arithmetic },
                    _ => {
                        let seat = piece.seat(self.links.me());
                        let one = |(mine, next): &(E::Tensor, E::Tensor)| -> Result<_> {
                            let engine = &self.engine;
                            Ok(seat.order(take(engine, mine, piece)?, take(engine, next, piece)?))
                        };
                        let xs = words.iter().map(one).collect::<Result<Vec<_>>>()?;
                        Purpose::Follow { flip, follow: Follow::Words(xs) }
                    }
                })
            };
            let purposes = pieces.iter().map(purpose).collect::<Result<Vec<_>>>()?;
            let rooms = count.map(|n| self.rooms(n, job.value.shape().len(), &pieces));
            let these = rooms.as_deref().unwrap_or_default();
            self.add_comparisons(&mut units, job.value, &pieces, plan, (purposes, these))?;
            layouts.push((pieces, job.value.shape().clone(), rooms));
        }
        self.run_comparisons(units, layouts)
    }

    fn zero_tests(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let (mut units, mut layouts) = (Vec::new(), Vec::new());
        for &(x, width) in jobs {
            let plan = self.plan(Goal::Equal, width as usize);
            let pieces = self.pieces(x.shape().len());
            let purposes = pieces.iter().map(|_| Purpose::Bit).collect();
            self.add_comparisons(&mut units, x, &pieces, plan, (purposes, &[]))?;
            layouts.push((pieces, x.shape().clone(), None));
        }
        let bit = |compared| match compared {
            Compared::Bit(bit) => bit,
            Compared::Words(_) => unreachable!("bits were asked for"),
        };
        Ok(self.run_comparisons(units, layouts)?.into_iter().map(bit).collect())
    }

    fn add_comparisons(
        &mut self,
        units: &mut Vec<CompareUnit<E::Tensor>>,
        x: &Share<E::Tensor>,
        pieces: &[Piece],
        plan: Arc<Plan>,
        (purposes, rooms): (Vec<Purpose<E::Tensor>>, &[Rooms<E::Tensor>]),
    ) -> Result<()> {
        let (mine, next) = self.flat_pair(x)?;
        for (piece, purpose) in pieces.iter().zip(purposes) {
            let (seat, streams) = self.seat(piece);
            let cut = |side| take(&self.engine, side, piece);
            let value = seat.order(cut(&mine)?, cut(&next)?);
            let spots = rooms.iter().map(|room| room.spots_of(piece, &seat)).collect();
            units.push(CompareUnit::new(seat, streams, value, plan.clone(), purpose, spots));
        }
        Ok(())
    }

    fn run_comparisons(
        &mut self,
        mut units: Vec<CompareUnit<E::Tensor>>,
        layouts: Vec<Layout<E::Tensor>>,
    ) -> Result<Vec<Compared<Share<E::Tensor>, BitShare<E::Tensor>>>> {
        unit::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::with_capacity(layouts.len());
        for (pieces, shape, rooms) in layouts {
            let done = pieces.into_iter().map(|piece| {
                let (seat, results) = units.next().expect("a unit for each piece").done();
                (piece, seat, results)
            });
            let done = done.collect::<Vec<_>>();
            results.push(match rooms {
                Some(rooms) => Compared::Words(self.collect(done, &rooms, &shape)?),
                None => Compared::Bit(self.collect_bit(done, &shape)?),
            });
        }
        Ok(results)
    }

    /// Puts the pieces of a plane together.
    fn collect_bit(
        &self,
        pieces: Vec<(Piece, crate::seat::Seat, Vec<(E::Tensor, E::Tensor)>)>,
        shape: &Shape,
    ) -> Result<BitShare<E::Tensor>> {
        let (mut mine, mut next) = (Vec::new(), Vec::new());
        for (piece, seat, results) in pieces {
            let (first, second) = results.into_iter().next().expect("one bit");
            let pair = seat.order(first, second);
            mine.push((piece.range.start, pair.0));
            next.push((piece.range.start, pair.1));
        }
        let plane = Shape::new([1, shape.len().div_ceil(64)])?;
        let whole = |pieces| -> Result<_> {
            Ok(BitTensor::new(shape.clone(), assemble(&self.engine, None, pieces, 1, &plane)?)?)
        };
        Ok(BitShare::new(whole(mine)?, whole(next)?)?)
    }
}
