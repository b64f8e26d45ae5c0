//! The gradient of a batch normalisation by the batch's statistics, by a separate formula.

use super::Backward;
use crate::Result;
use crate::graph::norm::BatchNormParts;
use crate::graph::{Binary, Format, Op, ValueId};

/// Fraction bits of `scale / (variance + epsilon)`.
const CURVATURE: u32 = 16;

impl Backward<'_> {
    /// The gradients by value, scale and shift, those that are wanted.
    ///
    /// With `n` elements a channel, centred values `c`, `i` one over the deviation, `a = scale * i` and
    /// `s = i sum(g c)`: by the scale `s`, by the shift `sum(g)`, and by the value
    /// `a g - a sum(g) / n - c (a i s) / n`. Sums over a batch are inner products of a word for each
    /// channel, and each element is rounded once.
    pub(super) fn batch_norm(
        &mut self,
        parts: &BatchNormParts,
        wanted: [bool; 3],
    ) -> Result<[Option<ValueId>; 3]> {
        let g = self.grad;
        let mut grads = [None; 3];
        let total = self.sum(g, parts.axes.clone())?;
        if wanted[2] {
            grads[2] = Some(total);
        }
        if !wanted[0] && !wanted[1] {
            return Ok(grads);
        }
        let weighed = self.add(Op::Dot(parts.axes.clone()), &[g, parts.centred])?;
        let slope = self.mul(weighed, parts.inverse)?;
        if wanted[1] {
            grads[1] = Some(slope);
        }
        if wanted[0] {
            grads[0] = Some(self.by_value(parts, total, slope)?);
        }
        Ok(grads)
    }

    fn by_value(
        &mut self,
        parts: &BatchNormParts,
        total: ValueId,
        slope: ValueId,
    ) -> Result<ValueId> {
        let minus_inverse = self.factor(Op::Scale(-1.0), &[parts.inverse])?;
        let minus_factor = self.factor(Op::Scale(-1.0), &[parts.factor])?;
        let product = Op::Binary(Binary::Mul);
        let fixed = Format::Fixed(CURVATURE);
        let curvature = self.add_in(fixed, product.clone(), &[parts.factor, minus_inverse])?;
        let curvature = self.divided(fixed, curvature, parts)?;
        let minus_factor = self.divided(Format::Value, minus_factor, parts)?;
        let by_mean = self.over_count(parts, [total, minus_factor])?;
        let by_variance = self.over_count(parts, [slope, curvature])?;
        let direct = self.mul(self.grad, parts.factor)?;
        let centred = self.add(Op::Binary(Binary::Add), &[direct, by_mean])?;
        let along = self.mul(parts.centred, by_variance)?;
        self.add(Op::Binary(Binary::Add), &[centred, along])
    }

    /// The rest of a division by the number of elements, once the point has moved.
    fn divided(&mut self, format: Format, x: ValueId, parts: &BatchNormParts) -> Result<ValueId> {
        match parts.count.rest {
            1.0 => Ok(x),
            rest => self.add_in(format, Op::Scale(rest), &[x]),
        }
    }

    /// A product divided by a power of two, which only moves the point: nothing is lost where it is small.
    fn over_count(&mut self, parts: &BatchNormParts, operands: [ValueId; 2]) -> Result<ValueId> {
        let bits = parts.count.bits;
        let coarse = Format::CoarserGradient(bits);
        let product = self.add_in(coarse, Op::Binary(Binary::Mul), &operands)?;
        self.scale((-f64::from(bits)).exp2(), product)
    }
}
