//! Whole parts, remainders, and integers that wrap around.

use nn_layers::{Binary, HostTensor, Op, Unary, ValueId};

use super::shape::{common, spread};
use super::{folded, math};
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
    // Whole numbers of a float type, as `Sign` gives them, do not wrap around.
    let float = dtype::is_float(kind).unwrap_or(true);
    if !n.to.is_integer(x) || kind == dtype::BOOL || float {
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
    let minus = n.unary(Unary::Neg, x)?;
    let mut parts = [x, minus];
    for side in &mut parts {
        let above = n.unary(Unary::Relu, *side)?;
        *side = near_quotient(n, above, count as i64)?;
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

/// The largest divisor: a fraction of it is more than the rounding of a quotient.
const MAX_DIVISOR: i64 = 1 << 17;

/// The remainder of a division of integers.
pub(crate) fn modulo(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    if math::all_known(n, &[x, y])? {
        return folded::modulo(n);
    }
    if !n.to.is_integer(x) || !n.to.is_integer(y) {
        return Err(n.unsupported("of computed real numbers"));
    }
    let with_dividend = n.attributes.int("fmod", 0) != 0;
    let Some(divisors) = n.to.graph.known(y)? else {
        return Ok(vec![rest_of_computed(n, x, y, with_dividend)?]);
    };
    let dims = common(&n.dims(x), &n.dims(y));
    let x = spread(n, x, dims)?;
    let rest = math::by_number(n, x, &divisors, |n, x, divisor| {
        let divisor = divisor as i64;
        let size = divisor.unsigned_abs();
        if divisor > 0 && !with_dividend && size.is_power_of_two() && divisor <= 1 << 16 {
            let turns = floored_by(n, x, divisor)?;
            return less(n, x, turns, divisor);
        }
        let times = toward_zero(n, x, divisor)?;
        let rest = less(n, x, times, divisor)?;
        if with_dividend {
            return Ok(rest);
        }
        // It gets the sign of the divisor.
        let zero = n.whole(0)?;
        let f = if divisor > 0 { Binary::Less } else { Binary::Greater };
        let turned = n.binary_op(f, rest, zero)?;
        less(n, rest, turned, -divisor)
    })?;
    Ok(vec![rest])
}

/// `x - times * divisor`.
fn less(n: &mut Node<'_, '_>, x: ValueId, times: ValueId, divisor: i64) -> Result<ValueId> {
    let divisor = n.whole(divisor)?;
    let product = n.binary_op(Binary::Mul, times, divisor)?;
    n.binary_op(Binary::Sub, x, product)
}

/// The remainder of a division by computed integers.
fn rest_of_computed(
    n: &mut Node<'_, '_>,
    x: ValueId,
    y: ValueId,
    with_dividend: bool,
) -> Result<ValueId> {
    let times = by_computed(n, x, y)?;
    let product = n.binary_op(Binary::Mul, times, y)?;
    let rest = n.binary_op(Binary::Sub, x, product)?;
    if with_dividend {
        return Ok(rest);
    }
    // It gets the sign of the divisor.
    let zero = n.whole(0)?;
    let below = n.binary_op(Binary::Less, rest, zero)?;
    let above = n.binary_op(Binary::Greater, rest, zero)?;
    let negative = n.binary_op(Binary::Less, y, zero)?;
    let positive = n.unary(Unary::Not, negative)?;
    let below = n.binary_op(Binary::And, below, positive)?;
    let above = n.binary_op(Binary::And, above, negative)?;
    let turned = n.binary_op(Binary::Add, below, above)?;
    let more = n.binary_op(Binary::Mul, turned, y)?;
    n.binary_op(Binary::Add, rest, more)
}

/// Integers divided by computed ones, rounded towards zero.
fn by_computed(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let mut rest = n.unary(Unary::Abs, x)?;
    let size = n.unary(Unary::Abs, y)?;
    let real = n.add(Op::Scale(1.0), &[size])?;
    let mut times = n.whole(0)?;
    // A quotient of numbers up to 2^22 is less than 2^6 beside, and one of its rest less than 1.
    for _ in 0..2 {
        let dividend = n.add(Op::Scale(1.0), &[rest])?;
        let part = n.binary_op(Binary::Div, dividend, real)?;
        let step = n.unary(Unary::Floor, part)?;
        let product = n.binary_op(Binary::Mul, step, size)?;
        rest = n.binary_op(Binary::Sub, rest, product)?;
        times = n.binary_op(Binary::Add, times, step)?;
    }
    let zero = n.whole(0)?;
    let more = n.binary_op(Binary::GreaterEqual, rest, size)?;
    let less = n.binary_op(Binary::Less, rest, zero)?;
    times = n.binary_op(Binary::Add, times, more)?;
    times = n.binary_op(Binary::Sub, times, less)?;
    let negative = [n.binary_op(Binary::Less, x, zero)?, n.binary_op(Binary::Less, y, zero)?];
    let negative = n.binary_op(Binary::Xor, negative[0], negative[1])?;
    let two = n.whole(2)?;
    let twice = n.binary_op(Binary::Mul, negative, two)?;
    let one = n.whole(1)?;
    let sign = n.binary_op(Binary::Sub, one, twice)?;
    n.binary_op(Binary::Mul, times, sign)
}

/// Integers divided by others, rounded towards zero.
pub(crate) fn quotient(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let Some(divisors) = n.to.graph.known(y)? else {
        return by_computed(n, x, y);
    };
    let dims = common(&n.dims(x), &n.dims(y));
    let x = spread(n, x, dims)?;
    math::by_number(n, x, &divisors, |n, x, divisor| toward_zero(n, x, divisor as i64))
}

fn toward_zero(n: &mut Node<'_, '_>, x: ValueId, divisor: i64) -> Result<ValueId> {
    if divisor == 0 {
        return Err(n.attributes.error("division by 0"));
    }
    let size = divisor.abs();
    if size > MAX_DIVISOR {
        return Err(n.unsupported(format!("by {divisor}; {MAX_DIVISOR} is the largest")));
    }
    let zero = n.whole(0)?;
    let mut times = n.unary(Unary::Abs, x)?;
    if size > 1 {
        // Factors have 19 bits at least. Each step leaves a rest that has as many bits less, at most the divisor's,
        // and integers have 40.
        let mut rest = times;
        let mut sum: Option<ValueId> = None;
        for _ in 0..3 {
            let step = near_quotient(n, rest, size)?;
            rest = less(n, rest, step, size)?;
            sum = Some(match sum {
                None => step,
                Some(sum) => n.binary_op(Binary::Add, sum, step)?,
            });
        }
        times = sum.unwrap_or(times);
    }
    // -1 or 1
    let negative = n.binary_op(Binary::Less, x, zero)?;
    let (two, one) = (n.whole(2)?, n.whole(divisor.signum())?);
    let twice = n.binary_op(Binary::Mul, negative, two)?;
    let sign = if divisor > 0 {
        n.binary_op(Binary::Sub, one, twice)?
    } else {
        n.binary_op(Binary::Add, one, twice)?
    };
    n.binary_op(Binary::Mul, times, sign)
}

/// Integers divided by a small one and rounded down, but for the rounding of large ones.
fn near_quotient(n: &mut Node<'_, '_>, x: ValueId, divisor: i64) -> Result<ValueId> {
    let part = 1.0 / divisor as f64;
    // As a real number first, of which a factor has all digits.
    let x = n.add(Op::Scale(1.0), &[x])?;
    let quotient = n.add(Op::Scale(part), &[x])?;
    // Half a part more: rounding does not take a whole number below itself.
    let half = n.number(part / 2.0);
    let quotient = n.binary_op(Binary::Add, quotient, half)?;
    n.unary(Unary::Floor, quotient)
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
