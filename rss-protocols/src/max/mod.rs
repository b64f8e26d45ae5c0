//! Largest elements by tournament, the pivot running ahead.
//!
//! The components that the pivot knows of a comparison's result are streams, so it plays all levels
//! before anybody else has begun; the others need five rounds a level (by threes).
//! Cost at width 44: 456 bits for each comparison, 648 with the position, 1 more where choices are kept;
//! `1 + 5 ceil(log2 k)` rounds.
//!
//! For slow links four elements meet at once where they are not too many ([`crate::max::of_four`]): `1 + 4 ceil(log4 k)`
//! rounds.

mod gradient;
mod of_four;

use std::sync::Arc;

use mpc_core::{Found, Largest, Profile, Result, ShareTensor};
use ring_arith::{Engine, EngineTensor, Launch, Place, Shape, Source, Target, Tensor, WordKernel};

use crate::{
    BitShare, Rss, Share,
    circuit::schedule::{Goal, Plan},
    compare::protocol::{CompareUnit, OpenedBit, Outcome, Purpose},
    compare::select::{Follow, Wanted},
    kernels::{Copy, Difference, Sum},
    max::of_four::GroupUnit,
    runtime::chunks::{Piece, Rooms, SMALL, Spots, assemble},
    runtime::launch::{invalid, slice},
    runtime::links::Reader,
    runtime::prss::Streams,
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::reusable::Layout,
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
            n if n < SMALL => vec![Piece::whole(results, self.rotation.next(n))],
            _ => self.options.parts.parts(results, 1),
        };
        // Who won is kept of pairs alone.
        let by_fours = self.options.profile == Profile::SlowLinks && !want.choices;
        let mut units = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let roles = piece.roles(self.party());
            let nodes = nodes.iter().map(|(mine, next)| roles.order(mine.clone(), next.clone()));
            let nodes = nodes.collect();
            let mut levels = Vec::new();
            let mut len = k;
            while len > 1 {
                // The same for all pieces: they share rounds.
                let meeting = meeting(by_fours, len, results);
                levels.push(Level { meeting, streams: Some(self.roles(piece).1) });
                len = len / meeting + len % meeting;
            }
            units.push(MaxUnit {
                roles,
                results: piece.len(),
                len: k,
                plan: plan.clone(),
                choices: want.choices.then(Vec::new),
                levels,
                level: 0,
                nodes,
                first: piece.range.start,
                pitch: results,
                now: None,
            });
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let choices = self.choices(&pieces, &mut units, rest)?;
        let done = pieces.into_iter().zip(units).map(|(piece, unit)| {
            let own = |x| slice(&self.engine, x, 0, unit.first, unit.first + unit.results);
            let nodes = unit.nodes.iter().map(|(one, two)| Ok((own(one)?, own(two)?)));
            Ok((piece, unit.roles, nodes.collect::<Result<Vec<_>>>()?))
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
                levels[level].push((piece.clone(), unit.roles, bit));
            }
        }
        let whole = |bits: Vec<(Piece, Roles, (usize, OpenedBit<E::Tensor>))>| {
            let rows = bits[0].2.0;
            let bits =
                bits.into_iter().map(|(piece, roles, (_, bit))| (piece, roles, bit)).collect();
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

/// The most elements at a level at which four meet: the bytes of more are worth the rounds.
const FEW: usize = 1 << 17;

/// How many elements meet at a level that begins with `len` for each of `results`.
fn meeting(by_fours: bool, len: usize, results: usize) -> usize {
    if by_fours && len * results <= FEW { len.min(4) } else { 2 }
}

/// A level of a tournament.
struct Level {
    /// How many elements meet; what is left over goes on as it is.
    meeting: usize,
    /// Its streams, until it is played.
    streams: Option<Streams>,
}

/// A level under way.
enum Round<T: EngineTensor> {
    Pairs(CompareUnit<T>),
    Groups(GroupUnit<T>),
}

impl<T: EngineTensor> Round<T> {
    fn unit<E: Engine<Tensor = T>>(&mut self) -> &mut dyn Unit<E> {
        match self {
            Self::Pairs(unit) => unit,
            Self::Groups(unit) => unit,
        }
    }

    fn done(self) -> Outcome<T> {
        match self {
            Self::Pairs(unit) => unit.done().1,
            Self::Groups(unit) => Outcome { bit: None, words: unit.done() },
        }
    }
}

/// A tournament of one part.
struct MaxUnit<T: EngineTensor> {
    roles: Roles,
    /// How many it has.
    results: usize,
    /// Nodes that are left for each result.
    len: usize,
    plan: Arc<Plan>,
    /// By level, the number of pairs and who won, if that is kept.
    choices: Option<Vec<(usize, OpenedBit<T>)>>,
    levels: Vec<Level>,
    /// The level that is next or under way.
    level: usize,
    /// The role's components of values and, where asked for, positions: those of node `i` begin at word
    /// `first + i * pitch`.
    nodes: Vec<(T, T)>,
    first: usize,
    pitch: usize,
    /// The level under way at the second or the third: its comparison, and what is left of the pivot's
    /// words.
    now: Option<(Round<T>, Reader)>,
}

impl<T: EngineTensor> MaxUnit<T> {
    /// The comparisons of the next level.
    fn round<E: Engine<Tensor = T>>(&mut self, engine: &E) -> Result<Option<Round<T>>> {
        let Some(level) = self.levels.get_mut(self.level) else { return Ok(None) };
        let meeting = level.meeting;
        let streams = level.streams.take().expect("a level is played once");
        if meeting > 2 {
            let member = |x: &T, i| self.groups(engine, &Copy, [self.member(x, i)], None);
            let members = |(one, two): &(T, T)| -> Result<Vec<_>> {
                (0..meeting).map(|i| Ok((member(one, i)?, member(two, i)?))).collect()
            };
            let tensors = self.nodes.iter().map(members).collect::<Result<_>>()?;
            let unit = GroupUnit::new(self.roles, streams, tensors, self.plan.clone());
            return Ok(Some(Round::Groups(unit)));
        }
        let minus = |x: &T, [one, other]: [usize; 2]| {
            let sources = [self.member(x, one), self.member(x, other)];
            self.groups(engine, &Difference, sources, None)
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
        let unit = CompareUnit::new(self.roles, streams, value, self.plan.clone(), purpose);
        Ok(Some(Round::Pairs(unit)))
    }

    /// How many elements meet at the level.
    fn meeting(&self) -> usize {
        self.levels[self.level].meeting
    }

    /// The nodes of all groups that have one place in them. Neighbours meet: earlier ones have lower positions.
    fn member<'a>(&self, x: &'a T, place: usize) -> Source<'a, T> {
        let row_stride = self.meeting() * self.pitch;
        Source::Tensor { tensor: x, offset: self.first + place * self.pitch, row_stride }
    }

    /// Runs a kernel on all groups.
    fn groups<E: Engine<Tensor = T>, const I: usize>(
        &self,
        engine: &E,
        kernel: &impl WordKernel<I, 1>,
        sources: [Source<'_, T>; I],
        place: Option<Place<'_, T>>,
    ) -> Result<T> {
        let (rows, cols) = (self.len / self.meeting(), self.results);
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
        let (results, meeting) = (self.results, self.meeting());
        let (groups, rest) = (self.len / meeting, self.len % meeting);
        let left = groups + rest;
        // Of a pair the gain is on the first, of a group on the last.
        let base = if meeting == 2 { 0 } else { meeting - 1 };
        let next = |old: &T, gain: &T| -> Result<T> {
            // Without a group the last nodes go on as they are.
            let room = if rest == 0 { None } else { engine.room(left * results) };
            let place = room.as_ref().map(|room| Place { room, start: 0 });
            let sources = [self.member(old, base), Source::rows_of(gain, results)];
            let mut parts = vec![(0, self.groups(engine, &Sum, sources, place)?)];
            for i in 0..rest {
                let at = self.first + (groups * meeting + i) * self.pitch;
                parts.push(((groups + i) * results, slice(engine, old, 0, at, at + results)?));
            }
            assemble(engine, room.as_ref(), parts, 0, &Shape::new([left * results])?)
        };
        let nodes = self.nodes.iter().zip(&gains);
        let nodes = nodes.map(|(old, gain)| Ok((next(&old.0, &gain.0)?, next(&old.1, &gain.1)?)));
        self.nodes = nodes.collect::<Result<_>>()?;
        (self.len, self.first, self.pitch) = (left, 0, results);
        self.level += 1;
        Ok(())
    }

    /// Starts the next level at the second or the third; whether there is none.
    fn begin<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<bool> {
        let Some(mut round) = self.round(cx.engine)? else { return Ok(true) };
        let unit = round.unit::<E>();
        let [second, third] = unit.bundle();
        let words = if self.roles.role == Role::Left { second } else { third };
        let own = bundle.split(words)?;
        unit.start(cx, own)?;
        self.now = Some((round, bundle));
        Ok(false)
    }
}

impl<E: Engine> Unit<E> for MaxUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let (mut len, mut all) = (self.len, [0, 0]);
        for &Level { meeting, .. } in &self.levels {
            let (n, tensors) = (self.results * (len / meeting), self.nodes.len());
            let pairs = meeting * (meeting - 1) / 2;
            let cols = (pairs * n).div_ceil(64);
            let [second, third] = self.plan.bundle().map(|planes| planes * cols);
            let bit = if self.choices.is_some() { cols } else { 0 };
            let [parts, bits] = match meeting {
                2 => [tensors, 1],
                _ => of_four::dealt(meeting, tensors),
            };
            all = [all[0] + second + bit + n * parts, all[1] + third + n * bits];
            len = len / meeting + len % meeting;
        }
        all
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        while let Some(mut round) = self.round(cx.engine)? {
            round.unit::<E>().lead(cx)?;
            self.settle(cx.engine, round.done())?;
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.begin(cx, bundle).map(drop)
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some((mut round, bundle)) = self.now.take() else { return Ok(true) };
        if !round.unit::<E>().advance(cx)? {
            self.now = Some((round, bundle));
            return Ok(false);
        }
        self.settle(cx.engine, round.done())?;
        self.begin(cx, bundle)
    }
}
