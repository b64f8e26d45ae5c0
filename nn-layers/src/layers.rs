//! Layers: parts of a network with their weights, in PyTorch's terms.
//!
//! A layer adds its operations to a [`Graph`]; the plan made of that fuses them, and any protocol runs
//! it. Training is a pass over the graph ([`crate::train`]), not another argument here.

mod attention;
mod linear;
mod norm;
mod pool;
mod shape;

pub use attention::MultiHeadAttention;
pub use linear::{Conv1d, Conv2d, Embedding, Linear};
pub use norm::{BatchNorm, LayerNorm};
pub use pool::{AdaptiveAvgPool, AvgPool, GlobalAvgPool, MaxPool};
pub use shape::{Dropout, Flatten, Residual, Sequential, Softmax};

use ring_arith::Shape;

use crate::{Dim, Graph, HostTensor, Op, Result, Unary, ValueId};

/// A part of a network with one input and one result.
pub trait Layer {
    /// Adds the layer to a network, applied to `x`. Its weights and steps are named after `name`.
    ///
    /// # Errors
    /// [`crate::Error::Node`] if `x` or a weight has a shape that does not fit.
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId>;

    /// True if the input consists of integers.
    fn takes_integers(&self) -> bool {
        false
    }

    /// The shape of the result for an input of the given shape. Nothing is run.
    ///
    /// # Errors
    /// As [`Layer::forward`].
    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let mut graph = Graph::new(1);
        let dims: Vec<_> = input.dims().iter().map(|&d| Dim::Fixed(d)).collect();
        let x = match self.takes_integers() {
            true => graph.integer_input("x", &dims)?,
            false => graph.input("x", &dims)?,
        };
        let y = self.forward(&mut graph, "layer", x)?;
        Ok(graph.shape(y).clone())
    }
}

/// Numbers of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Weight {
    /// A secret of the model's owner.
    Secret(HostTensor),
    /// Public: products with it cost a truncation and no other communication.
    Public(HostTensor),
}

impl Weight {
    /// The numbers.
    pub fn value(&self) -> &HostTensor {
        match self {
            Self::Secret(value) | Self::Public(value) => value,
        }
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        self.value().dims()
    }

    /// True if the numbers are a secret.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret(_))
    }

    /// The same numbers under another shape.
    fn reshaped(&self, dims: impl Into<Vec<usize>>) -> Result<Self> {
        let value = self.value().reshape(dims)?;
        Ok(if self.is_secret() { Self::Secret(value) } else { Self::Public(value) })
    }

    /// Adds the numbers to a network.
    fn add(&self, graph: &mut Graph, name: &str) -> ValueId {
        graph.constant(name, self.value().clone(), self.is_secret())
    }
}

/// Numbers are secret unless said otherwise.
impl From<HostTensor> for Weight {
    fn from(value: HostTensor) -> Self {
        Self::Secret(value)
    }
}

/// A function of every element is a layer.
impl Layer for Unary {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        graph.add(name, Op::Unary(*self), &[x])
    }
}
