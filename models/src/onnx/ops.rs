//! Operators of ONNX in terms of the network's own operations.

pub(crate) mod conv;
pub(crate) mod einsum;
pub(crate) mod math;
pub(crate) mod norm;
pub(crate) mod pick;
pub(crate) mod reduce;
pub(crate) mod shape;
