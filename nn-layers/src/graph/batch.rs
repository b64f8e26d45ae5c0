//! Graphs that serve several batch sizes.

use super::{Dim, Graph, Op, infer};
use crate::host::checked_shape;
use crate::{Error, Result};

impl Graph {
    /// The same network with shapes for another batch size.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the network serves its batch size alone, [`Error::Node`] where the other one does
    /// not fit.
    pub fn for_batch(mut self, batch: usize) -> Result<Self> {
        if batch == self.batch {
            return Ok(self);
        }
        if batch == 0 || !self.any_batch {
            let reason = format!("the network serves batch size {} alone, not {batch}", self.batch);
            return Err(Error::invalid("batch", reason));
        }
        self.batch = batch;
        self.reshape()?;
        Ok(self)
    }

    /// Computes all shapes for the graph's sizes.
    pub(super) fn reshape(&mut self) -> Result<()> {
        let sizes = self.sizes();
        for i in 0..self.nodes.len() {
            let node = &self.nodes[i];
            let shape = match node.op {
                Op::Input(k) => {
                    let dims = self.inputs[k].dims.iter().map(|&d| infer::resolve(d, sizes));
                    checked_shape("input", dims.collect::<Option<Vec<_>>>().unwrap_or_default())?
                }
                Op::Constant(_) | Op::Parameter(_) => continue,
                ref op => {
                    let shapes: Vec<_> = node.inputs.iter().map(|&id| self.shape(id)).collect();
                    infer::output_shape(op, &shapes, sizes).map_err(|e| e.at(&node.name))?
                }
            };
            self.nodes[i].shape = shape;
        }
        Ok(())
    }

    /// Joins two graphs of the same network, built for different batch sizes, into one whose plan serves every
    /// batch size. If they differ in more than multiples of the batch, the result is the first graph, which
    /// serves its batch size alone.
    #[must_use]
    pub fn unify(mut self, other: &Self) -> Self {
        let (b, c) = (self.batch, other.batch);
        let same = self.nodes.len() == other.nodes.len()
            && self.constants.len() == other.constants.len()
            && self.outputs == other.outputs
            && self.constants.iter().zip(&other.constants).all(|(x, y)| x.value == y.value);
        let merged = if same {
            let pairs = self.nodes.iter().zip(&other.nodes);
            pairs
                .map(|(x, y)| {
                    (x.inputs == y.inputs).then(|| unify_op(&x.op, &y.op, b, c)).flatten()
                })
                .collect::<Option<Vec<_>>>()
        } else {
            None
        };
        match merged.filter(|_| self.inputs == other.inputs) {
            Some(ops) => self.nodes.iter_mut().zip(ops).for_each(|(node, op)| node.op = op),
            None => self.any_batch = false,
        }
        self
    }

    /// True if the plan will serve every batch size.
    pub fn serves_any_batch(&self) -> bool {
        self.any_batch
    }

    /// Limits the plan to this graph's batch size.
    pub fn fix_batch(&mut self) {
        self.any_batch = false;
    }
}

/// The operation that serves both batch sizes.
fn unify_op(x: &Op, y: &Op, b: usize, c: usize) -> Option<Op> {
    let dim = |p: Dim, q: Dim| match (p, q) {
        _ if p == q => Some(p),
        (Dim::Fixed(m), Dim::Fixed(n)) if m % b == 0 && n % c == 0 && m / b == n / c => {
            Some(Dim::Batch(m / b))
        }
        _ => None,
    };
    let dims = |p: &[Dim], q: &[Dim]| {
        let pairs = p.iter().zip(q).map(|(&p, &q)| dim(p, q));
        if p.len() == q.len() { pairs.collect::<Option<Vec<_>>>() } else { None }
    };
    match (x, y) {
        _ if x == y => Some(x.clone()),
        (Op::Reshape(p), Op::Reshape(q)) => dims(p, q).map(Op::Reshape),
        (Op::Broadcast(p), Op::Broadcast(q)) => dims(p, q).map(Op::Broadcast),
        (
            &Op::Slice { axis, start, end, step },
            &Op::Slice { axis: a2, start: s2, end: e2, step: t2 },
        ) if (axis, start, step) == (a2, s2, t2) => {
            Some(Op::Slice { axis, start, end: dim(end, e2)?, step })
        }
        _ => None,
    }
}
