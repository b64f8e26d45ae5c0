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

mod arithmetic;
mod compare;
mod order;
mod random;
mod shape;
mod smooth;
mod statistics;
mod values;

pub use arithmetic::bitwise::{Bitwise, bitwise, shift_left, shift_right};
pub use arithmetic::dot::dot;
pub(crate) use arithmetic::multiply::terms;
pub use arithmetic::multiply::{Multiply, bilinear, conv2d, matmul, mul, multiply, square};
pub use arithmetic::power::{polynomial, pow, powf};
pub use arithmetic::{
    add, add_scalar, div_scalar, floor, mul_scalar, mul_scalar_to, neg, rescale, sub,
};
pub use compare::choose::{
    abs, clamp, leaky_relu, maximum, minimum, negative_part, relu, relu_all, relu_keeping, relu6,
    where_bits, where_positive,
};
pub use compare::extrema::{argmax, argmin, max, min, top1};
pub use compare::pool::{Winners, max_pool, max_pool_gradient, max_pool_keeping};
pub use compare::{
    Logic, eq, ge, gt, is_negative, le, logical, lt, ne, not, one_hot, select, sign,
};
pub use order::join::{JOIN_KEY_BITS, JoinKind, Joined, Table, join, join_keys};
pub use order::network::Sorted;
pub(crate) use order::network::by_network;
pub use order::places::{gather_at, scatter_add};
#[cfg(test)]
pub(crate) use order::radix::tests as radix_tests;
pub use order::shuffle::shuffle;
pub use order::sort::{argsort, sort, sort_with};
pub use order::unique::{Unique, unique};
pub use order::{distinct, median, order_statistics, quantile, top_k};
pub use random::discrete::{
    coins, discrete_laplace, discrete_laplace_distance, discrete_normal, discrete_normal_distance,
    dropout,
};
pub use random::gaussian::{gaussian, gaussian_variance};
pub use random::{bernoulli, exponential, laplace, normal, uniform, weighted_index};
pub use shape::{
    broadcast, concat, gather, pad, permute, reshape, slice, sum, transpose, view, window_sum,
    windows,
};
pub use smooth::activations::{elu, hard_sigmoid, hard_swish, softplus, softsign};
pub use smooth::exp::{exp, exp_nonpositive};
pub use smooth::gelu::{gelu, gelu_tanh};
pub use smooth::log::log;
pub use smooth::roots::{div, inv_sqrt, inv_sqrt_to, reciprocal, reciprocal_positive, sqrt};
pub use smooth::sigmoid::{erf, sigmoid, silu, tanh};
pub use smooth::softmax::{log_softmax, softmax};
pub use smooth::trig::{cos, sin};
pub use statistics::rows::{
    Centre, Normalized, leaves_rows_faint, normalize, normalize_watched, sum_squares,
};
pub use statistics::{mean, norm, var};
pub use values::{
    constant, decode, encode, encode_integers, input, inputs, reveal, reveal_all, reveal_to,
};
