//! Word kernels: one step of a protocol, written once for every engine.
//!
//! A kernel is straight-line arithmetic on words. The CPU engine instantiates
//! [`WordKernel::step`] with SIMD vectors, a device engine with a recording word.

use std::num::Wrapping;
use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Neg, Not, Sub};

use crate::{EngineTensor, Shape, Stream};

/// A word, a vector of words or a recorded value, modulo 2^64.
///
/// Words cannot be compared or branched on: a kernel's steps never depend on its data.
pub trait Word:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
    /// The same constant in every lane.
    fn constant(value: u64) -> Self;
    /// Shift left by `count < 64`, zeros from the right.
    #[must_use]
    fn shl(self, count: u32) -> Self;
    /// Shift right by `count < 64`, zeros from the left.
    #[must_use]
    fn shr(self, count: u32) -> Self;
    /// Shift right by `count < 64`, copies of the top bit from the left.
    #[must_use]
    fn sar(self, count: u32) -> Self;
}

/// A single word, for host code that shares functions of words with kernels.
impl Word for Wrapping<u64> {
    #[inline(always)]
    fn constant(value: u64) -> Self {
        Self(value)
    }

    #[inline(always)]
    fn shl(self, count: u32) -> Self {
        Self(self.0 << count)
    }

    #[inline(always)]
    fn shr(self, count: u32) -> Self {
        Self(self.0 >> count)
    }

    #[inline(always)]
    fn sar(self, count: u32) -> Self {
        Self(((self.0 as i64) >> count) as u64)
    }
}

/// A step of a protocol with `I` input and `O` output words.
///
/// Fields of the kernel (shift counts, digit widths) are public constants of the step and may
/// change its trace; values that vary from launch to launch are passed as parameters.
pub trait WordKernel<const I: usize, const O: usize>: Send + Sync {
    /// A name for profiles and generated code: `[a-z0-9-]+`.
    fn name(&self) -> &'static str;

    /// The step; `params` are the launch's scalars.
    ///
    /// Implementations, and the functions of words that they call, are `#[inline(always)]`, so that
    /// each instruction set gets its own copy. A closure cannot be, and may end up compiled for the
    /// plainest instruction set: loops serve instead of `map` and `from_fn` over words.
    fn step<W: Word>(&self, inputs: [W; I], params: &[W]) -> [W; O];
}

/// One run of a kernel over `rows x cols` words.
#[derive(Debug)]
pub struct Launch<'a, T, const I: usize, const O: usize> {
    /// Rows of the index space.
    pub rows: usize,
    /// Columns of the index space: consecutive words.
    pub cols: usize,
    /// The source of each input word.
    pub sources: [Source<'a, T>; I],
    /// Scalars.
    pub params: &'a [u64],
    /// Shapes of the tensors that the launch makes.
    pub outputs: &'a [Shape],
    /// The target of each output word. Two targets never write the same word; words that no target
    /// writes are 0.
    pub targets: [Target; O],
}

/// The source of a kernel's input.
#[derive(Debug)]
pub enum Source<'a, T> {
    /// Word `(r, c)` is `tensor[offset + r * row_stride + c]`.
    Tensor {
        /// The tensor, in row-major order.
        tensor: &'a T,
        /// Its word for `(0, 0)`.
        offset: usize,
        /// Words from one row to the next; 0 repeats one row.
        row_stride: usize,
    },
    /// Word `(r, c)` is `tensor[offset + r]` for every `c`.
    PerRow {
        /// The tensor, in row-major order.
        tensor: &'a T,
        /// Its word for row 0.
        offset: usize,
    },
    /// Word `(r, c)` is word `offset + r * row_stride + c` of a pseudo-random stream.
    Stream {
        /// The stream.
        stream: &'a Stream,
        /// Its word for `(0, 0)`.
        offset: u64,
        /// Words from one row to the next.
        row_stride: u64,
    },
}

impl<'a, T> Source<'a, T> {
    /// A tensor read from its start, rows of `cols` words one after the other.
    pub fn rows_of(tensor: &'a T, cols: usize) -> Self {
        Self::Tensor { tensor, offset: 0, row_stride: cols }
    }
}

/// The target of a kernel's output: word `(r, c)` to `outputs[tensor][offset + r * row_stride + c]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Index into [`Launch::outputs`].
    pub tensor: usize,
    /// Its word for `(0, 0)`.
    pub offset: usize,
    /// Words from one row to the next.
    pub row_stride: usize,
}

/// The place of a launch's output: the words of a room from `start` on.
#[derive(Debug)]
pub struct Place<'a, T: EngineTensor> {
    /// Room for a tensor that the output is a part of.
    pub room: &'a T::Room,
    /// The output's first word.
    pub start: usize,
}
