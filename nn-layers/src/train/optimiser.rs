//! How weights follow their gradients.

use serde::{Deserialize, Serialize};

use super::TrainOptions;
use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::{Error, HostTensor, Result};

/// How weights follow their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Optimiser {
    /// Stochastic gradient descent as PyTorch has it, but that the learning rate is a factor of what joins
    /// the momentum, not of the momentum itself: the same while the rate does not change. Rounds once a
    /// weight, in the product that is its gradient; a Nesterov step once more.
    Sgd {
        /// The part of the last step that goes on; 0 keeps no momentum.
        momentum: f64,
        /// Look ahead by the momentum.
        nesterov: bool,
        /// Added to the gradient, times the weight.
        decay: f64,
    },
}

impl Default for Optimiser {
    fn default() -> Self {
        Self::sgd(0.0)
    }
}

impl Optimiser {
    /// Stochastic gradient descent with a momentum.
    pub fn sgd(momentum: f64) -> Self {
        Self::Sgd { momentum, nesterov: false, decay: 0.0 }
    }

    /// The factor of the weights' decay.
    pub(super) fn decay(self) -> f64 {
        let Self::Sgd { decay, .. } = self;
        decay
    }

    pub(super) fn check(self) -> Result<()> {
        let Self::Sgd { momentum, nesterov, decay } = self;
        if !(0.0..1.0).contains(&momentum) || !(0.0..=1.0).contains(&decay) {
            let reason =
                format!("momentum {momentum} is not below 1, or decay {decay} not up to 1");
            return Err(Error::invalid("optimiser", reason));
        }
        if nesterov && momentum == 0.0 {
            return Err(Error::invalid("optimiser", "a Nesterov step needs a momentum"));
        }
        Ok(())
    }

    /// Adds the new values of the parameters and of what belongs to them, by name.
    pub(super) fn update(
        self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[ValueId],
        grads: &[ValueId],
    ) -> Result<Vec<(String, ValueId)>> {
        let decay = match self.decay() {
            0.0 => None,
            _ => {
                let frac = decay_frac(options, graph.batch());
                Some(graph.input_with_frac("decay", &[Dim::Fixed(1)], frac)?)
            }
        };
        let mut updates = vec![];
        for (&weight, &grad) in parameters.iter().zip(grads) {
            let constant = graph.start_of(weight).ok_or_else(|| Error::plan("not a parameter"))?;
            let name = constant.name.clone();
            let mut update = Update { graph, name, weight };
            let grad = update.decayed(grad, decay)?;
            updates.extend(update.sgd(self, grad)?);
        }
        Ok(updates)
    }
}

/// Fraction bits of the decay's factor: as many as a product of value and gradient has beyond a weight.
fn decay_frac(options: &TrainOptions, batch: usize) -> u32 {
    let formats = options.plan_formats(batch);
    (formats.values + formats.gradients).saturating_sub(formats.weights).clamp(1, 30)
}

/// One parameter's update.
struct Update<'a> {
    graph: &'a mut Graph,
    name: String,
    weight: ValueId,
}

impl Update<'_> {
    fn add(&mut self, format: Format, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let name = format!("{}.update", self.name);
        self.graph.add_as(format, &name, op, inputs)
    }

    fn sum(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(Format::Gradient, Op::Binary(Binary::Add), &[x, y])
    }

    /// The gradient with the weight's decay.
    fn decayed(&mut self, grad: ValueId, decay: Option<ValueId>) -> Result<ValueId> {
        let Some(decay) = decay else { return Ok(grad) };
        let part = self.add(Format::Exact, Op::Binary(Binary::Mul), &[self.weight, decay])?;
        self.sum(grad, part)
    }

    /// The new weight, and the new momentum if there is one.
    fn sgd(&mut self, optimiser: Optimiser, grad: ValueId) -> Result<Vec<(String, ValueId)>> {
        let Optimiser::Sgd { momentum, nesterov, .. } = optimiser;
        if momentum == 0.0 {
            let step = self.add(Format::Weight, Op::Cast, &[grad])?;
            return Ok(vec![(self.name.clone(), self.moved(step)?)]);
        }
        let name = format!("{}.momentum", self.name);
        let shape = self.graph.shape(self.weight);
        let zeros = HostTensor::new(shape.dims(), vec![0.0; shape.len()])?;
        let last = self.graph.parameter(&name, zeros);
        let kept = self.add(Format::Exact, Op::Scale(momentum), &[last])?;
        let sum = self.sum(grad, kept)?;
        let next = self.add(Format::Weight, Op::Cast, &[sum])?;
        let step = if nesterov { self.ahead(next, kept, momentum)? } else { next };
        Ok(vec![(self.name.clone(), self.moved(step)?), (name, next)])
    }

    /// The gradient and the part of the new momentum that goes on: `(v' - m v) + m v'`.
    fn ahead(&mut self, next: ValueId, kept: ValueId, momentum: f64) -> Result<ValueId> {
        let grad = self.add(Format::Gradient, Op::Binary(Binary::Sub), &[next, kept])?;
        let part = self.add(Format::Exact, Op::Scale(momentum), &[next])?;
        let sum = self.sum(grad, part)?;
        self.add(Format::Weight, Op::Cast, &[sum])
    }

    /// The weight less a step.
    fn moved(&mut self, step: ValueId) -> Result<ValueId> {
        self.add(Format::Weight, Op::Binary(Binary::Sub), &[self.weight, step])
    }
}
