//! Losses: what the network's result is compared with, and the slope with which the way back begins.

use serde::{Deserialize, Serialize};

use crate::graph::{Binary, Dim, Graph, Op, Reduce, Unary, ValueId};
use crate::{Error, HostTensor, Result};

/// What is made small: a mean over the rows of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Cross-entropy of the softmax of logits `[batch, classes]` and labels, which are one-hot integers of
    /// that shape. `smoothing` is the part of each label that all classes share.
    CrossEntropy {
        /// Below 1.
        smoothing: f64,
    },
    /// Cross-entropy of the sigmoid of each logit and a label from 0 to 1; the mean over a row.
    BinaryCrossEntropy,
    /// The mean square of the differences of a row.
    MeanSquare,
    /// Half the square of a difference up to this size, and linear beyond; the mean over a row.
    Huber(f64),
}

impl Default for Loss {
    fn default() -> Self {
        Self::CrossEntropy { smoothing: 0.0 }
    }
}

/// What a loss computes on the way to its slope.
pub(super) struct Parts {
    /// The gradient of the sum of the losses by the network's result.
    pub slope: ValueId,
    /// Probabilities, or differences: what the value of the loss is made of.
    inner: ValueId,
}

impl Loss {
    pub(super) fn check(self) -> Result<()> {
        let (number, range) = match self {
            Self::CrossEntropy { smoothing } => (smoothing, 0.0..1.0),
            Self::Huber(delta) => (delta, f64::MIN_POSITIVE..1024.0),
            _ => return Ok(()),
        };
        if range.contains(&number) {
            return Ok(());
        }
        Err(Error::invalid("loss", format!("{number} is not within {range:?}")))
    }

    /// Adds the labels as an input.
    pub(super) fn labels(self, graph: &mut Graph, output: ValueId) -> Result<ValueId> {
        let shape = graph.shape(output);
        if shape.dims().first() != Some(&graph.batch()) || shape.len() == 0 {
            let reason =
                format!("the network's result {shape:?} does not have a row for each input");
            return Err(Error::invalid("loss", reason));
        }
        let dims: Vec<_> = shape.dims().iter().map(|&d| Dim::Fixed(d)).collect();
        match self {
            Self::CrossEntropy { .. } if dims.len() == 2 => graph.integer_input("labels", &dims),
            Self::CrossEntropy { .. } => {
                let reason = format!("logits have shape [batch, classes], not {shape:?}");
                Err(Error::invalid("cross-entropy", reason))
            }
            _ => graph.input("labels", &dims),
        }
    }

    /// Adds the slope.
    pub(super) fn parts(
        self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
    ) -> Result<Parts> {
        let mean = 1.0 / row_len(graph, output);
        match self {
            Self::CrossEntropy { smoothing } => {
                let softmax = Op::Softmax { axis: 1, log: false };
                let inner = graph.add("loss", softmax, &[output])?;
                let target = smoothed(graph, labels, smoothing, mean)?;
                let slope = graph.add("loss", Op::Binary(Binary::Sub), &[inner, target])?;
                Ok(Parts { slope, inner })
            }
            Self::BinaryCrossEntropy => {
                let inner = graph.add("loss", Op::Unary(Unary::Sigmoid), &[output])?;
                let slope = graph.add("loss", Op::Binary(Binary::Sub), &[inner, labels])?;
                let slope = graph.add("loss", Op::Scale(mean), &[slope])?;
                Ok(Parts { slope, inner })
            }
            Self::MeanSquare => {
                let inner = graph.add("loss", Op::Binary(Binary::Sub), &[output, labels])?;
                let slope = graph.add("loss", Op::Scale(2.0 * mean), &[inner])?;
                Ok(Parts { slope, inner })
            }
            Self::Huber(delta) => {
                let inner = graph.add("loss", Op::Binary(Binary::Sub), &[output, labels])?;
                let clip = Op::Unary(Unary::Clip(Some(-delta), Some(delta)));
                let slope = graph.add("loss", clip, &[inner])?;
                let slope = graph.add("loss", Op::Scale(mean), &[slope])?;
                Ok(Parts { slope, inner })
            }
        }
    }

    /// Adds the sum of the batch's losses. That of cross-entropy is by the labels as they are given.
    pub(super) fn value(
        self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
        parts: &Parts,
    ) -> Result<ValueId> {
        let mean = 1.0 / row_len(graph, output);
        let (elements, factor) = match self {
            Self::CrossEntropy { .. } => {
                // The probability of the right class alone, and one logarithm for a row.
                let right = graph.add("loss", Op::Binary(Binary::Mul), &[parts.inner, labels])?;
                let sum = Op::Reduce { kind: Reduce::Sum, axes: vec![1], keep: false };
                let right = graph.add("loss", sum, &[right])?;
                let right = shifted(graph, right, LEAST_PROBABILITY)?;
                (graph.add("loss", Op::Unary(Unary::Log), &[right])?, -1.0)
            }
            Self::BinaryCrossEntropy => {
                // log(1 + exp(z)) - z y
                let whole = graph.add("loss", Op::Unary(Unary::Softplus), &[output])?;
                let part = graph.add("loss", Op::Binary(Binary::Mul), &[output, labels])?;
                (graph.add("loss", Op::Binary(Binary::Sub), &[whole, part])?, mean)
            }
            Self::MeanSquare => {
                let square = Op::Binary(Binary::Mul);
                (graph.add("loss", square, &[parts.inner, parts.inner])?, mean)
            }
            Self::Huber(delta) => {
                // With c the clipped difference d: c d - c^2 / 2
                let clip = Op::Unary(Unary::Clip(Some(-delta), Some(delta)));
                let clipped = graph.add("loss", clip, &[parts.inner])?;
                let half = graph.add("loss", Op::Scale(0.5), &[clipped])?;
                let rest = graph.add("loss", Op::Binary(Binary::Sub), &[parts.inner, half])?;
                (graph.add("loss", Op::Binary(Binary::Mul), &[clipped, rest])?, mean)
            }
        };
        let axes = (0..graph.shape(elements).rank()).collect();
        let sum = Op::Reduce { kind: Reduce::Sum, axes, keep: false };
        let sum = graph.add("loss", sum, &[elements])?;
        graph.add("loss", Op::Scale(factor), &[sum])
    }
}

/// Added to a probability before its logarithm is taken.
const LEAST_PROBABILITY: f64 = 1.0 / 1_048_576.0;

/// Elements of a row.
fn row_len(graph: &Graph, x: ValueId) -> f64 {
    let shape = graph.shape(x);
    (shape.len() / shape.dims()[0].max(1)).max(1) as f64
}

/// `(1 - smoothing) * labels + smoothing / classes`.
fn smoothed(graph: &mut Graph, labels: ValueId, smoothing: f64, part: f64) -> Result<ValueId> {
    if smoothing == 0.0 {
        return Ok(labels);
    }
    let less = graph.add("loss", Op::Scale(1.0 - smoothing), &[labels])?;
    shifted(graph, less, smoothing * part)
}

fn shifted(graph: &mut Graph, x: ValueId, c: f64) -> Result<ValueId> {
    let c = graph.public("loss.number", HostTensor::scalar(c));
    graph.add("loss", Op::Binary(Binary::Add), &[x, c])
}
