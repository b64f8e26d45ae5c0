//! Operators that move elements, and those that compute with shapes.

use nn_layers::{Binary, Dim, HostTensor, MAX_ELEMENTS, Op, ValueId};

use super::masks;
use crate::Result;
use crate::onnx::node::Node;

/// The most elements of a list that is made from its length alone.
const MAX_MADE: usize = 1 << 24;

pub(crate) fn reshape(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let to = n.ints(n.input(1)?, "shapes")?;
    let dims = n.dims(x);
    let keep_zero = n.attributes.int("allowzero", 0) != 0;
    let dim = |(i, &d): (usize, &i64)| match d {
        -1 => Ok(Dim::Rest),
        0 if !keep_zero => dims.get(i).map(|&d| Dim::Fixed(d)).ok_or(d),
        d => usize::try_from(d).map(Dim::Fixed).map_err(|_| d),
    };
    let to = to.iter().enumerate().map(dim).collect::<Result<Vec<_>, _>>();
    let to = to.map_err(|d| n.attributes.error(format!("{d} is no size for {dims:?}")))?;
    Ok(vec![n.add(Op::Reshape(to), &[x])?])
}

pub(crate) fn flatten(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axis = n.axis(n.attributes.int("axis", 1), dims.len(), true)?;
    let (rows, row) = (dims[..axis].iter().product(), dims[axis..].iter().product());
    Ok(vec![n.add(Op::Reshape(vec![Dim::Fixed(rows), Dim::Fixed(row)]), &[x])?])
}

pub(crate) fn transpose(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = n.dims(x).len();
    let axes = match n.attributes.ints("perm") {
        None => (0..rank).rev().collect(),
        Some(perm) => perm.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?,
    };
    Ok(vec![n.add(Op::Permute(axes), &[x])?])
}

pub(crate) fn squeeze(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let mut dims = n.dims(x);
    let axes = match n.ints_or_attribute(1, "axes")? {
        None => (0..dims.len()).filter(|&i| dims[i] == 1).collect(),
        Some(axes) => {
            axes.iter().map(|&a| n.axis(a, dims.len(), false)).collect::<Result<Vec<_>>>()?
        }
    };
    if let Some(a) = axes.iter().find(|&&a| dims[a] != 1) {
        return Err(n.attributes.error(format!("axis {a} of {dims:?} is not of length 1")));
    }
    let mut i = 0;
    dims.retain(|_| {
        i += 1;
        !axes.contains(&(i - 1))
    });
    Ok(vec![fixed(n, x, &dims)?])
}

pub(crate) fn unsqueeze(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axes =
        n.ints_or_attribute(1, "axes")?.ok_or_else(|| n.attributes.error("axes are missing"))?;
    let mut dims = n.dims(x);
    let rank = dims.len() + axes.len();
    let mut axes = axes.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    for a in axes {
        if a > dims.len() {
            return Err(n.attributes.error("an axis is named twice"));
        }
        dims.insert(a, 1);
    }
    Ok(vec![fixed(n, x, &dims)?])
}

/// A value in another shape.
pub(crate) fn fixed(n: &mut Node<'_, '_>, x: ValueId, dims: &[usize]) -> Result<ValueId> {
    n.add(Op::Reshape(dims.iter().map(|&d| Dim::Fixed(d)).collect()), &[x])
}

pub(crate) fn expand(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let to = n.ints(n.input(1)?, "shapes")?;
    let to = sizes(n, &to)?;
    let common = common(&n.dims(x), &to);
    Ok(vec![spread(n, x, common)?])
}

/// The shape to which tensors of two shapes are broadcast, if they fit.
pub(crate) fn common(x: &[usize], y: &[usize]) -> Vec<usize> {
    let rank = x.len().max(y.len());
    let at = |d: &[usize], i: usize| (i + d.len()).checked_sub(rank).map_or(1, |j| d[j]);
    let pairs = (0..rank).map(|i| (at(x, i), at(y, i)));
    pairs.map(|(a, b)| if a == 1 { b } else { a }).collect()
}

/// A value broadcast to a shape.
pub(crate) fn spread(n: &mut Node<'_, '_>, x: ValueId, dims: Vec<usize>) -> Result<ValueId> {
    if n.dims(x) == dims {
        return Ok(x);
    }
    n.add(Op::Broadcast(dims.into_iter().map(Dim::Fixed).collect()), &[x])
}

pub(crate) fn concat(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let inputs = n.inputs()?;
    let rank = n.dims(n.input(0)?).len();
    let axis = n.axis(n.attributes.int("axis", 0), rank, false)?;
    Ok(vec![if inputs.len() == 1 { inputs[0] } else { n.add(Op::Concat(axis), &inputs)? }])
}

pub(crate) fn split(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
    let lengths = match n.ints_or_attribute(1, "split")? {
        Some(lengths) => sizes(n, &lengths)?,
        None => {
            let outputs = n.attributes.outputs();
            let parts = n.attributes.int("num_outputs", outputs as i64).max(1) as usize;
            if parts > outputs.max(1) {
                return Err(n.attributes.error(format!("{parts} parts, {outputs} are named")));
            }
            let length = dims[axis].div_ceil(parts);
            (0..parts).map(|i| dims[axis].saturating_sub(i * length).min(length)).collect()
        }
    };
    let mut start = 0usize;
    let mut parts = vec![];
    for length in lengths {
        let end = start.saturating_add(length);
        let op = Op::Slice { axis, start, end: Dim::Fixed(end), step: 1 };
        parts.push(n.add(op, &[x])?);
        start = end;
    }
    Ok(parts)
}

pub(crate) fn slice(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    // Before opset 10 these were attributes.
    let list = |i: usize, name: &str| -> Result<Vec<i64>> {
        let found = n.ints_or_attribute(i, name)?;
        found.ok_or_else(|| n.attributes.error(format!("its {name} are missing")))
    };
    let (starts, ends) = (list(1, "starts")?, list(2, "ends")?);
    let rank = n.dims(x).len();
    let axes = n.ints_or_attribute(3, "axes")?;
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = match n.optional(4) {
        Some(id) => n.ints(id, "steps")?,
        None => vec![1; starts.len()],
    };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(n.attributes.error("starts, ends, axes and steps differ in number"));
    }
    for i in 0..starts.len() {
        let axis = n.axis(axes[i], rank, false)?;
        let len = n.dims(x)[axis] as i64;
        let from_end = |v: i64| if v < 0 { v.saturating_add(len) } else { v };
        let (start, end) = (from_end(starts[i]), from_end(ends[i]));
        x = match steps[i] {
            0 => return Err(n.attributes.error("a step is 0")),
            step if step > 0 => {
                let end = end.clamp(0, len) as usize;
                let start = (start.clamp(0, len) as usize).min(end);
                if (start, end, step) == (0, len as usize, 1) {
                    continue;
                }
                let op = Op::Slice { axis, start, end: Dim::Fixed(end), step: step as usize };
                n.add(op, &[x])?
            }
            step => {
                let end = if ends[i] < -len { -1 } else { end.clamp(-1, len - 1) };
                // As onnxruntime: a start before the first element becomes the first.
                let mut at = if len == 0 { -1 } else { start.clamp(0, len - 1) };
                let mut indices = vec![];
                while at > end {
                    indices.push(at as usize);
                    at = at.saturating_add(step);
                }
                n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?
            }
        };
    }
    Ok(vec![x])
}

pub(crate) fn pad(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    let rank = n.dims(x).len();
    // Before opset 11 borders and value were attributes.
    let pads = n.ints_or_attribute(1, "pads")?;
    let mut pads = pads.ok_or_else(|| n.attributes.error("its borders are missing"))?;
    let axes = match n.optional(3) {
        Some(id) => {
            let axes = n.ints(id, "axes")?;
            axes.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?
        }
        None => (0..rank).collect(),
    };
    let most = MAX_ELEMENTS as i64;
    if pads.len() != 2 * axes.len() || pads.iter().any(|&p| !(-most..=most).contains(&p)) {
        return Err(n.attributes.error(format!("borders {pads:?} for {} axes", axes.len())));
    }
    // Negative borders are removed first.
    for (i, &axis) in axes.iter().enumerate() {
        let [before, after] = [i, i + axes.len()].map(|k| pads[k].min(0).unsigned_abs() as usize);
        if before + after == 0 {
            continue;
        }
        let len = n.dims(x)[axis];
        let end = len.checked_sub(after).filter(|end| before <= *end);
        let end =
            end.ok_or_else(|| n.attributes.error(format!("borders {pads:?} take too much")))?;
        x = n.add(Op::Slice { axis, start: before, end: Dim::Fixed(end), step: 1 }, &[x])?;
    }
    pads.iter_mut().for_each(|p| *p = (*p).max(0));
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, &axis) in axes.iter().enumerate() {
        before[axis] = pads[i] as usize;
        after[axis] = pads[i + axes.len()] as usize;
    }
    match n.attributes.text("mode").unwrap_or("constant") {
        "constant" | "" => {
            let value = match n.optional(2) {
                Some(id) => n.constant(id, "values")?.single().unwrap_or(0.0),
                None => n.attributes.float("value", 0.0),
            };
            // Values that reach a softmax are hidden by a number that has an encoding.
            let known = n.to.graph.known(x)?.is_some();
            let value = if known { value } else { masks::unmasked_number(n.score, value) };
            Ok(vec![bordered(n, x, before, after, value)?])
        }
        mode @ ("edge" | "reflect" | "wrap") => {
            let mode = mode.to_owned();
            mirrored(n, x, &before, &after, &mode)
        }
        mode => Err(n.unsupported(format!("in mode {mode}"))),
    }
}

/// A border of a number; of known values it may be infinite.
fn bordered(
    n: &mut Node<'_, '_>,
    x: ValueId,
    before: Vec<usize>,
    after: Vec<usize>,
    value: f64,
) -> Result<ValueId> {
    if value.is_finite() {
        let x = n.for_number(x, value)?;
        return n.add(Op::Pad { before, after, value }, &[x]);
    }
    let Some(known) = n.to.graph.known(x)? else {
        return Err(n.unsupported(format!("with a border of {value}")));
    };
    let border = Op::Pad { before, after, value: 1.0 };
    let inside = n.to.graph.public(n.attributes.name, known.map(|_| 0.0));
    let outside = n.add(border.clone(), &[inside])?;
    let Op::Pad { before, after, .. } = border else { return Ok(outside) };
    let shown = n.add(Op::Pad { before, after, value: 0.0 }, &[x])?;
    let far = n.number(value);
    n.add(Op::Where, &[outside, far, shown])
}

/// A border of copies of the inner elements.
fn mirrored(
    n: &mut Node<'_, '_>,
    x: ValueId,
    before: &[usize],
    after: &[usize],
    mode: &str,
) -> Result<Vec<ValueId>> {
    let (edge, wrap) = (mode == "edge", mode == "wrap");
    let mut y = x;
    for axis in 0..before.len() {
        let (len, b, a) = (n.dims(y)[axis], before[axis], after[axis]);
        if b == 0 && a == 0 {
            continue;
        }
        let reflects = !edge && !wrap;
        if len == 0 || (reflects && (b >= len || a >= len)) || b.max(a) > MAX_MADE {
            return Err(n.attributes.error(format!("axis {axis} of length {len} is too short")));
        }
        let place = |i: usize| match (i < b, i >= b + len) {
            _ if wrap => (i + len - b % len) % len,
            (true, _) if edge => 0,
            (true, _) => b - i,
            (_, true) if edge => len - 1,
            (_, true) => 2 * len + b - 2 - i,
            _ => i - b,
        };
        let indices = (0..len + b + a).map(place).collect();
        y = n.add(Op::Gather { axis, indices, squeeze: false }, &[y])?;
    }
    Ok(vec![y])
}

pub(crate) fn tile(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut x = n.input(0)?;
    let repeats = n.ints(n.input(1)?, "numbers of repeats")?;
    let repeats = sizes(n, &repeats)?;
    if repeats.len() != n.dims(x).len() {
        return Err(n.attributes.error(format!("{repeats:?} repeats for {:?}", n.dims(x))));
    }
    for (axis, &times) in repeats.iter().enumerate().filter(|(_, t)| **t != 1) {
        let len = n.dims(x)[axis];
        if len.checked_mul(times).is_none_or(|l| l > MAX_ELEMENTS) {
            return Err(n.attributes.error("the result is too large"));
        }
        let indices = (0..len * times).map(|i| i % len).collect();
        x = n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?;
    }
    Ok(vec![x])
}

/// The upper or lower triangle of matrices, zeros elsewhere.
pub(crate) fn trilu(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let offset = match n.optional(1) {
        Some(id) => n.constant(id, "offsets")?.single().unwrap_or(0.0) as i64,
        None => 0,
    };
    let upper = n.attributes.int("upper", 1) != 0;
    let &[.., rows, columns] = n.dims(x).as_slice() else {
        return Err(n.attributes.error("the operand is no matrix"));
    };
    let stays = |i: usize| {
        let (row, column) = ((i / columns % rows) as i64, (i % columns) as i64);
        let diagonal = row.saturating_add(offset);
        if upper { column >= diagonal } else { column <= diagonal }
    };
    let name = n.attributes.name;
    let Some(value) = n.to.graph.constant_value(x) else {
        let mask = (0..rows * columns).map(|i| i64::from(stays(i))).collect();
        let mask = n.to.graph.public(name, HostTensor::integers([rows, columns], mask)?);
        return Ok(vec![n.binary_op(Binary::Mul, x, mask)?]);
    };
    // Not by a product: the removed elements may be infinite.
    let dims = value.dims();
    let part = match value.as_ints() {
        Ok(ints) => {
            let kept = ints.iter().enumerate().map(|(i, &v)| if stays(i) { v } else { 0 });
            HostTensor::integers(dims, kept.collect())?
        }
        Err(_) => {
            let floats = value.floats();
            let kept = floats.iter().enumerate().map(|(i, &v)| if stays(i) { v } else { 0.0 });
            HostTensor::new(dims, kept.collect())?
        }
    };
    let secret = n.to.graph.is_secret(x);
    Ok(vec![if secret { n.to.graph.weight(name, part) } else { n.to.graph.public(name, part) }])
}

pub(crate) fn shape(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let dims = n.dims(n.input(0)?);
    let bound = |name: &str, default: i64| {
        let v = n.attributes.int(name, default);
        let v = if v < 0 { v + dims.len() as i64 } else { v };
        v.clamp(0, dims.len() as i64) as usize
    };
    let (start, end) = (bound("start", 0), bound("end", dims.len() as i64));
    let part = dims.get(start..end).unwrap_or_default();
    let value = HostTensor::ints(part.iter().map(|&d| d as i64).collect());
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

pub(crate) fn size(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let len = n.dims(n.input(0)?).iter().product::<usize>() as i64;
    let value = HostTensor::integers([], vec![len])?;
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

pub(crate) fn range(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut bounds = vec![];
    let mut whole = true;
    for i in 0..3 {
        let value = n.constant(n.input(i)?, "bounds")?;
        whole &= value.is_int();
        bounds.push(value.single().ok_or_else(|| n.attributes.error("a bound is not one number"))?);
    }
    let (start, step) = (bounds[0], bounds[2]);
    let count = ((bounds[1] - start) / step).ceil().max(0.0);
    // A step of 0 gives infinity or NaN here.
    let valid = count.is_finite() && count <= MAX_MADE as f64;
    if !valid {
        return Err(n.attributes.error(format!("bounds {bounds:?}")));
    }
    let values = (0..count as usize).map(|i| start + i as f64 * step);
    let value = if whole {
        HostTensor::ints(values.map(|v| v as i64).collect())
    } else {
        HostTensor::new([count as usize], values.collect())?
    };
    Ok(vec![n.to.graph.public(n.attributes.name, value)])
}

pub(crate) fn constant(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let a = &n.attributes;
    let value = if let Some(t) = a.tensor("value")? {
        t
    } else if let Some(v) = a.floats("value_floats") {
        HostTensor::new([v.len()], v.iter().map(|&f| f.into()).collect())?
    } else if let Some(v) = a.ints("value_ints") {
        HostTensor::ints(v.to_vec())
    } else if a.has("value_float") {
        HostTensor::scalar(a.float("value_float", 0.0))
    } else if a.has("value_int") {
        HostTensor::integers([], vec![a.int("value_int", 0)])?
    } else {
        return Err(n.unsupported("without a number or a tensor of numbers"));
    };
    // A single number in the graph is part of the structure; larger ones may be weights.
    let public = value.is_int() || value.len() == 1;
    let name = n.attributes.name;
    Ok(vec![if public { n.to.graph.public(name, value) } else { n.to.graph.weight(name, value) }])
}

pub(crate) fn constant_of_shape(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let dims = n.ints(n.input(0)?, "shapes")?;
    let dims = sizes(n, &dims)?;
    let value = n.attributes.tensor("value")?.unwrap_or_else(|| HostTensor::scalar(0.0));
    let value = value.reshape([]).map_err(|_| n.attributes.error("its value is not one number"))?;
    let len = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if len.is_none_or(|l| l > MAX_ELEMENTS) {
        return Err(n.attributes.error(format!("shape {dims:?} is too large")));
    }
    let one = n.to.graph.public(n.attributes.name, value);
    Ok(vec![n.add(Op::Broadcast(dims.into_iter().map(Dim::Fixed).collect()), &[one])?])
}

/// Sizes that are not negative.
fn sizes(n: &Node<'_, '_>, ints: &[i64]) -> Result<Vec<usize>> {
    let sizes = ints.iter().map(|&i| usize::try_from(i)).collect::<Result<Vec<_>, _>>();
    sizes.map_err(|_| n.attributes.error(format!("{ints:?} are no sizes")))
}
