//! Views and concatenation on the device.

use ring_arith::{EngineTensor, Error, Result, Shape, Tensor, View};

use crate::{
    CudaTensor,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
};

/// Largest number of axes that the kernels support, after neighbours that belong together are
/// joined.
const RANK: usize = 8;

/// The sources of a result's words; see `Move` in `words.cu`.
struct Move {
    out: Vec<usize>,
    /// For each input axis that matters: first position, length, stride, and the step for each
    /// output axis.
    axes: Vec<Axis>,
    fill: u64,
}

struct Axis {
    base: i64,
    len: usize,
    stride: usize,
    /// Pairs of output axis and step.
    steps: Vec<(usize, i64)>,
}

pub(crate) fn view(device: &Device, x: &CudaTensor, view: &View) -> Result<CudaTensor> {
    let shape = view.output_shape(x.shape())?;
    let strides = x.shape().strides();
    match view {
        View::Reshape(_) => return Ok(x.share(0, shape)),
        View::Broadcast(_) if shape == *x.shape() => return Ok(x.share(0, shape)),
        &View::Slice { axis: 0, start, step: 1, .. } => {
            return Ok(x.share(start * strides[0], shape));
        }
        View::Gather { axis, indices } => return gather(device, x, *axis, indices, shape),
        _ => {}
    }
    let dims = x.shape().dims();
    let axis = |i: usize, base: i64, steps: Vec<(usize, i64)>| Axis {
        base,
        len: dims[i],
        stride: strides[i],
        steps,
    };
    let (out, axes, fill) = match view {
        View::Permute(order) => {
            let axes = order.iter().enumerate().map(|(o, &i)| axis(i, 0, vec![(o, 1)]));
            (shape.dims().to_vec(), axes.collect(), 0)
        }
        View::Slice { axis: sliced, start, step, .. } => {
            let one = |i: usize| match i == *sliced {
                true => axis(i, *start as i64, vec![(i, *step as i64)]),
                false => axis(i, 0, vec![(i, 1)]),
            };
            (shape.dims().to_vec(), (0..dims.len()).map(one).collect(), 0)
        }
        View::Pad { before, value, .. } => {
            let one = |i: usize| axis(i, -(before[i] as i64), vec![(i, 1)]);
            (shape.dims().to_vec(), (0..dims.len()).map(one).collect::<Vec<_>>(), *value)
        }
        View::Broadcast(_) => {
            let fresh = shape.rank() - dims.len();
            let one = |i: usize| axis(i, 0, vec![(i + fresh, i64::from(dims[i] != 1))]);
            (shape.dims().to_vec(), (0..dims.len()).map(one).collect(), 0)
        }
        View::Windows(window) => {
            let outer = dims.len() - 2;
            let along = |i: usize| {
                let (tap, position) = (outer + i, outer + 2 + i);
                let steps =
                    vec![(tap, window.dilation[i] as i64), (position, window.stride[i] as i64)];
                axis(outer + i, -(window.padding[i] as i64), steps)
            };
            // The axis of taps counts as two, which does not change the order of words.
            let mut out = dims[..outer].to_vec();
            out.extend(window.kernel);
            out.extend(&shape.dims()[outer + 1..]);
            let mut axes: Vec<Axis> = (0..outer).map(|i| axis(i, 0, vec![(i, 1)])).collect();
            axes.extend([along(0), along(1)]);
            (out, axes, 0)
        }
        other => {
            return Err(Error::invalid("view", format!("{other:?} is not known to this engine")));
        }
    };
    Move { out, axes, fill }.joined().run(device, x, shape)
}

impl Move {
    /// Joins neighbouring axes that are walked as one, and drops those of length 1.
    fn joined(mut self) -> Self {
        // An output axis of length 1 stands still.
        for o in (0..self.out.len()).rev() {
            if self.out[o] == 1 {
                self.drop_output(o);
            }
        }
        // An input axis that stands inside its bounds is only an offset, here always 0.
        self.axes.retain(|a| !(a.base == 0 && a.steps.iter().all(|s| s.1 == 0)));
        let mut o = 1;
        while o < self.out.len() {
            if let Some((a, b)) = self.twins(o) {
                let (outer, inner) = (self.out[o - 1], self.out[o]);
                self.out[o] = outer * inner;
                self.axes[a].len *= inner;
                self.axes[a].stride = self.axes[b].stride;
                self.axes[a].steps = vec![(o, 1)];
                self.axes.remove(b);
                self.drop_output(o - 1);
            } else {
                o += 1;
            }
        }
        self
    }

    /// Input axes `(outer, inner)` that follow output axes `o - 1` and `o` over their whole length.
    fn twins(&self, o: usize) -> Option<(usize, usize)> {
        let whole = |o: usize| {
            let follows = |a: &&Axis| a.steps.iter().any(|s| s.0 == o && s.1 != 0);
            let mut found = self.axes.iter().enumerate().filter(|(_, a)| follows(a));
            let (i, a) = found.next()?;
            let plain = a.base == 0 && a.len == self.out[o] && a.steps == [(o, 1)];
            (plain && found.next().is_none()).then_some(i)
        };
        let (a, b) = (whole(o - 1)?, whole(o)?);
        (self.axes[a].stride == self.axes[b].stride * self.axes[b].len).then_some((a, b))
    }

    fn drop_output(&mut self, o: usize) {
        self.out.remove(o);
        for axis in &mut self.axes {
            axis.steps.retain(|s| s.0 != o);
            axis.steps.iter_mut().filter(|s| s.0 > o).for_each(|s| s.0 -= 1);
        }
    }

    fn run(self, device: &Device, x: &CudaTensor, shape: Shape) -> Result<CudaTensor> {
        let small = |v: i64| i32::try_from(v).map_err(|_| too_large(&shape));
        if self.out.len() > RANK || self.axes.len() > RANK {
            let reason =
                format!("a move over {} axes; at most {RANK} are supported", self.out.len());
            return Err(Error::invalid("view", reason));
        }
        let out = device.empty(shape.clone())?;
        let dims = self.out.iter().map(|&d| u32::try_from(d).map_err(|_| too_large(&shape)));
        let dims = dims.collect::<Result<Vec<_>>>()?;
        let mut fields = Fields::default()
            .u64(shape.len() as u64)
            .u64(self.fill)
            .u32(dims.len() as u32)
            .u32(self.axes.len() as u32)
            .eight_u32(&dims, 1);
        for i in 0..RANK {
            fields = fields.i32(small(self.axes.get(i).map_or(0, |a| a.base))?);
        }
        for i in 0..RANK {
            fields = fields.i32(small(self.axes.get(i).map_or(1, |a| a.len as i64))?);
        }
        for i in 0..RANK {
            for o in 0..RANK {
                let step = self.axes.get(i).and_then(|a| a.steps.iter().find(|s| s.0 == o));
                fields = fields.i32(small(step.map_or(0, |s| s.1))?);
            }
        }
        let strides: Vec<u64> = self.axes.iter().map(|a| a.stride as u64).collect();
        let args = [pointer(&out), pointer(x), fields.eight_u64(&strides).done()];
        // SAFETY: the kernel writes `shape.len()` words and reads inside the axes' lengths.
        unsafe { device.stride(Shipped::Words, "move_words", shape.len(), &args)? };
        Ok(out)
    }
}

fn too_large(shape: &Shape) -> Error {
    Error::invalid("view", format!("an axis of {shape:?} is too long for the device"))
}

fn gather(
    device: &Device,
    x: &CudaTensor,
    axis: usize,
    indices: &[usize],
    shape: Shape,
) -> Result<CudaTensor> {
    let out = device.empty(shape)?;
    let words = indices.iter().map(|&i| i as u64).collect();
    let table = device.upload(&Tensor::vector(words))?;
    let dims = x.shape().dims();
    let inner: usize = dims[axis + 1..].iter().product();
    let numbers = [out.len(), indices.len(), dims[axis], inner].map(|n| Arg::word(n as u64));
    let args =
        [pointer(&out), pointer(x), pointer(&table)].into_iter().chain(numbers).collect::<Vec<_>>();
    // SAFETY: `output_shape` has checked the indices; sizes are the tensors'.
    unsafe { device.stride(Shipped::Words, "gather_words", out.len(), &args)? };
    Ok(out)
}

pub(crate) fn concat(device: &Device, tensors: &[&CudaTensor], axis: usize) -> Result<CudaTensor> {
    let shapes: Vec<&Shape> = tensors.iter().map(|t| t.shape()).collect();
    let shape = Shape::concat(&shapes, axis)?;
    if let [only] = tensors {
        return Ok((*only).clone());
    }
    let out = device.empty(shape.clone())?;
    let inner: usize = shape.dims()[axis + 1..].iter().product();
    let out_row = shape.dims()[axis] * inner;
    let mut offset = 0;
    for tensor in tensors {
        let row = tensor.shape().dims()[axis] * inner;
        let numbers = [tensor.len(), row, out_row, offset].map(|n| Arg::word(n as u64));
        let args = [pointer(&out), pointer(tensor)].into_iter().chain(numbers).collect::<Vec<_>>();
        // SAFETY: each tensor's rows go to their own place in the rows of the result.
        unsafe { device.stride(Shipped::Words, "place_rows", tensor.len(), &args)? };
        offset += row;
    }
    Ok(out)
}
