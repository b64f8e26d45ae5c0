//! Quantised models: integers stand for real numbers by a scale and a zero.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::shape::fixed;
use super::{conv, math, whole};
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;

/// Steps from the smallest to the largest number of a byte.
const STEPS: f64 = 255.0;

/// The factors of a scale that depends on the input. Their product has few bits above the last one; a product with one
/// after the other has them all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Computed from the input.
    pub range: ValueId,
    /// A number of the model.
    pub factor: ValueId,
}

/// Integers as the real numbers that they stand for. Integers of the model become weights: they are as secret as
/// others.
pub(crate) fn dequantize(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let scale = along(n, 1, &dims)?;
    let zero = match n.optional(2) {
        Some(_) => Some(along(n, 2, &dims)?),
        None => None,
    };
    Ok(vec![read(n, x, scale, zero)?])
}

/// `(x - zero) * scale`, a secret weight where it is known.
pub(super) fn read(
    n: &mut Node<'_, '_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Result<ValueId> {
    let x = secret(n, x)?;
    let moved = match zero {
        Some(zero) => {
            let zero = secret(n, zero)?;
            n.binary_op(Binary::Sub, x, zero)?
        }
        None => x,
    };
    n.binary_op(Binary::Mul, moved, scale)
}

/// The model's own numbers as a weight, whatever their type.
fn secret(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    match n.to.graph.known(x)? {
        Some(value) if value.len() > 1 => {
            Ok(n.to.graph.weight(n.attributes.name, value.to_float()))
        }
        _ => Ok(x),
    }
}

/// A scale or a zero point in a shape that broadcasts to its operand's. The file has one for all elements, for each
/// place along an axis, or for each block of places.
fn along(n: &mut Node<'_, '_>, i: usize, dims: &[usize]) -> Result<ValueId> {
    let value = n.input(i)?;
    let own = n.dims(value);
    if own.iter().product::<usize>() == 1 {
        return fixed(n, value, &[]);
    }
    let axis = n.axis(n.attributes.int("axis", 1), dims.len(), false)?;
    let block = usize::try_from(n.attributes.int("block_size", 0)).unwrap_or(0);
    if block > 0 && own.len() == dims.len() {
        let indices = (0..dims[axis]).map(|k| k / block).collect();
        return n.add(Op::Gather { axis, indices, squeeze: false }, &[value]);
    }
    if own != [dims[axis]] {
        return Err(n.attributes.error(format!("a scale of shape {own:?} does not fit {dims:?}")));
    }
    let mut shape = vec![1; dims.len() - axis];
    shape[0] = dims[axis];
    fixed(n, value, &shape)
}

/// Real numbers as the nearest integers that stand for them.
pub(crate) fn quantize(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let scale = along(n, 1, &dims)?;
    let kind = super::result_kind(n, 0, x);
    let zero = match n.optional(2) {
        Some(_) => Some(along(n, 2, &dims)?),
        None => None,
    };
    let parts = n.binary_op(Binary::Div, x, scale)?;
    if dtype::is_float(kind).unwrap_or(false) {
        let Some(value) = n.to.graph.known(parts)? else {
            return Err(n.unsupported(format!("of computed values to {}", dtype::name(kind))));
        };
        let saturate = n.attributes.int("saturate", 1) != 0;
        let value = value.map(|v| dtype::rounded(kind, v, saturate));
        return Ok(vec![n.to.graph.weight(n.attributes.name, value)]);
    }
    Ok(vec![rounded(n, parts, zero, kind)?])
}

/// Rounded to integers, moved by the zero, and kept within the type.
pub(super) fn rounded(
    n: &mut Node<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    kind: i32,
) -> Result<ValueId> {
    let mut y = whole::rounded(n, x)?;
    if let Some(zero) = zero {
        y = n.binary_op(Binary::Add, y, zero)?;
    }
    let (least, most) = dtype::limits(kind);
    n.unary(Unary::Clip(Some(least as f64), Some(most as f64)), y)
}

/// The product of two operands as the numbers that they stand for, without their scales: exact integers.
fn integer_product(n: &mut Node<'_, '_>, x: [usize; 2], w: [usize; 2]) -> Result<ValueId> {
    let x = moved(n, n.input(x[0])?, n.optional(x[1]), true)?;
    let w = moved(n, n.input(w[0])?, n.optional(w[1]), false)?;
    if n.operator.contains("Conv") {
        return conv::plain(n, x, w);
    }
    math::product_of(n, x, w)
}

/// Integers of the first or second side of a product, less their zero.
pub(super) fn moved(
    n: &mut Node<'_, '_>,
    value: ValueId,
    zero: Option<ValueId>,
    first: bool,
) -> Result<ValueId> {
    let value = whole(n, value)?;
    let Some(zero) = zero else { return Ok(value) };
    let own = n.dims(zero);
    let dims = n.dims(value);
    // One zero for each row of the first operand, column of the second, or output channel.
    let count: usize = own.iter().product();
    let zero = if count == 1 {
        fixed(n, zero, &[])?
    } else if n.operator.contains("Conv") {
        fixed(n, zero, &[count, 1, 1, 1])?
    } else if own.len() == 1 && first && dims.len() > 1 {
        fixed(n, zero, &[count, 1])?
    } else {
        zero
    };
    let zero = whole(n, zero)?;
    n.binary_op(Binary::Sub, value, zero)
}

/// Real numbers as integers from 0 to 255, with the scale and the zero that fit the smallest and the largest of all.
pub(crate) fn dynamic(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    Ok(dynamic_of(n, x)?.to_vec())
}

pub(super) fn dynamic_of(n: &mut Node<'_, '_>, x: ValueId) -> Result<[ValueId; 3]> {
    let axes: Vec<_> = (0..n.dims(x).len()).collect();
    let low = n.add(Op::Reduce { kind: Reduce::Min, axes: axes.clone(), keep: false }, &[x])?;
    let high = n.add(Op::Reduce { kind: Reduce::Max, axes, keep: false }, &[x])?;
    let zero = n.number(0.0);
    let low = n.binary_op(Binary::Min, low, zero)?;
    let high = n.binary_op(Binary::Max, high, zero)?;
    let range = n.binary_op(Binary::Sub, high, low)?;
    // Zeros alone have scale 1.
    let none = n.binary_op(Binary::Equal, range, zero)?;
    let steps = n.number(STEPS);
    let one = n.binary_op(Binary::Mul, none, steps)?;
    let range = n.binary_op(Binary::Add, range, one)?;
    let inverse = n.binary_op(Binary::Div, steps, range)?;
    let whole = |n: &mut Node<'_, '_>, x: ValueId, zero| {
        let parts = n.binary_op(Binary::Mul, x, inverse)?;
        rounded(n, parts, zero, dtype::UINT8)
    };
    let below = n.unary(Unary::Neg, low)?;
    let zero = whole(n, below, None)?;
    let y = whole(n, x, Some(zero))?;
    let factor = n.number(1.0 / STEPS);
    let scale = n.add(Op::Scale(1.0 / STEPS), &[range])?;
    n.to.scales.insert(scale, Scale { range, factor });
    Ok([y, scale, zero])
}

/// The model's own integers as weights: secret as others, and whole.
pub(super) fn whole(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    match n.to.graph.known(x)? {
        Some(value) if value.len() > 1 => {
            let value = HostTensor::integers(value.dims(), value.as_ints()?.to_vec())?;
            Ok(n.to.graph.weight(n.attributes.name, value))
        }
        _ => Ok(x),
    }
}

pub(crate) fn integers(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    Ok(vec![integer_product(n, [0, 2], [1, 3])?])
}

/// A product of quantised operands, quantised again.
pub(crate) fn quantised_product(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let sums = integer_product(n, [0, 2], [3, 5])?;
    let convolution = n.operator.contains("Conv");
    let sums = match n.optional(8).filter(|_| convolution) {
        Some(bias) => {
            let count = n.dims(bias).iter().product();
            let bias = fixed(n, bias, &[count, 1, 1])?;
            let bias = whole(n, bias)?;
            n.binary_op(Binary::Add, sums, bias)?
        }
        None => sums,
    };
    let scale = |n: &mut Node<'_, '_>, i: usize| -> Result<ValueId> {
        let id = n.input(i)?;
        let count = n.dims(id).iter().product::<usize>();
        let rows = i == 1 && n.dims(id).len() == 1 && !convolution;
        match count {
            1 => fixed(n, id, &[]),
            _ if convolution => fixed(n, id, &[count, 1, 1]),
            _ if rows => fixed(n, id, &[count, 1]),
            _ => Ok(id),
        }
    };
    let (x, w, y) = (scale(n, 1)?, scale(n, 4)?, scale(n, 6)?);
    let parts = if math::all_known(n, &[x, w, y])? {
        let factor = n.binary_op(Binary::Mul, x, w)?;
        let factor = n.binary_op(Binary::Div, factor, y)?;
        n.binary_op(Binary::Mul, sums, factor)?
    } else {
        // The product of two scales has few bits above the last one; sums have enough for each alone.
        let factor = n.binary_op(Binary::Div, x, y)?;
        let parts = n.binary_op(Binary::Mul, sums, w)?;
        n.binary_op(Binary::Mul, parts, factor)?
    };
    let zero = match n.optional(7) {
        Some(zero) if n.dims(zero).iter().product::<usize>() == 1 => Some(fixed(n, zero, &[])?),
        zero => zero,
    };
    let kind = n.kind(7);
    Ok(vec![rounded(n, parts, zero, kind)?])
}
