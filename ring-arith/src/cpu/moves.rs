//! Operations that only move, repeat or drop words.

use crate::{CpuEngine, EngineTensor, Result, Shape, Tensor, View, Window};

/// Applies a view. If the words of the result are contiguous in the tensor, the result shares them.
pub(super) fn view(engine: &CpuEngine, tensor: &Tensor, view: &View) -> Result<Tensor> {
    let shape = view.output_shape(tensor.shape())?;
    let mut strides = tensor.shape().strides();
    let (base, strides) = match view {
        View::Reshape(_) => return tensor.share(0, shape),
        View::Permute(axes) => (0, axes.iter().map(|&a| strides[a]).collect()),
        &View::Slice { axis, start, step, .. } => {
            let base = start * strides[axis];
            strides[axis] *= step;
            (base, strides)
        }
        View::Broadcast(_) => {
            let from = tensor.shape().dims();
            let fresh = shape.rank() - from.len();
            let stride = |i: usize| if from[i] == 1 { 0 } else { strides[i] };
            let repeated = |i: usize| i.checked_sub(fresh).map_or(0, stride);
            (0, (0..shape.rank()).map(repeated).collect())
        }
        View::Gather { axis, indices } => return gather(engine, tensor, *axis, indices, shape),
        View::Pad { before, value, .. } => return pad(engine, tensor, before, *value, shape),
        View::Windows(window) => return windows(engine, tensor, window, shape),
    };
    Strided::new(base, &shape, strides).run(engine, tensor, shape)
}

/// Concatenates along an axis.
pub(super) fn concat(engine: &CpuEngine, tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let shapes: Vec<&Shape> = tensors.iter().map(|tensor| tensor.shape()).collect();
    let shape = Shape::concat(&shapes, axis)?;
    if let [only] = tensors {
        return Ok((*only).clone());
    }
    let inner: usize = shape.dims()[axis + 1..].iter().product();
    let mut out = engine.buffer(shape.len());
    engine.each_row(&mut out, shape.dims()[axis] * inner, |outer, mut row| {
        for tensor in tensors {
            let len = tensor.shape().dims()[axis] * inner;
            let (part, rest) = row.split_at_mut(len);
            part.copy_from_slice(&tensor.words()[outer * len..(outer + 1) * len]);
            row = rest;
        }
    });
    out.into_tensor(shape)
}

fn gather(
    engine: &CpuEngine,
    tensor: &Tensor,
    axis: usize,
    indices: &[usize],
    shape: Shape,
) -> Result<Tensor> {
    let length = tensor.shape().dims()[axis];
    let inner: usize = shape.dims()[axis + 1..].iter().product();
    let mut out = engine.buffer(shape.len());
    let words = tensor.words();
    engine.each_row(&mut out, indices.len() * inner, |outer, row| {
        let from = &words[outer * length * inner..(outer + 1) * length * inner];
        if inner == 1 {
            row.iter_mut().zip(indices).for_each(|(to, &i)| *to = from[i]);
            return;
        }
        for (to, &i) in row.chunks_exact_mut(inner.max(1)).zip(indices) {
            to.copy_from_slice(&from[i * inner..(i + 1) * inner]);
        }
    });
    out.into_tensor(shape)
}

fn pad(
    engine: &CpuEngine,
    tensor: &Tensor,
    before: &[usize],
    value: u64,
    shape: Shape,
) -> Result<Tensor> {
    let from = tensor.shape().dims();
    let Some((&width, outer)) = shape.dims().split_last() else { return Ok(tensor.clone()) };
    let last = outer.len();
    let strides = tensor.shape().strides();
    let mut out = engine.buffer(shape.len());
    engine.each_row(&mut out, width, |index, row| {
        row.fill(value);
        if tensor.len() == 0 {
            return;
        }
        let (mut rest, mut base) = (index, 0);
        for axis in (0..last).rev() {
            let at = (rest % outer[axis]).wrapping_sub(before[axis]);
            if at >= from[axis] {
                return;
            }
            base += at * strides[axis];
            rest /= outer[axis];
        }
        let words = &tensor.words()[base..base + from[last]];
        row[before[last]..before[last] + from[last]].copy_from_slice(words);
    });
    out.into_tensor(shape)
}

fn windows(engine: &CpuEngine, tensor: &Tensor, window: &Window, shape: Shape) -> Result<Tensor> {
    let size = |dims: &[usize]| *dims.last_chunk::<2>().expect("a window lies over two axes");
    let ([h, w], [oh, ow]) = (size(tensor.shape().dims()), size(shape.dims()));
    let [kh, kw] = window.kernel;
    let taps = kh * kw;
    let words = tensor.words();
    let mut out = engine.buffer(shape.len());
    engine.each_row(&mut out, oh * ow, |index, plane| {
        let (image, tap) = (index / taps, index % taps);
        let image = &words[image * h * w..(image + 1) * h * w];
        let (dy, dx) = (tap / kw * window.dilation[0], tap % kw * window.dilation[1]);
        let (first, inside) = window.inside(1, dx, w, ow);
        for (y, row) in plane.chunks_exact_mut(ow).enumerate() {
            row.fill(0);
            let line = (y * window.stride[0] + dy).wrapping_sub(window.padding[0]);
            if line < h && !inside.is_empty() {
                let line = &image[line * w..(line + 1) * w];
                let from = line[first..].iter().step_by(window.stride[1]);
                row[inside.clone()].iter_mut().zip(from).for_each(|(to, &word)| *to = word);
            }
        }
    });
    out.into_tensor(shape)
}

/// A result whose word at index `i` is the tensor's word `base + sum(i[axis] * strides[axis])`.
struct Strided {
    base: usize,
    /// Pairs of dimension and stride, outermost first, joined where they can be.
    axes: Vec<(usize, usize)>,
}

impl Strided {
    fn new(base: usize, shape: &Shape, strides: Vec<usize>) -> Self {
        let mut axes: Vec<(usize, usize)> = Vec::with_capacity(strides.len());
        for (&dim, stride) in shape.dims().iter().zip(strides) {
            match axes.last_mut() {
                _ if dim == 1 => {}
                Some(outer) if outer.1 == dim * stride => *outer = (outer.0 * dim, stride),
                _ => axes.push((dim, stride)),
            }
        }
        Self { base, axes }
    }

    fn run(self, engine: &CpuEngine, tensor: &Tensor, shape: Shape) -> Result<Tensor> {
        if shape.len() == 0 {
            return tensor.share(0, shape);
        }
        if let [] | [(_, 1)] = self.axes[..] {
            return tensor.share(self.base, shape);
        }
        let mut out = engine.buffer(shape.len());
        let words = tensor.words();
        // The outermost axis is cut into pieces that are large enough for a task.
        let (outer, stride) = self.axes[0];
        let inner = shape.len() / outer;
        let rows = PIECE.div_ceil(inner).next_multiple_of(TILE);
        engine.each_chunk(&mut out, rows * inner, |piece, out| {
            let mut axes = self.axes.clone();
            axes[0].0 = out.len() / inner;
            copy(words, self.base + piece * rows * stride, &axes, out);
        });
        out.into_tensor(shape)
    }
}

/// Words that one task moves.
const PIECE: usize = 1 << 14;

/// Side of the squares in which a transpose is done, so that the lines it reads and writes stay in
/// the first-level cache.
const TILE: usize = 16;

fn copy(words: &[u64], base: usize, axes: &[(usize, usize)], out: &mut [u64]) {
    match *axes {
        [] => out[0] = words[base],
        [(dim, 1)] => out.copy_from_slice(&words[base..base + dim]),
        [(_, 0)] => out.fill(words[base]),
        [(_, stride)] => {
            let from = words[base..].iter().step_by(stride);
            out.iter_mut().zip(from).for_each(|(to, &word)| *to = word);
        }
        [(rows, 1), (cols, stride)] if stride > 0 => {
            transpose(&words[base..], [rows, cols], stride, out);
        }
        [(dim, stride), ref rest @ ..] => {
            let inner = out.len() / dim;
            for (i, out) in out.chunks_exact_mut(inner).enumerate() {
                copy(words, base + i * stride, rest, out);
            }
        }
    }
}

/// `out[r * cols + c] = words[c * stride + r]`, square by square.
fn transpose(words: &[u64], [rows, cols]: [usize; 2], stride: usize, out: &mut [u64]) {
    for top in (0..rows).step_by(TILE) {
        for left in (0..cols).step_by(TILE) {
            for r in top..rows.min(top + TILE) {
                let right = cols.min(left + TILE);
                let to = &mut out[r * cols + left..r * cols + right];
                let from = words[left * stride + r..].iter().step_by(stride);
                to.iter_mut().zip(from).for_each(|(to, &word)| *to = word);
            }
        }
    }
}
