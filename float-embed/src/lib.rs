#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod limbs;
mod matmul;
mod plan;
mod sums;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use limbs::{Limbs, Planes};
pub use plan::{Accumulator, Digits, LimbPlan, Merge, Unit};
pub use sums::{SumPlanes, Sums};
