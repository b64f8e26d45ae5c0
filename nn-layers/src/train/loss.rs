//! Losses compare the network's result with labels, and give the slope with which the backward pass begins.

mod classes;
pub(super) mod metric;

use serde::{Deserialize, Serialize};

pub use self::classes::Classes;
use self::classes::Target;
use crate::graph::{Binary, Dim, Graph, Op, Reduce, Unary, ValueId};
use crate::{Error, HostTensor, Result};

/// The loss that training minimises: a mean over the rows of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Cross-entropy of the softmax of logits.
    CrossEntropy(Classes),
    /// Minus the logarithm of the right class's probability, where the network's results are logarithms.
    LogLikelihood(Classes),
    /// Cross-entropy of the sigmoid of each logit and a label from 0 to 1; the mean over a row.
    BinaryCrossEntropy {
        /// The weight of the term of a label of 1, for each element of a row's last axes; 1 if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        positive: Vec<f64>,
    },
    /// The same of probabilities, which a sigmoid must have made: the slope is taken before it.
    ProbabilityCrossEntropy,
    /// The mean square of the differences of a row.
    MeanSquare,
    /// The mean magnitude of the differences of a row; the slope at a difference of 0 is 0.
    Absolute,
    /// Half the square of a difference up to this size, and linear beyond; the mean over a row.
    Huber(f64),
    /// The same over that size, so that the slope ends at 1.
    SmoothAbsolute(f64),
}

impl Default for Loss {
    fn default() -> Self {
        Self::CrossEntropy(Classes::default())
    }
}

/// Values that a loss computes on the way to its slope.
pub(super) struct Parts {
    /// The gradient of the sum of the losses by the network's result.
    pub slope: ValueId,
    /// Probabilities, or differences, from which the value of the loss is made.
    inner: ValueId,
    /// Of labels that are classes.
    target: Option<Target>,
}

impl Loss {
    pub(super) fn check(&self) -> Result<()> {
        let within = |number: f64, range: std::ops::Range<f64>| {
            if range.contains(&number) {
                return Ok(());
            }
            Err(Error::invalid("loss", format!("{number} is not within {range:?}")))
        };
        match self {
            Self::CrossEntropy(classes) | Self::LogLikelihood(classes) => {
                within(classes.smoothing, 0.0..1.0)?;
                if matches!(self, Self::LogLikelihood(_)) && classes.smoothing > 0.0 {
                    return Err(Error::invalid("loss", "logarithms are not smoothed"));
                }
                if classes.soft && classes.ignore {
                    let reason = "rows of zeros are ignored as they are where labels are parts";
                    return Err(Error::invalid("loss", reason));
                }
                classes.weights.iter().try_for_each(|&weight| within(weight, 0.0..1024.0))
            }
            Self::BinaryCrossEntropy { positive } => {
                positive.iter().try_for_each(|&weight| within(weight, 0.0..1024.0))
            }
            Self::Huber(delta) | Self::SmoothAbsolute(delta) => {
                within(*delta, f64::MIN_POSITIVE..1024.0)
            }
            _ => Ok(()),
        }
    }

    /// True if the loss of a row depends on other rows of its batch.
    pub(super) fn mixes_rows(&self) -> bool {
        match self {
            Self::CrossEntropy(classes) | Self::LogLikelihood(classes) => classes.counts(),
            _ => false,
        }
    }

    /// The value that labels are compared with: the network's result, or the operand of its sigmoid.
    pub(super) fn compared(&self, graph: &Graph, output: ValueId) -> Result<ValueId> {
        let node = &graph.nodes[output.0];
        match (self, &node.op) {
            (Self::ProbabilityCrossEntropy, Op::Unary(Unary::Sigmoid)) => Ok(node.inputs[0]),
            (Self::ProbabilityCrossEntropy, _) => {
                let reason = "the network does not end in a sigmoid: let it give logits";
                Err(Error::invalid("cross-entropy of probabilities", reason))
            }
            _ => Ok(output),
        }
    }

    /// Adds the labels as an input.
    pub(super) fn labels(&self, graph: &mut Graph, output: ValueId) -> Result<ValueId> {
        let shape = graph.shape(output);
        if shape.dims().first() != Some(&graph.batch()) || shape.len() == 0 {
            let reason =
                format!("the network's result {shape:?} does not have a row for each input");
            return Err(Error::invalid("loss", reason));
        }
        let dims: Vec<_> = shape.dims().iter().map(|&d| Dim::Fixed(d)).collect();
        match self {
            Self::CrossEntropy(classes) | Self::LogLikelihood(classes) => {
                let found = shape.dims().get(classes.axis).filter(|_| classes.axis > 0);
                let Some(&count) = found else {
                    let axis = classes.axis;
                    let reason = format!(
                        "logits have shape [batch, classes] or more axes, not {shape:?} with classes along axis {axis}"
                    );
                    return Err(Error::invalid("cross-entropy", reason));
                };
                let weights = classes.weights.len();
                if weights > 0 && weights != count {
                    let reason = format!("{weights} weights for {count} classes");
                    return Err(Error::invalid("cross-entropy", reason));
                }
                if classes.soft {
                    graph.input("labels", &dims)
                } else {
                    graph.integer_input("labels", &dims)
                }
            }
            Self::BinaryCrossEntropy { positive } => {
                let last = shape.dims()[1..].iter().product::<usize>();
                let fits = positive.len() < 2
                    || shape.dims().last() == Some(&positive.len())
                    || last == positive.len();
                if !fits {
                    let reason = format!("{} weights for {shape:?}", positive.len());
                    return Err(Error::invalid("binary cross-entropy", reason));
                }
                graph.input("labels", &dims)
            }
            _ => graph.input("labels", &dims),
        }
    }

    /// Adds the slope.
    pub(super) fn parts(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
    ) -> Result<Parts> {
        let mean = 1.0 / row_len(graph, output);
        let difference =
            |graph: &mut Graph| graph.add("loss", Op::Binary(Binary::Sub), &[output, labels]);
        let clipped = |graph: &mut Graph, x: ValueId, delta: f64| {
            graph.add("loss", Op::Unary(Unary::Clip(Some(-delta), Some(delta))), &[x])
        };
        match self {
            Self::CrossEntropy(classes) => classes.cross_entropy(graph, output, labels),
            Self::LogLikelihood(classes) => {
                let target = classes.target(graph, output, labels)?;
                let slope = graph.add("loss", Op::Scale(-1.0), &[target.parts])?;
                let slope = classes.mean_of(graph, output, &target, slope)?;
                Ok(Parts { slope, inner: output, target: Some(target) })
            }
            Self::BinaryCrossEntropy { positive } => {
                let inner = graph.add("loss", Op::Unary(Unary::Sigmoid), &[output])?;
                let (weighed, hot) = weighed(graph, positive, labels, inner)?;
                let slope = graph.add("loss", Op::Binary(Binary::Sub), &[weighed, hot])?;
                let slope = graph.add("loss", Op::Scale(mean), &[slope])?;
                Ok(Parts { slope, inner, target: None })
            }
            Self::ProbabilityCrossEntropy => {
                let inner = graph.add("loss", Op::Unary(Unary::Sigmoid), &[output])?;
                let slope = graph.add("loss", Op::Binary(Binary::Sub), &[inner, labels])?;
                let slope = graph.add("loss", Op::Scale(mean), &[slope])?;
                Ok(Parts { slope, inner, target: None })
            }
            Self::MeanSquare => {
                let inner = difference(graph)?;
                let slope = graph.add("loss", Op::Scale(2.0 * mean), &[inner])?;
                Ok(Parts { slope, inner, target: None })
            }
            Self::Absolute => {
                let inner = difference(graph)?;
                let sign = graph.add("loss", Op::Unary(Unary::Sign), &[inner])?;
                let slope = graph.add("loss", Op::Scale(mean), &[sign])?;
                Ok(Parts { slope, inner, target: None })
            }
            Self::Huber(delta) => {
                let inner = difference(graph)?;
                let slope = clipped(graph, inner, *delta)?;
                let slope = graph.add("loss", Op::Scale(mean), &[slope])?;
                Ok(Parts { slope, inner, target: None })
            }
            Self::SmoothAbsolute(delta) => {
                let inner = difference(graph)?;
                let slope = clipped(graph, inner, *delta)?;
                let slope = graph.add("loss", Op::Scale(mean / delta), &[slope])?;
                Ok(Parts { slope, inner, target: None })
            }
        }
    }

    /// Adds the sum of the batch's losses.
    pub(super) fn value(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
        parts: &Parts,
    ) -> Result<ValueId> {
        let mean = 1.0 / row_len(graph, output);
        let (elements, factor) = match self {
            Self::CrossEntropy(classes) | Self::LogLikelihood(classes) => {
                let logarithms = matches!(self, Self::LogLikelihood(_));
                return classes.value(graph, output, labels, parts, logarithms);
            }
            Self::BinaryCrossEntropy { positive } if !positive.is_empty() => {
                // (1 - y) z + q softplus(-z), where q = 1 + (w - 1) y
                let minus = graph.add("loss", Op::Scale(-1.0), &[output])?;
                let soft = graph.add("loss", Op::Unary(Unary::Softplus), &[minus])?;
                let one = shifted(graph, soft, 0.0)?;
                let (weighed, _) = weighed(graph, positive, labels, one)?;
                let part = graph.add("loss", Op::Binary(Binary::Mul), &[output, labels])?;
                let rest = graph.add("loss", Op::Binary(Binary::Sub), &[output, part])?;
                (graph.add("loss", Op::Binary(Binary::Add), &[weighed, rest])?, mean)
            }
            Self::BinaryCrossEntropy { .. } | Self::ProbabilityCrossEntropy => {
                // log(1 + exp(z)) - z y
                let whole = graph.add("loss", Op::Unary(Unary::Softplus), &[output])?;
                let part = graph.add("loss", Op::Binary(Binary::Mul), &[output, labels])?;
                (graph.add("loss", Op::Binary(Binary::Sub), &[whole, part])?, mean)
            }
            Self::MeanSquare => {
                let square = Op::Binary(Binary::Mul);
                (graph.add("loss", square, &[parts.inner, parts.inner])?, mean)
            }
            Self::Absolute => (graph.add("loss", Op::Unary(Unary::Abs), &[parts.inner])?, mean),
            Self::Huber(delta) | Self::SmoothAbsolute(delta) => {
                // With c the clipped difference d: c d - c^2 / 2
                let clip = Op::Unary(Unary::Clip(Some(-delta), Some(*delta)));
                let clipped = graph.add("loss", clip, &[parts.inner])?;
                let half = graph.add("loss", Op::Scale(0.5), &[clipped])?;
                let rest = graph.add("loss", Op::Binary(Binary::Sub), &[parts.inner, half])?;
                let over = if matches!(self, Self::Huber(_)) { 1.0 } else { *delta };
                (graph.add("loss", Op::Binary(Binary::Mul), &[clipped, rest])?, mean / over)
            }
        };
        let sum = sum_of_all(graph, elements)?;
        graph.add("loss", Op::Scale(factor), &[sum])
    }
}

/// `(1 + (w - 1) y) x` and `w y`, of a label `y` and the weight `w` of a label of 1.
fn weighed(
    graph: &mut Graph,
    positive: &[f64],
    labels: ValueId,
    x: ValueId,
) -> Result<(ValueId, ValueId)> {
    if positive.is_empty() {
        return Ok((x, labels));
    }
    let dims = graph.shape(labels).dims().to_vec();
    let whole = dims[1..].iter().product::<usize>() == positive.len();
    let own = if whole { dims[1..].to_vec() } else { vec![positive.len()] };
    let weights = graph.public("loss.weights", HostTensor::new(own, positive.to_vec())?);
    let hot = graph.add("loss", Op::Binary(Binary::Mul), &[labels, weights])?;
    let more = graph.add("loss", Op::Binary(Binary::Sub), &[hot, labels])?;
    let factor = shifted(graph, more, 1.0)?;
    Ok((graph.add("loss", Op::Binary(Binary::Mul), &[factor, x])?, hot))
}

/// The sum of all elements, `[1]` or with more axes of length 1.
fn sum_of_all(graph: &mut Graph, x: ValueId) -> Result<ValueId> {
    let axes = (0..graph.shape(x).rank()).collect();
    graph.add("loss", Op::Reduce { kind: Reduce::Sum, axes, keep: false }, &[x])
}

/// Elements of a row.
fn row_len(graph: &Graph, x: ValueId) -> f64 {
    let shape = graph.shape(x);
    (shape.len() / shape.dims()[0].max(1)).max(1) as f64
}

fn shifted(graph: &mut Graph, x: ValueId, c: f64) -> Result<ValueId> {
    let c = graph.public("loss.number", HostTensor::scalar(c));
    graph.add("loss", Op::Binary(Binary::Add), &[x, c])
}
