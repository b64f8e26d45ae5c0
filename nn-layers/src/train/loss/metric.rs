//! Metrics: results of a step in addition to the state.

use serde::{Deserialize, Serialize};

use super::{Loss, Parts};
use crate::graph::{Graph, ValueId};
use crate::{Error, Result};

/// A sum over the rows of a batch. It stays shared until it is opened to a party that may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// The losses before the step.
    Loss,
    /// The number of rows whose largest logit is at their label; for [`Loss::CrossEntropy`]. Costs a tournament
    /// over the classes.
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

    pub(in crate::train) fn value(
        self,
        graph: &mut Graph,
        output: ValueId,
        labels: ValueId,
        parts: &Parts,
        loss: &Loss,
    ) -> Result<ValueId> {
        match (self, loss) {
            (Self::Loss, _) => loss.value(graph, output, labels, parts),
            (Self::Right, Loss::CrossEntropy(classes) | Loss::LogLikelihood(classes)) => {
                classes.right(graph, output, labels)
            }
            (Self::Right, _) => {
                Err(Error::invalid("metric", "right answers are counted for cross-entropy alone"))
            }
        }
    }
}
