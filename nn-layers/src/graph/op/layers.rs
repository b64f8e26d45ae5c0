//! Layers with weights or windows.

use ring_arith::{ConvSpec, Window};
use serde::{Deserialize, Serialize};

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

/// An exchange among the machines of each party that train together. A stretch is the part of a value's elements that one
/// machine keeps, all as one axis: `ceil(n / size)` of `n` elements, of which the last ones may be zeros that fill it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrewOp {
    /// The machine's stretch of the sum of all machines' values.
    SumScattered,
    /// The machine's stretch of a value that all machines have.
    Stretch,
    /// The value of this shape of which each machine has its stretch.
    Gather(Vec<usize>),
    /// The sum of all machines' values.
    Sum,
    /// The value of machine 0.
    First,
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
    /// The number of machines whose sums of maps are added up before the truncation, each of which gets its stretch: see
    /// [`CrewOp::SumScattered`]. A residual is added to the stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scattered: Option<usize>,
}

impl Linear {
    /// One map, truncated.
    pub fn new(map: LinearMap) -> Self {
        let (bias, residual, finish) = (false, false, LinearFinish::Truncate);
        Self { map, bias, residual, more: Vec::new(), finish, scattered: None }
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
    /// See [`super::Op::Conv`].
    Conv(Kernel),
    /// See [`super::Op::ConvTranspose`].
    ConvTranspose {
        /// The convolution whose transpose this is.
        kernel: Kernel,
        /// Added to the smallest height and width.
        extra: [usize; 2],
    },
    /// See [`super::Op::MatMul`].
    MatMul {
        /// The first operand is stored `[.., k, m]`.
        transpose_lhs: bool,
        /// The second operand is stored `[.., n, k]`.
        transpose_rhs: bool,
    },
    /// See [`super::Op::ConvWeightGrad`].
    ConvWeightGrad(Kernel),
    /// Element by element, the weight broadcast to the value.
    Mul,
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
