//! Lists of tensors, whose length is known, and values that may be missing.

use nn_layers::{Dim, HostTensor, Op};

use super::control::stack;
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;
use crate::onnx::value::{Typed, Value};

pub(crate) fn construct(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let members = (0..n.operands()).map(|i| n.tensor(i)).collect::<Result<_>>()?;
    Ok(vec![Value::Sequence(members)])
}

pub(crate) fn empty(_: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    Ok(vec![Value::Sequence(vec![])])
}

/// The position that operand `i` names in a list, `default` without it; `end` itself is allowed with `end`.
fn position(n: &Node<'_, '_>, i: usize, len: usize, default: i64, end: bool) -> Result<usize> {
    let at = match n.optional(i) {
        Some(id) => n.constant(id, "positions")?.single(),
        None => Some(default as f64),
    };
    let at = at.ok_or_else(|| n.attributes.error("its position is not one number"))? as i64;
    // Counted from the end, the last position is the last member; a new one may also be inserted after it.
    let from_end = if at < 0 { at + len as i64 } else { at };
    let most = len + usize::from(end);
    usize::try_from(from_end)
        .ok()
        .filter(|&at| at < most)
        .ok_or_else(|| n.attributes.error(format!("position {at} is not in a list of {len}")))
}

pub(crate) fn insert(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let mut members = n.sequence(0)?;
    let at = position(n, 2, members.len(), members.len() as i64, true)?;
    members.insert(at, n.tensor(1)?);
    Ok(vec![Value::Sequence(members)])
}

pub(crate) fn erase(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let mut members = n.sequence(0)?;
    let at = position(n, 1, members.len(), -1, false)?;
    members.remove(at);
    Ok(vec![Value::Sequence(members)])
}

pub(crate) fn at(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let members = n.sequence(0)?;
    let at = position(n, 1, members.len(), 0, false)?;
    Ok(vec![members[at].into()])
}

/// A public integer without dimensions.
fn number(n: &mut Node<'_, '_>, value: i64, kind: i32) -> Result<Value> {
    let value = HostTensor::integers([], vec![value])?;
    Ok(Typed { id: n.to.graph.public(n.attributes.name, value), kind }.into())
}

pub(crate) fn length(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let len = n.sequence(0)?.len() as i64;
    Ok(vec![number(n, len, dtype::INT64)?])
}

/// A body for each member; operands that are tensors are the same for all.
pub(crate) fn map(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let body = n.attributes.graph("body")?;
    let len = n.sequence(0)?.len();
    let mut results: Vec<Vec<Typed>> = vec![vec![]; body.output.len()];
    for i in 0..len {
        let mut operands = vec![];
        for k in 0..n.operands() {
            operands.push(match n.value(k) {
                Value::Sequence(members) => {
                    let member = members.get(i).copied();
                    let short = || n.attributes.error("its lists differ in length");
                    member.ok_or_else(short)?.into()
                }
                other => other,
            });
        }
        for (results, value) in results.iter_mut().zip(n.to.body(body, operands)?) {
            match value {
                Value::Tensor(value) => results.push(value),
                _ => return Err(n.attributes.error("its body gives a list")),
            }
        }
    }
    Ok(results.into_iter().map(Value::Sequence).collect())
}

/// The parts of a tensor along an axis: one for each position, of one length, or of separate lengths.
pub(crate) fn split(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let x = n.tensor(0)?;
    let dims = n.dims(x.id);
    let axis = n.axis(n.attributes.int("axis", 0), dims.len(), false)?;
    let len = dims[axis];
    let given = match n.optional(1) {
        Some(id) => Some((n.dims(id).is_empty(), n.ints(id, "lengths")?)),
        None => None,
    };
    let whole = |v: &i64| usize::try_from(*v).ok().filter(|&v| v > 0 && v <= len);
    let wrong = || n.attributes.error(format!("its lengths do not fill {len}"));
    let lengths: Vec<usize> = match &given {
        None => vec![1; len],
        Some((true, each)) => {
            let each = each.first().and_then(whole).ok_or_else(wrong)?;
            (0..len).step_by(each).map(|start| each.min(len - start)).collect()
        }
        Some((false, all)) => {
            all.iter().map(whole).collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
    };
    if lengths.iter().sum::<usize>() != len {
        return Err(wrong());
    }
    let drops = given.is_none() && n.attributes.int("keepdims", 1) == 0;
    let mut parts = vec![];
    let mut start = 0;
    for length in lengths {
        let op = if drops {
            Op::Gather { axis, indices: vec![start], squeeze: true }
        } else {
            Op::Slice { axis, start, end: Dim::Fixed(start + length), step: 1 }
        };
        parts.push(Typed { id: n.add(op, &[x.id])?, kind: x.kind });
        start += length;
    }
    Ok(vec![Value::Sequence(parts)])
}

pub(crate) fn concat(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let members = n.sequence(0)?;
    let axis = n.attributes.int("axis", 0);
    if n.attributes.int("new_axis", 0) != 0 {
        return Ok(vec![stack(n, &members, axis)?]);
    }
    let first = *members.first().ok_or_else(|| n.unsupported("of a list without members"))?;
    let axis = n.axis(axis, n.dims(first.id).len(), false)?;
    let parts: Vec<_> = members.iter().map(|member| member.id).collect();
    let id = if parts.len() == 1 { parts[0] } else { n.add(Op::Concat(axis), &parts)? };
    Ok(vec![Typed { id, kind: first.kind }.into()])
}

pub(crate) fn optional(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    Ok(vec![n.value(0)])
}

pub(crate) fn has_element(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let there = n.value(0) != Value::Nothing;
    Ok(vec![number(n, there.into(), dtype::BOOL)?])
}

pub(crate) fn get_element(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    match n.value(0) {
        Value::Nothing => Err(n.attributes.error("its optional value is not there")),
        value => Ok(vec![value]),
    }
}
