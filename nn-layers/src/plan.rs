//! Plans: a network's public structure, optimised, ready to run on shares.

pub(crate) mod analyse;
pub(crate) mod compile;
mod complete;
pub(crate) mod formats;
mod kept;
mod record;
pub(crate) mod run;
mod schedule;
pub(crate) mod shapes;

use std::borrow::Borrow;

use mpc_core::{Format, Operand, Profile, Protocol, PublicTensor, SecretTensor, TruncationMode};
use ring_arith::{Engine, Shape, Tensor};

pub use analyse::{
    bounds::Excess,
    size::{LayerInfo, Operation},
};
pub use compile::{Compiled, PlanOptions};
pub(crate) use record::Values;
pub use run::{
    inspect::{Inspected, Inspection, Outside, Refusal},
    observe::{Observer, StepInfo},
    step::{Caches, StateSpec},
};

use crate::graph::eval::NodeView;
use crate::graph::infer;
use crate::graph::{Dim, Op, Sizes, eval};
use crate::host::{CHUNK, MOST_INTEGER, decode, encode};
use crate::{Error, HostTensor, Result};

/// The public structure of a network after optimisation: steps, shapes and formats, but no weight.
///
/// A plan is made from a [`crate::Graph`] by [`Compiled::new`]. It is written and read with serde; a plan is
/// checked as a whole when it is read, so a plan from outside can be run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "record::Record", into = "record::Record")]
pub struct Plan {
    pub(crate) frac: u32,
    /// The only batch size, or `None` if any will do.
    pub(crate) batch: Option<usize>,
    pub(crate) inputs: Vec<InputSpec>,
    pub(crate) constants: Vec<ConstantSpec>,
    /// Indices of the constants that are weights, in order.
    pub(crate) weights: Vec<usize>,
    pub(crate) nodes: Vec<PlanNode>,
    pub(crate) outputs: Vec<(String, usize)>,
    /// Values that stay from step to step.
    pub(crate) states: Vec<StateSpec>,
    /// The most cached positions for which it is known to be the network.
    pub(crate) most_past: Option<usize>,
    /// True for each node that every party computes in the clear from numbers of the structure and lengths.
    pub(crate) public: Vec<bool>,
    /// Fraction bits of every node's value.
    pub(crate) fracs: Vec<u32>,
    /// The truncation mode of every node's value, for linear layers.
    pub(crate) modes: Vec<TruncationMode>,
    /// Nodes that run together, in order.
    pub(crate) steps: Vec<Vec<usize>>,
    /// Values to drop after each step.
    pub(crate) drops: Vec<Vec<usize>>,
    /// The outcomes of comparisons that are used again.
    pub(crate) kept: kept::KeptBits,
    /// True if it is to be run with a guard.
    pub(crate) guard: bool,
    /// The resource that is saved while it runs, whatever the protocol saves elsewhere.
    pub(crate) profile: Option<Profile>,
    /// True if every party has its weights in the clear.
    pub(crate) public_weights: bool,
}

/// One operation of a plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanNode {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<usize>,
    /// Fraction bits of the result where the operation rounds, if not the plan's.
    pub frac: Option<u32>,
}

/// An input of a plan.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// Its name in the model.
    pub name: String,
    /// Its shape.
    pub dims: Vec<Dim>,
    /// True if it consists of integers.
    pub integer: bool,
    /// Its fraction bits, where they are not the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frac: Option<u32>,
}

/// A number of the model: a weight, known by shape alone, or a public one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConstantSpec {
    pub name: String,
    pub shape: Shape,
    pub frac: u32,
    /// `None` for a weight.
    pub public: Option<HostTensor>,
}

/// A weight's public face.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSpec {
    /// Its name, unique in the plan.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Fraction bits to encode it with; 0 for integers.
    pub frac: u32,
}

impl Plan {
    /// Fraction bits of inputs and results.
    pub fn frac(&self) -> u32 {
        self.frac
    }

    /// The only batch size the plan serves, or `None` if it serves every one.
    pub fn fixed_batch(&self) -> Option<usize> {
        self.batch
    }

    /// The inputs of the plan.
    pub fn inputs(&self) -> &[InputSpec] {
        &self.inputs
    }

    /// Names of the results.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|(name, _)| name.as_str())
    }

    /// The weights, in the order in which [`Plan::run`] takes them.
    pub fn weights(&self) -> Vec<WeightSpec> {
        let spec = |&i: &usize| {
            let c = &self.constants[i];
            WeightSpec { name: c.name.clone(), shape: c.shape.clone(), frac: c.frac }
        };
        self.weights.iter().map(spec).collect()
    }

    /// Number of steps, as an [`Observer`] sees them.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Shapes of the inputs for a batch size, or for that and a number of cached positions.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan does not serve it.
    pub fn input_shapes(&self, sizes: impl Into<Sizes>) -> Result<Vec<Shape>> {
        shapes::input_shapes(self, sizes.into())
    }

    /// Shapes of the results for a batch size, or for that and a number of cached positions, without running
    /// anything.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan does not serve it, [`Error::Node`] if a value would be too large.
    pub fn output_shapes(&self, sizes: impl Into<Sizes>) -> Result<Vec<Shape>> {
        let shapes = shapes::shapes(self, sizes)?;
        Ok(self.outputs.iter().map(|&(_, i)| shapes[i].clone()).collect())
    }

    /// The batch size for which the inputs have these shapes.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the input that fits no batch size.
    pub fn batch_of(&self, shapes: &[&Shape]) -> Result<usize> {
        Ok(self.sizes_of(shapes)?.batch)
    }

    /// The batch size and the number of cached positions for which the inputs have these shapes.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the input that fits no sizes.
    pub fn sizes_of(&self, shapes: &[&Shape]) -> Result<Sizes> {
        shapes::sizes_of(self, shapes)
    }

    /// The words of the weights, ready to be secret-shared. Weights that are given away are dropped one by one.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the weight that has another shape, or a value without an encoding.
    pub fn encode_weights<T: Borrow<HostTensor>>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Tensor>> {
        let specs = self.weights();
        let mut words = Vec::with_capacity(specs.len());
        let mut given = 0;
        for value in values {
            if let Some(s) = specs.get(given) {
                words.push(encode_as("weight", &s.name, &s.shape, s.frac, value.borrow())?);
            }
            given += 1;
        }
        if specs.len() != given {
            return Err(Error::plan(format!("{given} weights, the plan has {}", specs.len())));
        }
        Ok(words)
    }

    /// The change of each weight by rounding to its fraction bits, relative to the weight. It is the largest
    /// change of any row or column, or of any element of a tensor with one axis. In the order of
    /// [`Plan::weights`].
    ///
    /// # Errors
    /// As [`Plan::encode_weights`].
    pub fn rounding(&self, values: &[HostTensor]) -> Result<Vec<f64>> {
        let specs = self.weights();
        if specs.len() != values.len() {
            let reason = format!("{} weights, the plan has {}", values.len(), specs.len());
            return Err(Error::plan(reason));
        }
        let changes = specs.into_iter().zip(values);
        changes.map(|(spec, value)| change(&spec.name, &spec.shape, spec.frac, value)).collect()
    }

    /// The words of input number `index` for a batch size, or for that and a number of cached positions, ready to be
    /// secret-shared.
    ///
    /// # Errors
    /// [`Error::Argument`] if shape or values do not fit.
    pub fn encode_input(
        &self,
        index: usize,
        sizes: impl Into<Sizes>,
        value: &HostTensor,
    ) -> Result<Tensor> {
        let shapes = self.input_shapes(sizes)?;
        let (Some(spec), Some(shape)) = (self.inputs.get(index), shapes.get(index)) else {
            return Err(Error::plan(format!("there is no input {index}")));
        };
        let too_large = |v: &f64| v.abs() >= MOST_INTEGER;
        if let Some(at) = value.floats().iter().position(too_large).filter(|_| spec.integer) {
            let reason = format!("integer {at} is 2^40 or more in magnitude; less has room");
            return Err(Error::Argument { what: "input", name: spec.name.clone(), reason });
        }
        encode_as("input", &spec.name, shape, self.input_frac(index), value)
    }

    /// Fraction bits of input number `index`: the input's or the plan's, 0 for integers.
    pub fn input_frac(&self, index: usize) -> u32 {
        match self.inputs.get(index) {
            Some(spec) if spec.integer => 0,
            Some(InputSpec { frac: Some(frac), .. }) => *frac,
            _ => self.frac,
        }
    }

    /// The fraction bits to which a node rounds.
    pub(crate) fn target(&self, node: usize) -> u32 {
        self.nodes[node].frac.unwrap_or(self.frac)
    }

    /// Fraction bits of result number `index`.
    pub fn output_frac(&self, index: usize) -> u32 {
        self.outputs.get(index).map_or(0, |&(_, node)| self.fracs[node])
    }

    /// Shares of the weights, in order, as [`Plan::run`] takes them.
    pub fn secret_weights<P: Protocol>(&self, shares: Vec<P::Share>) -> Vec<Operand<P>> {
        let fracs = self.weights.iter().map(|&i| self.constants[i].frac);
        let wrap = |(share, frac)| Operand::Secret(SecretTensor::new(share, Format::words(frac)));
        shares.into_iter().zip(fracs).map(wrap).collect()
    }

    /// Weights that every party has in the clear, in order, as [`Plan::run`] takes them. Products with them are local:
    /// what is left of their cost is that of the truncation.
    ///
    /// # Errors
    /// [`Error::Mpc`] if the engine cannot hold them.
    pub fn public_weights<P: Protocol>(
        &self,
        mpc: &P,
        words: Vec<Tensor>,
    ) -> Result<Vec<Operand<P>>> {
        let fracs = self.weights.iter().map(|&i| self.constants[i].frac);
        let upload = |(words, frac)| {
            let words = mpc.engine().upload(words).map_err(mpc_core::Error::from)?;
            Ok(Operand::Public(PublicTensor::new(words, frac)))
        };
        words.into_iter().zip(fracs).map(upload).collect()
    }

    /// True if every party is to have the weights in the clear.
    pub fn has_public_weights(&self) -> bool {
        self.public_weights
    }

    /// The same plan with weights that every party has in the clear, or with secret ones.
    #[must_use]
    pub fn with_public_weights(mut self, public: bool) -> Self {
        self.public_weights = public;
        self
    }

    /// Shares of the inputs, in order, as [`Plan::run`] takes them.
    pub fn secret_inputs<P: Protocol>(&self, shares: Vec<P::Share>) -> Vec<Operand<P>> {
        let wrap = |(i, share)| {
            Operand::Secret(SecretTensor::new(share, Format::words(self.input_frac(i))))
        };
        shares.into_iter().enumerate().map(wrap).collect()
    }

    /// The results for weights and inputs in the clear, in 64-bit floats.
    ///
    /// # Errors
    /// [`Error::Argument`] if they do not fit the plan.
    pub fn evaluate(
        &self,
        weights: &[HostTensor],
        inputs: &[HostTensor],
    ) -> Result<Vec<HostTensor>> {
        let shapes: Vec<_> = inputs.iter().map(HostTensor::shape).collect();
        let sizes = self.sizes_of(&shapes)?;
        for ((spec, x), shape) in self.inputs.iter().zip(inputs).zip(self.input_shapes(sizes)?) {
            eval::check_input(&spec.name, x, &shape)?;
        }
        let constants = self.constant_values(weights)?;
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|n| NodeView { name: &n.name, op: &n.op, inputs: n.inputs.clone() })
            .collect();
        let outputs: Vec<_> = self.outputs.iter().map(|o| o.1).collect();
        eval::run(&nodes, &constants, inputs, &outputs, sizes)
    }

    /// The values of all constants, given those of the weights.
    fn constant_values(&self, weights: &[HostTensor]) -> Result<Vec<HostTensor>> {
        if weights.len() != self.weights.len() {
            let reason = format!("{} weights, the plan has {}", weights.len(), self.weights.len());
            return Err(Error::plan(reason));
        }
        let mut weight = weights.iter();
        let constants = self.constants.iter().map(|c| match &c.public {
            Some(value) => Ok(value.clone()),
            None => {
                let value = weight.next().ok_or_else(|| Error::plan("a weight is missing"))?;
                check_shape("weight", &c.name, &c.shape, value)?;
                Ok(value.clone())
            }
        });
        constants.collect()
    }

    /// Encodes a result's words back into real numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the words do not fill their shape, which cannot happen to a tensor.
    pub fn decode_output(&self, index: usize, words: &Tensor) -> Result<HostTensor> {
        use ring_arith::EngineTensor;
        decode(words.words(), words.shape(), self.output_frac(index))
    }
}

pub(crate) fn encode_as(
    what: &'static str,
    name: &str,
    shape: &Shape,
    frac: u32,
    value: &HostTensor,
) -> Result<Tensor> {
    check_shape(what, name, shape, value)?;
    encode(value, frac).map_err(|e| {
        let reason = e.to_string();
        Error::Argument { what, name: name.to_owned(), reason }
    })
}

/// The largest change of a slice of a weight along any axis by rounding, relative to the slice.
fn change(name: &str, shape: &Shape, frac: u32, value: &HostTensor) -> Result<f64> {
    use ring_arith::EngineTensor;

    check_shape("weight", name, shape, value)?;
    let Some((&columns, outer)) = value.dims().split_last() else { return Ok(0.0) };
    // Of each slice the squares of its numbers and of their changes, by axis.
    let mut sums: Vec<Vec<[f64; 2]>> =
        value.dims().iter().map(|&len| vec![[0.0; 2]; len]).collect();
    let (mut fits, mut row) = (true, 0);
    let rows = (CHUNK / columns.max(1)).max(1);
    value.each_chunk(columns * rows, |values| {
        let rounded = HostTensor::new([values.len()], values.to_vec())
            .and_then(|values| encode(&values, frac))
            .and_then(|words| decode(words.words(), words.shape(), frac));
        let Ok(rounded) = rounded else { return fits = false };
        let rounded = rounded.floats();
        for (values, rounded) in values.chunks(columns).zip(rounded.chunks(columns)) {
            let mut whole = [0.0; 2];
            let last = sums.last_mut().expect("there is an axis");
            for ((sum, value), rounded) in last.iter_mut().zip(values).zip(rounded) {
                let squares = [value * value, (value - rounded) * (value - rounded)];
                for at in 0..2 {
                    sum[at] += squares[at];
                    whole[at] += squares[at];
                }
            }
            let mut rest = row;
            for (sums, len) in sums.iter_mut().zip(outer).rev() {
                let sum = &mut sums[rest % len];
                rest /= len;
                (0..2).for_each(|at| sum[at] += whole[at]);
            }
            row += 1;
        }
    });
    if !fits {
        // The error names the element.
        encode_as("weight", name, shape, frac, value)?;
    }
    let changes = sums.iter().flatten().filter(|[size, _]| *size > 0.0);
    Ok(changes.map(|[size, off]| (off / size).sqrt()).fold(0.0, f64::max))
}

fn check_shape(what: &'static str, name: &str, shape: &Shape, value: &HostTensor) -> Result<()> {
    if value.shape() == shape {
        return Ok(());
    }
    let reason = format!("has shape {:?}, the plan has {shape:?}", value.shape());
    Err(Error::Argument { what, name: name.to_owned(), reason })
}

/// The number of a dimension of an input.
pub(crate) fn input_dim(dim: Dim, sizes: Sizes) -> Result<usize> {
    infer::resolve(dim, sizes).ok_or_else(|| Error::plan("an input's dimension is missing"))
}
