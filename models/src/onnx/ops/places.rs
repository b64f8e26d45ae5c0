//! Elements at positions that depend on the input: products with ones at their places.

use nn_layers::{Binary, HostTensor, Op, Pool, Reduce, ValueId};

use super::choose::positions;
use super::conv::Pooled;
use super::math;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// The most elements that are replaced one after the other.
const MAX_REPLACED: usize = 64;

/// The most ones and zeros in all.
const MAX_HOT: usize = 1 << 24;

/// Rows of an axis at positions, which are looked up.
pub(super) fn rows(n: &mut Node<'_, '_>, x: ValueId, at: ValueId, axis: usize) -> Result<ValueId> {
    let rank = n.dims(x).len();
    if axis == 0 {
        return n.add(Op::Lookup, &[x, at]);
    }
    let own = n.dims(at).len();
    let order = [&[axis], (0..axis).collect::<Vec<_>>().as_slice()].concat();
    let order = order.into_iter().chain(axis + 1..rank).collect();
    let table = n.add(Op::Permute(order), &[x])?;
    let found = n.add(Op::Lookup, &[table, at])?;
    let back = (own..own + axis).chain(0..own).chain(own + axis..own + rank - 1);
    n.add(Op::Permute(back.collect()), &[found])
}

/// 1 at each position along a new last axis of this length, 0 elsewhere. A position outside leads into a table of one
/// row, where it is found as any position outside of a table.
pub(super) fn ones(n: &mut Node<'_, '_>, at: ValueId, len: usize) -> Result<ValueId> {
    let at = positions(n, at, len)?;
    let hot = n.add(Op::OneHot(len), &[at])?;
    let zero = n.whole(0)?;
    let end = n.whole(len as i64)?;
    let below = n.binary_op(Binary::Less, at, zero)?;
    let beyond = n.binary_op(Binary::GreaterEqual, at, end)?;
    let outside = n.binary_op(Binary::Add, below, beyond)?;
    let nothing = n.to.graph.public(n.attributes.name, HostTensor::ints(vec![0]));
    let nothing = n.add(Op::Lookup, &[nothing, outside])?;
    let dims = [n.dims(at).as_slice(), &[1]].concat();
    let nothing = fixed(n, nothing, &dims)?;
    n.binary_op(Binary::Add, hot, nothing)
}

/// For each row of positions a row of all places of these axes, with 1 at the one to which the positions lead. The axes
/// of the positions but the last stay before it.
fn hot(n: &mut Node<'_, '_>, at: ValueId, dims: &[usize]) -> Result<ValueId> {
    let own = n.dims(at);
    let last = own.len() - 1;
    let outer = &own[..last];
    let total = dims.iter().product::<usize>();
    let count = outer.iter().product::<usize>();
    if total.checked_mul(count).is_none_or(|all| all > MAX_HOT) {
        let reason = format!("at {count} positions among {total} that depend on the input");
        return Err(n.unsupported(reason));
    }
    let mut all: Option<(ValueId, usize)> = None;
    for (i, &len) in dims.iter().enumerate() {
        let op = Op::Gather { axis: last, indices: vec![i], squeeze: true };
        let one = n.add(op, &[at])?;
        let next = ones(n, one, len)?;
        all = Some(match all {
            None => (next, len),
            Some((before, size)) => {
                let before = fixed(n, before, &[outer, &[size, 1]].concat())?;
                let next = fixed(n, next, &[outer, &[1, len]].concat())?;
                let both = n.binary_op(Binary::Mul, before, next)?;
                (fixed(n, both, &[outer, &[size * len]].concat())?, size * len)
            }
        });
    }
    all.map(|(hot, _)| hot).ok_or_else(|| n.attributes.error("its positions are empty"))
}

/// The parts of `x` to which rows of positions lead, after the axes that both share.
pub(super) fn parts(
    n: &mut Node<'_, '_>,
    x: ValueId,
    at: ValueId,
    shared: usize,
) -> Result<ValueId> {
    let (dims, own) = (n.dims(x), n.dims(at));
    let split = own.split_last().filter(|(depth, outer)| {
        **depth > 0
            && shared <= outer.len()
            && shared + **depth <= dims.len()
            && dims[..shared] == outer[..shared]
    });
    let Some((&depth, outer)) = split else {
        let reason = format!("positions of shape {own:?} do not fit {dims:?}");
        return Err(n.attributes.error(reason));
    };
    let hot = hot(n, at, &dims[shared..shared + depth])?;
    let total: usize = dims[shared..shared + depth].iter().product();
    let part: usize = dims[shared + depth..].iter().product();
    let rows: usize = outer[shared..].iter().product();
    let lead = &dims[..shared];
    let hot = fixed(n, hot, &[lead, &[rows, total]].concat())?;
    let table = fixed(n, x, &[lead, &[total, part]].concat())?;
    let y = math::product(n, hot, table)?;
    fixed(n, y, &[outer, &dims[shared + depth..]].concat())
}

/// One element in another's place, or combined with it.
fn put(
    n: &mut Node<'_, '_>,
    old: ValueId,
    new: ValueId,
    here: ValueId,
    f: Option<Binary>,
) -> Result<ValueId> {
    if f == Some(Binary::Add) {
        let more = n.binary_op(Binary::Mul, new, here)?;
        return n.binary_op(Binary::Add, old, more);
    }
    let made = match f {
        Some(f) => n.binary_op(f, old, new)?,
        None => new,
    };
    n.add(Op::Where, &[here, made, old])
}

/// The number of elements that come one after the other, if it is not too large.
fn in_turn(n: &Node<'_, '_>, count: usize) -> Result<usize> {
    if count <= MAX_REPLACED {
        return Ok(count);
    }
    let most = MAX_REPLACED;
    Err(n
        .unsupported(format!("at {count} positions that depend on the input; {most} are the most")))
}

/// `x` with elements along an axis replaced, the last of several for one place last.
pub(super) fn scattered(
    n: &mut Node<'_, '_>,
    x: ValueId,
    at: ValueId,
    new: ValueId,
    axis: usize,
    f: Option<Binary>,
) -> Result<ValueId> {
    let (dims, own) = (n.dims(x), n.dims(at));
    let fits = own.len() == dims.len() && n.dims(new) == own;
    if !fits || (0..dims.len()).any(|a| a != axis && own[a] != dims[a]) {
        let reason = format!("at positions of shape {own:?} in {dims:?} that depend on the input");
        return Err(n.unsupported(reason));
    }
    let hot = ones(n, at, dims[axis])?;
    let last = dims.len() - 1;
    let order: Vec<_> =
        (0..=last).map(|a| if a == axis { last } else { a - usize::from(a > axis) }).collect();
    let mut y = x;
    for i in 0..in_turn(n, own[axis])? {
        let op = Op::Gather { axis, indices: vec![i], squeeze: true };
        let here = n.add(op, &[hot])?;
        let here = n.add(Op::Permute(order.clone()), &[here])?;
        let element = n.part(new, axis, i, i + 1)?;
        y = put(n, y, element, here, f)?;
    }
    Ok(y)
}

/// `x` with the parts replaced to which rows of positions lead, the last of several for one place last.
pub(super) fn scattered_parts(
    n: &mut Node<'_, '_>,
    x: ValueId,
    at: ValueId,
    new: ValueId,
    f: Option<Binary>,
) -> Result<ValueId> {
    let (dims, own) = (n.dims(x), n.dims(at));
    let split = own.split_last().filter(|(depth, outer)| {
        (1..=dims.len()).contains(*depth) && n.dims(new) == [*outer, &dims[**depth..]].concat()
    });
    let Some((&depth, outer)) = split else {
        let reason = format!("positions of shape {own:?} do not fit {dims:?}");
        return Err(n.attributes.error(reason));
    };
    let count = in_turn(n, outer.iter().product())?;
    let total: usize = dims[..depth].iter().product();
    let part: usize = dims[depth..].iter().product();
    let at = fixed(n, at, &[count, depth])?;
    let hot = hot(n, at, &dims[..depth])?;
    let hot = fixed(n, hot, &[count, total, 1])?;
    let new = fixed(n, new, &[count, 1, part])?;
    let mut y = fixed(n, x, &[total, part])?;
    for i in 0..count {
        let row = |n: &mut Node<'_, '_>, x: ValueId| {
            n.add(Op::Gather { axis: 0, indices: vec![i], squeeze: true }, &[x])
        };
        let (element, here) = (row(n, new)?, row(n, hot)?);
        y = put(n, y, element, here, f)?;
    }
    fixed(n, y, &dims)
}

/// The places of the largest elements under a window of `[batch, channels, height, width]`, counted through all axes.
pub(super) fn of_largest(
    n: &mut Node<'_, '_>,
    x: ValueId,
    pool: &Pool,
    to: [usize; 2],
) -> Result<ValueId> {
    let dims = n.dims(x);
    let &[batch, channels, height, width] = dims.as_slice() else {
        return Err(n.attributes.error(format!("{dims:?} is not a batch of pictures")));
    };
    let by_column = n.attributes.int("storage_order", 0) != 0;
    let taps = pool.size[0] * pool.size[1];
    let (mut indices, mut named) = (vec![], vec![]);
    for o in 0..to[0] * to[1] {
        let start = [o / to[1] * pool.stride[0], o % to[1] * pool.stride[1]];
        let place = |k: usize| {
            let row = start[0] + k / pool.size[1] * pool.dilation[0];
            let column = start[1] + k % pool.size[1] * pool.dilation[1];
            let row = row.checked_sub(pool.padding[0]).filter(|row| *row < height)?;
            let column = column.checked_sub(pool.padding[1]).filter(|c| *c < width)?;
            Some([row, column])
        };
        // The border repeats the first element inside, which is taken before its copies matter.
        let Some(first) = (0..taps).find_map(place) else {
            return Err(n.attributes.error("a window lies outside"));
        };
        for k in 0..taps {
            let [row, column] = place(k).unwrap_or(first);
            indices.push(row * width + column);
            let name = if by_column { column * height + row } else { row * width + column };
            named.push(name as i64);
        }
    }
    let outputs = to[0] * to[1];
    let flat = fixed(n, x, &[batch, channels, height * width])?;
    let windows = n.add(Op::Gather { axis: 2, indices, squeeze: false }, &[flat])?;
    let windows = fixed(n, windows, &[batch, channels, outputs, taps])?;
    let best = n.add(Op::ArgMax { axis: 3, keep: false, min: false }, &[windows])?;
    let hot = n.add(Op::OneHot(taps), &[best])?;
    let named = HostTensor::integers([outputs, taps], named)?;
    let named = n.to.graph.public(n.attributes.name, named);
    let chosen = n.binary_op(Binary::Mul, hot, named)?;
    let mut y = n.add(Op::Reduce { kind: Reduce::Sum, axes: vec![3], keep: false }, &[chosen])?;
    if batch * channels > 1 {
        let size = (height * width) as i64;
        let starts = (0..(batch * channels) as i64).map(|plane| plane * size).collect();
        let starts = HostTensor::integers([batch, channels, 1], starts)?;
        let starts = n.to.graph.public(n.attributes.name, starts);
        y = n.binary_op(Binary::Add, y, starts)?;
    }
    fixed(n, y, &[batch, channels, to[0], to[1]])
}

/// Elements at the places from which a pool took its largest; zeros elsewhere.
pub(crate) fn unpool(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let dims = n.dims(x);
    if dims.len() < 3 || n.dims(at) != dims {
        return Err(n.attributes.error(format!("positions {:?} for {dims:?}", n.dims(at))));
    }
    let axes = dims.len() - 2;
    let list = |name: &str, count: usize, default: i64| -> Result<Vec<i64>> {
        let found = n.attributes.ints(name).map_or(vec![default; count], <[i64]>::to_vec);
        let fits = found.len() == count && found.iter().all(|v| (0..1 << 30).contains(v));
        if fits { Ok(found) } else { Err(n.attributes.error(format!("{name} {found:?}"))) }
    };
    let (size, strides) = (list("kernel_shape", axes, 0)?, list("strides", axes, 1)?);
    let pads = list("pads", 2 * axes, 0)?;
    let mut to = dims[..2].to_vec();
    for a in 0..axes {
        let len = (dims[a + 2] as i64 - 1) * strides[a] + size[a] - pads[a] - pads[a + axes];
        to.push(usize::try_from(len).map_err(|_| n.attributes.error("its result is empty"))?);
    }
    if let Some(given) = n.optional(2) {
        let given = n.ints(given, "shapes")?;
        if !given.iter().copied().eq(to.iter().map(|&d| d as i64)) {
            let reason = format!("to {given:?} instead of {to:?}: programs differ in the places");
            return Err(n.unsupported(reason));
        }
    }
    if n.to.graph.known(at)?.is_some() {
        let len: usize = to.iter().product();
        let places = n.ints(at, "positions")?;
        let mut from = vec![0; len];
        for (i, &place) in places.iter().enumerate() {
            from[n.position(place, len)?] = i + 1;
        }
        let zero = if n.to.is_integer(x) { n.whole(0)? } else { n.number(0.0) };
        let zero = fixed(n, zero, &[1])?;
        let flat = fixed(n, x, &[places.len()])?;
        let both = n.add(Op::Concat(0), &[zero, flat])?;
        let y = n.add(Op::Gather { axis: 0, indices: from, squeeze: false }, &[both])?;
        return Ok(vec![fixed(n, y, &to)?]);
    }
    let Some(&Pooled { from, pool, apart }) = n.to.pooled.get(&at) else {
        return Err(n.unsupported(
            "at positions that depend on the input, but those of a MaxPool of the same model",
        ));
    };
    let whole = n.dims(from);
    if !apart
        || whole.iter().product::<usize>() != to.iter().product::<usize>()
        || whole[..2] != to[..2]
    {
        return Err(n.unsupported("of windows that overlap or do not fill the picture"));
    }
    let flat = dims.len() == 3;
    let shaped = if flat { fixed(n, x, &[dims[0], dims[1], 1, dims[2]])? } else { x };
    let y = n.add(Op::MaxPoolGrad(pool), &[from, shaped])?;
    Ok(vec![fixed(n, y, &to)?])
}
