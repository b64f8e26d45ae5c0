//! Constant factors, such as average pooling's, join the weights of a layer before or after them. The remaining
//! factor is a power of two, which only moves the point. If its user would round the added bits, a product
//! before it rounds to as many fewer.

use std::collections::HashSet;

use super::absorb::scale_linear;
use super::lower::whole;
use super::open_linear;
use super::products::rounding_layer;
use crate::Result;
use crate::graph::{
    Binary, Format, Graph, Linear, LinearFinish, LinearMap, Op, Reduce, Unary, Users, ValueId,
};
use crate::plan::formats::power_of_two;

/// Moves every factor that would cost a truncation.
pub(crate) fn propagate(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let at = ValueId(i);
        let Op::Scale(c) = graph.nodes[i].op else { continue };
        if !c.is_finite() || c == 0.0 || power_of_two(c).is_some_and(|k| k <= 0) {
            continue;
        }
        if let Some(target) = linear_ahead(graph, at, c) {
            // Half-way between powers the rest is closest to 1 in the geometric sense.
            let power = c.abs().log2().round().min(0.0).exp2();
            scale_weight(graph, target, c / power);
            graph.nodes[i].op = Op::Scale(power);
        } else if let Some(target) = linear_behind(graph, graph.nodes[i].inputs[0], c) {
            scale_linear(graph, target, c);
            let x = graph.nodes[i].inputs[0];
            graph.replace(at, x);
        }
    }
    drop_ones(graph);
    round_once(graph);
    graph.sweep();
    Ok(())
}

/// Lets a product of computed values drop the bits of a power of two below 1 together with its own. The pass
/// applies if the multiplied result goes to functions that round their operands, as attention's scores do.
fn round_once(graph: &mut Graph) {
    for i in 0..graph.nodes.len() {
        let Op::Scale(c) = graph.nodes[i].op else { continue };
        let Some(bits) = power_of_two(c).filter(|k| *k < 0).map(i32::unsigned_abs) else {
            continue;
        };
        let users = graph.users();
        if !is_rounded(graph, &users, i) {
            continue;
        }
        let Some((product, moved)) = rounding_layer(graph, Some(&users), graph.nodes[i].inputs[0])
        else {
            continue;
        };
        let node = &mut graph.nodes[product.0];
        let weighs = matches!(node.op, Op::Linear(_));
        if !weighs && node.format == Format::Value && bits + moved <= MOST_COARSER {
            node.format = Format::CoarserValue(bits + moved);
        }
    }
}

/// The most bits that a product may round to fewer: small values keep some.
const MOST_COARSER: u32 = 8;

/// True if a value and its sums and copies go only to functions that round them to the format of values first.
fn is_rounded(graph: &Graph, users: &Users, from: usize) -> bool {
    let mut seen = HashSet::from([from]);
    let mut stack = vec![from];
    while let Some(at) = stack.pop() {
        if users[at].is_empty() {
            return false;
        }
        for &user in &users[at] {
            // A result of the graph has no node.
            let Some(node) = graph.nodes.get(user) else { return false };
            let moves = matches!(
                node.op,
                Op::Reshape(_)
                    | Op::Permute(_)
                    | Op::Slice { .. }
                    | Op::Broadcast(_)
                    | Op::Binary(Binary::Add | Binary::Sub)
            );
            if moves {
                stack.extend(seen.insert(user).then_some(user));
            } else if !node.op.info().rounds_operands || node.format != Format::Value {
                return false;
            }
        }
    }
    true
}

/// Removes factors of 1, except those of integers: they make the integers real numbers, which divide
/// differently.
fn drop_ones(graph: &mut Graph) {
    let whole = whole(graph);
    for i in 0..graph.nodes.len() {
        let x = graph.nodes[i].inputs.first().copied();
        if let Some(x) = x.filter(|x| graph.nodes[i].op == Op::Scale(1.0) && !whole[x.0]) {
            graph.replace(ValueId(i), x);
        }
    }
}

/// Multiplies a linear layer's weight, not its bias.
fn scale_weight(graph: &mut Graph, at: ValueId, c: f64) {
    if c != 1.0 {
        let node = graph.nodes[at.0].clone();
        let constant = graph.constant_of(node.inputs[1]).cloned().expect("weights are constant");
        let scaled = graph.constant(&constant.name, constant.value.map(|v| v * c), constant.secret);
        graph.rewrite(at, node.op, vec![node.inputs[0], scaled]);
        graph.nodes[at.0].inputs.extend(&node.inputs[2..]);
    }
}

/// True if `f(c * x) = c * f(x)` in the first operand.
fn commutes(op: &Op, c: f64) -> bool {
    match op {
        Op::Reshape(_)
        | Op::Permute(_)
        | Op::Slice { .. }
        | Op::Gather { .. }
        | Op::Broadcast(_) => true,
        Op::SumPool(_) | Op::Reduce { kind: Reduce::Sum, .. } => true,
        Op::AvgPool { .. } | Op::Reduce { kind: Reduce::Mean, .. } => true,
        Op::Pad { value, .. } => *value == 0.0,
        Op::Unary(Unary::Relu | Unary::LeakyRelu(_)) | Op::MaxPool(_) => c > 0.0,
        Op::Reduce { kind: Reduce::Max | Reduce::Min, .. } => c > 0.0,
        _ => false,
    }
}

/// The linear layer that is the only user of this value, also through operations that commute with the factor.
fn linear_ahead(graph: &Graph, from: ValueId, c: f64) -> Option<ValueId> {
    let users = graph.users();
    let mut at = from;
    loop {
        let &[next] = &users[at.0] else { return None };
        let node = graph.nodes.get(next)?;
        if let Op::Linear(Linear { map, .. }) = &node.op {
            let weighs = node.inputs[0] == at && !matches!(map, LinearMap::Mul);
            return weighs.then_some(ValueId(next));
        }
        if !commutes(&node.op, c) {
            return None;
        }
        at = ValueId(next);
    }
}

/// The linear layer whose result alone becomes this value.
fn linear_behind(graph: &Graph, from: ValueId, c: f64) -> Option<ValueId> {
    let users = graph.users();
    let mut at = from;
    loop {
        if users[at.0].len() != 1 {
            return None;
        }
        if open_linear(graph, &users, at).is_some() {
            return Some(at);
        }
        let node = &graph.nodes[at.0];
        let relu =
            matches!(&node.op, Op::Linear(l) if l.finish == LinearFinish::Relu && !l.residual);
        if relu && c > 0.0 {
            return Some(at);
        }
        // A product of two secrets takes the factor with its first operand.
        let product = matches!(node.op, Op::MatMul { .. });
        if !product && !commutes(&node.op, c) {
            return None;
        }
        at = node.inputs[0];
    }
}
