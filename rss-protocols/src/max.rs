//! Largest elements by tournament, the pivot running ahead.
//!
//! The components that the pivot knows of a comparison's result are streams, so it plays all levels
//! before anybody else has begun; the others need five rounds a level (by threes).
//! Cost at width 44: 456 bits for each comparison, 648 with the position; `1 + 5 ceil(log2 k)` rounds.

use std::sync::Arc;

use mpc_core::{Result, ShareTensor};
use ring_arith::{Engine, EngineTensor, Shape, Tensor, View};

use crate::{
    Rss, Share,
    compare::{CompareUnit, Purpose},
    cut::{Piece, Rooms, SMALL},
    kernels::{Difference, Negate},
    launch::{flat, invalid, map, slice},
    links::Reader,
    plan::{Goal, Plan},
    random::Streams,
    seat::{Role, Seat},
    select::Follow,
    share::add,
    unit::{self, Cx, Unit},
};

impl<E: Engine> Rss<E> {
    /// The largest of each row of the last axis, and its position if that is asked for.
    pub(crate) fn largest(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        index: bool,
    ) -> Result<(Share<E::Tensor>, Option<Share<E::Tensor>>)> {
        let shape = x.shape().clone();
        let Some((&k, outer)) = shape.dims().split_last().filter(|(k, _)| **k > 0) else {
            let reason = format!("shape {shape:?} has no elements along its last axis");
            return Err(invalid("max", reason));
        };
        if !(2..=64).contains(&width) {
            return Err(invalid("max", format!("width {width} is not 2 to 64")));
        }
        let rows: usize = outer.iter().product();
        let plan = self.plan(Goal::Carry, width as usize - 1);
        let mut nodes = vec![x.clone()];
        if index {
            nodes.push(self.positions(&shape, k)?);
        }
        let pieces = match rows * k {
            n if n < SMALL => vec![Piece::whole(rows, self.turns.next(n))],
            _ => self.options.parts.parts(rows, 1),
        };
        let mut units = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let seat = piece.seat(self.party());
            let nodes = nodes.iter().map(|node| self.rows_of(node, piece, &seat, k));
            let nodes = nodes.collect::<Result<Vec<_>>>()?;
            let mut levels = Vec::new();
            let mut len = k;
            while len > 1 {
                levels.push(Some(self.seat(piece).1));
                len = len.div_ceil(2);
            }
            let rows = piece.len();
            units.push(MaxUnit {
                seat,
                rows,
                len: k,
                plan: plan.clone(),
                levels,
                nodes,
                now: None,
            });
        }
        unit::run(&mut self.cx(), &mut units)?;
        let done = pieces.into_iter().zip(units).map(|(piece, unit)| {
            let seat = unit.seat;
            let mut results = Vec::with_capacity(unit.nodes.len());
            for (one, two) in unit.nodes {
                results.push((flat(&self.engine, &one)?, flat(&self.engine, &two)?));
            }
            Ok((piece, seat, results))
        });
        let done = done.collect::<Result<Vec<_>>>()?;
        let last = Shape::new([outer, &[1]].concat())?;
        let rooms: Vec<_> = nodes.iter().map(|_| Rooms::none()).collect();
        let mut results = self.collect(done, &rooms, &last)?.into_iter();
        let top = results.next().expect("the largest elements");
        Ok((top, results.next()))
    }

    /// Every element's place along the last axis, as a public share.
    fn positions(&self, shape: &Shape, k: usize) -> Result<Share<E::Tensor>> {
        let words = (0..shape.len()).map(|i| (i % k) as u64).collect();
        self.public(&self.engine.upload(Tensor::new(shape.clone(), words)?)?)
    }

    /// The role's components of some rows.
    fn rows_of(
        &self,
        x: &Share<E::Tensor>,
        piece: &Piece,
        seat: &Seat,
        k: usize,
    ) -> Result<(E::Tensor, E::Tensor)> {
        let rows = x.shape().len() / k;
        let part = |side: &E::Tensor| -> Result<E::Tensor> {
            let all = self.engine.view(side, &View::Reshape(Shape::new([rows, k])?))?;
            Ok(slice(&self.engine, &all, 0, piece.range.start, piece.range.end)?)
        };
        Ok(seat.order(part(x.mine())?, part(x.next())?))
    }
}

/// A tournament of one part.
struct MaxUnit<T: EngineTensor> {
    seat: Seat,
    rows: usize,
    /// Nodes of a row that are left.
    len: usize,
    plan: Arc<Plan>,
    /// The streams of each level, until it is played.
    levels: Vec<Option<Streams>>,
    /// The role's components of `[rows, len]` values and, where asked for, positions.
    nodes: Vec<(T, T)>,
    /// The level under way at the second or the third: its comparison, the left ones of each pair,
    /// and what is left of the pivot's words.
    now: Option<(CompareUnit<T>, Vec<(T, T)>, Reader)>,
}

impl<T: EngineTensor> MaxUnit<T> {
    /// The comparison of the next level, and the left ones of each pair.
    fn level<E: Engine<Tensor = T>>(
        &mut self,
        engine: &E,
    ) -> Result<Option<(CompareUnit<T>, Vec<(T, T)>)>> {
        if self.len == 1 {
            return Ok(None);
        }
        let streams = self.levels.iter_mut().find_map(Option::take);
        let streams = streams.expect("a level for each halving");
        let pairs = self.len / 2;
        let every_other = |x: &T, start: usize| -> Result<T> {
            let view = View::Slice { axis: 1, start, end: 2 * pairs, step: 2 };
            Ok(flat(engine, &engine.view(x, &view)?)?)
        };
        let (mut left, mut gains) = (Vec::new(), Vec::new());
        for (one, two) in &self.nodes {
            let mut gain = Vec::with_capacity(2);
            let mut low = Vec::with_capacity(2);
            for side in [one, two] {
                let (l, r) = (every_other(side, 0)?, every_other(side, 1)?);
                gain.push(map(engine, &Difference, l.shape(), [&r, &l], &[])?);
                low.push(l);
            }
            let pair = |mut list: Vec<T>| -> (T, T) {
                let second = list.pop().expect("two components");
                (list.pop().expect("two components"), second)
            };
            left.push(pair(low));
            gains.push(pair(gain));
        }
        // left - right < 0 exactly if the right one is larger, so that equals keep the left one.
        let negate = |x: &T| map(engine, &Negate, x.shape(), [x], &[]);
        let value = (negate(&gains[0].0)?, negate(&gains[0].1)?);
        let purpose = Purpose::Follow { flip: false, follow: Follow::Words(gains) };
        let plan = self.plan.clone();
        Ok(Some((CompareUnit::new(self.seat, streams, value, plan, purpose, Vec::new()), left)))
    }

    /// Takes over the winners of a level.
    fn settle<E: Engine<Tensor = T>>(
        &mut self,
        engine: &E,
        left: Vec<(T, T)>,
        gains: Vec<(T, T)>,
    ) -> Result<()> {
        let (rows, len) = (self.rows, self.len);
        let next = |old: &T, left: &T, gain: &T| -> Result<T> {
            let winner = add(engine, left, gain)?;
            let winner = engine.view(&winner, &View::Reshape(Shape::new([rows, len / 2])?))?;
            if len % 2 == 0 {
                return Ok(winner);
            }
            let odd = slice(engine, old, 1, len - 1, len)?;
            Ok(engine.concat(&[&winner, &odd], 1)?)
        };
        for ((node, left), gain) in self.nodes.iter_mut().zip(&left).zip(&gains) {
            *node = (next(&node.0, &left.0, &gain.0)?, next(&node.1, &left.1, &gain.1)?);
        }
        self.len = len.div_ceil(2);
        Ok(())
    }

    /// Starts the next level at the second or the third; whether there is none.
    fn begin<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<bool> {
        let Some((mut unit, left)) = self.level(cx.engine)? else { return Ok(true) };
        let [second, third] = Unit::<E>::bundle(&unit);
        let words = if self.seat.role == Role::Second { second } else { third };
        let own = bundle.split(words)?;
        unit.start(cx, own)?;
        self.now = Some((unit, left, bundle));
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
            let n = self.rows * (len / 2);
            let [second, third] = self.plan.bundle().map(|planes| planes * n.div_ceil(64));
            all = [all[0] + second + n * self.nodes.len(), all[1] + third + n];
            len = len.div_ceil(2);
        }
        all
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        while let Some((mut unit, left)) = self.level(cx.engine)? {
            unit.lead(cx)?;
            self.settle(cx.engine, left, unit.done().1)?;
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.begin(cx, bundle).map(drop)
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some((mut unit, left, bundle)) = self.now.take() else { return Ok(true) };
        if !unit.advance(cx)? {
            self.now = Some((unit, left, bundle));
            return Ok(false);
        }
        self.settle(cx.engine, left, unit.done().1)?;
        self.begin(cx, bundle)
    }
}
