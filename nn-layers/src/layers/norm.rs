//! Normalisations.

use super::{Layer, Weight};
use crate::{Binary, Centre, Error, Graph, Op, Result, ValueId};

/// Batch normalisation of `[N, C, ..]`, four tensors of shape `[C]`:
/// `(x - mean) / sqrt(variance + epsilon) * scale + shift`. After a linear layer it costs nothing. A training
/// that changes its scale or shift takes mean and variance of the batch, and these here follow them.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Factor.
    pub scale: Weight,
    /// Summand.
    pub shift: Weight,
    /// Mean of each channel.
    pub mean: Weight,
    /// Variance of each channel.
    pub variance: Weight,
    /// Added to the variance.
    pub epsilon: f64,
    /// The part of a batch's mean and variance in the new running ones; 0.1 in PyTorch.
    pub momentum: f64,
}

/// `(x - mean) / sqrt(variance + epsilon) * scale + shift`, mean and variance taken over the last
/// axes, as many as `scale` has.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// Factor.
    pub scale: Weight,
    /// Summand.
    pub shift: Weight,
    /// Added to the variance.
    pub epsilon: f64,
}

impl Layer for BatchNorm {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let parts = [
            (&self.scale, "scale"),
            (&self.shift, "shift"),
            (&self.mean, "mean"),
            (&self.variance, "variance"),
        ];
        let parts = parts.map(|(part, what)| part.add(graph, &format!("{name}.{what}")));
        let norm = crate::BatchNorm { epsilon: self.epsilon, momentum: self.momentum };
        let [scale, shift, mean, variance] = parts;
        graph.add(name, Op::BatchNorm(norm), &[x, scale, shift, mean, variance])
    }
}

impl Layer for LayerNorm {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let shape = graph.shape(x);
        let axes = self.scale.dims().len();
        let fits = axes > 0 && shape.dims().ends_with(self.scale.dims());
        if !fits || self.shift.dims() != self.scale.dims() {
            let (scale, shift) = (self.scale.dims(), self.shift.dims());
            let reason =
                format!("scale {scale:?} and shift {shift:?} are not the last axes of {shape:?}");
            return Err(Error::Node { node: name.to_owned(), reason });
        }
        let (axis, epsilon) = (shape.rank() - axes, self.epsilon);
        let op = Op::Normalize { axis, centre: Centre::Mean, epsilon };
        let y = graph.add(name, op, &[x])?;
        let scale = self.scale.add(graph, &format!("{name}.scale"));
        let shift = self.shift.add(graph, &format!("{name}.shift"));
        let y = graph.add(name, Op::Binary(Binary::Mul), &[y, scale])?;
        graph.add(name, Op::Binary(Binary::Add), &[y, shift])
    }
}
