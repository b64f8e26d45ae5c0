//! Weights that are trained have more fraction bits than values: where one is added to a value or becomes one, it is
//! rounded.

use crate::Result;
use crate::graph::{Binary, Format, Graph, Op, ValueId};

/// Rounds weights to the format of values where an operation would hand theirs on to a value. Sums that are part of
/// a linear layer are rounded there, and products of weights alone keep their bits.
pub(crate) fn round_weights(graph: &mut Graph) -> Result<()> {
    if graph.parameters().is_empty() {
        return Ok(());
    }
    let given = of_inputs(graph);
    for i in 0..given.len() {
        let node = graph.nodes[i].clone();
        if !given[i] || node.format != Format::Value {
            continue;
        }
        if node.op == Op::Lookup && is_weight(graph, node.inputs[0], &given) {
            // There are fewer rows that are looked up than the table has.
            let raw = graph.push(&node.name, Op::Lookup, node.inputs, node.shape);
            graph.nodes[i].op = Op::Cast;
            graph.nodes[i].inputs = vec![raw];
        } else if hands_on_formats(&node.op) {
            for (at, &x) in node.inputs.iter().enumerate() {
                if is_weight(graph, x, &given) {
                    graph.nodes[i].inputs[at] = rounded(graph, x)?;
                }
            }
        }
    }
    graph.sweep();
    Ok(())
}

/// Nodes that depend on an input.
fn of_inputs(graph: &Graph) -> Vec<bool> {
    let mut given: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let takes = node.inputs.iter().any(|x| given[x.0]);
        given.push(takes || matches!(node.op, Op::Input(_)));
    }
    given
}

/// Tests that a value is a weight that stays secret in the plan, or made of such weights alone.
fn is_weight(graph: &Graph, id: ValueId, given: &[bool]) -> bool {
    let computed = |x: ValueId| graph.constant_of(x).is_none();
    let node = &graph.nodes[id.0];
    let integers = graph.start_of(id).is_some_and(|constant| constant.value.is_int());
    let known = matches!(node.op, Op::Broadcast(_)) && !computed(node.inputs[0]);
    given.get(id.0) == Some(&false) && computed(id) && !integers && !known
}

/// Tests that the result has the fraction bits of the operands, whatever they are.
fn hands_on_formats(op: &Op) -> bool {
    match op {
        Op::Binary(f) => matches!(f, Binary::Add | Binary::Sub | Binary::Max | Binary::Min),
        Op::Concat(_) | Op::Where => true,
        _ => false,
    }
}

/// A weight in the format of values, rounded before it is broadcast.
fn rounded(graph: &mut Graph, x: ValueId) -> Result<ValueId> {
    let node = graph.nodes[x.0].clone();
    if matches!(node.op, Op::Broadcast(_)) && graph.users()[x.0].len() == 1 {
        graph.nodes[x.0].inputs[0] = rounded(graph, node.inputs[0])?;
        return Ok(x);
    }
    graph.add(&node.name, Op::Cast, &[x])
}
