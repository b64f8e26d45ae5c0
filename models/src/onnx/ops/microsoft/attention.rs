//! Attention of the domain `com.microsoft`.

use std::ops::Range;

use nn_layers::{Binary, HostTensor, Op, Unary, ValueId};

use super::super::attention::{Heads, four, rotated, rows_at, split_heads};
use super::super::masks::{self, HIDES, Mask};
use super::super::math;
use super::super::shape::fixed;
use super::quantised::{Sides, product_of_integers};
use crate::Result;
use crate::onnx::node::Node;

/// The number that is added to masked scores where the node does not say it.
const FILTER: f64 = -10_000.0;

/// Keys and values of earlier steps.
#[derive(Clone, Copy)]
struct Past {
    key: ValueId,
    value: ValueId,
}

impl Past {
    /// Its two operands, if the node has them.
    fn given(n: &Node<'_, '_>, [key, value]: [usize; 2]) -> Option<Self> {
        Some(Self { key: n.optional(key)?, value: n.optional(value)? })
    }

    /// Puts the keys and values of a step behind those of earlier ones, if there are any; returns how many there are.
    fn extended(past: Option<Self>, n: &mut Node<'_, '_>, heads: &mut Heads) -> Result<usize> {
        let Some(past) = past else { return Ok(0) };
        heads.k = n.add(Op::Concat(2), &[past.key, heads.k])?;
        heads.v = n.add(Op::Concat(2), &[past.value, heads.v])?;
        Ok(four(n, past.key)?[2])
    }
}

/// The keys that a query sees by its place.
struct Window {
    causal: bool,
    /// The number of keys of earlier steps.
    earlier: usize,
    /// The number of keys before its own that a query sees; all of them if it is none.
    before: Option<usize>,
}

/// Attention with the projection of its operands.
pub(crate) fn with_projection(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let mut all = math::product_of(n, x, w)?;
    if let Some(bias) = n.optional(2) {
        all = n.binary_op(Binary::Add, all, bias)?;
    }
    projected(n, all, [3, 4, 5])
}

/// The same of quantised operands.
pub(crate) fn quantised(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let sides = Sides { values: [0, 1], scales: [3, 4], zeros: [6, 7] };
    let sums = product_of_integers(n, &sides)?;
    let bias = n.input(2)?;
    let all = n.binary_op(Binary::Add, sums, bias)?;
    // It takes no numbers that are added to scores.
    projected(n, all, [5, 8, usize::MAX])
}

/// Attention of queries, keys and values beside each other. Also takes the numbers of the operands that are the mask,
/// the past and what is added to scores.
fn projected(
    n: &mut Node<'_, '_>,
    all: ValueId,
    [mask, past, more]: [usize; 3],
) -> Result<Vec<ValueId>> {
    n.refuse_attributes(&["do_rotary", "past_present_share_buffer"])?;
    let heads = n.attributes.int("num_heads", 0);
    let dims = n.dims(all);
    let &[_, _, width] = dims.as_slice() else {
        return Err(n.attributes.error(format!("{dims:?} is not [batch, length, size]")));
    };
    let sizes = n.attributes.sizes("qkv_hidden_sizes", [width / 3; 3])?;
    if sizes.iter().sum::<usize>() != width {
        return Err(n.attributes.error(format!("{sizes:?} do not add up to {width}")));
    }
    let mut start = 0;
    let mut parts = vec![];
    for size in sizes {
        let part = n.part(all, 2, start, start + size)?;
        parts.push(split_heads(n, part, heads)?);
        start += size;
    }
    let past = match n.optional(past) {
        Some(both) => {
            let side = |n: &mut Node<'_, '_>, i: usize| {
                n.add(Op::Gather { axis: 0, indices: vec![i], squeeze: true }, &[both])
            };
            Some(Past { key: side(n, 0)?, value: side(n, 1)? })
        }
        None => None,
    };
    let mut heads = Heads { q: parts[0], k: parts[1], v: parts[2], flat: true };
    let earlier = Past::extended(past, n, &mut heads)?;
    let causal = n.attributes.int("unidirectional", 0) != 0;
    let window = Window { causal, earlier, before: None };
    let (y, mut present) = attended(n, heads, [n.optional(mask), n.optional(more)], &window)?;
    if !n.reads(1) {
        return Ok(vec![y]);
    }
    for side in &mut present {
        let dims = [&[1], n.dims(*side).as_slice()].concat();
        *side = fixed(n, *side, &dims)?;
    }
    Ok(vec![y, n.add(Op::Concat(0), &present)?])
}

/// Attention of queries, keys and values that are operands.
pub(crate) fn multi_head(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    if n.optional(8).is_some() || n.optional(9).is_some() {
        return Err(n.unsupported("with a buffer of earlier steps"));
    }
    let count = n.attributes.int("num_heads", 0);
    let mut heads = separate(n, count)?;
    let earlier = Past::extended(Past::given(n, [6, 7]), n, &mut heads)?;
    let causal = n.attributes.int("unidirectional", 0) != 0;
    let window = Window { causal, earlier, before: None };
    let (y, [k, v]) = attended(n, heads, [n.optional(4), n.optional(5)], &window)?;
    Ok(vec![y, k, v])
}

/// The operands, which may have keys and values, or all three, in one tensor.
fn separate(n: &mut Node<'_, '_>, count: i64) -> Result<Heads> {
    let q = n.input(0)?;
    let bias = n.optional(3);
    let (k, v) = (n.optional(1), n.optional(2));
    let whole = k.unwrap_or(q);
    if v.is_none() || n.dims(whole).len() == 4 {
        if bias.is_some() {
            return Err(n.unsupported("with a bias of operands that have their heads"));
        }
        if let (Some(k), Some(v)) = (k, v) {
            return Ok(Heads { q: split_heads(n, q, count)?, k, v, flat: true });
        }
        if n.dims(whole).len() != 5 {
            return Err(n.attributes.error(format!("{:?} are not packed operands", n.dims(whole))));
        }
        let packed = |n: &mut Node<'_, '_>, i: usize| {
            let part = n.add(Op::Gather { axis: 3, indices: vec![i], squeeze: true }, &[whole])?;
            n.add(Op::Permute(vec![0, 2, 1, 3]), &[part])
        };
        if k.is_some() {
            let q = split_heads(n, q, count)?;
            return Ok(Heads { q, k: packed(n, 0)?, v: packed(n, 1)?, flat: true });
        }
        return Ok(Heads { q: packed(n, 0)?, k: packed(n, 1)?, v: packed(n, 2)?, flat: true });
    }
    let mut start = 0;
    let mut sides = [q, n.input(1)?, n.input(2)?];
    for side in &mut sides {
        if let Some(bias) = bias {
            let size = n.dims(*side).last().copied().unwrap_or(0);
            let part = n.part(bias, 0, start, start + size)?;
            *side = n.binary_op(Binary::Add, *side, part)?;
            start += size;
        }
        *side = split_heads(n, *side, count)?;
    }
    let [q, k, v] = sides;
    Ok(Heads { q, k, v, flat: true })
}

/// Attention in which several heads of queries share one of keys.
pub(crate) fn grouped(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    n.refuse_attributes(&["smooth_softmax", "qk_output", "kv_cache_bit_width"])?;
    for name in ["k_quant_type", "v_quant_type"] {
        if let Some(other) = n.attributes.text(name).filter(|kind| !["", "NONE"].contains(kind)) {
            return Err(n.unsupported(format!("with {name} {other}")));
        }
    }
    if n.optional(11).is_some() {
        return Err(n.unsupported("with a sink for each head"));
    }
    let (count, shared) = (n.attributes.int("num_heads", 0), n.attributes.int("kv_num_heads", 0));
    let mut parts = [n.input(0)?; 3];
    if n.optional(1).is_some() {
        parts = [parts[0], n.input(1)?, n.input(2)?];
    } else {
        let whole = parts[0];
        let width = n.dims(whole).last().copied().unwrap_or(0);
        let sizes = [count, shared, shared].map(|k| usize::try_from(k).unwrap_or(0));
        let mut start = 0;
        for (part, heads) in parts.iter_mut().zip(sizes) {
            let end = start + width / sizes.iter().sum::<usize>().max(1) * heads;
            *part = n.part(whole, 2, start, end)?;
            start = end;
        }
    }
    let [q, k, v] = parts;
    let q = split_heads(n, q, count)?;
    let (k, v) = (split_heads(n, k, shared)?, split_heads(n, v, shared)?);
    let mut heads = Heads { q, k, v, flat: true };
    let length = four(n, heads.q)?[2];
    let past = Past::given(n, [3, 4]);
    let past = past.filter(|past| n.dims(past.key).get(2) != Some(&0));
    let earlier = match past {
        Some(past) => four(n, past.key)?[2],
        None => 0,
    };
    let lengths = n.ints(n.input(5)?, "lengths of the keys")?;
    if let Some(other) = lengths.iter().find(|&&last| last + 1 != (earlier + length) as i64) {
        return Err(n.unsupported(format!(
            "whose keys end at position {other}, of {earlier} earlier ones and {length} more; padded sequences and \
             buffers that are longer than their contents are not"
        )));
    }
    if n.attributes.int("do_rotary", 0) != 0 {
        let interleaved = n.attributes.int("rotary_interleaved", 0) != 0;
        let angles = angles(n, [7, 8], n.optional(9), earlier..earlier + length)?;
        heads.q = rotated(n, heads.q, angles, interleaved)?;
        heads.k = rotated(n, heads.k, angles, interleaved)?;
    }
    Past::extended(past, n, &mut heads)?;
    let present = [heads.k, heads.v];
    // Its own key is one of them.
    let before = match n.attributes.int("local_window_size", -1) {
        0 => return Err(n.unsupported("with a window of no keys")),
        size => usize::try_from(size - 1).ok().filter(|_| size > 0),
    };
    let window = Window { causal: true, earlier, before };
    let (y, _) = attended(n, heads, [None, n.optional(10)], &window)?;
    Ok(vec![y, present[0], present[1]])
}

/// Cosines and sines `[batch, 1, length, half]` at positions, of tables whose operands' numbers are given.
fn angles(
    n: &mut Node<'_, '_>,
    tables: [usize; 2],
    at: Option<ValueId>,
    places: Range<usize>,
) -> Result<[ValueId; 2]> {
    let length = places.len();
    // A single position is that of the first element.
    let single = at.filter(|&at| n.dims(at).iter().product::<usize>() == 1 && length > 1);
    let start = match single {
        Some(at) => n.ints(at, "first positions")?[0],
        None => places.start as i64,
    };
    let mut angles = [n.input(tables[0])?, n.input(tables[1])?];
    for table in &mut angles {
        let &[rows, half] = n.dims(*table).as_slice() else {
            return Err(n.attributes.error(format!("angles of shape {:?}", n.dims(*table))));
        };
        let (batch, chosen) = match at.filter(|_| single.is_none()) {
            Some(at) => {
                let batch = n.dims(at).iter().product::<usize>() / length.max(1);
                (batch, rows_at(n, *table, at)?)
            }
            None => {
                let start = n.position(start, rows)?;
                if start + length > rows {
                    let end = start + length;
                    return Err(n.attributes.error(format!("{end} positions in {rows} rows")));
                }
                (1, n.part(*table, 0, start, start + length)?)
            }
        };
        *table = fixed(n, chosen, &[batch, 1, length, half])?;
    }
    Ok(angles)
}

/// Pairs of elements turned by angles that depend on their place.
pub(crate) fn rotary(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    n.refuse_attributes(&["is_packed_batching"])?;
    let mut x = n.input(0)?;
    let dims = n.dims(x);
    let half = n.dims(n.input(2)?).last().copied().unwrap_or(0);
    if dims.len() == 3 {
        let count = match n.attributes.int("num_heads", 0) {
            0 => (dims[2] / (2 * half).max(1)) as i64,
            count => count,
        };
        x = split_heads(n, x, count)?;
    }
    let [_, _, length, size] = four(n, x)?;
    let turned = match usize::try_from(n.attributes.int("rotary_embedding_dim", 0)) {
        Ok(turned) if turned > 0 => turned,
        _ => size,
    };
    if 2 * half != turned || turned > size {
        return Err(n.attributes.error(format!("{half} angles for {turned} of {size} elements")));
    }
    let at = n.input(1)?;
    let angles = angles(n, [2, 3], Some(at), 0..length)?;
    let interleaved = n.attributes.int("interleaved", 0) != 0;
    let mut y = rotated(n, x, angles, interleaved)?;
    y = math::times(n, y, n.attributes.float("scale", 1.0))?;
    if dims.len() == 3 {
        y = n.add(Op::Permute(vec![0, 2, 1, 3]), &[y])?;
        y = fixed(n, y, &dims)?;
    }
    Ok(vec![y])
}

/// The heads' results beside each other, and all keys and values.
fn attended(
    n: &mut Node<'_, '_>,
    heads: Heads,
    [mask, more]: [Option<ValueId>; 2],
    window: &Window,
) -> Result<(ValueId, [ValueId; 2])> {
    let Heads { q, k, v, .. } = heads;
    let [batch, count, queries, size] = four(n, q)?;
    let [_, shared, keys, _] = four(n, k)?;
    if shared == 0 || !count.is_multiple_of(shared) {
        return Err(n.attributes.error(format!("{shared} heads of keys for {count} of queries")));
    }
    // Queries of the heads that share one of keys are rows of one product.
    let grouped = [batch, shared, count / shared * queries];
    let scale = match n.attributes.float("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    };
    let mut q = math::times(n, q, scale)?;
    if shared != count {
        q = fixed(n, q, &[&grouped[..], &[size]].concat())?;
    }
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let mut scores = n.add(op, &[q, k])?;
    if shared != count {
        scores = fixed(n, scores, &[batch, count, queries, keys])?;
    }
    let cap = n.attributes.float("softcap", 0.0);
    if cap > 0.0 {
        scores = math::times(n, scores, 1.0 / cap)?;
        scores = n.unary(Unary::Tanh, scores)?;
        scores = math::times(n, scores, cap)?;
    }
    if let Some(more) = more {
        scores = n.binary_op(Binary::Add, scores, more)?;
    }
    let mut counts = seen(n, [queries, keys], window)?;
    if let Some(mask) = mask {
        let given = unpadded(n, mask, [batch, queries, keys])?;
        let filter = n.attributes.float("mask_filter_value", FILTER);
        if filter <= -HIDES {
            counts = masks::both(n, Some(given), counts)?;
        } else {
            let padded = masks::opposite(n, given)?;
            let filter = math::times(n, padded, filter)?;
            scores = n.binary_op(Binary::Add, scores, filter)?;
        }
    }
    scores = Mask::by_place(counts).hidden(n, scores)?;
    let mut weights = n.add(Op::Softmax { axis: 3, log: false }, &[scores])?;
    if shared != count {
        weights = fixed(n, weights, &[&grouped[..], &[keys]].concat())?;
    }
    let mut y = math::product(n, weights, v)?;
    let size = four(n, y)?[3];
    if shared != count {
        y = fixed(n, y, &[batch, count, queries, size])?;
    }
    let y = n.add(Op::Permute(vec![0, 2, 1, 3]), &[y])?;
    Ok((fixed(n, y, &[batch, queries, count * size])?, [k, v]))
}

/// 1 for each key that a query sees by its place; None if it sees all keys.
fn seen(
    n: &mut Node<'_, '_>,
    [queries, keys]: [usize; 2],
    window: &Window,
) -> Result<Option<ValueId>> {
    let sees = |i: usize| {
        let (query, key) = (i / keys + window.earlier, i % keys);
        let near = window.before.is_none_or(|before| key + before >= query);
        near && (!window.causal || key <= query)
    };
    if (0..queries * keys).all(sees) {
        return Ok(None);
    }
    let values = (0..queries * keys).map(|i| i64::from(sees(i))).collect();
    let values = HostTensor::integers([queries, keys], values)?;
    Ok(Some(n.to.graph.public(n.attributes.name, values)))
}

/// 1 for keys that are no padding: of a mask of 0 and 1 for each key, or for each query and key, of the lengths of the
/// keys, or of their ends followed by their beginnings.
fn unpadded(
    n: &mut Node<'_, '_>,
    mask: ValueId,
    [batch, queries, keys]: [usize; 3],
) -> Result<ValueId> {
    let dims = n.dims(mask);
    match *dims {
        [rows] if rows == batch || rows == 2 * batch => {
            let place = HostTensor::integers([keys], (0..keys as i64).collect())?;
            let place = n.to.graph.public(n.attributes.name, place);
            let ends = n.part(mask, 0, 0, batch)?;
            let ends = fixed(n, ends, &[batch, 1, 1, 1])?;
            let counts = n.binary_op(Binary::Less, place, ends)?;
            if rows == batch {
                return Ok(counts);
            }
            let starts = n.part(mask, 0, batch, rows)?;
            let starts = fixed(n, starts, &[batch, 1, 1, 1])?;
            let begun = n.binary_op(Binary::GreaterEqual, place, starts)?;
            n.binary_op(Binary::And, counts, begun)
        }
        [b, own] if b == batch && own == keys => positive(n, mask, &[batch, 1, 1, keys]),
        [b, q, own] if b == batch && q == queries && own == keys => {
            positive(n, mask, &[batch, 1, queries, keys])
        }
        _ => Err(n.unsupported(format!("with a mask of shape {dims:?}"))),
    }
}

fn positive(n: &mut Node<'_, '_>, mask: ValueId, dims: &[usize]) -> Result<ValueId> {
    let mask = fixed(n, mask, dims)?;
    let zero = n.whole(0)?;
    n.binary_op(Binary::Greater, mask, zero)
}
