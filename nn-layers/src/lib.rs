#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// `mutant!` is nothing outside of tests.
#[macro_use(mutant)]
extern crate mpc_core;

pub mod crew;
mod error;
mod graph;
mod host;
// Builds for release compile generic code where it is used.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod instances;
pub mod layers;
mod ops;
mod plan;
pub mod train;

pub use error::{Error, Result};
pub use graph::{
    BatchNorm, Binary, CrewOp, Dim, Exactness, Graph, Kernel, Linear as LinearOp, LinearFinish,
    LinearMap, Op, Pool, Reduce, Sizes, Unary, ValueId,
};
pub use host::{HostData, HostTensor, MAX_ELEMENTS};
pub use mpc_core::functions::Centre;
pub use plan::{
    Caches, Compiled, Excess, InputSpec, Inspected, Inspection, LayerInfo, Observer, Operation,
    Outside, Plan, PlanOptions, Refusal, StateSpec, StepInfo, WeightSpec,
};
