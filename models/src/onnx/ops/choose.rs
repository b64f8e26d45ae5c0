//! Largest elements, and ones at their places.

use nn_layers::{Binary, Dim, HostTensor, Op, Reduce, Unary, ValueId};

use super::shape::{fixed, spread};
use crate::Result;
use crate::onnx::node::Node;

/// The most elements that are taken one after the other.
pub(super) const MAX_TAKEN: i64 = 256;

/// The `k` largest or smallest along an axis and their positions: one comparison of all for each. The element taken is
/// then replaced by a number beyond the other end of its row, whatever numbers the row holds.
pub(crate) fn top(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let k = match n.ints_or_attribute(1, "k")? {
        Some(k) if k.len() == 1 => k[0],
        _ if n.attributes.has("k") => n.attributes.int("k", 1),
        _ => return Err(n.attributes.error("its number of results is missing")),
    };
    let axis = n.axis(n.attributes.int("axis", -1), dims.len(), false)?;
    if k < 1 || k as usize > dims[axis] {
        return Err(n.attributes.error(format!("{k} of {} elements", dims[axis])));
    }
    if n.to.graph.constant_value(x).is_none() && k > MAX_TAKEN {
        return Err(n.unsupported(format!("with k = {k}; {MAX_TAKEN} are the most")));
    }
    let min = n.attributes.int("largest", 1) == 0;
    let kind = if min { Reduce::Min } else { Reduce::Max };
    let last = dims.len() - 1;
    let mut order: Vec<_> = (0..=last).collect();
    order.swap(axis, last);
    let mut left = n.add(Op::Permute(order.clone()), &[x])?;
    let out = if k > 1 { Some(beyond(n, left, min)?) } else { None };
    let (mut values, mut places) = (vec![], vec![]);
    for i in 0..k {
        values.push(n.add(Op::Reduce { kind, axes: vec![last], keep: true }, &[left])?);
        let place = n.add(Op::ArgMax { axis: last, keep: false, min }, &[left])?;
        places.push(n.add(Op::ArgMax { axis: last, keep: true, min }, &[left])?);
        if let Some(out) = out.filter(|_| i + 1 < k) {
            let taken = n.add(Op::OneHot(dims[axis]), &[place])?;
            left = n.add(Op::Where, &[taken, out, left])?;
        }
    }
    let mut joined = vec![];
    for parts in [values, places] {
        let all = if parts.len() == 1 { parts[0] } else { n.add(Op::Concat(last), &parts)? };
        joined.push(n.add(Op::Permute(order.clone()), &[all])?);
    }
    n.to.mark_integer(joined[1]);
    Ok(joined)
}

/// For each row along the last axis a number that its least element exceeds; with `min` one that exceeds its largest.
pub(super) fn beyond(n: &mut Node<'_, '_>, x: ValueId, min: bool) -> Result<ValueId> {
    let axes = vec![n.dims(x).len() - 1];
    let kind = if min { Reduce::Max } else { Reduce::Min };
    let end = n.add(Op::Reduce { kind, axes, keep: true }, &[x])?;
    let one = if n.to.is_integer(x) { n.whole(1)? } else { n.number(1.0) };
    n.binary_op(if min { Binary::Add } else { Binary::Sub }, end, one)
}

/// One number at the positions that the operand names along a new axis, another elsewhere.
pub(crate) fn one_hot(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let at = n.input(0)?;
    let depth = n.constant(n.input(1)?, "numbers of positions")?.single();
    let depth = depth.filter(|d| *d >= 1.0 && *d <= f64::from(1 << 20)).map(|d| d as usize);
    let depth = depth.ok_or_else(|| n.attributes.error("its number of positions is not one"))?;
    let values = n.input(2)?;
    let rank = n.dims(at).len() + 1;
    let axis = n.axis(n.attributes.int("axis", -1), rank, false)?;
    let at = positions(n, at, depth)?;
    let hot = n.add(Op::OneHot(depth), &[at])?;
    let order = (0..rank).map(|i| match i {
        _ if i == axis => rank - 1,
        _ => i - usize::from(i > axis),
    });
    let hot = n.add(Op::Permute(order.collect()), &[hot])?;
    let pick = |n: &mut Node<'_, '_>, i: usize| {
        n.add(Op::Gather { axis: 0, indices: vec![i], squeeze: true }, &[values])
    };
    let (off, on) = (pick(n, 0)?, pick(n, 1)?);
    let step = n.binary_op(Binary::Sub, on, off)?;
    let y = n.binary_op(Binary::Mul, hot, step)?;
    Ok(vec![n.binary_op(Binary::Add, y, off)?])
}

/// Positions along an axis as integers, those below 0 counted from its end.
pub(crate) fn positions(n: &mut Node<'_, '_>, at: ValueId, len: usize) -> Result<ValueId> {
    if let Some(value) = n.to.graph.constant_value(at) {
        let whole = value.floats().iter().map(|&v| v as i64).collect::<Vec<_>>();
        let len = len as i64;
        let positive = whole.iter().map(|&v| if v < 0 { v.saturating_add(len) } else { v });
        let value = HostTensor::integers(value.dims(), positive.collect())?;
        return Ok(n.to.graph.public(n.attributes.name, value));
    }
    let at = if n.to.is_integer(at) { at } else { n.unary(Unary::Floor, at)? };
    let (zero, len) = (n.whole(0)?, n.whole(len as i64)?);
    let negative = n.binary_op(Binary::Less, at, zero)?;
    let turned = n.binary_op(Binary::Mul, negative, len)?;
    n.binary_op(Binary::Add, at, turned)
}

/// 1 at the first of the largest along an axis, 0 elsewhere.
pub(crate) fn hardmax(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let flat = n.to.opset < 13;
    let default = if flat { 1 } else { -1 };
    let axis = n.axis(n.attributes.int("axis", default), dims.len(), flat)?;
    let (rows, axis) = if flat {
        let (rows, row) = (dims[..axis].iter().product(), dims[axis..].iter().product());
        (fixed(n, x, &[rows, row])?, 1)
    } else {
        (x, axis)
    };
    let shape = n.dims(rows);
    let place = n.add(Op::ArgMax { axis, keep: false, min: false }, &[rows])?;
    let hot = n.add(Op::OneHot(shape[axis]), &[place])?;
    let rank = shape.len();
    let order = (0..rank).map(|i| if i == axis { rank - 1 } else { i - usize::from(i > axis) });
    let hot = n.add(Op::Permute(order.collect()), &[hot])?;
    Ok(vec![fixed(n, hot, &dims)?])
}

/// The products of the elements up to each along an axis.
pub(crate) fn running_product(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axis = n.constant(n.input(1)?, "axes")?.single();
    let axis = axis.ok_or_else(|| n.attributes.error("the axis is not one number"))?;
    let axis = n.axis(axis as i64, dims.len(), false)?;
    let len = dims[axis];
    if len as i64 > MAX_TAKEN {
        return Err(n.unsupported(format!("along {len} elements; {MAX_TAKEN} are the most")));
    }
    let backwards = n.attributes.int("reverse", 0) != 0;
    let exclusive = n.attributes.int("exclusive", 0) != 0;
    let one = if n.to.is_integer(x) { n.whole(1)? } else { n.number(1.0) };
    let mut shape = dims.clone();
    shape[axis] = 1;
    let mut product = spread(n, one, shape)?;
    let mut parts = vec![];
    for i in 0..len {
        let start = if backwards { len - 1 - i } else { i };
        let op = Op::Slice { axis, start, end: Dim::Fixed(start + 1), step: 1 };
        let factor = n.add(op, &[x])?;
        let next = if i == 0 { factor } else { n.binary_op(Binary::Mul, product, factor)? };
        parts.push(if exclusive { product } else { next });
        product = next;
    }
    if backwards {
        parts.reverse();
    }
    Ok(vec![if len == 1 { parts[0] } else { n.add(Op::Concat(axis), &parts)? }])
}

/// The largest or smallest position, the last among equals too.
pub(crate) fn arg(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let axis = n.axis(n.attributes.int("axis", 0), n.dims(x).len(), false)?;
    let keep = n.attributes.int("keepdims", 1) != 0;
    let min = n.operator == "ArgMin";
    if n.attributes.int("select_last_index", 0) == 0 {
        return Ok(vec![n.add(Op::ArgMax { axis, keep, min }, &[x])?]);
    }
    let len = n.dims(x)[axis];
    let indices = (0..len).rev().collect();
    let back = n.add(Op::Gather { axis, indices, squeeze: false }, &[x])?;
    let place = n.add(Op::ArgMax { axis, keep, min }, &[back])?;
    let last = n.whole(len as i64 - 1)?;
    Ok(vec![n.binary_op(Binary::Sub, last, place)?])
}
