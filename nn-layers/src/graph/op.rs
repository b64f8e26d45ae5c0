//! The operations of a network, as data.

mod functions;
mod info;
mod layers;

use mpc_core::functions::Centre;
use serde::{Deserialize, Serialize};

pub use functions::{Binary, Reduce, Unary};
pub use info::Exactness;
pub(crate) use info::{Examples, Gradient, ResultFormat, Work};
pub use layers::{BatchNorm, CrewOp, Kernel, Linear, LinearFinish, LinearMap, Pool};

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
    /// `(x - mean) / sqrt(variance + epsilon)` over the last axes, from `axis` on; from 0,
    /// `x / sqrt(mean(x^2) + epsilon)`.
    Normalize {
        /// The first of the axes.
        axis: usize,
        /// The number from which distances are taken.
        #[serde(default)]
        centre: Centre,
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
    /// A position along the last axis, drawn at random on shares: each with a probability that is its weight's part of the
    /// sum of all. No party knows what is drawn. Weights are not negative. In floats it is the position of the largest
    /// weight.
    Draw,
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
    /// Indices from `start` to below `end` of one axis; both may grow with the cached positions.
    Window {
        /// The axis.
        axis: usize,
        /// First index taken.
        start: Dim,
        /// First index not taken.
        end: Dim,
    },
    /// The integers from `from` to below `to`, which may grow with the cached positions: `[to - from]`. They are
    /// public.
    Positions {
        /// The first one.
        from: Dim,
        /// The first one that is left out.
        to: Dim,
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
    /// Multiplication by the second operand, a public number that comes with a step: from 0 to this one.
    ScaleBy(f64),
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
    /// An exchange among the machines of each party, in a training's step on several: see [`crate::crew::Crew`].
    Crew {
        /// The number of machines.
        size: usize,
        /// The exchange.
        op: CrewOp,
    },
}

/// One dimension of a shape: fixed, a multiple of the batch size, or one that grows with the cached positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// The same for every batch size.
    Fixed(usize),
    /// This many times the batch size.
    Batch(usize),
    /// `times` for each position that is cached, and `more` besides: see [`crate::Graph::state`].
    Past {
        /// For each cached position.
        times: usize,
        /// The rest.
        more: usize,
    },
    /// Whatever is left; at most once in [`Op::Reshape`].
    Rest,
}
