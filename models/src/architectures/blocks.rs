//! The parts that the networks are put together from.

use nn_layers::{Binary, Dim, Graph, HostTensor, Kernel, Op, Pool, Reduce, Unary, ValueId};

use super::{Pooling, Role, Weights};
use crate::Result;

/// A graph being built, with the source of its weights.
pub(crate) struct Builder<'a> {
    pub graph: Graph,
    weights: &'a mut dyn Weights,
}

impl<'a> Builder<'a> {
    /// A network of square images.
    pub fn new(
        channels: usize,
        size: usize,
        weights: &'a mut dyn Weights,
    ) -> Result<(Self, ValueId)> {
        let mut graph = Graph::new(1);
        let dims = [Dim::Batch(1), Dim::Fixed(channels), Dim::Fixed(size), Dim::Fixed(size)];
        let x = graph.input("image", &dims)?;
        Ok((Self { graph, weights }, x))
    }

    /// The finished graph.
    pub fn finish(mut self, logits: ValueId) -> Graph {
        self.graph.output("logits", logits);
        self.graph
    }

    fn dims(&self, x: ValueId) -> Vec<usize> {
        self.graph.shape(x).dims().to_vec()
    }

    /// A convolution without a bias.
    pub fn bare_conv(
        &mut self,
        x: ValueId,
        name: &str,
        outputs: usize,
        window: Pool,
    ) -> Result<ValueId> {
        let dims = [outputs, self.dims(x)[1], window.size[0], window.size[1]];
        let kernel_name = format!("{name}.weight");
        let inputs = dims[1..].iter().product();
        let w = self.weights.tensor(&kernel_name, &dims, Role::Kernel(inputs))?;
        let w = self.graph.weight(&kernel_name, w);
        Ok(self.graph.add(name, Op::Conv(Kernel::new(window)), &[x, w])?)
    }

    /// A convolution.
    pub fn conv(
        &mut self,
        x: ValueId,
        name: &str,
        outputs: usize,
        window: Pool,
    ) -> Result<ValueId> {
        let y = self.bare_conv(x, name, outputs, window)?;
        let bias_name = format!("{name}.bias");
        let b = self.weights.tensor(&bias_name, &[outputs], Role::Shift)?;
        let b = self.graph.weight(&bias_name, b.reshape([outputs, 1, 1])?);
        Ok(self.graph.add(name, Op::Binary(Binary::Add), &[y, b])?)
    }

    /// Batch normalisation with the statistics of training, its scale around `scale` at random.
    pub fn norm(&mut self, x: ValueId, name: &str, scale: f64) -> Result<ValueId> {
        let c = self.dims(x)[1];
        let mut part =
            |what: &str, role| self.weights.tensor(&format!("{name}.{what}"), &[c], role);
        let (weight, bias) = (part("weight", Role::Scale(scale))?, part("bias", Role::Shift)?);
        let (mean, variance) =
            (part("running_mean", Role::Shift)?, part("running_var", Role::Variance)?);
        let (weight, bias) = (weight.floats(), bias.floats());
        let (mean, variance) = (mean.floats(), variance.floats());
        let factor: Vec<_> = (0..c).map(|i| weight[i] / (variance[i] + 1e-5).sqrt()).collect();
        let offset = (0..c).map(|i| bias[i] - mean[i] * factor[i]).collect();
        let factor = HostTensor::new([c, 1, 1], factor)?;
        let offset = HostTensor::new([c, 1, 1], offset)?;
        let factor = self.graph.weight(&format!("{name}.scale"), factor);
        let offset = self.graph.weight(&format!("{name}.shift"), offset);
        let y = self.graph.add(name, Op::Binary(Binary::Mul), &[x, factor])?;
        Ok(self.graph.add(name, Op::Binary(Binary::Add), &[y, offset])?)
    }

    /// A fully connected layer.
    pub fn dense(&mut self, x: ValueId, name: &str, outputs: usize) -> Result<ValueId> {
        let inputs = self.dims(x)[1];
        let (w_name, b_name) = (format!("{name}.weight"), format!("{name}.bias"));
        let w = self.weights.tensor(&w_name, &[outputs, inputs], Role::Kernel(inputs))?;
        let b = self.weights.tensor(&b_name, &[outputs], Role::Shift)?;
        let (w, b) = (self.graph.weight(&w_name, w), self.graph.weight(&b_name, b));
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        let y = self.graph.add(name, op, &[x, w])?;
        Ok(self.graph.add(name, Op::Binary(Binary::Add), &[y, b])?)
    }

    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        self.unnamed(Op::Unary(Unary::Relu), &[x])
    }

    pub fn sum(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.unnamed(Op::Binary(Binary::Add), &[x, y])
    }

    /// Pools in the way of the network.
    pub fn pool(&mut self, x: ValueId, pooling: Pooling, pool: Pool) -> Result<ValueId> {
        let op = match pooling {
            Pooling::Average => Op::AvgPool { pool, count_border: true },
            Pooling::Max => Op::MaxPool(pool),
        };
        self.unnamed(op, &[x])
    }

    /// The mean of each channel, as `[N, C]`.
    pub fn global_mean(&mut self, x: ValueId) -> Result<ValueId> {
        self.unnamed(Op::Reduce { kind: Reduce::Mean, axes: vec![2, 3], keep: false }, &[x])
    }

    /// `[N, ..]` as `[N, features]`.
    pub fn flatten(&mut self, x: ValueId) -> Result<ValueId> {
        let features = self.dims(x)[1..].iter().product();
        self.unnamed(Op::Reshape(vec![Dim::Rest, Dim::Fixed(features)]), &[x])
    }

    fn unnamed(&mut self, op: Op, xs: &[ValueId]) -> Result<ValueId> {
        let name = op.name();
        Ok(self.graph.add(name, op, xs)?)
    }
}

/// A square window with a border of the same width all around.
pub(crate) fn window(size: usize, stride: usize, padding: usize) -> Pool {
    Pool::new([size; 2], [stride; 2]).padded([padding; 4])
}
