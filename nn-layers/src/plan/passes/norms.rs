//! Batch normalisations by running statistics: a factor and a summand for each channel, which later passes join to
//! the layers around them.

use super::{replace, sweep, value};
use crate::graph::norm::affine;
use crate::graph::{BatchNorm, Binary, Dim, Format, Graph, Node, Op, Unary, ValueId};
use crate::{HostTensor, Result};

/// Fraction bits of variances and epsilon.
const VARIANCE: u32 = 30;

/// Writes out every batch normalisation, and drops what training alone does.
pub(crate) fn lower(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        if matches!(graph.nodes[i].op, Op::Dropout(_)) {
            let x = graph.nodes[i].inputs[0];
            replace(graph, ValueId(i), x);
        }
    }
    rewrite(graph, |_, _| true)
}

/// Writes out batch normalisations none of whose numbers is trained.
pub(crate) fn lower_frozen(graph: &mut Graph) -> Result<()> {
    rewrite(graph, |graph, node| numbers(graph, node).is_some())
}

fn rewrite(graph: &mut Graph, which: impl Fn(&Graph, &Node) -> bool) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let Op::BatchNorm(norm) = node.op else { continue };
        if !which(graph, &node) {
            continue;
        }
        let y = match numbers(graph, &node) {
            Some(parts) => by_constants(graph, &node, norm, parts),
            None => by_values(graph, &node, norm),
        };
        let y = y.map_err(|e| e.at(&node.name))?;
        replace(graph, ValueId(i), y);
    }
    sweep(graph);
    Ok(())
}

/// Scale, shift, mean and variance, if all are constants.
fn numbers(graph: &Graph, node: &Node) -> Option<[HostTensor; 4]> {
    let all: Option<Vec<_>> = node.inputs[1..].iter().map(|&x| value(graph, x).cloned()).collect();
    all?.try_into().ok()
}

fn by_constants(
    graph: &mut Graph,
    node: &Node,
    norm: BatchNorm,
    parts: [HostTensor; 4],
) -> Result<ValueId> {
    let secret = node.inputs[1..].iter().any(|&x| graph.is_secret(x));
    let [factor, offset] = affine(&norm, parts.each_ref(), node.shape.rank())?;
    let factor = graph.constant(&format!("{}.scale", node.name), factor, secret);
    let offset = graph.constant(&format!("{}.shift", node.name), offset, secret);
    let y = graph.add_as(
        node.format,
        &node.name,
        Op::Binary(Binary::Mul),
        &[node.inputs[0], factor],
    )?;
    graph.add_as(node.format, &node.name, Op::Binary(Binary::Add), &[y, offset])
}

fn by_values(graph: &mut Graph, node: &Node, norm: BatchNorm) -> Result<ValueId> {
    let mut dims = vec![Dim::Fixed(1); node.shape.rank() - 1];
    dims[0] = Dim::Fixed(node.shape.dims()[1]);
    let mut wide = vec![];
    for &x in &node.inputs[1..] {
        wide.push(graph.add(&node.name, Op::Reshape(dims.clone()), &[x])?);
    }
    let [scale, shift, mean, variance] = wide[..] else {
        return Err(crate::Error::invalid("batch-norm", "four tensors are needed"));
    };
    let epsilon = graph.public(&node.name, HostTensor::scalar(norm.epsilon));
    let fine = Format::Fixed(VARIANCE);
    let noisy = graph.add_as(fine, &node.name, Op::Binary(Binary::Add), &[variance, epsilon])?;
    let inverse = graph.add(&node.name, Op::Unary(Unary::InvSqrt), &[noisy])?;
    let factor = graph.add(&node.name, Op::Binary(Binary::Mul), &[inverse, scale])?;
    let centred = graph.add(&node.name, Op::Binary(Binary::Sub), &[node.inputs[0], mean])?;
    let y = graph.add(&node.name, Op::Binary(Binary::Mul), &[centred, factor])?;
    graph.add(&node.name, Op::Binary(Binary::Add), &[y, shift])
}
