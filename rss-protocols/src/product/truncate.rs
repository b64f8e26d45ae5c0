//! Products, and their division by a power of two, in two rounds.
//!
//! `z = a + b` as in [`crate::product::split`]. With the offset `2^62`, `a + b` wraps exactly unless both top
//! bits are 0, `wrap = 1 - na nb`. The pivot shares `na` modulo `2^t` between the others and gives
//! component 2 to the second; the others exchange `t` bits each for component 3,
//! `ceil(b / 2^t) - 2^(64 - t) (1 - na nb) - 2^(62 - t)`. The result is the floor, or one more with
//! probability exactly the fraction: there is no large-error event (unlike the local truncation of
//! ABY3 and CryptGPU, kept here as `Aby`).

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Source};

use crate::{
    kernels::{AbyPivot, AbyShift, Difference, EarlyTop, RoundLead, RoundTop},
    product::split::{Halves, Value},
    runtime::chunks::Spots,
    runtime::launch::{made_into, map, whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
    share::add_into,
};

/// What is done with a value that two sides know in halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// It is shared as it is. 192 bits.
    Raw,
    /// Floor or floor + 1. 192 + 3t bits.
    Default(u32),
    /// The halves are rounded before they are sent. 192 + t bits.
    Early(u32),
    /// Each side shifts alone, and wrongly if the halves wrap. 192 bits.
    Aby(u32),
}

/// Masks of one part.
struct Masks {
    /// The second's share of the pivot's top bit.
    e12: Draw,
    /// What hides the second's field from the third.
    m12: Draw,
    /// What hides the third's from the second.
    m13: Draw,
    /// Component 1 of the quotient.
    y1: Draw,
}

/// A product or a truncation of one part.
pub(crate) struct TruncateUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    halves: Halves<T>,
    rounding: Rounding,
    masks: Masks,
    /// At the others: what the pivot sent.
    dealt: Vec<T>,
    /// Component 3 as far as it is known.
    partial: Option<T>,
    /// Where the result belongs.
    spots: Spots<T>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> TruncateUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: Value<T>,
        rounding: Rounding,
        spots: Spots<T>,
    ) -> Self {
        let n = spots.len;
        let early = if let Rounding::Early(t) = rounding { Some(t) } else { None };
        let halves = Halves::new(value, &mut streams, n, early);
        let masks = Masks::new(&mut streams, n, rounding);
        let (dealt, partial, result) = (Vec::new(), None, None);
        Self { roles, streams, halves, rounding, masks, dealt, partial, spots, result }
    }

    /// The roles, and the role's components of the result.
    pub fn done(self) -> (Roles, Option<(T, T)>) {
        (self.roles, self.result)
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.halves.n])?)
    }

    /// Words of planes of `t` bits.
    fn field(&self, t: u32) -> [usize; 2] {
        [t as usize, self.halves.n.div_ceil(64)]
    }

    fn bits(&self) -> Option<u32> {
        match self.rounding {
            Rounding::Default(t) | Rounding::Early(t) => Some(t),
            Rounding::Raw | Rounding::Aby(_) => None,
        }
    }

    /// Component 1 or 2 at the others, unmasked: what the pivot sent, or a stream.
    fn shared(&self) -> Source<'_, T> {
        match self.roles.role {
            Role::Left => whole(&self.dealt[0]),
            _ => self.streams.words(self.masks.y1),
        }
    }

    /// After both halves of `b` are there, without a field to exchange.
    fn settle<E: Engine<Tensor = T>>(
        &mut self,
        cx: &Cx<'_, E>,
        own: T,
        other: Option<T>,
    ) -> Result<()> {
        let b = match &other {
            Some(other) => add_into(cx.engine, &own, other, self.spots.joint(&self.roles))?,
            None => own,
        };
        let y3 = match self.rounding {
            Rounding::Aby(t) => map(cx.engine, &AbyShift { t }, b.shape(), [&b], &[])?,
            _ => b,
        };
        let place = self.spots.shared(&self.roles);
        let shared = made_into(cx.engine, &self.shape()?, self.shared(), place)?;
        self.finish(shared, y3);
        Ok(())
    }

    fn finish(&mut self, shared: T, y3: T) {
        let second = self.roles.role == Role::Left;
        self.result = Some(if second { (shared, y3) } else { (y3, shared) });
    }

    /// The fields of the wrap term leave.
    fn round<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        t: u32,
        own: &T,
        other: Option<&T>,
    ) -> Result<()> {
        let (streams, masks) = (&self.streams, &self.masks);
        let (e, m) = match self.roles.role {
            Role::Left => (streams.words(masks.e12), streams.words(masks.m12)),
            _ => (whole(&self.dealt[0]), streams.words(masks.m13)),
        };
        let other = other.map_or(cx.zero(), whole);
        let sources = [whole(own), other, e, m, self.shared()];
        let shape = self.shape()?;
        let places = [None, None, self.spots.shared(&self.roles)];
        let [partial, field, shared] = match self.halves.early() {
            true => words_into(cx.engine, &EarlyTop { t }, &shape, sources, &[], places)?,
            false => words_into(cx.engine, &RoundTop { t }, &shape, sources, &[], places)?,
        };
        let field = cx.engine.to_planes(&field, 0, t)?;
        cx.put(self.roles.peer(), &field)?;
        self.partial = Some(partial);
        self.dealt = vec![shared];
        Ok(())
    }
}

impl Masks {
    fn new(streams: &mut Streams, n: usize, rounding: Rounding) -> Self {
        let (t, fields) = match rounding {
            Rounding::Default(t) | Rounding::Early(t) => (t, n),
            _ => (1, 0),
        };
        let e12 = streams.draw(Key::Left, fields);
        // The low and the high bits of one word, unless they meet.
        let apart = t <= 32;
        planted!("truncation: both ends of a word for fields that meet", apart = true);
        let m12 = if apart { e12 } else { streams.draw(Key::Left, fields) };
        let m13 = streams.draw(Key::Right, fields);
        let y1 = streams.draw(Key::Right, n);
        planted!("truncation: m12 off", m12 = streams.blank(Key::Left, fields));
        planted!("truncation: m13 off", m13 = streams.blank(Key::Right, fields));
        planted!("truncation: y1 off", y1 = streams.blank(Key::Right, n));
        planted!("truncation: e12 off", e12 = streams.blank(Key::Left, fields));
        Self { e12, m12, m13, y1 }
    }
}

impl<E: Engine> Unit<E> for TruncateUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        [self.halves.n, self.bits().map_or(0, |t| self.field(t).iter().product())]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (streams, masks, engine) = (&self.streams, &self.masks, cx.engine);
        let a = self.halves.pivot(cx, streams)?;
        let (shape, y1) = (self.shape()?, || streams.words(masks.y1));
        let spots = &self.spots;
        let [y1, y2, to_second] = match self.rounding {
            Rounding::Raw => {
                let y1 = made_into(engine, &shape, y1(), spots.first())?;
                let sources = [whole(&a), whole(&y1)];
                let place = [spots.second()];
                let [y2] = words_into(engine, &Difference, &shape, sources, &[], place)?;
                [y1, y2.clone(), y2]
            }
            Rounding::Aby(t) => {
                let [y1, y2] = words(engine, &AbyPivot { t }, &shape, [whole(&a), y1()], &[])?;
                [y1, y2.clone(), y2]
            }
            Rounding::Default(t) | Rounding::Early(t) => {
                let [e12, m12, m13] =
                    [masks.e12, masks.m12, masks.m13].map(|draw| streams.words(draw));
                let sources = [whole(&a), e12, m12, y1(), m13];
                let places = [spots.first(), spots.second(), None, None];
                let lead = RoundLead { t };
                let [c1, c2, y2, e3] = words_into(engine, &lead, &shape, sources, &[], places)?;
                let field = engine.to_planes(&e3, 0, t)?;
                cx.put(self.roles.right(), &field)?;
                [c1, c2, y2]
            }
        };
        cx.put(self.roles.left(), &to_second)?;
        self.result = Some((y1, y2));
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.halves.announce(cx, &self.roles, &self.streams)
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let dealt = match (self.roles.role, self.bits()) {
            (Role::Left, _) => Some(bundle.words(cx.engine, self.halves.n)?),
            (_, Some(t)) => {
                let [planes, cols] = self.field(t);
                let planes = bundle.planes(cx.engine, planes, cols)?;
                Some(cx.engine.from_planes(&planes, 0, &self.shape()?)?)
            }
            _ => None,
        };
        self.dealt.extend(dealt);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        let Some(partial) = self.partial.take() else {
            let (own, other) = self.halves.receive(cx, &self.roles)?;
            return match self.bits() {
                Some(t) => self.round(cx, t, &own, other.as_ref()).map(|()| false),
                None => self.settle(cx, own, other).map(|()| true),
            };
        };
        let t = self.bits().expect("a field is exchanged for a truncation");
        let [planes, cols] = self.field(t);
        let mut reader = cx.receive(self.roles.peer(), planes * cols)?;
        let planes = reader.planes(cx.engine, planes, cols)?;
        let field = cx.engine.from_planes(&planes, 64 - t, &self.shape()?)?;
        let y3 = add_into(cx.engine, &partial, &field, self.spots.joint(&self.roles))?;
        let shared = self.dealt.pop().expect("computed before");
        self.finish(shared, y3);
        Ok(true)
    }
}
