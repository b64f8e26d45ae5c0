//! Largest elements by tournament, the pivot running ahead.
//!
//! The components that the pivot knows of a comparison's result are streams, so it plays all levels
//! before anybody else has begun; the others need five rounds a level (by threes).
//! Cost at width 44: 456 bits for each comparison, 648 with the position, 1 more where choices are kept;
//! `1 + 5 ceil(log2 k)` rounds.

use std::sync::Arc;

use mpc_core::{Found, Largest, Result, ShareTensor};
use ring_arith::{Engine, EngineTensor, Launch, Place, Shape, Source, Target, Tensor, WordKernel};

use crate::{
    BitShare, Rss, Share,
    compare::{CompareUnit, OpenedBit, Outcome, Purpose},
    cut::{Piece, Rooms, SMALL, Spots, assemble},
    kept::Layout,
    kernels::{Difference, Sum},
    launch::{invalid, slice},
    links::Reader,
    plan::{Goal, Plan},
    random::Streams,
    seat::{Role, Seat},
    select::{Follow, Wanted},
    unit::{self, Cx, Unit},
};

impl<E: Engine> Rss<E> {
    /// The largest along the first axis, and what else is wanted.
    pub(crate) fn largest(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        want: Largest,
    ) -> Result<Found<Share<E::Tensor>, BitShare<E::Tensor>>> {
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
        planted!("max: a bit short", below = below.max(2) - 1);
        let plan = self.plan(Goal::Carry, below);
        let mut nodes = vec![x.clone()];
        if want.position {
            nodes.push(self.positions(&shape, results)?);
        }
        let nodes: Vec<_> = nodes.iter().map(|node| self.flat_pair(node)).collect::<Result<_>>()?;
        let pieces = match shape.len() {
            n if n < SMALL => vec![Piece::whole(results, self.turns.next(n))],
            _ => self.options.parts.parts(results, 1),
        };
        let mut units = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let seat = piece.seat(self.party());
            let nodes = nodes.iter().map(|(mine, next)| seat.order(mine.clone(), next.clone()));
            let nodes = nodes.collect();
            let mut levels = Vec::new();
            let mut len = k;
            while len > 1 {
                levels.push(Some(self.seat(piece).1));
                len = len.div_ceil(2);
            }
            units.push(MaxUnit {
                seat,
                results: piece.len(),
                len: k,
                plan: plan.clone(),
                choices: want.choices.then(Vec::new),
                levels,
                nodes,
                first: piece.range.start,
                pitch: results,
                now: None,
            });
        }
        unit::run(&mut self.cx(), &mut units)?;
        let choices = self.choices(&pieces, &mut units, rest)?;
        let done = pieces.into_iter().zip(units).map(|(piece, unit)| {
            let own = |x| slice(&self.engine, x, 0, unit.first, unit.first + unit.results);
            let nodes = unit.nodes.iter().map(|(one, two)| Ok((own(one)?, own(two)?)));
            Ok((piece, unit.seat, nodes.collect::<Result<Vec<_>>>()?))
        });
        let done = done.collect::<Result<Vec<_>>>()?;
        let first = Shape::new([&[1], rest].concat())?;
        let rooms: Vec<_> = nodes.iter().map(|_| Rooms::none()).collect();
        let mut results = self.collect(done, &rooms, Layout::FLAT, &first)?.into_iter();
        let largest = results.next().expect("the largest elements");
        Ok(Found { largest, position: results.next(), choices })
    }

    /// The choices of all levels, if they are kept.
    fn choices(
        &self,
        pieces: &[Piece],
        units: &mut [MaxUnit<E::Tensor>],
        rest: &[usize],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut levels: Vec<Vec<_>> = Vec::new();
        for (piece, unit) in pieces.iter().zip(units) {
            for (level, bit) in unit.choices.take().into_iter().flatten().enumerate() {
                if levels.len() == level {
                    levels.push(Vec::new());
                }
                levels[level].push((piece.clone(), unit.seat, bit));
            }
        }
        let whole = |bits: Vec<(Piece, Seat, (usize, OpenedBit<E::Tensor>))>| {
            let rows = bits[0].2.0;
            let bits = bits.into_iter().map(|(piece, seat, (_, bit))| (piece, seat, bit)).collect();
            let shape = Shape::new([&[rows], rest].concat())?;
            self.collect_bit(bits, Layout { rows }, &shape)
        };
        levels.into_iter().map(whole).collect()
    }

    /// Every element's place along the first axis, as a public share.
    fn positions(&self, shape: &Shape, results: usize) -> Result<Share<E::Tensor>> {
        let words = (0..shape.len()).map(|i| (i / results) as u64).collect();
        self.public(&self.engine.upload(Tensor::new(shape.clone(), words)?)?)
    }
}

/// A tournament of one part.
struct MaxUnit<T: EngineTensor> {
    seat: Seat,
    /// How many it has.
    results: usize,
    /// Nodes that are left for each result.
    len: usize,
    plan: Arc<Plan>,
    /// By level, the number of pairs and who won, if that is kept.
    choices: Option<Vec<(usize, OpenedBit<T>)>>,
    /// The streams of each level, until it is played.
    levels: Vec<Option<Streams>>,
    /// The role's components of values and, where asked for, positions: those of node `i` begin at word
    /// `first + i * pitch`.
    nodes: Vec<(T, T)>,
    first: usize,
    pitch: usize,
    /// The level under way at the second or the third: its comparison, and what is left of the pivot's
    /// words.
    now: Option<(CompareUnit<T>, Reader)>,
}

impl<T: EngineTensor> MaxUnit<T> {
    /// The comparison of the next level.
    fn level<E: Engine<Tensor = T>>(&mut self, engine: &E) -> Result<Option<CompareUnit<T>>> {
        if self.len == 1 {
            return Ok(None);
        }
        let streams = self.levels.iter_mut().find_map(Option::take);
        let streams = streams.expect("a level for each halving");
        let minus = |x: &T, [one, other]: [usize; 2]| {
            let sources = [self.every_other(x, one), self.every_other(x, other)];
            self.pairs(engine, &Difference, sources, None)
        };
        let both = |(one, two): &(T, T), order| Ok((minus(one, order)?, minus(two, order)?));
        // left - right < 0 exactly if the right one is larger, so that equals keep the left one.
        let value = both(&self.nodes[0], [0, 1])?;
        let gains = self.nodes.iter().map(|node| both(node, [1, 0])).collect::<Result<Vec<_>>>()?;
        let n = self.len / 2 * self.results;
        let wanted = |gain| {
            let follow = Follow::Times(gain);
            Wanted { follow, opposite: false, spots: Spots::none(n) }
        };
        let words = gains.into_iter().map(wanted).collect();
        let purpose = Purpose { bit: self.choices.is_some(), words };
        Ok(Some(CompareUnit::new(self.seat, streams, value, self.plan.clone(), purpose)))
    }

    /// The left nodes of all pairs, or the right ones. Neighbours meet: the left one's position is lower.
    fn every_other<'a>(&self, x: &'a T, start: usize) -> Source<'a, T> {
        let (offset, row_stride) = (self.first + start * self.pitch, 2 * self.pitch);
        Source::Tensor { tensor: x, offset, row_stride }
    }

    /// Runs a kernel on all pairs.
    fn pairs<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        kernel: &impl WordKernel<2, 1>,
        sources: [Source<'_, T>; 2],
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        let (rows, cols) = (self.len / 2, self.results);
        let launch = Launch {
            rows,
            cols,
            sources,
            params: &[],
            outputs: &[Shape::new([rows * cols])?],
            targets: [Target { tensor: 0, offset: 0, row_stride: cols }],
        };
        let mut made = engine.launch_into(kernel, &launch, &[place])?;
        Ok(made.pop().expect("a launch makes the output it was asked for"))
    }

    /// Takes over the winners of a level.
    fn settle<E: Engine<Tensor = T>>(&mut self, engine: &E, outcome: Outcome<T>) -> Result<()> {
        let gains = outcome.words;
        if let (Some(choices), Some(bit)) = (&mut self.choices, outcome.bit) {
            choices.push((self.len / 2, bit));
        }
        let (results, len, won) = (self.results, self.len, self.len / 2 * self.results);
        let left = len.div_ceil(2) * results;
        let next = |old: &T, gain: &T| -> Result<T> {
            // Without a pair the last node goes on as it is.
            let room = if len.is_multiple_of(2) { None } else { engine.room(left) };
            let place = room.as_ref().map(|room| Place { room, start: 0 });
            let sources = [self.every_other(old, 0), Source::rows_of(gain, results)];
            let mut parts = vec![(0, self.pairs(engine, &Sum, sources, place)?)];
            if !len.is_multiple_of(2) {
                let odd = self.first + (len - 1) * self.pitch;
                parts.push((won, slice(engine, old, 0, odd, odd + results)?));
            }
            assemble(engine, room.as_ref(), parts, 0, &Shape::new([left])?)
        };
        let nodes = self.nodes.iter().zip(&gains);
        let nodes = nodes.map(|(old, gain)| Ok((next(&old.0, &gain.0)?, next(&old.1, &gain.1)?)));
        self.nodes = nodes.collect::<Result<_>>()?;
        (self.len, self.first, self.pitch) = (len.div_ceil(2), 0, results);
        Ok(())
    }

    /// Starts the next level at the second or the third; whether there is none.
    fn begin<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<bool> {
        let Some(mut unit) = self.level(cx.engine)? else { return Ok(true) };
        let [second, third] = Unit::<E>::bundle(&unit);
        let words = if self.seat.role == Role::Second { second } else { third };
        let own = bundle.split(words)?;
        unit.start(cx, own)?;
        self.now = Some((unit, bundle));
        Ok(false)
    }
}

impl<E: Engine> Unit<E> for MaxUnit<E::Tensor> {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn bundle(&self) -> [usize; 2] {
        let (mut len, mut all) = (self.len, [0, 0]);
        while len > 1 {
            let n = self.results * (len / 2);
            let cols = n.div_ceil(64);
            let [second, third] = self.plan.bundle().map(|planes| planes * cols);
            let bit = if self.choices.is_some() { cols } else { 0 };
            all = [all[0] + second + bit + n * self.nodes.len(), all[1] + third + n];
            len = len.div_ceil(2);
        }
        all
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        while let Some(mut unit) = self.level(cx.engine)? {
            unit.lead(cx)?;
            self.settle(cx.engine, unit.done().1)?;
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.begin(cx, bundle).map(drop)
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some((mut unit, bundle)) = self.now.take() else { return Ok(true) };
        if !unit.advance(cx)? {
            self.now = Some((unit, bundle));
            return Ok(false);
        }
        self.settle(cx.engine, unit.done().1)?;
        self.begin(cx, bundle)
    }
}
