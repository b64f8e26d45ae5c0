//! Brings operations into the few forms that the other passes know.

use crate::graph::{
    Binary, Constant, Graph, Linear, LinearMap, Node, Op, Reduce, Unary, ValueId, eval,
};
use crate::plan::formats;
use crate::{HostTensor, Result};

/// Averages become sums with a factor, divisions by constants products, products with constants
/// linear layers.
pub(crate) fn lower(graph: &mut Graph) -> Result<()> {
    let whole = whole(graph);
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let id = ValueId(i);
        match &node.op {
            Op::AvgPool { pool, count_border } => {
                let x = node.inputs[0];
                let taps = pool.taps() as f64;
                let sum = graph.add_as(node.format, &node.name, Op::SumPool(*pool), &[x])?;
                let mean = if *count_border || pool.padding == [0; 4] {
                    graph.add_as(node.format, &node.name, Op::Scale(1.0 / taps), &[sum])?
                } else {
                    let factors = inside_factors(graph, x, &node.op)?;
                    let factors = graph.public(&format!("{}.factors", node.name), factors);
                    graph.add_as(
                        node.format,
                        &node.name,
                        Op::Binary(Binary::Mul),
                        &[sum, factors],
                    )?
                };
                graph.replace(id, mean);
            }
            // A mean over the batch depends on its size; it stays as it is.
            Op::Reduce { kind: Reduce::Mean, axes, keep } if !axes.contains(&0) => {
                let x = node.inputs[0];
                let count: usize = axes.iter().map(|&a| graph.shape(x).dims()[a]).product();
                let sum = Op::Reduce { kind: Reduce::Sum, axes: axes.clone(), keep: *keep };
                let sum = graph.add_as(node.format, &node.name, sum, &[x])?;
                let mean = graph.add_as(
                    node.format,
                    &node.name,
                    Op::Scale(1.0 / count.max(1) as f64),
                    &[sum],
                )?;
                graph.replace(id, mean);
            }
            Op::Binary(Binary::PRelu) => {
                let sum = slopes(graph, &node)?;
                graph.replace(id, sum);
            }
            Op::Unary(Unary::Neg) => graph.rewrite(id, Op::Scale(-1.0), node.inputs.clone()),
            Op::Conv(kernel) => linear(graph, id, LinearMap::Conv(*kernel)),
            Op::ConvTranspose { kernel, extra } => {
                linear(graph, id, LinearMap::ConvTranspose { kernel: *kernel, extra: *extra });
            }
            &Op::MatMul { transpose_lhs, transpose_rhs } => {
                linear(graph, id, LinearMap::MatMul { transpose_lhs, transpose_rhs });
            }
            // Integers stay integers, as tables and one-hot vectors take them.
            Op::Binary(Binary::Sub | Binary::Mul) if whole[i] => {}
            Op::Binary(f) => binary(graph, id, *f)?,
            _ => {}
        }
    }
    Ok(())
}

/// `x + (1 - slope) max(-x, 0)`.
fn slopes(graph: &mut Graph, node: &Node) -> Result<ValueId> {
    let [x, slope] = [node.inputs[0], node.inputs[1]];
    let mut add = |op, inputs: &[ValueId]| graph.add_as(node.format, &node.name, op, inputs);
    let minus = add(Op::Scale(-1.0), &[x])?;
    let below = add(Op::Unary(Unary::Relu), &[minus])?;
    let minus = add(Op::Scale(-1.0), &[slope])?;
    let one = graph.public(&format!("{}.one", node.name), HostTensor::new([1], vec![1.0])?);
    let mut add = |op, inputs: &[ValueId]| graph.add_as(node.format, &node.name, op, inputs);
    let less = add(Op::Binary(Binary::Add), &[minus, one])?;
    let more = add(Op::Binary(Binary::Mul), &[below, less])?;
    add(Op::Binary(Binary::Add), &[x, more])
}

/// For each value, true if it is an integer, without fraction bits.
pub(super) fn whole(graph: &Graph) -> Vec<bool> {
    let mut bits: Vec<u32> = vec![];
    for node in &graph.nodes {
        // An operand that comes after its user has an unknown format.
        let of: Vec<u32> =
            node.inputs.iter().map(|x| bits.get(x.0).copied().unwrap_or(1)).collect();
        bits.push(match node.op {
            Op::Input(k) => u32::from(!graph.inputs[k].integer),
            Op::Constant(k) | Op::Parameter(k) => u32::from(!graph.constants[k].value.is_int()),
            // Any format is enough: integers do not have one.
            ref op => formats::result_frac(op, &of, 1).unwrap_or(1),
        });
    }
    bits.into_iter().map(|bits| bits == 0).collect()
}

/// One over the number of elements inside the input, at each position of a window.
fn inside_factors(graph: &Graph, x: ValueId, op: &Op) -> Result<HostTensor> {
    let Op::AvgPool { pool, .. } = op else { unreachable!("called for average pooling") };
    let dims = graph.shape(x).dims();
    let [h, w] = [dims[dims.len() - 2], dims[dims.len() - 1]];
    let ones = HostTensor::new([h, w], vec![1.0; h * w])?;
    Ok(eval::evaluate(&Op::SumPool(*pool), &[&ones], 1)?.map(|n| 1.0 / n))
}

/// A product with a constant second operand. One with integers keeps the format of the first and
/// needs no truncation: it stays as it is.
fn linear(graph: &mut Graph, at: ValueId, map: LinearMap) {
    let inputs = graph.nodes[at.0].inputs.clone();
    let dynamic = graph.constant_of(inputs[0]).is_none();
    let real = |c: &Constant| !c.value.is_int();
    if dynamic && graph.constant_of(inputs[1]).is_some_and(real) {
        graph.rewrite(at, Op::Linear(Linear::new(map)), inputs);
    }
}

/// Sums, products and quotients with one constant operand.
fn binary(graph: &mut Graph, at: ValueId, f: Binary) -> Result<()> {
    let node = graph.nodes[at.0].clone();
    let (x, y) = match (graph.constant_of(node.inputs[0]), graph.constant_of(node.inputs[1])) {
        (None, Some(_)) => (node.inputs[0], node.inputs[1]),
        (Some(_), None) => (node.inputs[1], node.inputs[0]),
        _ => return Ok(()),
    };
    let constant_first = x != node.inputs[0];
    let constant = graph.constant_of(y).cloned().expect("one operand is a constant");
    let derived = |graph: &mut Graph, value: HostTensor| {
        graph.constant(&constant.name, value, constant.secret)
    };
    match f {
        Binary::Sub if !constant_first => {
            let negative = derived(graph, constant.value.to_float().map(|v| -v));
            graph.rewrite(at, Op::Binary(Binary::Add), vec![x, negative]);
        }
        Binary::Sub => {
            let minus = graph.add_as(node.format, &node.name, Op::Scale(-1.0), &[x])?;
            graph.rewrite(at, Op::Binary(Binary::Add), vec![minus, y]);
        }
        Binary::Add => graph.rewrite(at, Op::Binary(f), vec![x, y]),
        Binary::Div if !constant_first => {
            let inverse = inverse(&constant.value).map_err(|e| e.at(&node.name))?;
            let inverse = derived(graph, inverse);
            times(graph, at, x, inverse);
        }
        Binary::Mul => times(graph, at, x, y),
        _ => {}
    }
    Ok(())
}

/// One over each number.
fn inverse(divisor: &HostTensor) -> Result<HostTensor> {
    divisor.check_finite()?;
    let inverse = divisor.to_float().map(|v| 1.0 / v);
    inverse.check_finite()?;
    Ok(inverse)
}

/// Divisions by weights that are not trained become products, while their numbers are known.
pub(crate) fn invert_frozen_divisors(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let &[x, y] = node.inputs.as_slice() else { continue };
        let Some(divisor) = graph.constant_of(y).filter(|divisor| divisor.secret).cloned() else {
            continue;
        };
        if node.op == Op::Binary(Binary::Div) {
            let inverse = inverse(&divisor.value).map_err(|e| e.at(&node.name))?;
            let inverse = graph.weight(&divisor.name, inverse);
            graph.rewrite(ValueId(i), Op::Binary(Binary::Mul), vec![x, inverse]);
        }
    }
    Ok(())
}

/// The product of a value and a constant.
fn times(graph: &mut Graph, at: ValueId, x: ValueId, y: ValueId) {
    let constant = graph.constant_of(y).expect("the caller found a constant");
    let fits = graph.shape(at) == graph.shape(x);
    let public = if constant.secret { None } else { constant.value.single() };
    let op = match public {
        Some(c) if fits => return graph.rewrite(at, Op::Scale(c), vec![x]),
        None if fits && constant.secret => {
            // Integers would be scaled as weights are; as real numbers they mean the same.
            Op::Linear(Linear::new(LinearMap::Mul))
        }
        _ => Op::Binary(Binary::Mul),
    };
    let float = graph.constant_value(y).is_some_and(HostTensor::is_int).then(|| {
        let c = graph.constant_of(y).cloned().expect("the caller found a constant");
        graph.constant(&c.name, c.value.to_float(), c.secret)
    });
    graph.rewrite(at, op, vec![x, float.unwrap_or(y)]);
}
