//! Words as shared bits.

use std::ops::Range;

use mpc_core::{Result, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape};

use crate::{
    BitShare, Rss, Share,
    kernels::Xor,
    runtime::chunks::{Piece, assemble, take},
    runtime::launch::{made, map},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::add,
};

impl<E: Engine> Rss<E> {
    /// The low bits of words: the bits of `a` are shared by the pivot, those of `b` are a component as
    /// they are; an adder adds them. Cost at width `w`: `w` bits for the halves, 3 for each gate of the
    /// adder; 1183 bits at width 64. Rounds: 2, and 1 for each doubling up to `w - 1`.
    pub(crate) fn decompose(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let halves = self.share_halves(jobs)?;
        let mut sums = Vec::with_capacity(jobs.len());
        for (x, y) in &halves {
            sums.push(self.exclusive_or(x, y)?);
        }
        // The highest place hands nothing on.
        let below = |rss: &Self, x: &BitShare<E::Tensor>| match x.width() {
            1 => Ok(None),
            width => rss.picked(x, &places(0..width - 1)).map(Some),
        };
        let mut pairs = Vec::with_capacity(jobs.len());
        for (x, y) in &halves {
            pairs.extend(below(self, x)?.zip(below(self, y)?));
        }
        let generate = self.conjunctions(&pairs.iter().map(|(x, y)| (x, y)).collect::<Vec<_>>())?;
        let mut spans = Vec::with_capacity(generate.len());
        for (generate, sum) in generate.iter().zip(sums.iter().filter(|sum| sum.width() > 1)) {
            let propagate = self.unstacked(&self.picked(sum, &places(0..generate.width()))?)?;
            spans.push(Spans { generate: self.unstacked(generate)?, propagate });
        }
        self.spread(&mut spans)?;
        for (sum, spans) in sums.iter_mut().filter(|sum| sum.width() > 1).zip(&spans) {
            let carries = self.joined(&spans.generate.iter().collect::<Vec<_>>())?;
            let above = self.picked(sum, &places(1..sum.width()))?;
            let lowest = self.picked(sum, &[Some(0)])?;
            *sum = self.joined(&[&lowest, &self.exclusive_or(&above, &carries)?])?;
        }
        Ok(sums)
    }

    /// Lets carries run through. Sklansky's network (IRE Trans. Electronic Computers, 1960): at each
    /// level the upper half of a block of places takes in the whole lower half, through the span that
    /// ends at its highest place. What no place below hands on is not computed.
    fn spread(&mut self, all: &mut [Spans<E::Tensor>]) -> Result<()> {
        let longest = all.iter().map(|spans| spans.generate.len()).max().unwrap_or(0);
        let mut half = 1;
        while half < longest {
            let (mut operands, mut plans) = (Vec::new(), Vec::new());
            for spans in all.iter_mut().filter(|spans| spans.generate.len() > half) {
                let upper = (0..spans.generate.len()).filter(|j| j & half != 0).collect::<Vec<_>>();
                // Spans that reach the lowest place have no use for what would run through them.
                let open = upper.iter().position(|&j| j >= 2 * half).unwrap_or(upper.len());
                planted!("adder: a span too few stays open", open = (open + 1).min(upper.len()));
                let high = self.stacked(&spans.propagate, upper.iter().copied())?;
                let ends = |from: usize| upper[from..].iter().map(|j| j / half * half - 1);
                operands.push((high.clone(), self.stacked(&spans.generate, ends(0))?));
                if open < upper.len() {
                    let high = self.picked(&high, &places(open..upper.len()))?;
                    operands.push((high, self.stacked(&spans.propagate, ends(open))?));
                }
                plans.push((spans, upper, open));
            }
            let jobs: Vec<_> = operands.iter().map(|(x, y)| (x, y)).collect();
            let mut products = self.conjunctions(&jobs)?.into_iter();
            for (spans, upper, open) in plans {
                let carries = products.next().expect("one for each");
                let own = self.stacked(&spans.generate, upper.iter().copied())?;
                let carries = self.unstacked(&self.exclusive_or(&own, &carries)?)?;
                for (&j, carry) in upper.iter().zip(carries) {
                    spans.generate[j] = carry;
                }
                if open < upper.len() {
                    let through = self.unstacked(&products.next().expect("one for each"))?;
                    for (&j, through) in upper[open..].iter().zip(through) {
                        spans.propagate[j] = through;
                    }
                }
            }
            half *= 2;
        }
        Ok(())
    }

    /// Some of a list of planes as one tensor.
    fn stacked(
        &self,
        planes: &[BitShare<E::Tensor>],
        which: impl Iterator<Item = usize>,
    ) -> Result<BitShare<E::Tensor>> {
        self.joined(&which.map(|j| &planes[j]).collect::<Vec<_>>())
    }

    /// Every plane by itself.
    fn unstacked(&self, x: &BitShare<E::Tensor>) -> Result<Vec<BitShare<E::Tensor>>> {
        (0..x.width() as u32).map(|j| self.picked(x, &[Some(j)])).collect()
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
                let (roles, mut streams) = self.roles(piece);
                let cut = |side| take(&self.engine, side, piece);
                let value = roles.order(cut(&mine)?, cut(&next)?);
                let size = width as usize * piece.len().div_ceil(64);
                let mask = streams.draw(Key::Right, size);
                planted!("bits of words: those of a bare", mask = streams.blank(Key::Right, size));
                units.push(SplitUnit { roles, streams, value, width, mask, result: None });
            }
            plans.push((pieces, x.shape().clone()));
        }
        rounds::run(&mut self.cx(), &mut units)?;
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
            let pair = unit.roles.order(first, second);
            mine.push((piece.range.start, pair.0));
            next.push((piece.range.start, pair.1));
        }
        let width = units.first().map_or(1, |unit| unit.width as usize);
        let planes = Shape::new([width, shape.len().div_ceil(64)])?;
        let whole = |pieces| -> Result<_> {
            Ok(BitTensor::new(shape.clone(), assemble(&self.engine, None, pieces, 1, &planes)?)?)
        };
        Ok(BitShare::new(whole(mine)?, whole(next)?)?)
    }
}

/// What is known of the span of places that ends at each place.
struct Spans<T> {
    /// It makes a carry of its own.
    generate: Vec<BitShare<T>>,
    /// It hands a carry from below on.
    propagate: Vec<BitShare<T>>,
}

/// Neighbouring planes.
fn places(range: Range<usize>) -> Vec<Option<u32>> {
    range.map(|j| Some(j as u32)).collect()
}

/// The bits of `a` and of `b`, shared, for one part.
struct SplitUnit<T> {
    roles: Roles,
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
        Ok(made(cx.engine, &self.planes()?, self.streams.words(self.mask))?)
    }

    fn zeros<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>) -> Result<T> {
        Ok(made(cx.engine, &self.planes()?, cx.zero())?)
    }
}

impl<E: Engine> Unit<E> for SplitUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        [self.width as usize * self.value.0.len().div_ceil(64), 0]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let a = add(cx.engine, &self.value.0, &self.value.1)?;
        let a = cx.engine.to_planes(&a, 0, self.width)?;
        let third = self.mask(cx)?;
        let second = map(cx.engine, &Xor, a.shape(), [&a, &third], &[])?;
        cx.put(self.roles.left(), &second)?;
        let zeros = self.zeros(cx)?;
        self.result = Some([(third, second), (zeros.clone(), zeros)]);
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let second = self.roles.role == Role::Left;
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
