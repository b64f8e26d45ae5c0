//! Models of tables, from scikit-learn and its like: scalers, encoders and linear models of the domain `ai.onnx.ml`.

use nn_layers::{Binary, HostTensor, Op, Reduce, Unary, ValueId};

use super::shape::fixed;
use super::{math, norm};
use crate::Result;
use crate::onnx::node::Node;
use crate::onnx::value::Value;

/// Numbers of an attribute as a weight of this shape.
pub(crate) fn weight(n: &mut Node<'_, '_>, name: &str, dims: &[usize]) -> Result<ValueId> {
    let values = n.attributes.floats(name).unwrap_or_default();
    let values: Vec<f64> = values.iter().map(|&v| v.into()).collect();
    let wrong = || n.attributes.error(format!("attribute {name} does not fill {dims:?}"));
    let value = HostTensor::new(dims, values).map_err(|_| wrong())?;
    Ok(n.to.graph.weight(&format!("{}.{name}", n.attributes.name), value))
}

/// Rows `[N, features]`.
pub(crate) fn rows(n: &mut Node<'_, '_>) -> Result<(ValueId, [usize; 2])> {
    let x = n.input(0)?;
    match *n.dims(x) {
        [count, features] => Ok((x, [count, features])),
        [features] => Ok((fixed(n, x, &[1, features])?, [1, features])),
        ref dims => Err(n.attributes.error(format!("{dims:?} is no table"))),
    }
}

/// `(x - offset) * scale`.
pub(crate) fn scaler(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut y, _) = rows(n)?;
    for (name, f) in [("offset", Binary::Sub), ("scale", Binary::Mul)] {
        if let Some(values) = n.attributes.floats(name) {
            let by = weight(n, name, &[values.len()])?;
            y = n.binary_op(f, y, by)?;
        }
    }
    Ok(vec![y])
}

/// Rows divided by their largest magnitude, their sum of magnitudes, or their length; rows of zeros stay.
pub(crate) fn normalizer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, _) = rows(n)?;
    let kind = n.attributes.text("norm").unwrap_or("MAX").to_owned();
    let kind = match kind.as_str() {
        "L1" => Reduce::L1,
        "L2" => Reduce::L2,
        "MAX" => {
            let sizes = n.unary(Unary::Abs, x)?;
            let largest = Op::Reduce { kind: Reduce::Max, axes: vec![1], keep: true };
            let largest = n.add(largest, &[sizes])?;
            return Ok(vec![norm::over(n, x, largest)?]);
        }
        other => return Err(n.unsupported(format!("with norm {other}"))),
    };
    Ok(vec![norm::over_length(n, x, 1, kind)?])
}

/// 1 above a threshold, 0 elsewhere.
pub(crate) fn binarizer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let threshold = n.attributes.float("threshold", 0.0);
    let threshold = n.number(threshold);
    Ok(vec![n.binary_op(Binary::Greater, x, threshold)?])
}

/// The elements of the last axis at positions, which may be computed ones.
pub(crate) fn extractor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let dims = n.dims(x);
    let axis = dims.len().saturating_sub(1);
    let len = dims.last().copied().unwrap_or(0);
    if n.to.graph.known(at)?.is_none() {
        return Ok(vec![looked_up(n, x, at)?]);
    }
    let at = n.ints(at, "positions")?;
    let indices = at.iter().map(|&i| n.position(i, len)).collect::<Result<Vec<_>>>()?;
    let y = n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?;
    if dims.len() > 1 {
        return Ok(vec![y]);
    }
    let count = n.dims(y)[0];
    Ok(vec![fixed(n, y, &[1, count])?])
}

/// The elements of a list, or of each row of a table, at computed positions: `[rows, positions]`.
fn looked_up(n: &mut Node<'_, '_>, x: ValueId, at: ValueId) -> Result<ValueId> {
    if !n.to.is_integer(at) {
        return Err(n.attributes.error("its positions are not integers"));
    }
    let dims = n.dims(x);
    let len = dims.last().copied().unwrap_or(0);
    let rows: usize = dims.iter().rev().skip(1).product();
    let count: usize = n.dims(at).iter().product();
    let at = fixed(n, at, &[count])?;
    let table = fixed(n, x, &[rows, len])?;
    let table = n.add(Op::Permute(vec![1, 0]), &[table])?;
    let found = n.add(Op::Lookup, &[table, at])?;
    let found = n.add(Op::Permute(vec![1, 0]), &[found])?;
    fixed(n, found, &[rows, count])
}

/// Replaces one number by another.
pub(crate) fn imputer(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, _) = rows(n)?;
    let replaced = n.attributes.float("replaced_value_float", 0.0);
    if !replaced.is_finite() {
        // Missing values have no encoding, so the operand has none.
        return Ok(vec![x]);
    }
    let count = n.attributes.floats("imputed_value_floats").map_or(0, <[f32]>::len);
    let by = weight(n, "imputed_value_floats", &[count])?;
    let replaced = n.number(replaced);
    let missing = n.binary_op(Binary::Equal, x, replaced)?;
    Ok(vec![n.add(Op::Where, &[missing, by, x])?])
}

/// Tables side by side.
pub(crate) fn feature_vector(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let parts = n.inputs()?;
    Ok(vec![if parts.len() == 1 { parts[0] } else { n.add(Op::Concat(1), &parts)? }])
}

/// Probabilities as a map by label: the probabilities, in the order of the labels.
pub(crate) fn zip_map(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    Ok(vec![n.value(0)])
}

/// The scores after the transformation that the file asks for.
pub(crate) fn transformed(n: &mut Node<'_, '_>, y: ValueId) -> Result<ValueId> {
    match n.attributes.text("post_transform").unwrap_or("NONE") {
        "NONE" | "" => Ok(y),
        "LOGISTIC" => n.unary(Unary::Sigmoid, y),
        "SOFTMAX" => n.add(Op::Softmax { axis: 1, log: false }, &[y]),
        other => Err(n.unsupported(format!("with post_transform {other}"))),
    }
}

/// `x * coefficients^T + intercepts`, a column for each target.
fn linear(n: &mut Node<'_, '_>, targets: usize) -> Result<ValueId> {
    let (x, [_, features]) = rows(n)?;
    let coefficients = weight(n, "coefficients", &[targets, features])?;
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let y = n.add(op, &[x, coefficients])?;
    match n.attributes.floats("intercepts") {
        Some(values) => {
            let intercepts = weight(n, "intercepts", &[values.len()])?;
            n.binary_op(Binary::Add, y, intercepts)
        }
        None => Ok(y),
    }
}

pub(crate) fn linear_regressor(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let targets = usize::try_from(n.attributes.int("targets", 1)).unwrap_or(1);
    let y = linear(n, targets)?;
    Ok(vec![transformed(n, y)?])
}

/// Label and scores. A label that is a text is returned as its position among the labels.
pub(crate) fn linear_classifier(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (_, [_, features]) = rows(n)?;
    let given = n.attributes.floats("coefficients").map_or(0, <[f32]>::len);
    let scores = given / features.max(1);
    let y = linear(n, scores)?;
    labelled(n, y)
}

/// The labels of a classifier: integers, or positions of texts.
pub(crate) fn labels(n: &Node<'_, '_>) -> Vec<i64> {
    let ints = ["classlabels_ints", "classlabels_int64s"];
    let ints = ints.iter().find_map(|name| n.attributes.ints(name));
    let texts = n.attributes.texts("classlabels_strings").map_or(0, |texts| texts.len());
    ints.map_or_else(|| (0..texts as i64).collect(), <[i64]>::to_vec)
}

/// Label and scores, from scores. A single score decides between two classes.
pub(crate) fn labelled(n: &mut Node<'_, '_>, y: ValueId) -> Result<Vec<ValueId>> {
    let labels = labels(n);
    let columns = n.dims(y)[1];
    let (scores, best) = if columns == 1 && labels.len() == 2 {
        let zero = n.number(0.0);
        let second = n.binary_op(Binary::Greater, y, zero)?;
        let y = transformed(n, y)?;
        let other = if n.attributes.text("post_transform") == Some("LOGISTIC") {
            let one = n.number(1.0);
            n.binary_op(Binary::Sub, one, y)?
        } else {
            n.unary(Unary::Neg, y)?
        };
        let count = n.dims(second)[0];
        (n.add(Op::Concat(1), &[other, y])?, fixed(n, second, &[count])?)
    } else {
        if columns != labels.len() {
            let reason = format!("{columns} scores for {} labels", labels.len());
            return Err(n.attributes.error(reason));
        }
        let best = n.add(Op::ArgMax { axis: 1, keep: false, min: false }, &[y])?;
        (transformed(n, y)?, best)
    };
    Ok(vec![named(n, best, &labels)?, scores])
}

/// The labels at positions.
pub(crate) fn named(n: &mut Node<'_, '_>, best: ValueId, labels: &[i64]) -> Result<ValueId> {
    if labels.iter().enumerate().all(|(i, &label)| label == i as i64) {
        return Ok(best);
    }
    let table = HostTensor::ints(labels.to_vec());
    let table = n.to.graph.public(n.attributes.name, table);
    let label = n.add(Op::Lookup, &[table, best])?;
    n.to.mark_integer(label);
    Ok(label)
}

/// A column of 0 and 1 for each category that an element can be; other elements have zeros only.
pub(crate) fn one_hot_encoder(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let categories = n.attributes.ints("cats_int64s").unwrap_or_default().to_vec();
    if categories.is_empty() {
        return Err(n.unsupported("of texts; give categories as integers"));
    }
    let dims = n.dims(x);
    let x = fixed(n, x, &[&dims[..], &[1]].concat())?;
    let categories = n.to.graph.public(n.attributes.name, HostTensor::ints(categories));
    let y = n.binary_op(Binary::Equal, x, categories)?;
    Ok(vec![n.add(Op::Scale(1.0), &[y])?])
}

/// Replaces known numbers by numbers, or by positions of texts.
pub(crate) fn label_encoder(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let keys = listed(n, "keys")?;
    let values = listed(n, "values")?;
    let (Some(keys), Some(values)) = (keys, values) else {
        return Err(n.unsupported("from texts; give labels as integers"));
    };
    if keys.dims() != values.dims() || keys.dims().len() != 1 {
        return Err(n.attributes.error("its keys and values differ in number"));
    }
    let default = if values.is_int() {
        HostTensor::integers([], vec![n.attributes.int("default_int64", -1)])?
    } else {
        HostTensor::scalar(n.attributes.float("default_float", 0.0))
    };
    // The default, and how far each value is from it.
    let base = default.single().unwrap_or(0.0);
    let more = if values.is_int() {
        let ints = values.as_ints()?.iter().map(|v| v - base as i64).collect();
        HostTensor::integers([keys.len(), 1], ints)?
    } else {
        HostTensor::new([keys.len(), 1], values.floats().iter().map(|v| v - base).collect())?
    };
    let dims = n.dims(x);
    let column = fixed(n, x, &[dims.iter().product(), 1])?;
    let keys = number_of(n, keys);
    let found = n.binary_op(Binary::Equal, column, keys)?;
    let more = number_of(n, more);
    let y = math::product(n, found, more)?;
    let default = number_of(n, default);
    let y = n.binary_op(Binary::Add, y, default)?;
    Ok(vec![fixed(n, y, &dims)?])
}

/// A constant of this node: integers belong to the structure, real numbers are weights.
fn number_of(n: &mut Node<'_, '_>, value: HostTensor) -> ValueId {
    let name = n.attributes.name;
    if value.is_int() { n.to.graph.public(name, value) } else { n.to.graph.weight(name, value) }
}

/// A list of numbers in the attribute of one of several types; texts as values are their positions.
fn listed(n: &Node<'_, '_>, name: &str) -> Result<Option<HostTensor>> {
    if let Some(value) = n.attributes.tensor(&format!("{name}_tensor"))? {
        return Ok(Some(value));
    }
    if let Some(ints) = n.attributes.ints(&format!("{name}_int64s")) {
        return Ok(Some(HostTensor::ints(ints.to_vec())));
    }
    if let Some(floats) = n.attributes.floats(&format!("{name}_floats")) {
        let floats: Vec<f64> = floats.iter().map(|&v| v.into()).collect();
        return Ok(Some(HostTensor::new([floats.len()], floats)?));
    }
    let texts = n.attributes.texts(&format!("{name}_strings")).filter(|_| name == "values");
    Ok(texts.map(|texts| HostTensor::ints((0..texts.len() as i64).collect())))
}
