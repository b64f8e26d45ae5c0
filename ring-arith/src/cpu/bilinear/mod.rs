//! Bilinear maps on the CPU.

use crate::{
    Addend, AddendSource, Bilinear, ConvSpec, CpuEngine, EngineTensor, Error, Result, Tensor,
};

/// The sum of one map over several pairs of operands, plus addends.
pub(super) fn run(
    engine: &CpuEngine,
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
    let mut out = engine.buffers().zeroed(shape.len());
    for addend in addends {
        let words = match addend.source {
            AddendSource::Tensor(tensor) if tensor.len() == out.len() => tensor.words().to_vec(),
            AddendSource::Tensor(tensor) => {
                let rhs = tensor.shape().clone();
                return Err(Error::Shapes { op: op.name(), lhs: shape, rhs });
            }
            AddendSource::Stream { stream, first } => {
                let mut words = vec![0; out.len()];
                stream.fill(first, &mut words);
                words
            }
        };
        for (to, word) in out.iter_mut().zip(words) {
            let word = if addend.negate { word.wrapping_neg() } else { word };
            *to = to.wrapping_add(word);
        }
    }
    for (lhs, rhs) in terms {
        let (x, y) = (lhs.words(), rhs.words());
        match *op {
            Bilinear::Mul => {
                out.iter_mut()
                    .zip(x.iter().zip(y))
                    .for_each(|(to, (&x, &y))| add_product(to, x, y));
            }
            Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
                matmul(lhs, rhs, [transpose_lhs, transpose_rhs], &mut out);
            }
            Bilinear::Conv(spec) => {
                let (input, weight) = (lhs.shape().dims(), rhs.shape().dims());
                each_tap(&spec, input, weight, shape.dims(), |i, w, o| {
                    add_product(&mut out[o], x[i], y[w]);
                });
            }
            Bilinear::ConvInputGrad { spec, .. } => {
                let (grad, weight) = (lhs.shape().dims(), rhs.shape().dims());
                each_tap(&spec, shape.dims(), weight, grad, |i, w, o| {
                    add_product(&mut out[i], x[o], y[w]);
                });
            }
            Bilinear::ConvWeightGrad(spec) => {
                let (input, grad) = (lhs.shape().dims(), rhs.shape().dims());
                each_tap(&spec, input, shape.dims(), grad, |i, w, o| {
                    add_product(&mut out[w], x[i], y[o]);
                });
            }
        }
    }
    out.into_tensor(shape)
}

fn add_product(to: &mut u64, x: u64, y: u64) {
    *to = to.wrapping_add(x.wrapping_mul(y));
}

fn matmul(lhs: &Tensor, rhs: &Tensor, transposed: [bool; 2], out: &mut [u64]) {
    let split = |t: &Tensor, transposed: bool| {
        let (batch, &[a, b]) = t.shape().dims().split_last_chunk::<2>().expect("checked");
        let sizes = if transposed { [b, a] } else { [a, b] };
        let strides = if transposed { [1, b] } else { [b, 1] };
        (if batch.is_empty() { 0 } else { a * b }, sizes, strides)
    };
    let (x_batch, [m, k], xs) = split(lhs, transposed[0]);
    let (y_batch, [_, n], ys) = split(rhs, transposed[1]);
    for (batch, out) in out.chunks_exact_mut((m * n).max(1)).enumerate() {
        let (x, y) = (&lhs.words()[batch * x_batch..], &rhs.words()[batch * y_batch..]);
        for i in 0..m {
            for l in 0..k {
                for j in 0..n {
                    let (x, y) = (x[i * xs[0] + l * xs[1]], y[l * ys[0] + j * ys[1]]);
                    add_product(&mut out[i * n + j], x, y);
                }
            }
        }
    }
}

/// Calls `task` with the positions in input, weight and output of every product of a convolution.
fn each_tap(
    spec: &ConvSpec,
    input: &[usize],
    weight: &[usize],
    output: &[usize],
    mut task: impl FnMut(usize, usize, usize),
) {
    let (&[n, c, h, w], &[o, cg, kh, kw], &[_, _, oh, ow]) = (
        input.first_chunk::<4>().expect("checked"),
        weight.first_chunk::<4>().expect("checked"),
        output.first_chunk::<4>().expect("checked"),
    );
    let window = &spec.window;
    for (b, o_, ci, ky, kx) in indices(n, o, cg, kh, kw) {
        let channel = o_ / (o / spec.groups) * cg + ci;
        let tap = ((o_ * cg + ci) * kh + ky) * kw + kx;
        for y in 0..oh {
            let iy =
                (y * window.stride[0] + ky * window.dilation[0]).wrapping_sub(window.padding[0]);
            for x in 0..ow {
                let ix = (x * window.stride[1] + kx * window.dilation[1])
                    .wrapping_sub(window.padding[1]);
                if iy < h && ix < w {
                    let from = ((b * c + channel) * h + iy) * w + ix;
                    task(from, tap, ((b * o + o_) * oh + y) * ow + x);
                }
            }
        }
    }
}

/// All indices below the given five bounds.
fn indices(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
) -> impl Iterator<Item = (usize, usize, usize, usize, usize)> {
    (0..a * b * c * d * e)
        .map(move |i| (i / (b * c * d * e), i / (c * d * e) % b, i / (d * e) % c, i / e % d, i % e))
}
