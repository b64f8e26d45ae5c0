//! Products of two values that are both computed, as linear layers: they then take a bias, a residual and a
//! format, and share rounds.

use super::lower::whole;
use crate::Result;
use crate::graph::{
    Binary, CrewOp, Format, Graph, Linear, LinearFinish, LinearMap, Node, Op, Reduce, Users,
    ValueId,
};
use crate::plan::formats::power_of_two;

/// Products with a weight that is trained, and products in the backward pass.
pub(crate) fn to_linear(graph: &mut Graph) {
    let trained = !graph.parameters().is_empty();
    if !trained && graph.past.is_none() {
        return;
    }
    // Products of integers have no bits to round.
    let whole = whole(graph);
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        let computed = node.inputs.iter().all(|&x| graph.constant_of(x).is_none());
        if !computed || whole[i] || node.format == Format::Exact {
            continue;
        }
        // Rows of a table at positions are a weight, such as the angles of rotations.
        let weighs = || node.inputs.iter().any(|&x| graph.is_tabled(x));
        if !(trained || node.op == Op::Binary(Binary::Mul) && weighs()) {
            continue;
        }
        let Some((map, swapped)) = map_of(graph, node) else { continue };
        let node = &mut graph.nodes[i];
        node.op = Op::Linear(Linear::new(map));
        if swapped {
            node.inputs.swap(0, 1);
        }
    }
}

/// The map that a product is, and whether its operands are exchanged for it.
fn map_of(graph: &Graph, node: &Node) -> Option<(LinearMap, bool)> {
    let map = match node.op {
        Op::Conv(kernel) => LinearMap::Conv(kernel),
        Op::ConvTranspose { kernel, extra } => LinearMap::ConvTranspose { kernel, extra },
        Op::ConvWeightGrad(kernel) => LinearMap::ConvWeightGrad(kernel),
        Op::MatMul { transpose_lhs, transpose_rhs } => {
            LinearMap::MatMul { transpose_lhs, transpose_rhs }
        }
        Op::Binary(Binary::Mul) if graph.shape(node.inputs[0]) == &node.shape => LinearMap::Mul,
        Op::Binary(Binary::Mul) if graph.shape(node.inputs[1]) == &node.shape => {
            return Some((LinearMap::Mul, true));
        }
        _ => return None,
    };
    Some((map, false))
}

/// `cast(linear(x))`: the layer rounds to that format at once, also where linear maps without communication lie
/// between the two. Other addends after such maps are rounded by themselves.
pub(crate) fn fuse_casts(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        if graph.nodes[i].op != Op::Cast {
            continue;
        }
        let (format, x) = (graph.nodes[i].format, graph.nodes[i].inputs[0]);
        let users = graph.users();
        if let Some((layer, moved)) = rounding_layer(graph, Some(&users), x) {
            if let Some(format) = format.coarser(moved) {
                graph.nodes[layer.0].format = format;
                graph.replace(ValueId(i), x);
            }
            continue;
        }
        let sum = &graph.nodes[x.0];
        if sum.op != Op::Binary(Binary::Add) || users[x.0].len() != 1 {
            continue;
        }
        let [a, b] = [sum.inputs[0], sum.inputs[1]];
        let behind = |v| rounding_layer(graph, Some(&users), v);
        let (found, rest) = match (behind(a), behind(b)) {
            (Some(found), _) => (found, b),
            (None, Some(found)) => (found, a),
            (None, None) => continue,
        };
        if let Some(coarser) = format.coarser(found.1) {
            graph.nodes[found.0.0].format = coarser;
            let name = graph.nodes[i].name.clone();
            let rest_cast = graph.add_as(format, &name, Op::Cast, &[rest])?;
            let inputs = if rest == b { vec![a, rest_cast] } else { vec![rest_cast, b] };
            graph.nodes[x.0].inputs = inputs;
            graph.replace(ValueId(i), x);
        }
    }
    graph.sweep();
    Ok(())
}

/// The product whose rounding may be that of a value. Only linear maps that need no communication, and have no
/// other users, lie between the two. Also by how many bits these move the point.
pub(crate) fn rounding_layer(
    graph: &Graph,
    users: Option<&Users>,
    from: ValueId,
) -> Option<(ValueId, u32)> {
    let (mut at, mut moved) = (from, 0);
    loop {
        if users.is_some_and(|users| users[at.0].len() != 1) {
            return None;
        }
        let node = &graph.nodes[at.0];
        match &node.op {
            Op::Linear(l) if l.finish == LinearFinish::Truncate => return Some((at, moved)),
            Op::Reshape(_)
            | Op::Permute(_)
            | Op::Slice { .. }
            | Op::Crew { op: CrewOp::SumScattered | CrewOp::Stretch, .. }
            | Op::Reduce { kind: Reduce::Sum, .. } => at = node.inputs[0],
            &Op::Scale(c) => {
                moved += power_of_two(c).filter(|k| *k <= 0)?.unsigned_abs();
                at = node.inputs[0];
            }
            Op::Conv(_) | Op::ConvTranspose { .. } | Op::MatMul { .. } => {
                let integer = |x: &ValueId| graph.constant_of(*x).is_some_and(|c| c.value.is_int());
                let other = node.inputs.iter().find(|x| !integer(x))?;
                if !node.inputs.iter().any(integer) {
                    return map_of(graph, node).map(|_| (at, moved));
                }
                at = *other;
            }
            // It rounds nothing.
            _ if node.format == Format::Exact => return None,
            _ => return map_of(graph, node).map(|_| (at, moved)),
        }
    }
}
