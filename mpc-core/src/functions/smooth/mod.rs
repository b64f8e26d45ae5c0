//! Smooth functions, approximated: exponentials, logarithms, roots, activations.

pub(super) mod activations;
pub(super) mod exp;
pub(super) mod exponent;
pub(super) mod gelu;
pub(super) mod log;
pub(super) mod roots;
pub(super) mod sigmoid;
pub(super) mod sines;
pub(super) mod softmax;
pub(super) mod tables;
pub(super) mod trig;
