//! Runs on data that servers keep, above all trainings, step by step: public, and the same at every party.

mod augment;
mod data;
mod file;
mod join;
mod keys;
mod openings;
mod privacy;
mod rows;
mod run;
mod work;

use std::ops::Range;

use models::data::Order;
use mpc_core::{Linear, Protocol};
use nn_layers::train::{Accountant, Role, Schedule, State, StateSpec, Step, TrainPlan};
use nn_layers::{HostTensor, Observer};
use ring_arith::{Shape, Tensor, View};
use serde::{Deserialize, Serialize};

pub use augment::Augment;
pub use data::{DataSet, RowTensor};
pub use file::RunFile;
pub use join::{Group, Join};
pub use keys::{KeySecret, keys_of_table};
pub use openings::{Conditions, Flow, Openings};
pub use privacy::{Budget, DELTA, Spent};
pub use rows::{Rows, classes_of, real};
pub use run::{Decision, Halt, Position, Run, RunSpec, Task, Used, plan_digest, tensors, together};
pub use work::{Planned, Work};

use crate::base::{Error, Result};

/// The most steps of a training.
const MAX_STEPS: u64 = 1 << 31;

/// The length of a training, and the order and way in which it takes the rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Course {
    /// The number of times that each row is used.
    pub epochs: u32,
    /// The seed of the rows' order and of the changes of pictures, which is public.
    pub seed: u64,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// The changes of pictures whenever a step takes them.
    #[serde(default, skip_serializing_if = "Augment::is_none")]
    pub augment: Augment,
}

/// A training: the plan of a step, its course, and the number of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    plan: TrainPlan,
    course: Course,
    openings: Openings,
    order: Order,
    rows: usize,
}

/// The results of some steps of a training at one party, beside the state.
pub struct Seen<S> {
    /// Shares of the metrics, summed over the steps.
    pub sums: Vec<S>,
    /// The share of what the guard over the last step found, if something leaves after that step and a layer is
    /// guarded.
    pub left: Option<S>,
}

impl Training {
    /// A training on `rows` rows, as a run asks for it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the rows do not fill a batch, there are too many steps, what is to be changed as
    /// pictures are none, or the openings do not fit.
    pub fn new(plan: TrainPlan, spec: &RunSpec, rows: usize) -> Result<Self> {
        match &spec.task {
            Task::Training { course, .. } => {
                Self::of_course(plan, *course, Some(&spec.openings), rows)
            }
            Task::Analysis => Err(refused("the run is an analysis")),
        }
    }

    /// A training whose metrics leave after each epoch, and its weights after the last step.
    ///
    /// # Errors
    /// As [`Training::new`].
    pub fn of_epochs(plan: TrainPlan, course: Course, rows: usize) -> Result<Self> {
        Self::of_course(plan, course, None, rows)
    }

    fn of_course(
        plan: TrainPlan,
        course: Course,
        openings: Option<&Openings>,
        rows: usize,
    ) -> Result<Self> {
        let order = Order::new(rows, plan.batch(), course.seed);
        let all = order.steps() as u64 * u64::from(course.epochs);
        if order.steps() == 0 {
            let batch = plan.batch();
            return Err(refused(format_args!("{rows} rows do not fill a batch of {batch}")));
        }
        if !(1..=MAX_STEPS).contains(&all) {
            return Err(refused(format_args!("{all} steps; there must be 1 to {MAX_STEPS}")));
        }
        course.augment.check(&plan.batch_shapes()?)?;
        let by_epoch = || Openings::last(all as u32, order.steps() as u32);
        let openings = openings.cloned().unwrap_or_else(by_epoch);
        openings.check(all as u32)?;
        Ok(Self { plan, course, openings, order, rows })
    }

    /// The steps after which weights and metrics leave.
    #[must_use]
    pub fn openings(&self) -> &Openings {
        &self.openings
    }

    /// The numbers that go in, and those that may leave.
    ///
    /// # Errors
    /// As [`Training::row_shapes`].
    pub fn flow(&self) -> Result<Flow> {
        let rows = self.rows as u64;
        let shapes = self.row_shapes(self.rows)?;
        let metrics = self.plan.options().metrics.len() as u64;
        let layers = self.plan.most_guarded() as u64;
        Ok(Flow {
            rows,
            numbers_in: shapes.iter().map(|shape| shape.len() as u64).sum(),
            weights: self.learnt().map(|spec| spec.shape.len() as u64).sum(),
            times: self.openings.weights.len() as u64,
            metrics: metrics * u64::from(self.openings.windows(self.steps())),
            checks: layers * self.openings.times(self.steps()),
        })
    }

    /// The privacy cost for a row, which takes part once in an epoch and in no step twice; none without privacy.
    /// Steps that are done again after a failure cost nothing more: the results of the first time have not left.
    ///
    /// # Errors
    /// [`Error::Nn`] if the noise is none, which the plan does not allow.
    pub fn privacy(&self) -> Result<Option<Accountant>> {
        let privacy = &self.plan.options().privacy;
        let cost = privacy.as_ref().map(|privacy| privacy.accountant(self.course.epochs));
        Ok(cost.transpose()?)
    }

    /// The tensors that leave at the end and that a step changes: weights and running statistics.
    pub fn learnt(&self) -> impl Iterator<Item = StateSpec> + use<> {
        let learnt = |spec: &StateSpec| spec.trained && spec.role == Role::Network;
        self.plan.state().into_iter().filter(learnt)
    }

    /// The plan of a step.
    #[must_use]
    pub fn plan(&self) -> &TrainPlan {
        &self.plan
    }

    /// The course.
    #[must_use]
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// Steps of an epoch.
    #[must_use]
    pub fn epoch_steps(&self) -> u32 {
        self.order.steps() as u32
    }

    /// Steps in all.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.epoch_steps() * self.course.epochs
    }

    /// The number of rows that this many steps see.
    #[must_use]
    pub fn rows_of(&self, steps: u32) -> u64 {
        u64::from(steps) * self.plan.batch() as u64
    }

    /// Shapes of all rows of the data, labels last.
    ///
    /// # Errors
    /// [`Error::Nn`] if the plan takes no batch, which does not happen.
    pub fn row_shapes(&self, rows: usize) -> Result<Vec<Shape>> {
        let shapes = self.plan.batch_shapes()?;
        let with = |shape: &Shape| Shape::new([&[rows], &shape.dims()[1..]].concat());
        Ok(shapes.iter().map(with).collect::<ring_arith::Result<_>>()?)
    }

    /// Runs some of the steps at one party: the state becomes that after them. `rows` are the shares of all
    /// rows of each of a batch's tensors. Where something leaves after the last step, the guard looks at that step, with
    /// signs from `seed`: weights that have left their range stay outside, so it need not look at each one.
    ///
    /// # Errors
    /// [`Error::Nn`] if a step or the network fails.
    pub fn run<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        rows: &[P::Share],
        steps: Range<u32>,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Seen<P::Share>> {
        let mut sums: Vec<P::Share> = Vec::new();
        let mut left = None;
        let last = self.step(steps.end.saturating_sub(1));
        let guarded = !self.guarded(steps.end).is_empty();
        let Course { augment, seed: coins, .. } = self.course;
        self.each(steps, |number, picked| {
            let step = self.step(number);
            let view = View::Gather { axis: 0, indices: picked.into() };
            let view = Linear::View(&view);
            let batch: mpc_core::Result<Vec<_>> =
                rows.iter().map(|x| mpc.linear(&view, x)).collect();
            let mut batch = batch?;
            augment.apply(mpc, &mut batch, coins, number)?;
            let batch = self.plan.step_plan().secret_inputs(batch);
            let seen = if guarded && step == last {
                let (seen, found) =
                    self.plan.step_guarded(mpc, state, &batch, step, seed, observer)?;
                left = Some(found.share().clone());
                seen
            } else {
                self.plan.step(mpc, state, &batch, step, observer)?
            };
            let seen = seen.into_iter().map(|metric| metric.share().clone());
            if sums.is_empty() {
                sums = seen.collect();
            } else {
                for (sum, metric) in sums.iter_mut().zip(seen) {
                    *sum = mpc.add(sum, &metric)?;
                }
            }
            Ok(())
        })?;
        Ok(Seen { sums, left })
    }

    /// [`Training::run`] in 64-bit floats. Returns the metrics, summed over the steps.
    ///
    /// # Errors
    /// As [`TrainPlan::step_in_the_clear`].
    pub fn run_in_the_clear(
        &self,
        state: &mut [HostTensor],
        rows: &[HostTensor],
        steps: Range<u32>,
    ) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; self.plan.options().metrics.len()];
        let Course { augment, seed, .. } = self.course;
        self.each(steps, |number, picked| {
            let batch: nn_layers::Result<Vec<_>> = rows.iter().map(|x| x.rows(picked)).collect();
            let mut batch = batch?;
            augment.apply_in_the_clear(&mut batch, seed, number)?;
            let seen = self.plan.step_in_the_clear(state, &batch, self.step(number))?;
            for (sum, metric) in sums.iter_mut().zip(&seen) {
                *sum += metric.floats().iter().sum::<f64>();
            }
            Ok(())
        })?;
        Ok(sums)
    }

    /// The metrics as numbers for a row, if [`Training::run`] returned them for steps before `end`. `seen` are the
    /// words that it returned: sums over the window that ends there.
    ///
    /// # Errors
    /// [`Error::Diverged`] if values have left the range in which arithmetic is right; [`Error::Nn`] if there are
    /// not as many words as there should be.
    pub fn decode_metrics(&self, seen: &[Tensor], end: u32) -> Result<Option<Vec<f64>>> {
        let last = end.saturating_sub(1);
        if seen.is_empty() {
            return Ok(None);
        }
        let guarded = self.guarded(end);
        let (sums, left) = match seen.split_last() {
            Some((left, sums)) if !guarded.is_empty() => (sums, left.words()),
            _ => (seen, &[][..]),
        };
        if left.len() != guarded.len() {
            let (found, wanted) = (left.len(), guarded.len());
            return Err(refused(format_args!("{found} words of a guard over {wanted} layers")));
        }
        let mut outside = guarded.into_iter().zip(left).filter(|(_, word)| **word != 0);
        if let Some((layer, _)) = outside.next() {
            return Err(Error::Diverged { step: last, layer, others: outside.count() });
        }
        let window = self.openings.window(last, self.steps());
        if sums.is_empty() {
            return Ok(None);
        }
        if window.end != end {
            return Err(refused(format_args!("metrics came after step {end}, within {window:?}")));
        }
        let rows = self.rows_of(window.len() as u32) as f64;
        let means = self.plan.decode_metrics(sums)?.into_iter().map(|sum| sum / rows);
        Ok(Some(means.collect()))
    }

    /// The names of the layers that the guard watches in the last of the steps before `end`: none if nothing leaves
    /// then.
    fn guarded(&self, end: u32) -> Vec<String> {
        if !self.openings.opens(end, self.steps()) {
            return Vec::new();
        }
        self.plan.guarded(self.step(end - 1))
    }

    /// A step with its learning rate.
    fn step(&self, number: u32) -> Step {
        self.course.schedule.step(number)
    }

    /// Calls `act` with the number and the rows of each step.
    fn each(
        &self,
        steps: Range<u32>,
        mut act: impl FnMut(u32, &[usize]) -> Result<()>,
    ) -> Result<()> {
        let mut step = steps.start;
        while step < steps.end {
            let epoch = step / self.epoch_steps();
            let begin = epoch * self.epoch_steps();
            let batches = self.order.epoch(epoch);
            let end = steps.end.min(begin + self.epoch_steps());
            for (step, picked) in (step..end).zip(&batches[(step - begin) as usize..]) {
                act(step, picked)?;
            }
            step = end;
        }
        Ok(())
    }
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::refused("training", reason)
}
