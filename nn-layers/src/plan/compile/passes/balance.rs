//! Divides columns of raw inputs by powers of two, so that one format is fine enough for all weights. It helps
//! columns whose weights are far smaller than others', as those of an income beside those of an age.

use std::collections::BTreeSet;

use crate::graph::eval::elementwise;
use crate::graph::{Binary, Graph, LinearMap, Op, Unary, ValueId};
use crate::{HostTensor, Result};

/// The limit of the magnitude that a product's largest weight counts as. It has 14 bits at the usual 20
/// fraction bits, and smaller weights have more fraction bits (`plan/compile.rs`).
const PRODUCT: f64 = 0.015_625;

/// The same for a factor of each column. It may join the weights of the next layer, which are uneven themselves.
const FACTOR: f64 = 1.0;

/// A row of weights that is smaller than those by more than this has fewer than 9 bits: rounding changes it by more
/// than a thousandth.
const SPREAD: f64 = 0.031_25;

/// Weights below this are taken for none.
const NOTHING: f64 = 1e-9;

/// The least power of two by which columns are divided; a smaller one would only move the point, for all columns alike.
const LEAST: u32 = 9;

/// The distance between two of those powers. The power of each column is public.
const STEP: u32 = 2;

/// Divides such columns, and multiplies their weights by as much.
pub(crate) fn even_out(graph: &mut Graph) -> Result<()> {
    // Trained weights have separate formats.
    if !graph.parameters().is_empty() {
        return Ok(());
    }
    let raw = raw(graph);
    let mut changed = false;
    for i in 0..graph.nodes.len() {
        let Some((x, axis, along)) = columns(graph, ValueId(i)) else { continue };
        if !raw[x.0] {
            continue;
        }
        let node = graph.nodes[i].clone();
        let constant = graph.constant_of(node.inputs[1]).cloned().expect("weights are constant");
        let Op::Linear(linear) = &node.op else { unreachable!("only linear layers have columns") };
        let Some(shifts) = shifts(&largest(&constant.value, along), &linear.map) else { continue };
        let mut dims = vec![1; constant.value.dims().len()];
        dims[along] = shifts.len();
        let factors = shifts.iter().map(|&shift| f64::from(shift).exp2()).collect();
        let weight = HostTensor::new(dims, factors)
            .and_then(|factors| elementwise::binary(Binary::Mul, &constant.value, &factors))?;
        let weight = graph.constant(&constant.name, weight, constant.secret);
        let divided = divided(graph, &node.name, x, axis, &shifts)?;
        let mut inputs = node.inputs.clone();
        inputs[0] = divided;
        inputs[1] = weight;
        graph.rewrite(ValueId(i), node.op, inputs);
        changed = true;
    }
    // Added nodes come after their users.
    if changed {
        graph.sweep();
    }
    Ok(())
}

/// Values that are those of a real input, moved, selected or shifted, but not multiplied by anything.
fn raw(graph: &Graph) -> Vec<bool> {
    let mut raw: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        // An operand that comes after its user is not an input's.
        let of = |x: &ValueId| raw.get(x.0).copied().unwrap_or(false);
        raw.push(match &node.op {
            Op::Input(_) => true,
            Op::Cast | Op::Scale(1.0) | Op::Where | Op::Unary(Unary::Relu | Unary::Clip(..)) => {
                node.inputs.iter().any(of)
            }
            Op::Binary(Binary::Add | Binary::Sub | Binary::Max | Binary::Min) => {
                node.inputs.iter().all(|x| of(x) || graph.constant_of(*x).is_some())
            }
            op if op.info().moves_elements => node.inputs.iter().any(of),
            _ => false,
        });
    }
    raw
}

/// The operand of a linear layer whose columns each have separate weights, their axis, and the weight's axis
/// that belongs to it.
fn columns(graph: &Graph, at: ValueId) -> Option<(ValueId, usize, usize)> {
    let node = &graph.nodes[at.0];
    let Op::Linear(linear) = &node.op else { return None };
    let x = node.inputs[0];
    let weight = graph.constant_value(node.inputs[1])?;
    let rank = graph.shape(x).rank();
    match linear.map {
        LinearMap::MatMul { transpose_lhs: false, transpose_rhs } if weight.dims().len() == 2 => {
            let axis = rank.checked_sub(1).filter(|axis| *axis > 0)?;
            Some((x, axis, usize::from(transpose_rhs)))
        }
        LinearMap::Conv(kernel) if kernel.groups == 1 => Some((x, 1, 1)),
        LinearMap::Mul => {
            let dims = weight.dims();
            let mut wide = (0..dims.len()).filter(|&axis| dims[axis] != 1);
            let along = wide.next().filter(|_| wide.next().is_none())?;
            let axis = (along + rank).checked_sub(dims.len())?;
            (axis > 0 && graph.shape(x).dims()[axis] == dims[along]).then_some((x, axis, along))
        }
        _ => None,
    }
}

/// The largest magnitude at each place of an axis.
fn largest(weight: &HostTensor, axis: usize) -> Vec<f64> {
    let dims = weight.dims();
    let inner: usize = dims[axis + 1..].iter().product();
    let mut largest = vec![0.0f64; dims[axis]];
    for (i, v) in weight.floats().iter().enumerate() {
        let at = i / inner.max(1) % dims[axis].max(1);
        largest[at] = largest[at].max(v.abs());
    }
    largest
}

/// The powers of two by which columns are divided, if any is.
fn shifts(largest: &[f64], map: &LinearMap) -> Option<Vec<u32>> {
    let top = largest.iter().copied().fold(0.0, f64::max);
    let wanted = top.min(if *map == LinearMap::Mul { FACTOR } else { PRODUCT });
    let shift = |&size: &f64| {
        if size >= wanted * SPREAD || size < NOTHING {
            return 0;
        }
        let bits = (wanted / size).log2().floor().max(0.0) as u32;
        LEAST + bits.saturating_sub(LEAST) / STEP * STEP
    };
    let shifts: Vec<_> = largest.iter().map(shift).collect();
    shifts.iter().any(|&shift| shift > 0).then_some(shifts)
}

/// The value with each place of an axis divided by a power of two: places with the same one together.
fn divided(
    graph: &mut Graph,
    name: &str,
    x: ValueId,
    axis: usize,
    shifts: &[u32],
) -> Result<ValueId> {
    let mut order: Vec<usize> = vec![];
    let mut parts = vec![];
    for shift in shifts.iter().copied().collect::<BTreeSet<_>>() {
        let indices: Vec<_> = (0..shifts.len()).filter(|&i| shifts[i] == shift).collect();
        order.extend(&indices);
        let part = graph.add(name, Op::Gather { axis, indices, squeeze: false }, &[x])?;
        let by = (-f64::from(shift)).exp2();
        parts.push(if shift == 0 { part } else { graph.add(name, Op::Scale(by), &[part])? });
    }
    let joined = match parts.as_slice() {
        [all] => *all,
        several => graph.add(name, Op::Concat(axis), several)?,
    };
    let mut indices = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &place)| indices[place] = at);
    graph.add(name, Op::Gather { axis, indices, squeeze: false }, &[joined])
}
