//! Fused operators as onnxruntime's optimiser writes them into files, of the domain `com.microsoft`.

pub(crate) mod attention;
pub(crate) mod quantised;

use nn_layers::{Binary, Centre, Dim, HostTensor, Op, Reduce, Unary, ValueId};

use super::attention::rows_at;
use super::{conv, math, norm};
use crate::Result;
use crate::onnx::node::Node;

/// `gelu(x + bias)`, by the error function or by a hyperbolic tangent.
pub(crate) fn gelu(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    if n.operator == "BiasGelu" || n.optional(1).is_some() {
        let bias = n.input(1)?;
        x = n.binary_op(Binary::Add, x, bias)?;
    }
    let f = if n.operator == "FastGelu" { Unary::GeluTanh } else { Unary::Gelu };
    Ok(vec![n.unary(f, x)?])
}

/// `x * sigmoid(alpha * x)`.
pub(crate) fn quick_gelu(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let alpha = n.attributes.float("alpha", f64::from(1.702f32));
    let gate = math::times(n, x, alpha)?;
    let gate = n.unary(Unary::Sigmoid, gate)?;
    Ok(vec![n.binary_op(Binary::Mul, x, gate)?])
}

/// `alpha * a * b` of matrices that may be stored the other way round.
pub(crate) fn fused_matmul(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut sides = [n.input(0)?, n.input(1)?];
    for (side, [batch, inner]) in
        sides.iter_mut().zip([["transBatchA", "transA"], ["transBatchB", "transB"]])
    {
        let rank = n.dims(*side).len();
        let mut order: Vec<_> = (0..rank).collect();
        // The first axis is the matrix's, and those of the batch follow it.
        if n.attributes.int(batch, 0) != 0 && rank > 2 {
            order[..rank - 1].rotate_left(1);
        }
        if n.attributes.int(inner, 0) != 0 && rank > 1 {
            order.swap(rank - 2, rank - 1);
        }
        if !order.is_sorted() {
            *side = n.add(Op::Permute(order), &[*side])?;
        }
    }
    let y = math::product_of(n, sides[0], sides[1])?;
    let alpha = n.attributes.float("alpha", 1.0);
    Ok(vec![math::times(n, y, alpha)?])
}

/// A product of matrices with a bias, and a function of its elements.
pub(crate) fn fused_gemm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let y = math::gemm(n)?[0];
    let parameters = ["activation_alpha", "activation_beta", "activation_gamma"]
        .map(|name| n.attributes.has(name).then(|| n.attributes.float(name, 0.0)));
    Ok(vec![activated(n, y, parameters)?])
}

/// A convolution with a bias and another summand, and a function of its elements.
pub(crate) fn fused_conv(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut y = conv::conv(n)?[0];
    if let Some(other) = n.optional(3) {
        y = n.binary_op(Binary::Add, y, other)?;
    }
    let given = n.attributes.floats("activation_params").unwrap_or_default();
    let parameters = [0, 1, 2].map(|i| given.get(i).map(|&v| f64::from(v)));
    Ok(vec![activated(n, y, parameters)?])
}

/// The function that an attribute names, with its parameters.
fn activated(n: &mut Node<'_, '_>, x: ValueId, parameters: [Option<f64>; 3]) -> Result<ValueId> {
    let name = n.attributes.text("activation").unwrap_or_default().to_owned();
    let or = |i: usize, default: f64| parameters[i].unwrap_or(default);
    let f = match name.as_str() {
        "" => return Ok(x),
        "Relu" => Unary::Relu,
        "Tanh" => Unary::Tanh,
        "Sigmoid" => Unary::Sigmoid,
        "Softplus" => Unary::Softplus,
        "Softsign" => Unary::Softsign,
        "LeakyRelu" => Unary::LeakyRelu(or(0, 0.01)),
        "Elu" => Unary::Elu(or(0, 1.0)),
        "HardSigmoid" => Unary::HardSigmoid(or(0, 0.2), or(1, 0.5)),
        "HardSwish" => Unary::HardSwish,
        "Clip" => {
            let limit = |value: Option<f64>| value.filter(|v| v.abs() < 1e30);
            Unary::Clip(limit(parameters[0]), limit(parameters[1]))
        }
        other => return Err(n.unsupported(format!("with activation {other}"))),
    };
    n.unary(f, x)
}

/// Normalised rows of a sum; the sum itself is result 3.
pub(crate) fn skip_norm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, skip) = (n.input(0)?, n.input(1)?);
    let mut sum = n.binary_op(Binary::Add, x, skip)?;
    let simple = n.operator == "SkipSimplifiedLayerNormalization";
    if let Some(bias) = n.optional(if simple { 3 } else { 4 }) {
        sum = n.binary_op(Binary::Add, sum, bias)?;
    }
    let axis = n.axis(-1, n.dims(sum).len(), false)?;
    let scale = n.input(2)?;
    let results = if simple {
        let epsilon = n.attributes.float("epsilon", 1e-12);
        by_root_mean_square(n, sum, axis, epsilon, scale)?
    } else {
        let epsilon = n.attributes.float("epsilon", 1e-12);
        let shift = n.optional(3);
        norm::over_rows(n, sum, axis, epsilon, [Some(scale), shift])?
    };
    if !n.reads(3) {
        return Ok(results);
    }
    match *results.as_slice() {
        [y, mean, inverse] => Ok(vec![y, mean, inverse, sum]),
        // Results 1 and 2 have no names.
        _ => Ok(vec![results[0], sum, sum, sum]),
    }
}

/// Rows over the root of their mean square; their inverse deviations are result 1.
pub(crate) fn simple_norm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", -1), n.dims(x).len(), false)?;
    let epsilon = n.attributes.float("epsilon", 1e-5);
    let scale = n.input(1)?;
    let results = by_root_mean_square(n, x, axis, epsilon, scale)?;
    Ok(match *results.as_slice() {
        [y, _, inverse] => vec![y, inverse],
        _ => results,
    })
}

/// The normalised rows; where results 1 or 2 have names, a place for the mean and the inverse deviations follow.
fn by_root_mean_square(
    n: &mut Node<'_, '_>,
    x: ValueId,
    axis: usize,
    epsilon: f64,
    scale: ValueId,
) -> Result<Vec<ValueId>> {
    let y = norm::by_root_mean_square(n, x, axis, epsilon)?;
    let y = n.binary_op(Binary::Mul, y, scale)?;
    if !n.reads(1) && !n.reads(2) {
        return Ok(vec![y]);
    }
    let axes = (axis..n.dims(x).len()).collect();
    let squares = n.binary_op(Binary::Mul, x, x)?;
    let mean = n.add(Op::Reduce { kind: Reduce::Mean, axes, keep: true }, &[squares])?;
    let epsilon = n.number(epsilon);
    let sum = n.binary_op(Binary::Add, mean, epsilon)?;
    let inverse = n.unary(Unary::InvSqrt, sum)?;
    Ok(vec![y, inverse, inverse])
}

/// The sum of three embeddings, normalised; the number of unmasked tokens and the sum itself are results 1 and 2.
pub(crate) fn embedding_norm(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let ids = n.input(0)?;
    let &[batch, length] = n.dims(ids).as_slice() else {
        return Err(n.attributes.error(format!("{:?} is not [batch, length]", n.dims(ids))));
    };
    let word = n.input(2)?;
    let mut sum = rows_at(n, word, ids)?;
    let table = n.input(3)?;
    let places = match n.optional(8) {
        Some(at) => rows_at(n, table, at)?,
        None if length <= n.dims(table)[0] => {
            n.add(Op::Slice { axis: 0, start: 0, end: Dim::Fixed(length), step: 1 }, &[table])?
        }
        None => {
            let rows = n.dims(table)[0];
            return Err(n.attributes.error(format!("{length} tokens, and {rows} positions")));
        }
    };
    sum = n.binary_op(Binary::Add, sum, places)?;
    if let (Some(at), Some(table)) = (n.optional(1), n.optional(4)) {
        let segments = rows_at(n, table, at)?;
        sum = n.binary_op(Binary::Add, sum, segments)?;
    }
    let epsilon = n.attributes.float("epsilon", 1e-12);
    let mut y = n.add(Op::Normalize { axis: 2, centre: Centre::Mean, epsilon }, &[sum])?;
    let (scale, shift) = (n.input(5)?, n.input(6)?);
    y = n.binary_op(Binary::Mul, y, scale)?;
    y = n.binary_op(Binary::Add, y, shift)?;
    let counts = match n.optional(7) {
        Some(mask) => {
            let one = n.whole(1)?;
            let counts = n.binary_op(Binary::Equal, mask, one)?;
            n.add(Op::Reduce { kind: Reduce::Sum, axes: vec![1], keep: false }, &[counts])?
        }
        None => {
            let none = HostTensor::integers([batch], vec![0; batch])?;
            n.to.graph.public(n.attributes.name, none)
        }
    };
    Ok(vec![y, counts, sum])
}
