//! Independence of the examples of a batch: each result depends on one example alone.

use ring_arith::Shape;

use crate::graph::independence::{Of, apart};
use crate::plan::{Plan, shapes};

impl Plan {
    /// True if each example's results depend on its own inputs alone, and lie in axis 0 of each result where
    /// the example lies in axis 0 of each input. Then the examples of several callers can be run one after the
    /// other in one batch. Each caller gets the same results as alone, but for rounding.
    ///
    /// False in all other cases and where it is unknown: for instance for a plan that normalises over its
    /// batch, that serves a single batch size, or that has states.
    pub fn keeps_examples_apart(&self) -> bool {
        if !self.states.is_empty() {
            return false;
        }
        // Shapes at two batch sizes show which axes grow with the batch.
        let (Ok(two), Ok(three)) = (shapes::shapes(self, 2), shapes::shapes(self, 3)) else {
            return false;
        };
        let mut all: Vec<Of> = Vec::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.iter().enumerate() {
            let operands: Vec<_> = node.inputs.iter().map(|&x| (all[x], &two[x])).collect();
            let Some(of) = apart(&node.op, &operands, &two[i]) else { return false };
            // A guard cuts the values that it watches into the examples' pieces.
            if !fits(of, &two[i], &three[i]) || of == Of::None && self.dropped(i) > 0 {
                return false;
            }
            all.push(of);
        }
        self.outputs.iter().all(|&(_, i)| all[i] == Of::Each)
    }
}

/// True if a value's shapes at batch sizes 2 and 3 are those of such a value.
fn fits(of: Of, two: &Shape, three: &Shape) -> bool {
    match (of, two.dims(), three.dims()) {
        (Of::None, two, three) => two == three,
        (Of::Each, [two, a @ ..], [three, b @ ..]) => {
            two % 2 == 0 && three % 3 == 0 && two / 2 == three / 3 && a == b
        }
        (Of::Each, ..) => false,
    }
}
