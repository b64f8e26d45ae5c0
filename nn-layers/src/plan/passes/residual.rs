//! Sums and ReLUs join the linear layer before them.

use super::{open_linear, replace, sweep, users, value};
use crate::Result;
use crate::graph::{
    Binary, Dim, Format, Graph, Kernel, Linear, LinearFinish, LinearMap, Op, Pool, Unary, ValueId,
};
use crate::host::{elementwise, views};

/// `linear(x) + y`: `y` is added before the truncation.
pub(crate) fn fuse_sums(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        if node.op != Op::Binary(Binary::Add) {
            continue;
        }
        let [x, y] = [node.inputs[0], node.inputs[1]];
        if x == y {
            continue;
        }
        let users = users(graph);
        let open = |v| open_linear(graph, &users, v).is_some();
        if graph.shape(x) != graph.shape(y) {
            let bias = [(x, y), (y, x)].into_iter().find(|&(at, _)| open(at));
            if let Some((at, bias)) = bias.filter(|&(at, bias)| takes_bias(graph, at, bias)) {
                add_bias(graph, at, bias);
                replace(graph, ValueId(i), at);
            }
            continue;
        }
        let dynamic = [x, y].iter().all(|&v| graph.constant_of(v).is_none());
        if !dynamic {
            continue;
        }
        let sum = match (open(x), open(y)) {
            // Sums of gradients may have more fraction bits than either of the products.
            (true, true) if node.format != Format::Value => Some(add_residual(graph, x, y)),
            (true, true) => join_pointwise(graph, x, y)?.or_else(|| {
                let raw = leave_raw(graph, y);
                raw.map(|()| add_residual(graph, x, y))
            }),
            (true, false) => Some(add_residual(graph, x, y)),
            (false, true) => Some(add_residual(graph, y, x)),
            (false, false) => None,
        };
        if let Some(sum) = sum {
            replace(graph, ValueId(i), sum);
        }
    }
    sweep(graph);
    Ok(())
}

/// `relu(linear(x))`.
pub(crate) fn fuse_relu(graph: &mut Graph) {
    for i in 0..graph.nodes.len() {
        if graph.nodes[i].op != Op::Unary(Unary::Relu) {
            continue;
        }
        let x = graph.nodes[i].inputs[0];
        let single = users(graph)[x.0].len() == 1;
        if let Op::Linear(l) = &mut graph.nodes[x.0].op
            && l.finish == LinearFinish::Truncate
            && single
        {
            l.finish = LinearFinish::Relu;
            replace(graph, ValueId(i), x);
        }
    }
    sweep(graph);
}

/// Whether a value that is not a constant can be added to a linear layer as its bias: it is a parameter, or
/// broadcast to the result.
fn takes_bias(graph: &Graph, at: ValueId, bias: ValueId) -> bool {
    let node = &graph.nodes[at.0];
    let free = matches!(&node.op, Op::Linear(l) if !l.bias);
    let shape = graph.shape(bias).broadcast(&node.shape, "bias");
    free && graph.constant_of(bias).is_none() && shape.is_ok_and(|s| s == node.shape)
}

fn add_bias(graph: &mut Graph, at: ValueId, bias: ValueId) {
    let node = &mut graph.nodes[at.0];
    if let Op::Linear(l) = &mut node.op {
        l.bias = true;
    }
    node.inputs.insert(2, bias);
}

/// Adds a residual operand to a linear layer.
fn add_residual(graph: &mut Graph, at: ValueId, residual: ValueId) -> ValueId {
    let node = &mut graph.nodes[at.0];
    if let Op::Linear(l) = &mut node.op {
        l.residual = true;
    }
    node.inputs.push(residual);
    at
}

/// Leaves a layer's result untruncated, if its partner can join it in that format: the two then
/// share one truncation.
fn leave_raw(graph: &mut Graph, at: ValueId) -> Option<()> {
    let node = &mut graph.nodes[at.0];
    let Op::Linear(l) = &mut node.op else { return None };
    l.finish = LinearFinish::Raw;
    Some(())
}

/// Two convolutions with 1x1 kernels whose results are added are one, over the channels of both:
/// the shortcut of a residual block then costs no communication at all.
fn join_pointwise(graph: &mut Graph, x: ValueId, y: ValueId) -> Result<Option<ValueId>> {
    let parts = [graph.nodes[x.0].clone(), graph.nodes[y.0].clone()];
    let mut kernels = vec![];
    for part in &parts {
        match &part.op {
            Op::Linear(Linear { map: LinearMap::Conv(k), .. })
                if k.groups == 1 && k.window.size == [1; 2] && k.window.padding == [0; 4] =>
            {
                kernels.push(*k);
            }
            _ => return Ok(None),
        }
    }
    let (mut inputs, mut weights, mut bias) = (vec![], vec![], None);
    for (part, kernel) in parts.iter().zip(&kernels) {
        let Some(weight) = value(graph, part.inputs[1]).cloned() else { return Ok(None) };
        weights.push(weight);
        if let Some(b) = part.inputs.get(2).and_then(|&b| value(graph, b)) {
            bias = Some(match bias {
                None => b.clone(),
                Some(a) => elementwise::binary(Binary::Add, &a, b)?,
            });
        }
        inputs.push(every_other(graph, part.inputs[0], &part.name, kernel.window.stride)?);
    }
    let name = &parts[0].name;
    let joined = graph.add(&format!("{name}+{}", parts[1].name), Op::Concat(1), &inputs)?;
    let weight = views::concat(&[&weights[0], &weights[1]], 1)?;
    let weight_name =
        graph.constant_of(parts[0].inputs[1]).map_or(name.clone(), |c| c.name.clone());
    let mut operands = vec![joined, graph.weight(&weight_name, weight)];
    let map = LinearMap::Conv(Kernel::new(Pool::new([1; 2], [1; 2])));
    let finish = LinearFinish::Truncate;
    let linear = Linear { map, bias: bias.is_some(), residual: false, finish };
    if let Some(bias) = bias {
        operands.push(graph.weight(&format!("{name}.bias"), bias));
    }
    Ok(Some(graph.add(name, Op::Linear(linear), &operands)?))
}

/// The positions of `[N, C, H, W]` that a 1x1 kernel with a step sees.
fn every_other(graph: &mut Graph, x: ValueId, name: &str, stride: [usize; 2]) -> Result<ValueId> {
    let mut x = x;
    for (axis, step) in [(2, stride[0]), (3, stride[1])] {
        if step > 1 {
            let end = Dim::Fixed(graph.shape(x).dims()[axis]);
            x = graph.add(name, Op::Slice { axis, start: 0, end, step }, &[x])?;
        }
    }
    Ok(x)
}
