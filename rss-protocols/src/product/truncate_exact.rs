//! Exact division by a power of two, and with a coin that no party's view determines.
//!
//! `z = a + b` as in [`crate::product::truncate`]; the carry of the low `t` bits into the rest comes from a
//! comparison's circuit, is opened under a mask of the pivot, and is added as an arithmetic bit in
//! the message that carries the wrap term. Realises the floor itself: 489 bits and 5 rounds at `t = 20`.
//! With a coin `r = r1 + r23 mod 2^t`, `r1` known to the pivot and `r23` to both others, it is
//! stochastic rounding with a coin independent of every view: 638 bits.

use std::sync::Arc;

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    circuit::schedule::Plan,
    compare::protocol::{Opening, Question, Stage},
    kernels::{Coin, Copy, Difference, ExactEnd, ExactLead, TakeCarry, WithCoin},
    product::split::{Halves, Value},
    runtime::chunks::Spots,
    runtime::launch::{whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
    share::add_into,
};

/// What is to be done exactly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exactly {
    pub bits: u32,
    pub dither: bool,
}

/// A carry, opened, and the words that its mask becomes.
struct Carry<T> {
    opening: Opening,
    /// The second's share of the mask.
    u: Draw,
    stage: Option<Stage<T>>,
    left: usize,
    /// At the third: its share of the mask.
    dealt: Option<T>,
}

/// Exact truncation of one part.
pub(crate) struct ExactUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    halves: Halves<T>,
    how: Exactly,
    /// Of the low bits of `a` and `b`, and of the two parts of the coin.
    carries: Vec<Carry<T>>,
    coins: [Draw; 2],
    /// `e12`, `m12`, `y1`, `m13`.
    masks: [Draw; 4],
    bundle: Option<Reader>,
    b: Option<T>,
    dealt: Option<T>,
    summand: Option<[T; 2]>,
    /// Where the result belongs.
    spots: Spots<T>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> Carry<T> {
    fn new(plan: Arc<Plan>, streams: &mut Streams, n: usize) -> Self {
        let question = Question { plan, top: false, low: 0 };
        let opening = Opening::new(question, streams, n, false);
        let left = opening.exchanges();
        let u = streams.draw(Key::Left, n);
        planted!("exact: u bare", u = streams.blank(Key::Left, n));
        Self { opening, u, stage: None, left, dealt: None }
    }

    fn bundle(&self, n: usize) -> [usize; 2] {
        let [second, third] = self.opening.bundle();
        [second, third + n]
    }

    fn lead<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        a: &T,
    ) -> Result<()> {
        let [u, _] = self.opening.lead(cx, roles, streams, a)?;
        let u = cx.engine.from_planes(&u, 0, a.shape())?;
        let sources = [whole(&u), streams.words(self.u)];
        let [u3] = words(cx.engine, &Difference, a.shape(), sources, &[])?;
        cx.put(roles.right(), &u3)
    }

    fn start<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
        bundle: &mut Reader,
        b: &T,
    ) -> Result<()> {
        let (stage, _) = self.opening.start(cx, roles, streams, bundle, b)?;
        self.stage = Some(stage);
        if roles.role == Role::Right {
            self.dealt = Some(bundle.words(cx.engine, b.len())?);
        }
        Ok(())
    }

    /// One exchange; whether the carry is known.
    fn advance<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        roles: &Roles,
        streams: &Streams,
    ) -> Result<bool> {
        let stage = self.stage.take().expect("a carry under way");
        let left = &mut self.left;
        let stage = self.opening.advance(cx, roles, streams, stage, None, left)?;
        let known = matches!(stage, Stage::Known(_));
        self.stage = Some(stage);
        Ok(known)
    }

    fn word<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, shape: &Shape) -> Result<T> {
        match &self.stage {
            Some(Stage::Known(v)) => Ok(cx.engine.from_planes(v, 0, shape)?),
            _ => unreachable!("the carry is known"),
        }
    }
}

impl<T: EngineTensor> ExactUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: Value<T>,
        how: Exactly,
        plan: Arc<Plan>,
        spots: Spots<T>,
    ) -> Self {
        let n = spots.len;
        let halves = Halves::new(value, &mut streams, n, None);
        let count = if how.dither { 2 } else { 1 };
        let carries = (0..count).map(|_| Carry::new(plan.clone(), &mut streams, n)).collect();
        let coins = if how.dither { n } else { 0 };
        let own = Key::Own;
        planted!("dither: the second knows the pivot's coin", own = Key::Left);
        let coins = [own, Key::Peers].map(|pair| streams.draw(pair, coins));
        let masks =
            [Key::Left, Key::Left, Key::Right, Key::Right].map(|pair| streams.draw(pair, n));
        planted!("exact: m12 = e12", masks = [masks[0], masks[0], masks[2], masks[3]]);
        planted!("exact: m13 = y1", masks = [masks[0], masks[1], masks[2], masks[2]]);
        let (bundle, b, dealt, summand, result) = (None, None, None, None, None);
        Self {
            roles,
            streams,
            halves,
            how,
            carries,
            coins,
            masks,
            bundle,
            b,
            dealt,
            summand,
            spots,
            result,
        }
    }

    /// The roles, and the role's components of the result.
    pub fn done(self) -> (Roles, Option<(T, T)>) {
        (self.roles, self.result)
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.halves.n])?)
    }

    fn field(&self) -> [usize; 2] {
        [self.how.bits as usize, self.halves.n.div_ceil(64)]
    }

    /// Both halves of `b` are there: the circuits start.
    fn begin<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (own, other) = self.halves.receive(cx, &self.roles)?;
        let (t, shape) = (self.how.bits, self.shape()?);
        let other = other.as_ref().map_or(cx.zero(), whole);
        let dither = self.how.dither;
        let coin = || if dither { self.streams.words(self.coins[1]) } else { cx.zero() };
        let [b] = words(cx.engine, &WithCoin { t }, &shape, [whole(&own), other, coin()], &[])?;
        let mut compared = vec![b.clone()];
        if dither {
            let [coin] = words(cx.engine, &Copy, &shape, [coin()], &[])?;
            compared.push(coin);
        }
        let mut bundle = self.bundle.take().expect("the pivot's words are there");
        for (carry, b) in self.carries.iter_mut().zip(&compared) {
            carry.start(cx, &self.roles, &self.streams, &mut bundle, b)?;
        }
        self.dealt = Some(match self.roles.role {
            Role::Left => bundle.words(cx.engine, self.halves.n)?,
            _ => {
                let [planes, cols] = self.field();
                let planes = bundle.planes(cx.engine, planes, cols)?;
                cx.engine.from_planes(&planes, 0, &shape)?
            }
        });
        self.b = Some(b);
        Ok(())
    }

    /// All carries are known: the summands of component 3 leave.
    fn settle<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (shape, t, streams) = (self.shape()?, self.how.bits, &self.streams);
        let second = self.roles.role == Role::Left;
        let all = [if second { u64::MAX } else { 0 }];
        let dealt = self.dealt.take().expect("read at the start");
        let b = self.b.take().expect("known since the start");
        let [e12, m12, y1, m13] = self.masks;
        let (e, m, y) = match second {
            true => (streams.words(e12), streams.words(m12), whole(&dealt)),
            false => (whole(&dealt), streams.words(m13), streams.words(y1)),
        };
        let mask = |carry| mask_share(carry, streams);
        let v = self.carries[0].word(cx, &shape)?;
        let sources = [whole(&b), e, mask(&self.carries[0]), whole(&v), m, y];
        let (end, places) = (ExactEnd { t }, [None, self.spots.shared(&self.roles)]);
        let [mut summand, shared] = words_into(cx.engine, &end, &shape, sources, &all, places)?;
        let coin = self.carries.get(1);
        planted!("dither: the coin's carry stays", coin = None);
        if let Some(coin) = coin {
            let v = coin.word(cx, &shape)?;
            let sources = [whole(&summand), mask(coin), whole(&v)];
            let [less] = words(cx.engine, &TakeCarry, &shape, sources, &all)?;
            summand = less;
        }
        cx.put(self.roles.peer(), &summand)?;
        self.summand = Some([summand, shared]);
        Ok(())
    }
}

/// This party's share of the mask of a carry, as words.
fn mask_share<'a, T: EngineTensor>(
    carry: &'a Carry<T>,
    streams: &'a Streams,
) -> ring_arith::Source<'a, T> {
    match &carry.dealt {
        Some(dealt) => whole(dealt),
        None => streams.words(carry.u),
    }
}

impl<E: Engine> Unit<E> for ExactUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let n = self.halves.n;
        let field: usize = self.field().iter().product();
        self.carries.iter().fold([n, field], |[second, third], carry| {
            let more = carry.bundle(n);
            [second + more[0], third + more[1]]
        })
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (t, shape, streams) = (self.how.bits, self.shape()?, &self.streams);
        let mut a = self.halves.pivot(cx, streams)?;
        let mut compared = Vec::new();
        if self.how.dither {
            let sources = [whole(&a), streams.words(self.coins[0])];
            let [sum, coin] = words(cx.engine, &Coin { t }, &shape, sources, &[])?;
            (a, compared) = (sum, vec![coin]);
        }
        compared.insert(0, a.clone());
        for (carry, a) in self.carries.iter().zip(&compared) {
            carry.lead(cx, &self.roles, streams, a)?;
        }
        let [e12, m12, y1, m13] = self.masks.map(|draw| streams.words(draw));
        let sources = [whole(&a), e12, m12, y1, m13];
        let places = [self.spots.first(), self.spots.second(), None, None];
        let lead = ExactLead { t };
        let [c1, c2, y2, e3] = words_into(cx.engine, &lead, &shape, sources, &[], places)?;
        cx.put(self.roles.left(), &y2)?;
        let field = cx.engine.to_planes(&e3, 0, t)?;
        cx.put(self.roles.right(), &field)?;
        self.result = Some((c1, c2));
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.halves.announce(cx, &self.roles, &self.streams)
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.bundle = Some(bundle);
        // Nothing has to be exchanged first if b is known.
        if self.halves.exchanged() { Ok(()) } else { self.begin(cx) }
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        if self.bundle.is_some() {
            return self.begin(cx).map(|()| false);
        }
        let Some([summand, shared]) = self.summand.take() else {
            let mut known = true;
            for carry in &mut self.carries {
                known &= carry.advance(cx, &self.roles, &self.streams)?;
            }
            return if known { self.settle(cx).map(|()| false) } else { Ok(false) };
        };
        let n = self.halves.n;
        let other = cx.receive(self.roles.peer(), n)?.words(cx.engine, n)?;
        let y3 = add_into(cx.engine, &summand, &other, self.spots.joint(&self.roles))?;
        let second = self.roles.role == Role::Left;
        self.result = Some(if second { (shared, y3) } else { (y3, shared) });
        Ok(true)
    }
}
