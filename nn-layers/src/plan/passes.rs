//! Rewriting a graph before it is shared. The passes compute on numbers in the clear; a weight that is trained
//! is a value like others.

mod absorb;
mod convs;
mod even;
mod formats;
mod lengths;
pub(crate) mod lower;
mod masks;
pub(crate) mod norms;
pub(crate) mod pools;
pub(crate) mod products;
mod recognise;
mod residual;
mod scales;

use std::ops::Index;

use crate::graph::{Graph, Linear, LinearFinish, Node, Op, ValueId};
use crate::{HostTensor, Result};

/// Applies all passes, each once its predecessors have nothing left to do.
pub(crate) fn optimise(graph: &mut Graph) -> Result<()> {
    norms::lower(graph)?;
    lower::lower(graph)?;
    sweep(graph);
    even::even_out(graph)?;
    absorb::absorb(graph)?;
    pools::merge_into_convolutions(graph)?;
    scales::propagate(graph)?;
    absorb::absorb(graph)?;
    pools::pool_before_relu(graph)?;
    products::to_linear(graph);
    residual::fuse_sums(graph)?;
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
    sweep(graph);
    optimise(graph)
}

/// The nodes that use each node, one entry for each operand.
pub(crate) struct Users {
    /// The index in `all` at which the users of each node begin; one entry more at the end.
    starts: Vec<usize>,
    all: Vec<usize>,
}

impl Index<usize> for Users {
    type Output = [usize];

    fn index(&self, node: usize) -> &[usize] {
        &self.all[self.starts[node]..self.starts[node + 1]]
    }
}

/// The nodes that use each node; results of the graph count as users of index `usize::MAX`. Passes ask again
/// after each change, so this is two lists, not one for each node.
pub(crate) fn users(graph: &Graph) -> Users {
    let uses = || {
        let nodes = graph.nodes.iter().enumerate();
        let inside = nodes.flat_map(|(i, node)| node.inputs.iter().map(move |x| (x.0, i)));
        inside.chain(graph.outputs.iter().map(|(_, x)| (x.0, usize::MAX)))
    };
    let mut starts = vec![0; graph.nodes.len() + 1];
    uses().for_each(|(x, _)| starts[x + 1] += 1);
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut next = starts.clone();
    let mut all = vec![0; starts[graph.nodes.len()]];
    for (x, user) in uses() {
        all[next[x]] = user;
        next[x] += 1;
    }
    Users { starts, all }
}

/// Makes all users of `old` use `new`.
pub(crate) fn replace(graph: &mut Graph, old: ValueId, new: ValueId) {
    let swap = |x: &mut ValueId| {
        if *x == old {
            *x = new;
        }
    };
    graph.nodes.iter_mut().flat_map(|n| &mut n.inputs).for_each(swap);
    graph.outputs.iter_mut().map(|o| &mut o.1).for_each(swap);
}

/// Drops nodes that no result needs and puts the rest in an order that can be run: inputs and constants first.
pub(crate) fn sweep(graph: &mut Graph) {
    let order = order(graph);
    let mut place = vec![usize::MAX; graph.nodes.len()];
    order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
    let mut constants = vec![];
    let mut nodes = Vec::with_capacity(order.len());
    for &from in &order {
        let mut node = graph.nodes[from].clone();
        let folded = node.folded.iter_mut().flat_map(|folded| &mut folded.inputs);
        node.inputs.iter_mut().chain(folded).for_each(|x| x.0 = place[x.0]);
        if let Op::Constant(i) | Op::Parameter(i) = &mut node.op {
            constants.push(graph.constants[*i].clone());
            *i = constants.len() - 1;
        }
        nodes.push(node);
    }
    graph.outputs.iter_mut().for_each(|(_, x)| x.0 = place[x.0]);
    graph.nodes = nodes;
    graph.constants = constants;
}

/// Live nodes, operands before users; inputs live on even if nothing needs them.
fn order(graph: &Graph) -> Vec<usize> {
    let is = |i: &usize, f: fn(&Op) -> bool| f(&graph.nodes[*i].op);
    let mut seen = vec![false; graph.nodes.len()];
    let mut order = vec![];
    // Depth first, with an explicit stack: a network may be deeper than a thread's stack.
    let mut stack: Vec<_> = graph.outputs.iter().rev().map(|o| (o.1.0, false)).collect();
    while let Some((i, ready)) = stack.pop() {
        if ready {
            order.push(i);
        } else if !std::mem::replace(&mut seen[i], true) {
            stack.push((i, true));
            let node = &graph.nodes[i];
            let folded = node.folded.iter().flat_map(|folded| &folded.inputs);
            stack.extend(node.inputs.iter().chain(folded).rev().map(|x| (x.0, false)));
        }
    }
    let inputs = (0..graph.nodes.len()).filter(|i| is(i, |op| matches!(op, Op::Input(_))));
    // Values computed from weights come after them, since training computes them again.
    let first = |i: &usize| graph.nodes[*i].folded.is_none();
    let constant = |op: &Op| matches!(op, Op::Constant(_) | Op::Parameter(_));
    let constants = order.iter().copied().filter(|i| is(i, constant) && first(i));
    let rest =
        order.iter().copied().filter(|i| !is(i, Op::is_given) || is(i, constant) && !first(i));
    inputs.chain(constants).chain(rest).collect()
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

/// The value of a constant.
pub(crate) fn value(graph: &Graph, id: ValueId) -> Option<&HostTensor> {
    graph.constant_value(id)
}

/// Changes a node in place.
pub(crate) fn rewrite(graph: &mut Graph, at: ValueId, op: Op, inputs: Vec<ValueId>) {
    let node = &mut graph.nodes[at.0];
    node.op = op;
    node.inputs = inputs;
}
