//! Properties of a plan that are known before it runs: bounds of its values, domains of its functions, the resources that
//! it needs, and which examples of a batch meet.

pub(super) mod bounds;
pub(super) mod domain;
pub(crate) mod independence;
pub(super) mod magnitude;
pub(super) mod products;
pub(super) mod size;
