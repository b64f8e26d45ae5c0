//! Functions in pieces by looking them up, for few words.
//!
//! A word is `a + b`, `a` known to the pivot and `b` to both others. The number of its segment is `a >> low` plus `b >>
//! low` modulo `2^bits`, or one more, and polynomials reach as far as the segment behind theirs, so nothing needs to
//! carry. The pivot makes keys ([`crate::runtime::fss`]) of the point function that is `1, a', a'^2` at `a >> low`, for the low
//! bits `a'` of `a`. The others evaluate them at all points, multiply by the pieces' coefficients, rotated by their part
//! of the number, and by powers of their low bits: what is left are shares of the polynomial's value, which are truncated
//! as those of a product. Meanwhile the word is compared with both ends of the segments, and what is to be outside of
//! them is selected ([`crate::compare::select`]).
//! Cost of 9 bits: keys of 22 words and 256 bits of selections to each of both others, 256 exchanged, what truncation and
//! comparisons take. Rounds: those of a selection by a comparison.

use std::sync::Arc;

use mpc_core::{Piecewise, Profile, Result, ShareTensor, TruncationMode};
use ring_arith::{Engine, EngineTensor, Shape, Tensor};

use crate::{
    Rss, Share,
    circuit::schedule::{Goal, Plan},
    compare::protocol::{Opening, Question, Stage},
    compare::select::{Follow, MaskShares, Selection, Wanted},
    kernels::{Combine, Negate, Shift},
    product::split::{Part, Value},
    product::truncate::{Rounding, TruncateUnit},
    runtime::chunks::{Piece, Rooms, Spots, take},
    runtime::fss::{self, SEED},
    runtime::launch::{made, map, whole, words},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::add,
    share::reusable::Layout,
};

/// Words of a point function: powers of the pivot's low bits.
const POWERS: usize = 3;

/// The most words for which the evaluation of keys at all points is worth the rounds.
const MOST: usize = 1024;

/// The most words that are not cut into parts.
const ALONE: usize = 128;

impl<E: Engine> Rss<E> {
    /// A function in pieces, of few words in the profile for slow links.
    pub(crate) fn looked_up(
        &mut self,
        x: &Share<E::Tensor>,
        width: u32,
        function: &Piecewise,
    ) -> Result<Option<Share<E::Tensor>>> {
        let len = x.shape().len();
        let rounding = match self.options.truncation {
            TruncationMode::Default => Rounding::Default(function.drop),
            TruncationMode::Early => Rounding::Early(function.drop),
            _ => return Ok(None),
        };
        if self.options.profile != Profile::SlowLinks || len > MOST {
            return Ok(None);
        }
        // Distances from the ends.
        let [from, to] = function.ends.map(|end| 65 - end.unsigned_abs().leading_zeros());
        let width = (width.max(from).max(to) + 1).min(64);
        let plan = self.plan(Goal::Carry, width as usize - 1);
        let pieces = match len {
            len if len <= ALONE => vec![Piece::whole(len, self.rotation.next(len))],
            len => self.options.parts.parts(len, 64),
        };
        let function = Arc::new(function.clone());
        let (mine, next) = self.flat_pair(x)?;
        let mut units = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let (roles, streams) = self.roles(piece);
            let further = [(); 3].map(|()| self.roles(piece).1);
            let cut = |side| take(&self.engine, side, piece);
            let value = roles.order(cut(&mine)?, cut(&next)?);
            let plan = plan.clone();
            let work = Work { function: function.clone(), rounding, plan };
            units.push(PiecewiseUnit::new(roles, streams, further, value, work));
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let done = pieces
            .into_iter()
            .zip(units)
            .map(|(piece, unit)| (piece, unit.roles, unit.result.into_iter().collect()));
        let rooms = [Rooms::none()];
        Ok(self.collect(done.collect(), &rooms, Layout::FLAT, x.shape())?.pop())
    }
}

/// What is to be done.
struct Work {
    function: Arc<Piecewise>,
    rounding: Rounding,
    plan: Arc<Plan>,
}

/// A function of one part.
struct PiecewiseUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    /// Of the truncation and of both selections, until they begin.
    further: Option<[Streams; 3]>,
    n: usize,
    value: (T, T),
    function: Arc<Piecewise>,
    rounding: Rounding,
    /// Whether the word is below the segments, and whether it is above them.
    openings: [Opening; 2],
    stages: Vec<Stage<T>>,
    tops: Vec<Option<T>>,
    left: [usize; 2],
    /// The seeds of the second's keys and of the third's.
    seeds: [Draw; 2],
    truncation: Option<TruncateUnit<T>>,
    /// What the segments give.
    looked_up: Option<(T, T)>,
    /// The streams of both selections.
    selecting: Vec<Streams>,
    selections: Vec<Selection<T>>,
    /// What is left of the pivot's words: those of the selections.
    bundle: Option<Reader>,
    result: Option<(T, T)>,
}

impl<T: EngineTensor> PiecewiseUnit<T> {
    fn new(
        roles: Roles,
        mut streams: Streams,
        further: [Streams; 3],
        value: (T, T),
        work: Work,
    ) -> Self {
        let n = value.0.len();
        let seeds = [Key::Left, Key::Right].map(|pair| streams.draw(pair, SEED * n));
        let openings = [(); 2].map(|()| {
            let question = Question { plan: work.plan.clone(), top: true, low: 0 };
            Opening::new(question, &mut streams, n, false)
        });
        let left = openings.each_ref().map(Opening::exchanges);
        Self {
            roles,
            streams,
            further: Some(further),
            n,
            value,
            function: work.function,
            rounding: work.rounding,
            openings,
            stages: Vec::new(),
            tops: Vec::new(),
            left,
            seeds,
            truncation: None,
            looked_up: None,
            selecting: Vec::new(),
            selections: Vec::new(),
            bundle: None,
            result: None,
        }
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n])?)
    }

    fn key_words(&self) -> usize {
        self.n * fss::point_words_of::<POWERS>(self.function.bits as usize)
    }

    /// Words that the pivot sends for the truncation.
    fn truncation_words(&self) -> [usize; 2] {
        let planes = match self.rounding {
            Rounding::Default(t) | Rounding::Early(t) => t as usize,
            _ => 0,
        };
        [self.n, planes * self.n.div_ceil(64)]
    }

    /// The words of a draw.
    fn drawn<E: Engine<Tensor = T>>(&self, engine: &E, draw: Draw) -> Result<Tensor> {
        let shape = Shape::new([SEED * self.n])?;
        let made = made(engine, &shape, self.streams.words(draw))?;
        Ok(engine.download(&made)?)
    }

    /// The truncation of what the segments give, of which this party has a part.
    fn truncation(&self, streams: Streams, part: T) -> TruncateUnit<T> {
        let value = Value::Added(Part::Made { part, plus: None });
        TruncateUnit::new(self.roles, streams, value, self.rounding, Spots::none(self.n))
    }

    /// The selection of what is outside of the segments on one side, less what the segments give.
    fn selection<E: Engine<Tensor = T>>(
        &self,
        engine: &E,
        streams: &mut Streams,
        side: usize,
    ) -> Result<Selection<T>> {
        let (first, second) = self.looked_up.as_ref().expect("what is selected is there");
        let [constant, factor] = self.function.outside[side];
        // Component 1 has the constant, which the pivot and the third hold.
        let holds = match self.roles.role {
            Role::Dealer => [true, false],
            Role::Left => [false, false],
            Role::Right => [false, true],
        };
        let component = |found: &T, x: &T, holds: bool| -> Result<T> {
            let constant = if holds { constant } else { 0 };
            let params = [u64::MAX, factor, 0, 0, constant];
            let sources = [whole(found), whole(x), whole(x), whole(x)];
            let [difference] = words(engine, &Combine, &self.shape()?, sources, &params)?;
            Ok(difference)
        };
        let one = component(first, &self.value.0, holds[0])?;
        let two = component(second, &self.value.1, holds[1])?;
        let follow = Follow::Times((one, two));
        let mask = MaskShares::deal(streams, self.n);
        let wanted = Wanted { follow, opposite: false, spots: Spots::none(self.n) };
        Ok(Selection::new(streams, self.n, mask, vec![wanted]))
    }

    /// What the segments give, and what is outside of them where the word is.
    fn total<E: Engine<Tensor = T>>(&self, engine: &E, gains: Vec<(T, T)>) -> Result<(T, T)> {
        let (first, second) = self.looked_up.as_ref().expect("looked up before");
        let mut total = (first.clone(), second.clone());
        for (one, two) in &gains {
            total = (add(engine, &total.0, one)?, add(engine, &total.1, two)?);
        }
        Ok(total)
    }

    /// The pivot makes the keys: word `i` of all of them lies together.
    fn make_keys<E: Engine<Tensor = T>>(&self, engine: &E, a: &[u64]) -> Result<T> {
        let (n, low, bits) = (self.n, self.function.low, self.function.bits);
        let seeds = [self.drawn(engine, self.seeds[0])?, self.drawn(engine, self.seeds[1])?];
        let mut all = vec![0; self.key_words()];
        for (at, &a) in a.iter().enumerate() {
            let point = (a >> low) & ((1 << bits) - 1);
            let rest = a & ((1 << low) - 1);
            let value = [1, rest, rest.wrapping_mul(rest)];
            planted!("looked up: the pivot's low bits squared once", value = [1, rest, rest]);
            let seeds = seeds.each_ref().map(|seeds| [0, 1].map(|i| seeds.words()[i * n + at]));
            let mut word = at;
            let expand = |_, _, seed| fss::expand(seed);
            fss::make_point(point, &value, bits as usize, seeds, expand, |correction| {
                all[word] = correction;
                word += n;
            });
        }
        Ok(engine.upload(Tensor::new(Shape::new([self.key_words()])?, all)?)?)
    }

    /// This party's share of what the segments give, before bits are dropped.
    fn evaluate<E: Engine<Tensor = T>>(&self, engine: &E, key: &T, b: &[u64]) -> Result<T> {
        let Piecewise { low, bits, pieces, .. } = &*self.function;
        let n = self.n;
        let holder = usize::from(self.roles.role == Role::Right);
        let seeds = self.drawn(engine, self.seeds[holder])?;
        let key = engine.download(key)?;
        let mut shares = Vec::with_capacity(n);
        for (at, &b) in b.iter().enumerate() {
            let seed = [0, 1].map(|i| seeds.words()[i * n + at]);
            let word = |i: usize| key.words()[i * n + at];
            let points = fss::evaluate_points::<POWERS>(holder, seed, *bits as usize, word);
            let pieces = rotated(pieces, b >> low, *bits);
            // Powers of the pivot's low bits times coefficients.
            let mut sums = [[0u64; 3]; POWERS];
            for (point, piece) in points.iter().zip(&pieces) {
                for (sums, power) in sums.iter_mut().zip(point) {
                    for (sum, coefficient) in sums.iter_mut().zip(piece) {
                        *sum = sum.wrapping_add(power.wrapping_mul(*coefficient));
                    }
                }
            }
            // c0 + c1 (a' + d) + c2 (a' + d)^2
            let d = (b & ((1 << low) - 1)).wrapping_sub(1 << low);
            let [[c0, c1, c2], [_, a_c1, a_c2], [_, _, a2_c2]] = sums;
            let slope = c1.wrapping_add(c2.wrapping_mul(d));
            let twice = a_c2.wrapping_mul(d).wrapping_mul(2);
            let value = c0.wrapping_add(slope.wrapping_mul(d));
            shares.push(value.wrapping_add(a_c1).wrapping_add(twice).wrapping_add(a2_c2));
        }
        Ok(engine.upload(Tensor::new(self.shape()?, shares)?)?)
    }

    /// What the second and the third know of the word and of its distances from the ends.
    fn known<E: Engine<Tensor = T>>(&self, engine: &E) -> Result<[T; 3]> {
        let b = if self.roles.role == Role::Left { &self.value.1 } else { &self.value.0 };
        let [from, to] = self.function.ends;
        let below = map(engine, &Shift, b.shape(), [b], &[from.wrapping_neg() as u64])?;
        let minus = map(engine, &Negate, b.shape(), [b], &[])?;
        let above = map(engine, &Shift, b.shape(), [&minus], &[(to - 1) as u64])?;
        Ok([b.clone(), below, above])
    }

    /// One exchange of the comparisons and of the truncation.
    fn compare<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        for (i, stage) in std::mem::take(&mut self.stages).into_iter().enumerate() {
            let (top, left) = (self.tops[i].as_ref(), &mut self.left[i]);
            let opening = &self.openings[i];
            let stage = opening.advance(cx, &self.roles, &self.streams, stage, top, left)?;
            self.stages.push(stage);
        }
        if let Some(mut truncation) = self.truncation.take() {
            if truncation.advance(cx)? {
                self.looked_up = truncation.done().1;
            } else {
                self.truncation = Some(truncation);
            }
        }
        Ok(())
    }

    /// All is known: the selections' summands leave.
    fn select<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let mut bundle = self.bundle.take().expect("read before");
        let mut selecting = std::mem::take(&mut self.selecting);
        for (side, streams) in selecting.iter_mut().enumerate() {
            let Stage::Known(v) = &self.stages[side] else { unreachable!("known before") };
            let v = cx.engine.from_planes(v, 0, &self.shape()?)?;
            let mut selection = self.selection(cx.engine, streams, side)?;
            selection.read(cx, &self.roles, &mut bundle)?;
            selection.apply(cx, &self.roles, streams, &v)?;
            self.selections.push(selection);
        }
        self.selecting = selecting;
        Ok(())
    }
}

/// The pieces from segment `by` on, modulo their number: in as many steps as that has bits, whatever it is.
fn rotated(pieces: &[[u64; 3]], by: u64, bits: u32) -> Vec<[u64; 3]> {
    let mut pieces = pieces.to_vec();
    for bit in 0..bits {
        let chosen = (by >> bit & 1).wrapping_neg();
        let (step, len) = (1 << bit, pieces.len());
        let moved = |i: usize| -> [u64; 3] {
            let (here, there) = (&pieces[i], &pieces[(i + step) % len]);
            std::array::from_fn(|k| here[k] ^ (chosen & (here[k] ^ there[k])))
        };
        pieces = (0..len).map(moved).collect();
    }
    pieces
}

impl<E: Engine> Unit<E> for PiecewiseUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let truncation = self.truncation_words();
        let [below, above] = self.openings.each_ref().map(Opening::bundle);
        let of = |i: usize| self.key_words() + truncation[i] + below[i] + above[i] + 2 * self.n;
        [of(0), of(1)]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        let engine = cx.engine;
        let a = add(engine, &self.value.0, &self.value.1)?;
        let key = self.make_keys(engine, engine.download(&a)?.words())?;
        cx.put(self.roles.left(), &key)?;
        cx.put(self.roles.right(), &key)?;
        let [truncating, below, above] = self.further.take().expect("a pivot leads once");
        let zeros = engine.upload(Tensor::zeros(self.shape()?))?;
        let mut truncation = self.truncation(truncating, zeros);
        truncation.lead(cx)?;
        self.looked_up = truncation.done().1;
        let minus = map(engine, &Negate, a.shape(), [&a], &[])?;
        let mut masks = Vec::with_capacity(2);
        for (opening, a) in self.openings.iter().zip([&a, &minus]) {
            let [u, _] = opening.lead(cx, &self.roles, &self.streams, a)?;
            masks.push(engine.from_planes(&u, 0, &self.shape()?)?);
        }
        let mut gains = Vec::with_capacity(2);
        for (side, (mut streams, u)) in [below, above].into_iter().zip(&masks).enumerate() {
            let selection = self.selection(engine, &mut streams, side)?;
            gains.extend(selection.lead(cx, &self.roles, &streams, u)?);
        }
        self.result = Some(self.total(engine, gains)?);
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let side = usize::from(self.roles.role == Role::Right);
        let key = bundle.words(cx.engine, self.key_words())?;
        let of_truncation = bundle.split(self.truncation_words()[side])?;
        let [b, below, above] = self.known(cx.engine)?;
        for (opening, b) in self.openings.iter().zip([&below, &above]) {
            let (stage, top) = opening.start(cx, &self.roles, &self.streams, &mut bundle, b)?;
            self.stages.push(stage);
            self.tops.push(top);
        }
        let [truncating, below, above] = self.further.take().expect("a part starts once");
        let share = self.evaluate(cx.engine, &key, cx.engine.download(&b)?.words())?;
        let mut truncation = self.truncation(truncating, share);
        truncation.announce(cx)?;
        truncation.start(cx, of_truncation)?;
        self.truncation = Some(truncation);
        self.selecting = vec![below, above];
        self.bundle = Some(bundle);
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        if self.selections.is_empty() {
            self.compare(cx)?;
            let known = |stage: &Stage<E::Tensor>| matches!(stage, Stage::Known(_));
            if self.truncation.is_none() && self.stages.iter().all(known) {
                self.select(cx)?;
            }
            return Ok(false);
        }
        let mut gains = Vec::with_capacity(2);
        for selection in &mut std::mem::take(&mut self.selections) {
            gains.extend(selection.finish(cx, &self.roles)?);
        }
        self.result = Some(self.total(cx.engine, gains)?);
        Ok(true)
    }
}
