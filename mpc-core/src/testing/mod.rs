//! Tests for protocols: a world of parties in one process, conformance, privacy, and tests of the tests.

#[macro_use]
pub mod mutants;

pub mod conformance;
pub mod goodness;
#[cfg(test)]
mod mutant_list;
pub mod privacy;
mod seed;
mod world;

pub use seed::SplitMix64;
pub use world::{SEED_VARIABLE, TestWorld, Traffic};
