//! Properties of a plan that are known before it runs: bounds of its values, domains of its functions, the resources that
//! it needs, and whether
//! the examples of a batch stay independent.

pub(super) mod bounds;
pub(super) mod domain;
mod examples;
pub(super) mod magnitude;
pub(super) mod products;
pub(super) mod size;
