//! Tangents, inverse functions of angles, and hyperbolic functions.

use nn_layers::{Binary, Unary, ValueId};

use super::math::times;
use crate::Result;
use crate::onnx::node::Node;

/// Trigonometric and hyperbolic functions, by means of available ones.
pub(crate) fn trigonometry(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let one = n.number(1.0);
    let y = match n.operator {
        "Tan" => {
            let (sine, cosine) = (n.unary(Unary::Sin, x)?, n.unary(Unary::Cos, x)?);
            n.binary_op(Binary::Div, sine, cosine)?
        }
        "Sinh" | "Cosh" => {
            let minus = n.unary(Unary::Neg, x)?;
            let (up, down) = (n.unary(Unary::Exp, x)?, n.unary(Unary::Exp, minus)?);
            let f = if n.operator == "Sinh" { Binary::Sub } else { Binary::Add };
            let both = n.binary_op(f, up, down)?;
            times(n, both, 0.5)?
        }
        "Asinh" => {
            // Odd; of magnitudes, nothing cancels in the sum.
            let (sign, size) = (n.unary(Unary::Sign, x)?, n.unary(Unary::Abs, x)?);
            let root = root_of_square(n, size, 1.0)?;
            let sum = n.binary_op(Binary::Add, size, root)?;
            let log = n.unary(Unary::Log, sum)?;
            n.binary_op(Binary::Mul, log, sign)?
        }
        "Acosh" => {
            let root = root_of_square(n, x, -1.0)?;
            let sum = n.binary_op(Binary::Add, x, root)?;
            n.unary(Unary::Log, sum)?
        }
        "Atanh" => {
            let (up, down) = (n.binary_op(Binary::Add, one, x)?, n.binary_op(Binary::Sub, one, x)?);
            let part = n.binary_op(Binary::Div, up, down)?;
            let log = n.unary(Unary::Log, part)?;
            times(n, log, 0.5)?
        }
        "Atan" => arc_tangent(n, x)?,
        // The angle is twice that of x / (1 + sqrt(1 - x^2)).
        "Asin" | "Acos" => {
            let square = n.binary_op(Binary::Mul, x, x)?;
            let rest = n.binary_op(Binary::Sub, one, square)?;
            let rest = n.unary(Unary::Relu, rest)?;
            let root = n.unary(Unary::Sqrt, rest)?;
            let below = n.binary_op(Binary::Add, one, root)?;
            let half = n.binary_op(Binary::Div, x, below)?;
            let angle = arc_tangent(n, half)?;
            let angle = times(n, angle, 2.0)?;
            if n.operator == "Asin" {
                angle
            } else {
                let right = n.number(std::f64::consts::FRAC_PI_2);
                n.binary_op(Binary::Sub, right, angle)?
            }
        }
        other => return Err(n.unsupported(format!("as {other}"))),
    };
    Ok(vec![y])
}

/// `sqrt(x^2 + more)`.
fn root_of_square(n: &mut Node<'_, '_>, x: ValueId, more: f64) -> Result<ValueId> {
    let square = n.binary_op(Binary::Mul, x, x)?;
    let more = n.number(more);
    let sum = n.binary_op(Binary::Add, square, more)?;
    n.unary(Unary::Sqrt, sum)
}

/// The angle is four times that of a tangent below 0.42, for which seven terms of its series leave 2^-20.
fn arc_tangent(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    let one = n.number(1.0);
    let mut t = x;
    for _ in 0..2 {
        let root = root_of_square(n, t, 1.0)?;
        let below = n.binary_op(Binary::Add, one, root)?;
        t = n.binary_op(Binary::Div, t, below)?;
    }
    let square = n.binary_op(Binary::Mul, t, t)?;
    let mut sum = n.number(1.0 / 13.0);
    for k in (0..6).rev() {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        let factor = sign / f64::from(2 * k + 1);
        let next = n.binary_op(Binary::Mul, sum, square)?;
        let factor = n.number(factor);
        sum = n.binary_op(Binary::Add, next, factor)?;
    }
    let angle = n.binary_op(Binary::Mul, sum, t)?;
    times(n, angle, 4.0)
}
