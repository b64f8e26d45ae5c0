//! A linear layer, its truncation and its ReLU in two rounds, for few elements.
//!
//! As in [`crate::product::relu`] the sign is taken on the truncation's halves `A = a >> t` and `B`. The result is positive
//! where `p ^ v` is 1, for the top bit `v` of `B` and a bit `p` that is a step function of the rest of `B`: its
//! threshold and its direction follow from `A`. The pivot makes keys ([`crate::runtime::fss`]) of `p`, `pA` and `p na` as that
//! function of `B`, so that the others have shares of all three as soon as they know `B`; one exchange makes component 3
//! of the result as of any selection.
//! Cost at `t = 20`: a key of 218 words to each of both others, and 232 bits (`early` 212): 28,136 bits and 2 rounds.

use mpc_core::Result;
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    kernels::{EarlySum, SelectOther, WholeSum, WrapShares},
    product::gated::Drop,
    product::split::{Halves, Value},
    runtime::chunks::Spots,
    runtime::fss::{self, SEED, StepFunction},
    runtime::launch::{made, made_into, whole, words, words_into},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{Cx, Unit},
    share::add_into,
};

/// Values of the keys' function: `p`, `p A` and `p na`.
const VALUES: usize = 3;

/// The most elements for which three rounds are worth the keys.
pub(crate) const MOST: usize = 1600;

/// The most elements that are not cut into parts.
pub(crate) const ALONE: usize = 128;

/// A fused layer of one part.
pub(crate) struct ReluAtOnceUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    halves: Halves<T>,
    how: Drop,
    /// The seeds of the second's keys and of the third's.
    seeds: [Draw; 2],
    /// The third's share of `A`, and the second's of `na`.
    half: Draw,
    na: Draw,
    /// Components 1 and 2 of the result.
    y: [Draw; 2],
    bundle: Option<Reader>,
    sent: Option<[T; 2]>,
    result: Option<(T, T)>,
    spots: Spots<T>,
}

impl<T: EngineTensor> ReluAtOnceUnit<T> {
    pub fn new(
        roles: Roles,
        mut streams: Streams,
        value: Value<T>,
        how: Drop,
        spots: Spots<T>,
    ) -> Self {
        let n = spots.len;
        let halves = Halves::new(value, &mut streams, n, how.early.then_some(how.bits));
        let seeds = [Key::Left, Key::Right].map(|pair| streams.draw(pair, SEED * n));
        let (half, na) = (streams.draw(Key::Right, n), streams.draw(Key::Left, n));
        let y = [Key::Right, Key::Left].map(|pair| streams.draw(pair, n));
        planted!("relu at once: y1 is the mask of A", y = [half, y[1]]);
        planted!("relu at once: y2 is the mask of na", y = [y[0], na]);
        let (bundle, sent, result) = (None, None, None);
        Self { roles, streams, halves, how, seeds, half, na, y, bundle, sent, result, spots }
    }

    /// The roles, and the role's components of the result.
    pub fn done(self) -> (Roles, Option<(T, T)>) {
        (self.roles, self.result)
    }

    fn n(&self) -> usize {
        self.halves.n
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n()])?)
    }

    /// Bits of the halves below their top bit.
    fn bits(&self) -> usize {
        63 - self.how.bits as usize
    }

    /// Words of all keys of one holder.
    fn key_words(&self) -> usize {
        self.n() * fss::words_of::<VALUES>(self.bits())
    }

    /// Planes of `na`.
    fn fields(&self) -> [usize; 2] {
        [self.how.bits as usize, self.n().div_ceil(64)]
    }

    /// The words of a draw.
    fn drawn<E: Engine<Tensor = T>>(&self, engine: &E, draw: Draw, words: usize) -> Result<Tensor> {
        let made = made(engine, &Shape::new([words])?, self.streams.words(draw))?;
        Ok(engine.download(&made)?)
    }

    /// The pivot makes the keys: word `i` of all of them lies together.
    fn make_keys<E: Engine<Tensor = T>>(&self, engine: &E, a: &[u64]) -> Result<T> {
        let (n, bits, t) = (self.n(), self.bits(), self.how.bits);
        let seeds = [
            self.drawn(engine, self.seeds[0], SEED * n)?,
            self.drawn(engine, self.seeds[1], SEED * n)?,
        ];
        let mut all = vec![0; self.key_words()];
        for (at, &a) in a.iter().enumerate() {
            let (half, top) = (a >> t, a >> 63);
            let values = [1, half, 1 - top];
            // p is 1 - top, and the opposite where the bits below carry.
            let low = values.map(|value| value & top.wrapping_sub(1));
            let step = values.map(|value| value.wrapping_mul((top << 1).wrapping_sub(1)));
            // The low bits of both halves carry where those of B are above the complement of A's.
            let threshold = !half & ((1 << bits) - 1);
            planted!("relu at once: a threshold's low bits off", threshold = threshold & !7);
            let function = StepFunction { threshold, low, step };
            let seeds = seeds.each_ref().map(|seeds| [0, 1].map(|i| seeds.words()[i * n + at]));
            let mut word = at;
            fss::make(
                &function,
                bits,
                seeds,
                |_, _, seed| fss::expand(seed),
                |correction| {
                    all[word] = correction;
                    word += n;
                },
            );
        }
        Ok(engine.upload(Tensor::new(Shape::new([self.key_words()])?, all)?)?)
    }

    /// This party's shares of `p`, `p A` and `p na`, given `B` less one unit.
    fn evaluate<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        key: &T,
        hi: &[u64],
    ) -> Result<[T; VALUES]> {
        let (n, bits) = (self.n(), self.bits());
        let holder = usize::from(self.roles.role == Role::Right);
        let seeds = self.drawn(engine, self.seeds[holder], SEED * n)?;
        let key = engine.download(key)?;
        let mut shares = [(); VALUES].map(|()| Vec::with_capacity(n));
        for (at, &hi) in hi.iter().enumerate() {
            let seed = [0, 1].map(|i| seeds.words()[i * n + at]);
            let point = hi & ((1 << bits) - 1);
            let word = |i: usize| key.words()[i * n + at];
            let values = fss::evaluate::<VALUES>(holder, seed, bits, point, word);
            shares.iter_mut().zip(values).for_each(|(share, value)| share.push(value));
        }
        let [p, half, na] = shares;
        let shape = self.shape()?;
        let upload = |words| engine.upload(Tensor::new(shape.clone(), words)?);
        Ok([upload(p)?, upload(half)?, upload(na)?])
    }

    /// Both halves of `b` are there: the summands of component 3 leave.
    fn apply<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut bundle: Reader,
    ) -> Result<()> {
        let (engine, shape, n, t) = (cx.engine, self.shape()?, self.n(), self.how.bits);
        let second = self.roles.role == Role::Left;
        let (own, other) = self.halves.receive(cx, &self.roles)?;
        let sources = [whole(&own), other.as_ref().map_or(cx.zero(), whole)];
        let [hi, base] = match self.halves.early() {
            true => words(engine, &EarlySum { t }, &shape, sources, &[])?,
            false => words(engine, &WholeSum { t }, &shape, sources, &[])?,
        };
        let (half, na) = if second {
            let half = bundle.words(engine, n)?;
            (half, made(engine, &shape, self.streams.words(self.na))?)
        } else {
            let [planes, cols] = self.fields();
            let planes = bundle.planes(engine, planes, cols)?;
            let na = engine.from_planes(&planes, 0, &shape)?;
            (made(engine, &shape, self.streams.words(self.half))?, na)
        };
        let key = bundle.words(engine, self.key_words())?;
        let [p, product, p_na] = self.evaluate(engine, &key, engine.download(&hi)?.words())?;
        let sources = [&hi, &na, &p_na, &half, &product].map(whole);
        let [alpha, product] = words(engine, &WrapShares { t }, &shape, sources, &[])?;
        let top = engine.to_planes(&hi, self.bits() as u32, 1)?;
        let v = engine.from_planes(&top, 0, &shape)?;
        let y = self.streams.words(self.y[usize::from(second)]);
        let sources = [whole(&v), whole(&p), whole(&product), whole(&base), whole(&alpha), y];
        let params = [if second { u64::MAX } else { 0 }, 0];
        let places = [None, self.spots.shared(&self.roles)];
        let sent = words_into(engine, &SelectOther, &shape, sources, &params, places)?;
        cx.put(self.roles.peer(), &sent[0])?;
        self.sent = Some(sent);
        Ok(())
    }
}

impl<E: Engine> Unit<E> for ReluAtOnceUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let [planes, cols] = self.fields();
        [self.n() + self.key_words(), planes * cols + self.key_words()]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let (engine, shape, t) = (cx.engine, self.shape()?, self.how.bits);
        let a = self.halves.pivot(cx, &self.streams)?;
        let a = engine.download(&a)?;
        let key = self.make_keys(engine, a.words())?;
        let masks =
            [self.drawn(engine, self.half, self.n())?, self.drawn(engine, self.na, self.n())?];
        let share = |of: fn(u64, u32) -> u64, masks: &Tensor| -> Result<_> {
            let words = a.words().iter().zip(masks.words());
            let words = words.map(|(&a, mask)| of(a, t).wrapping_sub(*mask)).collect();
            Ok(engine.upload(Tensor::new(shape.clone(), words)?)?)
        };
        let half = share(|a, t| a >> t, &masks[0])?;
        let na = engine.to_planes(&share(|a, _| 1 - (a >> 63), &masks[1])?, 0, t)?;
        cx.put(self.roles.left(), &half)?;
        cx.put(self.roles.right(), &na)?;
        cx.put(self.roles.left(), &key)?;
        cx.put(self.roles.right(), &key)?;
        let [y1, y2] = self.y.map(|draw| self.streams.words(draw));
        let y1 = made_into(engine, &shape, y1, self.spots.first())?;
        self.result = Some((y1, made_into(engine, &shape, y2, self.spots.second())?));
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.halves.announce(cx, &self.roles, &self.streams)
    }

    fn start(&mut self, _cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()> {
        self.bundle = Some(bundle);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        if let Some(bundle) = self.bundle.take() {
            self.apply(cx, bundle)?;
            return Ok(false);
        }
        let [summand, shared] = self.sent.take().expect("sent before");
        let other = cx.receive(self.roles.peer(), self.n())?.words(cx.engine, self.n())?;
        let y3 = add_into(cx.engine, &summand, &other, self.spots.joint(&self.roles))?;
        let second = self.roles.role == Role::Left;
        self.result = Some(if second { (shared, y3) } else { (y3, shared) });
        Ok(true)
    }
}
