//! Word kernels on the CPU.

mod check;

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Neg, Not, Sub};

use crate::{CpuEngine, Launch, Result, Source, Tensor, Word, WordKernel};

/// Runs a kernel over its index space.
pub(super) fn run<K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &CpuEngine,
    kernel: &K,
    launch: &Launch<'_, Tensor, I, O>,
) -> Result<Vec<Tensor>> {
    check::check(launch)?;
    let mut outputs: Vec<_> =
        launch.outputs.iter().map(|shape| engine.buffers().zeroed(shape.len())).collect();
    let params: Vec<_> = launch.params.iter().map(|&p| Scalar(p)).collect();
    let mut rows = [const { Vec::new() }; I];
    for r in 0..launch.rows {
        for (row, source) in rows.iter_mut().zip(&launch.sources) {
            *row = read(source, r, launch.cols);
        }
        for c in 0..launch.cols {
            let inputs = std::array::from_fn(|i| Scalar(rows[i][c]));
            let words = kernel.step(inputs, &params);
            for (word, target) in words.into_iter().zip(&launch.targets) {
                outputs[target.tensor][target.offset + r * target.row_stride + c] = word.0;
            }
        }
    }
    outputs.into_iter().zip(launch.outputs).map(|(o, s)| o.into_tensor(s.clone())).collect()
}

fn read(source: &Source<'_, Tensor>, r: usize, cols: usize) -> Vec<u64> {
    match *source {
        Source::Tensor { tensor, offset, row_stride } => {
            tensor.words()[offset + r * row_stride..][..cols].to_vec()
        }
        Source::PerRow { tensor, offset } => vec![tensor.words()[offset + r]; cols],
        Source::Stream { stream, offset, row_stride } => {
            let mut words = vec![0; cols];
            stream.fill(offset + r as u64 * row_stride, &mut words);
            words
        }
    }
}

/// One word.
#[derive(Clone, Copy)]
struct Scalar(u64);

macro_rules! binary {
    ($($trait:ident $method:ident $wrapping:expr;)*) => {$(
        impl $trait for Scalar {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self($wrapping(self.0, other.0))
            }
        }
    )*};
}

binary! {
    Add add u64::wrapping_add;
    Sub sub u64::wrapping_sub;
    Mul mul u64::wrapping_mul;
    BitAnd bitand u64::bitand;
    BitOr bitor u64::bitor;
    BitXor bitxor u64::bitxor;
}

impl Neg for Scalar {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.wrapping_neg())
    }
}

impl Not for Scalar {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl Word for Scalar {
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
