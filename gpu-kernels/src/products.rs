//! Bilinear maps on the device.

use ring_arith::{Addend, AddendSource, Bilinear, ConvSpec, EngineTensor, Error, Result, Shape};

use crate::{
    CudaTensor, Method,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
    limbs, streams,
};

/// Rows and columns of the result that a block computes, in every kernel.
pub(crate) const TILE: usize = 64;
/// Largest grid along y and z.
pub(crate) const GRID: usize = 65_535;
/// Tensors that a kernel adds to its result.
const ADDENDS: usize = 4;

/// A product as the kernels take it.
pub(crate) struct Plan {
    /// `matmul`, `conv`, `conv_input_grad` or `conv_weight_grad`.
    pub kernel: &'static str,
    /// Rows and columns of the result and terms of its sums, for each batch or group.
    pub rows: usize,
    pub cols: usize,
    pub depth: usize,
    pub batches: usize,
    /// The operands' structure.
    params: Fields,
}

pub(crate) fn bilinear(
    device: &Device,
    method: Method,
    op: &Bilinear,
    terms: &[(&CudaTensor, &CudaTensor)],
    addends: &[Addend<'_, CudaTensor>],
) -> Result<CudaTensor> {
    let Some((lhs, rhs)) = terms.first() else {
        return Err(Error::invalid(op.name(), "there are no operands"));
    };
    let shape = op.output_shape(lhs.shape(), rhs.shape())?;
    for (l, r) in &terms[1..] {
        let other = op.output_shape(l.shape(), r.shape())?;
        if other != shape {
            return Err(Error::Shapes { op: op.name(), lhs: shape, rhs: other });
        }
    }
    let words =
        addends.iter().map(|a| addend(device, op, a, &shape)).collect::<Result<Vec<_>>>()?;
    let (fused, rest) = words.split_at(words.len().min(ADDENDS));
    let out = device.empty(shape.clone())?;
    if shape.len() == 0 {
        return Ok(out);
    }
    let plans = terms.iter().map(|(l, r)| plan(op, [&shape, l.shape(), r.shape()]));
    match plans.collect::<Result<Option<Vec<_>>>>()? {
        Some(plans) if limbs::chosen(method, &plans) => {
            limbs::product(device, &out, terms, &plans, fused)?
        }
        Some(plans) => {
            for (i, (plan, (l, r))) in plans.iter().zip(terms).enumerate() {
                integer(device, plan, [&out, l, r], addends_of(i, fused, &out))?;
            }
        }
        None => {
            for (i, (l, r)) in terms.iter().enumerate() {
                let added = addends_of(i, fused, &out);
                let args =
                    [pointer(&out), pointer(l), pointer(r), Arg::word(out.len() as u64), added];
                // SAFETY: all tensors have the result's length.
                unsafe { device.stride(Shipped::Products, "mul_words", out.len(), &args)? };
            }
        }
    }
    for (words, negate) in rest {
        let args = [
            pointer(&out),
            pointer(words),
            Arg::word(out.len() as u64),
            Arg::word(u64::from(*negate)),
        ];
        // SAFETY: both tensors have the result's length.
        unsafe { device.stride(Shipped::Products, "add_words", out.len(), &args)? };
    }
    Ok(out)
}

/// An addend's words and sign, checked.
fn addend(
    device: &Device,
    op: &Bilinear,
    a: &Addend<'_, CudaTensor>,
    shape: &Shape,
) -> Result<(CudaTensor, bool)> {
    let words = match a.source {
        AddendSource::Tensor(t) if t.len() == shape.len() => t.clone(),
        AddendSource::Tensor(t) => {
            return Err(Error::Shapes {
                op: op.name(),
                lhs: shape.clone(),
                rhs: t.shape().clone(),
            });
        }
        AddendSource::Stream { stream, first } => {
            streams::fill(device, stream, first, shape.clone())?
        }
    };
    Ok((words, a.negate))
}

/// The structure of what the `i`-th launch into a result adds: the addends, then what is there already.
pub(crate) fn addends_of(i: usize, fused: &[(CudaTensor, bool)], out: &CudaTensor) -> Arg {
    let so_far = [(out.clone(), false)];
    let added = if i == 0 { fused } else { &so_far };
    let addresses: Vec<u64> = added.iter().map(|a| a.0.address()).collect();
    let negate = added.iter().enumerate().fold(0, |mask, (i, a)| mask | u32::from(a.1) << i);
    let fields =
        (0..ADDENDS).fold(Fields::default(), |f, i| f.u64(addresses.get(i).copied().unwrap_or(0)));
    fields.u32(added.len() as u32).u32(negate).done()
}

/// How the kernels see a map; `None` for the elementwise product.
fn plan(op: &Bilinear, [out, lhs, rhs]: [&Shape; 3]) -> Result<Option<Plan>> {
    let plan = match op {
        Bilinear::Mul => return Ok(None),
        &Bilinear::MatMul { transpose_lhs, transpose_rhs } => {
            matmul([out, lhs, rhs], transpose_lhs, transpose_rhs)
        }
        Bilinear::Conv(spec) => conv("conv", spec, [lhs, out, rhs])?,
        Bilinear::ConvInputGrad { spec, .. } => conv("conv_input_grad", spec, [out, lhs, rhs])?,
        Bilinear::ConvWeightGrad(spec) => conv("conv_weight_grad", spec, [lhs, rhs, out])?,
        other => return Err(Error::invalid(other.name(), "not known to this engine")),
    };
    if plan.batches > GRID {
        let reason = format!("{} batches or groups; the device takes {GRID}", plan.batches);
        return Err(Error::invalid(op.name(), reason));
    }
    Ok(Some(plan))
}

impl Plan {
    /// The operands' structure as a parameter.
    pub(crate) fn params(&self) -> Arg {
        self.params.clone().done()
    }
}

fn integer(device: &Device, plan: &Plan, tensors: [&CudaTensor; 3], addends: Arg) -> Result<()> {
    let blocks = [plan.cols.div_ceil(TILE), plan.rows.div_ceil(TILE).min(GRID), plan.batches];
    let kernel = format!("{}_int", plan.kernel);
    let args = tensors.map(pointer).into_iter().chain([plan.params(), addends]).collect::<Vec<_>>();
    // SAFETY: `output_shape` has checked that the operands fit the map that the parameters describe.
    unsafe { device.run(Shipped::Products, &kernel, (blocks.map(|b| b as u32), 0), &args) }
}

fn matmul([out, lhs, rhs]: [&Shape; 3], transpose_lhs: bool, transpose_rhs: bool) -> Plan {
    let last = |s: &Shape| *s.dims().last_chunk::<2>().expect("matrices have two axes");
    let ([rows, cols], [x, y]) = (last(out), last(lhs));
    let depth = if transpose_lhs { x } else { y };
    // An operand without batches serves every one.
    let step = |s: &Shape| if s.rank() > 2 { last(s).iter().product::<usize>() as u64 } else { 0 };
    let strides = |s: &Shape, transposed: bool| {
        let width = last(s)[1] as u64;
        if transposed { [1, width] } else { [width, 1] }
    };
    let ([a_row, a_col], [b_row, b_col]) =
        (strides(lhs, transpose_lhs), strides(rhs, transpose_rhs));
    let sizes = [rows, cols, depth, 0].iter().fold(Fields::default(), |f, &d| f.u32(d as u32));
    let params =
        [step(lhs), a_row, a_col, step(rhs), b_row, b_col].into_iter().fold(sizes, Fields::u64);
    let batches = out.dims()[..out.rank() - 2].iter().product();
    Plan { kernel: "matmul", rows, cols, depth, batches, params }
}

/// A convolution or one of its gradients, by the shapes of the forward input, output and weight.
fn conv(kernel: &'static str, spec: &ConvSpec, shapes: [&Shape; 3]) -> Result<Plan> {
    let [[images, c, h, w], [_, o, oh, ow], [_, cg, kh, kw]] =
        shapes.map(|s| <[usize; 4]>::try_from(s.dims()).expect("convolutions have four axes"));
    let (groups, window) = (spec.groups, spec.window);
    let (channels, outputs) = (c / groups, o / groups);
    let (rows, cols, depth) = match kernel {
        "conv" => (outputs, images * oh * ow, cg * kh * kw),
        "conv_input_grad" => (channels, images * h * w, outputs * kh * kw),
        _ => (outputs, cg * kh * kw, images * oh * ow),
    };
    if [rows, cols, depth].into_iter().max() > Some(i32::MAX as usize) {
        return Err(Error::invalid(
            "conv",
            format!("input {:?} is too large for the device", shapes[0]),
        ));
    }
    let [pt, pl, ..] = window.padding;
    let ([sh, sw], [dh, dw]) = (window.stride, window.dilation);
    let numbers = [images, channels, outputs, groups, h, w, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw];
    let params = numbers.iter().fold(Fields::default(), |f, &n| f.u32(n as u32));
    Ok(Plan { kernel, rows, cols, depth, batches: groups, params })
}
