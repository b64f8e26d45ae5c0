//! Bilinear maps on the CPU.
//!
//! Maps become matrix products over [`source::Source`]s, which the blocked product of [`gemm`] packs and
//! multiplies with the micro-kernel of the instruction set. Convolutions with many tiles save products:
//! [`toeplitz`]. Thin products, convolutions with few positions, depthwise ones and elementwise products have
//! special loops: [`thin`], [`few`], [`direct`], [`mul`]. Input gradients that would mostly multiply borders
//! are products that are added up afterwards: [`fold`]. Weight gradients of a few channels are dot products:
//! [`dots`].

mod addends;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod conv;
mod direct;
mod dots;
mod few;
mod fold;
mod gemm;
mod kernel;
mod loops;
mod matmul;
mod mul;
mod output;
mod portable;
mod probe;
mod source;
#[cfg(test)]
mod tests;
mod thin;
mod toeplitz;
mod windows;

pub use probe::Microkernel;
pub(super) use probe::tiles_pay;

use addends::Addends;
use kernel::Kernel;

use crate::{Addend, Bilinear, BufferPool, CpuEngine, EngineTensor, Error, Isa, Result, Tensor};

/// One call: the operands, the addends and the settings.
#[derive(Clone, Copy)]
struct Job<'a> {
    terms: &'a [(&'a Tensor, &'a Tensor)],
    addends: &'a Addends<'a>,
    isa: Isa,
    /// The memory for intermediate results.
    buffers: &'a BufferPool,
    form: Form,
    /// Threads of the current rayon pool to use.
    threads: usize,
}

/// The ways to compute convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As the counted work suggests.
    Best,
    /// As one product with the windows of the images.
    #[cfg(test)]
    Direct,
    /// An input gradient whose products are added to their inputs, at most this many words at a time.
    #[cfg(test)]
    Fold(usize),
    /// A weight gradient as dot products.
    #[cfg(test)]
    Dots,
    /// By tiles, with algorithms for these numbers of taps along height and width, and this many
    /// words in a block.
    #[cfg(test)]
    Tiles([usize; 2], usize),
}

/// Calls of fewer word products stay on the caller's thread.
const SMALL: usize = 1 << 16;

/// The sum of one map over several pairs of operands, plus addends.
pub(super) fn run(
    engine: &CpuEngine,
    op: &Bilinear,
    terms: &[(&Tensor, &Tensor)],
    addends: &[Addend<'_, Tensor>],
) -> Result<Tensor> {
    run_as(engine, Form::Best, op, terms, addends)
}

fn run_as(
    engine: &CpuEngine,
    form: Form,
    op: &Bilinear,
    terms: &[(&Tensor, &Tensor)],
    addends: &[Addend<'_, Tensor>],
) -> Result<Tensor> {
    let Some((lhs, rhs)) = terms.first() else {
        return Err(Error::invalid(op.name(), "there are no operands"));
    };
    let shape = op.output_shape(lhs.shape(), rhs.shape())?;
    for (lhs, rhs) in terms {
        if op.output_shape(lhs.shape(), rhs.shape())? != shape {
            let (lhs, rhs) = (lhs.shape().clone(), rhs.shape().clone());
            return Err(Error::Shapes { op: op.name(), lhs, rhs });
        }
    }
    let addends = Addends::new(engine, op.name(), &shape, addends)?;
    let mut out = engine.buffer(shape.len());
    let (isa, buffers) = (engine.isa(), engine.buffers());
    let job = |threads| Job { terms, addends: &addends, isa, buffers, form, threads };
    let largest = shape.len().max(lhs.len()).max(rhs.len());
    match engine.workers() {
        Some(workers) if largest.saturating_mul(terms.len()) > SMALL => {
            workers.install(|| job(engine.threads()).compute(op, shape.dims(), &mut out));
        }
        _ => job(1).compute(op, shape.dims(), &mut out),
    }
    out.into_tensor(shape)
}

impl Job<'_> {
    fn compute(self, op: &Bilinear, dims: &[usize], out: &mut [u64]) {
        if out.is_empty() {
            return;
        }
        match *op {
            Bilinear::Mul => mul::run(self, out),
            Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
                matmul::run(self, [transpose_lhs, transpose_rhs], dims, out);
            }
            Bilinear::Conv(spec) => conv::forward(self, &spec, dims, out),
            Bilinear::ConvInputGrad { spec, .. } => conv::input_grad(self, &spec, dims, out),
            Bilinear::ConvWeightGrad(spec) => conv::weight_grad(self, &spec, dims, out),
        }
    }

    /// The micro-kernel for blocked products of this depth.
    fn kernel(self, depth: usize) -> Kernel {
        Kernel::best(self.isa, depth)
    }
}
