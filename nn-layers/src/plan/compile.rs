//! From a graph with its weights to a plan without them.

mod fitted;
pub(crate) mod passes;

use std::collections::{HashMap, HashSet};

use mpc_core::Profile;

use self::fitted::Fitted;
use super::complete::{Parts, complete};
use super::formats::{self, MAX_PRODUCT_FRAC, ROOMY_PRODUCT_FRAC};
use super::{ConstantSpec, InputSpec, Plan, PlanNode, StateSpec};
use crate::graph::{Binary, Format, Formats, Graph, LinearMap, Op, ValueId};
use crate::host::encode;
use crate::{Error, HostTensor, Result};

/// Fraction bits of a public factor whose product is not rounded.
const FACTOR_FRAC: u32 = 16;

/// The bits that the largest element of a small weight has at least: its rounding changes it by 2^-15.
pub(super) const SIGNIFICANT: u32 = 14;

/// Those bits are fewer than the format's by as many, so that nothing changes for weights of usual size.
const COARSER: u32 = 6;

/// Bits of the largest sum of products before they are dropped, with one to spare.
const ROOM: f64 = 61.0;

/// Steps from an input up to which its range is followed.
const DEPTH: usize = 8;

/// Bits of the largest value as a word: of one with the plan's fraction bits that a layer of usual weights has made.
const WIDEST: i32 = 42;

/// Choices in making a plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// Fraction bits of inputs, activations and results; 20 as CryptGPU.
    pub frac: u32,
    /// The resource that is saved whenever the plan runs; the protocol's own choice, unless given.
    pub profile: Option<Profile>,
    /// The least and the greatest value of each input, where they are known: the formats of small weights leave
    /// their products room. Missing entries mean unknown ranges.
    pub ranges: Vec<Option<(f64, f64)>>,
    /// Inputs, each of one batch, for which the plan must be right. Values that are large for one of them have fewer
    /// fraction bits than `frac`, and so do the values of which they are sums. None if all have `frac`.
    pub samples: Vec<Vec<HostTensor>>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { frac: 20, profile: None, ranges: vec![], samples: vec![] }
    }
}

impl PlanOptions {
    /// Other fraction bits, 4 to 28.
    #[must_use]
    pub fn with_frac(self, frac: u32) -> Self {
        Self { frac, ..self }
    }

    /// The same for inputs that keep these ranges.
    #[must_use]
    pub fn with_ranges(self, ranges: Vec<Option<(f64, f64)>>) -> Self {
        Self { ranges, ..self }
    }

    /// The same for a plan whose formats leave room for these inputs, layer by layer.
    #[must_use]
    pub fn with_samples(self, samples: Vec<Vec<HostTensor>>) -> Self {
        Self { samples, ..self }
    }

    /// The same for a plan that spares this, whatever the protocol that runs it does elsewhere.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }
}

/// A network ready to be shared: the plan, which is public, and the weights, which only their owner may see.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The public structure.
    pub plan: Plan,
    /// The weights in the order of [`Plan::weights`].
    pub weights: Vec<HostTensor>,
}

impl Compiled {
    /// Optimises a network. Batch normalisation and constant factors join the weights, and sums and ReLUs join
    /// their linear layers. Max pooling moves before ReLU, and pooling of sums moves into convolutions where
    /// that is less work.
    ///
    /// # Errors
    /// [`Error::Node`] if an operation cannot be run with these formats, [`Error::Argument`] if a
    /// weight is NaN, infinite or too large to be encoded.
    pub fn new(graph: &Graph, options: &PlanOptions) -> Result<Self> {
        let compiled = Self::at_own_sizes(graph.clone(), options)?;
        if let Some(past) = graph.past {
            // Nothing that a pass does may depend on the number of cached positions.
            let other = graph.clone().for_past(past + 3)?;
            let other = Self::at_own_sizes(other, options)?;
            if compiled.plan != other.plan || compiled.weights != other.weights {
                let reason = "the network is another one for each number of cached positions";
                return Err(Error::plan(reason));
            }
        }
        Ok(compiled)
    }

    fn at_own_sizes(mut graph: Graph, options: &PlanOptions) -> Result<Self> {
        graph.settle();
        passes::optimise_inference(&mut graph)?;
        let formats = Formats::of_values(options.frac);
        let mut builder = Builder::new(&graph, formats, &options.ranges)?;
        if !options.samples.is_empty() {
            builder.fitted = Some(Fitted::new(&graph, &options.samples, options.frac)?);
        }
        let mut compiled = builder.finish()?;
        compiled.plan.profile = options.profile;
        Ok(compiled)
    }

    /// The plan of a graph that the passes are done with.
    pub(crate) fn of_optimised(graph: &Graph, formats: Formats) -> Result<Self> {
        Builder::new(graph, formats, &[])?.finish()
    }
}

/// Gives formats and places to everything.
struct Builder<'a> {
    graph: &'a Graph,
    formats: Formats,
    /// Of the inputs, where they are known.
    ranges: &'a [Option<(f64, f64)>],
    /// The formats that samples leave room for, if some are given.
    fitted: Option<Fitted>,
    constants: Vec<ConstantSpec>,
    values: Vec<HostTensor>,
    nodes: Vec<PlanNode>,
    fracs: Vec<u32>,
    /// Fraction bits of the inputs that have others than values.
    input_fracs: Vec<Option<u32>>,
    /// Places of the graph's nodes among the plan's; constants get theirs when their format is known.
    places: Vec<Option<usize>>,
    known: HashMap<(usize, u32), usize>,
    names: HashSet<String>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, formats: Formats, ranges: &'a [Option<(f64, f64)>]) -> Result<Self> {
        let frac = formats.values;
        if !(4..=28).contains(&frac) {
            return Err(Error::plan(format!("{frac} fraction bits; 4 to 28 are possible")));
        }
        Ok(Self {
            graph,
            formats,
            ranges,
            fitted: None,
            constants: vec![],
            values: vec![],
            nodes: vec![],
            fracs: vec![],
            input_fracs: graph.inputs.iter().map(|input| input.frac).collect(),
            places: vec![None; graph.nodes.len()],
            known: HashMap::new(),
            names: HashSet::new(),
        })
    }

    fn finish(mut self) -> Result<Compiled> {
        for i in 0..self.graph.nodes.len() {
            self.node(i)?;
        }
        let graph = self.graph;
        let mut outputs = vec![];
        for (name, id) in &graph.outputs {
            let place = match self.places[id.0] {
                Some(place) => place,
                None => self.constant(id.0, self.formats.values)?,
            };
            outputs.push((name.clone(), place));
        }
        let input = |(at, i): (usize, &crate::graph::Input)| InputSpec {
            name: i.name.clone(),
            dims: i.dims.clone(),
            integer: i.integer,
            frac: self.input_fracs[at],
        };
        let state = |state: &crate::graph::State| {
            let output = state.output.ok_or_else(|| {
                let name = &graph.inputs[state.input].name;
                Error::plan(format!("the state `{name}` is never extended"))
            })?;
            Ok(StateSpec { input: state.input, output, axis: state.axis })
        };
        let states = graph.states.iter().map(state).collect::<Result<Vec<_>>>()?;
        let (nodes, outputs) = given_first(self.nodes, outputs);
        let secret: Vec<_> = self.constants.iter().map(|c| c.public.is_none()).collect();
        let plan = complete(Parts {
            frac: self.formats.values,
            batch: if graph.any_batch { None } else { Some(graph.batch) },
            inputs: graph.inputs.iter().enumerate().map(input).collect(),
            constants: self.constants,
            nodes,
            outputs,
            states,
            most_past: graph.most_past,
            guard: false,
            profile: None,
            public_weights: false,
        })?;
        let weights = self.values.into_iter().zip(secret).filter(|(_, s)| *s).map(|(v, _)| v);
        Ok(Compiled { plan, weights: weights.collect() })
    }

    fn node(&mut self, i: usize) -> Result<()> {
        let node = &self.graph.nodes[i];
        match node.op {
            Op::Constant(_) => return Ok(()),
            Op::Parameter(_) => {
                // A parameter whose gradient nothing rounds has the gradient's format.
                let frac = match node.format {
                    Format::Gradient => self.formats.gradients,
                    Format::Fixed(bits) => bits,
                    _ => self.formats.weights,
                };
                self.places[i] = Some(self.constant(i, frac)?);
                return Ok(());
            }
            _ => {}
        }
        let mut inputs = vec![];
        for (position, x) in node.inputs.iter().enumerate() {
            let place = match self.places[x.0] {
                Some(place) => place,
                None => {
                    let frac = self.wanted_frac(i, position, &inputs);
                    self.constant(x.0, frac).map_err(|e| e.at(&node.name))?
                }
            };
            inputs.push(place);
        }
        let values = self.formats.values;
        let xs: Vec<_> = inputs.iter().map(|&x| self.fracs[x]).collect();
        let target = self.target(i, &xs);
        let frac = match node.op {
            Op::Input(k) if self.graph.inputs[k].integer => 0,
            Op::Input(k) => {
                if self.input_fracs[k].is_none() {
                    self.input_fracs[k] = target;
                }
                self.input_fracs[k].unwrap_or(values)
            }
            ref op => formats::result_frac(op, &xs, target.unwrap_or(values))
                .map_err(|e| e.at(&node.name))?,
        };
        self.places[i] = Some(self.nodes.len());
        let (name, op) = (node.name.clone(), node.op.clone());
        let target = target.filter(|_| !op.is_given());
        self.nodes.push(PlanNode { name, op, inputs, frac: target });
        self.fracs.push(frac);
        Ok(())
    }

    /// The fraction bits to which a node rounds, if they are not the plan's.
    fn target(&self, at: usize, xs: &[u32]) -> Option<u32> {
        let node = &self.graph.nodes[at];
        match (node.format, &node.op) {
            (Format::Value, op) => {
                let most = self.fitted.as_ref()?.most(at);
                // Nothing is finer than the sum from which bits are dropped.
                let most = match op {
                    Op::Linear(l) => {
                        let sums = l.maps().map(|(_, [x, weight])| xs[x] + xs[weight]);
                        most.min(sums.max().unwrap_or(most))
                    }
                    Op::Dot(_) => most.min(xs[0] + xs[1]),
                    _ => most,
                };
                (most < self.formats.values).then_some(most)
            }
            (Format::CoarserValue(bits), _) => {
                Some(self.formats.values.saturating_sub(bits).max(1))
            }
            (Format::Weight, _) => Some(self.formats.weights),
            (Format::Coarser(bits), _) => Some(self.formats.weights.saturating_sub(bits)),
            (Format::Gradient, _) => Some(self.formats.gradients),
            (Format::CoarserGradient(bits), _) => {
                Some(self.formats.gradients.saturating_sub(bits).max(1))
            }
            (Format::Fixed(bits), _) => Some(bits),
            (Format::Exact, Op::Binary(Binary::Mul)) => Some(xs[0] + xs[1]),
            (Format::Exact, _) => Some(xs[0] + FACTOR_FRAC),
        }
    }

    /// Fraction bits for a constant operand: for a weight as many as leave the product room, and for a bias as
    /// many as the product has.
    fn wanted_frac(&self, at: usize, position: usize, before: &[usize]) -> u32 {
        let node = &self.graph.nodes[at];
        let values = self.formats.values;
        let Op::Linear(l) = &node.op else {
            return match (node.format, &self.fitted) {
                (Format::Fixed(bits), _) => bits,
                (_, Some(fitted)) => fitted.constant(self.graph, at, position).min(values),
                (_, None) => values,
            };
        };
        let weighs = l.maps().find(|(_, [_, weight])| *weight == position);
        let x = self.fracs[before[weighs.map_or(0, |(_, [x, _])| x)]];
        let most = if node.format == Format::Value { ROOMY_PRODUCT_FRAC } else { MAX_PRODUCT_FRAC };
        let most = self.fitted.as_ref().map_or(most, |fitted| fitted.product(at).min(most));
        if weighs.is_some() {
            let common = values.min(most.saturating_sub(x));
            self.small_frac(at, position, x).map_or(common, |frac| frac.max(common))
        } else if l.residual {
            values
        } else {
            let fits = self
                .fitted
                .as_ref()
                .and_then(|_| self.graph.constant_value(node.inputs[position]).map(Fitted::addend));
            (x + self.fracs[before[1]]).min(fits.unwrap_or(40)).min(40)
        }
    }

    /// Fraction bits with which the largest element of a small weight has [`SIGNIFICANT`] bits. They are
    /// limited by the room for sums of products with the largest possible values, and for their addends.
    fn small_frac(&self, at: usize, position: usize, x: u32) -> Option<u32> {
        let node = &self.graph.nodes[at];
        let Op::Linear(l) = &node.op else { return None };
        if node.format != Format::Value || l.residual || !l.more.is_empty() {
            return None;
        }
        let largest =
            |at: usize| self.graph.constant_value(node.inputs[at]).map(HostTensor::largest);
        let weight = largest(position).filter(|weight| *weight > 0.0)?;
        let room = match &self.fitted {
            Some(fitted) => f64::from(fitted.product(at)) - f64::from(x),
            None => {
                let bias = if l.bias { largest(2)? } else { 0.0 };
                let most = match self.largest(node.inputs[0], DEPTH) {
                    Some(known) => known,
                    // The words of values of any format, and so the numbers with the plan's.
                    None => f64::from(WIDEST - self.formats.values as i32).exp2(),
                };
                let sum = self.largest_row(&l.map, node.inputs[position])? * most + bias;
                ROOM - f64::from(x) - sum.log2().ceil()
            }
        };
        let room = if room > 0.0 { room as u32 } else { return None };
        // Coarser formats are chosen for their range.
        let significant = SIGNIFICANT.min(self.formats.values.saturating_sub(COARSER));
        let wanted = f64::from(significant) - weight.log2().ceil();
        (wanted > 0.0).then(|| (wanted as u32).min(room))
    }

    /// The largest magnitude of a value that is made of inputs of known range by few simple steps.
    fn largest(&self, id: ValueId, depth: usize) -> Option<f64> {
        let depth = depth.checked_sub(1)?;
        let node = &self.graph.nodes[id.0];
        let operand = |at: usize| self.largest(node.inputs[at], depth);
        match &node.op {
            Op::Input(at) => {
                let (low, high) = (*self.ranges.get(*at)?)?;
                Some(low.abs().max(high.abs()))
            }
            Op::Constant(_) => self.graph.constant_value(id).map(HostTensor::largest),
            Op::Binary(Binary::Add | Binary::Sub) => Some(operand(0)? + operand(1)?),
            Op::Binary(Binary::Mul) => Some(operand(0)? * operand(1)?),
            Op::Scale(factor) => Some(factor.abs() * operand(0)?),
            op if op.info().moves_elements => operand(0),
            _ => None,
        }
    }

    /// The largest sum of the magnitudes that one result of a map has as its weights.
    fn largest_row(&self, map: &LinearMap, weight: ValueId) -> Option<f64> {
        let value = self.graph.constant_value(weight)?;
        // Sums over as many neighbours, and the largest.
        let largest = |len: usize| {
            let mut largest = 0.0;
            value.each_chunk(len.max(1), |row| {
                largest = f64::max(largest, row.iter().map(|v| v.abs()).sum());
            });
            largest
        };
        Some(match (map, value.dims()) {
            (LinearMap::Mul, _) => value.largest(),
            (LinearMap::MatMul { transpose_rhs: false, .. }, &[_, columns]) => {
                let mut sums = vec![0.0; columns];
                value.each_chunk(columns, |row| {
                    sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v.abs());
                });
                sums.iter().copied().fold(0.0, f64::max)
            }
            (LinearMap::MatMul { .. }, &[rows, _]) | (LinearMap::Conv(_), &[rows, ..]) => {
                largest(value.len() / rows.max(1))
            }
            // No result has more than all of them.
            _ => largest(value.len()),
        })
    }

    /// The place of a constant in a format.
    fn constant(&mut self, node: usize, frac: u32) -> Result<usize> {
        let (Op::Constant(index) | Op::Parameter(index)) = self.graph.nodes[node].op else {
            return Err(Error::plan("a value is used before it is computed"));
        };
        let constant = &self.graph.constants[index];
        let frac = if constant.value.is_int() { 0 } else { frac };
        if let Some(&place) = self.known.get(&(index, frac)) {
            return Ok(place);
        }
        let name = self.unique(&constant.name);
        let failed = |e: Error| Error::Argument {
            what: "weight",
            name: constant.name.clone(),
            reason: e.to_string(),
        };
        encode(&constant.value, frac).map_err(failed)?;
        let public = (!constant.secret).then(|| constant.value.clone());
        let op = Op::Constant(self.constants.len());
        let shape = constant.value.shape().clone();
        self.constants.push(ConstantSpec { name: name.clone(), shape, frac, public });
        self.values.push(constant.value.clone());
        self.nodes.push(PlanNode { name, op, inputs: vec![], frac: None });
        self.fracs.push(frac);
        self.known.insert((index, frac), self.nodes.len() - 1);
        Ok(self.nodes.len() - 1)
    }

    fn unique(&mut self, name: &str) -> String {
        let name = if name.is_empty() { "constant" } else { name };
        let mut unique = name.to_owned();
        let mut n = 1;
        while !self.names.insert(unique.clone()) {
            n += 1;
            unique = format!("{name}.{n}");
        }
        unique
    }
}

/// Moves inputs and constants to the front.
fn given_first(
    nodes: Vec<PlanNode>,
    outputs: Vec<(String, usize)>,
) -> (Vec<PlanNode>, Vec<(String, usize)>) {
    let (first, rest): (Vec<_>, Vec<_>) = (0..nodes.len()).partition(|&i| nodes[i].op.is_given());
    let mut place = vec![0; nodes.len()];
    first.iter().chain(&rest).enumerate().for_each(|(to, &from)| place[from] = to);
    let moved = first.iter().chain(&rest).map(|&from| {
        let node = nodes[from].clone();
        let inputs = node.inputs.iter().map(|&x| place[x]).collect();
        PlanNode { inputs, ..node }
    });
    let moved = moved.collect();
    (moved, outputs.into_iter().map(|(name, x)| (name, place[x])).collect())
}
