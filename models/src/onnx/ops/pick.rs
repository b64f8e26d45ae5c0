//! Operators that pick elements by positions, or put some in place of others.

use nn_layers::{Binary, Dim, HostTensor, MAX_ELEMENTS, Op, Reduce, ValueId};

use super::shape::{fixed, spread};
use super::{masks, math, places};
use crate::Result;
use crate::onnx::node::Node;

/// The most elements that are combined in one place.
const MAX_PASSES: usize = 64;

pub(crate) fn gather(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let dims = n.dims(x);
    let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
    let Some(indices) = n.to.graph.constant_value(at) else {
        return Ok(vec![places::rows(n, x, at, axis)?]);
    };
    let shape = indices.dims().to_vec();
    let indices = n.ints(at, "positions")?;
    let indices = indices.iter().map(|&i| n.position(i, dims[axis])).collect::<Result<Vec<_>>>()?;
    let to = [&dims[..axis], &shape, &dims[axis + 1..]].concat();
    // Whatever the batch, all positions in their order are the operand itself, ..
    if indices.len() == dims[axis] && indices.iter().enumerate().all(|(i, &at)| i == at) {
        return Ok(vec![fixed(n, x, &to)?]);
    }
    // .. and one row for all positions stays one row.
    if let [first, rest @ ..] = indices.as_slice()
        && shape.len() > 1
        && rest.iter().all(|i| i == first)
    {
        let row = n.add(Op::Gather { axis, indices: vec![*first], squeeze: false }, &[x])?;
        let ones = vec![1; shape.len()];
        let row = fixed(n, row, &[&dims[..axis], &ones, &dims[axis + 1..]].concat())?;
        return Ok(vec![n.add(Op::Broadcast(to.into_iter().map(Dim::Fixed).collect()), &[row])?]);
    }
    let squeeze = shape.is_empty();
    let y = n.add(Op::Gather { axis, indices, squeeze }, &[x])?;
    Ok(vec![if shape.len() < 2 { y } else { fixed(n, y, &to)? }])
}

/// For each element of the positions, the element of `x` at the same place but for one axis.
/// Positions may depend on the input if they lead into a list, or if all elements are the same.
pub(crate) fn gather_elements(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut x, at) = (n.input(0)?, n.input(1)?);
    let (mut dims, to) = (n.dims(x), n.dims(at));
    if n.to.graph.constant_value(at).is_some() {
        let from = elements_at(n, x, at)?;
        return Ok(vec![pick(n, x, &from, &to)?]);
    }
    if dims.len() != to.len() {
        return Err(n.attributes.error(format!("positions of shape {to:?} do not fit {dims:?}")));
    }
    if let Some((one, int)) =
        n.to.graph.public_behind(x).and_then(|t| Some((t.uniform()?, t.is_int())))
    {
        let one =
            if int { HostTensor::integers([], vec![one as i64])? } else { HostTensor::scalar(one) };
        let one = n.to.graph.public(n.attributes.name, one);
        return Ok(vec![spread(n, one, to)?]);
    }
    let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
    if dims.iter().product::<usize>() == dims[axis] {
        let list = fixed(n, x, &[dims[axis]])?;
        return Ok(vec![n.add(Op::Lookup, &[list, at])?]);
    }
    // The sum of all elements along the axis, each times whether it is meant.
    let others = (0..dims.len()).filter(|&a| a != axis);
    for a in others.clone().filter(|&a| dims[a] != to[a]) {
        if to[a] > dims[a] {
            let reason = format!("positions of shape {to:?} do not fit {dims:?}");
            return Err(n.attributes.error(reason));
        }
        x = n.part(x, a, 0, to[a])?;
    }
    dims = n.dims(x);
    let hot = places::ones(n, at, dims[axis])?;
    let last = dims.len() - 1;
    let order: Vec<_> = others.chain([axis]).collect();
    let rows = n.add(Op::Permute(order.clone()), &[x])?;
    let mut spread_to: Vec<_> = order[..last].iter().map(|&a| dims[a]).collect();
    spread_to.extend([1, dims[axis]]);
    let rows = fixed(n, rows, &spread_to)?;
    let mut moved = order.clone();
    moved.push(last + 1);
    let hot = n.add(Op::Permute(moved), &[hot])?;
    let chosen = n.binary_op(Binary::Mul, rows, hot)?;
    let op = Op::Reduce { kind: Reduce::Sum, axes: vec![last + 1], keep: false };
    let sums = n.add(op, &[chosen])?;
    let mut back = vec![0; dims.len()];
    order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    Ok(vec![n.add(Op::Permute(back), &[sums])?])
}

/// For each row of the positions, the part of `x` that it leads to.
pub(crate) fn gather_nd(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let shared = n.attributes.int("batch_dims", 0);
    let shared = usize::try_from(shared)
        .map_err(|_| n.attributes.error(format!("{shared} is no number of batch dimensions")))?;
    if n.to.graph.known(at)?.is_none() {
        return Ok(vec![places::parts(n, x, at, shared)?]);
    }
    let (from, to) = parts_at(n, x, at, shared)?;
    Ok(vec![pick(n, x, &from, &to)?])
}

/// `x` with the elements that [`gather_elements`] would pick replaced by others.
pub(crate) fn scatter_elements(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    if n.to.graph.known(at)?.is_none() {
        let axis = n.axis(n.attributes.int("axis", 0), n.dims(x).len(), false)?;
        let (x, new, f) = replacement(n, x)?;
        return Ok(vec![places::scattered(n, x, at, new, axis, f)?]);
    }
    let (places, dims) = (elements_at(n, x, at)?, n.dims(at));
    replace(n, x, &places, &dims)
}

/// `x` with the parts that [`gather_nd`] would pick replaced by others.
pub(crate) fn scatter_nd(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    if n.to.graph.known(at)?.is_none() {
        let (x, new, f) = replacement(n, x)?;
        return Ok(vec![places::scattered_parts(n, x, at, new, f)?]);
    }
    let (places, dims) = parts_at(n, x, at, 0)?;
    replace(n, x, &places, &dims)
}

/// The places in `x`, counted through all axes, of the elements that positions name: one position
/// along the axis of the attribute for each.
fn elements_at(n: &Node<'_, '_>, x: ValueId, at: ValueId) -> Result<Vec<usize>> {
    let (dims, shape) = (n.dims(x), n.dims(at));
    let positions = n.ints(at, "positions")?;
    let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
    let fits = |(i, (d, s)): (usize, (&usize, &usize))| i == axis || s <= d;
    if shape.len() != dims.len() || !dims.iter().zip(&shape).enumerate().all(fits) {
        let reason = format!("positions of shape {shape:?} do not fit {dims:?}");
        return Err(n.attributes.error(reason));
    }
    let mut places = Vec::with_capacity(positions.len());
    for (i, &position) in positions.iter().enumerate() {
        let position = n.position(position, dims[axis])?;
        let (mut rest, mut place, mut stride) = (i, 0, 1);
        for a in (0..dims.len()).rev() {
            place += stride * if a == axis { position } else { rest % shape[a] };
            rest /= shape[a];
            stride *= dims[a];
        }
        places.push(place);
    }
    Ok(places)
}

/// The places in `x`, counted through all axes, of the elements of the parts that rows of
/// positions lead to, and the shape of all these parts together. A row counts from the axis
/// `shared` on; the axes before are the same in `x` and the positions.
fn parts_at(
    n: &Node<'_, '_>,
    x: ValueId,
    at: ValueId,
    shared: usize,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let (dims, shape) = (n.dims(x), n.dims(at));
    let positions = n.ints(at, "positions")?;
    let wrong = || {
        let reason = format!("positions of shape {shape:?} do not fit {dims:?}");
        n.attributes.error(reason)
    };
    let (&depth, outer) = shape.split_last().ok_or_else(wrong)?;
    if depth == 0 || shared > outer.len() || shared + depth > dims.len() {
        return Err(wrong());
    }
    if dims[..shared] != outer[..shared] {
        return Err(wrong());
    }
    let part: usize = dims[shared + depth..].iter().product();
    let block: usize = dims[shared..].iter().product();
    let to = [outer, &dims[shared + depth..]].concat();
    let len = to.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if len.is_none_or(|l| l > MAX_ELEMENTS) {
        return Err(n.attributes.error("the result is too large"));
    }
    let per_block = outer[shared..].iter().product::<usize>().max(1);
    let mut places = vec![];
    for (i, row) in positions.chunks(depth).enumerate() {
        let mut place = 0;
        for (&position, &d) in row.iter().zip(&dims[shared..]) {
            place = place * d + n.position(position, d)?;
        }
        let start = i / per_block * block + place * part;
        places.extend(start..start + part);
    }
    Ok((places, to))
}

/// The operand and its new elements, whose numbers may mask, and the function that combines both.
fn replacement(n: &mut Node<'_, '_>, mut x: ValueId) -> Result<(ValueId, ValueId, Option<Binary>)> {
    let mut new = n.input(2)?;
    if !math::all_known(n, &[x, new])? {
        (x, new) = (masks::unmasked(n, x)?, masks::unmasked(n, new)?);
    }
    let f = match n.attributes.text("reduction").unwrap_or("none") {
        "none" | "" => None,
        "add" => Some(Binary::Add),
        "mul" => Some(Binary::Mul),
        "max" => Some(Binary::Max),
        "min" => Some(Binary::Min),
        other => return Err(n.unsupported(format!("with reduction {other}"))),
    };
    Ok((x, new, f))
}

/// `x` with the third operand's elements, of shape `dims`, at these places.
fn replace(
    n: &mut Node<'_, '_>,
    x: ValueId,
    places: &[usize],
    dims: &[usize],
) -> Result<Vec<ValueId>> {
    let (x, new, f) = replacement(n, x)?;
    if n.dims(new) != dims {
        let reason = format!("{:?} elements for {dims:?} places", n.dims(new));
        return Err(n.attributes.error(reason));
    }
    if places.is_empty() {
        return Ok(vec![x]);
    }
    let to = n.dims(x);
    let len: usize = to.iter().product();
    if let Some(f) = f {
        return Ok(vec![combined(n, x, new, places, f)?]);
    }
    let mut from: Vec<usize> = (0..len).collect();
    for (i, &place) in places.iter().enumerate() {
        from[place] = len + i;
    }
    let (x, new) = (n.to.graph.written_out(x)?, n.to.graph.written_out(new)?);
    let (x, new) = (fixed(n, x, &[len])?, fixed(n, new, &[places.len()])?);
    let both = n.add(Op::Concat(0), &[x, new])?;
    Ok(vec![pick(n, both, &from, &to)?])
}

/// `x` with other elements added at places, or multiplied, or the larger or smaller of both. Several elements for the
/// same place need one pass each.
fn combined(
    n: &mut Node<'_, '_>,
    x: ValueId,
    new: ValueId,
    places: &[usize],
    f: Binary,
) -> Result<ValueId> {
    let to = n.dims(x);
    let len: usize = to.iter().product();
    let neutral = match f {
        Binary::Mul => Some(1),
        Binary::Add => Some(0),
        _ => None,
    };
    let (x, new) = (n.to.graph.written_out(x)?, n.to.graph.written_out(new)?);
    let mut y = fixed(n, x, &[len])?;
    let new = fixed(n, new, &[places.len()])?;
    let mut left: Vec<usize> = (0..places.len()).collect();
    let mut passes = 0;
    while !left.is_empty() {
        passes += 1;
        if passes > MAX_PASSES {
            return Err(n.unsupported(format!("with a place that more than {MAX_PASSES} come to")));
        }
        // Elements behind those of the first operand are the new ones; at other places nothing changes.
        let (mut from, mut again): (Vec<Option<usize>>, Vec<usize>) = (vec![None; len], vec![]);
        for i in left {
            match from[places[i]] {
                None => from[places[i]] = Some(i),
                Some(_) => again.push(i),
            }
        }
        left = again;
        let other = match neutral {
            Some(value) => {
                let value =
                    if n.to.is_integer(x) { n.whole(value)? } else { n.number(value as f64) };
                let value = fixed(n, value, &[1])?;
                let both = n.add(Op::Concat(0), &[value, new])?;
                let indices = from.iter().map(|i| i.map_or(0, |i| i + 1)).collect();
                n.add(Op::Gather { axis: 0, indices, squeeze: false }, &[both])?
            }
            None => {
                let both = n.add(Op::Concat(0), &[y, new])?;
                let indices = from.iter().enumerate().map(|(k, i)| i.map_or(k, |i| len + i));
                let indices = indices.collect();
                n.add(Op::Gather { axis: 0, indices, squeeze: false }, &[both])?
            }
        };
        y = n.binary_op(f, y, other)?;
    }
    fixed(n, y, &to)
}

/// Slices of a cache replaced by others, from public positions on.
pub(crate) fn tensor_scatter(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, new) = (n.input(0)?, n.input(1)?);
    let (dims, own) = (n.dims(x), n.dims(new));
    let axis = n.axis(n.attributes.int("axis", -2), dims.len(), false)?;
    let same = dims.len() == own.len()
        && axis > 0
        && (0..dims.len()).all(|a| a == axis || dims[a] == own[a])
        && own[axis] <= dims[axis];
    if !same {
        return Err(n.attributes.error(format!("{own:?} do not fit {dims:?}")));
    }
    let starts = match n.optional(2) {
        Some(id) => n.ints(id, "positions")?,
        None => vec![0; dims[0]],
    };
    let circular = n.attributes.text("mode") == Some("circular");
    if starts.len() != dims[0] {
        return Err(n.attributes.error(format!("{} positions for {dims:?}", starts.len())));
    }
    let mut places = vec![];
    for i in 0..own.iter().product::<usize>() {
        let (mut rest, mut place, mut stride, mut row) = (i, 0, 1, 0);
        let mut index = vec![0; own.len()];
        for a in (0..own.len()).rev() {
            index[a] = rest % own[a];
            rest /= own[a];
            row = index[a];
        }
        for a in (0..dims.len()).rev() {
            let mut at = index[a];
            if a == axis {
                let from = starts[row].saturating_add(at as i64);
                let from = if circular { from.rem_euclid(dims[a] as i64) } else { from };
                at = n.position(from, dims[a])?;
            }
            place += stride * at;
            stride *= dims[a];
        }
        places.push(place);
    }
    replace(n, x, &places, &own)
}

/// The elements of `x` at the places `from`, counted through all axes, as a tensor of shape `to`.
/// Leading axes that stay as they are stay out of the positions, so that these do not grow with
/// the batch; rows that stay whole are picked whole.
fn pick(n: &mut Node<'_, '_>, x: ValueId, from: &[usize], to: &[usize]) -> Result<ValueId> {
    let dims = n.dims(x);
    let size = |d: &[usize]| d.iter().product::<usize>();
    let repeats = |lead: usize| {
        let (block, row) = (size(&dims[lead..]), size(&to[lead..]).max(1));
        let shifted = |(i, &f): (usize, &usize)| f == from[i % row] + i / row * block;
        dims[..lead] == to[..lead] && from.iter().enumerate().all(shifted)
    };
    let lead = (0..=dims.len().min(to.len())).rev().find(|&l| repeats(l)).unwrap_or(0);
    let (dims, to_dims) = (&dims[lead..], &to[lead..]);
    let from = &from[..size(to_dims).min(from.len())];
    let whole = |tail: usize| {
        let row = size(&dims[dims.len() - tail..]);
        let start =
            |r: &[usize]| r[0].is_multiple_of(row) && r.iter().zip(r[0]..).all(|(&f, i)| f == i);
        dims[dims.len() - tail..] == to_dims[to_dims.len() - tail..] && from.chunks(row).all(start)
    };
    let most = dims.len().min(to_dims.len());
    let tail = (1..=most).rev().find(|&t| !from.is_empty() && whole(t)).unwrap_or(0);
    let row = size(&dims[dims.len() - tail..]);
    let indices: Vec<_> = from.chunks(row).map(|r| r[0] / row).collect();
    let rows = size(dims) / row;
    if indices.len() == rows && indices.iter().enumerate().all(|(i, &f)| i == f) {
        return fixed(n, x, to);
    }
    let x = fixed(n, x, &[&to[..lead], &[rows, row]].concat())?;
    let y = n.add(Op::Gather { axis: lead, indices, squeeze: false }, &[x])?;
    fixed(n, y, to)
}
