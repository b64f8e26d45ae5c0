//! The costs in the profile for slow links, as tests count them.

use super::Cost;

/// The same in the profile for slow links, for 960 elements: it saves rounds mostly for few elements.
pub fn for_slow_links() -> &'static [Cost] {
    FOR_SLOW_LINKS
}

const FOR_SLOW_LINKS: &[Cost] = &[
    Cost { function: "lt", rounds: 4, bits: 436.0 },
    Cost { function: "eq", rounds: 4, bits: 419.0 },
    Cost { function: "abs", rounds: 4, bits: 492.0 },
    Cost { function: "sign", rounds: 4, bits: 856.0 },
    Cost { function: "relu", rounds: 4, bits: 492.0 },
    Cost { function: "relu6", rounds: 4, bits: 1000.0 },
    Cost { function: "leaky_relu", rounds: 5, bits: 631.0 },
    Cost { function: "clamp", rounds: 4, bits: 1000.0 },
    Cost { function: "exp", rounds: 11, bits: 2248.0 },
    Cost { function: "exp_nonpositive", rounds: 11, bits: 1796.0 },
    Cost { function: "log", rounds: 10, bits: 12851.0 },
    Cost { function: "reciprocal", rounds: 13, bits: 23213.0 },
    Cost { function: "reciprocal_positive", rounds: 11, bits: 12260.0 },
    Cost { function: "div", rounds: 14, bits: 23402.0 },
    Cost { function: "sqrt", rounds: 12, bits: 13246.0 },
    Cost { function: "inv_sqrt", rounds: 12, bits: 13249.0 },
    Cost { function: "sigmoid", rounds: 4, bits: 1714.0 },
    Cost { function: "tanh", rounds: 4, bits: 1742.0 },
    Cost { function: "silu", rounds: 4, bits: 1845.0 },
    Cost { function: "erf", rounds: 4, bits: 1354.0 },
    Cost { function: "gelu", rounds: 4, bits: 1344.0 },
    Cost { function: "gelu_tanh", rounds: 4, bits: 1342.0 },
    Cost { function: "sin", rounds: 2, bits: 408.0 },
    Cost { function: "cos", rounds: 2, bits: 408.0 },
    Cost { function: "powf", rounds: 26, bits: 15522.0 },
    Cost { function: "max of 16", rounds: 8, bits: 1292.0 },
    Cost { function: "argmax of 16", rounds: 8, bits: 1752.0 },
    Cost { function: "softmax of 16", rounds: 31, bits: 3527.0 },
    Cost { function: "log_softmax of 16", rounds: 28, bits: 3217.0 },
    Cost { function: "var of 16", rounds: 4, bits: 170.0 },
    Cost { function: "sum_squares of 16", rounds: 3, bits: 164.0 },
    Cost { function: "normalize of 16", rounds: 18, bits: 3985.0 },
    Cost { function: "normalize_watched of 16", rounds: 18, bits: 3903.0 },
    Cost { function: "norm of 16", rounds: 15, bits: 1870.0 },
];
