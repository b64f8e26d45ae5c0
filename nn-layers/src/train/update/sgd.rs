//! Stochastic gradient descent, as operations of a step's graph.

use crate::graph::{Binary, Format, Graph, Op, ValueId};
use crate::plan::compile::passes::products::rounding_layer;
use crate::train::options::TrainOptions;
use crate::{Error, HostTensor, Result};

/// Gradient descent.
#[derive(Debug, Clone, Copy)]
pub(in crate::train) struct Sgd {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    /// The momentum's public factor.
    pub(super) factor: Option<ValueId>,
    pub(super) decay: Option<ValueId>,
}

impl Sgd {
    pub(super) fn update(
        self,
        graph: &mut Graph,
        options: &TrainOptions,
        parameters: &[(ValueId, ValueId)],
    ) -> Result<Vec<(String, ValueId)>> {
        // A step that only adds up gradients leaves formats as they are.
        let plain = self.decay.is_none() && self.factor.is_none() && options.accumulate == 1;
        let mut updates = vec![];
        for &(weight, grad) in parameters {
            let parameter = graph.parameter_behind(weight);
            let constant =
                graph.start_of(parameter).ok_or_else(|| Error::plan("not a parameter"))?;
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
        let parameter = self.graph.parameter_behind(self.weight);
        let uses = self.graph.nodes.iter().filter(|node| node.inputs.contains(&parameter));
        let added = |op: &Op| matches!(op, Op::Binary(Binary::Add | Binary::Sub) | Op::Crew { .. });
        uses.into_iter().all(|node| added(&node.op))
    }

    /// The new value of a parameter that has the format of its gradient: nothing is rounded.
    fn exactly(&mut self, grad: ValueId) -> Result<(String, ValueId)> {
        for value in [self.weight, self.graph.parameter_behind(self.weight)] {
            self.graph.nodes[value.0].format = Format::Gradient;
        }
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
