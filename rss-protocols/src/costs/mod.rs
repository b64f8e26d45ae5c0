//! The costs of the functions of [`mpc_core::functions`] over replicated sharing, as tests count them.

mod slow_links;

pub use slow_links::for_slow_links;

/// Rounds, and bits for each element in all (summed over the parties, without framing).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The function, with its parameter.
    pub function: &'static str,
    /// Rounds.
    pub rounds: u32,
    /// Bits for each element of the operand and all parties together: each party sends a third of
    /// them.
    pub bits: f64,
}

/// The cost of every function with replicated sharing, for large tensors of 20 fraction bits and width
/// 44, which is that of any product's result.
pub fn functions() -> &'static [Cost] {
    COSTS
}

const COSTS: &[Cost] = &[
    Cost { function: "lt", rounds: 6, bits: 394.0 },
    Cost { function: "eq", rounds: 7, bits: 369.0 },
    Cost { function: "abs", rounds: 6, bits: 456.0 },
    Cost { function: "sign", rounds: 6, bits: 784.0 },
    Cost { function: "relu", rounds: 6, bits: 456.0 },
    Cost { function: "relu6", rounds: 6, bits: 916.0 },
    Cost { function: "leaky_relu", rounds: 8, bits: 595.0 },
    Cost { function: "clamp", rounds: 6, bits: 916.0 },
    Cost { function: "select", rounds: 1, bits: 192.0 },
    Cost { function: "exp", rounds: 13, bits: 2164.0 },
    Cost { function: "exp_nonpositive", rounds: 13, bits: 1754.0 },
    Cost { function: "log", rounds: 22, bits: 3660.0 },
    Cost { function: "reciprocal", rounds: 24, bits: 3897.0 },
    Cost { function: "reciprocal_positive", rounds: 23, bits: 3543.0 },
    Cost { function: "div", rounds: 25, bits: 4086.0 },
    Cost { function: "sqrt", rounds: 24, bits: 4055.0 },
    Cost { function: "inv_sqrt", rounds: 24, bits: 4058.0 },
    Cost { function: "sigmoid", rounds: 5, bits: 1668.0 },
    Cost { function: "tanh", rounds: 5, bits: 1696.0 },
    Cost { function: "silu", rounds: 5, bits: 1799.0 },
    Cost { function: "erf", rounds: 5, bits: 1308.0 },
    Cost { function: "gelu", rounds: 5, bits: 1298.0 },
    Cost { function: "gelu_tanh", rounds: 5, bits: 1296.0 },
    Cost { function: "softplus", rounds: 39, bits: 5014.0 },
    Cost { function: "softsign", rounds: 31, bits: 4223.0 },
    Cost { function: "elu", rounds: 21, bits: 2346.0 },
    Cost { function: "hard_sigmoid", rounds: 8, bits: 1039.0 },
    Cost { function: "hard_swish", rounds: 10, bits: 1310.0 },
    Cost { function: "maximum", rounds: 6, bits: 458.0 },
    Cost { function: "floor", rounds: 5, bits: 361.0 },
    Cost { function: "logical", rounds: 1, bits: 192.0 },
    Cost { function: "bitwise", rounds: 11, bits: 4466.0 },
    Cost { function: "shift_right", rounds: 5, bits: 361.0 },
    Cost { function: "where_positive", rounds: 6, bits: 456.0 },
    Cost { function: "sin", rounds: 3, bits: 408.0 },
    Cost { function: "cos", rounds: 3, bits: 408.0 },
    Cost { function: "pow 3", rounds: 4, bits: 504.0 },
    Cost { function: "powf", rounds: 42, bits: 6249.0 },
    Cost { function: "polynomial of degree 4", rounds: 6, bits: 880.0 },
    Cost { function: "one_hot of 16", rounds: 5, bits: 3504.0 },
    Cost { function: "gather_at of 16", rounds: 6, bits: 3696.0 },
    Cost { function: "scatter_add to 16", rounds: 6, bits: 3504.0 },
    Cost { function: "max of 16", rounds: 21, bits: 429.0 },
    Cost { function: "argmax of 16", rounds: 21, bits: 609.0 },
    Cost { function: "sort of 16", rounds: 60, bits: 1803.0 },
    Cost { function: "argsort of 16", rounds: 64, bits: 2152.0 },
    Cost { function: "top_k of 16", rounds: 61, bits: 1559.0 },
    Cost { function: "median of 16", rounds: 59, bits: 1521.0 },
    Cost { function: "quantile of 16", rounds: 56, bits: 1239.0 },
    Cost { function: "distinct of 16", rounds: 67, bits: 2149.0 },
    Cost { function: "softmax of 16", rounds: 48, bits: 2606.0 },
    Cost { function: "log_softmax of 16", rounds: 45, bits: 2296.0 },
    Cost { function: "mean of 16", rounds: 1, bits: 5.0 },
    Cost { function: "var of 16", rounds: 5, bits: 170.0 },
    Cost { function: "sum_squares of 16", rounds: 4, bits: 164.0 },
    Cost { function: "normalize of 16", rounds: 31, bits: 1128.0 },
    Cost { function: "normalize_watched of 16", rounds: 29, bits: 1104.0 },
    Cost { function: "norm of 16", rounds: 26, bits: 471.0 },
    Cost { function: "dot of 256", rounds: 2, bits: 1.0 },
    Cost { function: "max_pool of 3x3 by 2", rounds: 22, bits: 716.0 },
];
