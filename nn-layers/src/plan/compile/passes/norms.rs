//! Batch normalisations by running statistics: a factor and a summand for each channel, which later passes join to
//! the layers around them.

use super::absorb::vector;
use crate::graph::eval::elementwise;
use crate::graph::eval::norm::affine;
use crate::graph::{BatchNorm, Binary, Dim, Format, Graph, Node, Op, Unary, ValueId};
use crate::{HostTensor, Result};

/// Fraction bits of variances and epsilon.
const VARIANCE: u32 = 30;

/// Writes out every batch normalisation, and drops operations that only training has.
pub(crate) fn lower(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        if matches!(graph.nodes[i].op, Op::Dropout(_)) {
            let x = graph.nodes[i].inputs[0];
            graph.replace(ValueId(i), x);
        }
    }
    rewrite(graph, |_, _| true)
}

/// Folds the operations after a frozen layer into its numbers, while they are known: factors and shifts of its
/// channels, and batch normalisations none of whose numbers is trained.
pub(crate) fn fold_frozen(graph: &mut Graph) -> Result<()> {
    rewrite(graph, |graph, node| numbers(graph, node).is_some())?;
    let mut changed = true;
    while changed {
        changed = false;
        for i in 0..graph.nodes.len() {
            let node = graph.nodes[i].clone();
            let folded = match node.op {
                Op::Binary(Binary::Mul) => fold_factor(graph, &node),
                Op::Binary(Binary::Add) => fold_shift(graph, &node),
                _ => Ok(None),
            };
            if let Some(y) = folded.map_err(|e| e.at(&node.name))? {
                graph.replace(ValueId(i), y);
                changed = true;
            }
        }
        graph.sweep();
    }
    Ok(())
}

/// `(x W + b) * c` as `x (W * c) + b * c`, for constants of which `c` has one number for each channel.
fn fold_factor(graph: &mut Graph, node: &Node) -> Result<Option<ValueId>> {
    let [x, factor] = [node.inputs[0], node.inputs[1]];
    let Some(before) = LayerBefore::find(graph, x) else { return Ok(None) };
    let bias = before.bias.map(|bias| graph.constant_value(bias).cloned());
    let (Some(weight), Some(factor)) =
        (graph.constant_value(before.weight), graph.constant_value(factor))
    else {
        return Ok(None);
    };
    let channels = weight.dims()[before.axis];
    let rank = node.shape.rank();
    let factor = factor.to_float();
    let fits = rank >= 2 && node.shape == *graph.shape(x);
    let Some(factor) = vector(&factor, channels, rank.saturating_sub(2)).filter(|_| fits) else {
        return Ok(None);
    };
    if bias == Some(None) {
        return Ok(None);
    }
    let mut wide = vec![1; weight.dims().len()];
    wide[before.axis] = channels;
    let weight = elementwise::binary(Binary::Mul, weight, &factor.reshape(wide)?)?;
    let name = graph.constant_of(before.weight).map_or_else(String::new, |c| c.name.clone());
    let product = graph.nodes[before.product.0].clone();
    let weight = graph.weight(&name, weight);
    let y = graph.add(&product.name, product.op, &[product.inputs[0], weight])?;
    let Some(bias) = bias.flatten() else { return Ok(Some(y)) };
    let mut dims = vec![1; rank - 1];
    dims[0] = channels;
    let bias = elementwise::binary(Binary::Mul, &bias.reshape([channels])?, &factor)?;
    let bias = graph.weight(&format!("{}.bias", product.name), bias.reshape(dims)?);
    graph.add(&node.name, Op::Binary(Binary::Add), &[y, bias]).map(Some)
}

/// `(y + b) + c` as `y + (b + c)`, for constants `b` and `c`.
fn fold_shift(graph: &mut Graph, node: &Node) -> Result<Option<ValueId>> {
    let sum = graph.nodes[node.inputs[0].0].clone();
    let inner = matches!(sum.op, Op::Binary(Binary::Add)) && sum.shape == node.shape;
    if !inner || graph.users()[node.inputs[0].0].len() != 1 {
        return Ok(None);
    }
    let (Some(one), Some(other)) =
        (graph.constant_of(sum.inputs[1]), graph.constant_of(node.inputs[1]))
    else {
        return Ok(None);
    };
    if !one.secret || !other.secret {
        return Ok(None);
    }
    let name = one.name.clone();
    let both = elementwise::binary(Binary::Add, &one.value, &other.value)?;
    let both = graph.weight(&name, both);
    graph.add(&node.name, Op::Binary(Binary::Add), &[sum.inputs[0], both]).map(Some)
}

/// A product with a weight, whose outputs are channels, and the addend of each.
pub(crate) struct LayerBefore {
    pub product: ValueId,
    pub weight: ValueId,
    /// The weight's axis of the outputs.
    pub axis: usize,
    pub bias: Option<ValueId>,
}

impl LayerBefore {
    /// The product whose result, with its bias, is this value and nothing else.
    pub(crate) fn find(graph: &Graph, from: ValueId) -> Option<Self> {
        let users = graph.users();
        let weight = |id: ValueId| graph.start_of(id).is_some();
        let product = |at: ValueId| {
            let node = &graph.nodes[at.0];
            let axis = match node.op {
                Op::Conv(_) => 0,
                Op::MatMul { transpose_lhs: false, transpose_rhs } => usize::from(!transpose_rhs),
                _ => return None,
            };
            let own = node.inputs[1];
            let plain = weight(own) && (axis == 0 || graph.shape(own).rank() == 2);
            let bias = None;
            (plain && users[at.0].len() == 1).then_some(Self {
                product: at,
                weight: own,
                axis,
                bias,
            })
        };
        if let Some(found) = product(from) {
            return Some(found);
        }
        let sum = &graph.nodes[from.0];
        if sum.op != Op::Binary(Binary::Add) || users[from.0].len() != 1 {
            return None;
        }
        let bias = sum.inputs[1];
        let channels = sum.shape.dims().get(1).copied()?;
        let own = match graph.nodes[bias.0].op {
            Op::Reshape(_) => weight(graph.nodes[bias.0].inputs[0]),
            _ => weight(bias),
        };
        let fits = own && graph.shape(bias).len() == channels;
        let found = product(sum.inputs[0]).filter(|_| fits)?;
        Some(Self { bias: Some(bias), ..found })
    }
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
        graph.replace(ValueId(i), y);
    }
    graph.sweep();
    Ok(())
}

/// Scale, shift, mean and variance, if all are constants.
fn numbers(graph: &Graph, node: &Node) -> Option<[HostTensor; 4]> {
    let all: Option<Vec<_>> =
        node.inputs[1..].iter().map(|&x| graph.constant_value(x).cloned()).collect();
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
