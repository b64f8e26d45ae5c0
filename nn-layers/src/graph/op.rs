//! The operations of a network, as data.

use ring_arith::{ConvSpec, Window};
use serde::{Deserialize, Serialize};

/// One operation of a network. Shapes, kernels and fixed numbers are attributes, and public;
/// everything else is an operand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// Input number `index`.
    Input(usize),
    /// Constant number `index`: a weight, or a public number.
    Constant(usize),
    /// Constant number `index` as a weight that training changes: no pass computes with its value. See
    /// [`crate::Graph::train`].
    Parameter(usize),
    /// Input `[N, C, H, W]` and weight `[O, C / groups, kh, kw]` to `[N, O, OH, OW]`.
    Conv(Kernel),
    /// Transposed convolution: `[N, O, OH, OW]` and weight `[O, C / groups, kh, kw]` to `[N, C, H, W]`. A
    /// convolution with this kernel takes `[N, C, H, W]` to the input's shape. `extra` rows and columns are
    /// added to the smallest such height and width.
    ConvTranspose {
        /// The convolution whose transpose this is.
        kernel: Kernel,
        /// Added to the smallest height and width; below the stride.
        extra: [usize; 2],
    },
    /// The gradient of [`Op::Conv`] by its weight: `[N, C, H, W]` and `[N, O, OH, OW]` to
    /// `[O, C / groups, kh, kw]`.
    ConvWeightGrad(Kernel),
    /// `[batch.., m, k] x [batch.., k, n]`; a transposed operand is stored the other way round.
    /// Batch dimensions are equal, or one operand has none.
    MatMul {
        /// The first operand is stored `[.., k, m]`.
        transpose_lhs: bool,
        /// The second operand is stored `[.., n, k]`.
        transpose_rhs: bool,
    },
    /// A linear map by a weight with all that is fused to it; made by the planner.
    Linear(Linear),
    /// A function of every element.
    Unary(Unary),
    /// A function of two operands, broadcast to each other.
    Binary(Binary),
    /// The first operand where the second, of the same shape, is positive; 0 elsewhere.
    Mask,
    /// Selection by the first operand (0 or 1): the second operand for 1, the third for 0. All are broadcast to
    /// each other.
    Where,
    /// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
    Softmax {
        /// The axis.
        axis: usize,
        /// The logarithm instead.
        log: bool,
    },
    /// `(x - mean) / sqrt(variance + epsilon)` over the last axes, from `axis` on.
    Normalize {
        /// The first of the axes.
        axis: usize,
        /// Added to the variance.
        epsilon: f64,
    },
    /// Batch normalisation of `[N, C, ..]`; further operands, each `[C]`: scale, shift, running mean and
    /// running variance, which it applies. A training that changes scale or shift takes mean and variance of
    /// the batch instead, and the running ones follow them.
    BatchNorm(BatchNorm),
    /// Leaves out each element with this probability, by public coins, and scales the others up; in training
    /// alone.
    Dropout(f64),
    /// Local response normalisation over the channels of `[N, C, ..]`:
    /// `x / (bias + alpha / size * sum of the squares of size channels around)^beta`.
    Lrn {
        /// Channels in the sum.
        size: usize,
        /// Factor.
        alpha: f64,
        /// Exponent.
        beta: f64,
        /// Summand.
        bias: f64,
    },
    /// The largest word under each position of a window of `[.., H, W]`; borders never win.
    MaxPool(Pool),
    /// The gradient of [`Op::MaxPool`]: its operand `[.., H, W]` and the gradient of its result to the
    /// operand's shape. The first of equals in row order gets it.
    MaxPoolGrad(Pool),
    /// The mean under each position of a window of `[.., H, W]`.
    AvgPool {
        /// The window.
        pool: Pool,
        /// True if the zeros of the border count.
        count_border: bool,
    },
    /// The sum under each position of a window of `[.., H, W]`.
    SumPool(Pool),
    /// Sums, means and extremes over axes.
    Reduce {
        /// The result for each group.
        kind: Reduce,
        /// The axes, ascending.
        axes: Vec<usize>,
        /// True if the axes stay with length 1.
        keep: bool,
    },
    /// Inner products of two values of one shape over axes, which stay with length 1.
    Dot(Vec<usize>),
    /// The position of the largest (or smallest) element along an axis, the first among equals.
    ArgMax {
        /// The axis.
        axis: usize,
        /// True if the axis stays with length 1.
        keep: bool,
        /// The smallest instead.
        min: bool,
    },
    /// Rows of a table (first operand, `[rows, ..]`) at secret positions (second operand).
    Lookup,
    /// A new last axis of this length, 1 at the position that the operand is, an integer, and 0 elsewhere.
    OneHot(usize),
    /// The same elements under another shape.
    Reshape(Vec<Dim>),
    /// Axis `i` of the result is axis `axes[i]` of the input.
    Permute(Vec<usize>),
    /// Indices `start, start + step, ..` below `end` of one axis; an `end` of [`Dim::Batch`] grows
    /// with the batch.
    Slice {
        /// The axis.
        axis: usize,
        /// First index taken.
        start: usize,
        /// First index not taken.
        end: Dim,
        /// Distance between taken indices.
        step: usize,
    },
    /// The given indices of one axis; the axis disappears if `squeeze`.
    Gather {
        /// The axis.
        axis: usize,
        /// Public indices into it.
        indices: Vec<usize>,
        /// Drop the axis; only for one index.
        squeeze: bool,
    },
    /// A border of `value`.
    Pad {
        /// Words put before each axis.
        before: Vec<usize>,
        /// Words put after each axis.
        after: Vec<usize>,
        /// The border's value.
        value: f64,
    },
    /// Repeats axes of length 1, and new leading axes.
    Broadcast(Vec<Dim>),
    /// Concatenates along an axis.
    Concat(usize),
    /// Multiplies by a public number.
    Scale(f64),
    /// The same numbers with the fraction bits that the node asks for: more are free, fewer cost a
    /// truncation.
    Cast,
    /// The same numbers with the fraction bits of the node's format, in words of at most this many bits,
    /// whatever the operand's words are. Words of `2^(bits - 2)` and more come out as others. Sensitivities are
    /// computed from the result.
    Confine(u32),
    /// `1 / max(1, norm)` for each unit. The square of the norm is a sum over the operands. The first `pairs`
    /// pairs add `|x|^2 |d|^2`, with `x` of `[units, k]` and `d` of `[units, n]`. Each operand after them,
    /// `[units, len]`, adds `|g|^2`. All are confined. On shares the factor is 0 for norms of 4096 and more.
    ClipFactor {
        /// The number of pairs, which come first.
        pairs: usize,
    },
}

/// The exactness of an operation's result on shares, for the operands that are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exactness {
    /// Nothing is rounded.
    Exact,
    /// Rounded to the result's last place, up or down.
    Rounded,
    /// Approximated, with an error below `2^-bits` of the result or of 1, whichever is larger.
    Approximated(f64),
}

impl std::fmt::Display for Exactness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Rounded => f.write_str("rounded"),
            Self::Approximated(bits) => write!(f, "to 2^-{bits}"),
        }
    }
}

/// One dimension of a shape: fixed, or a multiple of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// The same for every batch size.
    Fixed(usize),
    /// This many times the batch size.
    Batch(usize),
    /// Whatever is left; at most once in [`Op::Reshape`].
    Rest,
}

/// A window with its step, border and dilation. One-dimensional data has height 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Height and width.
    pub size: [usize; 2],
    /// Step between positions.
    pub stride: [usize; 2],
    /// Border: top, left, bottom, right.
    pub padding: [usize; 4],
    /// Distance between the window's taps.
    pub dilation: [usize; 2],
}

/// A convolution's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The window.
    pub window: Pool,
    /// Channel groups.
    pub groups: usize,
}

/// A batch normalisation's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// Added to the variance.
    pub epsilon: f64,
    /// The part of a batch's mean and variance in the new running ones: 0.1 by default in PyTorch.
    pub momentum: f64,
}

/// A linear map of a value by a weight, with the operations fused to it. Operands: the value, the weight, and
/// the bias and the residual if there are any. A value and a weight for each further map follow, and for
/// [`LinearFinish::Mask`] the mask of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// The map.
    pub map: LinearMap,
    /// There is a bias operand, broadcast to the result.
    pub bias: bool,
    /// There is a residual operand of the result's shape, added before truncation.
    pub residual: bool,
    /// Further maps with results of the same shape, each of a separate value and weight, added before
    /// truncation: for instance a residual block's shortcut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<LinearMap>,
    /// The operation that ends the map, applied to the sum.
    pub finish: LinearFinish,
}

impl Linear {
    /// One map, truncated.
    pub fn new(map: LinearMap) -> Self {
        let (bias, residual, finish) = (false, false, LinearFinish::Truncate);
        Self { map, bias, residual, more: Vec::new(), finish }
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        self.pairs_from() + 2 * self.more.len() + usize::from(self.finish == LinearFinish::Mask)
    }

    /// The place of the operand that masks the result, if any.
    pub fn mask_at(&self) -> Option<usize> {
        (self.finish == LinearFinish::Mask).then(|| self.operands() - 1)
    }

    /// Every map with the places of its value and of its weight among the operands.
    pub fn maps(&self) -> impl Iterator<Item = (&LinearMap, [usize; 2])> {
        let from = self.pairs_from();
        let more = self.more.iter().enumerate();
        let more = more.map(move |(i, map)| (map, [from + 2 * i, from + 2 * i + 1]));
        std::iter::once((&self.map, [0, 1])).chain(more)
    }

    /// The places of bias and residual among the operands.
    pub fn addends(&self) -> std::ops::Range<usize> {
        2..self.pairs_from()
    }

    /// The place of the residual, if there is one.
    pub fn residual_at(&self) -> Option<usize> {
        self.residual.then(|| self.pairs_from() - 1)
    }

    fn pairs_from(&self) -> usize {
        2 + usize::from(self.bias) + usize::from(self.residual)
    }
}

/// The operation that ends a linear map, applied to its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearFinish {
    /// It is truncated.
    Truncate,
    /// It is truncated and negative elements become 0.
    Relu,
    /// It is truncated and becomes 0 where the last operand, of the result's shape, is not positive: the
    /// gradient of a ReLU.
    Mask,
}

/// The maps that a weight can make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearMap {
    /// See [`Op::Conv`].
    Conv(Kernel),
    /// See [`Op::ConvTranspose`].
    ConvTranspose {
        /// The convolution whose transpose this is.
        kernel: Kernel,
        /// Added to the smallest height and width.
        extra: [usize; 2],
    },
    /// See [`Op::MatMul`].
    MatMul {
        /// The first operand is stored `[.., k, m]`.
        transpose_lhs: bool,
        /// The second operand is stored `[.., n, k]`.
        transpose_rhs: bool,
    },
    /// See [`Op::ConvWeightGrad`].
    ConvWeightGrad(Kernel),
    /// Element by element, the weight broadcast to the value.
    Mul,
}

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

impl Pool {
    /// A window without border or dilation.
    pub fn new(size: [usize; 2], stride: [usize; 2]) -> Self {
        Self { size, stride, padding: [0; 4], dilation: [1; 2] }
    }

    /// The same window with a border of `top`, `left`, `bottom`, `right`.
    #[must_use]
    pub fn padded(self, padding: [usize; 4]) -> Self {
        Self { padding, ..self }
    }

    /// The window for the ring's operations.
    pub fn window(&self) -> Window {
        Window {
            kernel: self.size,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        }
    }

    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.size[0] * self.size[1]
    }
}

impl Kernel {
    /// A convolution without groups.
    pub fn new(window: Pool) -> Self {
        Self { window, groups: 1 }
    }

    /// The attributes for the ring's operations.
    pub fn spec(&self) -> ConvSpec {
        ConvSpec { window: self.window.window(), groups: self.groups }
    }
}

impl Op {
    /// A name for errors and profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input(_) => "input",
            Self::Constant(_) => "constant",
            Self::Parameter(_) => "parameter",
            Self::Conv(_) => "conv",
            Self::ConvTranspose { .. } => "conv-transpose",
            Self::ConvWeightGrad(_) => "conv-weight-grad",
            Self::MatMul { .. } => "matmul",
            Self::Linear(l) => match (&l.map, l.finish) {
                (LinearMap::Conv(_), LinearFinish::Relu) => "conv+relu",
                (LinearMap::Conv(_), _) => "conv",
                (LinearMap::ConvTranspose { .. }, _) => "conv-transpose",
                (LinearMap::MatMul { .. }, LinearFinish::Relu) => "linear+relu",
                (LinearMap::MatMul { .. }, _) => "linear",
                (LinearMap::ConvWeightGrad(_), _) => "conv-weight-grad",
                (LinearMap::Mul, LinearFinish::Relu) => "scale+relu",
                (LinearMap::Mul, _) => "scale",
            },
            Self::Unary(f) => f.name(),
            Self::Binary(f) => f.name(),
            Self::Mask => "mask",
            Self::Where => "where",
            Self::Softmax { log: false, .. } => "softmax",
            Self::Softmax { log: true, .. } => "log-softmax",
            Self::Normalize { .. } => "normalize",
            Self::BatchNorm(_) => "batch-norm",
            Self::Dropout(_) => "dropout",
            Self::Lrn { .. } => "lrn",
            Self::MaxPool(_) => "max-pool",
            Self::MaxPoolGrad(_) => "max-pool-grad",
            Self::AvgPool { .. } => "avg-pool",
            Self::SumPool(_) => "sum-pool",
            Self::Reduce { .. } => "reduce",
            Self::Dot(_) => "dot",
            Self::ArgMax { .. } => "argmax",
            Self::Lookup => "lookup",
            Self::OneHot(_) => "one-hot",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Slice { .. } => "slice",
            Self::Gather { .. } => "gather",
            Self::Pad { .. } => "pad",
            Self::Broadcast(_) => "broadcast",
            Self::Concat(_) => "concat",
            Self::Scale(_) => "times-public",
            Self::Cast => "cast",
            Self::Confine(_) => "confine",
            Self::ClipFactor { .. } => "clip-factor",
        }
    }

    /// The exactness of the operation's result.
    pub(crate) fn exactness(&self) -> Exactness {
        use Exactness::{Approximated, Exact, Rounded};
        match self {
            Self::Unary(f) => match f {
                Unary::Relu
                | Unary::Clip(..)
                | Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Not
                | Unary::Floor => Exact,
                Unary::LeakyRelu(_) | Unary::HardSigmoid(..) | Unary::HardSwish => Rounded,
                Unary::Pow(n) if n.fract() == 0.0 && *n > 0.0 => Rounded,
                Unary::Sigmoid | Unary::Erf | Unary::Gelu | Unary::Sin | Unary::Cos => {
                    Approximated(17.0)
                }
                Unary::Sqrt | Unary::InvSqrt | Unary::Damping | Unary::Log => Approximated(18.0),
                Unary::Silu | Unary::Pow(_) => Approximated(15.0),
                _ => Approximated(16.0),
            },
            Self::Binary(f) => match f {
                Binary::Mul | Binary::PRelu => Rounded,
                Binary::Div => Approximated(17.0),
                _ => Exact,
            },
            Self::Softmax { .. } => Approximated(17.0),
            Self::Normalize { .. } => Approximated(18.0),
            Self::Lrn { .. } => Approximated(15.0),
            Self::ClipFactor { .. } => Approximated(9.0),
            Self::Reduce { kind: Reduce::L2, .. } => Approximated(18.0),
            Self::Reduce { kind: Reduce::Mean | Reduce::SumSquare, .. }
            | Self::Conv(_)
            | Self::ConvTranspose { .. }
            | Self::ConvWeightGrad(_)
            | Self::MatMul { .. }
            | Self::Linear(_)
            | Self::AvgPool { .. }
            | Self::BatchNorm(_)
            | Self::Dot(_)
            | Self::Scale(_)
            | Self::Cast
            | Self::Confine(_) => Rounded,
            _ => Exact,
        }
    }

    /// True if the value is there before anything runs.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Input(_) | Self::Constant(_) | Self::Parameter(_))
    }

    /// True if the result consists of elements of the operands, and of public ones around them.
    pub(crate) fn moves_elements(&self) -> bool {
        matches!(
            self,
            Self::Reshape(_)
                | Self::Permute(_)
                | Self::Slice { .. }
                | Self::Gather { .. }
                | Self::Pad { .. }
                | Self::Broadcast(_)
                | Self::Concat(_)
        )
    }
}

impl Unary {
    /// True if the operand is taken in its own format, whatever the result's is.
    pub(crate) fn keeps_format(self) -> bool {
        matches!(
            self,
            Self::Relu
                | Self::Clip(..)
                | Self::Neg
                | Self::Abs
                | Self::Not
                | Self::Sign
                | Self::Floor
                | Self::InvSqrt
                | Self::Damping
        )
    }

    /// A name for errors and profiles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::LeakyRelu(_) => "leaky-relu",
            Self::Clip(..) => "clip",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Erf => "erf",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu-tanh",
            Self::Silu => "silu",
            Self::HardSwish => "hard-swish",
            Self::HardSigmoid(..) => "hard-sigmoid",
            Self::Elu(_) => "elu",
            Self::Selu(..) => "selu",
            Self::Softplus => "softplus",
            Self::Softsign => "softsign",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::InvSqrt => "inverse-sqrt",
            Self::Damping => "damping",
            Self::Reciprocal => "reciprocal",
            Self::Neg => "negate",
            Self::Abs => "abs",
            Self::Sign => "sign",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Pow(_) => "pow",
            Self::Not => "not",
            Self::Floor => "floor",
        }
    }
}

impl Binary {
    /// True if results are truth values, 0 or 1, whatever the operands.
    pub fn gives_truth(self) -> bool {
        matches!(
            self,
            Self::Less
                | Self::LessEqual
                | Self::Greater
                | Self::GreaterEqual
                | Self::Equal
                | Self::And
                | Self::Or
                | Self::Xor
        )
    }

    /// A name for errors and profiles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Max => "max",
            Self::Min => "min",
            Self::Less => "less",
            Self::LessEqual => "less-equal",
            Self::Greater => "greater",
            Self::GreaterEqual => "greater-equal",
            Self::Equal => "equal",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
            Self::PRelu => "prelu",
        }
    }
}
