//! Layers that differ in training: batch normalisation by the batch's statistics, and dropout.

use std::collections::{HashMap, HashSet};

use super::op::{BatchNorm, Binary, Dim, Op, Reduce, Unary};
use super::{Format, Graph, Node, ValueId};
use crate::{HostTensor, Result};

/// Fraction bits of a variance: more than those of values, since its inverse root is large where it is small.
const VARIANCE: u32 = 30;

/// The most bits by which the point of a mean moves instead of a division.
const MOST_MOVED: u32 = 24;

/// The parts of a batch normalisation by the batch's statistics. All but the centred value have one number for
/// each channel, in as many axes as the value.
#[derive(Debug, Clone)]
pub(crate) struct BatchNormParts {
    pub x: ValueId,
    pub scale: ValueId,
    pub shift: ValueId,
    /// `x` less its mean.
    pub centred: ValueId,
    /// One over the root of variance and epsilon.
    pub inverse: ValueId,
    /// `scale * inverse`.
    pub factor: ValueId,
    /// All axes but that of the channels.
    pub axes: Vec<usize>,
    /// Elements of a channel.
    pub count: Count,
}

/// A batch normalisation that follows batches: its running statistics, and the batch statistics that they
/// follow.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub name: String,
    pub momentum: f64,
    /// Running mean and running variance, `[C]`.
    pub running: [ValueId; 2],
    /// Mean and variance of the batch, `[1, C, 1, ..]`.
    pub batch: [ValueId; 2],
    /// Elements of a channel.
    pub count: usize,
}

/// A number of elements as a power of two and a remaining factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Count {
    pub elements: usize,
    /// The number of bits by which the point moves.
    pub bits: u32,
    /// The factor of `1 / elements` that remains after `2^-bits`: 1 for powers of two.
    pub rest: f64,
}

impl Count {
    pub(crate) fn new(elements: usize) -> Self {
        let bits = elements.max(1).ilog2().min(MOST_MOVED);
        let rest = f64::from(bits).exp2() / elements.max(1) as f64;
        Self { elements, bits, rest }
    }
}

/// A graph whose batch normalisations take the statistics of the batch.
pub(crate) struct Expanded {
    pub graph: Graph,
    /// By the result of each.
    pub norms: HashMap<ValueId, BatchNormParts>,
    pub running: Vec<Running>,
    /// The inputs that are masks of dropouts, with the part that each leaves out.
    pub masks: Vec<(usize, f64)>,
}

impl Graph {
    /// The running means and variances of batch normalisations that `which` accepts.
    pub(crate) fn running_statistics(&self, which: impl Fn(&Node) -> bool) -> HashSet<ValueId> {
        let norms = self.nodes.iter().filter(|node| matches!(node.op, Op::BatchNorm(_)));
        norms.filter(|node| which(node)).flat_map(|node| node.inputs[3..].to_vec()).collect()
    }

    /// True if a batch normalisation takes the statistics of the batch in training.
    pub(crate) fn follows_batches(&self, node: &Node) -> bool {
        matches!(node.op, Op::BatchNorm(_))
            && node.inputs[1..3].iter().any(|&id| self.is_trained(id))
    }

    /// The same network with every batch normalisation that is trained taking the batch's statistics.
    pub(crate) fn with_batch_statistics(&self) -> Result<Expanded> {
        let mut to = Expander { graph: Graph { nodes: vec![], ..self.clone() }, places: vec![] };
        let mut norms = HashMap::new();
        let mut running = vec![];
        let mut masks = vec![];
        for node in &self.nodes {
            let inputs: Vec<_> = node.inputs.iter().map(|x| to.places[x.0]).collect();
            let place = match &node.op {
                Op::BatchNorm(norm) if self.follows_batches(node) => {
                    let (y, parts, follows) =
                        to.expand(norm, &node.name, &inputs).map_err(|e| e.at(&node.name))?;
                    norms.insert(y, parts);
                    running.push(follows);
                    y
                }
                &Op::Dropout(part) if part > 0.0 => {
                    masks.push((to.graph.inputs.len(), part));
                    to.drop_out(part, &node.name, inputs[0], masks.len())?
                }
                Op::Dropout(_) => inputs[0],
                _ => {
                    to.graph.nodes.push(Node { inputs, ..node.clone() });
                    ValueId(to.graph.nodes.len() - 1)
                }
            };
            to.places.push(place);
        }
        let Expander { mut graph, places } = to;
        graph.outputs.iter_mut().for_each(|(_, x)| *x = places[x.0]);
        Ok(Expanded { graph, norms, running, masks })
    }
}

/// A graph being copied.
struct Expander {
    graph: Graph,
    /// The new place of each node of the old graph.
    places: Vec<ValueId>,
}

impl Expander {
    /// The elements that a mask of zeros and ones keeps, scaled up.
    fn drop_out(&mut self, part: f64, name: &str, x: ValueId, number: usize) -> Result<ValueId> {
        let dims: Vec<_> = self.graph.shape(x).dims().iter().map(|&d| Dim::Fixed(d)).collect();
        let mask = self.graph.integer_input(&format!("dropout {number}"), &dims)?;
        let kept = self.graph.add(name, Op::Binary(Binary::Mul), &[x, mask])?;
        self.graph.add(name, Op::Scale(1.0 / (1.0 - part)), &[kept])
    }

    fn expand(
        &mut self,
        norm: &BatchNorm,
        name: &str,
        inputs: &[ValueId],
    ) -> Result<(ValueId, BatchNormParts, Running)> {
        let x = inputs[0];
        let shape = self.graph.shape(x).clone();
        let axes: Vec<_> = (0..shape.rank()).filter(|&axis| axis != 1).collect();
        let channels = shape.dims()[1];
        let count = Count::new(shape.len() / channels.max(1));
        let mut wide = vec![Dim::Fixed(1); shape.rank()];
        wide[1] = Dim::Fixed(channels);
        let mut add = |format, op, inputs: &[ValueId]| self.graph.add_as(format, name, op, inputs);
        let value = Format::Value;
        let mean = Op::Reduce { kind: Reduce::Mean, axes: axes.clone(), keep: true };
        let mean = add(value, mean, &[x])?;
        let centred = add(value, Op::Binary(Binary::Sub), &[x, mean])?;
        let coarse = Format::Fixed(VARIANCE.saturating_sub(count.bits).max(1));
        let squares = add(coarse, Op::Dot(axes.clone()), &[centred, centred])?;
        let fine = Format::Fixed(VARIANCE);
        let mut variance = add(fine, Op::Scale((-f64::from(count.bits)).exp2()), &[squares])?;
        if count.rest != 1.0 {
            variance = add(fine, Op::Scale(count.rest), &[variance])?;
        }
        let scale = add(value, Op::Reshape(wide.clone()), &inputs[1..2])?;
        let shift = add(value, Op::Reshape(wide), &inputs[2..3])?;
        let epsilon = self.graph.public(name, HostTensor::scalar(norm.epsilon));
        let mut add = |format, op, inputs: &[ValueId]| self.graph.add_as(format, name, op, inputs);
        let noisy = add(fine, Op::Binary(Binary::Add), &[variance, epsilon])?;
        let inverse = add(value, Op::Unary(Unary::InvSqrt), &[noisy])?;
        let factor = add(value, Op::Binary(Binary::Mul), &[inverse, scale])?;
        let scaled = add(value, Op::Binary(Binary::Mul), &[centred, factor])?;
        let y = add(value, Op::Binary(Binary::Add), &[scaled, shift])?;
        let running = Running {
            name: name.to_owned(),
            momentum: norm.momentum,
            running: [inputs[3], inputs[4]],
            batch: [mean, variance],
            count: count.elements,
        };
        let parts = BatchNormParts { x, scale, shift, centred, inverse, factor, axes, count };
        Ok((y, parts, running))
    }
}
