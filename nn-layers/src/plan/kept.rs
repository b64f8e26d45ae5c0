//! Comparisons whose outcome is needed again: the gradient of a ReLU or a maximum uses the bits that the
//! forward pass has opened.

use std::collections::HashMap;

use super::PlanNode;
use crate::graph::{LinearFinish, Op, Unary};
use crate::{Error, Result};

/// The nodes that keep bits, and the nodes that use them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct KeptBits {
    /// For each node that uses kept bits, the node that keeps them.
    pub from: Vec<Option<usize>>,
    /// For each node whether its bits are kept.
    pub keeps: Vec<bool>,
    /// The nodes whose bits are dropped after each step.
    pub drops: Vec<Vec<usize>>,
}

impl KeptBits {
    /// Finds the bits that nodes can share; nothing is known of steps yet.
    ///
    /// # Errors
    /// [`Error::Node`] for the gradient of a maximum that is not computed.
    pub fn of(nodes: &[PlanNode]) -> Result<Self> {
        let origins = origins(nodes);
        let mut pools = HashMap::new();
        let mut from = vec![None; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            match &node.op {
                Op::MaxPool(pool) => {
                    pools.entry((node.inputs[0], *pool)).or_insert(i);
                }
                Op::MaxPoolGrad(pool) => {
                    let pooled = pools.get(&(node.inputs[0], *pool)).copied();
                    from[i] = Some(pooled.ok_or_else(|| {
                        Error::Node {
                            node: node.name.clone(),
                            reason:
                                "the maximum whose gradient this is has to be computed before it"
                                    .to_owned(),
                        }
                    })?);
                }
                op => from[i] = mask_of(op).and_then(|at| origins[node.inputs[at]]),
            }
        }
        let mut keeps = vec![false; nodes.len()];
        from.iter().flatten().for_each(|&i: &usize| keeps[i] = true);
        Ok(Self { from, keeps, drops: vec![] })
    }

    /// The operands whose values a node needs: not those whose bits were kept.
    pub fn operands<'a>(
        &'a self,
        nodes: &'a [PlanNode],
        node: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let PlanNode { op, inputs, .. } = &nodes[node];
        let spared = self.from[node].and_then(|_| match op {
            Op::MaxPoolGrad(_) => Some(0),
            op => mask_of(op),
        });
        inputs.iter().enumerate().filter(move |(at, _)| Some(*at) != spared).map(|(_, &x)| x)
    }

    /// Sets the steps after which bits are not needed any more.
    pub fn set_drops(&mut self, steps: &[Vec<usize>]) {
        let mut last = vec![None; self.from.len()];
        for (step, group) in steps.iter().enumerate() {
            for &node in group {
                if let Some(from) = self.from[node] {
                    last[from] = Some(step);
                }
            }
        }
        self.drops = vec![vec![]; steps.len()];
        for (node, step) in last.into_iter().enumerate() {
            if let Some(step) = step {
                self.drops[step].push(node);
            }
        }
    }
}

/// The place of the operand whose sign masks a node's result.
fn mask_of(op: &Op) -> Option<usize> {
    match op {
        Op::Mask => Some(1),
        Op::Linear(l) => l.mask_at(),
        _ => None,
    }
}

/// For each node that is a ReLU's result, under whatever shape, the ReLU.
fn origins(nodes: &[PlanNode]) -> Vec<Option<usize>> {
    let mut origins: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        origins.push(match &node.op {
            Op::Unary(Unary::Relu) => Some(i),
            Op::Linear(l) if l.finish == LinearFinish::Relu => Some(i),
            Op::Reshape(_) => origins[node.inputs[0]],
            _ => None,
        });
    }
    origins
}
