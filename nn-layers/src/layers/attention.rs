//! Attention.

use super::{Layer, Linear};
use crate::{Binary, Dim, Error, Graph, HostTensor, Op, Result, ValueId};

/// Self-attention of several heads over `[N, T, W]` (Vaswani et al., NeurIPS 2017, section 3.2).
#[derive(Debug, Clone, PartialEq)]
pub struct MultiHeadAttention {
    /// `W` to `W`: the query of each position.
    pub query: Linear,
    /// `W` to `W`: the key of each position.
    pub key: Linear,
    /// `W` to `W`: the value of each position.
    pub value: Linear,
    /// `W` to `W`: applied to the results of all heads.
    pub output: Linear,
    /// Number of heads, a divisor of `W`.
    pub heads: usize,
    /// Added to the scores `[T, T]`, the same for all heads: a large negative number hides a position.
    /// Public.
    pub mask: Option<HostTensor>,
}

impl Layer for MultiHeadAttention {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        self.attended(graph, name, x, false)
    }
}

impl MultiHeadAttention {
    /// The layer of a step: positions also see those that are cached. Keys and values become the states
    /// `NAME.past.key` and `.value`, `[N, heads, past, W / heads]`, which the step extends. The mask is that of the
    /// step's own positions.
    ///
    /// # Errors
    /// [`Error::Node`] if the shapes do not fit, [`Error::Invalid`] unless the graph was made by
    /// [`Graph::with_past`].
    pub fn step(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        self.attended(graph, name, x, true)
    }

    fn attended(&self, graph: &mut Graph, name: &str, x: ValueId, cached: bool) -> Result<ValueId> {
        let bad = |reason: String| Error::Node { node: name.to_owned(), reason };
        let &[batch, time, width] = graph.shape(x).dims() else {
            return Err(bad(format!("attention: {:?} is not [N, T, W]", graph.shape(x))));
        };
        if self.heads == 0 || width % self.heads != 0 {
            return Err(bad(format!("{} heads do not divide a width of {width}", self.heads)));
        }
        let depth = width / self.heads;
        let of_heads = |graph: &mut Graph, part: &str, layer: &Linear| {
            let name = format!("{name}.{part}");
            let y = layer.forward(graph, &name, x)?;
            let dims = [time, self.heads, depth].map(Dim::Fixed);
            let y = graph.add(&name, Op::Reshape([&[Dim::Rest], &dims[..]].concat()), &[y])?;
            graph.add(&name, Op::Permute(vec![0, 2, 1, 3]), &[y])
        };
        let query = of_heads(graph, "query", &self.query)?;
        let key = of_heads(graph, "key", &self.key)?;
        let value = of_heads(graph, "value", &self.value)?;
        let (key, value) = if cached {
            let dims = [batch, self.heads, 0, depth].map(Dim::Fixed);
            let mut grown = |part: &str, by: ValueId| {
                let state = graph.state(&format!("{name}.past.{part}"), &dims, 2)?;
                graph.extend(&format!("{name}.present.{part}"), state, by)
            };
            (grown("key", key)?, grown("value", value)?)
        } else {
            (key, value)
        };
        let product = |transpose_rhs| Op::MatMul { transpose_lhs: false, transpose_rhs };
        let scores = graph.add(name, product(true), &[query, key])?;
        let mut scores = graph.add(name, Op::Scale(1.0 / (depth as f64).sqrt()), &[scores])?;
        if let Some(mask) = &self.mask {
            let name = format!("{name}.mask");
            let mut mask = graph.public(&name, mask.clone());
            if cached {
                let none = graph.public(&name, HostTensor::new([1, 1], vec![0.0])?);
                let dims = vec![Dim::Fixed(time), Dim::Past { times: 1, more: 0 }];
                let none = graph.add(&name, Op::Broadcast(dims), &[none])?;
                mask = graph.add(&name, Op::Concat(1), &[none, mask])?;
            }
            scores = graph.add(&name, Op::Binary(Binary::Add), &[scores, mask])?;
        }
        let weights = graph.add(name, Op::Softmax { axis: 3, log: false }, &[scores])?;
        let gathered = graph.add(name, product(false), &[weights, value])?;
        let gathered = graph.add(name, Op::Permute(vec![0, 2, 1, 3]), &[gathered])?;
        let dims = vec![Dim::Rest, Dim::Fixed(time), Dim::Fixed(width)];
        let gathered = graph.add(name, Op::Reshape(dims), &[gathered])?;
        self.output.forward(graph, &format!("{name}.output"), gathered)
    }
}
