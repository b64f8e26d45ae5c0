//! Recognises rows that are divided by their length, written out as several operations. As normalisations they
//! keep to their range where squares do not, and cost less than a root and a quotient.

use mpc_core::functions::Centre;

use crate::Result;
use crate::graph::{Binary, Graph, Op, Reduce, Unary, ValueId};

/// A number added to a length, or the least that a length counts as, which is below the unit of fixed point.
/// Exporters write it against division by zero.
const GUARD: f64 = 1e-6;

/// The root of rows' sums or means of squares.
struct Length {
    /// The rows.
    x: ValueId,
    /// Their axes, ascending.
    axes: Vec<usize>,
    /// Of the mean of squares, not of their sum.
    mean: bool,
    /// Added to sum or mean.
    epsilon: f64,
}

/// `x / sqrt(sum(x^2) + epsilon)`, with a mean for the sum, or `x / max(|x|, epsilon)` of a small epsilon, as a
/// normalisation from 0.
pub(super) fn by_length(graph: &mut Graph, at: ValueId) -> Result<()> {
    let Some(Length { x, axes, mean, epsilon }) = divided(graph, at) else { return Ok(()) };
    let node = graph.nodes[at.0].clone();
    let dims = graph.shape(x).dims().to_vec();
    let count: usize = axes.iter().map(|&axis| dims[axis]).product();
    // The batch's size is not part of a plan.
    if count == 0 || axes.contains(&0) && graph.any_batch {
        return Ok(());
    }
    let mut add = |op: Op, inputs: &[ValueId]| graph.add_as(node.format, &node.name, op, inputs);
    let order: Vec<_> =
        (0..dims.len()).filter(|axis| !axes.contains(axis)).chain(axes.iter().copied()).collect();
    let axis = dims.len() - axes.len();
    let rows = if order.is_sorted() { x } else { add(Op::Permute(order.clone()), &[x])? };
    let epsilon = if mean { epsilon } else { epsilon / count as f64 };
    let mut y = add(Op::Normalize { axis, centre: Centre::Zero, epsilon }, &[rows])?;
    if !mean {
        y = add(Op::Scale((count as f64).sqrt().recip()), &[y])?;
    }
    if !order.is_sorted() {
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
        y = add(Op::Permute(back), &[y])?;
    }
    graph.replace(at, y);
    Ok(())
}

/// The length by which a node divides, if it divides a value by the value's own length.
fn divided(graph: &Graph, at: ValueId) -> Option<Length> {
    let node = &graph.nodes[at.0];
    let &[x, y] = node.inputs.as_slice() else { return None };
    let of = |x: ValueId, length: Option<Length>| length.filter(|length| length.x == x);
    let found = match node.op {
        Op::Binary(Binary::Div) => of(x, length(graph, y)),
        Op::Binary(Binary::Mul) => of(x, inverse(graph, y)).or_else(|| of(y, inverse(graph, x))),
        _ => None,
    };
    found.filter(|length| !length.axes.is_empty() && graph.shape(length.x) == &node.shape)
}

/// The length that this is, with its axes kept or repeated.
fn length(graph: &Graph, id: ValueId) -> Option<Length> {
    let kept = unspread(graph, id);
    guarded(graph, kept).filter(|found| keeps_axes(graph, kept, found))
}

/// True if a value has a number for each row, in the place of the row.
fn keeps_axes(graph: &Graph, id: ValueId, of: &Length) -> bool {
    let mut dims = graph.shape(of.x).dims().to_vec();
    of.axes.iter().for_each(|&axis| dims[axis] = 1);
    graph.shape(id).dims() == dims
}

/// The length of which this is one over.
fn inverse(graph: &Graph, id: ValueId) -> Option<Length> {
    let kept = unspread(graph, id);
    let node = &graph.nodes[kept.0];
    match node.op {
        Op::Unary(Unary::InvSqrt | Unary::Pow(-0.5)) => {
            mean_square(graph, node.inputs[0]).filter(|found| keeps_axes(graph, kept, found))
        }
        Op::Unary(Unary::Reciprocal) => length(graph, node.inputs[0]),
        Op::Binary(Binary::Div) => {
            let one = graph.constant_value(node.inputs[0])?.uniform() == Some(1.0);
            if one { length(graph, node.inputs[1]) } else { None }
        }
        _ => None,
    }
}

/// A length, or one that is kept from zero.
fn guarded(graph: &Graph, id: ValueId) -> Option<Length> {
    let id = unshaped(graph, id);
    if let Some((inner, epsilon)) = moved(graph, id).or_else(|| at_least(graph, id)) {
        let found = guarded(graph, inner).filter(|_| epsilon <= GUARD)?;
        return Some(Length { epsilon: found.epsilon.max(epsilon * epsilon), ..found });
    }
    let node = &graph.nodes[id.0];
    match &node.op {
        Op::Reduce { kind: Reduce::L2, axes, .. } => {
            Some(Length { x: node.inputs[0], axes: axes.clone(), mean: false, epsilon: 0.0 })
        }
        Op::Unary(Unary::Sqrt | Unary::Pow(0.5)) => mean_square(graph, node.inputs[0]),
        _ => None,
    }
}

/// Sums or means of squares, with their addend.
fn mean_square(graph: &Graph, id: ValueId) -> Option<Length> {
    let id = unshaped(graph, id);
    if let Some((inner, epsilon)) = moved(graph, id) {
        let found = mean_square(graph, inner)?;
        return Some(Length { epsilon: found.epsilon + epsilon, ..found });
    }
    if let Some((inner, least)) = at_least(graph, id) {
        let found = mean_square(graph, inner).filter(|_| least <= GUARD * GUARD)?;
        return Some(Length { epsilon: found.epsilon.max(least), ..found });
    }
    let node = &graph.nodes[id.0];
    let Op::Reduce { kind, axes, .. } = &node.op else { return None };
    let x = match kind {
        Reduce::SumSquare => node.inputs[0],
        Reduce::Sum | Reduce::Mean => squared(graph, node.inputs[0])?,
        _ => return None,
    };
    Some(Length { x, axes: axes.clone(), mean: *kind == Reduce::Mean, epsilon: 0.0 })
}

/// The value that is repeated here.
fn unspread(graph: &Graph, mut id: ValueId) -> ValueId {
    while matches!(graph.nodes[id.0].op, Op::Broadcast(_)) {
        id = graph.nodes[id.0].inputs[0];
    }
    id
}

/// The value that has another shape here.
fn unshaped(graph: &Graph, mut id: ValueId) -> ValueId {
    while matches!(graph.nodes[id.0].op, Op::Reshape(_)) {
        id = graph.nodes[id.0].inputs[0];
    }
    id
}

/// A sum's computed part, and the number that is added to it.
fn moved(graph: &Graph, id: ValueId) -> Option<(ValueId, f64)> {
    with_number(graph, id, Binary::Add)
}

/// A value with a lower limit, and the limit: values below count as this number.
fn at_least(graph: &Graph, id: ValueId) -> Option<(ValueId, f64)> {
    let node = &graph.nodes[id.0];
    match node.op {
        Op::Unary(Unary::Clip(Some(least), None)) => Some((node.inputs[0], least)),
        _ => with_number(graph, id, Binary::Max),
    }
    .filter(|(_, least)| *least >= 0.0)
}

/// The computed operand and the number of a function of both, in either order.
fn with_number(graph: &Graph, id: ValueId, f: Binary) -> Option<(ValueId, f64)> {
    let node = &graph.nodes[id.0];
    if node.op != Op::Binary(f) {
        return None;
    }
    let number = |id: ValueId| graph.constant_value(id)?.uniform().filter(|e| *e >= 0.0);
    let [x, y] = [node.inputs[0], node.inputs[1]];
    number(y).map(|e| (x, e)).or_else(|| number(x).map(|e| (y, e)))
}

/// The value of which this is the square, written as a product, a power or a function.
pub(super) fn squared(graph: &Graph, id: ValueId) -> Option<ValueId> {
    let node = &graph.nodes[id.0];
    match node.op {
        Op::Binary(Binary::Mul) if node.inputs[0] == node.inputs[1] => Some(node.inputs[0]),
        Op::Unary(Unary::Pow(2.0)) => Some(node.inputs[0]),
        _ => None,
    }
}
