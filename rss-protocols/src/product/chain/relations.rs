//! The relations that all owe for a chain.

use std::{collections::HashMap, sync::Arc};

use mpc_core::{Result, Sum, Value};
use ring_arith::Engine;

use super::{schedule::Schedule, values::StepSamples};
use crate::{
    product::truncate_checked::{base, not_top, rounded, rounding_relations},
    proofs::{Shared, Transcript, Words},
    runtime::roles::{Pair, Role},
};

/// A chain on one chunk, as its relations need it.
pub(super) struct Stated {
    pub n: usize,
    pub schedule: Arc<Schedule>,
    pub samples: Vec<StepSamples>,
}

/// A value of a chain: the evaluators' shares of `A`, and `B`.
#[derive(Clone)]
struct Known {
    shares: Shared<Words>,
    part: Words,
}

/// The dealer's message about a step, and its samples.
struct Dealt {
    /// The evaluators' shares of `A`.
    shares: Shared<Words>,
    /// Those of `na`, and of `na` times the factor of each carry.
    na: Shared<Words>,
    carries: Vec<Shared<Words>>,
}

impl Stated {
    /// First the dealer owes all its messages, which depend on nobody's; then level by level the evaluators theirs.
    pub fn relations<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        inputs: &[Pair<E::Tensor>],
    ) -> Result<()> {
        let mut components = Vec::with_capacity(inputs.len());
        for x in inputs {
            components.push(t.components::<_>(x)?);
        }
        let mut dealt: Vec<Dealt> = Vec::new();
        for at in 0..self.schedule.steps.len() {
            let of_step = self.dealt(t, at, &components, &dealt)?;
            dealt.push(of_step);
        }
        let mut parts = HashMap::new();
        let mut carries = HashMap::new();
        for level in 1..=self.schedule.levels {
            let mut made = Vec::new();
            for at in self.schedule.level(level) {
                made.push((at, self.half(t, at, &components, (&dealt, &parts, &carries))?));
            }
            for (at, b) in made {
                let bits = self.schedule.bits(at);
                if bits == 0 {
                    parts.insert(at, b);
                    continue;
                }
                let hi = rounded(&b, bits);
                carries.insert(at, not_top(&hi, bits));
                parts.insert(at, base(&hi, bits));
            }
        }
        for &at in self.schedule.results.iter().filter(|&&at| self.schedule.bits(at) > 0) {
            let bits = self.schedule.bits(at);
            let sent = t.exchanged(bits as usize, self.n.div_ceil(64))?;
            let masks = self.samples[at].fields;
            let both = [Role::Left, Role::Right].into_iter().zip(sent).zip(masks);
            for (side, ((role, field), mask)) in both.enumerate() {
                let mask: Words = t.sample(mask);
                let sum =
                    &dealt[at].na[side] * &carries[&at] + mask.map(|mask| mask >> (64 - bits));
                t.words(role, bits, &(sum - field.words(self.n)))?;
            }
        }
        Ok(())
    }

    /// The shares of `A` of a sum.
    fn shares(&self, sum: &Sum, inputs: &[[Words; 3]], dealt: &[Dealt]) -> Shared<Words> {
        let share = |value: &Value, side: usize| match *value {
            Value::Input(i) => &inputs[i][1 - side],
            Value::Step(i) => &dealt[i].shares[side],
        };
        [0, 1].map(|side| sum.terms.iter().map(|(c, value)| share(value, side).scaled(*c)).sum())
    }

    /// The relations that the dealer owes for a step.
    fn dealt<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        at: usize,
        inputs: &[[Words; 3]],
        before: &[Dealt],
    ) -> Result<Dealt> {
        let n = self.n;
        let cols = self.n.div_ceil(64);
        let samples = &self.samples[at];
        let product = &self.schedule.steps[at];
        let bits = product.step.bits;
        let [x, y, plus] = [&product.step.lhs, &product.step.rhs, &product.step.plus]
            .map(|sum| self.shares(sum, inputs, before));
        let [x, y, plus] = [x, y, plus].map(|[left, right]| left + right);
        let [w_left, w_right]: [Words; 2] = t.samples(samples.halves);
        let a: Shared<Words> = [t.dealt_left(1, n)?, t.sample(samples.share)];
        t.words(Role::Dealer, 64, &(&x * &y + plus - w_left - w_right - &a[0] - &a[1]))?;
        let (shares, na) = if bits == 0 {
            (a, [Words::constant(n, 0), Words::constant(n, 0)])
        } else {
            let h = [t.sample(samples.bits), t.dealt_right(64 - bits as usize, cols)?];
            let e = t.bits_of(samples.na, bits)?;
            let g = t.bits_of(samples.carry, bits)?;
            let ([left, right], _) = rounding_relations(t, (n, bits), &a, [&h, &e, &g])?;
            let [g_left, g_right] = g.map(|g| g.words(n).shl(64 - bits));
            ([left - g_left, right - g_right], e.map(|e| e.words(n)))
        };
        let mut carries = Vec::with_capacity(product.carries.len());
        for (carry, &mask) in product.carries.iter().zip(&samples.carries) {
            let bits = self.schedule.bits(carry.step);
            let share = t.bits_of(mask, bits)?.map(|share| share.words(n));
            let [c, d] = carry.factors;
            let [n_left, n_right] = &before[carry.step].na;
            let owed = (n_left + n_right) * (y.scaled(c) + x.scaled(d)) - &share[0] - &share[1];
            t.words(Role::Dealer, bits, &owed)?;
            carries.push(share);
        }
        Ok(Dealt { shares, na, carries })
    }

    /// The relations that the evaluators owe for their halves of a step: the sum of both.
    fn half<E: Engine>(
        &self,
        t: &mut Transcript<'_, E>,
        at: usize,
        inputs: &[[Words; 3]],
        (dealt, parts, nb): (&[Dealt], &HashMap<usize, Words>, &HashMap<usize, Words>),
    ) -> Result<Words> {
        let n = self.n;
        let product = &self.schedule.steps[at];
        let known = |sum: &Sum| {
            let part = |value: &Value| match *value {
                Value::Input(i) => &inputs[i][2],
                Value::Step(i) => &parts[&i],
            };
            let terms = sum.terms.iter().map(|(c, value)| part(value).scaled(*c));
            let part = terms.sum::<Words>() + Words::constant(n, sum.constant);
            Known { shares: self.shares(sum, inputs, dealt), part }
        };
        let [x, y, plus] = [&product.step.lhs, &product.step.rhs, &product.step.plus].map(known);
        let masks: [Words; 2] = t.samples(self.samples[at].halves);
        let sent: [Words; 2] = t.exchanged(1, n)?;
        for (side, role) in [Role::Left, Role::Right].into_iter().enumerate() {
            let mut half = &x.shares[side] * &y.part + &y.shares[side] * &x.part + &masks[side];
            if role == Role::Left {
                half = half + &x.part * &y.part + &plus.part;
            }
            for (i, carry) in product.carries.iter().enumerate() {
                let bits = self.schedule.bits(carry.step);
                let [c, d] = carry.factors;
                let nb = &nb[&carry.step];
                let na = &dealt[carry.step].na[side];
                let factor = y.part.scaled(c) + x.part.scaled(d);
                let times = &dealt[at].carries[i][side];
                half = half + (times * nb + na * (nb * factor)).shl(64 - bits);
                if 2 * bits > 64 {
                    half = half + na.scaled(c.wrapping_mul(d) << (128 - 2 * bits)) * nb;
                }
            }
            for &(step, factor) in &product.added {
                let times = factor << (64 - self.schedule.bits(step));
                half = half + dealt[step].na[side].scaled(times) * &nb[&step];
            }
            t.words(role, 64, &(half - &sent[side]))?;
        }
        let [left, right] = sent;
        Ok(left + right)
    }
}
