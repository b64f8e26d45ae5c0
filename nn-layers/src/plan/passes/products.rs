//! Products of two values that are both computed, as linear layers: they then take a bias, a residual and a
//! format, and share rounds.

use super::{replace, users};
use crate::graph::{Binary, Format, Graph, Linear, LinearFinish, LinearMap, Node, Op, ValueId};

/// Products with a weight that is trained, and products on the way back.
pub(crate) fn to_linear(graph: &mut Graph) {
    if graph.parameters().is_empty() {
        return;
    }
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        let computed = node.inputs.iter().all(|&x| graph.constant_of(x).is_none());
        if !computed || node.format == Format::Exact {
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

/// `cast(linear(x))`: the layer rounds to that format at once.
pub(crate) fn fuse_casts(graph: &mut Graph) {
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        if node.op != Op::Cast {
            continue;
        }
        let (format, x) = (node.format, node.inputs[0]);
        let single = users(graph)[x.0].len() == 1;
        let truncates =
            matches!(&graph.nodes[x.0].op, Op::Linear(l) if l.finish == LinearFinish::Truncate);
        if single && truncates {
            graph.nodes[x.0].format = format;
            replace(graph, ValueId(i), x);
        }
    }
}
