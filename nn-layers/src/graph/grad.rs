//! Gradients as further operations of the same graph: reverse mode.
//!
//! The added operations run like all others: the planner fuses them, any protocol computes them, and
//! [`Graph::evaluate`] gives the same numbers in the clear.

pub(crate) mod each;
mod elementwise;
mod linear;
mod norm;
mod pool;
mod reduce;
mod views;

use std::collections::HashMap;

use ring_arith::Shape;

use super::norm::BatchNormParts;
use super::op::{Binary, Dim, Gradient, Op, Reduce};
use super::{Format, Graph, Node, ValueId};
use crate::{Error, Result};

impl Graph {
    /// Adds the gradients of `sum(seed * of)` by each of `by`; `seed` has the shape of `of`. Only operations
    /// between `by` and `of` are followed.
    ///
    /// At a corner of a function the gradient is that of PyTorch. The larger and the smaller of two are an
    /// exception: among equals the second gets the whole gradient. Comparisons, signs, whole parts and
    /// positions pass none to their operands.
    ///
    /// # Errors
    /// [`Error::Node`] naming an operation on the way without a gradient, [`Error::Invalid`] if `of` does not
    /// depend on one of `by` or `seed` has another shape; before anything is added.
    pub fn gradients(
        &mut self,
        of: ValueId,
        seed: ValueId,
        by: &[ValueId],
    ) -> Result<Vec<ValueId>> {
        self.gradients_with(&HashMap::new(), of, seed, by)
    }

    /// [`Graph::gradients`] of a graph with batch normalisations that are differentiated as one.
    pub(crate) fn gradients_with(
        &mut self,
        norms: &HashMap<ValueId, BatchNormParts>,
        of: ValueId,
        seed: ValueId,
        by: &[ValueId],
    ) -> Result<Vec<ValueId>> {
        let wanted = self.on_the_way(of, by);
        self.check_differentiable(of, seed, by, &wanted)?;
        let mut grads: Vec<Option<ValueId>> = vec![None; of.0 + 1];
        grads[of.0] = Some(seed);
        for i in (0..=of.0).rev().filter(|&i| wanted[i] && !by.contains(&ValueId(i))) {
            let Some(grad) = grads[i] else { continue };
            let node = self.nodes[i].clone();
            let mut step = Backward { graph: self, node: &node, at: ValueId(i), grad };
            let parts =
                step.parts(norms.get(&ValueId(i)), &wanted).map_err(|e| e.at(&node.name))?;
            for (x, part) in parts {
                grads[x.0] = Some(match grads[x.0] {
                    Some(sum) => step.add(Op::Binary(Binary::Add), &[sum, part])?,
                    None => part,
                });
            }
        }
        let missing = || Error::invalid("gradient", "a value has no gradient");
        by.iter().map(|x| grads[x.0].ok_or_else(missing)).collect()
    }

    /// The nodes that depend on one of `by` and on which `of` depends.
    fn on_the_way(&self, of: ValueId, by: &[ValueId]) -> Vec<bool> {
        let mut needed = vec![false; of.0 + 1];
        needed[of.0] = true;
        for i in (0..=of.0).rev().filter(|i| !by.contains(&ValueId(*i))) {
            let Node { op, inputs, .. } = &self.nodes[i];
            let sloped = inputs.iter().enumerate().filter(|(operand, _)| !is_flat(op, *operand));
            if needed[i] {
                sloped.for_each(|(_, x)| needed[x.0] = true);
            }
        }
        let mut wanted = vec![false; of.0 + 1];
        for i in 0..=of.0 {
            let Node { op, inputs, .. } = &self.nodes[i];
            let mut operands = inputs.iter().enumerate();
            let depends = by.contains(&ValueId(i))
                || operands.any(|(operand, x)| wanted[x.0] && !is_flat(op, operand));
            wanted[i] = needed[i] && depends;
        }
        wanted
    }

    fn check_differentiable(
        &self,
        of: ValueId,
        seed: ValueId,
        by: &[ValueId],
        wanted: &[bool],
    ) -> Result<()> {
        if self.shape(seed) != self.shape(of) {
            let reason =
                format!("the seed has shape {:?}, not {:?}", self.shape(seed), self.shape(of));
            return Err(Error::invalid("gradient", reason));
        }
        if let Some(x) = by.iter().find(|x| x.0 > of.0 || !wanted[x.0]) {
            let reason = format!("the result does not depend on `{}`", self.nodes[x.0].name);
            return Err(Error::invalid("gradient", reason));
        }
        for i in (0..=of.0).filter(|&i| wanted[i] && !by.contains(&ValueId(i))) {
            let node = &self.nodes[i];
            for (operand, _) in node.inputs.iter().enumerate().filter(|(_, x)| wanted[x.0]) {
                if !is_differentiable(&node.op) && !is_flat(&node.op, operand) {
                    let reason = format!("{} has no gradient by operand {operand}", node.op.name());
                    return Err(Error::Node { node: node.name.clone(), reason });
                }
            }
        }
        Ok(())
    }
}

/// True if an operation's results are the same for other numbers nearby.
fn is_flat(op: &Op, operand: usize) -> bool {
    match op.info().gradient {
        Gradient::Zero => true,
        Gradient::ZeroBy(at) => operand == at,
        Gradient::Defined | Gradient::Undefined => false,
    }
}

/// True if [`Backward::by_operand`] knows the gradient.
fn is_differentiable(op: &Op) -> bool {
    op.info().gradient != Gradient::Undefined
}

/// One operation in the backward pass.
struct Backward<'a> {
    graph: &'a mut Graph,
    node: &'a Node,
    /// The operation's result.
    at: ValueId,
    /// The gradient by it.
    grad: ValueId,
}

impl Backward<'_> {
    /// The terms that the operation adds to the gradients of the values whose gradients are needed.
    fn parts(
        &mut self,
        norm: Option<&BatchNormParts>,
        wanted: &[bool],
    ) -> Result<Vec<(ValueId, ValueId)>> {
        if let Some(norm) = norm {
            let values = [norm.x, norm.scale, norm.shift];
            let grads = self.batch_norm(norm, values.map(|x| wanted[x.0]))?;
            return Ok(values.into_iter().zip(grads).filter_map(|(x, g)| Some((x, g?))).collect());
        }
        let mut parts = vec![];
        for (operand, &x) in self.node.inputs.iter().enumerate() {
            if wanted[x.0] && !is_flat(&self.node.op, operand) {
                parts.push((x, self.by_operand(operand)?));
            }
        }
        Ok(parts)
    }

    /// The gradient by one operand.
    fn by_operand(&mut self, operand: usize) -> Result<ValueId> {
        match &self.node.op {
            Op::Conv(kernel) => self.conv(kernel, operand),
            Op::ConvTranspose { kernel, .. } => self.conv_transpose(kernel, operand),
            &Op::MatMul { transpose_lhs, transpose_rhs } => {
                self.matmul([transpose_lhs, transpose_rhs], operand)
            }
            Op::Unary(f) => self.unary(*f),
            Op::Binary(f) => self.binary(*f, operand),
            Op::Where => self.chosen(operand),
            Op::Mask => {
                let masked = [self.grad, self.x(1)];
                self.add(Op::Mask, &masked)
            }
            &Op::Scale(c) => self.scale(c, self.grad),
            Op::Cast | Op::Dropout(_) => Ok(self.grad),
            &Op::Softmax { axis, log } => self.softmax(axis, log),
            &Op::Normalize { axis, centre, epsilon } => self.normalize(axis, centre, epsilon),
            Op::Reduce { kind, axes, .. } => self.reduce(*kind, axes),
            Op::Dot(_) => self.mul(self.x(1 - operand), self.grad),
            Op::MaxPool(pool) => {
                let operands = [self.x(0), self.grad];
                self.add(Op::MaxPoolGrad(*pool), &operands)
            }
            Op::SumPool(pool) => self.spread(pool, self.grad),
            Op::AvgPool { pool, count_border } => self.average(pool, *count_border),
            Op::Reshape(_) => self.reshape(self.grad, &self.shape(0)),
            Op::Broadcast(_) => self.sum_to(self.grad, &self.shape(0)),
            Op::Permute(axes) => self.permuted_back(axes),
            &Op::Slice { axis, start, step, .. } => self.sliced(axis, start, step),
            Op::Gather { axis, indices, .. } => self.gathered(*axis, indices),
            Op::Lookup => self.looked_up(),
            Op::Pad { before, .. } => self.padded(before),
            Op::Concat(axis) => self.part_of(*axis, operand),
            op => Err(Error::invalid(op.name(), "has no gradient")),
        }
    }

    /// Operand number `i` of the operation.
    fn x(&self, i: usize) -> ValueId {
        self.node.inputs[i]
    }

    /// The shape of an operand.
    fn shape(&self, i: usize) -> Shape {
        self.graph.shape(self.x(i)).clone()
    }

    /// Adds a node in the gradients' format.
    fn add(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let name = format!("{}.grad", self.node.name);
        self.graph.add_as(Format::Gradient, &name, op, inputs)
    }

    /// Adds a node in a given format.
    fn add_in(&mut self, format: Format, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let name = format!("{}.grad", self.node.name);
        self.graph.add_as(format, &name, op, inputs)
    }

    /// Adds a node in the format of values: a factor of a gradient.
    fn factor(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let name = format!("{}.factor", self.node.name);
        self.graph.add(&name, op, inputs)
    }

    /// A public number as an operand.
    fn number(&mut self, c: f64) -> ValueId {
        let name = format!("{}.number", self.node.name);
        self.graph.public(&name, crate::HostTensor::scalar(c))
    }

    fn mul(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(Op::Binary(Binary::Mul), &[x, y])
    }

    fn sub(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(Op::Binary(Binary::Sub), &[x, y])
    }

    fn scale(&mut self, c: f64, x: ValueId) -> Result<ValueId> {
        if c == 1.0 { Ok(x) } else { self.add(Op::Scale(c), &[x]) }
    }

    /// `x` where `y` is positive, else 0.
    fn mask(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.add(Op::Mask, &[x, y])
    }

    /// The same elements under another shape.
    fn reshape(&mut self, x: ValueId, to: &Shape) -> Result<ValueId> {
        if self.graph.shape(x) == to {
            return Ok(x);
        }
        self.add(Op::Reshape(fixed(to.dims())), &[x])
    }

    /// Sums the elements that a broadcast from `to` has repeated.
    fn sum_to(&mut self, x: ValueId, to: &Shape) -> Result<ValueId> {
        let from = self.graph.shape(x).clone();
        let new = from.rank() - to.rank();
        let repeated = |&a: &usize| a < new || to.dims()[a - new] == 1 && from.dims()[a] != 1;
        let axes: Vec<_> = (0..from.rank()).filter(repeated).collect();
        let sum = if axes.is_empty() { x } else { self.sum(x, axes)? };
        self.reshape(sum, to)
    }

    /// The sum over axes, which stay with length 1.
    fn sum(&mut self, x: ValueId, axes: Vec<usize>) -> Result<ValueId> {
        self.add(Op::Reduce { kind: Reduce::Sum, axes, keep: true }, &[x])
    }
}

/// Dimensions that do not depend on the batch size.
fn fixed(dims: &[usize]) -> Vec<Dim> {
    dims.iter().map(|&d| Dim::Fixed(d)).collect()
}
