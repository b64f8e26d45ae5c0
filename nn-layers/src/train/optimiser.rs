//! Optimisers: the rules by which weights follow their gradients.

use serde::{Deserialize, Serialize};

use super::adam::{self, Adam, Limit, Second};
use super::{Step, TrainOptions};
use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::plan::compile::passes::products::rounding_layer;
use crate::{Error, HostTensor, Result};

/// Optimisers: the rules by which weights follow their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Optimiser {
    /// Stochastic gradient descent as PyTorch has it. The momentum is kept times the learning rate, and grows and falls
    /// with it. Rounds once a weight, in the product that is its gradient; a Nesterov step once more.
    Sgd {
        /// The part of the last step that continues; 0 keeps no momentum.
        momentum: f64,
        /// Look ahead by the momentum.
        nesterov: bool,
        /// Added to the gradient, times the weight.
        decay: f64,
    },
    /// Adam, AdamW and AMSGrad.
    Adam(Adam),
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

    /// Adam with PyTorch's numbers.
    pub fn adam() -> Self {
        Self::Adam(Adam::default())
    }

    /// Adam whose second moments are shared by all weights of an output neuron or of a filter.
    pub fn adam_by_row() -> Self {
        Self::Adam(Adam { second: Second::Row, ..Adam::default() })
    }

    /// The public numbers of a step: the learning rate as the plan takes it, and the factors of the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the step's number is needed and missing, or the rate grows too much for a momentum.
    pub(super) fn public(
        &self,
        step: Step,
        batch: usize,
        options: &TrainOptions,
    ) -> Result<Vec<f64>> {
        Ok(match *self {
            Self::Sgd { momentum, decay, .. } => {
                let mut numbers = vec![step.rate / options.rows(batch)];
                if decay > 0.0 {
                    numbers.push(step.rate * decay);
                }
                if momentum > 0.0 {
                    numbers.push(momentum * step.growth()?);
                }
                numbers
            }
            Self::Adam(adam) => {
                let number = step.number.ok_or_else(|| {
                    Error::invalid(
                        "step",
                        "Adam needs the number of a step: Step::new(number, rate)",
                    )
                })?;
                adam.public(number / options.accumulate, step.rate, batch, options)
            }
        })
    }

    /// The number of such numbers.
    pub(super) fn public_inputs(&self, options: &TrainOptions) -> usize {
        match self {
            Self::Sgd { momentum, decay, .. } => {
                1 + usize::from(*decay > 0.0) + usize::from(*momentum > 0.0)
            }
            Self::Adam(adam) => adam.public_inputs(options),
        }
    }

    /// The largest factor of gradients of the batch's mean loss.
    pub(super) fn unit(&self, largest_rate: f64) -> f64 {
        match self {
            Self::Sgd { .. } => largest_rate,
            Self::Adam(adam) => adam.unit(),
        }
    }

    /// The fewest fraction bits of gradients that can join the optimiser's tensors.
    pub(super) fn least_gradients(&self) -> u32 {
        match self {
            Self::Sgd { .. } => 0,
            Self::Adam(adam) => adam.kept_frac(),
        }
    }

    /// True if some steps leave out a part that others compute.
    pub(super) fn varies(&self) -> bool {
        matches!(self, Self::Adam(adam) if adam.every > 1)
    }

    /// True if a step leaves out nothing.
    pub(super) fn is_full(&self, step: Step) -> bool {
        match (self, step.number) {
            (Self::Adam(adam), Some(number)) => adam.refreshes(number),
            _ => true,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let (momentum, nesterov, decay) = match *self {
            Self::Sgd { momentum, nesterov, decay } => (momentum, nesterov, decay),
            Self::Adam(adam) => return adam.check(),
        };
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

    /// Adds the public numbers with which a step begins to its graph.
    pub(super) fn placed(&self, graph: &mut Graph, options: &TrainOptions) -> Result<Placed> {
        let batch = graph.batch();
        Ok(match *self {
            Self::Sgd { momentum, nesterov, decay } => {
                let mut input = |name, frac| graph.input_with_frac(name, &[Dim::Fixed(1)], frac);
                let rate = input("learning rate", RATE_FRAC)?;
                let decay_frac = decay_frac(options, batch);
                let decay = (decay > 0.0).then(|| input("decay", decay_frac)).transpose()?;
                let factor = (momentum > 0.0).then(|| input("momentum", MOMENTUM)).transpose()?;
                Placed::Sgd { sgd: Sgd { momentum, nesterov, factor, decay }, rate }
            }
            Self::Adam(adam) => Placed::Adam { adam, inputs: adam.inputs(graph, options)? },
        })
    }
}

/// Fraction bits of the learning rate for a single row.
const RATE_FRAC: u32 = 30;

/// An optimiser with its public numbers in a step's graph.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placed {
    /// Gradient descent with the learning rate for a single row.
    Sgd { sgd: Sgd, rate: ValueId },
    /// Adam.
    Adam { adam: Adam, inputs: adam::Inputs },
}

impl Placed {
    /// The factor that makes gradients of the sum of a batch's losses those that the optimiser takes.
    pub(super) fn factor(&self) -> ValueId {
        match self {
            Self::Sgd { rate, .. } => *rate,
            Self::Adam { inputs, .. } => inputs.gradient,
        }
    }

    /// Adds the new values of the parameters and of their optimiser state, by name. `full` selects a step that
    /// leaves out nothing, or one in between.
    pub(super) fn update(
        &self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
        full: bool,
    ) -> Result<Vec<(String, ValueId)>> {
        let clipped = self.clipped(graph, options, parameters)?;
        match self {
            Self::Sgd { sgd, .. } => sgd.update(graph, options, &clipped),
            Self::Adam { adam, inputs } => {
                adam::update(adam, graph, options, *inputs, &clipped, full)
            }
        }
    }

    /// The gradients, their common norm limited if it is to be.
    fn clipped(
        &self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
    ) -> Result<Vec<(ValueId, ValueId)>> {
        let Some(most) = options.clip else { return Ok(parameters.to_vec()) };
        let mut grads = vec![];
        for &(_, grad) in parameters {
            // Rounded here: its square and its product with the factor need a separate format.
            grads.push(graph.add_as(Format::Fixed(CLIPPED), "clip", Op::Cast, &[grad])?);
        }
        let limit = match self {
            Self::Sgd { rate, .. } => {
                Limit::Times { limit: most * options.rows(graph.batch()), unit: *rate }
            }
            Self::Adam { adam, inputs } => adam.limit(inputs, most)?,
        };
        let factor = adam::clip_factor(graph, &grads, &limit)?;
        let mut clipped = vec![];
        for (&(weight, _), grad) in parameters.iter().zip(grads) {
            let product = Op::Binary(Binary::Mul);
            let scaled = graph.add_as(Format::Gradient, "clip", product, &[grad, factor])?;
            clipped.push((weight, scaled));
        }
        Ok(clipped)
    }
}

/// Fraction bits of gradients whose norm is limited.
const CLIPPED: u32 = 28;

/// Gradient descent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sgd {
    momentum: f64,
    nesterov: bool,
    /// The momentum's public factor.
    factor: Option<ValueId>,
    decay: Option<ValueId>,
}

impl Sgd {
    fn update(
        self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
    ) -> Result<Vec<(String, ValueId)>> {
        // A step that only adds up gradients leaves formats as they are.
        let plain = self.decay.is_none() && self.factor.is_none() && options.accumulate == 1;
        let mut updates = vec![];
        for &(weight, grad) in parameters {
            let constant = graph.start_of(weight).ok_or_else(|| Error::plan("not a parameter"))?;
            let name = constant.name.clone();
            let mut update = Update { graph, name, weight };
            // A bias's gradient is a sum of values that have been rounded before.
            let rounded = rounding_layer(update.graph, None, grad).is_none();
            if rounded && update.is_bias() && plain {
                updates.push(update.exactly(grad)?);
                continue;
            }
            let grad = update.decayed(grad, self.decay)?;
            updates.extend(match self.factor {
                Some(factor) => update.with_momentum(self, grad, factor)?,
                None => vec![update.descended(grad)?],
            });
        }
        Ok(updates)
    }
}

/// Fraction bits of the factor of momenta. Its rounding changes a step by 2^-17 of the step before, and to round off so few
/// bits of a bias takes less than for more.
const MOMENTUM: u32 = 16;

/// Fraction bits of the decay's factor: as many as the product that it joins has beyond a weight.
fn decay_frac(options: &TrainOptions, batch: usize) -> u32 {
    let formats = options.plan_formats(batch);
    let product = match options.clip {
        Some(_) => CLIPPED + adam::FACTOR,
        None => formats.values + formats.gradients,
    };
    product.saturating_sub(formats.weights).clamp(1, 30)
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
        let format = self.joining(grad);
        let part = self.add(format, Op::Binary(Binary::Mul), &[self.weight, decay])?;
        self.sum(grad, part)
    }

    /// The new weight of a step along the gradient.
    fn descended(&mut self, grad: ValueId) -> Result<(String, ValueId)> {
        let step = self.add(Format::Weight, Op::Cast, &[grad])?;
        Ok((self.name.clone(), self.moved(step)?))
    }

    /// The new weight and the new momentum: both are times the step's learning rate, so `factor` is that of the momentum
    /// times the rate's growth since the last step.
    fn with_momentum(
        &mut self,
        optimiser: Sgd,
        grad: ValueId,
        factor: ValueId,
    ) -> Result<Vec<(String, ValueId)>> {
        let Sgd { momentum, nesterov, .. } = optimiser;
        let name = format!("{}.momentum", self.name);
        let shape = self.graph.shape(self.weight);
        let zeros = HostTensor::new(shape.dims(), vec![0.0; shape.len()])?;
        let last = self.graph.parameter(&name, zeros);
        let kept = self.add(self.joining(grad), Op::Binary(Binary::Mul), &[last, factor])?;
        let sum = self.sum(grad, kept)?;
        let next = self.add(Format::Weight, Op::Cast, &[sum])?;
        let step = if nesterov { self.ahead(next, kept, momentum)? } else { next };
        Ok(vec![(self.name.clone(), self.moved(step)?), (name, next)])
    }

    /// The format of a value that is added to a gradient. The sum of a product has all its bits, and is rounded
    /// once. Sums of rows of a table are products with zeros and ones: they have only the bits of gradients.
    fn joining(&self, grad: ValueId) -> Format {
        let layer = rounding_layer(self.graph, None, grad);
        let counted = |mut at: ValueId| {
            while let Op::Reshape(_) | Op::Permute(_) = self.graph.nodes[at.0].op {
                at = self.graph.nodes[at.0].inputs[0];
            }
            matches!(self.graph.nodes[at.0].op, Op::OneHot(_))
        };
        let counts = layer
            .is_some_and(|(layer, _)| self.graph.nodes[layer.0].inputs.iter().any(|&x| counted(x)));
        if counts { Format::Gradient } else { Format::Exact }
    }

    /// True if the parameter is only ever added.
    fn is_bias(&self) -> bool {
        let uses = self.graph.nodes.iter().filter(|node| node.inputs.contains(&self.weight));
        uses.into_iter().all(|node| matches!(node.op, Op::Binary(Binary::Add | Binary::Sub)))
    }

    /// The new value of a parameter that has the format of its gradient: nothing is rounded.
    fn exactly(&mut self, grad: ValueId) -> Result<(String, ValueId)> {
        self.graph.nodes[self.weight.0].format = Format::Gradient;
        let step = self.add(Format::Gradient, Op::Cast, &[grad])?;
        let moved = self.add(Format::Gradient, Op::Binary(Binary::Sub), &[self.weight, step])?;
        Ok((self.name.clone(), moved))
    }

    /// The gradient and the part of the new momentum that continues: `(v' - m v) + m v'`.
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
