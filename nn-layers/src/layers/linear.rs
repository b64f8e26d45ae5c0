//! Layers whose work is a product with a weight.

use super::{Layer, Weight};
use crate::{Binary, Dim, Error, Graph, Kernel, Op, Pool, Result, ValueId};

/// `x w^T + b` over the last axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Weight,
    /// `[outputs]`.
    pub bias: Option<Weight>,
}

/// A convolution of `[N, C, L]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv1d {
    /// `[O, C / groups, k]`.
    pub weight: Weight,
    /// `[O]`.
    pub bias: Option<Weight>,
    /// Step between positions.
    pub stride: usize,
    /// Zeros before and after.
    pub padding: [usize; 2],
    /// Distance between the kernel's taps.
    pub dilation: usize,
    /// Channel groups.
    pub groups: usize,
}

/// A convolution of `[N, C, H, W]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d {
    /// `[O, C / groups, h, w]`.
    pub weight: Weight,
    /// `[O]`.
    pub bias: Option<Weight>,
    /// Step between positions.
    pub stride: [usize; 2],
    /// Zeros at top, left, bottom and right.
    pub padding: [usize; 4],
    /// Distance between the kernel's taps.
    pub dilation: [usize; 2],
    /// Channel groups.
    pub groups: usize,
}

/// Rows of a table at secret positions, which are integers: a product with their one-hot code.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// `[rows, ..]`.
    pub table: Weight,
}

impl Linear {
    /// A layer with a bias.
    pub fn new(weight: impl Into<Weight>, bias: impl Into<Weight>) -> Self {
        Self { weight: weight.into(), bias: Some(bias.into()) }
    }
}

impl Conv1d {
    /// A convolution of step 1 without border.
    pub fn new(weight: impl Into<Weight>, bias: Option<Weight>) -> Self {
        let weight = weight.into();
        Self { weight, bias, stride: 1, padding: [0; 2], dilation: 1, groups: 1 }
    }
}

impl Conv2d {
    /// A convolution of step 1 without border.
    pub fn new(weight: impl Into<Weight>, bias: Option<Weight>) -> Self {
        let weight = weight.into();
        Self { weight, bias, stride: [1; 2], padding: [0; 4], dilation: [1; 2], groups: 1 }
    }
}

impl Layer for Linear {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let w = self.weight.add(graph, &format!("{name}.weight"));
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
        let y = graph.add(name, op, &[x, w])?;
        match &self.bias {
            Some(bias) => plus(graph, name, y, bias),
            None => Ok(y),
        }
    }
}

impl Layer for Conv2d {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let &[outputs, _, height, width] = self.weight.dims() else {
            return Err(misfit(name, "[O, C / groups, h, w]", &self.weight));
        };
        let size = [height, width];
        let Self { stride, padding, dilation, groups, .. } = *self;
        let window = Pool { size, stride, padding, dilation };
        let w = self.weight.add(graph, &format!("{name}.weight"));
        let y = graph.add(name, Op::Conv(Kernel { window, groups }), &[x, w])?;
        match &self.bias {
            Some(bias) => {
                plus(graph, name, y, &bias.reshaped([outputs, 1, 1]).map_err(|e| e.at(name))?)
            }
            None => Ok(y),
        }
    }
}

/// A convolution of images of height 1.
impl Layer for Conv1d {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let &[outputs, inputs, width] = self.weight.dims() else {
            return Err(misfit(name, "[O, C / groups, k]", &self.weight));
        };
        let &[_, channels, length] = graph.shape(x).dims() else {
            let reason = format!("conv: {:?} is not [N, C, L]", graph.shape(x));
            return Err(Error::Node { node: name.to_owned(), reason });
        };
        let [before, after] = self.padding;
        let wide = Conv2d {
            weight: self.weight.reshaped([outputs, inputs, 1, width])?,
            bias: self.bias.clone(),
            stride: [1, self.stride],
            padding: [0, before, 0, after],
            dilation: [1, self.dilation],
            groups: self.groups,
        };
        let raised = [channels, 1, length].map(Dim::Fixed);
        let x = graph.add(name, Op::Reshape([&[Dim::Rest], &raised[..]].concat()), &[x])?;
        let y = wide.forward(graph, name, x)?;
        let positions = graph.shape(y).dims()[3];
        let dims = vec![Dim::Rest, Dim::Fixed(outputs), Dim::Fixed(positions)];
        graph.add(name, Op::Reshape(dims), &[y])
    }
}

impl Layer for Embedding {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let table = self.table.add(graph, &format!("{name}.weight"));
        graph.add(name, Op::Lookup, &[table, x])
    }

    fn takes_integers(&self) -> bool {
        true
    }
}

fn plus(graph: &mut Graph, name: &str, y: ValueId, bias: &Weight) -> Result<ValueId> {
    let bias = bias.add(graph, &format!("{name}.bias"));
    graph.add(name, Op::Binary(Binary::Add), &[y, bias])
}

fn misfit(name: &str, wanted: &str, weight: &Weight) -> Error {
    let reason = format!("the weight has shape {:?}, not {wanted}", weight.dims());
    Error::Node { node: name.to_owned(), reason }
}
