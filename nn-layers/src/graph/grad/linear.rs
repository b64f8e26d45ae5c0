//! Gradients of products.

use super::Backward;
use crate::graph::infer::transposed_size;
use crate::graph::{Kernel, Op, ValueId};
use crate::{Error, Result};

impl Backward<'_> {
    pub(super) fn conv(&mut self, kernel: &Kernel, operand: usize) -> Result<ValueId> {
        if operand == 1 {
            let operands = [self.x(0), self.grad];
            return self.add(Op::ConvWeightGrad(*kernel), &operands);
        }
        let &[_, _, h, w] = self.shape(0).dims() else {
            return Err(Error::invalid("conv", "four axes are needed"));
        };
        let &[_, _, oh, ow] = self.graph.shape(self.grad).dims() else {
            return Err(Error::invalid("conv", "four axes are needed"));
        };
        // The rows and columns that a stride leaves over at the lower and right border.
        let [lh, lw] = transposed_size(kernel, [0; 2], [oh, ow])?;
        let extra = [h - lh, w - lw];
        let operands = [self.grad, self.x(1)];
        self.add(Op::ConvTranspose { kernel: *kernel, extra }, &operands)
    }

    pub(super) fn conv_transpose(&mut self, kernel: &Kernel, operand: usize) -> Result<ValueId> {
        if operand == 1 {
            // The roles of value and gradient are exchanged: the transposed map is a convolution.
            let operands = [self.grad, self.x(0)];
            return self.add(Op::ConvWeightGrad(*kernel), &operands);
        }
        let operands = [self.grad, self.x(1)];
        self.add(Op::Conv(*kernel), &operands)
    }

    /// With `y = A B` the gradients are `g B^T` and `A^T g`; an operand that is stored transposed has its
    /// gradient stored so as well.
    pub(super) fn matmul(&mut self, [ta, tb]: [bool; 2], operand: usize) -> Result<ValueId> {
        let (shape, other) = (self.shape(operand), self.shape(1 - operand));
        if operand == 1 && shape.rank() == 2 && other.rank() > 2 && !ta {
            return self.matmul_weight(tb);
        }
        let [a, b, g] = [self.x(0), self.x(1), self.grad];
        let (lhs, rhs, transpose_lhs, transpose_rhs) = match (operand, ta, tb) {
            (0, false, _) => (g, b, false, !tb),
            (0, true, _) => (b, g, tb, true),
            (_, _, false) => (a, g, !ta, false),
            (_, _, true) => (g, a, true, ta),
        };
        let grad = self.add(Op::MatMul { transpose_lhs, transpose_rhs }, &[lhs, rhs])?;
        self.sum_to(grad, &shape)
    }

    /// The gradient by a matrix that serves all batches: one product over all rows.
    fn matmul_weight(&mut self, tb: bool) -> Result<ValueId> {
        let [x, g] = [self.rows(self.x(0))?, self.rows(self.grad)?];
        let operands = if tb { [g, x] } else { [x, g] };
        self.add(Op::MatMul { transpose_lhs: true, transpose_rhs: false }, &operands)
    }

    /// `[.., k]` as `[rows, k]`.
    fn rows(&mut self, x: ValueId) -> Result<ValueId> {
        let shape = self.graph.shape(x);
        let last = shape.dims()[shape.rank() - 1];
        let to = ring_arith::Shape::new([shape.len() / last.max(1), last])?;
        self.reshape(x, &to)
    }
}
