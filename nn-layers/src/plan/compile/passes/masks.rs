//! Masks join the linear layer before them: the gradient of a ReLU is truncated and masked in one step.

use crate::Result;
use crate::graph::{Dim, Format, Graph, LinearFinish, Op, ValueId};

/// `mask(linear(x), y)`, also where only changes of shape lie between the two.
pub(crate) fn fuse_masks(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        if graph.nodes[i].op != Op::Mask {
            continue;
        }
        let [value, mask] = [graph.nodes[i].inputs[0], graph.nodes[i].inputs[1]];
        let Some(layer) = layer_behind(graph, value) else { continue };
        // A constant as a mask stays a separate operation.
        if graph.constant_of(mask).is_some() {
            continue;
        }
        let mask = with_shape_of(graph, mask, layer)?;
        let node = &mut graph.nodes[layer.0];
        if let Op::Linear(l) = &mut node.op {
            l.finish = LinearFinish::Mask;
        }
        node.inputs.push(mask);
        graph.replace(ValueId(i), value);
    }
    graph.sweep();
    Ok(())
}

/// The linear layer that this value alone shows, under whatever shape.
fn layer_behind(graph: &Graph, from: ValueId) -> Option<ValueId> {
    let users = graph.users();
    let mut at = from;
    while users[at.0].len() == 1 {
        let node = &graph.nodes[at.0];
        match &node.op {
            Op::Linear(l) if l.finish == LinearFinish::Truncate => return Some(at),
            Op::Reshape(_) => at = node.inputs[0],
            _ => return None,
        }
    }
    None
}

/// The same elements under a layer's shape.
fn with_shape_of(graph: &mut Graph, x: ValueId, layer: ValueId) -> Result<ValueId> {
    let shape = graph.shape(layer).clone();
    if graph.shape(x) == &shape {
        return Ok(x);
    }
    // The operand of a change of shape may have the layer's shape already.
    let node = &graph.nodes[x.0];
    if matches!(node.op, Op::Reshape(_)) && graph.shape(node.inputs[0]) == &shape {
        return Ok(node.inputs[0]);
    }
    let dims = shape.dims().iter().map(|&d| Dim::Fixed(d)).collect();
    let name = graph.nodes[layer.0].name.clone();
    graph.add_as(Format::Value, &name, Op::Reshape(dims), &[x])
}
