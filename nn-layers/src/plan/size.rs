//! How much a plan asks for, before it is run.

use ring_arith::Shape;

use super::{Plan, check};
use crate::Result;
use crate::graph::{Op, Pool, Reduce, Unary};

/// Words that a party keeps of a secret word: two components, and for operands of products their sum.
const SHARE: u64 = 3;

/// Words beside operands and result, for each element: of steps that only move words.
const MOVED: u64 = 4;

/// Of products, with their truncation and comparison.
const PRODUCT: u64 = 16;

/// Of comparisons and selections.
const COMPARED: u64 = 16;

/// Of functions made of many steps, exp, softmax and division for instance.
const FUNCTION: u64 = 32;

impl Plan {
    /// Words of the largest value for a batch size, without running anything: what a server that
    /// takes plans from others compares with what it can give.
    ///
    /// # Errors
    /// [`crate::Error::Plan`] if the plan does not serve the batch size, [`crate::Error::Node`] if a
    /// value would be too large.
    pub fn largest_value(&self, batch: usize) -> Result<usize> {
        let shapes = check::shapes(self, batch)?;
        Ok(shapes.iter().map(Shape::len).max().unwrap_or(0))
    }

    /// Words of memory that a party may need at once to run the plan for a batch size, weights and
    /// inputs included: the values that live at each step, and what the step's protocol takes beside
    /// them. A bound for replicated sharing among three parties, not an exact number; nothing is run.
    ///
    /// # Errors
    /// As [`Plan::largest_value`].
    pub fn peak_words(&self, batch: usize) -> Result<u64> {
        let shapes = check::shapes(self, batch)?;
        let words: Vec<u64> = shapes.iter().map(|shape| shape.len() as u64).collect();
        let kept = |i: usize| words[i].saturating_mul(SHARE);
        let given = |i: &usize| matches!(self.nodes[*i].op, Op::Input(_) | Op::Constant(_));
        let mut live = (0..self.nodes.len()).filter(given).map(kept).fold(0, u64::saturating_add);
        let mut peak = live;
        for (group, dropped) in self.steps.iter().zip(&self.drops) {
            live = group.iter().map(|&i| kept(i)).fold(live, u64::saturating_add);
            let besides = group.iter().map(|&i| self.scratch(i, &shapes, &words));
            peak = peak.max(besides.fold(live, u64::saturating_add));
            let gone = dropped.iter().filter(|&&i| !matches!(self.nodes[i].op, Op::Constant(_)));
            live = gone.map(|&i| kept(i)).fold(live, u64::saturating_sub);
        }
        Ok(peak)
    }

    /// Words that the protocol of one node takes beside its operands and its result.
    fn scratch(&self, node: usize, shapes: &[Shape], words: &[u64]) -> u64 {
        let operands = &self.nodes[node].inputs;
        let taken = operands.iter().map(|&i| words[i]).fold(0, u64::saturating_add);
        let made = words[node];
        let (factor, elements) = match &self.nodes[node].op {
            Op::Input(_) | Op::Constant(_) => (0, 0),
            Op::Reshape(_)
            | Op::Permute(_)
            | Op::Slice { .. }
            | Op::Gather { .. }
            | Op::Pad { .. }
            | Op::Broadcast(_)
            | Op::Concat(_)
            | Op::Unary(Unary::Neg) => (MOVED, made),
            Op::Conv(_)
            | Op::ConvTranspose { .. }
            | Op::ConvWeightGrad(_)
            | Op::MatMul { .. }
            | Op::Linear(_) => (PRODUCT, made.saturating_add(taken)),
            Op::Unary(Unary::Relu | Unary::Abs | Unary::Clip(..) | Unary::Sign | Unary::Not) => {
                (COMPARED, made)
            }
            Op::Scale(_) | Op::Cast | Op::Binary(_) | Op::Where | Op::Mask => (COMPARED, made),
            Op::SumPool(p) | Op::AvgPool { pool: p, .. } => (MOVED, under(p, made)),
            Op::MaxPool(p) => (COMPARED, under(p, made)),
            // A tournament with positions, and a bit for each tap and window.
            Op::MaxPoolGrad(p) => {
                let pooled = operands.get(1).map_or(made, |&i| words[i]);
                (FUNCTION, under(p, pooled).max(made))
            }
            Op::Reduce { kind: Reduce::Max | Reduce::Min, .. } | Op::ArgMax { .. } => {
                (COMPARED, taken)
            }
            // A word for each position and row of the table says whether it is that row.
            Op::Lookup => {
                let rows = operands.first().and_then(|&i| shapes[i].dims().first());
                let places = operands.get(1).map_or(0, |&i| words[i]);
                (COMPARED, places.saturating_mul(rows.map_or(0, |&rows| rows as u64)))
            }
            _ => (FUNCTION, made.max(taken)),
        };
        elements.saturating_mul(factor)
    }
}

/// Words under all positions of a window.
fn under(pool: &Pool, made: u64) -> u64 {
    made.saturating_mul((pool.size[0] as u64).saturating_mul(pool.size[1] as u64))
}
