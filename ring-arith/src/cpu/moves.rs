//! Operations that only move, repeat or drop words.

use crate::{CpuEngine, EngineTensor, Error, Result, Shape, Tensor, View, Window};

/// Applies a view. Where the words of the result lie behind one another in the tensor already, the
/// result shares them.
pub(super) fn view(engine: &CpuEngine, tensor: &Tensor, view: &View) -> Result<Tensor> {
    match view {
        View::Reshape(shape) if shape.len() == tensor.len() => tensor.share(0, shape.clone()),
        View::Reshape(shape) => {
            let (lhs, rhs) = (tensor.shape().clone(), shape.clone());
            Err(Error::Shapes { op: "reshape", lhs, rhs })
        }
        View::Permute(axes) => permute(engine, tensor, axes),
        View::Slice { axis, start, end, step } => {
            slice(engine, tensor, *axis, [*start, *end, *step])
        }
        View::Gather { axis, indices } => gather(engine, tensor, *axis, indices),
        View::Pad { before, after, value } => pad(engine, tensor, before, after, *value),
        View::Broadcast(shape) => broadcast(engine, tensor, shape),
        View::Windows(window) => windows(engine, tensor, window),
    }
}

/// Concatenates along an axis.
pub(super) fn concat(engine: &CpuEngine, tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let [first, others @ ..] = tensors else {
        return Err(Error::invalid("concat", "there are no tensors to concatenate"));
    };
    check_axis("concat", first.shape(), axis)?;
    let mut dims = first.shape().dims().to_vec();
    for other in others {
        let theirs = other.shape().dims();
        let fits = |i: usize| i == axis || theirs[i] == dims[i];
        if theirs.len() != dims.len() || !(0..dims.len()).all(fits) {
            let (lhs, rhs) = (first.shape().clone(), other.shape().clone());
            return Err(Error::Shapes { op: "concat", lhs, rhs });
        }
        dims[axis] = dims[axis].checked_add(theirs[axis]).ok_or_else(|| too_large("concat"))?;
    }
    if others.is_empty() {
        return Ok((*first).clone());
    }
    let shape = Shape::new(dims)?;
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

fn permute(engine: &CpuEngine, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let (dims, strides) = (tensor.shape().dims(), tensor.shape().strides());
    let mut seen = vec![false; dims.len()];
    let new = |&axis: &usize| !std::mem::replace(seen.get_mut(axis).unwrap_or(&mut true), true);
    if axes.len() != dims.len() || !axes.iter().all(new) {
        let reason = format!("axes {axes:?} do not name each axis of {:?} once", tensor.shape());
        return Err(Error::invalid("permute", reason));
    }
    let shape = Shape::new(axes.iter().map(|&a| dims[a]).collect::<Vec<_>>())?;
    Strided::new(0, &shape, axes.iter().map(|&a| strides[a]).collect()).run(engine, tensor, shape)
}

fn slice(
    engine: &CpuEngine,
    tensor: &Tensor,
    axis: usize,
    [start, end, step]: [usize; 3],
) -> Result<Tensor> {
    check_axis("slice", tensor.shape(), axis)?;
    let mut dims = tensor.shape().dims().to_vec();
    if step == 0 || start > end || end > dims[axis] {
        let reason = format!("{start}..{end} by {step} is not inside axis {axis} of {dims:?}");
        return Err(Error::invalid("slice", reason));
    }
    dims[axis] = (end - start).div_ceil(step);
    let mut strides = tensor.shape().strides();
    let base = start * strides[axis];
    strides[axis] *= step;
    let shape = Shape::new(dims)?;
    Strided::new(base, &shape, strides).run(engine, tensor, shape)
}

fn broadcast(engine: &CpuEngine, tensor: &Tensor, shape: &Shape) -> Result<Tensor> {
    let (from, to) = (tensor.shape().dims(), shape.dims());
    let strides = tensor.shape().strides();
    let fresh = to.len().checked_sub(from.len());
    let fits = |fresh: &usize| (0..from.len()).all(|i| from[i] == 1 || from[i] == to[i + fresh]);
    let Some(fresh) = fresh.filter(fits) else {
        let reason = format!("shape {:?} does not repeat to {shape:?}", tensor.shape());
        return Err(Error::invalid("broadcast", reason));
    };
    let stride = |i: usize| if from[i] == 1 { 0 } else { strides[i] };
    let strides = (0..to.len()).map(|i| i.checked_sub(fresh).map_or(0, stride)).collect();
    Strided::new(0, shape, strides).run(engine, tensor, shape.clone())
}

fn gather(engine: &CpuEngine, tensor: &Tensor, axis: usize, indices: &[usize]) -> Result<Tensor> {
    check_axis("gather", tensor.shape(), axis)?;
    let mut dims = tensor.shape().dims().to_vec();
    let length = dims[axis];
    if let Some(bad) = indices.iter().find(|&&i| i >= length) {
        let reason = format!("index {bad} is outside axis {axis} of {dims:?}");
        return Err(Error::invalid("gather", reason));
    }
    dims[axis] = indices.len();
    let shape = Shape::new(dims)?;
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
    after: &[usize],
    value: u64,
) -> Result<Tensor> {
    let from = tensor.shape().dims();
    if before.len() != from.len() || after.len() != from.len() {
        let reason = format!(
            "{} and {} widths for the {} axes of {from:?}",
            before.len(),
            after.len(),
            from.len()
        );
        return Err(Error::invalid("pad", reason));
    }
    let grown = |i: usize| from[i].checked_add(before[i])?.checked_add(after[i]);
    let dims = (0..from.len()).map(grown).collect::<Option<Vec<_>>>();
    let shape = Shape::new(dims.ok_or_else(|| too_large("pad"))?)?;
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

fn windows(engine: &CpuEngine, tensor: &Tensor, window: &Window) -> Result<Tensor> {
    let (outer, [h, w], [oh, ow]) = window_sizes("windows", tensor.shape(), window)?;
    let [kh, kw] = window.kernel;
    let taps = kh.checked_mul(kw).ok_or_else(|| too_large("windows"))?;
    let shape = Shape::new([outer, &[taps, oh, ow]].concat())?;
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

/// Leading dimensions, height and width, and number of positions of a window over a tensor.
pub(super) fn window_sizes<'a>(
    op: &'static str,
    shape: &'a Shape,
    window: &Window,
) -> Result<(&'a [usize], [usize; 2], [usize; 2])> {
    let sizes = || {
        let (outer, &size) = shape.dims().split_last_chunk::<2>()?;
        Some((outer, size, window.positions(size)?))
    };
    sizes().ok_or_else(|| Error::invalid(op, format!("{window:?} does not fit shape {shape:?}")))
}

fn check_axis(op: &'static str, shape: &Shape, axis: usize) -> Result<()> {
    if axis < shape.rank() {
        return Ok(());
    }
    Err(Error::invalid(op, format!("shape {shape:?} has no axis {axis}")))
}

fn too_large(op: &'static str) -> Error {
    Error::invalid(op, "the result has too many elements")
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
        // The outermost axis is cut so that a piece is worth a task.
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
