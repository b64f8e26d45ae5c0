//! What is seen of a step.

use serde::{Deserialize, Serialize};

use super::loss::{Loss, Parts};
use crate::graph::{Binary, Graph, Op, Reduce, ValueId};
use crate::{Error, HostTensor, Result};

/// A sum over the rows of a batch. It stays shared until somebody who may see it opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// The losses before the step.
    Loss,
    /// How many rows have their largest logit at their label; for [`Loss::CrossEntropy`]. Costs a
    /// tournament over the classes.
    Right,
}

impl Metric {
    /// Its name among the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Right => "right",
        }
    }

    pub(super) fn value(
        self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
        parts: &Parts,
        loss: &Loss,
    ) -> Result<ValueId> {
        match (self, loss) {
            (Self::Loss, _) => loss.value(graph, output, labels, parts),
            (Self::Right, Loss::CrossEntropy { .. }) => right(graph, output, labels),
            (Self::Right, _) => {
                Err(Error::invalid("metric", "right answers are counted for cross-entropy alone"))
            }
        }
    }
}

/// The number of rows whose largest logit is at the label.
fn right(graph: &mut Graph, output: ValueId, labels: ValueId) -> Result<ValueId> {
    let classes = graph.shape(output).dims()[1];
    let largest = Op::ArgMax { axis: 1, keep: true, min: false };
    let guessed = graph.add("right", largest, &[output])?;
    let positions = HostTensor::integers([classes, 1], (0..classes as i64).collect())?;
    let positions = graph.public("right.positions", positions);
    let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let label = graph.add("right", product, &[labels, positions])?;
    let equal = graph.add("right", Op::Binary(Binary::Equal), &[guessed, label])?;
    let sum = Op::Reduce { kind: Reduce::Sum, axes: vec![0, 1], keep: false };
    graph.add("right", sum, &[equal])
}
