//! Largest elements, and their gradients.

pub(crate) mod gradient;
mod of_four;
mod tournament;
