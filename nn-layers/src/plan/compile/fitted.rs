//! Formats by layer: as many fraction bits as the numbers leave room for that a network makes of samples.

use crate::graph::{
    Binary, Graph, Linear, LinearFinish, Op, Reduce, ResultFormat, Unary, ValueId, eval,
};
use crate::{HostTensor, Result};

use crate::plan::analyse::domain::Domain;
use crate::plan::compile::SIGNIFICANT;

/// Bits of a value as a word, at most. A layer's usual weights may have 20 bits more.
const WORD: f64 = 40.0;

/// Bits of the largest sum of products before they are dropped: other inputs make it four times as large.
const SUM: f64 = 60.0;

/// The fewest fraction bits that a value gets. The functions need as many.
const LEAST: u32 = 4;

/// Bits of room that a function's operands keep to the ends of its domain.
const MARGIN: f64 = 2.0;

/// The formats that samples leave room for.
pub(super) struct Fitted {
    /// The largest magnitude of each node's results; that of a linear layer before its ReLU.
    sums: Vec<f64>,
    /// The most fraction bits of each node.
    most: Vec<u32>,
}

impl Fitted {
    /// Evaluates the network on each sample, in 64-bit floats.
    ///
    /// # Errors
    /// As [`Graph::evaluate`].
    pub fn new(graph: &Graph, samples: &[Vec<HostTensor>], frac: u32) -> Result<Self> {
        let mut this = Self { sums: vec![0.0; graph.nodes.len()], most: vec![] };
        for sample in samples {
            this.measure(graph, sample)?;
        }
        let bits = |&sum: &f64| floored(WORD - ceil_log2(sum)).clamp(LEAST, frac);
        this.most = this.sums.iter().map(bits).collect();
        for at in (0..graph.nodes.len()).rev() {
            this.fit(graph, at);
        }
        Ok(this)
    }

    /// The most fraction bits of a node's result.
    pub fn most(&self, node: usize) -> u32 {
        self.most[node]
    }

    /// The most fraction bits of a node's sums of products.
    pub fn product(&self, node: usize) -> u32 {
        floored(SUM - ceil_log2(self.sums[node]))
    }

    /// The most fraction bits of a constant operand.
    pub fn constant(&self, graph: &Graph, at: usize, position: usize) -> u32 {
        let value = graph.constant_value(graph.nodes[at].inputs[position]);
        let own = value.map_or(60, Self::addend);
        self.operand(graph, at, position).map_or(own, |most| most.min(own))
    }

    /// The most fraction bits of a constant that is added.
    pub fn addend(value: &HostTensor) -> u32 {
        floored(SUM - ceil_log2(value.largest()))
    }

    fn measure(&mut self, graph: &Graph, sample: &[HostTensor]) -> Result<()> {
        let sizes = graph.sizes();
        let sums = &mut self.sums;
        for (at, node) in graph.nodes.iter().enumerate() {
            let largest = match node.op {
                Op::Input(i) => sample.get(i).map(HostTensor::largest),
                Op::Constant(i) | Op::Parameter(i) => Some(graph.constants[i].value.largest()),
                _ => None,
            };
            sums[at] = sums[at].max(largest.unwrap_or(0.0));
        }
        graph.evaluate_each(sample, |at, xs| {
            let (sum, value) = match &graph.nodes[at].op {
                Op::Linear(l) if l.finish == LinearFinish::Relu => {
                    let whole = Linear { finish: LinearFinish::Truncate, ..l.clone() };
                    let sum = eval::evaluate(&Op::Linear(whole), xs, sizes)?;
                    let value = eval::evaluate(&Op::Unary(Unary::Relu), &[&sum], sizes)?;
                    (sum.largest(), value)
                }
                op => {
                    let value = eval::evaluate(op, xs, sizes)?;
                    (value.largest(), value)
                }
            };
            sums[at] = sums[at].max(sum);
            Ok(value)
        })?;
        Ok(())
    }

    /// Takes bits from a function whose domain its operands leave, and from the operands of a node.
    fn fit(&mut self, graph: &Graph, at: usize) {
        let node = &graph.nodes[at];
        if node.op.is_given() {
            return;
        }
        let leaves = |frac: u32| {
            node.inputs.iter().enumerate().any(|(position, x)| {
                let domain = Domain::of(&node.op, position, frac, frac);
                let largest = self.sums[x.0];
                domain.is_some_and(|domain| domain.high < largest * MARGIN.exp2())
            })
        };
        let mut most = self.most[at];
        while most > LEAST && leaves(most) {
            most -= 1;
        }
        self.most[at] = most;
        for (position, &x) in node.inputs.iter().enumerate() {
            if let Some(most) = self.operand(graph, at, position) {
                self.most[x.0] = self.most[x.0].min(most.max(LEAST));
            }
        }
    }

    /// The most fraction bits of an operand, for the sums that are made of it.
    fn operand(&self, graph: &Graph, at: usize, position: usize) -> Option<u32> {
        let node = &graph.nodes[at];
        let product = self.product(at);
        let weight = |id: ValueId| {
            let value = graph.constant_value(id)?;
            Some(floored(f64::from(SIGNIFICANT) - ceil_log2(value.largest())).min(self.most[at]))
        };
        // A factor has as many bits as the other leaves it.
        let factor = |other: ValueId| match weight(other) {
            Some(bits) => product.saturating_sub(bits),
            None => product / 2,
        };
        match &node.op {
            Op::Linear(l) => {
                let map = l.maps().find(|(_, pair)| pair.contains(&position));
                map.map(|(_, [x, w])| factor(node.inputs[if position == x { w } else { x }]))
            }
            Op::Conv(_)
            | Op::ConvTranspose { .. }
            | Op::ConvWeightGrad(_)
            | Op::MatMul { .. }
            | Op::Binary(Binary::Mul) => Some(factor(node.inputs[1 - position])),
            Op::Dot(_) => Some(product / 2),
            Op::Scale(_) | Op::SumPool(_) => Some(product.saturating_sub(self.most[at])),
            Op::Reduce { kind, axes, .. } => match kind {
                Reduce::SumSquare | Reduce::L2 => {
                    let squares = if *kind == Reduce::L2 { 2.0 } else { 1.0 };
                    Some(floored((SUM - squares * ceil_log2(self.sums[at])) / 2.0))
                }
                Reduce::Mean => {
                    let shape = &graph.nodes[node.inputs[0].0].shape;
                    let count: usize = axes.iter().map(|&axis| shape.dims()[axis]).product();
                    let sum = self.sums[node.inputs[0].0] * count.max(1) as f64;
                    Some(floored(SUM - ceil_log2(sum)))
                }
                _ => Some(self.most[at]),
            },
            op => match op.info().format {
                ResultFormat::OfOperand(operand) if position == operand => Some(self.most[at]),
                ResultFormat::FinestFrom(first) if position >= first => Some(self.most[at]),
                _ => None,
            },
        }
    }
}

/// Bits of a magnitude; none of 0.
fn ceil_log2(value: f64) -> f64 {
    value.max(f64::MIN_POSITIVE).log2().ceil().max(-64.0)
}

fn floored(bits: f64) -> u32 {
    bits.clamp(0.0, 60.0) as u32
}
