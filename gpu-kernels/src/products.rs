//! Bilinear maps on the device.

use ring_arith::{
    Addend, AddendSource, Bilinear, ConvSpec, EngineTensor, Error, Generator, Result, Shape,
    Source, Stream, View,
    trace::{Binary, Node, Value},
};

use crate::{
    CudaTensor, Method,
    chooser::{self, Chosen},
    cublas::Blas,
    device::{Device, Fields, Shipped, pointer},
    driver::Arg,
    floats,
    launch::{self, Job},
    limbs, moves, streams,
};

/// Rows and columns of the result that a block of the integer kernels computes.
pub(crate) const TILE: usize = 64;
/// Largest grid along y and z.
const GRID: usize = 65_535;
/// Tensors that a kernel adds to its result.
const ADDENDS: usize = 4;
/// Masks that a kernel makes and adds to its result.
const MASKS: usize = 2;

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
    (method, blas): (Method, Option<&Blas>),
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
    let addends = &whole(device, addends, &shape)?[..];
    let out = device.empty(shape.clone())?;
    if shape.len() == 0 {
        return Ok(out);
    }
    if *op == Bilinear::Mul {
        elementwise(device, &out, terms, addends)?;
        return Ok(out);
    }
    let plans = terms.iter().map(|(l, r)| plan(op, [&shape, l.shape(), r.shape()]));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let (added, rest) = Added::new(device, addends, &shape)?;
    match chooser::choose(device, (method, blas), &plans)? {
        Chosen::Limbs(form) => limbs::product(device, form, &out, terms, &plans, &added)?,
        Chosen::Floats(blas) => floats::product(device, blas, &out, terms, &plans, &added)?,
        Chosen::Integer => {
            for (i, (plan, (l, r))) in plans.iter().zip(terms).enumerate() {
                integer(device, plan, [&out, l, r], added.argument(i, &out))?;
            }
        }
    }
    for (words, negate) in &rest {
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

/// Addends word for word: tensors are repeated where the result has more words.
fn whole<'a>(
    device: &Device,
    addends: &[Addend<'a, CudaTensor>],
    shape: &Shape,
) -> Result<Vec<Whole<'a>>> {
    let whole = |addend: &Addend<'a, CudaTensor>| {
        let words = match addend.source {
            AddendSource::Stream { stream, first } => {
                streams::check(first, shape.len())?;
                Words::Stream { stream, first }
            }
            AddendSource::Tensor(t) if t.shape() == shape => Words::Tensor(t.clone()),
            AddendSource::Tensor(t) => {
                Words::Tensor(moves::view(device, t, &View::Broadcast(shape.clone()))?)
            }
        };
        Ok(Whole { words, negate: addend.negate })
    };
    addends.iter().map(whole).collect()
}

/// An addend as long as the result.
struct Whole<'a> {
    words: Words<'a>,
    negate: bool,
}

enum Words<'a> {
    Tensor(CudaTensor),
    Stream { stream: &'a Stream, first: u64 },
}

/// The addends of a product's last step.
pub(crate) struct Added<'a> {
    tensors: Vec<(CudaTensor, bool)>,
    /// Streams made in registers, with the word that meets the result's first, and the sign.
    masks: Vec<(&'a Stream, u64, bool)>,
}

impl<'a> Added<'a> {
    /// Also returns the tensors beyond the number that a kernel takes.
    #[allow(clippy::type_complexity)] // a pair, named here and nowhere else
    fn new(
        device: &Device,
        addends: &[Whole<'a>],
        shape: &Shape,
    ) -> Result<(Self, Vec<(CudaTensor, bool)>)> {
        let mut added = Self { tensors: Vec::new(), masks: Vec::new() };
        for addend in addends {
            match addend.words {
                Words::Stream { stream, first }
                    if rounds(stream).is_some() && added.masks.len() < MASKS =>
                {
                    added.masks.push((stream, first, addend.negate));
                }
                Words::Stream { stream, first } => {
                    let words = streams::fill(device, stream, first, shape.clone())?;
                    added.tensors.push((words, addend.negate));
                }
                Words::Tensor(ref t) => added.tensors.push((t.clone(), addend.negate)),
            }
        }
        let rest = added.tensors.split_off(added.tensors.len().min(ADDENDS));
        Ok((added, rest))
    }

    /// The addends of the `i`-th launch into a result, as a kernel's structure: all of these for the
    /// first launch, then the words so far.
    pub(crate) fn argument(&self, i: usize, out: &CudaTensor) -> Arg {
        let so_far = [(out.clone(), false)];
        let (added, masks) =
            if i == 0 { (&self.tensors[..], &self.masks[..]) } else { (&so_far[..], &[][..]) };
        let negate = added.iter().enumerate().fold(0, |mask, (i, a)| mask | u32::from(a.1) << i);
        let addresses: Vec<u64> = added.iter().map(|a| a.0.address()).collect();
        let mut fields = (0..ADDENDS)
            .fold(Fields::default(), |f, i| f.u64(addresses.get(i).copied().unwrap_or(0)))
            .u32(added.len() as u32)
            .u32(negate)
            .u32(masks.len() as u32)
            .u32(0);
        for &(stream, first, negate) in masks {
            fields = streams::key_words(stream).into_iter().fold(fields, Fields::u32);
            fields = fields.u64(stream.nonce()).u64(first);
            fields = fields.u32(rounds(stream).unwrap_or(0)).u32(u32::from(negate));
        }
        fields.done_as(ADDED)
    }
}

/// Bytes of the `Addends` of `operands.cuh`.
const ADDED: usize = ADDENDS * 8 + 16 + MASKS * 56;

/// The rounds of a stream that kernels make themselves.
fn rounds(stream: &Stream) -> Option<u32> {
    match stream.key().generator() {
        Generator::ChaCha12 => Some(12),
        Generator::ChaCha20 => Some(20),
        _ => None,
    }
}

/// Sums of products word by word, with everything that is added, as one generated kernel.
fn elementwise(
    device: &Device,
    out: &CudaTensor,
    terms: &[(&CudaTensor, &CudaTensor)],
    addends: &[Whole<'_>],
) -> Result<()> {
    let n = out.len();
    let (mut nodes, mut sources) = (Vec::new(), Vec::new());
    let push = |nodes: &mut Vec<Node>, node| {
        nodes.push(node);
        Value(nodes.len() as u32 - 1)
    };
    let mut total = None;
    for (x, y) in terms {
        let [x, y] = [x, y].map(|t| {
            sources.push(Source::rows_of(*t, n));
            push(&mut nodes, Node::Input(sources.len() as u32 - 1))
        });
        let product = push(&mut nodes, Node::Binary(Binary::Mul, x, y));
        total = Some(match total {
            Some(sum) => push(&mut nodes, Node::Binary(Binary::Add, sum, product)),
            None => product,
        });
    }
    let Some(mut total) = total else {
        return Err(Error::invalid("mul", "there are no operands"));
    };
    for addend in addends {
        sources.push(match &addend.words {
            Words::Tensor(t) => Source::rows_of(t, n),
            &Words::Stream { stream, first } => {
                Source::Stream { stream, offset: first, row_stride: 0 }
            }
        });
        let value = push(&mut nodes, Node::Input(sources.len() as u32 - 1));
        let sign = if addend.negate { Binary::Sub } else { Binary::Add };
        total = push(&mut nodes, Node::Binary(sign, total, value));
    }
    let targets = vec![(out.address(), n)];
    let job =
        Job { name: "mul", nodes, results: vec![total], rows: 1, cols: n, params: &[], targets };
    launch::run(device, job, &sources)
}

/// The kernels' plan of a map other than the elementwise product.
fn plan(op: &Bilinear, [out, lhs, rhs]: [&Shape; 3]) -> Result<Plan> {
    let plan = match op {
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
    Ok(plan)
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
