//! Gradients clipped for each example, and noise on their sum, as operations of a step's graph.

use super::Privacy;
use crate::graph::grad::each::OfEach;
use crate::graph::{Binary, Dim, Format, Graph, Linear, LinearFinish, LinearMap, Op, ValueId};
use crate::ops::clip;
use crate::{Error, Result};

/// Fraction bits of a sum of clipped gradients, and of the noise that is added to it.
const SUM: u32 = 46;

/// Fraction bits of the sum with its noise.
const NOISY: u32 = 26;

/// Fraction bits of gradients as the optimiser takes them.
const UPDATE: u32 = 28;

/// The most fraction bits of confined values, and the range that is left to them in any case, in bits.
const VALUE: u32 = 14;
const GRADIENT: u32 = 16;
const RANGE: u32 = 9;

/// The most outputs of all dense layers together: with more the roundings of their scaled gradients might reach `2^-8`.
const MOST_OUTPUTS: usize = 12_000;

/// The nodes that [`noisy_gradients`] adds.
pub(in crate::train) struct Noisy {
    /// Each trained tensor with its gradient.
    pub gradients: Vec<(ValueId, ValueId)>,
    /// The inputs that the noise comes by.
    pub inputs: Vec<usize>,
}

/// Adds, for each trained tensor, the sum of the units' clipped gradients with noise, times the optimiser's factor.
pub(in crate::train) fn noisy_gradients(
    graph: &mut Graph,
    privacy: &Privacy,
    factor: ValueId,
    each: &[(ValueId, OfEach)],
) -> Result<Noisy> {
    let units = privacy.units(graph.batch());
    let mut confined = vec![];
    for (_, each) in each {
        confined.push(match *each {
            OfEach::Outer { x, delta, transposed } => {
                let (x, delta) = (confine(graph, x, VALUE)?, confine(graph, delta, GRADIENT)?);
                OfEach::Outer { x, delta, transposed }
            }
            OfEach::Whole(whole) => OfEach::Whole(confine(graph, whole, GRADIENT)?),
        });
    }
    let factors = factors(graph, &confined)?;
    let mut gradients = vec![];
    let mut noise = vec![];
    for (&(weight, _), each) in each.iter().zip(&confined) {
        noise.push(graph.inputs.len());
        let sum = match *each {
            OfEach::Outer { x, delta, transposed } => {
                outer_sum(graph, weight, [x, delta, factors], units, transposed)?
            }
            OfEach::Whole(whole) => whole_sum(graph, weight, [whole, factors], units)?,
        };
        let gradient = add(graph, UPDATE, Op::Binary(Binary::Mul), &[sum, factor])?;
        gradients.push((weight, gradient));
    }
    Ok(Noisy { gradients, inputs: noise })
}

fn add(graph: &mut Graph, frac: u32, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
    graph.add_as(Format::Fixed(frac), "clip", op, inputs)
}

/// The same rows in words of which the squares can be added up; a value that is confined already is not confined again.
fn confine(graph: &mut Graph, x: ValueId, most: u32) -> Result<ValueId> {
    let len = graph.shape(x).dims().get(1).copied().unwrap_or(1);
    let bits = clip::bits_for(len);
    let frac = most.min(bits.saturating_sub(2 + RANGE));
    let (op, format) = (Op::Confine(bits), Format::Fixed(frac));
    let same = graph
        .nodes
        .iter()
        .position(|node| node.op == op && node.inputs == [x] && node.format == format);
    match same {
        Some(at) => Ok(ValueId(at)),
        None => add(graph, frac, op, &[x]),
    }
}

/// The factor of each unit.
fn factors(graph: &mut Graph, confined: &[OfEach]) -> Result<ValueId> {
    let mut operands = vec![];
    let mut outputs = 0;
    for each in confined {
        if let OfEach::Outer { x, delta, .. } = *each {
            operands.extend([x, delta]);
            outputs += graph.shape(delta).dims()[1];
        }
    }
    if outputs > MOST_OUTPUTS {
        let reason = format!(
            "dense layers with {outputs} outputs in all are trained; {MOST_OUTPUTS} can be clipped"
        );
        return Err(Error::invalid("privacy", reason));
    }
    let pairs = operands.len() / 2;
    operands.extend(confined.iter().filter_map(|each| match each {
        OfEach::Whole(whole) => Some(*whole),
        OfEach::Outer { .. } => None,
    }));
    add(graph, clip::FACTOR, Op::ClipFactor { pairs }, &operands)
}

/// The noise of a tensor, as an input of the step.
fn noise(graph: &mut Graph, weight: ValueId, dims: &[usize]) -> Result<ValueId> {
    let name = graph.start_of(weight).map(|constant| constant.name.clone());
    let name = format!("noise of {}", name.ok_or_else(|| Error::plan("not a parameter"))?);
    let dims: Vec<_> = dims.iter().map(|&d| Dim::Fixed(d)).collect();
    graph.input_with_frac(&name, &dims, SUM)
}

/// A product with the noise added before it is rounded: a unit's addend in its words is as exact as the clipped
/// gradient.
fn noisy_product(
    graph: &mut Graph,
    [transpose_lhs, transpose_rhs]: [bool; 2],
    operands: [ValueId; 3],
) -> Result<ValueId> {
    let linear = Linear {
        map: LinearMap::MatMul { transpose_lhs, transpose_rhs },
        bias: false,
        residual: true,
        more: vec![],
        finish: LinearFinish::Truncate,
        scattered: None,
    };
    add(graph, NOISY, Op::Linear(linear), &operands)
}

/// The sum of outer products, the rows of one factor scaled.
fn outer_sum(
    graph: &mut Graph,
    weight: ValueId,
    [x, delta, factors]: [ValueId; 3],
    units: usize,
    transposed: bool,
) -> Result<ValueId> {
    let Format::Fixed(frac) = graph.nodes[x.0].format else {
        return Err(Error::plan("a factor is confined before it is used"));
    };
    let column = add(graph, clip::FACTOR, column(units), &[factors])?;
    let scaled = add(graph, SUM - frac, Op::Binary(Binary::Mul), &[delta, column])?;
    let dims = graph.shape(weight).dims().to_vec();
    let noise = noise(graph, weight, &dims)?;
    let operands = if transposed { [scaled, x, noise] } else { [x, scaled, noise] };
    noisy_product(graph, [true, false], operands)
}

fn column(units: usize) -> Op {
    Op::Reshape(vec![Dim::Fixed(units), Dim::Fixed(1)])
}

/// The sum of gradients `[units, len]`, each times its factor.
fn whole_sum(
    graph: &mut Graph,
    weight: ValueId,
    [whole, factors]: [ValueId; 2],
    units: usize,
) -> Result<ValueId> {
    let Format::Fixed(frac) = graph.nodes[whole.0].format else {
        return Err(Error::plan("a gradient is confined before it is used"));
    };
    // As many bits as the noise has in all; they are zeros.
    let fine = add(graph, SUM - frac, Op::Cast, &[factors])?;
    let fine = add(graph, SUM - frac, column(units), &[fine])?;
    let len = graph.shape(whole).dims()[1];
    let noise = noise(graph, weight, &[1, len])?;
    let sum = noisy_product(graph, [true, false], [fine, whole, noise])?;
    let dims = graph.shape(weight).dims().iter().map(|&d| Dim::Fixed(d)).collect();
    add(graph, NOISY, Op::Reshape(dims), &[sum])
}
