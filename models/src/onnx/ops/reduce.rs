//! Reductions over axes.

use nn_layers::{Binary, Dim, HostTensor, Op, Reduce, Unary, ValueId};

use super::shape::{fixed, spread};
use super::{math, whole};
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;

/// The most elements along an axis that are summed up one by one.
const MAX_SUMMED: usize = 1 << 10;

pub(crate) fn reduce(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let rank = n.dims(x).len();
    let given = n.ints_or_attribute(1, "axes")?.filter(|a| !a.is_empty());
    let keep = n.attributes.int("keepdims", 1) != 0;
    let mut axes = match given {
        Some(axes) => axes.iter().map(|&a| n.axis(a, rank, false)).collect::<Result<Vec<_>>>()?,
        None if n.attributes.int("noop_with_empty_axes", 0) != 0 => {
            return Ok(vec![each_alone(n, x)?]);
        }
        None => (0..rank).collect(),
    };
    axes.sort_unstable();
    axes.dedup();
    let kind = match n.operator {
        "ReduceSum" => Reduce::Sum,
        "ReduceMean" => Reduce::Mean,
        "ReduceMax" => Reduce::Max,
        "ReduceMin" => Reduce::Min,
        "ReduceSumSquare" => Reduce::SumSquare,
        "ReduceL1" => Reduce::L1,
        "ReduceL2" => Reduce::L2,
        "ReduceLogSum" => {
            let sum = n.add(Op::Reduce { kind: Reduce::Sum, axes, keep }, &[x])?;
            return Ok(vec![n.unary(Unary::Log, sum)?]);
        }
        "ReduceLogSumExp" => return Ok(vec![log_sum_exp(n, x, axes, keep)?]),
        "ReduceProd" => return Ok(vec![product(n, x, axes, keep)?]),
        other => return Err(n.unsupported(format!("as {other}"))),
    };
    if kind == Reduce::Mean && dtype::is_float(n.kind(0)) == Some(false) && n.to.is_integer(x) {
        // As integers are divided.
        let count = axes.iter().map(|&axis| n.dims(x)[axis]).product::<usize>().max(1);
        let sum = n.add(Op::Reduce { kind: Reduce::Sum, axes, keep }, &[x])?;
        return Ok(vec![whole::divided_by(n, sum, count)?]);
    }
    Ok(vec![n.add(Op::Reduce { kind, axes, keep }, &[x])?])
}

/// A reduction of each element by itself, where no axes are given and that means none.
fn each_alone(n: &mut Node<'_, '_>, x: ValueId) -> Result<ValueId> {
    match n.operator {
        "ReduceSumSquare" => n.binary_op(Binary::Mul, x, x),
        "ReduceL1" | "ReduceL2" => n.unary(Unary::Abs, x),
        "ReduceLogSum" => n.unary(Unary::Log, x),
        _ => Ok(x),
    }
}

/// `max + log(sum(exp(x - max)))`, which stays within range.
fn log_sum_exp(n: &mut Node<'_, '_>, x: ValueId, axes: Vec<usize>, keep: bool) -> Result<ValueId> {
    let max = Op::Reduce { kind: Reduce::Max, axes: axes.clone(), keep: true };
    let max = n.add(max, &[x])?;
    let shifted = n.binary_op(Binary::Sub, x, max)?;
    let exp = n.unary(Unary::Exp, shifted)?;
    let sum = n.add(Op::Reduce { kind: Reduce::Sum, axes: axes.clone(), keep: true }, &[exp])?;
    let log = n.unary(Unary::Log, sum)?;
    let y = n.binary_op(Binary::Add, max, log)?;
    without(n, y, &axes, keep)
}

/// The product of each group, in a tree.
fn product(n: &mut Node<'_, '_>, x: ValueId, axes: Vec<usize>, keep: bool) -> Result<ValueId> {
    let mut y = x;
    if axes.iter().any(|&a| n.dims(x)[a] == 0) {
        let mut dims = n.dims(x);
        axes.iter().for_each(|&a| dims[a] = 1);
        let one = if n.to.is_integer(x) { n.whole(1)? } else { n.number(1.0) };
        y = spread(n, one, dims)?;
        return without(n, y, &axes, keep);
    }
    for &axis in &axes {
        while n.dims(y)[axis] > 1 {
            let len = n.dims(y)[axis];
            let half = len / 2;
            let part = |n: &mut Node<'_, '_>, start, end| {
                n.add(Op::Slice { axis, start, end: Dim::Fixed(end), step: 1 }, &[y])
            };
            let (left, right) = (part(n, 0, half)?, part(n, half, 2 * half)?);
            let pairs = n.binary_op(Binary::Mul, left, right)?;
            y = if len % 2 == 1 {
                let odd = part(n, len - 1, len)?;
                n.add(Op::Concat(axis), &[pairs, odd])?
            } else {
                pairs
            };
        }
    }
    without(n, y, &axes, keep)
}

/// Drops axes of length 1, unless they are kept.
fn without(n: &mut Node<'_, '_>, y: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
    if keep {
        return Ok(y);
    }
    let dims = n.dims(y);
    let left = (0..dims.len()).filter(|a| !axes.contains(a)).map(|a| Dim::Fixed(dims[a]));
    n.add(Op::Reshape(left.collect()), &[y])
}

/// Sums of the elements up to each, along one axis: a product with a public triangle of ones.
pub(crate) fn running_sum(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axis = n.constant(n.input(1)?, "axes")?.single();
    let axis = axis.ok_or_else(|| n.attributes.error("the axis is not one number"))?;
    let axis = n.axis(axis as i64, dims.len(), false)?;
    let (len, last) = (dims[axis], dims.len() - 1);
    if len > MAX_SUMMED {
        return Err(n.unsupported(format!("along {len} elements; {MAX_SUMMED} are the most")));
    }
    let reverse = n.attributes.int("reverse", 0) != 0;
    let exclusive = n.attributes.int("exclusive", 0) != 0;
    let counts = |i: usize| {
        let (from, to) = if reverse { (i % len, i / len) } else { (i / len, i % len) };
        from < to || from == to && !exclusive
    };
    let triangle = (0..len * len).map(|i| i64::from(counts(i))).collect();
    let triangle = HostTensor::integers([len, len], triangle)?;
    let triangle = n.to.graph.public(n.attributes.name, triangle);
    let mut axes: Vec<_> = (0..dims.len()).collect();
    axes.swap(axis, last);
    let rows = n.add(Op::Permute(axes.clone()), &[x])?;
    let rows = if last == 0 { fixed(n, rows, &[1, len])? } else { rows };
    let sums = math::product(n, rows, triangle)?;
    let sums = if last == 0 { fixed(n, sums, &dims)? } else { sums };
    Ok(vec![n.add(Op::Permute(axes), &[sums])?])
}
