//! Gradients of reductions and of functions built of them.

use mpc_core::functions::Centre;

use super::{Backward, fixed};
use crate::Result;
use crate::graph::{Binary, Op, Reduce, Unary, ValueId};

impl Backward<'_> {
    pub(super) fn reduce(&mut self, kind: Reduce, axes: &[usize]) -> Result<ValueId> {
        let shape = self.shape(0);
        let count: usize = axes.iter().map(|&a| shape.dims()[a]).product();
        let g = self.over(self.grad, axes)?;
        let x = self.x(0);
        match kind {
            Reduce::Sum => self.spread_over(g),
            Reduce::Mean => {
                let g = self.scale(1.0 / count.max(1) as f64, g)?;
                self.spread_over(g)
            }
            Reduce::SumSquare => {
                let twice = self.scale(2.0, g)?;
                self.mul(x, twice)
            }
            Reduce::L2 => {
                let inverse = self.factor(Op::Unary(Unary::Reciprocal), &[self.at])?;
                let inverse = self.over(inverse, axes)?;
                let g = self.mul(g, inverse)?;
                self.mul(x, g)
            }
            Reduce::L1 => {
                let g = self.spread_over(g)?;
                let minus = self.factor(Op::Scale(-1.0), &[x])?;
                let (above, below) = (self.mask(g, x)?, self.mask(g, minus)?);
                self.sub(above, below)
            }
            Reduce::Max => self.extreme(g, axes, Binary::GreaterEqual),
            Reduce::Min => self.extreme(g, axes, Binary::LessEqual),
        }
    }

    /// Of an extreme's gradient each of the equals that are it has the same part, as of PyTorch's `amax`.
    fn extreme(&mut self, g: ValueId, axes: &[usize], is_extreme: Binary) -> Result<ValueId> {
        let extreme = self.over_as_factor(axes)?;
        let there = self.factor(Op::Binary(is_extreme), &[self.x(0), extreme])?;
        let sum = Op::Reduce { kind: Reduce::Sum, axes: axes.to_vec(), keep: true };
        let count = self.factor(sum, &[there])?;
        let one = self.number(1.0);
        let part = self.factor(Op::Binary(Binary::Div), &[one, count])?;
        let g = self.mul(g, part)?;
        self.where_true(there, g, true)
    }

    /// The result with its axes back, of length 1.
    fn over_as_factor(&mut self, axes: &[usize]) -> Result<ValueId> {
        let shape = self.shape(0);
        let kept = shape.dims().iter().enumerate();
        let dims: Vec<_> = kept.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect();
        if self.graph.shape(self.at).dims() == dims {
            return Ok(self.at);
        }
        self.factor(Op::Reshape(fixed(&dims)), &[self.at])
    }

    /// `y (g - sum(g y))`, or `g - exp(y) sum(g)` for the logarithm.
    pub(super) fn softmax(&mut self, axis: usize, log: bool) -> Result<ValueId> {
        let (y, g) = (self.at, self.grad);
        if log {
            let p = self.factor(Op::Unary(Unary::Exp), &[y])?;
            let total = self.sum(g, vec![axis])?;
            let total = self.mul(p, total)?;
            return self.sub(g, total);
        }
        let weighed = self.mul(g, y)?;
        let total = self.sum(weighed, vec![axis])?;
        let rest = self.sub(g, total)?;
        self.mul(rest, y)
    }

    /// With `n` elements a row and the result `y`: `(g - sum(g) / n - y sum(g y) / n) / deviation`.
    pub(super) fn normalize(
        &mut self,
        axis: usize,
        centre: Centre,
        epsilon: f64,
    ) -> Result<ValueId> {
        let (y, g) = (self.at, self.grad);
        let shape = self.shape(0);
        let axes: Vec<_> = (axis..shape.rank()).collect();
        let n = shape.dims()[axis..].iter().product::<usize>().max(1) as f64;
        let weighed = self.mul(g, y)?;
        let weighed = self.sum(weighed, axes.clone())?;
        let mut sum = self.mul(y, weighed)?;
        if centre == Centre::Mean {
            let total = self.sum(g, axes.clone())?;
            sum = self.add(Op::Binary(Binary::Add), &[total, sum])?;
        }
        let mean = self.scale(1.0 / n, sum)?;
        let rest = self.sub(g, mean)?;
        let centred = match centre {
            Centre::Mean => self.centred(&axes, n)?,
            Centre::Zero => self.x(0),
        };
        let inverse = self.inverse_deviation(centred, &axes, n, epsilon)?;
        self.mul(rest, inverse)
    }

    /// The operand less its mean over axes of `n` numbers.
    fn centred(&mut self, axes: &[usize], n: f64) -> Result<ValueId> {
        let x = self.x(0);
        let sum = Op::Reduce { kind: Reduce::Sum, axes: axes.to_vec(), keep: true };
        let total = self.factor(sum, &[x])?;
        let mean = self.factor(Op::Scale(1.0 / n), &[total])?;
        self.factor(Op::Binary(Binary::Sub), &[x, mean])
    }

    /// One over the root of the mean of squares over axes of `n` numbers and epsilon.
    fn inverse_deviation(
        &mut self,
        centred: ValueId,
        axes: &[usize],
        n: f64,
        epsilon: f64,
    ) -> Result<ValueId> {
        let squares = Op::Reduce { kind: Reduce::SumSquare, axes: axes.to_vec(), keep: true };
        let squares = self.factor(squares, &[centred])?;
        let variance = self.factor(Op::Scale(1.0 / n), &[squares])?;
        let epsilon = self.number(epsilon);
        let variance = self.factor(Op::Binary(Binary::Add), &[variance, epsilon])?;
        self.factor(Op::Unary(Unary::InvSqrt), &[variance])
    }

    /// A reduced value with its axes back, of length 1.
    fn over(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let shape = self.shape(0);
        let kept = shape.dims().iter().enumerate();
        let dims: Vec<_> = kept.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect();
        self.reshape(x, &ring_arith::Shape::new(dims)?)
    }

    /// The same value at every element of the operand.
    fn spread_over(&mut self, x: ValueId) -> Result<ValueId> {
        let dims = fixed(self.shape(0).dims());
        self.add(Op::Broadcast(dims), &[x])
    }
}
