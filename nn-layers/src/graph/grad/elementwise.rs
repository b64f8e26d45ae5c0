//! Gradients of functions of single elements.

use super::Backward;
use crate::Result;
use crate::graph::{Binary, Op, Unary, ValueId};

impl Backward<'_> {
    /// The gradient of a function of every element: mostly a product with its derivative, which has the
    /// format of values.
    pub(super) fn unary(&mut self, f: Unary) -> Result<ValueId> {
        let (x, y, g) = (self.x(0), self.at, self.grad);
        match f {
            Unary::Relu => self.mask(g, y),
            Unary::LeakyRelu(slope) => {
                let positive = self.mask(g, x)?;
                self.slopes(positive, slope)
            }
            Unary::Clip(low, high) => self.clipped(low, high),
            Unary::Neg => self.scale(-1.0, g),
            Unary::Abs => {
                let minus = self.factor(Op::Scale(-1.0), &[x])?;
                let (above, below) = (self.mask(g, x)?, self.mask(g, minus)?);
                self.sub(above, below)
            }
            _ => {
                let derivative = self.derivative(f, x, y)?;
                self.mul(g, derivative)
            }
        }
    }

    /// The derivative of a smooth function, from its argument or its result.
    fn derivative(&mut self, f: Unary, x: ValueId, y: ValueId) -> Result<ValueId> {
        match f {
            Unary::Sigmoid => {
                let square = self.times(y, y)?;
                self.minus(y, square)
            }
            Unary::Tanh => {
                let square = self.times(y, y)?;
                self.affine(square, -1.0, 1.0)
            }
            Unary::Erf => {
                let bell = self.bell(x, 1.0)?;
                self.affine(bell, std::f64::consts::FRAC_2_SQRT_PI, 0.0)
            }
            // The slopes of both forms are as close as the forms are.
            Unary::Gelu | Unary::GeluTanh => {
                // Phi(x) + x phi(x)
                let scaled = self.affine(x, std::f64::consts::FRAC_1_SQRT_2, 0.0)?;
                let erf = self.apply(Unary::Erf, scaled)?;
                let phi = self.affine(erf, 0.5, 0.5)?;
                let bell = self.bell(x, 0.5)?;
                let slope = self.times(x, bell)?;
                let slope = self.affine(slope, 1.0 / (2.0 * std::f64::consts::PI).sqrt(), 0.0)?;
                self.plus(phi, slope)
            }
            Unary::Silu => {
                // s + y (1 - s)
                let s = self.apply(Unary::Sigmoid, x)?;
                let rest = self.affine(s, -1.0, 1.0)?;
                let slope = self.times(y, rest)?;
                self.plus(s, slope)
            }
            Unary::HardSigmoid(a, b) => {
                let line = self.affine(x, a, b)?;
                let inside = self.inside(line)?;
                self.affine(inside, a, 0.0)
            }
            Unary::HardSwish => {
                // clip(l, 0, 1) + x / 6 inside, with l = x / 6 + 1 / 2
                let line = self.affine(x, 1.0 / 6.0, 0.5)?;
                let gate = self.apply(Unary::Clip(Some(0.0), Some(1.0)), line)?;
                let inside = self.inside(line)?;
                let sixth = self.affine(x, 1.0 / 6.0, 0.0)?;
                let slope = self.times(sixth, inside)?;
                self.plus(gate, slope)
            }
            Unary::Elu(alpha) => self.exponential_unit(x, y, alpha, 1.0),
            Unary::Selu(alpha, gamma) => self.exponential_unit(x, y, alpha, gamma),
            Unary::Softplus => self.apply(Unary::Sigmoid, x),
            Unary::Softsign => {
                let magnitude = self.apply(Unary::Abs, x)?;
                let below = self.affine(magnitude, 1.0, 1.0)?;
                let inverse = self.apply(Unary::Reciprocal, below)?;
                self.times(inverse, inverse)
            }
            Unary::Exp => Ok(y),
            Unary::Log => self.apply(Unary::Reciprocal, x),
            Unary::Sqrt => {
                let inverse = self.apply(Unary::InvSqrt, x)?;
                self.affine(inverse, 0.5, 0.0)
            }
            Unary::InvSqrt | Unary::Damping => {
                let square = self.times(y, y)?;
                let cube = self.times(square, y)?;
                self.affine(cube, -0.5, 0.0)
            }
            Unary::Reciprocal => {
                let square = self.times(y, y)?;
                self.affine(square, -1.0, 0.0)
            }
            Unary::Sin => self.apply(Unary::Cos, x),
            Unary::Cos => {
                let sine = self.apply(Unary::Sin, x)?;
                self.affine(sine, -1.0, 0.0)
            }
            Unary::Pow(n) => {
                let power = self.apply(Unary::Pow(n - 1.0), x)?;
                self.affine(power, n, 0.0)
            }
            f => Err(crate::Error::invalid(f.name(), "has no derivative")),
        }
    }

    pub(super) fn binary(&mut self, f: Binary, operand: usize) -> Result<ValueId> {
        let (a, b, g) = (self.x(0), self.x(1), self.grad);
        let grad = match (f, operand) {
            (Binary::Sub, 1) => self.scale(-1.0, g)?,
            (Binary::Add | Binary::Sub, _) => g,
            (Binary::Mul, _) => self.mul(g, self.x(1 - operand))?,
            (Binary::Div, _) => {
                let inverse = self.apply(Unary::Reciprocal, b)?;
                let by_dividend = self.mul(g, inverse)?;
                if operand == 0 {
                    by_dividend
                } else {
                    let grad = self.mul(by_dividend, self.at)?;
                    self.scale(-1.0, grad)?
                }
            }
            (Binary::Max, _) => self.where_larger([a, b], operand == 0)?,
            (Binary::Min, _) => self.where_larger([b, a], operand == 0)?,
            (Binary::PRelu, 0) => {
                let positive = self.mask(g, a)?;
                let negative = self.sub(g, positive)?;
                let negative = self.mul(negative, b)?;
                self.add(Op::Binary(Binary::Add), &[positive, negative])?
            }
            (Binary::PRelu, _) => {
                let positive = self.mask(g, a)?;
                let negative = self.sub(g, positive)?;
                self.mul(negative, a)?
            }
            (f, _) => return Err(crate::Error::invalid(f.name(), "has no gradient")),
        };
        self.sum_to(grad, &self.shape(operand))
    }

    /// The gradient of [`Op::Where`] by the second or third operand.
    pub(super) fn chosen(&mut self, operand: usize) -> Result<ValueId> {
        let grad = self.where_true(self.x(0), self.grad, operand == 1)?;
        self.sum_to(grad, &self.shape(operand))
    }

    /// A gradient where a condition holds, or where it does not, else 0. Not a product: addends of one may have
    /// more fraction bits than a truth value's.
    pub(super) fn where_true(
        &mut self,
        condition: ValueId,
        grad: ValueId,
        holds: bool,
    ) -> Result<ValueId> {
        let zero = self.number(0.0);
        let [a, b] = if holds { [grad, zero] } else { [zero, grad] };
        self.add(Op::Where, &[condition, a, b])
    }

    /// The gradient where `x` is larger than `y`, or where it is not.
    fn where_larger(&mut self, [x, y]: [ValueId; 2], larger_one: bool) -> Result<ValueId> {
        let difference = self.factor(Op::Binary(Binary::Sub), &[x, y])?;
        let larger = self.mask(self.grad, difference)?;
        if larger_one { Ok(larger) } else { self.sub(self.grad, larger) }
    }

    /// `positive`, and `slope` times the gradient where that is 0.
    fn slopes(&mut self, positive: ValueId, slope: f64) -> Result<ValueId> {
        let negative = self.sub(self.grad, positive)?;
        let negative = self.scale(slope, negative)?;
        self.add(Op::Binary(Binary::Add), &[positive, negative])
    }

    fn clipped(&mut self, low: Option<f64>, high: Option<f64>) -> Result<ValueId> {
        let mut grad = self.grad;
        if let Some(low) = low {
            let above = self.affine(self.x(0), 1.0, -low)?;
            grad = self.mask(grad, above)?;
        }
        if let Some(high) = high {
            let below = self.affine(self.x(0), -1.0, high)?;
            grad = self.mask(grad, below)?;
        }
        Ok(grad)
    }

    /// `gamma` where `x` is positive, `y + gamma * alpha` elsewhere.
    fn exponential_unit(
        &mut self,
        x: ValueId,
        y: ValueId,
        alpha: f64,
        gamma: f64,
    ) -> Result<ValueId> {
        let line = self.affine(y, 1.0, gamma * alpha)?;
        let rest = self.affine(line, -1.0, gamma)?;
        let rest = self.factor(Op::Mask, &[rest, x])?;
        self.plus(line, rest)
    }

    /// 1 where `0 < line < 1`, else 0.
    fn inside(&mut self, line: ValueId) -> Result<ValueId> {
        let rest = self.affine(line, -1.0, 1.0)?;
        let zeros = self.affine(line, 0.0, 0.0)?;
        let ones = self.affine(zeros, 1.0, 1.0)?;
        let above = self.factor(Op::Mask, &[ones, line])?;
        self.factor(Op::Mask, &[above, rest])
    }

    /// `exp(-c x^2)`.
    fn bell(&mut self, x: ValueId, c: f64) -> Result<ValueId> {
        let square = self.times(x, x)?;
        let exponent = self.affine(square, -c, 0.0)?;
        self.apply(Unary::Exp, exponent)
    }

    fn apply(&mut self, f: Unary, x: ValueId) -> Result<ValueId> {
        self.factor(Op::Unary(f), &[x])
    }

    fn times(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.factor(Op::Binary(Binary::Mul), &[x, y])
    }

    fn plus(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.factor(Op::Binary(Binary::Add), &[x, y])
    }

    fn minus(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.factor(Op::Binary(Binary::Sub), &[x, y])
    }

    /// `a x + b`.
    fn affine(&mut self, x: ValueId, a: f64, b: f64) -> Result<ValueId> {
        let scaled = if a == 1.0 { x } else { self.factor(Op::Scale(a), &[x])? };
        if b == 0.0 {
            return Ok(scaled);
        }
        let b = self.number(b);
        self.plus(scaled, b)
    }
}
