//! Functions of secret tensors, over any protocol.
//!
//! Every function takes the protocol first. Operands may be secret or public ([`crate::Arg`]); a
//! public one costs nothing to bring in. Fraction bits must agree; shapes broadcast as in NumPy.
//! Widths (the bound on a tensor's words) are tracked through every step and make comparisons
//! cheaper.
//!
//! Errors of approximations are stated for a protocol that truncates to the floor or the unit above it. They
//! hold in every format of 8 to 26 fraction bits; a unit is that of the operand's last place. Some functions
//! state that they use 20 fraction bits. In a format with fewer bits these take numbers below 2^42 in
//! magnitude, and the rounding of the result adds a unit. Formats outside of 8 to 26 either keep the same
//! bounds or are refused.
//!
//! A number outside of a domain gives a wrong result on shares and an error from the plaintext
//! reference.

mod activations;
mod arithmetic;
mod choose;
mod compare;
mod costs;
mod dot;
mod exp;
mod exponent;
mod extrema;
mod fixed;
mod gaussian;
mod gelu;
mod join;
mod log;
mod multiply;
mod network;
mod order;
mod poly;
mod pool;
mod power;
mod radix;
mod random;
mod roots;
mod rows;
mod shape;
mod shuffle;
mod sigmoid;
mod sines;
mod slow_links;
mod softmax;
mod sort;
mod stats;
mod tables;
mod trig;
mod unique;
mod values;

pub use activations::{elu, hard_sigmoid, hard_swish, softplus, softsign};
pub use arithmetic::{
    add, add_scalar, div_scalar, floor, mul_scalar, mul_scalar_to, neg, rescale, sub,
};
pub use choose::{
    abs, clamp, leaky_relu, maximum, minimum, negative_part, relu, relu_all, relu_keeping, relu6,
    where_bits, where_positive,
};
pub use compare::{
    Logic, eq, ge, gt, is_negative, le, logical, lt, ne, not, one_hot, select, sign,
};
pub use costs::{Cost, costs};
pub use dot::dot;
pub use exp::{exp, exp_nonpositive};
pub use extrema::{argmax, argmin, max, min, top1};
pub use gaussian::{gaussian, gaussian_variance};
pub use gelu::{gelu, gelu_tanh};
pub use join::{JOIN_KEY_BITS, JoinKind, Joined, Table, join, join_keys};
pub use log::log;
pub(crate) use multiply::terms;
pub use multiply::{Multiply, bilinear, conv2d, matmul, mul, multiply, square};
pub use order::{distinct, median, order_statistics, quantile, top_k};
pub use pool::{Winners, max_pool, max_pool_gradient, max_pool_keeping};
pub use power::{polynomial, pow, powf};
#[cfg(test)]
pub(crate) use radix::tests as radix_tests;
pub use random::{bernoulli, exponential, laplace, normal, uniform, weighted_index};
pub use roots::{div, inv_sqrt, inv_sqrt_to, reciprocal, reciprocal_positive, sqrt};
pub use rows::{Centre, Normalized, leaves_rows_faint, normalize, normalize_watched, sum_squares};
pub use shape::{
    broadcast, concat, gather, mean, pad, permute, reshape, slice, sum, transpose, view,
    window_sum, windows,
};
pub use shuffle::shuffle;
pub use sigmoid::{erf, sigmoid, silu, tanh};
pub use slow_links::costs_for_slow_links;
pub use softmax::{log_softmax, softmax};
pub(crate) use sort::by_network;
pub use sort::{Sorted, argsort, sort, sort_with};
pub use stats::{norm, var};
pub use trig::{cos, sin};
pub use unique::{Unique, unique};
pub use values::{
    constant, decode, encode, encode_integers, input, inputs, reveal, reveal_all, reveal_to,
};
