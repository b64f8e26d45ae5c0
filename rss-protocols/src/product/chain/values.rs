//! The samples, messages and values of a chain's steps.

use std::collections::HashMap;

use mpc_core::Value;
use ring_arith::Engine;

use super::schedule::Schedule;
use crate::runtime::{
    prss::{Key, Sample},
    rounds::Port,
};

/// The samples of a step.
#[derive(Clone)]
pub(super) struct StepSamples {
    /// Masks of the halves.
    pub(super) halves: [Sample; 2],
    /// Right's share of `A`; of a checked truncation right's part of `a`.
    pub(super) share: Sample,
    /// Left's share of `na`, and of `na` times the factor of each carry.
    pub(super) na: Sample,
    pub(super) carries: Vec<Sample>,
    /// Masks of a result's fields.
    pub(super) fields: [Sample; 2],
    /// Of a checked truncation left's shares of the bits of the sum of the rounded parts, and of its carry.
    pub(super) bits: Sample,
    pub(super) carry: Sample,
}

/// The dealer's message about a step.
pub(super) enum StepMessage<T> {
    /// A share of `A`.
    Left(T),
    /// Shares of `na`, and of `na` times the factor of each carry, as planes; of a checked truncation also of the carry
    /// of the rounded parts.
    Right { na: T, checked: Option<T>, carries: Vec<T> },
}

/// The values of a chain so far.
pub(super) struct Values<X> {
    pub(super) inputs: Vec<X>,
    /// Those of steps that are still to be taken.
    pub(super) steps: HashMap<usize, X>,
}

/// A value as an evaluator knows it.
#[derive(Clone)]
pub(super) struct Known<T> {
    /// `B`.
    pub(super) part: T,
    /// Its share of `A`.
    pub(super) share: T,
}

impl StepSamples {
    pub(super) fn sample<E: Engine>(
        p: &mut Port<'_, E>,
        schedule: &Schedule,
        at: usize,
        n: usize,
    ) -> Self {
        let product = &schedule.steps[at];
        let carry = if product.step.bits > 0 { n } else { 0 };
        let field = if schedule.results.contains(&at) { carry } else { 0 };
        let checked = if p.is_checked() { carry } else { 0 };
        let bits = 64 - product.step.bits as usize;
        Self {
            halves: p.sample_both(n),
            share: p.sample(Key::Right, n),
            na: p.sample(Key::Left, carry),
            carries: product.carries.iter().map(|_| p.sample(Key::Left, n)).collect(),
            fields: p.sample_both(field),
            bits: p.sample(Key::Left, bits * checked.div_ceil(64)),
            carry: p.sample(Key::Left, checked),
        }
    }
}

impl<X> Values<X> {
    pub(super) fn get(&self, value: Value) -> &X {
        match value {
            Value::Input(i) => &self.inputs[i],
            Value::Step(i) => &self.steps[&i],
        }
    }
}
