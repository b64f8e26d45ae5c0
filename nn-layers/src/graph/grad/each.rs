//! Gradients of each example of a batch, apart from each other.

use ring_arith::Shape;

use super::{Backward, fixed, is_flat};
use crate::graph::independence::{Of, apart};
use crate::graph::{Binary, Graph, Kernel, Op, Reduce, ValueId};
use crate::{Error, Result};

/// The gradients by one trained tensor, one for each unit of a batch: an example, or several one after the
/// other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OfEach {
    /// The gradient of a unit is the outer product of its row of `x`, `[units, k]`, and its row of `delta`,
    /// `[units, n]`: `[k, n]`, or `[n, k]` if `transposed`.
    Outer { x: ValueId, delta: ValueId, transposed: bool },
    /// All of them, `[units, len]`.
    Whole(ValueId),
}

impl Graph {
    /// Adds the gradients of `sum(seed * of)` by each of the trained tensors `by`, for each of `units` parts
    /// of the batch.
    ///
    /// # Errors
    /// As [`Graph::gradients`]; [`Error::Node`] naming an operation that mixes examples, or that takes a
    /// trained tensor without such a gradient; [`Error::Invalid`] for a tensor that is used more than once.
    pub(crate) fn gradients_of_each(
        &mut self,
        of: ValueId,
        seed: ValueId,
        by: &[ValueId],
        units: usize,
    ) -> Result<Vec<OfEach>> {
        let wanted = self.on_the_way(of, by);
        self.check_differentiable(of, seed, by, &wanted)?;
        let mut grads: Vec<Option<ValueId>> = vec![None; of.0 + 1];
        grads[of.0] = Some(seed);
        let mut found: Vec<Option<OfEach>> = vec![None; by.len()];
        let mut factors = vec![];
        for i in (0..=of.0).rev().filter(|&i| wanted[i] && !by.contains(&ValueId(i))) {
            let Some(grad) = grads[i] else { continue };
            let node = self.nodes[i].clone();
            let mut step = Backward { graph: self, node: &node, at: ValueId(i), grad };
            let sloped =
                |&(operand, x): &(usize, &ValueId)| wanted[x.0] && !is_flat(&node.op, operand);
            for (operand, &x) in node.inputs.iter().enumerate().filter(sloped) {
                let Some(place) = by.iter().position(|by| *by == x) else {
                    let part = step.by_operand(operand).map_err(|e| e.at(&node.name))?;
                    grads[x.0] = Some(match grads[x.0] {
                        Some(sum) => step.add(Op::Binary(Binary::Add), &[sum, part])?,
                        None => part,
                    });
                    continue;
                };
                factors.push(grad);
                factors.extend(node.inputs.iter().filter(|other| !by.contains(other)));
                let each = step.of_each(operand, units).map_err(|e| e.at(&node.name))?;
                if found[place].replace(each).is_some() {
                    return Err(Error::invalid("privacy", shared_reason(&self.nodes[x.0].name)));
                }
            }
        }
        self.check_apart(&factors)?;
        let missing = || Error::invalid("gradient", "a value has no gradient");
        found.into_iter().map(|each| each.ok_or_else(missing)).collect()
    }

    /// Checks that the part of an example in these values depends on that example alone.
    fn check_apart(&self, values: &[ValueId]) -> Result<()> {
        let mut all: Vec<Option<Of>> = vec![];
        for node in &self.nodes {
            let operands: Option<Vec<_>> =
                node.inputs.iter().map(|x| Some((all[x.0]?, self.shape(*x)))).collect();
            let of = operands.and_then(|operands| apart(&node.op, &operands, &node.shape));
            let rows = node.shape.dims().first().copied().unwrap_or(1);
            let own = match node.op {
                Op::Input(_) => rows == self.batch(),
                _ => rows % self.batch() == 0,
            };
            all.push(of.filter(|of| *of == Of::None || own));
        }
        for value in values {
            if let Some(mixed) = self.mixes(*value, &all) {
                let node = &self.nodes[mixed.0];
                return Err(Error::Node { node: node.name.clone(), reason: mixed_reason(node) });
            }
        }
        Ok(())
    }

    /// The first operation after a value that mixes examples.
    fn mixes(&self, value: ValueId, all: &[Option<Of>]) -> Option<ValueId> {
        let mut at = value;
        all[at.0].is_none().then_some(())?;
        while let Some(&before) = self.nodes[at.0].inputs.iter().find(|x| all[x.0].is_none()) {
            at = before;
        }
        Some(at)
    }
}

fn shared_reason(name: &str) -> String {
    format!(
        "`{name}` is used more than once; the gradients of each example can be clipped for weights that are \
         used once: give each use a weight of its own, or do not train it"
    )
}

fn mixed_reason(node: &crate::graph::Node) -> String {
    format!(
        "{} mixes the examples of a batch, so that none can be clipped; train with privacy only what takes each \
         example by itself",
        node.op.name()
    )
}

impl Backward<'_> {
    /// The gradients by an operand that is a trained tensor.
    fn of_each(&mut self, operand: usize, units: usize) -> Result<OfEach> {
        match &self.node.op {
            Op::MatMul { transpose_lhs: false, transpose_rhs } if operand == 1 => {
                self.matmul_of_each(*transpose_rhs, units)
            }
            Op::Conv(kernel) if operand == 1 => {
                self.conv_of_each(kernel, [self.x(0), self.grad], units)
            }
            Op::ConvTranspose { kernel, .. } if operand == 1 => {
                self.conv_of_each(kernel, [self.grad, self.x(0)], units)
            }
            Op::Binary(f @ (Binary::Add | Binary::Sub | Binary::Mul)) => {
                let grad = match (f, operand) {
                    (Binary::Mul, _) => self.mul(self.x(1 - operand), self.grad)?,
                    (Binary::Sub, 1) => self.scale(-1.0, self.grad)?,
                    _ => self.grad,
                };
                self.broadcast_of_each(grad, operand, units)
            }
            op => {
                let reason = format!(
                    "the gradients of each example by operand {operand} of {} cannot be clipped; do not train it",
                    op.name()
                );
                Err(Error::invalid("privacy", reason))
            }
        }
    }

    /// Of a matrix `[k, n]`, or `[n, k]`, that takes rows of `k`.
    fn matmul_of_each(&mut self, transposed: bool, units: usize) -> Result<OfEach> {
        if self.shape(1).rank() != 2 {
            return Err(Error::invalid("privacy", "a weight of a product has two axes"));
        }
        let [x, delta] = [self.in_units(self.x(0), units)?, self.in_units(self.grad, units)?];
        let flat = |step: &mut Self, x: ValueId| {
            let shape = step.graph.shape(x).clone();
            step.reshape(x, &Shape::new([units, shape.len() / units.max(1)])?)
        };
        if self.graph.shape(x).dims()[1] == 1 {
            let [x, delta] = [flat(self, x)?, flat(self, delta)?];
            return Ok(OfEach::Outer { x, delta, transposed });
        }
        let operands = if transposed { [delta, x] } else { [x, delta] };
        let product = Op::MatMul { transpose_lhs: true, transpose_rhs: false };
        let whole = self.add(product, &operands)?;
        Ok(OfEach::Whole(flat(self, whole)?))
    }

    /// `[rows, k]` or `[.., k]` as `[units, rows of a unit, k]`.
    fn in_units(&mut self, x: ValueId, units: usize) -> Result<ValueId> {
        let shape = self.graph.shape(x).clone();
        let last = shape.dims().last().copied().unwrap_or(1);
        let rows = shape.len() / (units * last).max(1);
        self.reshape(x, &Shape::new([units, rows, last])?)
    }

    /// Of a convolution's weight: one convolution gradient whose groups are those of every unit.
    fn conv_of_each(
        &mut self,
        kernel: &Kernel,
        [x, grad]: [ValueId; 2],
        units: usize,
    ) -> Result<OfEach> {
        let operands = [self.units_as_channels(x, units)?, self.units_as_channels(grad, units)?];
        let groups = kernel.groups * units;
        let whole = self.add(Op::ConvWeightGrad(Kernel { groups, ..*kernel }), &operands)?;
        let len = self.graph.shape(whole).len() / units.max(1);
        Ok(OfEach::Whole(self.reshape(whole, &Shape::new([units, len])?)?))
    }

    /// `[units * rows, C, H, W]` as `[rows, units * C, H, W]`.
    fn units_as_channels(&mut self, x: ValueId, units: usize) -> Result<ValueId> {
        let &[all, c, h, w] = self.graph.shape(x).dims() else {
            return Err(Error::invalid("privacy", "a convolution takes [N, C, H, W]"));
        };
        let rows = all / units.max(1);
        let mut x = x;
        if rows > 1 {
            x = self.reshape(x, &Shape::new([units, rows, c, h, w])?)?;
            x = self.add(Op::Permute(vec![1, 0, 2, 3, 4]), &[x])?;
        }
        self.reshape(x, &Shape::new([rows, units * c, h, w])?)
    }

    /// Of a tensor that is broadcast to the shape of `grad`: sums over the elements that are repeated within a
    /// unit.
    fn broadcast_of_each(&mut self, grad: ValueId, operand: usize, units: usize) -> Result<OfEach> {
        let [to, from] = [self.shape(operand), self.graph.shape(grad).clone()];
        let Some((&all, own)) = from.dims().split_first() else {
            return Err(Error::invalid("privacy", "a value has a row for each example"));
        };
        let lead = from.rank() - to.rank();
        if lead == 0 && to.dims()[0] != 1 {
            return Err(Error::invalid("privacy", "a trained tensor has a row for each example"));
        }
        let rows = all / units.max(1);
        let x = self.reshape(grad, &Shape::new([&[units, rows], own].concat())?)?;
        // Axis `a` of the value is axis `a + 1` here; that of rows is summed.
        let repeated =
            |&a: &usize| a == 0 || a < lead || to.dims()[a - lead] == 1 && own[a - 1] != 1;
        let axes: Vec<_> = (0..from.rank()).filter(repeated).map(|a| a + 1).collect();
        let sum = Op::Reduce { kind: Reduce::Sum, axes, keep: false };
        let sum = self.add(sum, &[x])?;
        let whole = self.add(Op::Reshape(fixed(&[units, to.len()])), &[sum])?;
        Ok(OfEach::Whole(whole))
    }
}
