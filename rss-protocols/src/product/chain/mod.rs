//! Chains of element-wise products whose truncations are completed at the end.
//!
//! After its first exchange a truncated product is `A + B + nb N`, `N = na 2^(64 - t)`: `A` and `na = not_a_msb` are
//! known to the dealer, `B` and `nb = not_b_msb` to both evaluators. The dealer has shared `A` and, modulo `2^t`, `na`
//! between them. That is enough to multiply it: of `(A + B + nb N)(A' + B' + nb' N')` the dealer knows `A A'`; `A B'`
//! and `B A'` follow from the shares of `A` and `A'`; `N N'` vanishes if `t + t' <= 64`, and is `na 2^(128 - 2t)` if it
//! is one carry; `nb N (A' + B')` follows from shares of `na` and of `na A'` modulo `2^t`, which the dealer also deals.
//! So each level is one exchange, of halves as for any product. The carry is added as for any truncation, once, in the
//! results of the chain. A shared value is such a sum without a carry.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | of each step a share of `A` to left; of `na` and of `na` times the other factor to right | halves of level 1 to right | halves of level 1 to left |
//! | one a level | | halves of the level to right | halves of the level to left |
//! | last | | the results' carries, masked, to right | the same, to left |
//!
//! Cost of a product: 192 bits and `t` for each carry in its factors, `t` for its own; `early` `2t` fewer. A result `2t`.
//! One round for each level, and one at the end unless results are not truncated.
//!
//! In a checked session truncations are those of [`super::truncate_checked`]: `A` is the sum of the rounded parts of `a`,
//! less their carry, for 64 bits more.

mod relations;
mod schedule;
mod values;

use std::{collections::HashMap, sync::Arc};

use mpc_core::{Chain, Result, ShareTensor, Sum};
use ring_arith::{Engine, EngineTensor, Shape};

use super::split::{Half, Halves};
use crate::{
    Rss, Share,
    kernels::{
        ChainCarry, ChainChecked, ChainCheckedDealer, ChainDeal, ChainDealer, ChainEarly,
        ChainHalf, ChainRawDealer, ChainSettle, ChainSettleDealer, ChainWhole, Difference, Xor,
    },
    linear::weighted,
    runtime::{
        chunks::Layout,
        launch::{made, whole},
        roles::Pair,
        rounds::{Incoming, Port, Rounds},
    },
    share::output::Outputs,
};
use relations::Stated;
use schedule::{Product, Schedule};
use values::{Known, StepMessage, StepSamples, Values};

/// A chain for one chunk.
struct Run<'a, E: Engine> {
    p: Port<'a, E>,
    n: usize,
    schedule: Arc<Schedule>,
    samples: Vec<StepSamples>,
}

impl<E: Engine> Rss<E> {
    /// A chain, if its carries can wait.
    pub(crate) fn chained(
        &mut self,
        chain: &Chain<'_, Share<E::Tensor>>,
        levels: Vec<usize>,
    ) -> Result<Option<Vec<Share<E::Tensor>>>> {
        let Some(schedule) = Schedule::new(chain, levels, self.is_checked()) else {
            return Ok(None);
        };
        let schedule = Arc::new(schedule);
        let shape = chain.inputs[0].shape().clone();
        let inputs = chain.inputs.iter().map(|x| self.flat_pair(x)).collect::<Result<Vec<_>>>()?;
        let chunks = self.chunks(shape.len());
        let results = schedule.results.len();
        let output = Outputs::scattered(self.party(), chunks, Layout::FLAT, shape, results);
        let mut rounds = Rounds::new();
        for chunk in &output.chunks {
            let p = self.port(chunk);
            let inputs = inputs.iter().map(|x| self.chunk_of(x, chunk)).collect::<Result<_>>()?;
            rounds.add(p.role(), run(p, schedule.clone(), inputs, chunk.len()));
        }
        let distinct = output.shares(&self.engine, rounds.run(&self.links)?)?;
        let mut shares = Vec::with_capacity(chain.results.len());
        for step in &chain.results {
            let at = schedule.results.partition_point(|other| other < step);
            shares.push(distinct[at].clone());
        }
        Ok(Some(shares))
    }
}

/// Runs a chain on one chunk: its results in the schedule's order.
async fn run<E: Engine>(
    mut p: Port<'_, E>,
    schedule: Arc<Schedule>,
    inputs: Vec<Pair<E::Tensor>>,
    n: usize,
) -> Result<Vec<Pair<E::Tensor>>> {
    let steps = 0..schedule.steps.len();
    let samples: Vec<_> = steps.map(|at| StepSamples::sample(&mut p, &schedule, at, n)).collect();
    let run = Run { p, n, schedule, samples };
    run.p.owe({
        let stated = Stated { n, schedule: run.schedule.clone(), samples: run.samples.clone() };
        let inputs = inputs.clone();
        move |t| stated.relations(t, &inputs)
    });
    if run.p.deals() { run.deal(inputs) } else { run.evaluate(inputs).await }
}

impl<E: Engine> Run<'_, E> {
    /// A weighted sum of this party's parts of values. One value alone is not computed.
    fn sum(&self, terms: &[(u64, &E::Tensor)], constant: u64) -> Result<E::Tensor> {
        if let ([(1, x)], 0) = (terms, constant) {
            return Ok((*x).clone());
        }
        let shape = Shape::new([self.n])?;
        weighted(self.p.engine, self.p.zeros, &shape, terms, constant)
    }

    /// The addend of a product; none if it is 0.
    fn addend(
        &self,
        sum: &Sum,
        part: impl FnOnce(&Sum) -> Result<E::Tensor>,
    ) -> Result<Option<E::Tensor>> {
        let nothing = sum.terms.is_empty() && sum.constant == 0;
        if nothing { Ok(None) } else { part(sum).map(Some) }
    }

    // -- the dealer ------------------------------------------------------------------------------

    fn deal(&self, inputs: Vec<Pair<E::Tensor>>) -> Result<Vec<Pair<E::Tensor>>> {
        let inputs = inputs.iter().map(|x| self.p.dealers(x)).collect::<Result<_>>()?;
        let mut parts = Values { inputs, steps: HashMap::new() };
        let mut na = HashMap::new();
        // Right's shares of checked truncations, which are not samples.
        let mut shares = HashMap::new();
        for at in 0..self.schedule.steps.len() {
            let part = self.deal_step(at, &parts, &mut na, &mut shares)?;
            parts.steps.insert(at, part);
            let in_use = |step: &usize| self.schedule.last[*step].is_none_or(|[last, _]| last > at);
            parts.steps.retain(|step, _| in_use(step));
            na.retain(|step, _| in_use(step));
        }
        let result = |&at: &usize| self.deal_result(at, &parts.steps[&at], shares.get(&at));
        self.schedule.results.iter().map(result).collect()
    }

    /// The dealer's part of a sum. Constants belong to the evaluators'.
    fn dealers_sum(&self, sum: &Sum, parts: &Values<E::Tensor>) -> Result<E::Tensor> {
        let terms: Vec<_> = sum.terms.iter().map(|&(c, value)| (c, parts.get(value))).collect();
        self.sum(&terms, 0)
    }

    /// The dealer's part of a step; its `na`, if it is truncated, joins the others. Shares of them leave.
    fn deal_step(
        &self,
        at: usize,
        parts: &Values<E::Tensor>,
        all_na: &mut HashMap<usize, E::Tensor>,
        shares: &mut HashMap<usize, E::Tensor>,
    ) -> Result<E::Tensor> {
        let Self { p, n, schedule, .. } = self;
        let Product { step, carries, .. } = &schedule.steps[at];
        let samples = &self.samples[at];
        let x = self.dealers_sum(&step.lhs, parts)?;
        let y = self.dealers_sum(&step.rhs, parts)?;
        let plus = self.addend(&step.plus, |sum| self.dealers_sum(sum, parts))?;
        let plus = plus.as_ref().map_or(p.zero(), whole);
        let [w_left, w_right] = samples.halves.map(|sample| p.words_of(sample));
        let y0 = p.words_of(samples.share);
        let t = step.bits;
        let part = if t == 0 {
            let sources = [whole(&x), whole(&y), plus, w_left, w_right, y0];
            let [a, share] = p.words(&ChainRawDealer, *n, sources, &[])?;
            p.to_left(&share)?;
            a
        } else if p.is_checked() {
            let [e, g] = [samples.na, samples.carry].map(|sample| p.words_of(sample));
            let sources = [whole(&x), whole(&y), plus, w_left, w_right, y0, e, g];
            let [part, a_left, e, g, na, share] =
                p.words(&ChainCheckedDealer { t }, *n, sources, &[])?;
            p.to_left(&a_left)?;
            let bits = p.engine.to_planes(&part, 0, 64 - t)?;
            let masks = made(p.engine, bits.shape(), p.words_of(samples.bits))?;
            p.to_right(&p.map(&Xor, [&bits, &masks], &[])?)?;
            p.bits_to_right(&e, t)?;
            p.bits_to_right(&g, t)?;
            all_na.insert(at, na);
            shares.insert(at, share);
            part
        } else {
            let e = p.words_of(samples.na);
            let sources = [whole(&x), whole(&y), plus, w_left, w_right, y0, e];
            let [part, share, e, na] = p.words(&ChainDealer { t }, *n, sources, &[])?;
            p.to_left(&share)?;
            p.bits_to_right(&e, t)?;
            all_na.insert(at, na);
            part
        };
        for (carry, &mask) in carries.iter().zip(&samples.carries) {
            let t = schedule.bits(carry.step);
            let sources = [whole(&all_na[&carry.step]), whole(&x), whole(&y), p.words_of(mask)];
            let [share] = p.words(&ChainDeal { t }, *n, sources, &carry.factors)?;
            p.bits_to_right(&share, t)?;
        }
        Ok(part)
    }

    /// The dealer's components of a result.
    fn deal_result(
        &self,
        at: usize,
        part: &E::Tensor,
        share: Option<&E::Tensor>,
    ) -> Result<Pair<E::Tensor>> {
        let p = &self.p;
        let samples = &self.samples[at];
        let t = self.schedule.bits(at);
        if t == 0 {
            let y0 = p.tensor_of(samples.share)?;
            let y1 = p.map(&Difference, [part, &y0], &[])?;
            return Ok(Pair(y0, y1));
        }
        let [m_left, m_right] = samples.fields.map(|sample| p.words_of(sample));
        let share = share.map_or_else(|| p.words_of(samples.share), whole);
        let sources = [whole(part), share, m_left, m_right];
        let [y0, y1] = p.words(&ChainSettleDealer { t }, self.n, sources, &[])?;
        Ok(Pair(y0, y1))
    }

    // -- the evaluators --------------------------------------------------------------------------

    async fn evaluate(&self, inputs: Vec<Pair<E::Tensor>>) -> Result<Vec<Pair<E::Tensor>>> {
        let Self { p, schedule, .. } = self;
        let known =
            |x: &Pair<E::Tensor>| Known { part: p.joint(x).clone(), share: p.shared(x).clone() };
        let mut values =
            Values { inputs: inputs.iter().map(known).collect(), steps: HashMap::new() };
        // By truncated step: nb, and nb times the share of na.
        let mut carries: HashMap<usize, [E::Tensor; 2]> = HashMap::new();
        // Inputs do not have carries, so the first level needs nothing from the dealer.
        let mut halves = self.send_level(1, &values, &carries, &mut [])?;
        let mut dealt = self.read(&p.dealt().await)?;
        for level in 1..=schedule.levels {
            if level > 1 {
                halves = self.send_level(level, &values, &carries, &mut dealt)?;
                let in_use =
                    |step: &usize| schedule.last[*step].is_none_or(|[_, last]| last > level);
                values.steps.retain(|step, _| in_use(step));
                carries.retain(|step, _| in_use(step));
            }
            let received = p.received().await;
            for (at, half) in schedule.level(level).zip(std::mem::take(&mut halves)) {
                let known = self.receive(at, half, &received, &mut dealt[at], &mut carries)?;
                values.steps.insert(at, known);
            }
        }
        self.settle(&values, &carries).await
    }

    fn read(&self, dealt: &Incoming<'_, '_, E>) -> Result<Vec<StepMessage<E::Tensor>>> {
        let cols = self.n.div_ceil(64);
        let schedule = &self.schedule;
        let mut messages = Vec::with_capacity(schedule.steps.len());
        for product in &schedule.steps {
            if self.p.is_left() {
                messages.push(StepMessage::Left(dealt.words(self.n)?));
                continue;
            }
            let bits = product.step.bits as usize;
            let checked = self.p.is_checked() && bits > 0;
            if checked {
                // Only the statements read these.
                dealt.planes(64 - bits, cols)?;
            }
            let na = dealt.planes(bits, cols)?;
            let checked = checked.then(|| dealt.planes(bits, cols)).transpose()?;
            let mut carries = Vec::with_capacity(product.carries.len());
            for carry in &product.carries {
                carries.push(dealt.planes(schedule.bits(carry.step) as usize, cols)?);
            }
            messages.push(StepMessage::Right { na, checked, carries });
        }
        Ok(messages)
    }

    /// An evaluator's part of a sum, and its share of `A`.
    fn known(&self, sum: &Sum, values: &Values<Known<E::Tensor>>) -> Result<Known<E::Tensor>> {
        let known = || sum.terms.iter().map(|&(c, value)| (c, values.get(value)));
        let parts: Vec<_> = known().map(|(c, known)| (c, &known.part)).collect();
        let shares: Vec<_> = known().map(|(c, known)| (c, &known.share)).collect();
        Ok(Known { part: self.sum(&parts, sum.constant)?, share: self.sum(&shares, 0)? })
    }

    /// An evaluator's part of a sum.
    fn evaluators_sum(&self, sum: &Sum, values: &Values<Known<E::Tensor>>) -> Result<E::Tensor> {
        let known = sum.terms.iter().map(|&(c, value)| (c, &values.get(value).part));
        self.sum(&known.collect::<Vec<_>>(), sum.constant)
    }

    /// This party's half of each step of a level, sent unchanged or rounded.
    fn send_level(
        &self,
        level: usize,
        values: &Values<Known<E::Tensor>>,
        carries: &HashMap<usize, [E::Tensor; 2]>,
        dealt: &mut [StepMessage<E::Tensor>],
    ) -> Result<Vec<Half<E::Tensor>>> {
        let mut sent = Vec::new();
        for at in self.schedule.level(level) {
            // Right's shares are needed once.
            let shares = match dealt.get_mut(at) {
                Some(StepMessage::Right { carries, .. }) => std::mem::take(carries),
                _ => Vec::new(),
            };
            let half = self.half(at, values, carries, &shares)?;
            sent.push(Half::send(&self.p, half, self.schedule.steps[at].early())?);
        }
        Ok(sent)
    }

    /// This party's masked half of a step.
    fn half(
        &self,
        at: usize,
        values: &Values<Known<E::Tensor>>,
        known_carries: &HashMap<usize, [E::Tensor; 2]>,
        shares: &[E::Tensor],
    ) -> Result<E::Tensor> {
        let Self { p, n, schedule, .. } = self;
        let (Product { step, carries, added, .. }, samples) =
            (&schedule.steps[at], &self.samples[at]);
        let x = self.known(&step.lhs, values)?;
        let y = self.known(&step.rhs, values)?;
        let plus = self.addend(&step.plus, |sum| self.evaluators_sum(sum, values))?;
        let plus = plus.as_ref().map_or(p.zero(), whole);
        let mask = p.words_of(p.own(samples.halves));
        let sources =
            [whole(&x.part), whole(&x.share), whole(&y.part), whole(&y.share), plus, mask];
        let [mut half] = p.words(&ChainHalf, *n, sources, &[p.if_left()])?;
        for (i, carry) in carries.iter().enumerate() {
            let [nb, share] = &known_carries[&carry.step];
            let t = schedule.bits(carry.step);
            let sent = shares.get(i).map(|planes| p.bits_as_words(planes, *n)).transpose()?;
            let times = sent.as_ref().map_or_else(|| p.words_of(samples.carries[i]), whole);
            let sources =
                [whole(&half), whole(nb), times, whole(share), whole(&x.part), whole(&y.part)];
            [half] = p.words(&ChainCarry { t }, *n, sources, &carry.factors)?;
            let [c, d] = carry.factors;
            let itself = 2 * t > 64 && c != 0 && d != 0;
            mutant!("chain: a carry times itself forgotten", itself = false);
            if itself {
                // (nb N)^2 = nb na 2^(128 - 2t): the carry times itself.
                let factor = c.wrapping_mul(d) << (128 - 2 * t);
                half = self.sum(&[(1, &half), (factor, share)], 0)?;
            }
        }
        mutant!("chain: an addend's carry forgotten", added = &added[..0]);
        for &(step, factor) in added {
            let [_, share] = &known_carries[&step];
            let factor = factor << (64 - schedule.bits(step));
            half = self.sum(&[(1, &half), (factor, share)], 0)?;
        }
        Ok(half)
    }

    /// Receives the peer's half of a step and returns the step's known part; the carry of a truncation joins
    /// the others.
    fn receive(
        &self,
        at: usize,
        half: Half<E::Tensor>,
        received: &Incoming<'_, '_, E>,
        dealt: &mut StepMessage<E::Tensor>,
        carries: &mut HashMap<usize, [E::Tensor; 2]>,
    ) -> Result<Known<E::Tensor>> {
        let Self { p, n, .. } = self;
        let samples = &self.samples[at];
        let t = self.schedule.bits(at);
        let halves = half.receive(received)?;
        if t > 0 && p.is_checked() {
            return self.receive_checked(at, &halves, dealt, carries);
        }
        let part = if t == 0 {
            halves.sum(p, None)?
        } else {
            let sent = match &*dealt {
                StepMessage::Right { na, .. } => Some(p.bits_as_words(na, *n)?),
                StepMessage::Left(_) => None,
            };
            let na = sent.as_ref().map_or_else(|| p.words_of(samples.na), whole);
            let [own, other] = halves.words(p);
            let [part, nb, share] = if halves.rounded() {
                p.words(&ChainEarly { t }, *n, [own, other, na], &[])?
            } else {
                p.words(&ChainWhole { t }, *n, [own, other, na], &[])?
            };
            carries.insert(at, [nb, share]);
            part
        };
        let share = match &*dealt {
            StepMessage::Left(share) => share.clone(),
            StepMessage::Right { .. } => p.tensor_of(samples.share)?,
        };
        Ok(Known { part, share })
    }

    /// The same of a checked truncation.
    fn receive_checked(
        &self,
        at: usize,
        halves: &Halves<E::Tensor>,
        dealt: &StepMessage<E::Tensor>,
        carries: &mut HashMap<usize, [E::Tensor; 2]>,
    ) -> Result<Known<E::Tensor>> {
        let Self { p, n, .. } = self;
        let samples = &self.samples[at];
        let t = self.schedule.bits(at);
        let [own, other] = halves.words(p);
        let words = |planes| p.bits_as_words(planes, *n);
        let right = match dealt {
            StepMessage::Right { na, checked: Some(carry), .. } => {
                Some([words(na)?, words(carry)?])
            }
            _ => None,
        };
        let [e, a, g] = match (dealt, &right) {
            (StepMessage::Left(a), _) => {
                [p.words_of(samples.na), whole(a), p.words_of(samples.carry)]
            }
            (_, Some([e, g])) => [whole(e), p.words_of(samples.share), whole(g)],
            _ => unreachable!("a checked truncation has a carry"),
        };
        let sources = [own, other, e, a, g];
        let [part, nb, carry, share] = p.words(&ChainChecked { t }, *n, sources, &[p.if_left()])?;
        carries.insert(at, [nb, carry]);
        Ok(Known { part, share })
    }

    /// All levels are done: the evaluators settle the carries of results that are truncated.
    async fn settle(
        &self,
        values: &Values<Known<E::Tensor>>,
        carries: &HashMap<usize, [E::Tensor; 2]>,
    ) -> Result<Vec<Pair<E::Tensor>>> {
        let Self { p, n, schedule, .. } = self;
        let mut settled = Vec::with_capacity(schedule.results.len());
        for &at in &schedule.results {
            let Known { part, share } = &values.steps[&at];
            let t = schedule.bits(at);
            if t == 0 {
                settled.push([part.clone(), share.clone()]);
                continue;
            }
            let [_, carry] = &carries[&at];
            let mask = p.words_of(p.own(self.samples[at].fields));
            let sources = [whole(part), whole(carry), whole(share), mask];
            let [partial, field, share] = p.words(&ChainSettle { t }, *n, sources, &[])?;
            p.bits_to_peer(&field, t)?;
            settled.push([partial, share]);
        }
        let mut results = Vec::with_capacity(settled.len());
        if schedule.results.iter().all(|&at| schedule.bits(at) == 0) {
            results.extend(settled.into_iter().map(|[joint, shared]| p.pair(shared, joint)));
            return Ok(results);
        }
        let received = p.received().await;
        for (&at, [partial, shared]) in schedule.results.iter().zip(settled) {
            let t = schedule.bits(at);
            let joint = if t == 0 {
                partial
            } else {
                p.sum_into(&partial, &received.bits(*n, t, 64 - t)?, None)?
            };
            results.push(p.pair(shared, joint));
        }
        Ok(results)
    }
}
