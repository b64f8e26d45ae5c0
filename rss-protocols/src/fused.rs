//! A linear layer, its truncation and its ReLU in one.
//!
//! The truncation's halves `A = a >> t` and `B`, known to the pivot and to both others after one
//! exchange, have the truncated value as their sum modulo `2^(64 - t)`. Its sign is taken on them while
//! the pivot's words are still on their way, and the selection takes the halves as they are: the wrap
//! term `na nb 2^(64 - t)` needs no exchange of its own, since
//! `bit z = (1 - 2v)(uA + nb uN + uB) + v (A + nb N + B)` with `N = na 2^(64 - t)` is linear in what
//! the pivot shares (`A`, `uA`, `u`, and `na`, `u na` modulo `2^t`) once `v` and `nb` are known.
//!
//! Cost at `t = 20`, `early` or not: 648 or 688 bits in all and 6 rounds, 20 fewer than truncating
//! and selecting one after the other. The exchange of fields (2t bits) goes, `u na` (t bits) comes.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    compare::{Opening, Question, Stage},
    cut::Spots,
    halves::{Halves, Value},
    kernels::{BitLead, EarlySum, RoundReluLead, SelectOther, WholeSum, WrapShares},
    launch::{made_into, whole, words, words_into},
    links::Reader,
    plan::Plan,
    random::{Draw, Pair, Streams},
    seat::{Role, Seat},
    share::add_into,
    unit::{Cx, Unit},
};

/// What precedes the ReLU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rectify {
    /// Bits dropped.
    pub bits: u32,
    /// Halves are rounded before they are sent.
    pub early: bool,
}

/// The second's draws and the third's of what the pivot shares.
struct Masks {
    u: Draw,
    half: Draw,
    product: Draw,
    na: Draw,
    u_na: Draw,
    /// Components 1 and 2 of the result.
    y: [Draw; 2],
}

/// What the second or the third has of the truncated value.
struct Parts<T> {
    /// Component 3 without the wrap.
    base: T,
    /// Its share of `A` and of `uA`, wrap included.
    alpha: T,
    product: T,
}

/// A fused layer of one part.
pub(crate) struct ReluUnit<T: EngineTensor> {
    seat: Seat,
    streams: Streams,
    halves: Halves<T>,
    bits: u32,
    opening: Opening,
    masks: Masks,
    bundle: Option<Reader>,
    /// The third's share of `u`.
    u: Option<T>,
    parts: Option<Parts<T>>,
    stage: Option<Stage<T>>,
    top: Option<T>,
    left: usize,
    sent: Option<[T; 2]>,
    /// Where the result belongs.
    spots: Spots<T>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> ReluUnit<T> {
    pub fn new(
        seat: Seat,
        mut streams: Streams,
        value: Value<T>,
        how: Rectify,
        plan: Arc<Plan>,
        spots: Spots<T>,
    ) -> Self {
        let n = spots.len;
        let bits = how.bits;
        let halves = Halves::new(value, &mut streams, n, how.early.then_some(bits));
        let question = Question { plan, top: true, low: bits };
        let opening = Opening::new(question, &mut streams, n, false);
        let mut draw = |pair| streams.draw(pair, n);
        let masks = Masks {
            u: draw(Pair::K12),
            half: draw(Pair::K13),
            product: draw(Pair::K13),
            na: draw(Pair::K12),
            u_na: draw(Pair::K12),
            y: [draw(Pair::K13), draw(Pair::K12)],
        };
        let left = opening.exchanges();
        let (bundle, u, parts, stage) = (None, None, None, None);
        let (top, sent, result) = (None, None, None);
        Self {
            seat,
            streams,
            halves,
            bits,
            opening,
            masks,
            bundle,
            u,
            parts,
            stage,
            top,
            left,
            sent,
            spots,
            result,
        }
    }

    /// The seat, and the role's components of the result.
    pub fn done(self) -> (Seat, Option<(T, T)>) {
        (self.seat, self.result)
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.halves.n])?)
    }

    /// Planes of `na` and `u na`.
    fn fields(&self) -> [usize; 2] {
        [self.bits as usize, self.halves.n.div_ceil(64)]
    }

    /// Both halves of `b` are there: the circuit starts, and what does not depend on the sign is made.
    fn begin<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (t, shape, n) = (self.bits, self.shape()?, self.halves.n);
        let early = self.halves.early();
        let (own, other) = self.halves.receive(cx, &self.seat)?;
        let sources = [whole(&own), other.as_ref().map_or(cx.zero(), whole)];
        let [hi, base] = match early {
            true => words(cx.engine, &EarlySum { t }, &shape, sources, &[])?,
            false => words(cx.engine, &WholeSum { t }, &shape, sources, &[])?,
        };
        let mut bundle = self.bundle.take().expect("the pivot's words are there");
        let (stage, top) = self.opening.start(cx, &self.seat, &self.streams, &mut bundle, &hi)?;
        (self.stage, self.top) = (Some(stage), top);
        let (engine, streams, masks) = (cx.engine, &self.streams, &self.masks);
        let mut word = || bundle.words(engine, n);
        let [alpha, product] = match self.seat.role {
            Role::Second => {
                let (half, product) = (word()?, word()?);
                let (e, f) = (streams.words(masks.na), streams.words(masks.u_na));
                let sources = [whole(&hi), e, f, whole(&half), whole(&product)];
                words(engine, &WrapShares { t }, &shape, sources, &[])?
            }
            _ => {
                self.u = Some(word()?);
                let [planes, cols] = self.fields();
                let mut field = || -> Result<T> {
                    let planes = bundle.planes(engine, planes, cols)?;
                    Ok(engine.from_planes(&planes, 0, &shape)?)
                };
                let (e, f) = (field()?, field()?);
                let (half, product) = (streams.words(masks.half), streams.words(masks.product));
                let sources = [whole(&hi), whole(&e), whole(&f), half, product];
                words(engine, &WrapShares { t }, &shape, sources, &[])?
            }
        };
        self.parts = Some(Parts { base, alpha, product });
        Ok(())
    }

    /// The sign is known: the summands of component 3 leave.
    fn settle<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>, v: &T) -> Result<()> {
        let shape = self.shape()?;
        let v = cx.engine.from_planes(v, 0, &shape)?;
        let Parts { base, alpha, product } = self.parts.take().expect("made at the start");
        let (streams, second) = (&self.streams, self.seat.role == Role::Second);
        let u = match &self.u {
            Some(u) => whole(u),
            None => streams.words(self.masks.u),
        };
        let y = streams.words(self.masks.y[usize::from(second)]);
        let all = [if second { u64::MAX } else { 0 }];
        let sources = [whole(&v), u, whole(&product), whole(&base), whole(&alpha), y];
        let places = [None, self.spots.shared(&self.seat)];
        let sent = words_into(cx.engine, &SelectOther, &shape, sources, &all, places)?;
        cx.put(self.seat.partner(), &sent[0])?;
        self.sent = Some(sent);
        Ok(())
    }
}

impl<E: Engine> Unit<E> for ReluUnit<E::Tensor> {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn bundle(&self) -> [usize; 2] {
        let n = self.halves.n;
        let [second, third] = self.opening.bundle();
        let [planes, cols] = self.fields();
        [second + 2 * n, third + n + 2 * planes * cols]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (t, shape) = (self.bits, self.shape()?);
        let (engine, streams, masks) = (cx.engine, &self.streams, &self.masks);
        let a = self.halves.pivot(cx, streams)?;
        let [u, _] = self.opening.lead(cx, &self.seat, streams, &a)?;
        let u = engine.from_planes(&u, 0, &shape)?;
        // Where the value is not negative.
        let flip = [1];
        let [u3] = words(engine, &BitLead, &shape, [whole(&u), streams.words(masks.u)], &flip)?;
        cx.put(self.seat.third(), &u3)?;
        let [y1, d3, e12, f12] =
            [masks.half, masks.product, masks.na, masks.u_na].map(|draw| streams.words(draw));
        let sources = [whole(&a), whole(&u), y1, d3, e12, f12];
        let [y2, d2, e3, f3] = words(engine, &RoundReluLead { t }, &shape, sources, &flip)?;
        cx.put(self.seat.second(), &y2)?;
        cx.put(self.seat.second(), &d2)?;
        for field in [e3, f3] {
            let planes = engine.to_planes(&field, 0, t)?;
            cx.put(self.seat.third(), &planes)?;
        }
        let [y1, y2] = masks.y.map(|draw| streams.words(draw));
        let y1 = made_into(engine, &shape, y1, self.spots.first())?;
        let y2 = made_into(engine, &shape, y2, self.spots.second())?;
        self.result = Some((y1, y2));
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.halves.announce(cx, &self.seat, &self.streams)
    }

    fn start(&mut self, _cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.bundle = Some(bundle);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        if self.bundle.is_some() {
            return self.begin(cx).map(|()| false);
        }
        if let Some([summand, shared]) = self.sent.take() {
            let n = self.halves.n;
            let other = cx.receive(self.seat.partner(), n)?.words(cx.engine, n)?;
            let y3 = add_into(cx.engine, &summand, &other, self.spots.joint(&self.seat))?;
            let second = self.seat.role == Role::Second;
            self.result = Some(if second { (shared, y3) } else { (y3, shared) });
            return Ok(true);
        }
        let stage = self.stage.take().expect("the sign is under way");
        let (top, left) = (self.top.as_ref(), &mut self.left);
        match self.opening.advance(cx, &self.seat, &self.streams, stage, top, left)? {
            Stage::Known(v) => self.settle(cx, &v)?,
            stage => self.stage = Some(stage),
        }
        Ok(false)
    }
}
