//! The graphs that plans of a training are made of.

pub(super) mod crew;
pub(super) mod inference;
mod running_statistics;
pub(super) mod standardized;
pub(super) mod step;
