//! The products at a plan's nodes, and the bits that are dropped of them.

use crate::graph::{Binary, LinearMap, Op};
use crate::plan::Plan;

impl Plan {
    /// Bits that are dropped of a product at a node; 0 if it is not a product, or nothing is dropped.
    pub(in crate::plan) fn dropped(&self, node: usize) -> u32 {
        if self.public[node] {
            return 0;
        }
        let inputs = &self.nodes[node].inputs;
        let sum =
            |(_, [x, y]): &(LinearMap, [usize; 2])| self.fracs[inputs[*x]] + self.fracs[inputs[*y]];
        let product = match self.nodes[node].op {
            Op::Dot(_) => self.fracs[inputs[0]] + self.fracs[inputs[1]],
            ref op => maps(op).iter().map(sum).max().unwrap_or(0),
        };
        product.saturating_sub(self.fracs[node])
    }
}

/// The maps of an operation, with the places of their operands.
pub(in crate::plan) fn maps(op: &Op) -> Vec<(LinearMap, [usize; 2])> {
    let only = |map| vec![(map, [0, 1])];
    match op {
        Op::Linear(l) => l.maps().map(|(map, at)| (map.clone(), at)).collect(),
        Op::Conv(k) => only(LinearMap::Conv(*k)),
        Op::ConvWeightGrad(k) => only(LinearMap::ConvWeightGrad(*k)),
        &Op::ConvTranspose { kernel, extra } => only(LinearMap::ConvTranspose { kernel, extra }),
        &Op::MatMul { transpose_lhs, transpose_rhs } => {
            only(LinearMap::MatMul { transpose_lhs, transpose_rhs })
        }
        Op::Binary(Binary::Mul) => only(LinearMap::Mul),
        _ => vec![],
    }
}
