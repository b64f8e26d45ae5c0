//! Losses and right answers where labels are classes.

use serde::{Deserialize, Serialize};

use super::{Parts, row_len, shifted, sum_of_all};
use crate::graph::{Binary, Format, Graph, Op, Reduce, Unary, ValueId};
use crate::{Error, HostTensor, Result};

/// Options for comparing classes with logits, or with their logarithms. Labels have the shape of the logits:
/// one-hot integers, or parts of classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Classes {
    /// The part of each label that all classes share; below 1.
    pub smoothing: f64,
    /// The weight of each class; 1 if empty. The mean is over the weights of the batch's labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Labels without a 1 count for nothing, and the mean is over the others. Costs the inverse of one number.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore: bool,
    /// Labels are real numbers, at least 0: probabilities, or those times the weight of their row. The mean is
    /// over all rows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// The axis of classes, from 1.
    pub axis: usize,
}

impl Default for Classes {
    fn default() -> Self {
        Self { smoothing: 0.0, weights: vec![], ignore: false, soft: false, axis: 1 }
    }
}

/// Fraction bits of slopes that are means over the places of a row.
const SLOPE: u32 = 28;

/// Added to a probability before its logarithm is taken.
const LEAST_PROBABILITY: f64 = 1.0 / 1_048_576.0;

/// Labels that are classes, as they are compared.
pub(super) struct Target {
    /// The weight of each class at each place, smoothed.
    pub(super) parts: ValueId,
    /// The sum of these, if it is not 1 at each place.
    mass: Option<ValueId>,
    /// The number of all places over the sum of their weights, if that differs from 1.
    mean: Option<ValueId>,
}

impl Classes {
    /// True if the sum of the weights of a batch's labels depends on the labels.
    pub(super) fn counts(&self) -> bool {
        !self.soft && (self.ignore || !self.weights.is_empty())
    }

    /// Labels as they are compared with logits.
    pub(super) fn target(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
    ) -> Result<Target> {
        let dims = graph.shape(output).dims().to_vec();
        let classes = dims[self.axis];
        let weights = (!self.weights.is_empty()).then(|| {
            let mut own = vec![classes];
            own.resize(dims.len() - self.axis, 1);
            HostTensor::new(own, self.weights.clone())
        });
        let weights = weights.transpose()?;
        let times = |graph: &mut Graph, x: ValueId, by: &Option<HostTensor>| match by {
            Some(by) => {
                let by = graph.public("loss.weights", by.clone());
                graph.add("loss", Op::Binary(Binary::Mul), &[x, by])
            }
            None => Ok(x),
        };
        // The places that count at all.
        let present = if self.ignore { Some(self.sum(graph, labels)?) } else { None };
        let counted = times(graph, labels, &weights)?;
        let mut parts = counted;
        if self.smoothing > 0.0 {
            let less = graph.add("loss", Op::Scale(1.0 - self.smoothing), &[labels])?;
            let share = self.smoothing / classes as f64;
            let smoothed = match present {
                Some(present) => {
                    let share = graph.add("loss", Op::Scale(share), &[present])?;
                    graph.add("loss", Op::Binary(Binary::Add), &[less, share])?
                }
                None => shifted(graph, less, share)?,
            };
            parts = times(graph, smoothed, &weights)?;
        }
        let mass = match present {
            _ if self.soft || weights.is_some() => Some(self.sum(graph, parts)?),
            present => present,
        };
        let mean = if self.counts() {
            let places = (graph.shape(output).len() / classes.max(1)).max(1) as f64;
            let total = sum_of_all(graph, counted)?;
            let mean = graph.add("loss", Op::Scale(1.0 / places), &[total])?;
            Some(graph.add("loss", Op::Unary(Unary::Reciprocal), &[mean])?)
        } else {
            None
        };
        Ok(Target { parts, mass, mean })
    }

    pub(super) fn cross_entropy(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
    ) -> Result<Parts> {
        let softmax = Op::Softmax { axis: self.axis, log: false };
        let inner = graph.add("loss", softmax, &[output])?;
        let target = self.target(graph, output, labels)?;
        let part = match target.mass {
            Some(mass) => graph.add("loss", Op::Binary(Binary::Mul), &[inner, mass])?,
            None => inner,
        };
        let slope = graph.add("loss", Op::Binary(Binary::Sub), &[part, target.parts])?;
        let slope = self.mean_of(graph, output, &target, slope)?;
        Ok(Parts { slope, inner, target: Some(target) })
    }

    /// Sums over places as those of their mean.
    pub(super) fn mean_of(
        &self,
        graph: &mut Graph,
        output: ValueId,
        target: &Target,
        x: ValueId,
    ) -> Result<ValueId> {
        let each = 1.0 / self.places(graph, output);
        let x = match target.mean {
            Some(mean) => graph.add("loss", Op::Binary(Binary::Mul), &[x, mean])?,
            None => x,
        };
        if each == 1.0 {
            return Ok(x);
        }
        graph.add_as(Format::Fixed(SLOPE), "loss", Op::Scale(each), &[x])
    }

    /// Places of a row.
    fn places(&self, graph: &Graph, output: ValueId) -> f64 {
        row_len(graph, output) / graph.shape(output).dims()[self.axis].max(1) as f64
    }

    /// The sum over the classes of each place.
    fn sum(&self, graph: &mut Graph, x: ValueId) -> Result<ValueId> {
        let sum = Op::Reduce { kind: Reduce::Sum, axes: vec![self.axis], keep: true };
        graph.add("loss", sum, &[x])
    }

    pub(super) fn value(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
        parts: &Parts,
        logarithms: bool,
    ) -> Result<ValueId> {
        let target = parts.target.as_ref().ok_or_else(|| Error::plan("labels are missing"))?;
        let product = Op::Binary(Binary::Mul);
        let elements = if logarithms {
            graph.add("loss", product, &[target.parts, output])?
        } else if self.soft || self.smoothing > 0.0 {
            let log = Op::Softmax { axis: self.axis, log: true };
            let log = graph.add("loss", log, &[output])?;
            graph.add("loss", product, &[target.parts, log])?
        } else {
            // The probability of the right class alone, and one logarithm for a place.
            let right = graph.add("loss", product.clone(), &[parts.inner, labels])?;
            let right = self.sum(graph, right)?;
            let right = shifted(graph, right, LEAST_PROBABILITY)?;
            let log = graph.add("loss", Op::Unary(Unary::Log), &[right])?;
            match target.mass {
                Some(mass) => graph.add("loss", product, &[log, mass])?,
                None => log,
            }
        };
        let sum = sum_of_all(graph, elements)?;
        let sum = match target.mean {
            Some(mean) => graph.add("loss", Op::Binary(Binary::Mul), &[sum, mean])?,
            None => sum,
        };
        let each = 1.0 / self.places(graph, output);
        graph.add("loss", Op::Scale(-each), &[sum])
    }

    /// The number of places whose largest logit is at the label, over the places of a row. If some are ignored,
    /// a mean over the others, times the rows.
    pub(super) fn right(
        &self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
    ) -> Result<ValueId> {
        if self.soft {
            let reason = "right answers are counted where labels are classes, not parts of them";
            return Err(Error::invalid("metric", reason));
        }
        let places = self.places(graph, output);
        let dims = graph.shape(output).dims().to_vec();
        let largest = Op::ArgMax { axis: self.axis, keep: true, min: false };
        let guessed = graph.add("right", largest, &[output])?;
        let mut own = vec![dims[self.axis]];
        own.resize(dims.len() - self.axis, 1);
        let positions = HostTensor::integers(own, (0..dims[self.axis] as i64).collect())?;
        let positions = graph.public("right.positions", positions);
        let label = graph.add("right", Op::Binary(Binary::Mul), &[labels, positions])?;
        let label = self.sum(graph, label)?;
        let equal = graph.add("right", Op::Binary(Binary::Equal), &[guessed, label])?;
        if !self.ignore {
            let sum = sum_of_all(graph, equal)?;
            return if places == 1.0 {
                Ok(sum)
            } else {
                graph.add("right", Op::Scale(1.0 / places), &[sum])
            };
        }
        let present = self.sum(graph, labels)?;
        let equal = graph.add("right", Op::Binary(Binary::And), &[equal, present])?;
        let (sum, count) = (sum_of_all(graph, equal)?, sum_of_all(graph, present)?);
        let rows = 1.0 / dims[0].max(1) as f64;
        let [sum, count] = [sum, count].map(|x| graph.add("right", Op::Scale(rows), &[x]));
        let quotient = graph.add("right", Op::Binary(Binary::Div), &[sum?, count?])?;
        graph.add("right", Op::Scale(1.0 / rows), &[quotient])
    }
}
