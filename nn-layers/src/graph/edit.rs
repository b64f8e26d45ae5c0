//! Changes of a graph by passes.

use std::ops::Index;

use super::{Graph, Op, ValueId};

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

impl Graph {
    /// The nodes that use each node; results of the graph count as users of index `usize::MAX`. Passes ask again
    /// after each change, so this is two lists, not one for each node.
    pub(crate) fn users(&self) -> Users {
        let uses = || {
            let nodes = self.nodes.iter().enumerate();
            let inside = nodes.flat_map(|(i, node)| node.inputs.iter().map(move |x| (x.0, i)));
            inside.chain(self.outputs.iter().map(|(_, x)| (x.0, usize::MAX)))
        };
        let mut starts = vec![0; self.nodes.len() + 1];
        uses().for_each(|(x, _)| starts[x + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut all = vec![0; starts[self.nodes.len()]];
        for (x, user) in uses() {
            all[next[x]] = user;
            next[x] += 1;
        }
        Users { starts, all }
    }

    /// Makes all users of `old` use `new`.
    pub(crate) fn replace(&mut self, old: ValueId, new: ValueId) {
        let swap = |x: &mut ValueId| {
            if *x == old {
                *x = new;
            }
        };
        self.nodes.iter_mut().flat_map(|n| &mut n.inputs).for_each(swap);
        self.outputs.iter_mut().map(|o| &mut o.1).for_each(swap);
    }

    /// Drops nodes that no result needs and puts the rest in an order that can be run: inputs and constants first.
    pub fn sweep(&mut self) {
        let order = self.order();
        let mut place = vec![usize::MAX; self.nodes.len()];
        order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
        let mut constants = vec![];
        let mut nodes = Vec::with_capacity(order.len());
        for &from in &order {
            let mut node = self.nodes[from].clone();
            let folded = node.folded.iter_mut().flat_map(|folded| &mut folded.inputs);
            node.inputs.iter_mut().chain(folded).for_each(|x| x.0 = place[x.0]);
            if let Op::Constant(i) | Op::Parameter(i) = &mut node.op {
                constants.push(self.constants[*i].clone());
                *i = constants.len() - 1;
            }
            nodes.push(node);
        }
        self.outputs.iter_mut().for_each(|(_, x)| x.0 = place[x.0]);
        self.nodes = nodes;
        self.constants = constants;
    }

    /// Live nodes, operands before users; inputs live on even if nothing needs them.
    fn order(&self) -> Vec<usize> {
        let is = |i: &usize, f: fn(&Op) -> bool| f(&self.nodes[*i].op);
        let mut seen = vec![false; self.nodes.len()];
        let mut order = vec![];
        // Depth first, with an explicit stack: a network may be deeper than a thread's stack.
        let mut stack: Vec<_> = self.outputs.iter().rev().map(|o| (o.1.0, false)).collect();
        while let Some((i, ready)) = stack.pop() {
            if ready {
                order.push(i);
            } else if !std::mem::replace(&mut seen[i], true) {
                stack.push((i, true));
                let node = &self.nodes[i];
                let folded = node.folded.iter().flat_map(|folded| &folded.inputs);
                stack.extend(node.inputs.iter().chain(folded).rev().map(|x| (x.0, false)));
            }
        }
        let inputs = (0..self.nodes.len()).filter(|i| is(i, |op| matches!(op, Op::Input(_))));
        // Values computed from weights come after them, since training computes them again.
        let first = |i: &usize| self.nodes[*i].folded.is_none();
        let constant = |op: &Op| matches!(op, Op::Constant(_) | Op::Parameter(_));
        let constants = order.iter().copied().filter(|i| is(i, constant) && first(i));
        let rest =
            order.iter().copied().filter(|i| !is(i, Op::is_given) || is(i, constant) && !first(i));
        inputs.chain(constants).chain(rest).collect()
    }

    /// Changes a node in place.
    pub(crate) fn rewrite(&mut self, at: ValueId, op: Op, inputs: Vec<ValueId>) {
        let node = &mut self.nodes[at.0];
        node.op = op;
        node.inputs = inputs;
    }
}
