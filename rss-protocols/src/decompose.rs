//! Words as shared bits.

use mpc_core::{Result, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape};

use crate::{
    BitShare, Rss, Share,
    cut::{Piece, assemble, take},
    kernels::{Copy, Xor},
    launch::{map, words},
    links::Reader,
    random::{Draw, Pair, Streams},
    seat::{Role, Seat},
    share::add,
    unit::{self, Cx, Unit},
};

impl<E: Engine> Rss<E> {
    /// The low bits of words: the bits of `a` are shared by the pivot, those of `b` are a component as
    /// they are; an adder of prefix sums adds them.
    pub(crate) fn decompose(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut results = Vec::with_capacity(jobs.len());
        let halves = self.share_halves(jobs)?;
        for (x, y) in &halves {
            results.push(self.exclusive_or(x, y)?);
        }
        // Carries: generate x & y, propagate x ^ y.
        let pairs: Vec<_> = halves.iter().map(|(x, y)| (x, y)).collect();
        let mut generate = self.conjunctions(&pairs)?;
        let mut propagate = results.clone();
        let longest = jobs.iter().map(|(_, width)| *width).max().unwrap_or(0);
        let mut reach = 1;
        while reach < longest {
            self.double_reach(&mut generate, &mut propagate, reach)?;
            reach *= 2;
        }
        for (sum, carry) in results.iter_mut().zip(&generate) {
            let width = sum.width() as u32;
            let up: Vec<_> = (0..width).map(|j| j.checked_sub(1)).collect();
            *sum = self.exclusive_or(sum, &self.picked(carry, &up)?)?;
        }
        Ok(results)
    }

    /// One level of the prefix sums: spans of length `reach` become spans of twice the length.
    fn double_reach(
        &mut self,
        generate: &mut [BitShare<E::Tensor>],
        propagate: &mut [BitShare<E::Tensor>],
        reach: u32,
    ) -> Result<()> {
        let mut operands = Vec::new();
        for (g, p) in generate.iter().zip(propagate.iter()) {
            let width = g.width() as u32;
            let below: Vec<_> =
                (0..width).filter(|&j| j >= reach).map(|j| Some(j - reach)).collect();
            let here: Vec<_> = (0..width).filter(|&j| j >= reach).map(Some).collect();
            if here.is_empty() {
                continue;
            }
            let high = self.picked(p, &here)?;
            operands.push((high.clone(), self.picked(g, &below)?));
            operands.push((high, self.picked(p, &below)?));
        }
        let jobs: Vec<_> = operands.iter().map(|(x, y)| (x, y)).collect();
        let mut products = self.conjunctions(&jobs)?.into_iter();
        for (g, p) in generate.iter_mut().zip(propagate) {
            let width = g.width() as u32;
            if width <= reach {
                continue;
            }
            let (carry, through) =
                (products.next().expect("two for each"), products.next().expect("two for each"));
            let up: Vec<_> = (0..width).map(|j| j.checked_sub(reach)).collect();
            *g = self.exclusive_or(g, &self.picked(&carry, &up)?)?;
            let low: Vec<_> = (0..reach).map(Some).collect();
            *p = self.joined(&[&self.picked(p, &low)?, &through])?;
        }
        Ok(())
    }

    /// The bits of both halves as shared bits. Cost: 1 bit for each bit, 1 round.
    fn share_halves(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<(BitShare<E::Tensor>, BitShare<E::Tensor>)>> {
        let (mut units, mut plans) = (Vec::new(), Vec::new());
        for &(x, width) in jobs {
            let (mine, next) = self.flat_pair(x)?;
            let pieces = self.pieces(x.shape().len());
            for piece in &pieces {
                let (seat, mut streams) = self.seat(piece);
                let cut = |side| take(&self.engine, side, piece);
                let value = seat.order(cut(&mine)?, cut(&next)?);
                let size = width as usize * piece.len().div_ceil(64);
                let mask = streams.draw(Pair::K13, size);
                units.push(SplitUnit { seat, streams, value, width, mask, result: None });
            }
            plans.push((pieces, x.shape().clone()));
        }
        unit::run(&mut self.cx(), &mut units)?;
        let mut units = units.into_iter();
        let mut results = Vec::new();
        for (pieces, shape) in plans {
            let done: Vec<_> =
                pieces.iter().map(|_| units.next().expect("a unit for each piece")).collect();
            results.push((
                self.gather(&pieces, &done, 0, &shape)?,
                self.gather(&pieces, &done, 1, &shape)?,
            ));
        }
        Ok(results)
    }

    fn gather(
        &self,
        pieces: &[Piece],
        units: &[SplitUnit<E::Tensor>],
        which: usize,
        shape: &Shape,
    ) -> Result<BitShare<E::Tensor>> {
        let (mut mine, mut next) = (Vec::new(), Vec::new());
        for (piece, unit) in pieces.iter().zip(units) {
            let (first, second) = unit.result.as_ref().expect("the unit is done")[which].clone();
            let pair = unit.seat.order(first, second);
            mine.push((piece.range.start, pair.0));
            next.push((piece.range.start, pair.1));
        }
        let width = units.first().map_or(1, |unit| unit.width as usize);
        let planes = Shape::new([width, shape.len().div_ceil(64)])?;
        let whole = |pieces| -> Result<_> {
            Ok(BitTensor::new(shape.clone(), assemble(&self.engine, pieces, 1, &planes)?)?)
        };
        Ok(BitShare::new(whole(mine)?, whole(next)?)?)
    }
}

/// The bits of `a` and of `b`, shared, for one part.
struct SplitUnit<T> {
    seat: Seat,
    streams: Streams,
    value: (T, T),
    width: u32,
    /// The third's share of the bits of `a`.
    mask: Draw,
    result: Option<[(T, T); 2]>,
}

impl<T: EngineTensor> SplitUnit<T> {
    fn planes(&self) -> Result<Shape> {
        Ok(Shape::new([self.width as usize, self.value.0.len().div_ceil(64)])?)
    }

    fn mask<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>) -> Result<T> {
        let shape = self.planes()?;
        let [mask] = words(cx.engine, &Copy, &shape, [self.streams.words(self.mask)], &[])?;
        Ok(mask)
    }

    fn zeros<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>) -> Result<T> {
        let [zeros] = words(cx.engine, &Copy, &self.planes()?, [cx.zero()], &[])?;
        Ok(zeros)
    }
}

impl<E: Engine> Unit<E> for SplitUnit<E::Tensor> {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn bundle(&self) -> [usize; 2] {
        [self.width as usize * self.value.0.len().div_ceil(64), 0]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let a = add(cx.engine, &self.value.0, &self.value.1)?;
        let a = cx.engine.to_planes(&a, 0, self.width)?;
        let third = self.mask(cx)?;
        let second = map(cx.engine, &Xor, a.shape(), [&a, &third], &[])?;
        cx.put(self.seat.second(), &second)?;
        let zeros = self.zeros(cx)?;
        self.result = Some([(third, second), (zeros.clone(), zeros)]);
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let second = self.seat.role == Role::Second;
        let b = if second { &self.value.1 } else { &self.value.0 };
        let b = cx.engine.to_planes(b, 0, self.width)?;
        let zeros = self.zeros(cx)?;
        self.result = Some(if second {
            let share = bundle.field(cx.engine, self.planes()?)?;
            [(share, zeros.clone()), (zeros, b)]
        } else {
            [(zeros.clone(), self.mask(cx)?), (b, zeros)]
        });
        Ok(())
    }

    fn advance(&mut self, _cx: &mut Cx<'_, E>) -> Result<bool> {
        Ok(true)
    }
}
