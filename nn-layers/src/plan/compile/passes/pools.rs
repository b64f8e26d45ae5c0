//! Pooling where it costs least: inside the convolution before it, or before the ReLU.

use super::open_linear;
use crate::graph::{
    Binary, Dim, Format, Graph, Kernel, Linear, LinearMap, Op, Pool, Unary, ValueId,
};
use crate::{HostTensor, Result};

/// The most local work of a merged convolution, relative to that before, for the outputs it saves.
const WORK_LIMIT: f64 = 1.5;

/// A sum of neighbours of a convolution is a convolution with a larger kernel and step: fewer
/// outputs to multiply, to truncate and to compare.
pub(crate) fn merge_into_convolutions(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::SumPool(pool) = node.op else { continue };
        let users = graph.users();
        let Some((linear, source)) = open_linear(graph, &users, node.inputs[0]) else { continue };
        let LinearMap::Conv(kernel) = linear.map else { continue };
        let Some(merged) = merged_kernel(&kernel, &pool) else { continue };
        let per_output = |k: &Kernel| k.window.taps() as f64;
        let (before, after) = (source.shape.len() as f64, node.shape.len() as f64);
        if per_output(&merged) * after > per_output(&kernel) * before * WORK_LIMIT {
            continue;
        }
        let plain_bias = !linear.bias
            || source.inputs.get(2).is_some_and(|&b| {
                let dims = graph.shape(b).dims();
                dims.iter().rev().take(2).all(|&d| d == 1)
            });
        if !plain_bias {
            continue;
        }
        let (linear, source) = (linear.clone(), source.clone());
        let Some(weight) = graph.constant_value(source.inputs[1]) else { continue };
        let weight = spread_taps(weight, &kernel, &pool, &merged)?;
        let name = graph.constant_of(source.inputs[1]).map_or(String::new(), |c| c.name.clone());
        let mut inputs = vec![source.inputs[0], graph.weight(&name, weight)];
        if linear.bias {
            let bias = graph.constant_value(source.inputs[2]).expect("a bias is constant");
            let bias = bias.map(|b| b * pool.taps() as f64);
            inputs.push(graph.weight(&format!("{}.bias", source.name), bias));
        }
        let op = Op::Linear(Linear { map: LinearMap::Conv(merged), ..linear });
        let id = graph.add(&source.name, op, &inputs)?;
        debug_assert_eq!(graph.shape(id), &node.shape);
        graph.replace(ValueId(i), id);
    }
    graph.sweep();
    Ok(())
}

/// Merges means of neighbours into the convolution before them if its weight is trained. The result is a
/// convolution with a larger kernel and step, whose weight is made of the trained one at each step. All of this
/// is linear, and needs no communication where the number of neighbours is a power of two.
pub(crate) fn merge_averages(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::AvgPool { pool, .. } = node.op else { continue };
        let Some(source) = trained_convolution(graph, node.inputs[0]) else { continue };
        let Some(merged) = merged_kernel(&source.kernel, &pool) else { continue };
        let per_output = |k: &Kernel| k.window.taps() as f64;
        let (before, after) = (graph.shape(node.inputs[0]).len(), node.shape.len());
        let limit = per_output(&source.kernel) * before as f64 * WORK_LIMIT;
        if per_output(&merged) * after as f64 > limit {
            continue;
        }
        let weight = averaged_taps(graph, &source, &pool, &merged)?;
        let conv = graph.add(&source.name, Op::Conv(merged), &[source.x, weight])?;
        let y = match source.bias {
            Some(bias) => graph.add(&source.name, Op::Binary(Binary::Add), &[conv, bias])?,
            None => conv,
        };
        graph.replace(ValueId(i), y);
    }
    graph.sweep();
    Ok(())
}

/// A convolution by a parameter, and the addend of each of its channels.
struct Trained {
    name: String,
    kernel: Kernel,
    x: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
}

/// The convolution by a parameter that a value alone shows.
fn trained_convolution(graph: &Graph, from: ValueId) -> Option<Trained> {
    let users = graph.users();
    let convolution = |at: ValueId| {
        let node = &graph.nodes[at.0];
        let Op::Conv(kernel) = node.op else { return None };
        let [x, weight] = [node.inputs[0], node.inputs[1]];
        let trained = matches!(graph.nodes[weight.0].op, Op::Parameter(_));
        let name = node.name.clone();
        (trained && users[at.0].len() == 1).then_some(Trained {
            name,
            kernel,
            x,
            weight,
            bias: None,
        })
    };
    if let Some(found) = convolution(from) {
        return Some(found);
    }
    let sum = &graph.nodes[from.0];
    if sum.op != Op::Binary(Binary::Add) || users[from.0].len() != 1 {
        return None;
    }
    let found = convolution(sum.inputs[0])?;
    let bias = sum.inputs[1];
    let per_channel = graph.shape(bias).dims().iter().rev().take(2).all(|&d| d == 1);
    per_channel.then_some(Trained { bias: Some(bias), ..found })
}

/// The weight of the merged convolution, from that of the one which is trained.
fn averaged_taps(
    graph: &mut Graph,
    source: &Trained,
    pool: &Pool,
    merged: &Kernel,
) -> Result<ValueId> {
    let Trained { name, kernel, weight, .. } = source;
    let &[o, c, kh, kw] = graph.shape(*weight).dims() else {
        unreachable!("a convolution's weight has four axes")
    };
    let fixed = |dims: [usize; 4]| Op::Reshape(dims.map(Dim::Fixed).to_vec());
    let planes = graph.add(name, fixed([o * c, 1, kh, kw]), &[*weight])?;
    // A transposed convolution by ones puts every tap where each of the neighbours has it.
    let [ph, pw] = pool.size;
    let ones = HostTensor::integers([1, 1, ph, pw], vec![1; ph * pw])?;
    let ones = graph.public(&format!("{name}.ones"), ones);
    let dilation = [0, 1].map(|i| pool.dilation[i] * kernel.window.stride[i]);
    let spread = Kernel::new(Pool { dilation, ..Pool::new(pool.size, [1; 2]) });
    let op = Op::ConvTranspose { kernel: spread, extra: [0; 2] };
    let taps = graph.add(name, op, &[planes, ones])?;
    let [mh, mw] = merged.window.size;
    let taps = graph.add(name, fixed([o, c, mh, mw]), &[taps])?;
    let mean = Op::Scale(1.0 / pool.taps() as f64);
    graph.add_as(Format::Weight, name, mean, &[taps])
}

/// The kernel of a convolution followed by a sum, where that is a convolution.
fn merged_kernel(kernel: &Kernel, pool: &Pool) -> Option<Kernel> {
    let w = &kernel.window;
    if w.dilation != [1; 2] || pool.padding != [0; 4] {
        return None;
    }
    let along = |i: usize| {
        let size = w.size[i] + (pool.size[i] - 1) * pool.dilation[i] * w.stride[i];
        (size, w.stride[i] * pool.stride[i])
    };
    let ((h, sh), (v, sv)) = (along(0), along(1));
    let window = Pool { size: [h, v], stride: [sh, sv], ..*w };
    Some(Kernel { window, ..*kernel })
}

/// Adds a weight to itself at every position that the pooling window sees.
fn spread_taps(
    w: &HostTensor,
    kernel: &Kernel,
    pool: &Pool,
    merged: &Kernel,
) -> Result<HostTensor> {
    let &[o, c, kh, kw] = w.dims() else { unreachable!("a convolution's weight has four axes") };
    let [mh, mw] = merged.window.size;
    let step = |i: usize| pool.dilation[i] * kernel.window.stride[i];
    let values = w.floats();
    let mut out = vec![0.0; o * c * mh * mw];
    for (i, &v) in values.iter().enumerate() {
        let (x, rest) = (i % kw, i / kw);
        let (y, plane) = (rest % kh, rest / kh);
        for py in 0..pool.size[0] {
            for px in 0..pool.size[1] {
                out[(plane * mh + y + py * step(0)) * mw + x + px * step(1)] += v;
            }
        }
    }
    HostTensor::new([o, c, mh, mw], out)
}

/// `max-pool(relu(x))` becomes `relu(max-pool(x))`, also through a concatenation, where pooling
/// leaves at most half of the elements.
pub(crate) fn pool_before_relu(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        if !matches!(node.op, Op::MaxPool(_)) {
            continue;
        }
        let x = node.inputs[0];
        let users = graph.users();
        let smaller = 2 * node.shape.len() <= graph.shape(x).len();
        if !smaller || users[x.0].len() != 1 {
            continue;
        }
        let source = match &graph.nodes[x.0].op {
            Op::Unary(Unary::Relu) => graph.nodes[x.0].inputs[0],
            Op::Concat(axis) => {
                let (axis, parts) = (*axis, graph.nodes[x.0].inputs.clone());
                let relu = |p: &ValueId| {
                    let single = users[p.0].len() == 1;
                    single && matches!(graph.nodes[p.0].op, Op::Unary(Unary::Relu))
                };
                if !parts.iter().all(relu) {
                    continue;
                }
                let inner: Vec<_> = parts.iter().map(|p| graph.nodes[p.0].inputs[0]).collect();
                let name = graph.nodes[x.0].name.clone();
                graph.add(&name, Op::Concat(axis), &inner)?
            }
            _ => continue,
        };
        let relu_name = graph.nodes[x.0].name.clone();
        let pooled = graph.add(&node.name, node.op.clone(), &[source])?;
        graph.rewrite(ValueId(i), Op::Unary(Unary::Relu), vec![pooled]);
        graph.nodes[i].name = relu_name;
    }
    graph.sweep();
    Ok(())
}
