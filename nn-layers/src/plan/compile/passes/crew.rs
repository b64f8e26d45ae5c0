//! Sums over the machines of a party join the product before them: parts are added up before the one truncation.

use crate::Result;
use crate::graph::{CrewOp, Graph, LinearFinish, Op, Users, ValueId, infer};

/// `sum_scattered(linear(x))`, also where only changes of shape lie between the two. True if there was one.
pub(crate) fn fuse_scattered(graph: &mut Graph) -> Result<bool> {
    let mut found = false;
    for i in 0..graph.nodes.len() {
        let Op::Crew { size, op: CrewOp::SumScattered } = graph.nodes[i].op else { continue };
        let users = graph.users();
        let Some(layer) = layer_behind(graph, &users, graph.nodes[i].inputs[0]) else { continue };
        let shape = infer::stretch("linear", graph.shape(layer), size)?;
        let node = &mut graph.nodes[layer.0];
        node.shape = shape;
        if let Op::Linear(l) = &mut node.op {
            l.scattered = Some(size);
        }
        graph.replace(ValueId(i), layer);
        found = true;
    }
    graph.sweep();
    Ok(found)
}

/// The product that this value alone shows, under whatever shape, to which nothing is added: that would count once for each
/// machine.
fn layer_behind(graph: &Graph, users: &Users, from: ValueId) -> Option<ValueId> {
    let mut at = from;
    while users[at.0].len() == 1 {
        let node = &graph.nodes[at.0];
        match &node.op {
            Op::Linear(l) => {
                let bare = l.finish == LinearFinish::Truncate && l.addends().is_empty();
                return (bare && l.scattered.is_none()).then_some(at);
            }
            Op::Reshape(_) => at = node.inputs[0],
            _ => return None,
        }
    }
    None
}
