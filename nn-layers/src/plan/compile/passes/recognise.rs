//! Functions that exporters write out as several operations, found again: as one they keep to their range where
//! their parts do not, and cost less.

use super::rms_norm::{by_length, squared};
use crate::graph::{Binary, Graph, Op, Reduce, Unary, ValueId, eval};
use crate::{HostTensor, Result};

/// The most operations that a function is written out as.
const MOST: usize = 12;

/// The most by which two functions that count as the same may differ: constants are written with seven digits.
const SAME: f64 = 1e-5;

/// The points at which functions are compared. GELU by a hyperbolic tangent differs from that by the error
/// function by up to 5e-4: it is another function.
const POINTS: [f64; 13] = [-9.0, -4.1, -2.7, -1.9, -1.1, -0.6, -0.2, 0.0, 0.3, 0.8, 1.4, 2.9, 6.5];

/// Finds written-out functions.
pub(crate) fn recognise(graph: &mut Graph) -> Result<()> {
    for at in (0..graph.nodes.len()).map(ValueId) {
        by_length(graph, at)?;
    }
    for at in (0..graph.nodes.len()).map(ValueId) {
        activation(graph, at);
        mish(graph, at)?;
        softmax(graph, at);
        sum_of_squares(graph, at)?;
        log_of_sum(graph, at)?;
    }
    Ok(())
}

/// GELU in both forms and SiLU, sigmoid, hyperbolic tangent and softplus of exponentials: products, quotients and
/// logarithms at whose beginning is one value alone.
fn activation(graph: &mut Graph, at: ValueId) {
    let ends = matches!(
        graph.nodes[at.0].op,
        Op::Binary(Binary::Mul | Binary::Div)
            | Op::Scale(_)
            | Op::Unary(Unary::Log | Unary::Reciprocal)
    );
    if !ends {
        return;
    }
    let cone = cone(graph, at);
    let curve = |id: &ValueId| {
        matches!(graph.nodes[id.0].op, Op::Unary(Unary::Erf | Unary::Tanh | Unary::Sigmoid))
    };
    let exponential = |id: &ValueId| graph.nodes[id.0].op == Op::Unary(Unary::Exp);
    let curves = cone.iter().filter(|id| curve(id)).count();
    let exponentials = cone.iter().filter(|id| exponential(id)).count();
    if !matches!((curves, exponentials), (1, 0) | (0, 1..)) {
        return;
    }
    let mut sources: Vec<_> = cone
        .iter()
        .flat_map(|id| graph.nodes[id.0].inputs.iter().copied())
        .filter(|&id| graph.constant_of(id).is_none() && graph.shape(id) == graph.shape(at))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    for &source in sources.iter().rev() {
        let Some(values) = applied(graph, &cone, source, at) else { continue };
        if let Some(f) = which(&values) {
            graph.nodes[at.0].op = Op::Unary(f);
            graph.nodes[at.0].inputs = vec![source];
            return;
        }
    }
}

/// The element-wise operations that lead to a node, in order, at most [`MOST`] of them.
fn cone(graph: &Graph, at: ValueId) -> Vec<ValueId> {
    let mut found = vec![at];
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
        let inputs = graph.nodes[found[next].0].inputs.clone();
        let element = |id: &ValueId| {
            let op = &graph.nodes[id.0].op;
            matches!(
                op,
                Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) | Op::Scale(_)
            ) || matches!(
                op,
                Op::Unary(
                    Unary::Erf
                        | Unary::Tanh
                        | Unary::Sigmoid
                        | Unary::Exp
                        | Unary::Reciprocal
                        | Unary::Pow(_)
                        | Unary::Neg
                )
            )
        };
        for id in inputs.into_iter().filter(element) {
            if !found.contains(&id) {
                found.push(id);
            }
        }
        next += 1;
    }
    found.sort_unstable();
    found
}

/// The results of the operations for [`POINTS`] in the place of `source`; None if they need other values too.
fn applied(graph: &Graph, cone: &[ValueId], source: ValueId, at: ValueId) -> Option<Vec<f64>> {
    let points = HostTensor::new([POINTS.len()], POINTS.to_vec()).ok()?;
    let mut known = vec![(source, points)];
    for &id in cone.iter().filter(|id| **id > source) {
        let node = &graph.nodes[id.0];
        let operand = |x: &ValueId| {
            let found = known.iter().find(|(id, _)| id == x).map(|(_, value)| value.clone());
            found.or_else(|| graph.constant_value(*x)?.uniform().map(HostTensor::scalar))
        };
        // A node that does not follow from the source is another branch.
        let Some(xs) = node.inputs.iter().map(operand).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let value = eval::evaluate(&node.op, &xs.iter().collect::<Vec<_>>(), 1).ok()?;
        known.push((id, value));
    }
    let made = known.into_iter().find(|(id, _)| *id == at)?.1;
    (made.len() == POINTS.len()).then(|| made.floats().into_owned())
}

/// The function with these values.
fn which(values: &[f64]) -> Option<Unary> {
    let of = |f: Unary| move |x: f64| eval::elementwise::unary_f64(f, x);
    let same =
        |f: &dyn Fn(f64) -> f64| POINTS.iter().zip(values).all(|(&x, &y)| (f(x) - y).abs() < SAME);
    let known =
        [Unary::Gelu, Unary::GeluTanh, Unary::Silu, Unary::Sigmoid, Unary::Tanh, Unary::Softplus];
    known.into_iter().find(|&f| same(&of(f)))
}

/// Below this `x tanh(softplus(x))` is 0 in every format.
const MISH_END: f64 = -16.0;

/// `x tanh(softplus(x))`, with the numbers below its end taken for that: a large one would multiply the error of a
/// small factor.
fn mish(graph: &mut Graph, at: ValueId) -> Result<()> {
    let node = graph.nodes[at.0].clone();
    let &[a, b] = node.inputs.as_slice() else { return Ok(()) };
    let gated = |gate: ValueId| {
        let behind = |id: ValueId, f: Unary| {
            let node = &graph.nodes[id.0];
            (node.op == Op::Unary(f)).then(|| node.inputs[0])
        };
        behind(behind(gate, Unary::Tanh)?, Unary::Softplus)
    };
    let place = match (gated(b) == Some(a), gated(a) == Some(b)) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return Ok(()),
    };
    if node.op == Op::Binary(Binary::Mul) {
        let clip = Op::Unary(Unary::Clip(Some(MISH_END), None));
        let clipped = graph.add_as(node.format, &node.name, clip, &[node.inputs[place]])?;
        graph.nodes[at.0].inputs[place] = clipped;
    }
    Ok(())
}

/// `exp(x) / sum(exp(x))`, which is the softmax of any `x`: `exp` alone ends at 11.
fn softmax(graph: &mut Graph, at: ValueId) {
    let node = &graph.nodes[at.0];
    if node.op != Op::Binary(Binary::Div) {
        return;
    }
    let [powers, sum] = [0, 1].map(|i| &graph.nodes[node.inputs[i].0]);
    let Op::Reduce { kind: Reduce::Sum, axes, keep: true } = &sum.op else { return };
    if powers.op != Op::Unary(Unary::Exp) || sum.inputs[0] != node.inputs[0] {
        return;
    }
    let &[axis] = &axes[..] else { return };
    let x = powers.inputs[0];
    graph.nodes[at.0].op = Op::Softmax { axis, log: false };
    graph.nodes[at.0].inputs = vec![x];
}

/// Sums and means of squares, of norms above all: each square alone would leave its range from 2^11 on.
fn sum_of_squares(graph: &mut Graph, at: ValueId) -> Result<()> {
    let node = graph.nodes[at.0].clone();
    let Op::Reduce { kind: kind @ (Reduce::Sum | Reduce::Mean), axes, keep } = &node.op else {
        return Ok(());
    };
    let Some(x) = squared(graph, node.inputs[0]) else { return Ok(()) };
    if axes.contains(&0) || graph.users()[node.inputs[0].0].len() != 1 {
        return Ok(());
    }
    let count: usize = axes.iter().map(|&a| graph.shape(x).dims()[a]).product();
    let squares = Op::Reduce { kind: Reduce::SumSquare, axes: axes.clone(), keep: *keep };
    if *kind == Reduce::Sum {
        graph.nodes[at.0].op = squares;
        graph.nodes[at.0].inputs = vec![x];
        return Ok(());
    }
    let sum = graph.add_as(node.format, &node.name, squares, &[x])?;
    let mean = Op::Scale(1.0 / count.max(1) as f64);
    let mean = graph.add_as(node.format, &node.name, mean, &[sum])?;
    graph.replace(at, mean);
    Ok(())
}

/// `log(sum(exp(x)))` with the largest taken out first: `exp` alone ends at 11.
fn log_of_sum(graph: &mut Graph, at: ValueId) -> Result<()> {
    let node = graph.nodes[at.0].clone();
    if node.op != Op::Unary(Unary::Log) {
        return Ok(());
    }
    let sum = &graph.nodes[node.inputs[0].0];
    let Op::Reduce { kind: Reduce::Sum, axes, keep } = sum.op.clone() else { return Ok(()) };
    let exp = &graph.nodes[sum.inputs[0].0];
    if exp.op != Op::Unary(Unary::Exp) {
        return Ok(());
    }
    let x = exp.inputs[0];
    let mut add = |op: Op, inputs: &[ValueId]| graph.add_as(node.format, &node.name, op, inputs);
    let over = |kind, keep| Op::Reduce { kind, axes: axes.clone(), keep };
    let largest = add(over(Reduce::Max, true), &[x])?;
    let below = add(Op::Binary(Binary::Sub), &[x, largest])?;
    let powers = add(Op::Unary(Unary::Exp), &[below])?;
    let sum = add(over(Reduce::Sum, keep), &[powers])?;
    let log = add(Op::Unary(Unary::Log), &[sum])?;
    let largest = if keep { largest } else { add(over(Reduce::Max, false), &[x])? };
    let whole = add(Op::Binary(Binary::Add), &[log, largest])?;
    graph.replace(at, whole);
    Ok(())
}
