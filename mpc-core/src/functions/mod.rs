//! Functions of secret tensors, over any protocol.
//!
//! Every function takes the protocol first. Operands may be secret or public ([`crate::Arg`]); a
//! public one costs nothing to bring in. Fraction bits must agree; shapes broadcast as in NumPy.
//! Widths (the bound on a tensor's words) are tracked through every step and make comparisons
//! cheaper.

mod arithmetic;
mod multiply;
mod shape;
mod values;

pub use arithmetic::{add, add_scalar, div_scalar, mul_scalar, neg, rescale, sub};
pub use multiply::{Multiply, bilinear, conv2d, matmul, mul, multiply, square};
pub use shape::{
    broadcast, concat, gather, mean, pad, permute, reshape, slice, sum, transpose, window_sum,
    windows,
};
pub use values::{
    constant, decode, encode, encode_integers, input, inputs, reveal, reveal_all, reveal_to,
};
