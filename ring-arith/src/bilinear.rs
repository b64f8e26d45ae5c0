//! Bilinear maps as data: one interface for every product.

use crate::{Error, Result, Shape, Stream, Window};

/// A map that is linear in each of two tensors. All arithmetic is modulo 2^64.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bilinear {
    /// Element by element; both operands have the result's shape.
    Mul,
    /// `[batch.., m, k] x [batch.., k, n]` to `[batch.., m, n]`. Batch dimensions are equal, or one
    /// operand has none and serves every batch. A transposed operand is stored with its last two
    /// axes exchanged.
    MatMul {
        /// The first operand is stored `[.., k, m]`.
        transpose_lhs: bool,
        /// The second operand is stored `[.., n, k]`.
        transpose_rhs: bool,
    },
    /// Input `[N, C, H, W]` and weight `[O, C / groups, kh, kw]` to `[N, O, OH, OW]`.
    Conv(ConvSpec),
    /// The gradient of [`Bilinear::Conv`] by its input, which is also transposed convolution:
    /// output gradient `[N, O, OH, OW]` and weight `[O, C / groups, kh, kw]` to `[N, C, H, W]`.
    ConvInputGrad {
        /// The forward convolution.
        spec: ConvSpec,
        /// Height and width of the forward input.
        input: [usize; 2],
    },
    /// The gradient of [`Bilinear::Conv`] by its weight:
    /// input `[N, C, H, W]` and output gradient `[N, O, OH, OW]` to `[O, C / groups, kh, kw]`.
    /// The kernel size is that of `spec`.
    ConvWeightGrad(ConvSpec),
}

/// A two-dimensional convolution (cross-correlation, as in every framework).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    /// Kernel, stride, zero border and dilation.
    pub window: Window,
    /// Channel groups.
    pub groups: usize,
}

impl Bilinear {
    /// A plain matrix product.
    pub const MATMUL: Self = Self::MatMul { transpose_lhs: false, transpose_rhs: false };

    /// The operation's name in errors and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mul => "mul",
            Self::MatMul { .. } => "matmul",
            Self::Conv(_) => "conv",
            Self::ConvInputGrad { .. } => "conv-input-grad",
            Self::ConvWeightGrad(_) => "conv-weight-grad",
        }
    }

    /// The result's shape.
    ///
    /// # Errors
    /// [`Error::Shapes`] or [`Error::Invalid`] if the operands do not fit.
    pub fn output_shape(&self, lhs: &Shape, rhs: &Shape) -> Result<Shape> {
        let misfit = || Error::Shapes { op: self.name(), lhs: lhs.clone(), rhs: rhs.clone() };
        match *self {
            Self::Mul if lhs == rhs => Ok(lhs.clone()),
            Self::Mul => Err(misfit()),
            Self::MatMul { transpose_lhs, transpose_rhs } => {
                let (batch, [m, k]) = matrix(lhs, transpose_lhs).ok_or_else(misfit)?;
                let (other, [k2, n]) = matrix(rhs, transpose_rhs).ok_or_else(misfit)?;
                if k != k2 || (batch != other && !batch.is_empty() && !other.is_empty()) {
                    return Err(misfit());
                }
                let batch = if batch.is_empty() { other } else { batch };
                Shape::new([batch, &[m, n]].concat())
            }
            Self::Conv(spec) => {
                let (&[n, c, h, w], &[o, cg, kh, kw]) = (lhs.dims(), rhs.dims()) else {
                    return Err(misfit());
                };
                let [oh, ow] = spec.check([c, o], [cg, kh, kw], [h, w]).ok_or_else(misfit)?;
                Shape::new([n, o, oh, ow])
            }
            Self::ConvInputGrad { spec, input } => {
                let (&[n, o, oh, ow], &[o2, cg, kh, kw]) = (lhs.dims(), rhs.dims()) else {
                    return Err(misfit());
                };
                let c = cg.checked_mul(spec.groups).ok_or_else(misfit)?;
                let out = spec.check([c, o], [cg, kh, kw], input).ok_or_else(misfit)?;
                if o != o2 || out != [oh, ow] {
                    return Err(misfit());
                }
                Shape::new([n, c, input[0], input[1]])
            }
            Self::ConvWeightGrad(spec) => {
                let (&[n, c, h, w], &[n2, o, oh, ow]) = (lhs.dims(), rhs.dims()) else {
                    return Err(misfit());
                };
                let [kh, kw] = spec.window.kernel;
                let cg = c.checked_div(spec.groups).ok_or_else(misfit)?;
                let out = spec.check([c, o], [cg, kh, kw], [h, w]).ok_or_else(misfit)?;
                if n != n2 || out != [oh, ow] {
                    return Err(misfit());
                }
                Shape::new([o, cg, kh, kw])
            }
        }
    }
}

impl ConvSpec {
    /// A convolution without groups.
    pub fn new(window: Window) -> Self {
        Self { window, groups: 1 }
    }

    /// Output height and width, if channels, kernel and input size fit together.
    fn check(
        &self,
        [c, o]: [usize; 2],
        [cg, kh, kw]: [usize; 3],
        hw: [usize; 2],
    ) -> Option<[usize; 2]> {
        let g = self.groups;
        let fits =
            g > 0 && c % g == 0 && o % g == 0 && c / g == cg && [kh, kw] == self.window.kernel;
        if fits { self.window.positions(hw) } else { None }
    }
}

/// Batch dimensions and logical `[rows, columns]` of a matrix operand.
fn matrix(shape: &Shape, transposed: bool) -> Option<(&[usize], [usize; 2])> {
    let (batch, last) = shape.dims().split_last_chunk::<2>()?;
    Some((batch, if transposed { [last[1], last[0]] } else { *last }))
}

/// Something added to a bilinear map's result in the same pass: a bias or a mask.
#[derive(Debug)]
pub struct Addend<'a, T> {
    /// The words.
    pub source: AddendSource<'a, T>,
    /// Subtract instead of adding.
    pub negate: bool,
}

/// The source of an [`Addend`]'s words.
#[derive(Debug)]
pub enum AddendSource<'a, T> {
    /// A tensor of the result's shape or one that broadcasts to it: a bias `[C, 1, 1]` of `[N, C, H, W]`.
    Tensor(&'a T),
    /// Word `i` of the result meets word `first + i` of the stream.
    Stream {
        /// The stream.
        stream: &'a Stream,
        /// Its word that meets the result's first.
        first: u64,
    },
}
