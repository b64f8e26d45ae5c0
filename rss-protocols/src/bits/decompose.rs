//! Words as shared bits.

use std::ops::Range;

use mpc_core::{Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape};

use crate::{
    BitShare, Rss, Share,
    kernels::Xor,
    proofs::{Transcript, Words, adder},
    runtime::{
        chunks::Chunk,
        launch::made,
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Port, Rounds},
    },
    share::output::assemble,
};

impl<E: Engine> Rss<E> {
    /// The low bits of words: the bits of `a` are shared by the dealer, those of `b` are already a component; an
    /// adder adds them. Cost at width `w`: `w` bits for the halves, 3 for each gate of the adder; 1183 bits at
    /// width 64. Rounds: 2, and 1 for each doubling up to `w - 1`.
    pub(crate) fn decompose(
        &mut self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let halves = self.split_bits(jobs)?;
        let mut sums = Vec::with_capacity(jobs.len());
        for [x, y] in &halves {
            sums.push(self.exclusive_or(x, y)?);
        }
        // The carry of the highest place is not needed.
        let below = |rss: &Self, x: &BitShare<E::Tensor>| match x.width() {
            1 => Ok(None),
            width => rss.picked(x, &places(0..width - 1)).map(Some),
        };
        let mut pairs = Vec::with_capacity(jobs.len());
        for [x, y] in &halves {
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

    /// Propagates carries by Sklansky's network (IRE Trans. Electronic Computers, 1960): at each
    /// level the upper half of a block of places merges with the whole lower half, through the span
    /// that ends at its highest place. Propagation is not computed for spans that reach the lowest
    /// place.
    fn spread(&mut self, all: &mut [Spans<E::Tensor>]) -> Result<()> {
        let longest = all.iter().map(|spans| spans.generate.len()).max().unwrap_or(0);
        let mut half = 1;
        while half < longest {
            let mut operands = Vec::new();
            let mut plans = Vec::new();
            for spans in all.iter_mut().filter(|spans| spans.generate.len() > half) {
                let upper = (0..spans.generate.len()).filter(|j| j & half != 0).collect::<Vec<_>>();
                // Spans that reach the lowest place do not propagate a carry.
                let open = upper.iter().position(|&j| j >= 2 * half).unwrap_or(upper.len());
                mutant!("adder: a span too few stays open", open = (open + 1).min(upper.len()));
                let first = operands.len();
                let high = self.stacked(&spans.propagate, upper.iter().copied())?;
                let ends = |from: usize| upper[from..].iter().map(|j| j / half * half - 1);
                operands.push((high.clone(), self.stacked(&spans.generate, ends(0))?));
                if open < upper.len() {
                    let high = self.picked(&high, &places(open..upper.len()))?;
                    operands.push((high, self.stacked(&spans.propagate, ends(open))?));
                }
                plans.push((spans, upper, open, first));
            }
            let jobs: Vec<_> = operands.iter().map(|(x, y)| (x, y)).collect();
            let products = self.conjunctions(&jobs)?;
            for (spans, upper, open, first) in plans {
                let own = self.stacked(&spans.generate, upper.iter().copied())?;
                let carries = self.unstacked(&self.exclusive_or(&own, &products[first])?)?;
                for (&j, carry) in upper.iter().zip(carries) {
                    spans.generate[j] = carry;
                }
                if open < upper.len() {
                    let through = self.unstacked(&products[first + 1])?;
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

    /// The bits of `a` and of `b` as shared bits. Cost: 1 bit for each bit, 1 round.
    fn split_bits(
        &self,
        jobs: &[(&Share<E::Tensor>, u32)],
    ) -> Result<Vec<[BitShare<E::Tensor>; 2]>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for &(x, width) in jobs {
            let chunks = self.chunks(x.shape().len());
            let words = self.flat_pair(x)?;
            for chunk in &chunks {
                let p = self.port(chunk);
                rounds.add(p.role(), split_bits(p, self.chunk_of(&words, chunk)?, width));
            }
            outputs.push((x.shape(), width, chunks));
        }
        let mut made = rounds.run(&self.links)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (shape, width, chunks) in outputs {
            let (a, b): (Vec<_>, Vec<_>) = made.by_ref().take(chunks.len()).unzip();
            let a = self.joined_columns(&chunks, a, width, shape)?;
            results.push([a, self.joined_columns(&chunks, b, width, shape)?]);
        }
        Ok(results)
    }

    /// Joins the planes of the chunks; each chunk begins at a new word.
    fn joined_columns(
        &self,
        chunks: &[Chunk],
        made: Vec<Pair<E::Tensor>>,
        width: u32,
        shape: &Shape,
    ) -> Result<BitShare<E::Tensor>> {
        let mut mine = Vec::new();
        let mut next = Vec::new();
        for (chunk, planes) in chunks.iter().zip(made) {
            let [own, other] = chunk.roles(self.party()).mine_and_next(planes);
            mine.push((chunk.range.start, own));
            next.push((chunk.range.start, other));
        }
        let planes = Shape::new([width as usize, shape.len().div_ceil(64)])?;
        let mine = assemble(&self.engine, None, mine, 1, &planes)?;
        let next = assemble(&self.engine, None, next, 1, &planes)?;
        let bits = |planes| BitTensor::new(shape.clone(), planes);
        Ok(BitShare::new(bits(mine)?, bits(next)?)?)
    }
}

/// The low bits of `a` and of `b`, shared: the dealer's are masked, the evaluators' are component 2.
async fn split_bits<E: Engine>(
    mut p: Port<'_, E>,
    x: Pair<E::Tensor>,
    width: u32,
) -> Result<(Pair<E::Tensor>, Pair<E::Tensor>)> {
    let cols = x.0.len().div_ceil(64);
    let shape = Shape::new([width as usize, cols])?;
    let right = p.sample(Key::Right, shape.len());
    p.owe({
        let x = x.clone();
        move |t| relations(t, &x, width, right)
    });
    let zeros = made(p.engine, &shape, p.zero())?;
    if p.deals() {
        let a = p.engine.to_planes(&p.dealers(&x)?, 0, width)?;
        let right = made(p.engine, &shape, p.words_of(right))?;
        let left = p.map(&Xor, [&a, &right], &[])?;
        p.to_left(&left)?;
        return Ok((Pair(right, left), Pair(zeros.clone(), zeros)));
    }
    let dealt = p.dealt().await;
    let share = if p.is_left() {
        dealt.planes(width as usize, cols)?
    } else {
        made(p.engine, &shape, p.words_of(right))?
    };
    let b = p.engine.to_planes(p.joint(&x), 0, width)?;
    Ok((p.pair(share, zeros.clone()), p.pair(zeros, b)))
}

/// The relations that the dealer owes for [`split_bits`]: what it shares are the bits of `x0 + x1`.
fn relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    x: &Pair<E::Tensor>,
    width: u32,
    right: Sample,
) -> Result<()> {
    let n = x.0.len();
    let [x0, x1, _]: [Words; 3] = t.components(x)?;
    let h = [t.dealt_left(width as usize, n.div_ceil(64))?, t.sample(right)];
    adder(t, n, &h, &[x1.planes(0, width), x0.planes(0, width)]).map(drop)
}

/// Carries generated in the span of places that ends at each place, and carries propagated through
/// it.
struct Spans<T> {
    /// The span generates a carry.
    generate: Vec<BitShare<T>>,
    /// The span propagates a carry from below.
    propagate: Vec<BitShare<T>>,
}

/// Neighbouring planes.
fn places(range: Range<usize>) -> Vec<Option<u32>> {
    range.map(|j| Some(j as u32)).collect()
}
