//! Pooling where it costs least: inside the convolution before it, or before the ReLU.

use super::{open_linear, replace, rewrite, sweep, users, value};
use crate::graph::{Graph, Kernel, Linear, LinearMap, Op, Pool, Unary, ValueId};
use crate::{HostTensor, Result};

/// How much more local work a merged convolution may be, for the outputs it saves.
const WORK_LIMIT: f64 = 1.5;

/// A sum of neighbours of a convolution is a convolution with a larger kernel and step: fewer
/// outputs to multiply, to truncate and to compare.
pub(crate) fn merge_into_convolutions(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::SumPool(pool) = node.op else { continue };
        let users = users(graph);
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
        let Some(weight) = value(graph, source.inputs[1]) else { continue };
        let weight = spread_taps(weight, &kernel, &pool, &merged)?;
        let name = graph.constant_of(source.inputs[1]).map_or(String::new(), |c| c.name.clone());
        let mut inputs = vec![source.inputs[0], graph.weight(&name, weight)];
        if linear.bias {
            let bias = value(graph, source.inputs[2]).expect("a bias is constant");
            let bias = bias.map(|b| b * pool.taps() as f64);
            inputs.push(graph.weight(&format!("{}.bias", source.name), bias));
        }
        let op = Op::Linear(Linear { map: LinearMap::Conv(merged), ..linear });
        let id = graph.add(&source.name, op, &inputs)?;
        debug_assert_eq!(graph.shape(id), &node.shape);
        replace(graph, ValueId(i), id);
    }
    sweep(graph);
    Ok(())
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
        let users = users(graph);
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
        rewrite(graph, ValueId(i), Op::Unary(Unary::Relu), vec![pooled]);
        graph.nodes[i].name = relu_name;
    }
    sweep(graph);
    Ok(())
}
