//! Normalisations.

use super::{Layer, Weight};
use crate::host::elementwise;
use crate::{Binary, Error, Graph, HostTensor, Op, Result, ValueId};

/// Batch normalisation of `[N, C, ..]` with the statistics of training, four tensors of shape `[C]`:
/// `(x - mean) / sqrt(variance + epsilon) * scale + shift`. Behind a linear layer it costs nothing.
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

impl BatchNorm {
    /// Factor and summand of each channel, shaped for an input of the given rank.
    fn affine(&self, rank: usize) -> Result<[HostTensor; 2]> {
        let binary = |f, x: &HostTensor, y: &HostTensor| elementwise::binary(f, x, y);
        let deviation = self.variance.value().map(|v| (v + self.epsilon).sqrt());
        let factor = binary(Binary::Div, self.scale.value(), &deviation)?;
        let moved = binary(Binary::Mul, self.mean.value(), &factor)?;
        let offset = binary(Binary::Sub, self.shift.value(), &moved)?;
        factor.check_finite()?;
        let mut dims = vec![1; rank.saturating_sub(1).max(1)];
        dims[0] = factor.len();
        Ok([factor.reshape(dims.clone())?, offset.reshape(dims)?])
    }
}

impl Layer for BatchNorm {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let secret = [&self.scale, &self.shift, &self.mean, &self.variance];
        let secret = secret.iter().any(|weight| weight.is_secret());
        let rank = graph.shape(x).rank();
        let [factor, offset] = self.affine(rank).map_err(|e| e.at(name))?;
        let factor = graph.constant(&format!("{name}.scale"), factor, secret);
        let offset = graph.constant(&format!("{name}.shift"), offset, secret);
        let y = graph.add(name, Op::Binary(Binary::Mul), &[x, factor])?;
        graph.add(name, Op::Binary(Binary::Add), &[y, offset])
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
        let op = Op::Normalize { axis: shape.rank() - axes, epsilon: self.epsilon };
        let y = graph.add(name, op, &[x])?;
        let scale = self.scale.add(graph, &format!("{name}.scale"));
        let shift = self.shift.add(graph, &format!("{name}.shift"));
        let y = graph.add(name, Op::Binary(Binary::Mul), &[y, scale])?;
        graph.add(name, Op::Binary(Binary::Add), &[y, shift])
    }
}
