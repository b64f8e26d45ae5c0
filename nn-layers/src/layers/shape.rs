//! Layers without weights, and layers made of layers.

use super::Layer;
use crate::{Binary, Dim, Graph, Op, Result, ValueId};

/// `exp(x) / sum(exp(x))` along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
}

/// `[N, ..]` as `[N, features]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flatten;

/// Nothing: in inference no element is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout;

/// `body(x) + shortcut(x)`; the shortcut is `x` itself if there is none.
pub struct Residual {
    /// The layer that changes the input.
    pub body: Box<dyn Layer>,
    /// The layer that brings the input to the shape of the body's result.
    pub shortcut: Option<Box<dyn Layer>>,
}

/// Named layers one after the other.
#[derive(Default)]
pub struct Sequential(Vec<(String, Box<dyn Layer>)>);

impl Sequential {
    /// No layer yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one layer more.
    #[must_use]
    pub fn then(mut self, name: &str, layer: impl Layer + 'static) -> Self {
        self.0.push((name.to_owned(), Box::new(layer)));
        self
    }
}

impl Layer for Softmax {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        graph.add(name, Op::Softmax { axis: self.axis, log: false }, &[x])
    }
}

impl Layer for Flatten {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let features = graph.shape(x).dims().iter().skip(1).product();
        graph.add(name, Op::Reshape(vec![Dim::Rest, Dim::Fixed(features)]), &[x])
    }
}

impl Layer for Dropout {
    fn forward(&self, _graph: &mut Graph, _name: &str, x: ValueId) -> Result<ValueId> {
        Ok(x)
    }
}

impl Layer for Residual {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let y = self.body.forward(graph, &format!("{name}.body"), x)?;
        let short = match &self.shortcut {
            Some(layer) => layer.forward(graph, &format!("{name}.shortcut"), x)?,
            None => x,
        };
        graph.add(name, Op::Binary(Binary::Add), &[y, short])
    }
}

impl Layer for Sequential {
    fn forward(&self, graph: &mut Graph, name: &str, x: ValueId) -> Result<ValueId> {
        let apply = |x, (own, layer): &(String, Box<dyn Layer>)| {
            layer.forward(graph, &format!("{name}.{own}"), x)
        };
        self.0.iter().try_fold(x, apply)
    }

    fn takes_integers(&self) -> bool {
        self.0.first().is_some_and(|(_, layer)| layer.takes_integers())
    }
}
