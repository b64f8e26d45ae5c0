//! What the functions cost over replicated sharing, as tests of that protocol count it.

/// Rounds, and bits for each element in all (summed over the parties, without framing).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The function, with its parameter.
    pub function: &'static str,
    /// Rounds.
    pub rounds: u32,
    /// Bits for each element of the operand in all: a third of it is what a party sends.
    pub bits: f64,
}

/// The cost of every function with replicated sharing, for large tensors of 20 fraction bits and width
/// 44, which is that of any product's result.
pub fn costs() -> &'static [Cost] {
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
    Cost { function: "exp", rounds: 18, bits: 2279.0 },
    Cost { function: "exp_nonpositive", rounds: 18, bits: 1868.0 },
    Cost { function: "log", rounds: 25, bits: 3659.0 },
    Cost { function: "reciprocal", rounds: 28, bits: 3936.0 },
    Cost { function: "reciprocal_positive", rounds: 27, bits: 3582.0 },
    Cost { function: "div", rounds: 30, bits: 4146.0 },
    Cost { function: "sqrt", rounds: 29, bits: 4113.0 },
    Cost { function: "inv_sqrt", rounds: 29, bits: 4117.0 },
    Cost { function: "inv_sqrt_to", rounds: 29, bits: 4105.0 },
    Cost { function: "sigmoid", rounds: 25, bits: 4030.0 },
    Cost { function: "tanh", rounds: 25, bits: 4029.0 },
    Cost { function: "silu", rounds: 27, bits: 4294.0 },
    Cost { function: "erf", rounds: 18, bits: 2481.0 },
    Cost { function: "gelu", rounds: 20, bits: 2694.0 },
    Cost { function: "sin", rounds: 14, bits: 1690.0 },
    Cost { function: "cos", rounds: 14, bits: 1690.0 },
    Cost { function: "pow 3", rounds: 4, bits: 504.0 },
    Cost { function: "powf", rounds: 44, bits: 5843.0 },
    Cost { function: "polynomial of degree 4", rounds: 6, bits: 880.0 },
    Cost { function: "one_hot of 16", rounds: 5, bits: 3504.0 },
    Cost { function: "max of 16", rounds: 21, bits: 429.0 },
    Cost { function: "argmax of 16", rounds: 21, bits: 609.0 },
    Cost { function: "softmax of 16", rounds: 57, bits: 2744.0 },
    Cost { function: "log_softmax of 16", rounds: 53, bits: 2433.0 },
    Cost { function: "mean of 16", rounds: 1, bits: 5.0 },
    Cost { function: "var of 16", rounds: 6, bits: 173.0 },
    Cost { function: "sum_squares of 16", rounds: 4, bits: 164.0 },
    Cost { function: "normalize of 16", rounds: 36, bits: 1129.0 },
    Cost { function: "norm of 16", rounds: 31, bits: 474.0 },
];
