//! Quantised operators of the domain `com.microsoft`.

use nn_layers::{Binary, Op, Reduce, Unary, ValueId};

use super::super::quantise::{dynamic_of, moved, rounded, whole};
use super::super::shape::fixed;
use super::super::{conv, math};
use crate::Result;
use crate::onnx::node::Node;

/// The operands from number `at` on are integers, their scale and their zero.
fn integers(n: &mut Node<'_, '_>, at: usize) -> Result<ValueId> {
    let x = n.input(at)?;
    let x = whole(n, x)?;
    let Some(zero) = n.optional(at + 2) else { return Ok(x) };
    let zero = fixed(n, zero, &[])?;
    n.binary_op(Binary::Sub, x, zero)
}

/// A scale that is one number.
fn scale(n: &mut Node<'_, '_>, at: usize) -> Result<ValueId> {
    let scale = n.input(at)?;
    n.constant(scale, "scales")?;
    if n.dims(scale).iter().product::<usize>() != 1 {
        return Err(n.unsupported(format!("with several scales, of shape {:?}", n.dims(scale))));
    }
    fixed(n, scale, &[])
}

/// Numbers over the scale of the result, as its integers. Also takes the number of the operand that is that scale; the
/// zero follows it.
fn quantised(n: &mut Node<'_, '_>, x: ValueId, at: usize) -> Result<ValueId> {
    let scale = scale(n, at)?;
    let parts = n.binary_op(Binary::Div, x, scale)?;
    with_zero(n, parts, at + 1)
}

/// Rounded, moved by the zero that is an operand, and kept within the type.
fn with_zero(n: &mut Node<'_, '_>, x: ValueId, at: usize) -> Result<ValueId> {
    let zero = n.optional(at).map(|zero| fixed(n, zero, &[])).transpose()?;
    let kind = if zero.is_some() { n.kind(at) } else { n.kind(0) };
    rounded(n, x, zero, kind)
}

/// Integers as the real numbers for which they stand, over the scale of the result: by one factor.
fn rescaled(n: &mut Node<'_, '_>, x: ValueId, scales: &[usize], to: usize) -> Result<ValueId> {
    let mut factor = n.number(1.0);
    for &at in scales {
        let scale = scale(n, at)?;
        factor = n.binary_op(Binary::Mul, factor, scale)?;
    }
    let to = scale(n, to)?;
    let factor = n.binary_op(Binary::Div, factor, to)?;
    n.binary_op(Binary::Mul, x, factor)
}

/// Sums and products of two quantised operands.
pub(crate) fn pairs(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = (integers(n, 0)?, integers(n, 3)?);
    let made = if n.operator == "QLinearMul" {
        let product = n.binary_op(Binary::Mul, x, y)?;
        rescaled(n, product, &[1, 4], 6)?
    } else {
        let (x, y) = (rescaled(n, x, &[1], 6)?, rescaled(n, y, &[4], 6)?);
        n.binary_op(Binary::Add, x, y)?
    };
    Ok(vec![with_zero(n, made, 7)?])
}

/// Functions of the elements of a quantised operand.
pub(crate) fn function(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = integers(n, 0)?;
    if n.operator == "QLinearSigmoid" {
        let own = scale(n, 1)?;
        let x = n.binary_op(Binary::Mul, x, own)?;
        let y = n.unary(Unary::Sigmoid, x)?;
        return Ok(vec![quantised(n, y, 3)?]);
    }
    let slope = n.attributes.float("alpha", 0.01);
    let x = rescaled(n, x, &[1], 3)?;
    let made = n.unary(Unary::LeakyRelu(slope), x)?;
    Ok(vec![with_zero(n, made, 4)?])
}

/// Softmax of a quantised operand. Before opset 13 of ONNX's own one, all axes from the given one on are one.
pub(crate) fn softmax(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = integers(n, 0)?;
    let own = scale(n, 1)?;
    let mut x = n.binary_op(Binary::Mul, x, own)?;
    let dims = n.dims(x);
    let flat = n.attributes.int("opset", 13) < 13;
    let mut axis = n.axis(n.attributes.int("axis", -1), dims.len(), flat)?;
    if flat {
        let (rows, row) = (dims[..axis].iter().product(), dims[axis..].iter().product());
        x = fixed(n, x, &[rows, row])?;
        axis = 1;
    }
    let y = n.add(Op::Softmax { axis, log: false }, &[x])?;
    let y = fixed(n, y, &dims)?;
    Ok(vec![quantised(n, y, 3)?])
}

/// The mean of each channel of a quantised operand.
pub(crate) fn global_average(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = integers(n, 0)?;
    let rank = n.dims(x).len();
    let last = n.attributes.int("channels_last", 0) != 0;
    let axes: Vec<_> = if last { (1..rank - 1).collect() } else { (2..rank).collect() };
    let count: usize = axes.iter().map(|&axis| n.dims(x)[axis]).product();
    let sums = n.add(Op::Reduce { kind: Reduce::Sum, axes, keep: true }, &[x])?;
    let means = n.add(Op::Scale(1.0 / count.max(1) as f64), &[sums])?;
    let means = rescaled(n, means, &[1], 3)?;
    Ok(vec![with_zero(n, means, 4)?])
}

/// The mean under each position of a window over a quantised operand.
pub(crate) fn average_pool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    n.refuse_attributes(&["channels_last"])?;
    let x = integers(n, 0)?;
    let means = conv::average_of(n, x)?;
    let means = rescaled(n, means, &[1], 3)?;
    Ok(vec![with_zero(n, means, 4)?])
}

/// Quantised operands beside each other.
pub(crate) fn concat(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut parts = vec![];
    for at in (2..n.operands()).step_by(3) {
        let x = integers(n, at)?;
        parts.push(rescaled(n, x, &[at + 1], 0)?);
    }
    let Some(&first) = parts.first() else {
        return Err(n.attributes.error("there are no operands"));
    };
    let axis = n.axis(n.attributes.int("axis", 0), n.dims(first).len(), false)?;
    let all = if parts.len() == 1 { first } else { n.add(Op::Concat(axis), &parts)? };
    Ok(vec![with_zero(n, all, 1)?])
}

/// A product of quantised matrices with a bias of its own scale, quantised again if there is a scale for that.
pub(crate) fn gemm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let a = integers(n, 0)?;
    let b = n.input(3)?;
    let mut b = whole(n, b)?;
    if let Some(zero) = n.optional(5) {
        let zero = if n.dims(zero).iter().product::<usize>() == 1 {
            fixed(n, zero, &[])?
        } else {
            columns(n, zero)?
        };
        b = n.binary_op(Binary::Sub, b, zero)?;
    }
    let op = Op::MatMul {
        transpose_lhs: n.attributes.int("transA", 0) != 0,
        transpose_rhs: n.attributes.int("transB", 0) != 0,
    };
    let mut sums = n.add(op, &[a, b])?;
    if let Some(bias) = n.optional(6) {
        let bias = whole(n, bias)?;
        sums = n.binary_op(Binary::Add, sums, bias)?;
    }
    let own = scale(n, 1)?;
    let other = n.input(4)?;
    n.constant(other, "scales")?;
    let mut factor = n.binary_op(Binary::Mul, own, other)?;
    factor = math::times(n, factor, n.attributes.float("alpha", 1.0))?;
    if n.optional(7).is_none() {
        return Ok(vec![n.binary_op(Binary::Mul, sums, factor)?]);
    }
    let to = scale(n, 7)?;
    factor = n.binary_op(Binary::Div, factor, to)?;
    let parts = n.binary_op(Binary::Mul, sums, factor)?;
    Ok(vec![with_zero(n, parts, 8)?])
}

/// The zeros of the columns of a second operand, which may be stored the other way round.
fn columns(n: &mut Node<'_, '_>, zero: ValueId) -> Result<ValueId> {
    if n.attributes.int("transB", 0) == 0 {
        return Ok(zero);
    }
    let count = n.dims(zero).iter().product();
    fixed(n, zero, &[count, 1])
}

/// Integers of two operands, their scales, and their zeros, as operands' numbers.
pub(super) struct Sides {
    pub values: [usize; 2],
    pub scales: [usize; 2],
    pub zeros: [usize; 2],
}

/// A product of quantised operands as real numbers.
pub(super) fn product_of_integers(n: &mut Node<'_, '_>, sides: &Sides) -> Result<ValueId> {
    let Sides { values, scales, zeros } = sides;
    let x = moved(n, n.input(values[0])?, n.optional(zeros[0]), true)?;
    let w = moved(n, n.input(values[1])?, n.optional(zeros[1]), false)?;
    let sums = math::product_of(n, x, w)?;
    let x = single(n, n.input(scales[0])?)?;
    let w = single(n, n.input(scales[1])?)?;
    let factor = math::scaled(n, x, w)?;
    math::scaled(n, sums, factor)
}

/// A list of one number as that number.
fn single(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    if n.dims(x).iter().product::<usize>() == 1 { fixed(n, x, &[]) } else { Ok(x) }
}

/// The product of integers as real numbers, with a bias.
pub(crate) fn matmul_to_float(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let sides = Sides { values: [0, 1], scales: [2, 3], zeros: [4, 5] };
    let y = product_of_integers(n, &sides)?;
    with_bias(n, y, 6)
}

/// The product of real numbers, which become integers, and integers; with a bias.
pub(crate) fn dynamic_matmul(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let [x, own, zero] = dynamic_of(n, x)?;
    let x = moved(n, x, Some(zero), true)?;
    let w = moved(n, n.input(1)?, n.optional(3), false)?;
    let sums = math::product_of(n, x, w)?;
    let other = single(n, n.input(2)?)?;
    let factor = math::scaled(n, own, other)?;
    let y = math::scaled(n, sums, factor)?;
    with_bias(n, y, 4)
}

fn with_bias(n: &mut Node<'_, '_>, y: ValueId, at: usize) -> Result<Vec<ValueId>> {
    let Some(bias) = n.optional(at) else { return Ok(vec![y]) };
    Ok(vec![n.binary_op(Binary::Add, y, bias)?])
}
