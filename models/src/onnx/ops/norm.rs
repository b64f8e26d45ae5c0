//! Normalisations.

use nn_layers::{BatchNorm, Binary, Centre, Dim, Op, Reduce, Unary, ValueId};

use super::math;
use super::shape::{self, spread};
use crate::Result;
use crate::onnx::node::Node;

pub(crate) fn batch(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let training = n.attributes.int("training_mode", 0) != 0 && !n.to.is_trained();
    let own = training && n.to.graph.known(x)?.is_some();
    if training && !own {
        return Err(n.unsupported("in training mode; export the model in evaluation mode"));
    }
    let mut parameters = [n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?];
    let lengths = parameters.map(|id| n.dims(id));
    if lengths.iter().any(|dims| *dims != lengths[0]) {
        return Err(n.attributes.error("the parameters have different lengths"));
    }
    let epsilon = n.attributes.float("epsilon", 1e-5);
    // ONNX states the part that stays.
    let stays = n.attributes.float("momentum", 0.9);
    if own {
        return by_own_moments(n, x, &parameters, epsilon, stays);
    }
    if !math::all_known(n, &parameters)? {
        let y = by_moments(n, x, &parameters, epsilon)?;
        return Ok(vec![y, parameters[2], parameters[3]]);
    }
    for parameter in &mut parameters {
        *parameter = n.to.graph.written_out(*parameter)?;
    }
    let [scale, shift, mean, variance] = parameters;
    let norm = BatchNorm { epsilon, momentum: 1.0 - stays };
    let y = n.add(Op::BatchNorm(norm), &[x, scale, shift, mean, variance])?;
    // A model in training mode gives its running statistics as well, which only training changes.
    Ok(vec![y, mean, variance])
}

/// Normalised by parameters of which some are computed.
fn by_moments(
    n: &mut Node<'_, '_>,
    x: ValueId,
    parameters: &[ValueId; 4],
    epsilon: f64,
) -> Result<ValueId> {
    let mut dims = vec![1; n.dims(x).len().saturating_sub(1)];
    if let Some(first) = dims.first_mut() {
        *first = n.dims(parameters[0]).iter().product();
    }
    let mut shaped = *parameters;
    for parameter in &mut shaped {
        *parameter = shape::fixed(n, *parameter, &dims)?;
    }
    let [scale, shift, mean, variance] = shaped;
    let epsilon = n.number(epsilon);
    let sum = n.binary_op(Binary::Add, variance, epsilon)?;
    let inverse = n.unary(Unary::InvSqrt, sum)?;
    let factor = n.binary_op(Binary::Mul, inverse, scale)?;
    let off = n.binary_op(Binary::Sub, x, mean)?;
    let y = n.binary_op(Binary::Mul, off, factor)?;
    n.binary_op(Binary::Add, y, shift)
}

/// Constants normalised by their own mean and variance, as networks standardise their weights.
fn by_own_moments(
    n: &mut Node<'_, '_>,
    x: ValueId,
    &[scale, shift, mean, variance]: &[ValueId; 4],
    epsilon: f64,
    stays: f64,
) -> Result<Vec<ValueId>> {
    let x = n.to.graph.written_out(x)?;
    let axes: Vec<_> = (0..n.dims(x).len()).filter(|&a| a != 1).collect();
    let kind = Reduce::Mean;
    let own_mean = n.add(Op::Reduce { kind, axes: axes.clone(), keep: true }, &[x])?;
    let off = n.binary_op(Binary::Sub, x, own_mean)?;
    let squares = n.binary_op(Binary::Mul, off, off)?;
    let own_variance = n.add(Op::Reduce { kind, axes, keep: true }, &[squares])?;
    let length = n.dims(scale);
    let own = [shape::fixed(n, own_mean, &length)?, shape::fixed(n, own_variance, &length)?];
    let y = by_moments(n, x, &[scale, shift, own[0], own[1]], epsilon)?;
    let mut results = vec![y];
    for (running, own) in [mean, variance].into_iter().zip(own) {
        let (old, new) = (math::times(n, running, stays)?, math::times(n, own, 1.0 - stays)?);
        results.push(n.binary_op(Binary::Add, old, new)?);
    }
    Ok(results)
}

/// Nothing but in training.
pub(crate) fn dropout(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let part = match n.optional(1) {
        Some(part) => n.constant(part, "a ratio")?.single(),
        None => Some(n.attributes.float("ratio", 0.5)),
    };
    let part = part.ok_or_else(|| n.attributes.error("the ratio is not one number"))?;
    let trains = match n.optional(2) {
        Some(mode) => n.constant(mode, "modes")?.single() != Some(0.0),
        None => false,
    };
    if trains && part != 0.0 && !n.to.is_trained() {
        return Err(n.unsupported("in training mode; export the model in evaluation mode"));
    }
    let dims = n.dims(x);
    let y = n.add(Op::Dropout(part), &[x])?;
    let all = n.whole(1)?;
    let all = if n.reads(1) { spread(n, all, dims)? } else { all };
    Ok(vec![y, all])
}

pub(crate) fn layer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1), n.dims(x).len(), false)?;
    let epsilon = n.attributes.float("epsilon", 1e-5);
    let scale = n.input(1)?;
    let shift = n.optional(2);
    over_rows(n, x, axis, epsilon, [Some(scale), shift])
}

/// Rows from an axis on with mean 0 and variance 1, scaled and shifted. Their means and inverse deviations follow where
/// results 1 and 2 have names.
pub(super) fn over_rows(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    epsilon: f64,
    [scale, shift]: [Option<ValueId>; 2],
) -> Result<Vec<ValueId>> {
    let mut y = n.add(Op::Normalize { axis, centre: Centre::Mean, epsilon }, &[x])?;
    if let Some(scale) = scale {
        y = n.binary_op(Binary::Mul, y, scale)?;
    }
    if let Some(shift) = shift {
        y = n.binary_op(Binary::Add, y, shift)?;
    }
    if !n.reads(1) && !n.reads(2) {
        return Ok(vec![y]);
    }
    let axes: Vec<_> = (axis..n.dims(x).len()).collect();
    let mean = Op::Reduce { kind: Reduce::Mean, axes: axes.clone(), keep: true };
    let mean = n.add(mean, &[x])?;
    let off = n.binary_op(Binary::Sub, x, mean)?;
    let squares = n.binary_op(Binary::Mul, off, off)?;
    let variance = n.add(Op::Reduce { kind: Reduce::Mean, axes, keep: true }, &[squares])?;
    let epsilon = n.number(epsilon);
    let variance = n.binary_op(Binary::Add, variance, epsilon)?;
    Ok(vec![y, mean, n.unary(Unary::InvSqrt, variance)?])
}

/// `x / sqrt(mean(x^2) + epsilon)`, scaled.
pub(crate) fn root_mean_square(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1), n.dims(x).len(), false)?;
    let epsilon = n.attributes.float("epsilon", 1e-5);
    let y = by_root_mean_square(n, x, axis, epsilon)?;
    let scale = n.input(1)?;
    Ok(vec![n.binary_op(Binary::Mul, y, scale)?])
}

/// `x / sqrt(mean(x^2) + epsilon)`.
pub(super) fn by_root_mean_square(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    epsilon: f64,
) -> Result<ValueId> {
    n.add(Op::Normalize { axis, centre: Centre::Zero, epsilon }, &[x])
}

/// Divided by the sum of magnitudes along an axis, or by the root of that of squares; 0 where that is 0.
pub(crate) fn by_length(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1), n.dims(x).len(), false)?;
    let kind = match n.attributes.int("p", 2) {
        1 => Reduce::L1,
        2 => Reduce::L2,
        p => return Err(n.attributes.error(format!("p is {p}; it is 1 or 2"))),
    };
    Ok(vec![over_length(n, x, axis, kind)?])
}

/// The least length that is divided by. It is below the unit of fixed point: rows of zeros stay 0, and nothing else
/// changes.
const LEAST: f64 = 1e-12;

/// A value divided by lengths along an axis; 0 where a length is 0.
pub(crate) fn over_length(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    kind: Reduce,
) -> Result<ValueId> {
    let length = n.add(Op::Reduce { kind, axes: vec![axis], keep: true }, &[x])?;
    // Planning knows this form, and makes a normalisation of it.
    if kind == Reduce::L2 {
        let length = n.unary(Unary::Clip(Some(LEAST), None), length)?;
        return n.binary_op(Binary::Div, x, length);
    }
    over(n, x, length)
}

/// A quotient; the numerator where the denominator is 0.
pub(crate) fn over(n: &mut Node<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId> {
    let zero = n.number(0.0);
    let none = n.binary_op(Binary::Equal, y, zero)?;
    let y = n.binary_op(Binary::Add, y, none)?;
    n.binary_op(Binary::Div, x, y)
}

/// Mean 0 and variance 1 over the axes of an attribute.
pub(crate) fn mean_variance(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axes = n.attributes.ints("axes").unwrap_or(&[0, 2, 3]).to_vec();
    let axes = axes.iter().map(|&a| n.axis(a, dims.len(), false)).collect::<Result<Vec<_>>>()?;
    let kept: Vec<_> = (0..dims.len()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<_> = kept.iter().chain(&axes).copied().collect();
    let moved = n.add(Op::Permute(order.clone()), &[x])?;
    let op = Op::Normalize { axis: kept.len(), centre: Centre::Mean, epsilon: 1e-9 };
    let y = n.add(op, &[moved])?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    Ok(vec![n.add(Op::Permute(back), &[y])?])
}

pub(crate) fn instance(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let epsilon = n.attributes.float("epsilon", 1e-5);
    let y = n.add(Op::Normalize { axis: 2, centre: Centre::Mean, epsilon }, &[x])?;
    by_channel(n, y)
}

pub(crate) fn group(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let groups = usize::try_from(n.attributes.int("num_groups", 0)).unwrap_or(0);
    if dims.len() < 2 || groups == 0 || !dims[1].is_multiple_of(groups) {
        return Err(n.attributes.error(format!("{groups} groups do not divide {dims:?}")));
    }
    let split = vec![Dim::Fixed(dims[0]), Dim::Fixed(groups), Dim::Rest];
    let rows = n.add(Op::Reshape(split), &[x])?;
    let epsilon = n.attributes.float("epsilon", 1e-5);
    let y = n.add(Op::Normalize { axis: 2, centre: Centre::Mean, epsilon }, &[rows])?;
    let y = n.add(Op::Reshape(dims.iter().map(|&d| Dim::Fixed(d)).collect()), &[y])?;
    if n.to.opset < 21 && n.dims(n.input(1)?) == [groups] && groups != dims[1] {
        return Err(n.unsupported("with one scale for each group"));
    }
    by_channel(n, y)
}

/// Scale and shift, operands 1 and 2, by channel. Under their new shape the weights keep their names.
fn by_channel(n: &mut Node<'_, '_>, y: ValueId) -> Result<Vec<ValueId>> {
    let mut dims = vec![Dim::Fixed(1); n.dims(y).len().saturating_sub(1)];
    if let Some(first) = dims.first_mut() {
        *first = Dim::Rest;
    }
    let scale = n.input(1)?;
    let scale = n.add(Op::Reshape(dims.clone()), &[scale])?;
    let shift = n.input(2)?;
    let shift = n.add(Op::Reshape(dims), &[shift])?;
    let y = n.binary_op(Binary::Mul, y, scale)?;
    Ok(vec![n.binary_op(Binary::Add, y, shift)?])
}

pub(crate) fn lrn(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let size = n.attributes.int("size", 0);
    let op = Op::Lrn {
        size: usize::try_from(size).map_err(|_| n.attributes.error(format!("size {size}")))?,
        alpha: n.attributes.float("alpha", 1e-4),
        beta: n.attributes.float("beta", 0.75),
        bias: n.attributes.float("bias", 1.0),
    };
    Ok(vec![n.add(op, &[x])?])
}
