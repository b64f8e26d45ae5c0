//! Attention, and related operators of language models.

use nn_layers::{Binary, Dim, Op, Unary, ValueId};

use super::masks::Mask;
use super::math;
use super::shape::{fixed, spread};
use crate::Result;
use crate::onnx::node::Node;

/// The operands as `[batch, heads, length, size]`.
pub(super) struct Heads {
    pub q: ValueId,
    pub k: ValueId,
    pub v: ValueId,
    /// True if the node's operands and its result have the shape `[batch, length, heads * size]`.
    pub flat: bool,
}

pub(crate) fn attention(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let mut heads = heads(n)?;
    let past = n.optional(4).map(|past| n.dims(past)[2]);
    if let (Some(key), Some(value)) = (n.optional(4), n.optional(5)) {
        heads.k = n.add(Op::Concat(2), &[key, heads.k])?;
        heads.v = n.add(Op::Concat(2), &[value, heads.v])?;
    }
    let present = [heads.k, heads.v];
    repeat_heads(n, &mut heads)?;
    let [_, _, queries, size] = four(n, heads.q)?;
    let [.., keys, _] = four(n, heads.k)?;
    let default = 1.0 / (size as f64).sqrt();
    let scale = n.attributes.float("scale", default);
    let q = math::times(n, heads.q, scale)?;
    let op = Op::MatMul { transpose_lhs: false, transpose_rhs: true };
    let mut scores = n.add(op, &[q, heads.k])?;
    let cap = n.attributes.float("softcap", 0.0);
    if cap > 0.0 {
        scores = math::times(n, scores, 1.0 / cap)?;
        scores = n.unary(Unary::Tanh, scores)?;
        scores = math::times(n, scores, cap)?;
    }
    let mode = n.attributes.int("qk_matmul_output_mode", 0);
    let mut shown = scores;
    let mask = Mask::of(n, [queries, keys], past)?;
    scores = mask.added(n, scores)?;
    if mode == 2 {
        if mask.hides() && n.reads(3) {
            return Err(n.unsupported("whose scores are a result after they are masked"));
        }
        shown = scores;
    }
    scores = mask.hidden(n, scores)?;
    let axis = n.dims(scores).len() - 1;
    let mut weights = n.add(Op::Softmax { axis, log: false }, &[scores])?;
    weights = mask.without_empty_rows(n, weights)?;
    if mode == 3 {
        shown = weights;
    }
    let mut y = math::product(n, weights, heads.v)?;
    if heads.flat {
        let [batch, heads, length, size] = four(n, y)?;
        y = n.add(Op::Permute(vec![0, 2, 1, 3]), &[y])?;
        y = fixed(n, y, &[batch, length, heads * size])?;
    }
    Ok(vec![y, present[0], present[1], shown])
}

pub(super) fn four(n: &Node<'_, '_>, x: ValueId) -> Result<[usize; 4]> {
    let dims = n.dims(x);
    let wrong = || n.attributes.error(format!("{dims:?} is not [batch, heads, length, size]"));
    <[usize; 4]>::try_from(dims.clone()).map_err(|_| wrong())
}

fn heads(n: &mut Node<'_, '_>) -> Result<Heads> {
    let [q, k, v] = [n.input(0)?, n.input(1)?, n.input(2)?];
    if n.dims(q).len() != 3 {
        return Ok(Heads { q, k, v, flat: false });
    }
    let (queries, keys) = (n.attributes.int("q_num_heads", 0), n.attributes.int("kv_num_heads", 0));
    let q = split_heads(n, q, queries)?;
    let (k, v) = (split_heads(n, k, keys)?, split_heads(n, v, keys)?);
    Ok(Heads { q, k, v, flat: true })
}

/// `[batch, length, heads * size]` as `[batch, heads, length, size]`.
pub(super) fn split_heads(n: &mut Node<'_, '_>, x: ValueId, heads: i64) -> Result<ValueId> {
    let dims = n.dims(x);
    let heads = usize::try_from(heads).unwrap_or(0);
    let &[batch, length, width] = dims.as_slice() else {
        return Err(n.attributes.error(format!("{dims:?} is not [batch, length, heads * size]")));
    };
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(n.attributes.error(format!("{heads} heads do not divide {dims:?}")));
    }
    let x = fixed(n, x, &[batch, length, heads, width / heads])?;
    n.add(Op::Permute(vec![0, 2, 1, 3]), &[x])
}

/// Each head of keys and values as often as queries share it.
pub(super) fn repeat_heads(n: &mut Node<'_, '_>, heads: &mut Heads) -> Result<()> {
    let (queries, keys) = (four(n, heads.q)?[1], four(n, heads.k)?[1]);
    if queries == keys {
        return Ok(());
    }
    if keys == 0 || !queries.is_multiple_of(keys) {
        return Err(n.attributes.error(format!("{keys} heads of keys for {queries} of queries")));
    }
    for x in [&mut heads.k, &mut heads.v] {
        let indices = (0..queries).map(|i| i / (queries / keys)).collect();
        *x = n.add(Op::Gather { axis: 1, indices, squeeze: false }, &[*x])?;
    }
    Ok(())
}

/// Pairs of elements turned by angles that depend on their place.
pub(crate) fn rotary(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let given = n.input(0)?;
    let dims = n.dims(given);
    let mut x = given;
    if dims.len() == 3 {
        x = split_heads(n, x, n.attributes.int("num_heads", 0))?;
    }
    let [_, _, length, size] = four(n, x)?;
    let turned = match n.attributes.int("rotary_embedding_dim", 0) {
        0 => size,
        k => usize::try_from(k).ok().filter(|&k| k <= size).unwrap_or(size),
    };
    let mut angles = [n.input(1)?, n.input(2)?];
    for cache in &mut angles {
        if let Some(at) = n.optional(3) {
            *cache = rows_at(n, *cache, at)?;
        }
        let &[batch, own, half] = n.dims(*cache).as_slice() else {
            return Err(n.attributes.error(format!("angles of shape {:?}", n.dims(*cache))));
        };
        if half * 2 != turned || own != length {
            let reason = format!("angles of shape {:?} do not fit {dims:?}", n.dims(*cache));
            return Err(n.attributes.error(reason));
        }
        *cache = fixed(n, *cache, &[batch, 1, own, half])?;
    }
    let interleaved = n.attributes.int("interleaved", 0) != 0;
    let mut both = rotated(n, x, angles, interleaved)?;
    if dims.len() == 3 {
        both = n.add(Op::Permute(vec![0, 2, 1, 3]), &[both])?;
        both = fixed(n, both, &dims)?;
    }
    Ok(vec![both])
}

/// Rows of a table at positions, which may depend on the input.
pub(super) fn rows_at(n: &mut Node<'_, '_>, table: ValueId, at: ValueId) -> Result<ValueId> {
    let dims = n.dims(table);
    let Some(known) = n.to.graph.known(at)? else {
        return n.add(Op::Lookup, &[table, at]);
    };
    let ints = known.as_ints()?.iter().map(|&p| n.position(p, dims[0]));
    let indices = ints.collect::<Result<Vec<_>>>()?;
    let rows = n.add(Op::Gather { axis: 0, indices, squeeze: false }, &[table])?;
    fixed(n, rows, &[known.dims(), &dims[1..]].concat())
}

/// `[batch, heads, length, size]` with its first elements turned, by cosines and sines that are broadcast to
/// `[batch, heads, length, turned / 2]`.
pub(super) fn rotated(
    n: &mut Node<'_, '_>,
    x: ValueId,
    [cos, sin]: [ValueId; 2],
    interleaved: bool,
) -> Result<ValueId> {
    let [.., size] = four(n, x)?;
    let [.., half] = four(n, cos)?;
    let turned = 2 * half;
    let part = |n: &mut Node<'_, '_>, start: usize, end: usize, step: usize| {
        n.add(Op::Slice { axis: 3, start, end: Dim::Fixed(end), step }, &[x])
    };
    let (a, b) = if interleaved {
        (part(n, 0, turned, 2)?, part(n, 1, turned, 2)?)
    } else {
        (part(n, 0, half, 1)?, part(n, half, turned, 1)?)
    };
    let mul = |n: &mut Node<'_, '_>, x, y| n.binary_op(Binary::Mul, x, y);
    let (ca, sb) = (mul(n, a, cos)?, mul(n, b, sin)?);
    let (sa, cb) = (mul(n, a, sin)?, mul(n, b, cos)?);
    let real = n.binary_op(Binary::Sub, ca, sb)?;
    let imaginary = n.binary_op(Binary::Add, sa, cb)?;
    let mut both = n.add(Op::Concat(3), &[real, imaginary])?;
    if interleaved {
        let indices = (0..turned).map(|i| i / 2 + i % 2 * half).collect();
        both = n.add(Op::Gather { axis: 3, indices, squeeze: false }, &[both])?;
    }
    if turned < size {
        let rest = part(n, turned, size, 1)?;
        both = n.add(Op::Concat(3), &[both, rest])?;
    }
    Ok(both)
}

/// `x * sigmoid(alpha * x)`.
pub(crate) fn swish(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let alpha = n.attributes.float("alpha", 1.0);
    let y = if alpha == 1.0 {
        n.unary(Unary::Silu, x)?
    } else {
        let gate = math::times(n, x, alpha)?;
        let gate = n.unary(Unary::Sigmoid, gate)?;
        n.binary_op(Binary::Mul, x, gate)?
    };
    match n.operator {
        "SwiGLU" => {
            let other = n.input(1)?;
            if n.dims(other) != n.dims(x) {
                return Err(n.attributes.error("its operands differ in shape"));
            }
            Ok(vec![n.binary_op(Binary::Mul, y, other)?])
        }
        _ => Ok(vec![y]),
    }
}

/// A convolution of each channel over current and earlier positions, and the last positions for the next call.
pub(crate) fn causal_conv(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    use nn_layers::{Kernel, Pool};
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (Ok([batch, channels, length]), Ok([own, 1, k])) =
        (<[usize; 3]>::try_from(n.dims(x)), <[usize; 3]>::try_from(n.dims(w)))
    else {
        return Err(n.attributes.error(format!("{:?} and {:?} do not fit", n.dims(x), n.dims(w))));
    };
    if own != channels || k == 0 {
        return Err(n.attributes.error(format!("{:?} and {:?} do not fit", n.dims(x), n.dims(w))));
    }
    let past = match n.optional(3) {
        Some(past) => past,
        None => {
            let zero = n.number(0.0);
            spread(n, zero, vec![batch, channels, k - 1])?
        }
    };
    let whole = if k > 1 { n.add(Op::Concat(2), &[past, x])? } else { x };
    let rows = fixed(n, whole, &[batch, channels, 1, length + k - 1])?;
    let weight = fixed(n, w, &[channels, 1, 1, k])?;
    let kernel = Kernel { window: Pool::new([1, k], [1; 2]), groups: channels };
    let mut y = n.add(Op::Conv(kernel), &[rows, weight])?;
    if let Some(bias) = n.optional(2) {
        let bias = fixed(n, bias, &[channels, 1, 1])?;
        y = n.binary_op(Binary::Add, y, bias)?;
    }
    y = fixed(n, y, &[batch, channels, length])?;
    match n.attributes.text("activation").unwrap_or("none") {
        "none" | "" => {}
        "silu" | "swish" => y = n.unary(Unary::Silu, y)?,
        other => return Err(n.unsupported(format!("with activation {other}"))),
    }
    let end = length + k - 1;
    let op = Op::Slice { axis: 2, start: end - (k - 1), end: Dim::Fixed(end), step: 1 };
    let state = n.add(op, &[whole])?;
    Ok(vec![y, state])
}

/// Attention without a softmax: a state to which every step adds the product of its key and value.
pub(crate) fn linear(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let rule = n.attributes.text("update_rule").unwrap_or("gated_delta").to_owned();
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(n.unsupported(format!("with update_rule {other}"))),
    };
    let (queries, keys) = (n.attributes.int("q_num_heads", 0), n.attributes.int("kv_num_heads", 0));
    let [q, k, v] = [n.input(0)?, n.input(1)?, n.input(2)?];
    let (mut q, k) = (split_heads(n, q, queries)?, split_heads(n, k, keys)?);
    let v = split_heads(n, v, keys)?;
    let ([batch, heads, steps, size], [_, shared, ..]) = (four(n, q)?, four(n, k)?);
    let [.., wide] = four(n, v)?;
    let scale = match n.attributes.float("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    };
    q = math::times(n, q, scale)?;
    let side = |n: &mut Node<'_, '_>, i: usize, wanted: bool| -> Result<Option<ValueId>> {
        if !wanted {
            return Ok(None);
        }
        let x = n.input(i)?;
        let &[.., width] = n.dims(x).as_slice() else {
            return Err(n.attributes.error(format!("operand {i} has no dimensions")));
        };
        let heads = if width == 1 { 1 } else { shared as i64 };
        split_heads(n, x, heads).map(Some)
    };
    let (decay, beta) = (side(n, 4, gated)?, side(n, 5, delta)?);
    let decay = decay.map(|decay| n.unary(Unary::Exp, decay)).transpose()?;
    let mut state = match n.optional(3) {
        Some(state) => state,
        None => {
            let zero = n.number(0.0);
            spread(n, zero, vec![batch, shared, size, wide])?
        }
    };
    let flat = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let turned = Op::MatMul { transpose_lhs: true, transpose_rhs: false };
    let at = |n: &mut Node<'_, '_>, x: ValueId, i: usize| {
        n.add(Op::Slice { axis: 2, start: i, end: Dim::Fixed(i + 1), step: 1 }, &[x])
    };
    let mut outputs = vec![];
    for i in 0..steps {
        let (query, key) = (at(n, q, i)?, at(n, k, i)?);
        let mut value = at(n, v, i)?;
        if let Some(decay) = decay {
            let now = at(n, decay, i)?;
            let now = n.add(Op::Permute(vec![0, 1, 3, 2]), &[now])?;
            state = n.binary_op(Binary::Mul, state, now)?;
        }
        if let Some(beta) = beta {
            let found = n.add(flat.clone(), &[key, state])?;
            let new = n.binary_op(Binary::Sub, value, found)?;
            let now = at(n, beta, i)?;
            value = n.binary_op(Binary::Mul, new, now)?;
        }
        let more = n.add(turned.clone(), &[key, value])?;
        state = n.binary_op(Binary::Add, state, more)?;
        let mut read = state;
        if heads != shared {
            let indices = (0..heads).map(|h| h / (heads / shared.max(1)).max(1)).collect();
            read = n.add(Op::Gather { axis: 1, indices, squeeze: false }, &[state])?;
        }
        outputs.push(n.add(flat.clone(), &[query, read])?);
    }
    let y = if outputs.len() == 1 { outputs[0] } else { n.add(Op::Concat(2), &outputs)? };
    let y = n.add(Op::Permute(vec![0, 2, 1, 3]), &[y])?;
    let y = fixed(n, y, &[batch, steps, heads * wide])?;
    Ok(vec![y, state])
}
