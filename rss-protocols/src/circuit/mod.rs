//! The circuit that compares a word in two parts, one known to the dealer and one to both evaluators.

pub(crate) mod evaluate;
pub(crate) mod relations;
pub(crate) mod schedule;
