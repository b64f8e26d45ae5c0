//! The building blocks of the networks.

use nn_layers::layers::{
    AvgPool, BatchNorm, Conv2d, Flatten, GlobalAvgPool, Layer, Linear, MaxPool, Weight,
};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, Pool, Unary, ValueId};

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
        let weight = self.kernel(x, name, outputs, window)?;
        self.convolve(x, name, window, Conv2d::new(weight, None))
    }

    /// A convolution.
    pub fn conv(
        &mut self,
        x: ValueId,
        name: &str,
        outputs: usize,
        window: Pool,
    ) -> Result<ValueId> {
        let weight = self.kernel(x, name, outputs, window)?;
        let bias = self.weights.tensor(&format!("{name}.bias"), &[outputs], Role::Shift)?;
        self.convolve(x, name, window, Conv2d::new(weight, Some(bias.into())))
    }

    fn kernel(&mut self, x: ValueId, name: &str, outputs: usize, of: Pool) -> Result<HostTensor> {
        let dims = [outputs, self.dims(x)[1], of.size[0], of.size[1]];
        let role = Role::Kernel(dims[1..].iter().product());
        self.weights.tensor(&format!("{name}.weight"), &dims, role)
    }

    fn convolve(&mut self, x: ValueId, name: &str, of: Pool, layer: Conv2d) -> Result<ValueId> {
        let Pool { stride, padding, dilation, .. } = of;
        self.layer(x, name, &Conv2d { stride, padding, dilation, ..layer })
    }

    /// Batch normalisation with the statistics of training, its scale around `scale` at random.
    pub fn norm(&mut self, x: ValueId, name: &str, scale: f64) -> Result<ValueId> {
        let channels = [self.dims(x)[1]];
        let mut part = |what: &str, role| {
            self.weights.tensor(&format!("{name}.{what}"), &channels, role).map(Weight::from)
        };
        let (scale, shift) = (part("weight", Role::Scale(scale))?, part("bias", Role::Shift)?);
        let (mean, variance) =
            (part("running_mean", Role::Shift)?, part("running_var", Role::Variance)?);
        self.layer(
            x,
            name,
            &BatchNorm { scale, shift, mean, variance, epsilon: 1e-5, momentum: 0.1 },
        )
    }

    /// A fully connected layer.
    pub fn dense(&mut self, x: ValueId, name: &str, outputs: usize) -> Result<ValueId> {
        let inputs = self.dims(x)[1];
        let role = Role::Kernel(inputs);
        let weight = self.weights.tensor(&format!("{name}.weight"), &[outputs, inputs], role)?;
        let bias = self.weights.tensor(&format!("{name}.bias"), &[outputs], Role::Shift)?;
        self.layer(x, name, &Linear::new(weight, bias))
    }

    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        self.layer(x, "relu", &Unary::Relu)
    }

    pub fn sum(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        Ok(self.graph.add("add", Op::Binary(Binary::Add), &[x, y])?)
    }

    /// Adds a pool of the network's kind.
    pub fn pool(&mut self, x: ValueId, pooling: Pooling, pool: Pool) -> Result<ValueId> {
        match pooling {
            Pooling::Average => self.layer(x, "avg-pool", &AvgPool { pool, count_border: true }),
            Pooling::Max => self.layer(x, "max-pool", &MaxPool(pool)),
        }
    }

    /// The mean of each channel, as `[N, C]`.
    pub fn global_mean(&mut self, x: ValueId) -> Result<ValueId> {
        self.layer(x, "avg-pool", &GlobalAvgPool)
    }

    /// `[N, ..]` as `[N, features]`.
    pub fn flatten(&mut self, x: ValueId) -> Result<ValueId> {
        self.layer(x, "flatten", &Flatten)
    }

    fn layer(&mut self, x: ValueId, name: &str, layer: &impl Layer) -> Result<ValueId> {
        Ok(layer.forward(&mut self.graph, name, x)?)
    }
}

/// A square window with a border of the same width all around.
pub(crate) fn window(size: usize, stride: usize, padding: usize) -> Pool {
    Pool::new([size; 2], [stride; 2]).padded([padding; 4])
}
