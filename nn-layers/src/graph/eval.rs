//! Networks evaluated in the clear: the figure that a private run is compared with.

pub(crate) mod conv;
pub(crate) mod elementwise;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod reduce;
pub(crate) mod views;

use mpc_core::functions::Centre;
use ring_arith::Shape;

use super::op::{Binary, Linear, LinearFinish, LinearMap, Op, Reduce, Unary};
use super::{Sizes, infer};
use crate::{Error, HostTensor, Result};

/// A node by reference.
pub(crate) struct NodeView<'a> {
    pub name: &'a str,
    pub op: &'a Op,
    pub inputs: Vec<usize>,
}

/// Evaluates nodes in order, dropping each value after its last use.
pub(crate) fn run(
    nodes: &[NodeView<'_>],
    constants: &[HostTensor],
    inputs: &[HostTensor],
    outputs: &[usize],
    sizes: Sizes,
) -> Result<Vec<HostTensor>> {
    run_each(nodes, constants, inputs, outputs, |at, xs| {
        evaluate(nodes[at].op, xs, sizes).map_err(|e| e.at(nodes[at].name))
    })
}

/// The same, where `each` evaluates the node at a place for its operands.
pub(crate) fn run_each(
    nodes: &[NodeView<'_>],
    constants: &[HostTensor],
    inputs: &[HostTensor],
    outputs: &[usize],
    mut each: impl FnMut(usize, &[&HostTensor]) -> Result<HostTensor>,
) -> Result<Vec<HostTensor>> {
    let mut last = vec![0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&x| last[x] = i);
    }
    outputs.iter().for_each(|&x| last[x] = usize::MAX);
    let mut values: Vec<Option<HostTensor>> = vec![None; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let value = match *node.op {
            Op::Input(k) => inputs.get(k).cloned().ok_or_else(|| Error::Argument {
                what: "input",
                name: node.name.to_owned(),
                reason: "is missing".to_owned(),
            })?,
            Op::Constant(k) | Op::Parameter(k) => constants[k].clone(),
            _ => {
                let xs: Option<Vec<_>> = node.inputs.iter().map(|&x| values[x].as_ref()).collect();
                let xs = xs.ok_or_else(|| Error::plan("a node is used before it is computed"))?;
                each(i, &xs)?
            }
        };
        values[i] = Some(value);
        for &x in &node.inputs {
            if last[x] == i {
                values[x] = None;
            }
        }
    }
    let take = |&x: &usize| values[x].clone();
    outputs
        .iter()
        .map(take)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::plan("an output is missing"))
}

/// The error of an operation that one machine cannot do.
fn of_several_machines(op: &Op) -> Error {
    let reason = "adds up what several machines of a party have: take the plan of one machine to compute in the clear";
    Error::invalid(op.name(), reason)
}

/// One operation.
pub(crate) fn evaluate(op: &Op, xs: &[&HostTensor], sizes: impl Into<Sizes>) -> Result<HostTensor> {
    let sizes = sizes.into();
    let shapes: Vec<&Shape> = xs.iter().map(|x| x.shape()).collect();
    let shape = infer::output_shape(op, &shapes, sizes)?;
    if let &Op::Positions { from, to } = op {
        let [from, to] = infer::between(op.name(), [from, to], sizes)?;
        return HostTensor::integers([to - from], (from as i64..to as i64).collect());
    }
    let x = xs[0];
    match op {
        Op::Input(_) | Op::Constant(_) | Op::Parameter(_) | Op::Positions { .. } => {
            Err(Error::plan("an input has no operands"))
        }
        Op::Conv(k) => conv::conv(x, xs[1], &k.spec()),
        Op::ConvTranspose { kernel, .. } => {
            conv::conv_transpose(x, xs[1], &kernel.spec(), [shape.dims()[2], shape.dims()[3]])
        }
        Op::ConvWeightGrad(k) => conv::conv_weight_grad(x, xs[1], &k.spec()),
        Op::MatMul { transpose_lhs, transpose_rhs } => {
            matmul::matmul(x, xs[1], *transpose_lhs, *transpose_rhs)
        }
        Op::Linear(l) if l.scattered.is_some() => Err(of_several_machines(op)),
        Op::Crew { .. } => Err(of_several_machines(op)),
        Op::Linear(l) => linear(l, xs, &shape),
        Op::Unary(f) => Ok(elementwise::unary(*f, x)),
        Op::Binary(f) => elementwise::binary(*f, x, xs[1]),
        Op::Mask => Ok(elementwise::mask(x, xs[1])),
        Op::Where => elementwise::select(x, xs[1], xs[2]),
        Op::Scale(c) => Ok(x.map(|v| v * c)),
        Op::ScaleBy(_) => elementwise::binary(Binary::Mul, x, xs[1]),
        Op::Cast | Op::Confine(_) | Op::Dropout(_) => Ok(x.clone()),
        Op::ClipFactor { pairs } => clip_factor(xs, *pairs),
        Op::Softmax { axis, log } => reduce::along(x, *axis, |l| reduce::softmax(l, *log)),
        &Op::Normalize { axis, centre, epsilon } => normalize(x, axis, centre, epsilon),
        Op::BatchNorm(layer) => norm::evaluate(layer, xs),
        Op::Lrn { size, alpha, beta, bias } => lrn(x, *size, *alpha, *beta, *bias),
        Op::MaxPool(p) => conv::pool(x, &p.window(), conv::Pool::Max),
        Op::MaxPoolGrad(p) => conv::max_pool_grad(x, xs[1], &p.window()),
        Op::SumPool(p) => conv::pool(x, &p.window(), conv::Pool::Sum),
        Op::AvgPool { pool, count_border: true } => {
            let taps = pool.taps() as f64;
            Ok(conv::pool(x, &pool.window(), conv::Pool::Sum)?.map(|v| v / taps))
        }
        Op::AvgPool { pool, count_border: false } => {
            conv::pool(x, &pool.window(), conv::Pool::MeanInside)
        }
        Op::Reduce { kind, axes, keep } => {
            let count: usize = axes.iter().map(|&a| x.dims()[a]).product();
            reduce::reduce(x, axes, *keep, |g| reduce_group(*kind, g, count))
        }
        Op::Dot(axes) => {
            let products = elementwise::binary(Binary::Mul, x, xs[1])?;
            reduce::reduce(&products, axes, true, |g| g.iter().sum())
        }
        Op::ArgMax { axis, keep, min } => {
            let out = reduce::reduce(x, &[*axis], *keep, |g| position(g, *min))?;
            Ok(elementwise::to_int(&out))
        }
        Op::Draw => {
            let last = x.shape().rank().saturating_sub(1);
            let out = reduce::reduce(x, &[last], false, |g| position(g, false))?;
            Ok(elementwise::to_int(&out))
        }
        Op::Lookup => {
            let rows = x.dims()[0];
            let at = xs[1].floats();
            if let Some(i) = at.iter().find(|&&i| !(0.0..rows as f64).contains(&i)) {
                return Err(Error::invalid("lookup", format!("{i} is not one of {rows} rows")));
            }
            let at = at.iter().map(|&i| i as usize).collect::<Vec<_>>();
            views::gather(x, 0, &at)?.reshape(shape.dims())
        }
        Op::OneHot(count) => {
            let at = x.floats();
            let hot = at.iter().flat_map(|&at| (0..*count).map(move |k| i64::from(at == k as f64)));
            HostTensor::integers(shape.dims(), hot.collect())
        }
        Op::Reshape(_) => x.reshape(shape.dims()),
        Op::Permute(axes) => views::permute(x, axes),
        Op::Slice { axis, start, end, step } => {
            let end = infer::resolve(*end, sizes).expect("checked with the shape");
            views::slice(x, *axis, *start, end, *step)
        }
        &Op::Window { axis, start, end } => {
            let [start, end] = infer::between(op.name(), [start, end], sizes)?;
            views::slice(x, axis, start, end, 1)
        }
        Op::Gather { axis, indices, .. } => views::gather(x, *axis, indices)?.reshape(shape.dims()),
        Op::Pad { before, after, value } => views::pad(x, before, after, *value),
        Op::Broadcast(_) => views::broadcast(x, &shape),
        Op::Concat(axis) => views::concat(xs, *axis),
    }
}

fn linear(l: &Linear, xs: &[&HostTensor], shape: &Shape) -> Result<HostTensor> {
    let mut y = mapped(&l.map, [xs[0], xs[1]], shape)?;
    for (map, [value, weight]) in l.maps().skip(1) {
        let other = mapped(map, [xs[value], xs[weight]], shape)?;
        y = elementwise::binary(Binary::Add, &y, &other)?;
    }
    for addend in &xs[l.addends()] {
        y = elementwise::binary(Binary::Add, &y, addend)?;
    }
    Ok(match l.finish {
        LinearFinish::Truncate => y,
        LinearFinish::Relu => elementwise::unary(Unary::Relu, &y),
        LinearFinish::Mask => elementwise::mask(&y, xs[l.operands() - 1]),
    })
}

/// One map's result.
fn mapped(map: &LinearMap, [x, weight]: [&HostTensor; 2], shape: &Shape) -> Result<HostTensor> {
    match map {
        LinearMap::Conv(k) => conv::conv(x, weight, &k.spec()),
        LinearMap::ConvTranspose { kernel, .. } => {
            let size = [shape.dims()[2], shape.dims()[3]];
            conv::conv_transpose(x, weight, &kernel.spec(), size)
        }
        LinearMap::MatMul { transpose_lhs, transpose_rhs } => {
            matmul::matmul(x, weight, *transpose_lhs, *transpose_rhs)
        }
        LinearMap::ConvWeightGrad(k) => conv::conv_weight_grad(x, weight, &k.spec()),
        LinearMap::Mul => elementwise::binary(Binary::Mul, x, weight),
    }
}

/// `1 / max(1, norm)` for each unit.
fn clip_factor(xs: &[&HostTensor], pairs: usize) -> Result<HostTensor> {
    let units = xs[0].dims()[0];
    let squares = |x: &&HostTensor| {
        let len = x.len() / units.max(1);
        let rows = x.floats();
        (0..units)
            .map(|i| rows[i * len..(i + 1) * len].iter().map(|v| v * v).sum::<f64>())
            .collect::<Vec<_>>()
    };
    let squares: Vec<_> = xs.iter().map(squares).collect();
    let (of_pairs, others) = squares.split_at(2 * pairs);
    let factor = |i: usize| {
        let pairs = of_pairs.chunks(2).map(|pair| pair[0][i] * pair[1][i]);
        let norm = (pairs.sum::<f64>() + others.iter().map(|x| x[i]).sum::<f64>()).sqrt();
        1.0 / norm.max(1.0)
    };
    HostTensor::new([units], (0..units).map(factor).collect())
}

fn normalize(x: &HostTensor, axis: usize, centre: Centre, epsilon: f64) -> Result<HostTensor> {
    let group: usize = x.dims()[axis..].iter().product();
    let mut values = x.floats().into_owned();
    for line in values.chunks_mut(group.max(1)) {
        let n = line.len() as f64;
        let mean = match centre {
            Centre::Mean => line.iter().sum::<f64>() / n,
            Centre::Zero => 0.0,
        };
        let variance = line.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let factor = 1.0 / (variance + epsilon).sqrt();
        line.iter_mut().for_each(|v| *v = (*v - mean) * factor);
    }
    HostTensor::new(x.dims(), values)
}

fn lrn(x: &HostTensor, size: usize, alpha: f64, beta: f64, bias: f64) -> Result<HostTensor> {
    let channels = x.dims()[1];
    let inner: usize = x.dims()[2..].iter().product();
    let values = x.floats();
    let mut out = values.to_vec();
    for (i, y) in out.iter_mut().enumerate() {
        let c = i / inner % channels;
        let first = c.saturating_sub((size - 1) / 2);
        let last = (c + size / 2).min(channels - 1);
        let at = |k: usize| values[i + k * inner - c * inner];
        let squares: f64 = (first..=last).map(|k| at(k) * at(k)).sum();
        *y /= (bias + alpha / size as f64 * squares).powf(beta);
    }
    HostTensor::new(x.dims(), out)
}

fn reduce_group(kind: Reduce, group: &[f64], count: usize) -> f64 {
    match kind {
        Reduce::Sum => group.iter().sum(),
        Reduce::Mean => group.iter().sum::<f64>() / count as f64,
        Reduce::Max => group.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Reduce::Min => group.iter().copied().fold(f64::INFINITY, f64::min),
        Reduce::SumSquare => group.iter().map(|v| v * v).sum(),
        Reduce::L2 => group.iter().map(|v| v * v).sum::<f64>().sqrt(),
        Reduce::L1 => group.iter().map(|v| v.abs()).sum(),
    }
}

fn position(group: &[f64], min: bool) -> f64 {
    let better = |a: f64, b: f64| if min { a < b } else { a > b };
    let mut best = 0;
    for (i, &v) in group.iter().enumerate() {
        if better(v, group[best]) {
            best = i;
        }
    }
    best as f64
}

/// Checks that inputs have the shapes they should.
pub(crate) fn check_input(name: &str, x: &HostTensor, shape: &Shape) -> Result<()> {
    if x.shape() == shape {
        return x.check_finite();
    }
    let reason = format!("has shape {:?}, the model takes {shape:?}", x.shape());
    Err(Error::Argument { what: "input", name: name.to_owned(), reason })
}
