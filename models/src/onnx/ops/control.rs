//! Branches and loops: their conditions are known when the model is imported, or both branches are computed.

use nn_layers::{Binary, HostTensor, Op, ValueId};

use super::shape;
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;
use crate::onnx::value::{Typed, Value};

/// The most rounds of a loop.
const MAX_ROUNDS: i64 = 1 << 16;

/// The most rounds of a loop whose condition depends on the input. All of them are computed.
const MAX_SECRET_ROUNDS: i64 = 256;

pub(crate) fn identity(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    Ok(vec![n.value(0)])
}

/// One of two bodies, or the elements of both where the condition depends on the input.
pub(crate) fn branch(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let condition = n.input(0)?;
    let (yes, no) = (n.attributes.graph("then_branch")?, n.attributes.graph("else_branch")?);
    if let Some(value) = n.to.graph.known(condition)? {
        let value = value.single().ok_or_else(|| n.attributes.error("its condition is a list"))?;
        return n.to.body(if value != 0.0 { yes } else { no }, vec![]);
    }
    let both = [n.to.body(yes, vec![])?, n.to.body(no, vec![])?];
    let condition = shape::fixed(n, condition, &[])?;
    let mut results = vec![];
    for (x, y) in both[0].iter().zip(&both[1]) {
        let (Value::Tensor(x), Value::Tensor(y)) = (x, y) else {
            return Err(n.unsupported("of lists, where the condition depends on the input"));
        };
        if n.dims(x.id) != n.dims(y.id) {
            let shapes = format!("{:?} or {:?}", n.dims(x.id), n.dims(y.id));
            return Err(n.unsupported(format!("where the input decides the shape: {shapes}")));
        }
        let id = n.add(Op::Where, &[condition, x.id, y.id])?;
        results.push(Typed { id, kind: x.kind }.into());
    }
    Ok(results)
}

/// A body again and again, as often as is known when the model is imported.
pub(crate) fn repeat(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let body = n.attributes.graph("body")?;
    let most = match n.optional(0) {
        Some(id) => n.constant(id, "numbers of rounds")?.single().map(|v| v as i64),
        None => Some(i64::MAX),
    };
    let most = most.ok_or_else(|| n.attributes.error("its number of rounds is a list"))?;
    let mut active: Option<ValueId> = None;
    let mut goes_on = true;
    if let Some(id) = n.optional(1) {
        if n.to.graph.known(id)?.is_some() {
            goes_on = condition(n, id)?;
        } else {
            active = Some(shape::fixed(n, id, &[])?);
        }
    }
    let count = n.operands().saturating_sub(2);
    let mut state: Vec<Value> = (0..count).map(|i| n.value(i + 2)).collect();
    let scanned = body.output.len().checked_sub(count + 1);
    let scanned = scanned.ok_or_else(|| n.attributes.error("its body has too few results"))?;
    let mut rows: Vec<Vec<Typed>> = vec![vec![]; scanned];
    let mut round = 0;
    if active.is_some() {
        bounded(n, scanned, most)?;
    }
    while goes_on && round < most {
        if round == MAX_ROUNDS {
            return Err(n.unsupported(format!("of more than {MAX_ROUNDS} rounds")));
        }
        let number = HostTensor::integers([], vec![round])?;
        let number = n.to.graph.public(n.attributes.name, number);
        let truth = HostTensor::integers([], vec![1])?;
        let truth = n.to.graph.public(n.attributes.name, truth);
        let mut operands = vec![
            Value::Tensor(Typed { id: number, kind: dtype::INT64 }),
            Value::Tensor(Typed { id: truth, kind: dtype::BOOL }),
        ];
        let before = state.clone();
        operands.append(&mut state);
        let mut made = n.to.body(body, operands)?;
        collect(n, &mut rows, made.split_off((count + 1).min(made.len())))?;
        let new = made.split_off(1.min(made.len()));
        state = match active {
            Some(active) => chosen(n, active, new, &before)?,
            None => new,
        };
        let Some(Value::Tensor(next)) = made.first() else {
            return Err(n.attributes.error("its body gives no condition"));
        };
        if n.to.graph.known(next.id)?.is_some() {
            goes_on = condition(n, next.id)?;
        } else {
            bounded(n, scanned, most)?;
            // Further rounds are computed, and change nothing once it is false.
            let next = shape::fixed(n, next.id, &[])?;
            active = Some(match active {
                Some(active) => n.binary_op(Binary::And, active, next)?,
                None => next,
            });
        }
        round += 1;
    }
    let stacked = rows.iter().map(|rows| stack(n, rows, 0)).collect::<Result<Vec<_>>>()?;
    state.extend(stacked);
    Ok(state)
}

/// Refuses a loop whose condition depends on the input if it may have many rounds, or collects lists: their length
/// would tell how many rounds there were.
fn bounded(n: &Node<'_, '_>, lists: usize, most: i64) -> Result<()> {
    if lists == 0 && most <= MAX_SECRET_ROUNDS {
        return Ok(());
    }
    Err(n.unsupported(format!(
        "with a condition that depends on the input, but of at most {MAX_SECRET_ROUNDS} rounds and without lists"
    )))
}

/// The new state, or the one before where the loop has ended.
fn chosen(
    n: &mut Node<'_, '_>,
    active: ValueId,
    new: Vec<Value>,
    before: &[Value],
) -> Result<Vec<Value>> {
    let mut state = vec![];
    for (new, before) in new.into_iter().zip(before) {
        let (Value::Tensor(x), Value::Tensor(y)) = (&new, before) else {
            return Err(n.unsupported("of lists, where the condition depends on the input"));
        };
        if n.dims(x.id) != n.dims(y.id) {
            let shapes = format!("{:?} or {:?}", n.dims(x.id), n.dims(y.id));
            return Err(n.unsupported(format!("where the input decides the shape: {shapes}")));
        }
        let id = n.add(Op::Where, &[active, x.id, y.id])?;
        state.push(Typed { id, kind: x.kind }.into());
    }
    Ok(state)
}

fn condition(n: &Node<'_, '_>, id: ValueId) -> Result<bool> {
    let value = n.constant(id, "conditions")?.single();
    value.map(|v| v != 0.0).ok_or_else(|| n.attributes.error("its condition is a list"))
}

/// Adds the values of a round to the lists that collect them.
fn collect(n: &Node<'_, '_>, rows: &mut [Vec<Typed>], made: Vec<Value>) -> Result<()> {
    for (rows, value) in rows.iter_mut().zip(made) {
        match value {
            Value::Tensor(value) => rows.push(value),
            _ => return Err(n.attributes.error("a round gives a list where a tensor is needed")),
        }
    }
    Ok(())
}

/// Tensors of one shape along a new axis.
pub(crate) fn stack(n: &mut Node<'_, '_>, rows: &[Typed], axis: i64) -> Result<Value> {
    let Some(first) = rows.first() else {
        return Err(n.unsupported("without a round: the shape of what it collects is not known"));
    };
    let axis = n.axis(axis, n.dims(first.id).len() + 1, false)?;
    let mut parts = vec![];
    for row in rows {
        let mut dims = n.dims(row.id);
        dims.insert(axis.min(dims.len()), 1);
        parts.push(shape::fixed(n, row.id, &dims)?);
    }
    let id = if parts.len() == 1 { parts[0] } else { n.add(Op::Concat(axis), &parts)? };
    Ok(Value::Tensor(Typed { id, kind: first.kind }))
}

/// A body for each step along an axis.
pub(crate) fn scan(n: &mut Node<'_, '_>) -> Result<Vec<Value>> {
    let body = n.attributes.graph("body")?;
    let scanned = n.attributes.int("num_scan_inputs", 0);
    let scanned = usize::try_from(scanned).ok().filter(|&k| k > 0 && k <= n.operands());
    let scanned = scanned.ok_or_else(|| n.attributes.error("num_scan_inputs does not fit"))?;
    if n.to.opset < 9 {
        return Err(n.unsupported("before opset 9, where it has a batch of its own"));
    }
    let count = n.operands() - scanned;
    let collected = body.output.len().checked_sub(count);
    let collected = collected.ok_or_else(|| n.attributes.error("its body has too few results"))?;
    let listed = |name: &str, i: usize| -> i64 {
        n.attributes.ints(name).and_then(|v| v.get(i)).copied().unwrap_or(0)
    };
    let mut inputs = vec![];
    for i in 0..scanned {
        let x = n.tensor(count + i)?;
        let dims = n.dims(x.id);
        let axis = n.axis(listed("scan_input_axes", i), dims.len(), false)?;
        inputs.push((x, axis, dims[axis], listed("scan_input_directions", i) != 0));
    }
    let steps = inputs[0].2;
    if inputs.iter().any(|input| input.2 != steps) {
        return Err(n.attributes.error("what it goes along differs in length"));
    }
    let mut state: Vec<Value> = (0..count).map(|i| n.value(i)).collect();
    let mut rows: Vec<Vec<Typed>> = vec![vec![]; collected];
    for step in 0..steps {
        let mut operands = std::mem::take(&mut state);
        for &(x, axis, _, backwards) in &inputs {
            let at = if backwards { steps - 1 - step } else { step };
            let op = Op::Gather { axis, indices: vec![at], squeeze: true };
            let id = n.add(op, &[x.id])?;
            operands.push(Typed { id, kind: x.kind }.into());
        }
        let mut made = n.to.body(body, operands)?;
        collect(n, &mut rows, made.split_off(count.min(made.len())))?;
        state = made;
    }
    for (i, mut rows) in rows.into_iter().enumerate() {
        if n.attributes.ints("scan_output_directions").and_then(|v| v.get(i)) == Some(&1) {
            rows.reverse();
        }
        let axis = n.attributes.ints("scan_output_axes").and_then(|v| v.get(i)).copied();
        state.push(stack(n, &rows, axis.unwrap_or(0))?);
    }
    Ok(state)
}
