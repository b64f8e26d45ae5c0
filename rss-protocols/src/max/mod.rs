//! Largest elements, and their gradients.

mod gradient;
mod of_four;
mod tournament;
