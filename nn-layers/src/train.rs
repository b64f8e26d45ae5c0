//! Training: forward pass, gradients and update in one [`crate::Plan`], run step after step on shares.
//!
//! [`crate::Graph::train`] selects the weights to train, [`TrainPlan::new`] makes the plan of a step, and
//! [`TrainPlan::step`] runs it; weights go from step to step as shares. [`TrainPlan::step_in_the_clear`]
//! computes the same in 64-bit floats, as a reference for private training.
//!
//! Gradients are those of the *sum* of the batch's losses times the learning rate, which divides by the batch
//! size. This factor is part of the slope with which the backward pass begins, so that it costs nothing later.
//! Gradients are not divided by the batch size separately, which would only lose bits.

mod graphs;
mod loss;
mod options;
mod plan;
mod privacy;
mod request;
mod run;
mod schedule;
mod state;
mod update;

pub use loss::metric::Metric;
pub use loss::{Classes, Loss};
pub use options::TrainOptions;
pub use options::adam::{Adam, Second};
pub use options::optimiser::Optimiser;
pub use plan::{TrainPlan, forward};
pub use privacy::Privacy;
pub use privacy::accountant::{Accountant, multiplier_for};
pub use request::TrainRequest;
pub use schedule::{Decay, Schedule, Step};
pub use state::{Role, State, StateSpec};

pub use crate::graph::Formats;
