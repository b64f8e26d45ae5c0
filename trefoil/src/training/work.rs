//! The work of a run: a training or an analysis, as it is planned from a client's request.

use std::panic::{self, AssertUnwindSafe};

use nn_layers::train::{Accountant, TrainPlan, TrainRequest};
use ring_arith::{Shape, Tensor};

use super::{Flow, Openings, RowTensor, RunSpec, Task, Training, plan_digest, tensors};
use crate::{
    analysis::{Analysis, AnalysisRequest},
    base::{Digest, Error, Result},
};

/// The plan of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    /// Of a step of a training.
    Training(Box<TrainPlan>),
    /// Of an analysis.
    Analysis(Box<Analysis>),
}

/// The work of a run on data sets that are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A training.
    Training(Box<Training>),
    /// An analysis.
    Analysis(Box<Analysis>),
}

impl Planned {
    /// Plans a request that a client sent, whose state may take `most_bytes`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a request of the run's task, is not sound, or is too large.
    pub fn parse(request: &[u8], task: &Task, most_bytes: u64) -> Result<Self> {
        match task {
            Task::Training { .. } => Self::training(request, most_bytes),
            Task::Analysis => {
                let refused = |cause| {
                    Error::refused("run", format_args!("its analysis is not sound: {cause}"))
                };
                let request: AnalysisRequest = serde_json::from_slice(request).map_err(refused)?;
                Ok(Self::Analysis(Box::new(Analysis::new(request, most_bytes / 8)?)))
            }
        }
    }

    fn training(request: &[u8], most_bytes: u64) -> Result<Self> {
        let refused = |cause: &dyn std::fmt::Display| {
            Error::refused("run", format_args!("its training request is not sound: {cause}"))
        };
        let parsed: TrainRequest =
            serde_json::from_slice(request).map_err(|cause| refused(&cause))?;
        crate::wire::check_upload(parsed.numbers(), most_bytes)?;
        // The request is a client's: a panic of the planner must not end more than this request.
        let derived = panic::catch_unwind(AssertUnwindSafe(|| parsed.derive()));
        let plan = derived
            .unwrap_or_else(|_| {
                Err(nn_layers::Error::invalid("network", "the planner failed an assertion"))
            })
            .map_err(|cause| refused(&cause))?;
        Ok(Self::Training(Box::new(plan)))
    }

    /// The digest of what is derived from the request, which servers and clients compare.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written, which does not happen.
    pub fn digest(&self) -> Result<Digest> {
        match self {
            Self::Training(plan) => plan_digest(plan),
            Self::Analysis(analysis) => analysis.digest(),
        }
    }

    /// The tensors that it takes of each row, the labels last.
    ///
    /// # Errors
    /// [`Error::Nn`] if a training takes no batch, which does not happen.
    pub fn tensors(&self) -> Result<Vec<RowTensor>> {
        match self {
            Self::Training(plan) => tensors(plan),
            Self::Analysis(analysis) => Ok(analysis.request().inputs.clone()),
        }
    }

    /// Shapes of the state with which it begins.
    #[must_use]
    pub fn start_shapes(&self) -> Vec<Shape> {
        match self {
            Self::Training(plan) => plan.state().into_iter().map(|spec| spec.shape).collect(),
            Self::Analysis(_) => Vec::new(),
        }
    }

    /// Words that are there at the same time at most, beside the rows.
    ///
    /// # Errors
    /// [`Error::Nn`] if a training takes no batch, which does not happen.
    pub fn peak_words(&self) -> Result<u64> {
        match self {
            Self::Training(plan) => Ok(plan.step_plan().peak_words(plan.batch())?),
            Self::Analysis(analysis) => Ok(analysis.peak_words()),
        }
    }

    /// True if it brings columns to one scale by all rows.
    #[must_use]
    pub fn standardizes(&self) -> bool {
        matches!(self, Self::Training(plan) if plan.options().standardize)
    }

    /// The plan of a training's step.
    ///
    /// # Errors
    /// [`Error::Refused`] for an analysis.
    pub fn train_plan(&self, run: &str) -> Result<&TrainPlan> {
        match self {
            Self::Training(plan) => Ok(plan),
            Self::Analysis(_) => {
                let reason = "it is an analysis and trains no network";
                Err(Error::refused(format_args!("run `{run}`"), reason))
            }
        }
    }
}

impl Work {
    /// The work on `rows` rows, as a run asks for it.
    ///
    /// # Errors
    /// As [`Training::new`]; [`Error::Refused`] if an analysis is one of another number of rows.
    pub fn new(planned: Planned, spec: &RunSpec, rows: usize) -> Result<Self> {
        match planned {
            Planned::Training(plan) => {
                Ok(Self::Training(Box::new(Training::new(*plan, spec, rows)?)))
            }
            Planned::Analysis(analysis) => {
                let wanted = analysis.request().rows;
                if wanted != rows {
                    let reason =
                        format!("its data sets have {rows} rows, and it is made for {wanted}");
                    return Err(Error::refused("analysis", reason));
                }
                if spec.openings != *analysis.openings() {
                    return Err(Error::refused(
                        "analysis",
                        "its results leave after the last step",
                    ));
                }
                Ok(Self::Analysis(analysis))
            }
        }
    }

    /// Steps in all.
    #[must_use]
    pub fn steps(&self) -> u32 {
        match self {
            Self::Training(training) => training.steps(),
            Self::Analysis(analysis) => analysis.steps(),
        }
    }

    /// Steps of an epoch: all of an analysis.
    #[must_use]
    pub fn epoch_steps(&self) -> u32 {
        match self {
            Self::Training(training) => training.epoch_steps(),
            Self::Analysis(analysis) => analysis.steps(),
        }
    }

    /// The steps after which something leaves.
    #[must_use]
    pub fn openings(&self) -> &Openings {
        match self {
            Self::Training(training) => training.openings(),
            Self::Analysis(analysis) => analysis.openings(),
        }
    }

    /// The numbers that go in, and those that may leave.
    ///
    /// # Errors
    /// As [`Training::flow`].
    pub fn flow(&self) -> Result<Flow> {
        match self {
            Self::Training(training) => training.flow(),
            Self::Analysis(analysis) => Ok(analysis.flow()),
        }
    }

    /// The rows that anything which leaves is made of, at least: those of a batch, and those of a window of metrics.
    #[must_use]
    pub fn rows_together(&self) -> (usize, u64) {
        match self {
            Self::Training(training) => {
                let window = training.openings().window(0, training.steps()).len() as u32;
                (training.plan().batch(), training.rows_of(window))
            }
            Self::Analysis(analysis) => {
                let rows = analysis.request().rows;
                (rows, rows as u64)
            }
        }
    }

    /// The privacy cost for a row; none without noise. Noise that an analysis adds is not counted.
    ///
    /// # Errors
    /// As [`Training::privacy`].
    pub fn privacy(&self) -> Result<Option<Accountant>> {
        match self {
            Self::Training(training) => training.privacy(),
            Self::Analysis(_) => Ok(None),
        }
    }

    /// The metrics among the words that left after the steps before `end`, as numbers for a row.
    ///
    /// # Errors
    /// As [`Training::decode_metrics`].
    pub fn decode_metrics(&self, seen: &[Tensor], end: u32) -> Result<Option<Vec<f64>>> {
        match self {
            Self::Training(training) => training.decode_metrics(seen, end),
            Self::Analysis(_) => Ok(None),
        }
    }
}
