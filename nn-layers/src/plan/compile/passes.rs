//! Rewriting a graph before it is shared. The passes compute on numbers in the clear; a weight that is trained
//! is a value like others.

mod absorb;
mod balance;
mod channels;
mod convs;
mod crew;
mod formats;
pub(crate) mod lower;
mod masks;
pub(crate) mod norms;
pub(crate) mod pools;
pub(crate) mod products;
mod recognise;
mod residual;
mod rms_norm;
mod scales;

use crate::Result;
use crate::graph::{Graph, Linear, LinearFinish, Node, Op, Users, ValueId};

/// Applies all passes, each once its predecessors have nothing left to do.
pub(crate) fn optimise(graph: &mut Graph) -> Result<()> {
    norms::lower(graph)?;
    lower::lower(graph)?;
    graph.sweep();
    balance::even_out(graph)?;
    absorb::absorb(graph)?;
    pools::merge_into_convolutions(graph)?;
    scales::propagate(graph)?;
    absorb::absorb(graph)?;
    channels::balance(graph)?;
    pools::pool_before_relu(graph)?;
    products::to_linear(graph);
    residual::fuse_sums(graph, |_| true)?;
    if crew::fuse_scattered(graph)? {
        // The others stay as they are in the plan of one machine.
        residual::fuse_sums(graph, |layer| layer.scattered.is_some())?;
    }
    residual::fuse_relu(graph);
    formats::round_weights(graph)?;
    convs::crop_kernels(graph)?;
    convs::full_kernels_to_products(graph)?;
    products::fuse_casts(graph)?;
    masks::fuse_masks(graph)
}

/// Finds functions again that were written out, and applies all passes: for a graph that is not trained.
pub(crate) fn optimise_inference(graph: &mut Graph) -> Result<()> {
    recognise::recognise(graph)?;
    // Added nodes come after their users.
    graph.sweep();
    optimise(graph)
}

/// The linear layer at a node, if its result is used once and can still be changed: it only truncates, without
/// a residual or further maps.
pub(crate) fn open_linear<'a>(
    graph: &'a Graph,
    users: &Users,
    id: ValueId,
) -> Option<(&'a Linear, &'a Node)> {
    let node = &graph.nodes[id.0];
    match &node.op {
        Op::Linear(l) => {
            let open = l.finish == LinearFinish::Truncate && !l.residual && l.more.is_empty();
            (open && users[id.0].len() == 1).then_some((l, node))
        }
        _ => None,
    }
}
