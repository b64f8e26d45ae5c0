//! Whole parts, remainders, and integers that wrap around.

use nn_layers::{Binary, HostTensor, Op, Unary, ValueId};

use super::folded;
use super::shape::{common, spread};
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;

/// The smallest whole number that is not below.
pub(crate) fn ceil(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let y = n.unary(Unary::Neg, x)?;
    let y = n.unary(Unary::Floor, y)?;
    Ok(vec![n.unary(Unary::Neg, y)?])
}

/// Integers modulo the size of their type: where that has 16 bits or fewer, and products where it has 32. Others do
/// not reach the ends of wider types.
pub(crate) fn wrapped(n: &mut Node<'_, '_>, x: ValueId, kind: i32) -> Result<ValueId> {
    if !n.to.is_integer(x) || kind == dtype::BOOL {
        return Ok(x);
    }
    if let Some(value) = n.to.graph.constant_value(x) {
        let ints = value.as_ints()?;
        if ints.iter().all(|&v| dtype::wrapped(kind, v) == v) {
            return Ok(x);
        }
        let ints = ints.iter().map(|&v| dtype::wrapped(kind, v)).collect();
        let value = HostTensor::integers(value.dims(), ints)?;
        return Ok(n.to.graph.public(n.attributes.name, value));
    }
    let bits = dtype::bits(kind);
    let multiplied = matches!(n.operator, "Mul" | "Pow" | "ReduceProd");
    if bits > 32 || bits > 16 && !multiplied {
        return Ok(x);
    }
    // x - size * floor((x - least) / size)
    let (least, _) = dtype::limits(kind);
    let size = 1i64 << bits;
    let from = n.whole(least)?;
    let above = n.binary_op(Binary::Sub, x, from)?;
    // No more than 16 bits are dropped at a time: a factor has 20 behind the point.
    let mut times = floored_by(n, above, size.min(1 << 16))?;
    if bits > 16 {
        times = floored_by(n, times, size >> 16)?;
    }
    let size = n.whole(size)?;
    let turns = n.binary_op(Binary::Mul, times, size)?;
    n.binary_op(Binary::Sub, x, turns)
}

/// Integers divided by a power of two up to 2^16, rounded down.
pub(crate) fn floored_by(n: &mut Node<'_, '_>, x: ValueId, size: i64) -> Result<ValueId> {
    let part = n.number(1.0 / size as f64);
    let parts = n.binary_op(Binary::Mul, x, part)?;
    n.unary(Unary::Floor, parts)
}

/// Integers divided by a number of them, rounded towards zero.
pub(crate) fn divided_by(n: &mut Node<'_, '_>, x: ValueId, count: usize) -> Result<ValueId> {
    let part = 1.0 / count as f64;
    let minus = n.unary(Unary::Neg, x)?;
    let mut parts = [x, minus];
    for side in &mut parts {
        let above = n.unary(Unary::Relu, *side)?;
        // As a real number first, of which a factor has all digits.
        let above = n.add(Op::Scale(1.0), &[above])?;
        let quotient = n.add(Op::Scale(part), &[above])?;
        // Half a part more: rounding does not take a whole number below itself.
        let half = n.number(part / 2.0);
        let quotient = n.binary_op(Binary::Add, quotient, half)?;
        *side = n.unary(Unary::Floor, quotient)?;
    }
    n.binary_op(Binary::Sub, parts[0], parts[1])
}

/// The whole part of a real number, rounded towards zero, as an integer.
pub(crate) fn truncated(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    let above = n.unary(Unary::Relu, x)?;
    let below = n.binary_op(Binary::Sub, above, x)?;
    let (above, below) = (n.unary(Unary::Floor, above)?, n.unary(Unary::Floor, below)?);
    n.binary_op(Binary::Sub, above, below)
}

/// The remainder of a division: computed when the model is imported, or for integers by a power of two.
pub(crate) fn modulo(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    if n.to.graph.known(x)?.is_some() {
        return folded::modulo(n);
    }
    let divisor = n.constant(y, "divisors")?.uniform().map(|d| d as i64);
    let power = divisor.filter(|d| *d > 0 && d.count_ones() == 1 && *d <= 1 << 16);
    let fmod = n.attributes.int("fmod", 0) != 0;
    let Some(size) = power.filter(|_| n.to.is_integer(x) && !fmod) else {
        return Err(n.unsupported("of computed values, but of integers by a power of two"));
    };
    let turns = floored_by(n, x, size)?;
    let size = n.whole(size)?;
    let turns = n.binary_op(Binary::Mul, turns, size)?;
    let rest = n.binary_op(Binary::Sub, x, turns)?;
    let dims = common(&n.dims(x), &n.dims(y));
    Ok(vec![spread(n, rest, dims)?])
}

/// The nearest whole number, ties to even, as an integer.
pub(crate) fn rounded(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    if n.to.is_integer(x) {
        return Ok(x);
    }
    let half = n.number(0.5);
    let above = n.binary_op(Binary::Add, x, half)?;
    let up = n.unary(Unary::Floor, above)?;
    // Halfway between two integers, an odd result is decremented.
    let tie = n.binary_op(Binary::Equal, above, up)?;
    let pairs = floored_by(n, up, 2)?;
    let two = n.whole(2)?;
    let even = n.binary_op(Binary::Mul, pairs, two)?;
    let odd = n.binary_op(Binary::Sub, up, even)?;
    let down = n.binary_op(Binary::Mul, tie, odd)?;
    n.binary_op(Binary::Sub, up, down)
}

pub(crate) fn round(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(vec![rounded(n, x)?])
}
