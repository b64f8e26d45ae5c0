//! Balances the channels between two linear layers (Nagel et al., "Data-Free Quantization Through Weight Equalization
//! and Bias Correction", ICCV 2019). One format holds all weights of a layer, so a channel whose weights are far
//! below the largest loses its digits. Where the next layer multiplies it by large weights, a power of two moves
//! from these to those. The function stays the same, and the plan does not tell which channels changed.

use super::absorb::vector;
use crate::graph::{Graph, Linear, LinearFinish, LinearMap, Op, Reduce, Unary, Users, ValueId};
use crate::host::CHUNK;
use crate::{HostTensor, Result};

/// The least power of two that is moved. Weights that differ less lose few digits.
const LEAST_POWER: i32 = 4;

/// Balances the channels of every value that one linear layer makes and only one other takes.
pub(crate) fn balance(graph: &mut Graph) -> Result<()> {
    for i in 0..graph.nodes.len() {
        let Some(first) = Weights::of_results(graph, ValueId(i)) else { continue };
        let Some(second) = next_layer(graph, ValueId(i), first.channels.len()) else { continue };
        let powers = powers(&first.channels, &second.channels);
        if powers.iter().any(|&power| power != 0) {
            first.scale(graph, &powers)?;
            let inverse: Vec<_> = powers.iter().map(|power| -power).collect();
            second.scale(graph, &inverse)?;
        }
    }
    graph.sweep();
    Ok(())
}

/// For each channel the power of two that makes its largest weights in both layers equal, as parts of the largest
/// of their layer.
fn powers(first: &[f64], second: &[f64]) -> Vec<i32> {
    let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let (most, next) = (largest(first), largest(second));
    let power = |(own, other): (&f64, &f64)| {
        if *own == 0.0 || *other == 0.0 {
            return 0;
        }
        let power = (((other / next) / (own / most)).log2() / 2.0).round() as i32;
        if power.abs() < LEAST_POWER { 0 } else { power }
    };
    first.iter().zip(second).map(power).collect()
}

/// The constants of a layer that are multiplied by a factor for each channel.
struct Weights {
    layer: ValueId,
    /// The operands with the channel of each element.
    operands: Vec<(usize, Vec<usize>)>,
    /// The largest magnitude of each channel.
    channels: Vec<f64>,
}

impl Weights {
    /// Weight and bias by the channels of the results, if the layer can take factors that only its user undoes.
    fn of_results(graph: &Graph, layer: ValueId) -> Option<Self> {
        let node = &graph.nodes[layer.0];
        let Op::Linear(l) = &node.op else { return None };
        let ends = matches!(l.finish, LinearFinish::Truncate | LinearFinish::Relu);
        if !ends || l.residual || !l.more.is_empty() {
            return None;
        }
        let weight = graph.constant_value(node.inputs[1])?;
        let dims = weight.dims();
        // Axes behind the channels in the results.
        let (axis, behind) = match l.map {
            LinearMap::Conv(_) => (0, 2),
            LinearMap::MatMul { transpose_rhs, .. } if dims.len() == 2 => {
                (usize::from(!transpose_rhs), 0)
            }
            _ => return None,
        };
        let mut operands = vec![(1, along(dims, axis))];
        if l.bias {
            let bias = graph.constant_value(node.inputs[2])?;
            let whole = vector(bias, dims[axis], behind)?;
            if whole.len() != bias.len() {
                return None;
            }
            operands.push((2, (0..dims[axis]).collect()));
        }
        Self::new(graph, layer, operands, dims[axis])
    }

    /// The weight by the channels of the first operand, each of which stands for `each` neighbours.
    fn of_operand(graph: &Graph, layer: ValueId, channels: usize, each: usize) -> Option<Self> {
        let node = &graph.nodes[layer.0];
        let Op::Linear(Linear { map, .. }) = &node.op else { return None };
        let dims = graph.constant_value(node.inputs[1])?.dims();
        let of_elements: Vec<_> = match (map, dims) {
            (LinearMap::Conv(kernel), &[rows, own, ..]) if each == 1 => {
                let group = |row: usize| row / (rows / kernel.groups).max(1);
                let taps = dims[2..].iter().product::<usize>();
                let channel = |i: usize| group(i / (own * taps)) * own + i / taps % own;
                (0..rows * own * taps).map(channel).collect()
            }
            (&LinearMap::MatMul { transpose_lhs: false, transpose_rhs }, &[_, _]) => {
                along(dims, usize::from(transpose_rhs)).into_iter().map(|row| row / each).collect()
            }
            _ => return None,
        };
        let fits = of_elements.iter().all(|&channel| channel < channels);
        if fits { Self::new(graph, layer, vec![(1, of_elements)], channels) } else { None }
    }

    fn new(
        graph: &Graph,
        layer: ValueId,
        operands: Vec<(usize, Vec<usize>)>,
        count: usize,
    ) -> Option<Self> {
        let mut channels = vec![0.0; count];
        for (at, of_elements) in &operands {
            let value = graph.constant_value(graph.nodes[layer.0].inputs[*at])?;
            if value.is_int() {
                return None;
            }
            let mut of_elements = of_elements.iter();
            value.each_chunk(CHUNK, |chunk| {
                for (v, &channel) in chunk.iter().zip(&mut of_elements) {
                    channels[channel] = f64::max(channels[channel], v.abs());
                }
            });
        }
        Some(Self { layer, operands, channels })
    }

    /// Multiplies each channel by a power of two.
    fn scale(&self, graph: &mut Graph, powers: &[i32]) -> Result<()> {
        for (at, of_elements) in &self.operands {
            let old = graph.nodes[self.layer.0].inputs[*at];
            let constant = graph.constant_of(old).cloned().expect("checked when they were read");
            let scaled = constant.value.floats();
            let scaled =
                scaled.iter().zip(of_elements).map(|(v, &c)| v * f64::from(powers[c]).exp2());
            let scaled = HostTensor::new(constant.value.dims(), scaled.collect())?;
            graph.nodes[self.layer.0].inputs[*at] =
                graph.constant(&constant.name, scaled, constant.secret);
        }
        Ok(())
    }
}

/// The place of every element along an axis.
fn along(dims: &[usize], axis: usize) -> Vec<usize> {
    let behind = dims[axis + 1..].iter().product::<usize>();
    (0..dims.iter().product()).map(|i| i / behind % dims[axis]).collect()
}

/// The layer that alone takes a layer's results, through operations that keep channels apart and give
/// `f(c * x) = c * f(x)` for positive factors.
fn next_layer(graph: &Graph, from: ValueId, channels: usize) -> Option<Weights> {
    let users = graph.users();
    let Op::Linear(first) = &graph.nodes[from.0].op else { return None };
    // Channels are the second axis of pictures, and else the last one, where each is `each` neighbours.
    let (mut pictures, mut each) = (matches!(first.map, LinearMap::Conv(_)), 1);
    let mut at = from;
    loop {
        let next = only_user(graph, &users, at)?;
        let node = &graph.nodes[next.0];
        let dims = graph.shape(at).dims();
        match &node.op {
            Op::Linear(l) => {
                let takes = match l.map {
                    LinearMap::Conv(_) => pictures,
                    LinearMap::MatMul { .. } => !pictures,
                    _ => false,
                };
                let takes = takes && node.inputs.iter().position(|&x| x == at) == Some(0);
                return if takes { Weights::of_operand(graph, next, channels, each) } else { None };
            }
            Op::Unary(Unary::Relu | Unary::LeakyRelu(_)) => {}
            Op::MaxPool(_) | Op::SumPool(_) | Op::AvgPool { .. } if pictures => {}
            Op::Reduce { kind: Reduce::Sum | Reduce::Mean | Reduce::Max, axes, keep: true }
                if pictures && axes.iter().all(|&axis| axis >= 2) => {}
            Op::Reshape(_) if pictures => {
                let pixels = dims[2..].iter().product::<usize>();
                if node.shape.dims() != [dims[0], dims[1] * pixels] {
                    return None;
                }
                (pictures, each) = (false, pixels);
            }
            _ => return None,
        }
        at = next;
    }
}

fn only_user(graph: &Graph, users: &Users, at: ValueId) -> Option<ValueId> {
    let &[next] = &users[at.0] else { return None };
    graph.nodes.get(next).map(|_| ValueId(next))
}
