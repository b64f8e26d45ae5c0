//! Chains of element-wise products whose truncations are settled at the end.
//!
//! After its first exchange a truncated product is `A + B + nb N`, `N = na 2^(64 - t)`: `A` and `na` are known to the
//! pivot, `B` and `nb` to both others, and the pivot has shared `A` and, modulo `2^t`, `na` between them. That is enough
//! to multiply it: of `(A + B + nb N)(A' + B' + nb' N')` the pivot knows `A A'`; `A B'` and `B A'` follow from the shares
//! of `A` and `A'`; `N N'` vanishes if `t + t' <= 64`, and is `na 2^(128 - 2t)` if it is one wrap; and `nb N (A' + B')` from shares of `na` and of `na A'` modulo `2^t`,
//! which the pivot deals too. So each level is one exchange, of halves as of any product. The wrap is settled as of any
//! truncation, once, in what leaves the chain. A shared value is such a sum without a wrap.
//!
//! Cost of a product: 192 bits and `t` for each wrapped value in its factors, `t` for its own; `early` `2t` fewer. A
//! result `2t`. One round for each level, and one at the end unless results are not truncated.

use std::sync::Arc;

use mpc_core::{Chain, Result, ShareTensor, Step, Sum, TruncationMode, Value};
use ring_arith::{Engine, EngineTensor, Shape};

use crate::{
    Rss, Share,
    kernels::{
        ChainDeal, ChainEarly, ChainHalf, ChainLead, ChainRawLead, ChainSettle, ChainSettleLead,
        ChainWhole, ChainWrap, Difference, EarlyNearest, EarlyRoundUp,
    },
    linear::weighted,
    runtime::chunks::{Rooms, take},
    runtime::launch::{made, map, whole, words},
    runtime::links::Reader,
    runtime::prss::{Draw, Key, Streams},
    runtime::roles::{Role, Roles},
    runtime::rounds::{self, Cx, Unit},
    share::reusable::Layout,
    share::{add, add_into},
};

/// A chain as the parties carry it out.
struct Plan {
    steps: Vec<Planned>,
    levels: usize,
    /// For each step the last one that takes it and the last level that does; none of a result.
    last: Vec<Option<[usize; 2]>>,
    /// Steps whose results leave the chain.
    results: Vec<usize>,
}

/// A step with what its factors' wraps take.
struct Planned {
    step: Step,
    level: usize,
    /// Wraps in the factors.
    met: Vec<Met>,
    /// Wraps in the summand, with their factors.
    added: Vec<(usize, u64)>,
}

/// The wrap of a step in the factors of another: its factor in each.
struct Met {
    step: usize,
    factors: [u64; 2],
}

/// Where a step draws.
struct Draws {
    /// Masks of the halves.
    halves: [Draw; 2],
    /// The third's share of `A`.
    share: Draw,
    /// The second's share of `na`, and of `na` times what each wrap meets.
    na: Draw,
    met: Vec<Draw>,
    /// Masks of a result's fields.
    fields: [Draw; 2],
}

/// What a party knows of a value.
#[derive(Clone)]
struct Known<T> {
    /// `A` at the pivot, `B` at the others.
    part: T,
    /// The others' shares of `A`.
    share: Option<T>,
}

/// What a party knows of a wrap.
enum Wrap<T> {
    /// `na`, at the pivot.
    Pivot(T),
    /// `nb`, and `nb` times the share of `na`.
    Other([T; 2]),
}

/// What the pivot sent for a step, until it is used.
struct Dealt<T> {
    /// The second's share of `A`.
    share: Option<T>,
    /// The third's share of `na`, and of `na` times what each wrap meets, as planes.
    na: Option<T>,
    met: Vec<T>,
}

/// What is under way at the second or the third.
enum Phase<T> {
    /// The halves of a level, as this party sent them.
    Level(usize, Vec<T>),
    /// Results: component 3 as far as it is known, and the component shared with the pivot.
    Settling(Vec<[T; 2]>),
}

/// A chain for one part.
struct ChainUnit<T: EngineTensor> {
    roles: Roles,
    streams: Streams,
    n: usize,
    plan: Arc<Plan>,
    draws: Vec<Draws>,
    /// The role's components.
    inputs: Vec<(T, T)>,
    known: Vec<Known<T>>,
    steps: Vec<Option<Known<T>>>,
    wraps: Vec<Option<Wrap<T>>>,
    dealt: Vec<Dealt<T>>,
    phase: Option<Phase<T>>,
    results: Vec<(T, T)>,
}

impl Plan {
    /// `None` if wraps would not vanish when they meet, or a step is to be truncated in another way than the two fast
    /// ones.
    fn new<S>(chain: &Chain<'_, S>, levels: Vec<usize>) -> Option<Self> {
        let mut steps: Vec<Planned> = Vec::with_capacity(levels.len());
        for (step, level) in chain.steps.iter().zip(&levels) {
            let fast = matches!(step.mode, TruncationMode::Default | TruncationMode::Early);
            if step.bits > 0 && !fast {
                return None;
            }
            let wraps = |sum: &Sum| {
                let wrapped = |&(c, value): &(u64, Value)| match value {
                    Value::Step(i) if chain.steps[i].bits > 0 => Some((i, c)),
                    _ => None,
                };
                let mut all: Vec<(usize, u64)> = Vec::new();
                for (i, c) in sum.terms.iter().filter_map(wrapped) {
                    match all.iter_mut().find(|(at, _)| *at == i) {
                        Some((_, sum)) => *sum = sum.wrapping_add(c),
                        None => all.push((i, c)),
                    }
                }
                all
            };
            let [lhs, rhs, added] = [&step.lhs, &step.rhs, &step.plus].map(wraps);
            let bits = |i: usize| chain.steps[i].bits;
            let vanish = |&(x, _): &(usize, u64)| {
                rhs.iter().all(|&(y, _)| x == y || bits(x) + bits(y) <= 64)
            };
            if !lhs.iter().all(vanish) {
                return None;
            }
            let factor = |list: &[(usize, u64)], i| {
                list.iter().find(|(at, _)| *at == i).map_or(0, |(_, c)| *c)
            };
            let mut met: Vec<usize> = lhs.iter().chain(&rhs).map(|(i, _)| *i).collect();
            met.sort_unstable();
            met.dedup();
            let met = met.into_iter().map(|i| {
                let factors = [factor(&lhs, i), factor(&rhs, i)];
                planted!("chain: a wrap in the second factor forgotten", factors = [factors[0], 0]);
                Met { step: i, factors }
            });
            let (step, met) = (step.clone(), met.collect());
            steps.push(Planned { step, level: *level, met, added });
        }
        let mut results = chain.results.clone();
        results.sort_unstable();
        results.dedup();
        let last = (0..steps.len()).map(|i| {
            let takes = |(_, planned): &(usize, &Planned)| planned.step.takes(Value::Step(i));
            let users = || steps.iter().enumerate().filter(takes);
            let step = users().map(|(at, _)| at).max().unwrap_or(i);
            let level = users().map(|(_, planned)| planned.level).max().unwrap_or(levels[i]);
            (!results.contains(&i)).then_some([step, level])
        });
        let last = last.collect();
        Some(Self { steps, levels: levels.into_iter().max().unwrap_or(0), last, results })
    }

    /// The steps of a level.
    fn level(&self, level: usize) -> impl Iterator<Item = usize> {
        (0..self.steps.len()).filter(move |&i| self.steps[i].level == level)
    }

    fn bits(&self, step: usize) -> u32 {
        self.steps[step].step.bits
    }

    /// Results that are truncated.
    fn wrapped(&self) -> impl Iterator<Item = usize> {
        self.results.iter().copied().filter(|&i| self.bits(i) > 0)
    }
}

impl Planned {
    /// Whether halves are rounded before they are sent.
    fn early(&self) -> bool {
        self.step.bits > 0 && self.step.mode == TruncationMode::Early
    }

    /// Planes of a half.
    fn half_planes(&self) -> usize {
        64 - self.step.bits as usize
    }
}

impl Draws {
    fn new(plan: &Plan, at: usize, streams: &mut Streams, n: usize) -> Self {
        let planned = &plan.steps[at];
        let wrap = if planned.step.bits > 0 { n } else { 0 };
        let field = if plan.results.contains(&at) { wrap } else { 0 };
        let halves = [Key::Left, Key::Right].map(|pair| streams.draw(pair, n));
        let share = streams.draw(Key::Right, n);
        let na = streams.draw(Key::Left, wrap);
        let met: Vec<_> = planned.met.iter().map(|_| streams.draw(Key::Left, n)).collect();
        let fields = [Key::Left, Key::Right].map(|pair| streams.draw(pair, field));
        planted!("chain: w12 off", halves = [streams.blank(Key::Left, n), halves[1]]);
        planted!("chain: w13 off", halves = [halves[0], streams.blank(Key::Right, n)]);
        planted!("chain: A bare", share = streams.blank(Key::Right, n));
        planted!("chain: the share of A under w13", share = halves[1]);
        planted!("chain: na bare", na = streams.blank(Key::Left, wrap));
        planted!(
            "chain: what a wrap meets under the mask of na",
            met = met.iter().map(|_| na).collect()
        );
        planted!(
            "chain: what a wrap meets bare",
            met = met.iter().map(|_| streams.blank(Key::Left, n)).collect()
        );
        planted!(
            "chain: a result's m12 off",
            fields = [streams.blank(Key::Left, field), fields[1]]
        );
        planted!(
            "chain: a result's m13 off",
            fields = [fields[0], streams.blank(Key::Right, field)]
        );
        Self { halves, share, na, met, fields }
    }
}

impl<E: Engine> Rss<E> {
    /// A chain, if its wraps can wait.
    pub(crate) fn chained(
        &mut self,
        chain: &Chain<'_, Share<E::Tensor>>,
        levels: Vec<usize>,
    ) -> Result<Option<Vec<Share<E::Tensor>>>> {
        let Some(plan) = Plan::new(chain, levels) else { return Ok(None) };
        let plan = Arc::new(plan);
        let shape = chain.inputs[0].shape().clone();
        let inputs = chain.inputs.iter().map(|x| self.flat_pair(x)).collect::<Result<Vec<_>>>()?;
        let pieces = self.pieces(shape.len());
        let mut units = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let (roles, mut streams) = self.roles(piece);
            let cut = |(mine, next): &(E::Tensor, E::Tensor)| -> Result<_> {
                let (mine, next) =
                    (take(&self.engine, mine, piece)?, take(&self.engine, next, piece)?);
                Ok(roles.order(mine, next))
            };
            let inputs = inputs.iter().map(cut).collect::<Result<Vec<_>>>()?;
            let n = piece.len();
            let draws = (0..plan.steps.len()).map(|at| Draws::new(&plan, at, &mut streams, n));
            let draws = draws.collect();
            units.push(ChainUnit {
                roles,
                streams,
                n,
                plan: plan.clone(),
                draws,
                inputs,
                known: Vec::new(),
                steps: plan.steps.iter().map(|_| None).collect(),
                wraps: plan.steps.iter().map(|_| None).collect(),
                dealt: Vec::new(),
                phase: None,
                results: Vec::new(),
            });
        }
        rounds::run(&mut self.cx(), &mut units)?;
        let done = pieces.into_iter().zip(units);
        let done = done.map(|(piece, unit)| (piece, unit.roles, unit.results)).collect();
        let rooms: Vec<_> = plan.results.iter().map(|_| Rooms::none()).collect();
        let distinct = self.collect(done, &rooms, Layout::FLAT, &shape)?;
        let place = |step| plan.results.binary_search(step).expect("every result is there");
        Ok(Some(chain.results.iter().map(|step| distinct[place(step)].clone()).collect()))
    }
}

impl<T: EngineTensor> ChainUnit<T> {
    fn shape(&self) -> Result<Shape> {
        Ok(Shape::new([self.n])?)
    }

    fn second(&self) -> bool {
        self.roles.role == Role::Left
    }

    /// Words of planes of a field.
    fn field(&self, bits: u32) -> [usize; 2] {
        [bits as usize, self.n.div_ceil(64)]
    }

    /// What is known of the inputs.
    fn read_inputs<E: Engine<Tensor = T>>(&mut self, engine: &E) -> Result<()> {
        for (first, last) in &self.inputs {
            let (part, share) = match self.roles.role {
                Role::Dealer => (add(engine, first, last)?, None),
                // The second holds (x2, x3), the third (x3, x1).
                Role::Left => (last.clone(), Some(first.clone())),
                Role::Right => (first.clone(), Some(last.clone())),
            };
            self.known.push(Known { part, share });
        }
        Ok(())
    }

    /// Lets go of steps that none after a step (at the pivot) or a level (at the others) takes.
    fn retire(&mut self, done: usize) {
        let which = usize::from(self.roles.role != Role::Dealer);
        for (at, last) in self.plan.last.iter().enumerate() {
            if last.is_some_and(|last| last[which] <= done) {
                (self.steps[at], self.wraps[at]) = (None, None);
            }
        }
    }

    fn value(&self, value: Value) -> &Known<T> {
        match value {
            Value::Input(i) => &self.known[i],
            Value::Step(i) => self.step(i),
        }
    }

    fn step(&self, step: usize) -> &Known<T> {
        self.steps[step].as_ref().expect("steps come after those that they take")
    }

    /// What is known of a sum. Its constant belongs to what both others know.
    fn sum<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, sum: &Sum) -> Result<Known<T>> {
        if let ([(1, value)], 0) = (&sum.terms[..], sum.constant) {
            return Ok(self.value(*value).clone());
        }
        let shape = self.shape()?;
        let constant = if self.roles.role == Role::Dealer { 0 } else { sum.constant };
        let values = || sum.terms.iter().map(|&(c, value)| (c, self.value(value)));
        let parts: Vec<_> = values().map(|(c, known)| (c, &known.part)).collect();
        let part = weighted(cx.engine, cx.zeros, &shape, &parts, constant)?;
        let shares: Option<Vec<_>> =
            values().map(|(c, known)| Some((c, known.share.as_ref()?))).collect();
        let share = match shares {
            Some(shares) if self.roles.role != Role::Dealer => {
                Some(weighted(cx.engine, cx.zeros, &shape, &shares, 0)?)
            }
            _ => None,
        };
        Ok(Known { part, share })
    }

    /// The summand's part; zeros if there is none.
    fn plus<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, plus: &Sum) -> Result<Option<T>> {
        match plus {
            Sum { terms, constant: 0 } if terms.is_empty() => Ok(None),
            plus => Ok(Some(self.sum(cx, plus)?.part)),
        }
    }

    /// One step at the pivot: its half and its wrap; what the others need of them leaves.
    fn lead_step<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>, at: usize) -> Result<()> {
        let plan = self.plan.clone();
        let (shape, Planned { step, met, .. }) = (self.shape()?, &plan.steps[at]);
        let [x, y] = [self.sum(cx, &step.lhs)?.part, self.sum(cx, &step.rhs)?.part];
        let plus = self.plus(cx, &step.plus)?;
        let plus = plus.as_ref().map_or(cx.zero(), whole);
        let (streams, draws, t) = (&self.streams, &self.draws[at], step.bits);
        let [w12, w13] = draws.halves.map(|draw| streams.words(draw));
        let y1 = streams.words(draws.share);
        let (half, na) = if t == 0 {
            let sources = [whole(&x), whole(&y), plus, w12, w13, y1];
            let [a, share] = words(cx.engine, &ChainRawLead, &shape, sources, &[])?;
            cx.put(self.roles.left(), &share)?;
            (a, None)
        } else {
            let sources = [whole(&x), whole(&y), plus, w12, w13, y1, streams.words(draws.na)];
            let [half, share, e3, na] = words(cx.engine, &ChainLead { t }, &shape, sources, &[])?;
            cx.put(self.roles.left(), &share)?;
            let field = cx.engine.to_planes(&e3, 0, t)?;
            cx.put(self.roles.right(), &field)?;
            (half, Some(Wrap::Pivot(na)))
        };
        for (met, draw) in met.iter().zip(&draws.met) {
            let Some(Wrap::Pivot(na)) = &self.wraps[met.step] else {
                unreachable!("the pivot made the wraps that a step meets")
            };
            let t = plan.bits(met.step);
            let sources = [whole(na), whole(&x), whole(&y), streams.words(*draw)];
            let [g3] = words(cx.engine, &ChainDeal { t }, &shape, sources, &met.factors)?;
            let field = cx.engine.to_planes(&g3, 0, t)?;
            cx.put(self.roles.right(), &field)?;
        }
        (self.steps[at], self.wraps[at]) = (Some(Known { part: half, share: None }), na);
        self.retire(at);
        Ok(())
    }

    /// The pivot's components of a result.
    fn lead_result<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, at: usize) -> Result<(T, T)> {
        let (shape, streams, draws) = (self.shape()?, &self.streams, &self.draws[at]);
        let t = self.plan.bits(at);
        let y1 = streams.words(draws.share);
        let half = whole(&self.step(at).part);
        if t == 0 {
            let y1 = made(cx.engine, &shape, y1)?;
            let y2 = map(cx.engine, &Difference, &shape, [&self.step(at).part, &y1], &[])?;
            return Ok((y1, y2));
        }
        let [m12, m13] = draws.fields.map(|draw| streams.words(draw));
        let sources = [half, y1, m12, m13];
        let [y1, y2] = words(cx.engine, &ChainSettleLead { t }, &shape, sources, &[])?;
        Ok((y1, y2))
    }

    /// This party's half of each step of a level, sent as it is or rounded.
    fn send_level<E: Engine<Tensor = T>>(
        &self,
        cx: &mut Cx<'_, E>,
        level: usize,
    ) -> Result<Phase<T>> {
        let mut sent = Vec::new();
        for at in self.plan.level(level) {
            let half = self.half(cx, at)?;
            let (planned, shape) = (&self.plan.steps[at], self.shape()?);
            let t = planned.step.bits;
            if !planned.early() {
                cx.put(self.roles.peer(), &half)?;
                sent.push(half);
                continue;
            }
            let rounded = match self.roles.role {
                Role::Left => map(cx.engine, &EarlyRoundUp { t }, &shape, [&half], &[])?,
                _ => map(cx.engine, &EarlyNearest { t }, &shape, [&half], &[])?,
            };
            let planes = cx.engine.to_planes(&rounded, 0, 64 - t)?;
            cx.put(self.roles.peer(), &planes)?;
            sent.push(rounded);
        }
        Ok(Phase::Level(level, sent))
    }

    /// This party's masked half of a step.
    fn half<E: Engine<Tensor = T>>(&self, cx: &Cx<'_, E>, at: usize) -> Result<T> {
        let (shape, streams, second) = (self.shape()?, &self.streams, self.second());
        let Planned { step, met, added, .. } = &self.plan.steps[at];
        let share = |known: &Known<T>| known.share.clone().expect("the others share A");
        let [x, y] = [self.sum(cx, &step.lhs)?, self.sum(cx, &step.rhs)?];
        let [sx, sy] = [share(&x), share(&y)];
        let plus = self.plus(cx, &step.plus)?;
        let plus = plus.as_ref().map_or(cx.zero(), whole);
        let mask = streams.words(self.draws[at].halves[usize::from(!second)]);
        let sources = [whole(&x.part), whole(&sx), whole(&y.part), whole(&sy), plus, mask];
        let all = [if second { u64::MAX } else { 0 }];
        let [mut half] = words(cx.engine, &ChainHalf, &shape, sources, &all)?;
        for (i, met) in met.iter().enumerate() {
            let [nb, n] = self.wrap(met.step);
            let t = self.plan.bits(met.step);
            let dealt = self.dealt[at].met.get(i);
            let dealt = dealt.map(|planes| cx.engine.from_planes(planes, 0, &shape)).transpose()?;
            let g = match &dealt {
                Some(dealt) => whole(dealt),
                None => streams.words(self.draws[at].met[i]),
            };
            let sources = [whole(&half), whole(nb), g, whole(n), whole(&x.part), whole(&y.part)];
            [half] = words(cx.engine, &ChainWrap { t }, &shape, sources, &met.factors)?;
            let [c, d] = met.factors;
            let itself = 2 * t > 64 && c != 0 && d != 0;
            planted!("chain: a wrap that meets itself forgotten", itself = false);
            if itself {
                // (nb N)^2 = nb na 2^(128 - 2t): the wrap meets itself.
                let factor = c.wrapping_mul(d) << (128 - 2 * t);
                half = weighted(cx.engine, cx.zeros, &shape, &[(1, &half), (factor, n)], 0)?;
            }
        }
        planted!("chain: a summand's wrap forgotten", added = &added[..0]);
        for &(wrap, factor) in added {
            let [_, n] = self.wrap(wrap);
            let factor = factor << (64 - self.plan.bits(wrap));
            half = weighted(cx.engine, cx.zeros, &shape, &[(1, &half), (factor, n)], 0)?;
        }
        Ok(half)
    }

    fn wrap(&self, step: usize) -> &[T; 2] {
        match &self.wraps[step] {
            Some(Wrap::Other(parts)) => parts,
            _ => unreachable!("the others know the wraps of the levels below"),
        }
    }

    /// The partner's halves of a level are due: what is known of its steps.
    fn receive_level<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        level: usize,
        sent: Vec<T>,
    ) -> Result<()> {
        let shape = self.shape()?;
        let plan = self.plan.clone();
        for (at, own) in plan.level(level).zip(sent) {
            let planned = &plan.steps[at];
            let t = planned.step.bits;
            let other = if planned.early() {
                let (planes, cols) = (planned.half_planes(), self.n.div_ceil(64));
                let mut reader = cx.receive(self.roles.peer(), planes * cols)?;
                let planes = reader.planes(cx.engine, planes, cols)?;
                cx.engine.from_planes(&planes, 0, &shape)?
            } else {
                cx.receive(self.roles.peer(), self.n)?.words(cx.engine, self.n)?
            };
            let Dealt { share, na, .. } = &mut self.dealt[at];
            let (share, na) = (share.take(), na.take());
            let (part, wrap) = if t == 0 {
                (add(cx.engine, &own, &other)?, None)
            } else {
                let na = na.map(|planes| cx.engine.from_planes(&planes, 0, &shape)).transpose()?;
                let na = match &na {
                    Some(na) => whole(na),
                    None => self.streams.words(self.draws[at].na),
                };
                let sources = [whole(&own), whole(&other), na];
                let [part, nb, n] = if planned.early() {
                    words(cx.engine, &ChainEarly { t }, &shape, sources, &[])?
                } else {
                    words(cx.engine, &ChainWhole { t }, &shape, sources, &[])?
                };
                (part, Some(Wrap::Other([nb, n])))
            };
            let share = match share {
                Some(share) => share,
                None => made(cx.engine, &shape, self.streams.words(self.draws[at].share))?,
            };
            (self.steps[at], self.wraps[at]) = (Some(Known { part, share: Some(share) }), wrap);
        }
        Ok(())
    }

    /// All levels are done: the fields of results that are truncated leave. `None` if there are none.
    fn settle<E: Engine<Tensor = T>>(&mut self, cx: &mut Cx<'_, E>) -> Result<Option<Phase<T>>> {
        let (shape, second, plan) = (self.shape()?, self.second(), self.plan.clone());
        let mut waiting = Vec::new();
        for &at in &plan.results {
            let t = plan.bits(at);
            let Known { part, share } = self.step(at);
            let share = share.as_ref().expect("the others share A");
            if t == 0 {
                waiting.push([part.clone(), share.clone()]);
                continue;
            }
            let [_, n] = self.wrap(at);
            let mask = self.streams.words(self.draws[at].fields[usize::from(!second)]);
            let sources = [whole(part), whole(n), whole(share), mask];
            let [partial, field, share] =
                words(cx.engine, &ChainSettle { t }, &shape, sources, &[])?;
            let planes = cx.engine.to_planes(&field, 0, t)?;
            cx.put(self.roles.peer(), &planes)?;
            waiting.push([partial, share]);
        }
        if plan.wrapped().next().is_some() {
            return Ok(Some(Phase::Settling(waiting)));
        }
        self.finish(waiting);
        Ok(None)
    }

    /// The partner's fields are due.
    fn receive_fields<E: Engine<Tensor = T>>(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut waiting: Vec<[T; 2]>,
    ) -> Result<()> {
        let (shape, plan) = (self.shape()?, self.plan.clone());
        for (at, waiting) in plan.results.iter().zip(&mut waiting) {
            let t = plan.bits(*at);
            if t == 0 {
                continue;
            }
            let [planes, cols] = self.field(t);
            let mut reader = cx.receive(self.roles.peer(), planes * cols)?;
            let planes = reader.planes(cx.engine, planes, cols)?;
            let field = cx.engine.from_planes(&planes, 64 - t, &shape)?;
            waiting[0] = add_into(cx.engine, &waiting[0], &field, None)?;
        }
        self.finish(waiting);
        Ok(())
    }

    /// From component 3 and the shared one to the role's two.
    fn finish(&mut self, results: Vec<[T; 2]>) {
        let second = self.second();
        let order =
            |[third, shared]: [T; 2]| if second { (shared, third) } else { (third, shared) };
        self.results = results.into_iter().map(order).collect();
    }
}

impl<E: Engine> Unit<E> for ChainUnit<E::Tensor> {
    fn roles(&self) -> &Roles {
        &self.roles
    }

    fn bundle(&self) -> [usize; 2] {
        let fields = |(at, planned): (usize, &Planned)| -> usize {
            let met = planned.met.iter().map(|met| self.plan.bits(met.step));
            let bits = met.chain([self.plan.bits(at)]).sum::<u32>();
            self.field(bits).iter().product()
        };
        let third = self.plan.steps.iter().enumerate().map(fields).sum();
        [self.n * self.plan.steps.len(), third]
    }

    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.read_inputs(cx.engine)?;
        for at in 0..self.plan.steps.len() {
            self.lead_step(cx, at)?;
        }
        let results: Result<Vec<_>> =
            self.plan.results.iter().map(|&at| self.lead_result(cx, at)).collect();
        self.results = results?;
        Ok(())
    }

    fn announce(&mut self, cx: &mut Cx<'_, E>) -> Result<()> {
        self.read_inputs(cx.engine)?;
        // Inputs have no wraps, so the first level needs nothing of the pivot.
        self.phase = Some(self.send_level(cx, 1)?);
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx<'_, E>, mut bundle: Reader) -> Result<()> {
        let (second, plan) = (self.second(), self.plan.clone());
        for (at, planned) in plan.steps.iter().enumerate() {
            let mut field = |bits: u32| {
                let [planes, cols] = self.field(bits);
                bundle.planes(cx.engine, planes, cols)
            };
            let dealt = if second {
                let share = bundle.words(cx.engine, self.n)?;
                Dealt { share: Some(share), na: None, met: Vec::new() }
            } else {
                let na = (plan.bits(at) > 0).then(|| field(plan.bits(at))).transpose()?;
                let met = planned.met.iter().map(|met| field(plan.bits(met.step)));
                Dealt { share: None, na, met: met.collect::<Result<_>>()? }
            };
            self.dealt.push(dealt);
        }
        Ok(())
    }

    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool> {
        match self.phase.take() {
            Some(Phase::Level(level, sent)) => {
                self.receive_level(cx, level, sent)?;
                self.phase = if level < self.plan.levels {
                    let phase = self.send_level(cx, level + 1)?;
                    self.retire(level + 1);
                    self.plan.level(level + 1).for_each(|at| self.dealt[at].met.clear());
                    Some(phase)
                } else {
                    self.settle(cx)?
                };
            }
            Some(Phase::Settling(waiting)) => self.receive_fields(cx, waiting)?,
            None => {}
        }
        Ok(self.phase.is_none())
    }
}
