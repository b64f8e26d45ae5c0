//! The network for inference, and the graph that makes its weights of a training's state: batch normalisations join
//! the layers before them.

use std::collections::HashMap;

use crate::graph::{BatchNorm, Binary, Dim, Format, Formats, Graph, Node, Op, Unary, ValueId};
use crate::plan::compile::passes::{self, norms::LayerBefore};
use crate::{Compiled, Error, HostTensor, Plan, Result};

/// Fraction bits of variances and epsilon.
const VARIANCE: u32 = 30;

/// The plan that makes weights for inference of a state, if it takes one, and that which applies them.
pub(in crate::train) fn plans(forward: &Graph, formats: Formats) -> Result<(Option<Plan>, Plan)> {
    let mut to = Finish { inference: forward.clone(), graph: Graph::new(1), known: HashMap::new() };
    for i in 0..forward.nodes.len() {
        let node = &forward.nodes[i];
        if let Op::BatchNorm(norm) = &node.op
            && forward.follows_batches(node)
        {
            to.join(ValueId(i), norm).map_err(|e| e.at(&node.name))?;
        }
    }
    let Finish { mut inference, mut graph, .. } = to;
    passes::optimise(&mut inference)?;
    let inference = Compiled::of_optimised(&inference, formats)?.plan;
    if graph.outputs.is_empty() {
        return Ok((None, inference));
    }
    passes::optimise(&mut graph)?;
    Ok((Some(Compiled::of_optimised(&graph, formats)?.plan), inference))
}

/// A network for inference, and the graph that makes its weights.
struct Finish {
    inference: Graph,
    graph: Graph,
    /// The nodes of the second that are parameters of the first.
    known: HashMap<ValueId, ValueId>,
}

impl Finish {
    /// Joins a batch normalisation to the product before it, or makes a factor and a summand of it.
    fn join(&mut self, at: ValueId, norm: &BatchNorm) -> Result<()> {
        let node = self.inference.nodes[at.0].clone();
        let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|i| self.taken(node.inputs[i]));
        let [scale, shift, mean, variance] = [scale?, shift?, mean?, variance?];
        let epsilon = self.graph.public("epsilon", HostTensor::scalar(norm.epsilon));
        let fine = Format::Fixed(VARIANCE);
        let noisy =
            self.graph.add_as(fine, &node.name, Op::Binary(Binary::Add), &[variance, epsilon])?;
        let inverse = self.graph.add(&node.name, Op::Unary(Unary::InvSqrt), &[noisy])?;
        let factor = self.binary(&node, Binary::Mul, inverse, scale)?;
        let before = LayerBefore::find(&self.inference, node.inputs[0]);
        let channels = node.shape.dims()[1];
        let mean = match before.as_ref().and_then(|before| before.bias) {
            Some(bias) => {
                let bias = self.taken(bias)?;
                let bias =
                    self.graph.add(&node.name, Op::Reshape(vec![Dim::Fixed(channels)]), &[bias])?;
                self.binary(&node, Binary::Sub, mean, bias)?
            }
            None => mean,
        };
        let moved = self.binary(&node, Binary::Mul, mean, factor)?;
        let offset = self.binary(&node, Binary::Sub, shift, moved)?;
        let mut dims = vec![1; node.shape.rank() - 1];
        dims[0] = channels;
        let x = match before {
            Some(before) => {
                let own = self.inference.shape(before.weight).dims().to_vec();
                let mut wide = vec![1; own.len()];
                wide[before.axis] = channels;
                let weight = self.taken(before.weight)?;
                let wide = self.shaped(&node, factor, &wide)?;
                let folded = self.binary(&node, Binary::Mul, weight, wide)?;
                let name = self.name_of(before.weight)?;
                let weight = self.made(&format!("{name}.normed"), folded, &own)?;
                let product = self.inference.nodes[before.product.0].clone();
                self.inference.add(&product.name, product.op, &[product.inputs[0], weight])?
            }
            None => {
                let factor = self.shaped(&node, factor, &dims)?;
                let factor = self.made(&format!("{}.factor", node.name), factor, &dims)?;
                let x = node.inputs[0];
                self.inference.add(&node.name, Op::Binary(Binary::Mul), &[x, factor])?
            }
        };
        let offset = self.shaped(&node, offset, &dims)?;
        let offset = self.made(&format!("{}.offset", node.name), offset, &dims)?;
        let y = self.inference.add(&node.name, Op::Binary(Binary::Add), &[x, offset])?;
        self.inference.replace(at, y);
        Ok(())
    }

    fn binary(&mut self, node: &Node, f: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.graph.add(&node.name, Op::Binary(f), &[x, y])
    }

    fn shaped(&mut self, node: &Node, x: ValueId, dims: &[usize]) -> Result<ValueId> {
        let dims = dims.iter().map(|&d| Dim::Fixed(d)).collect();
        self.graph.add(&node.name, Op::Reshape(dims), &[x])
    }

    fn name_of(&self, id: ValueId) -> Result<String> {
        let constant = self.inference.start_of(id);
        constant.map(|c| c.name.clone()).ok_or_else(|| Error::plan("a weight has no name"))
    }

    /// A weight of the network in the graph that makes others of it.
    fn taken(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let node = &self.inference.nodes[id.0];
        let known = match node.op {
            Op::Reshape(ref dims) => {
                let (name, dims, from) = (node.name.clone(), dims.clone(), node.inputs[0]);
                let from = self.taken(from)?;
                self.graph.add(&name, Op::Reshape(dims), &[from])?
            }
            _ => {
                let constant = self.inference.start_of(id).cloned();
                let constant = constant.ok_or_else(|| Error::plan("a weight is computed"))?;
                let trained = matches!(node.op, Op::Parameter(_));
                let format = node.format;
                let known = self.graph.constant(&constant.name, constant.value, constant.secret);
                if trained {
                    self.graph.make_parameter(known);
                    self.graph.nodes[known.0].format = format;
                }
                known
            }
        };
        self.known.insert(id, known);
        Ok(known)
    }

    /// A weight of the network that is made.
    fn made(&mut self, name: &str, value: ValueId, dims: &[usize]) -> Result<ValueId> {
        let value = self.graph.add_as(Format::Weight, name, Op::Cast, &[value])?;
        self.graph.output(name, value);
        // Its numbers come from the plan that makes it.
        let zeros = HostTensor::new(dims, vec![0.0; dims.iter().product()])?;
        Ok(self.inference.parameter(name, zeros))
    }
}
