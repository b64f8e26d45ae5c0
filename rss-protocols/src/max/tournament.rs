//! Largest elements by tournament, the dealer running ahead.
//!
//! The dealer's components of a comparison's result are streams, so it computes all levels before the evaluators begin;
//! the evaluators need five rounds a level (by threes). Cost at width 44: 456 bits for each comparison, 648 with the
//! position, 1 more where choices are kept; `1 + 5 ceil(log2 k)` rounds.
//!
//! Four elements are compared at once where rounds are saved and they are not too many ([`super::of_four`]):
//! `1 + 4 ceil(log4 k)` rounds.

use std::sync::Arc;

use mpc_core::{Found, Largest, Profile, Result, ShareTensor};
use ring_arith::{Engine, Place, Shape, Source, Target, Tensor, WordKernel};

use super::of_four::{self, Members, OfFour};
use crate::{
    BitShare, Rss, Share,
    circuit::schedule::{Circuit, Predicate},
    compare::{
        self, CompareSamples, Comparison, Outcome,
        select::{Factor, Selected},
    },
    kernels::{Copy, Difference, Sum},
    runtime::{
        chunks::{Chunk, Layout, SMALL},
        launch::{self, invalid, slice},
        roles::Pair,
        rounds::{Incoming, Port, Rounds},
    },
    share::{
        output::{Outputs, Slot, assemble},
        reusable::OpenedBit,
    },
};

/// The most elements at a level at which four are compared: for more, the extra bytes take longer
/// than the saved rounds.
const FEW: usize = 1 << 17;

/// The same in the balanced profile.
const FEW_BALANCED: usize = 1 << 13;

/// The largest elements, and the further results that were asked for.
type Answer<T> = Found<Share<T>, BitShare<T>>;

/// The largest of one chunk, and the choices of each level, if they are kept.
struct Winner<T> {
    nodes: Nodes<T>,
    choices: Vec<OpenedBit<T>>,
}

impl<E: Engine> Rss<E> {
    /// The largest along the first axis, and the further results that are asked for.
    pub(crate) fn largest(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        want: Largest,
    ) -> Result<Answer<E::Tensor>> {
        let shape = x.shape().clone();
        let Some((&k, rest)) = shape.dims().split_first().filter(|(k, _)| **k > 0) else {
            let reason = format!("shape {shape:?} has no elements along its first axis");
            return Err(invalid("max", reason));
        };
        if !(2..=64).contains(&width) {
            return Err(invalid("max", format!("width {width} is not 2 to 64")));
        }
        let results: usize = rest.iter().product();
        let below = width as usize - 1;
        mutant!("max: a bit short", below = below.max(2) - 1);
        let circuit = self.circuit(Predicate::Carry, below, shape.len());
        let mut tensors = vec![self.flat_pair(x)?];
        if want.position {
            tensors.push(self.flat_pair(&self.positions(&shape, results)?)?);
        }
        let chunks = match shape.len() {
            n if n < SMALL => vec![self.whole(results, n)],
            _ => self.options.partition.parts(results, 1),
        };
        // Choices are kept of pairs alone.
        let profile = if want.choices { Profile::Bytes } else { self.options.profile };
        let mut rounds = Rounds::new();
        for chunk in &chunks {
            let roles = chunk.roles(self.party());
            let pairs = tensors.iter().cloned().map(|[mine, next]| roles.pair(mine, next));
            let pairs = pairs.collect();
            let nodes = Nodes { tensors: pairs, first: chunk.range.start, pitch: results };
            let mut levels = Vec::new();
            let mut len = k;
            while len > 1 {
                // The same for all chunks: they share rounds.
                let arity = arity(profile, len, results);
                let sizes = Sizes { len, arity, results: chunk.len(), tensors: tensors.len() };
                let p = self.port(chunk);
                levels.push(Level::sample(p, sizes, circuit.clone(), want.choices));
                len = sizes.left();
            }
            rounds.add(roles.role, tournament(levels, nodes));
        }
        let winners = rounds.run(&self.links)?;
        let mut largest = Vec::with_capacity(chunks.len());
        let mut choices = Vec::with_capacity(chunks.len());
        for (chunk, Winner { nodes, choices: of_levels }) in chunks.iter().zip(winners) {
            let end = nodes.first + chunk.len();
            let mut tensors = Vec::with_capacity(nodes.tensors.len());
            for tensor in &nodes.tensors {
                tensors.push(tensor.try_map(|x| Ok(slice(&self.engine, x, 0, nodes.first, end)?))?);
            }
            largest.push(tensors);
            choices.push(of_levels);
        }
        let choices = self.choices(&chunks, choices, k, rest)?;
        let first = Shape::new([&[1], rest].concat())?;
        let output = Outputs::scattered(self.party(), chunks, Layout::FLAT, first, tensors.len());
        let mut results = output.shares(&self.engine, largest)?.into_iter();
        match results.next() {
            Some(largest) => Ok(Found { largest, position: results.next(), choices }),
            None => Err(invalid("max", "a tournament gave no result")),
        }
    }

    /// The choices of all levels, given those of each chunk.
    fn choices(
        &self,
        chunks: &[Chunk],
        made: Vec<Vec<OpenedBit<E::Tensor>>>,
        k: usize,
        rest: &[usize],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut made: Vec<_> = made.into_iter().map(Vec::into_iter).collect();
        let mut choices = Vec::new();
        let mut len = k;
        loop {
            let level: Vec<_> = made.iter_mut().filter_map(Iterator::next).collect();
            if level.is_empty() {
                return Ok(choices);
            }
            let rows = len / 2;
            let shape = Shape::new([&[rows], rest].concat())?;
            let layout = Layout { rows };
            let output = Outputs::scattered(self.party(), chunks.to_vec(), layout, shape, 0);
            choices.push(output.bits(&self.engine, level)?);
            len = len.div_ceil(2);
        }
    }

    /// Every element's place along the first axis, as a public share.
    fn positions(&self, shape: &Shape, results: usize) -> Result<Share<E::Tensor>> {
        let words = (0..shape.len()).map(|i| (i / results) as u64).collect();
        self.public(&self.engine.upload(Tensor::new(shape.clone(), words)?)?)
    }
}

/// The number of elements that are compared at once at a level that begins with `len` for each of `results`.
fn arity(profile: Profile, len: usize, results: usize) -> usize {
    if profile.saves_rounds(len * results, FEW_BALANCED, FEW) { len.min(4) } else { 2 }
}

/// The largest of each column of a chunk.
async fn tournament<E: Engine>(
    levels: Vec<Level<'_, E>>,
    mut nodes: Nodes<E::Tensor>,
) -> Result<Winner<E::Tensor>> {
    let mut choices = Vec::new();
    match &levels[..] {
        [] => {}
        [first, ..] if first.p.deals() => {
            for level in &levels {
                let outcome = level.deal(&nodes)?;
                nodes = level.winners(&nodes, &outcome.words)?;
                choices.extend(outcome.bit);
            }
        }
        [first, ..] => {
            let dealt = first.p.dealt().await;
            let dealt: Vec<_> =
                levels.iter().map(|level| level.read(&dealt)).collect::<Result<_>>()?;
            for (level, dealt) in levels.iter().zip(dealt) {
                let outcome = level.evaluate(dealt, &nodes).await?;
                nodes = level.winners(&nodes, &outcome.words)?;
                choices.extend(outcome.bit);
            }
        }
    }
    Ok(Winner { nodes, choices })
}

/// The elements that are still in a tournament.
struct Nodes<T> {
    /// The role's components of values and, where asked for, positions: those of node `i` begin at word
    /// `first + i * pitch`.
    tensors: Vec<Pair<T>>,
    first: usize,
    pitch: usize,
}

/// The sizes of a level on one chunk.
#[derive(Clone, Copy)]
struct Sizes {
    /// Elements for each result.
    len: usize,
    /// Elements that are compared at once. Remaining ones move up unchanged.
    arity: usize,
    results: usize,
    tensors: usize,
}

impl Sizes {
    fn groups(self) -> usize {
        self.len / self.arity
    }

    /// Elements that are not compared.
    fn rest(self) -> usize {
        self.len % self.arity
    }

    /// Elements after the level.
    fn left(self) -> usize {
        self.groups() + self.rest()
    }
}

/// One level on one chunk.
struct Level<'a, E: Engine> {
    p: Port<'a, E>,
    sizes: Sizes,
    comparisons: Comparisons<E::Tensor>,
}

/// The samples of a level's comparisons.
enum Comparisons<T> {
    Pairs(CompareSamples<T>),
    Groups(OfFour),
}

/// The dealer's message about a level.
enum LevelMessage<T> {
    Pairs(compare::CompareMessage<T>),
    Groups(of_four::GroupMessage<T>),
}

impl<'a, E: Engine> Level<'a, E> {
    fn sample(mut p: Port<'a, E>, sizes: Sizes, circuit: Arc<Circuit>, keep: bool) -> Self {
        let n = sizes.groups() * sizes.results;
        let comparisons = if sizes.arity > 2 {
            let of_four = OfFour::sample(&mut p, circuit, n, sizes.arity, sizes.tensors);
            Comparisons::Groups(of_four)
        } else {
            let comparison = Comparison { circuit, top: true, low: 0 };
            Comparisons::Pairs(CompareSamples::sample(&mut p, comparison, n, keep, sizes.tensors))
        };
        Self { p, sizes, comparisons }
    }

    /// The dealer's work: of each tensor its components of the winners less the base.
    fn deal(&self, nodes: &Nodes<E::Tensor>) -> Result<Outcome<E::Tensor>> {
        match &self.comparisons {
            Comparisons::Pairs(samples) => {
                let difference = self.difference(nodes, &nodes.tensors[0], [0, 1])?;
                let gains = self.gains(nodes)?;
                samples.owe(&self.p, &difference, &gains);
                samples.deal(&self.p, &self.p.dealers(&difference)?, &gains)
            }
            Comparisons::Groups(samples) => {
                let members = self.members(nodes)?;
                samples.owe(&self.p, &members);
                let words = samples.deal(&self.p, &members)?;
                Ok(Outcome { bit: None, words })
            }
        }
    }

    /// An evaluator reads the dealer's message.
    fn read(&self, dealt: &Incoming<'_, '_, E>) -> Result<LevelMessage<E::Tensor>> {
        let dealt = &dealt.at(&self.p);
        Ok(match &self.comparisons {
            Comparisons::Pairs(samples) => {
                LevelMessage::Pairs(samples.read(&self.p, dealt, self.sizes.tensors)?)
            }
            Comparisons::Groups(samples) => LevelMessage::Groups(samples.read(&self.p, dealt)?),
        })
    }

    /// An evaluator's work: of each tensor its components of the winners less the base.
    async fn evaluate(
        &self,
        dealt: LevelMessage<E::Tensor>,
        nodes: &Nodes<E::Tensor>,
    ) -> Result<Outcome<E::Tensor>> {
        match (&self.comparisons, dealt) {
            (Comparisons::Pairs(samples), LevelMessage::Pairs(dealt)) => {
                let difference = self.difference(nodes, &nodes.tensors[0], [0, 1])?;
                let gains = self.gains(nodes)?;
                samples.owe(&self.p, &difference, &gains);
                let b = self.p.joint(&difference).clone();
                drop(difference);
                samples.evaluate(&self.p, dealt, b, &gains).await
            }
            (Comparisons::Groups(samples), LevelMessage::Groups(dealt)) => {
                let members = self.members(nodes)?;
                samples.owe(&self.p, &members);
                let words = samples.evaluate(&self.p, dealt, &members).await?;
                Ok(Outcome { bit: None, words })
            }
            _ => unreachable!("a level reads the message that belongs to its comparisons"),
        }
    }

    /// By tensor, the second of each pair less the first: selected where the first is less.
    fn gains(&self, nodes: &Nodes<E::Tensor>) -> Result<Vec<Selected<E::Tensor>>> {
        let mut gains = Vec::with_capacity(nodes.tensors.len());
        for tensor in &nodes.tensors {
            let factor = Factor::Word(self.difference(nodes, tensor, [1, 0])?);
            gains.push(Selected { factor, opposite: false, slot: Slot::anywhere() });
        }
        Ok(gains)
    }

    /// The difference of two places in all groups. If the first less the second is negative, the second is larger,
    /// so that equals keep the first.
    fn difference(
        &self,
        nodes: &Nodes<E::Tensor>,
        tensor: &Pair<E::Tensor>,
        places: [usize; 2],
    ) -> Result<Pair<E::Tensor>> {
        tensor.try_map(|x| {
            let sources = places.map(|place| self.member(nodes, x, place));
            self.groups(&Difference, sources, None)
        })
    }

    /// By tensor, the members of all groups.
    fn members(&self, nodes: &Nodes<E::Tensor>) -> Result<Vec<Members<E::Tensor>>> {
        let mut all = Vec::with_capacity(nodes.tensors.len());
        for tensor in &nodes.tensors {
            let mut members = Vec::with_capacity(self.sizes.arity);
            for place in 0..self.sizes.arity {
                members.push(
                    tensor.try_map(|x| self.groups(&Copy, [self.member(nodes, x, place)], None))?,
                );
            }
            all.push(members);
        }
        Ok(all)
    }

    /// The nodes of all groups that have one place in them. Groups are of neighbours: earlier ones have lower positions.
    fn member<'x>(
        &self,
        nodes: &Nodes<E::Tensor>,
        x: &'x E::Tensor,
        place: usize,
    ) -> Source<'x, E::Tensor> {
        let row_stride = self.sizes.arity * nodes.pitch;
        Source::Tensor { tensor: x, offset: nodes.first + place * nodes.pitch, row_stride }
    }

    /// Runs a kernel on all groups.
    fn groups<const I: usize>(
        &self,
        kernel: &impl WordKernel<I, 1>,
        sources: [Source<'_, E::Tensor>; I],
        place: Option<Place<'_, E::Tensor>>,
    ) -> Result<E::Tensor> {
        let space @ [rows, cols] = [self.sizes.groups(), self.sizes.results];
        let shape = Shape::new([rows * cols])?;
        let targets = [Target { tensor: 0, offset: 0, row_stride: cols }];
        Ok(launch::rows_into(self.p.engine, kernel, space, sources, shape, targets, place)?)
    }

    /// The winners of a level, given the winners less the base: the first of a pair, the last of a group.
    fn winners(
        &self,
        nodes: &Nodes<E::Tensor>,
        gains: &[Pair<E::Tensor>],
    ) -> Result<Nodes<E::Tensor>> {
        let mut tensors = Vec::with_capacity(gains.len());
        for (Pair(x0, x1), Pair(gain0, gain1)) in nodes.tensors.iter().zip(gains) {
            tensors.push(Pair(self.winner(nodes, x0, gain0)?, self.winner(nodes, x1, gain1)?));
        }
        Ok(Nodes { tensors, first: 0, pitch: self.sizes.results })
    }

    /// One component of the winners.
    fn winner(
        &self,
        nodes: &Nodes<E::Tensor>,
        x: &E::Tensor,
        gain: &E::Tensor,
    ) -> Result<E::Tensor> {
        let engine = self.p.engine;
        let Sizes { arity, results, .. } = self.sizes;
        let rest = self.sizes.rest();
        let shape = Shape::new([self.sizes.left() * results])?;
        let base = if arity == 2 { 0 } else { arity - 1 };
        // Nodes without a group move up unchanged.
        let buffer = if rest == 0 { None } else { engine.room(shape.len()) };
        let place = buffer.as_ref().map(|room| Place { room, start: 0 });
        let sources = [self.member(nodes, x, base), Source::rows_of(gain, results)];
        let mut parts = vec![(0, self.groups(&Sum, sources, place)?)];
        for i in 0..rest {
            let groups = self.sizes.groups();
            let at = nodes.first + (groups * arity + i) * nodes.pitch;
            parts.push(((groups + i) * results, slice(engine, x, 0, at, at + results)?));
        }
        assemble(engine, buffer.as_ref(), parts, 0, &shape)
    }
}
