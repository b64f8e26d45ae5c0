//! Gradients of operations that only move elements.

use ring_arith::Shape;

use super::Backward;
use crate::graph::{Dim, Op, ValueId};
use crate::{HostTensor, Result};

impl Backward<'_> {
    pub(super) fn permuted_back(&mut self, axes: &[usize]) -> Result<ValueId> {
        let mut back = vec![0; axes.len()];
        for (to, &from) in axes.iter().enumerate() {
            back[from] = to;
        }
        self.add(Op::Permute(back), &[self.grad])
    }

    pub(super) fn sliced(&mut self, axis: usize, start: usize, step: usize) -> Result<ValueId> {
        let shape = self.shape(0);
        if self.graph.shape(self.grad).dims()[axis] == 0 {
            return self.add(Op::Scale(0.0), &[self.x(0)]);
        }
        let wide = self.dilated(self.grad, axis, step)?;
        let covered = start + self.graph.shape(wide).dims()[axis];
        let mut before = vec![0; shape.rank()];
        let mut after = before.clone();
        before[axis] = start;
        after[axis] = shape.dims()[axis] - covered;
        self.add(Op::Pad { before, after, value: 0.0 }, &[wide])
    }

    /// A product with the public code of the indices, so that an index taken twice gets both.
    pub(super) fn gathered(&mut self, axis: usize, indices: &[usize]) -> Result<ValueId> {
        let shape = self.shape(0);
        let (len, taken) = (shape.dims()[axis], indices.len());
        let mut code = vec![0; len * taken];
        for (column, &row) in indices.iter().enumerate() {
            code[row * taken + column] = 1;
        }
        let code = HostTensor::integers([len, taken], code)?;
        let code = self.graph.public(&format!("{}.code", self.node.name), code);
        let outer = shape.dims()[..axis].iter().product();
        let inner = shape.dims()[axis + 1..].iter().product();
        let grad = self.reshape(self.grad, &Shape::new([outer, taken, inner])?)?;
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let grad = self.add(op, &[code, grad])?;
        self.reshape(grad, &shape)
    }

    /// The gradient by the table: each row gets those of all places that it was looked up for.
    pub(super) fn looked_up(&mut self) -> Result<ValueId> {
        let table = self.shape(0);
        let rows = table.dims()[0];
        let places = self.shape(1).len();
        let code = self.factor(Op::OneHot(rows), &[self.x(1)])?;
        let code = self.reshape(code, &Shape::new([places, rows])?)?;
        let row = table.len() / rows.max(1);
        let grad = self.reshape(self.grad, &Shape::new([places, row])?)?;
        let op = Op::MatMul { transpose_lhs: true, transpose_rhs: false };
        let grad = self.add(op, &[code, grad])?;
        self.reshape(grad, &table)
    }

    pub(super) fn padded(&mut self, before: &[usize]) -> Result<ValueId> {
        let shape = self.shape(0);
        let mut grad = self.grad;
        for (axis, (&start, &len)) in before.iter().zip(shape.dims()).enumerate() {
            grad = self.taken(grad, axis, start, len)?;
        }
        Ok(grad)
    }

    /// The gradient of a concatenation by one of its parts.
    pub(super) fn part_of(&mut self, axis: usize, operand: usize) -> Result<ValueId> {
        let start = (0..operand).map(|i| self.shape(i).dims()[axis]).sum();
        let len = self.shape(operand).dims()[axis];
        self.taken(self.grad, axis, start, len)
    }

    fn taken(&mut self, x: ValueId, axis: usize, start: usize, len: usize) -> Result<ValueId> {
        if self.graph.shape(x).dims()[axis] == len {
            return Ok(x);
        }
        let end = Dim::Fixed(start + len);
        self.add(Op::Slice { axis, start, end, step: 1 }, &[x])
    }
}
