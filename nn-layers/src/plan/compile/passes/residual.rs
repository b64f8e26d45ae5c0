//! Sums and ReLUs join the linear layer before them.

use super::open_linear;
use crate::Result;
use crate::graph::eval::elementwise;
use crate::graph::{Binary, Format, Graph, Linear, LinearFinish, Node, Op, Unary, ValueId};

/// `linear(x) + y`: `y` is added before the truncation. For layers that `takes` accepts.
pub(crate) fn fuse_sums(graph: &mut Graph, takes: impl Fn(&Linear) -> bool) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        if node.op != Op::Binary(Binary::Add) {
            continue;
        }
        let [x, y] = [node.inputs[0], node.inputs[1]];
        if x == y {
            continue;
        }
        let users = graph.users();
        let open = |v| {
            let found = open_linear(graph, &users, v).filter(|(l, _)| takes(l));
            found.map(|(l, node)| (l.clone(), node.clone()))
        };
        if graph.shape(x) != graph.shape(y) {
            let bias = [(x, y), (y, x)].into_iter().find(|&(at, _)| open(at).is_some());
            if let Some((at, bias)) = bias.filter(|&(at, bias)| takes_bias(graph, at, bias)) {
                add_bias(graph, at, bias);
                graph.replace(ValueId(i), at);
            }
            continue;
        }
        let dynamic = [x, y].iter().all(|&v| graph.constant_of(v).is_none());
        if !dynamic {
            continue;
        }
        let sum = match (open(x), open(y)) {
            // Sums of gradients may have more fraction bits than either of the products.
            (Some(linear), Some(more)) => {
                Some(if joins([&linear.0, &more.0]) && alike([&node, &linear.1, &more.1]) {
                    add_map(graph, x, [linear, more])?
                } else {
                    add_residual(graph, x, y)
                })
            }
            (Some(_), None) => Some(add_residual(graph, x, y)),
            (None, Some(_)) => Some(add_residual(graph, y, x)),
            (None, None) => None,
        };
        if let Some(sum) = sum {
            graph.replace(ValueId(i), sum);
        }
    }
    graph.sweep();
    Ok(())
}

/// True if two layers can be one: neither is summed over machines, where the other is not.
fn joins(layers: [&Linear; 2]) -> bool {
    layers.iter().all(|layer| layer.scattered.is_none())
}

/// True if a sum rounds as its two terms do.
fn alike([sum, x, y]: [&Node; 3]) -> bool {
    sum.format == x.format && x.format == y.format && sum.format != Format::Exact
}

/// `relu(linear(x))`.
pub(crate) fn fuse_relu(graph: &mut Graph) {
    for i in 0..graph.nodes.len() {
        if graph.nodes[i].op != Op::Unary(Unary::Relu) {
            continue;
        }
        let x = graph.nodes[i].inputs[0];
        let single = graph.users()[x.0].len() == 1;
        if let Op::Linear(l) = &mut graph.nodes[x.0].op
            && l.finish == LinearFinish::Truncate
            && single
        {
            l.finish = LinearFinish::Relu;
            graph.replace(ValueId(i), x);
        }
    }
    graph.sweep();
}

/// True if a value that is not a constant can be added to a linear layer as its bias: it is a parameter, or
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

/// Adds another linear layer's map to the one at a node: the sum is truncated once, and only the sum is
/// sent.
fn add_map(graph: &mut Graph, at: ValueId, layers: [(Linear, Node); 2]) -> Result<ValueId> {
    let biases = layers.each_ref().map(|(linear, node)| linear.bias.then(|| node.inputs[2]));
    let [(mut linear, node), (more, other)] = layers;
    let mut inputs = node.inputs[..2].to_vec();
    match biases {
        [Some(a), Some(b)] => inputs.push(sum_of_biases(graph, &node.name, [a, b])?),
        [one, other] => inputs.extend(one.or(other)),
    }
    linear.bias = inputs.len() == 3;
    inputs.extend(&other.inputs[..2]);
    linear.more.push(more.map);
    graph.rewrite(at, Op::Linear(linear), inputs);
    Ok(at)
}

/// One bias for two.
fn sum_of_biases(graph: &mut Graph, name: &str, [a, b]: [ValueId; 2]) -> Result<ValueId> {
    if let (Some(a), Some(b)) = (graph.constant_value(a), graph.constant_value(b)) {
        let sum = elementwise::binary(Binary::Add, a, b)?;
        return Ok(graph.weight(&format!("{name}.bias"), sum));
    }
    graph.add(&format!("{name}.bias"), Op::Binary(Binary::Add), &[a, b])
}
