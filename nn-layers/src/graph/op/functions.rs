//! Functions of single elements, of two, and of the elements along axes.

use serde::{Deserialize, Serialize};

use super::ResultFormat;

/// A function of every element.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unary {
    /// `max(x, 0)`.
    Relu,
    /// `x` or `slope * x` where negative.
    LeakyRelu(f64),
    /// `min(max(x, low), high)`.
    Clip(Option<f64>, Option<f64>),
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2`.
    GeluTanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * clip(x / 6 + 1 / 2, 0, 1)`.
    HardSwish,
    /// `clip(alpha * x + beta, 0, 1)`.
    HardSigmoid(f64, f64),
    /// `x`, or `alpha * (exp(x) - 1)` where negative.
    Elu(f64),
    /// `gamma * x`, or `gamma * alpha * (exp(x) - 1)` where negative: `Selu(alpha, gamma)`.
    Selu(f64, f64),
    /// `log(1 + exp(x))`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    /// Exponential function.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`.
    InvSqrt,
    /// `1 / sqrt(x)` of a moment or a norm by which an optimiser divides: of a few units, which are mostly rounding,
    /// it has the right order of magnitude alone.
    Damping,
    /// `1 / x`.
    Reciprocal,
    /// `-x`.
    Neg,
    /// `|x|`.
    Abs,
    /// -1, 0 or 1.
    Sign,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// `x^n` for any `x` and a whole exponent up to 64, for positive `x` and any other exponent.
    Pow(f64),
    /// `1 - x` for a truth value.
    Not,
    /// The whole part of a value that is read as an integer from here on.
    Floor,
}

/// A function of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Binary {
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x / y`.
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// The comparison `x < y`, as 0 or 1.
    Less,
    /// The comparison `x <= y`, as 0 or 1.
    LessEqual,
    /// The comparison `x > y`, as 0 or 1.
    Greater,
    /// The comparison `x >= y`, as 0 or 1.
    GreaterEqual,
    /// The comparison `x == y`, as 0 or 1.
    Equal,
    /// Both truth values.
    And,
    /// Either truth value.
    Or,
    /// One truth value alone.
    Xor,
    /// `x`, or `y * x` where negative.
    PRelu,
}

/// The result of a reduction for a group of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum of their squares.
    SumSquare,
    /// The root of the sum of their squares.
    L2,
    /// The sum of their absolute values.
    L1,
}

impl Unary {
    /// A name for errors and profiles.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

impl Binary {
    /// True if results are truth values, 0 or 1, whatever the operands.
    pub fn gives_truth(self) -> bool {
        self.info().format == ResultFormat::Integer
    }

    /// A name for errors and profiles.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}
