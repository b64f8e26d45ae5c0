//! Training: forward pass, gradients and update in one [`Plan`], run step after step on shares.
//!
//! [`Graph::train`] says which weights are trained, [`TrainPlan::new`] makes the plan of a step, and
//! [`TrainPlan::step`] runs it; weights go from step to step as shares. [`TrainPlan::step_in_the_clear`]
//! computes the same in 64-bit floats: what a private training is compared with.
//!
//! Gradients are those of the *sum* of the batch's losses times the learning rate, which divides by the
//! batch size: a factor of the numbers with which the way back begins, so that it costs nothing later. No
//! gradient is divided by the batch size on its own, which would only lose bits.

mod loss;
mod metric;
mod optimiser;
mod options;
mod schedule;
mod state;

use mpc_core::{Operand, Protocol, PublicTensor, SecretTensor};
use ring_arith::{Engine, Tensor};

pub use loss::Loss;
pub use metric::Metric;
pub use optimiser::Optimiser;
pub use options::{Formats, TrainOptions};
pub use schedule::{Decay, Schedule};
pub use state::{State, StateSpec};

use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::plan::{Observer, WeightSpec, encode, passes};
use crate::{Compiled, Error, HostTensor, Plan, Result};

/// Fraction bits of the learning rate for a single row.
const RATE_FRAC: u32 = 30;

/// The step of a network's training as a plan. Inputs are those of the network and the labels, the weights
/// are the state.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainPlan {
    step: Plan,
    inference: Plan,
    /// For each trained weight and what belongs to it, its place among the step's weights; the step's first
    /// results are their new values.
    updated: Vec<usize>,
    options: TrainOptions,
    batch: usize,
}

impl TrainPlan {
    /// The plan of a step for the batch size of `graph`, and the state at its start. `output` is what the
    /// loss compares with the labels: logits of shape `[batch, classes]` for [`Loss::CrossEntropy`].
    ///
    /// # Errors
    /// [`Error::Node`] naming an operation without a gradient or a format that does not fit,
    /// [`Error::Invalid`] if nothing is trained, or the options are out of their range.
    pub fn new(
        graph: &Graph,
        output: ValueId,
        options: &TrainOptions,
    ) -> Result<(Self, Vec<HostTensor>)> {
        let batch = graph.batch();
        options.check(batch)?;
        let mut forward = graph.clone();
        forward.outputs.clear();
        forward.output("output", output);
        passes::pools::pool_before_relu(&mut forward)?;
        name_parameters(&mut forward)?;
        let formats = options.plan_formats(batch);
        let (step, updated) = training_graph(&forward, options)?;
        let Compiled { plan: step, weights } = Compiled::of_optimised(&step, formats)?;
        passes::optimise(&mut forward)?;
        let inference = Compiled::of_optimised(&forward, formats)?.plan;
        let specs = step.weights();
        let place = |name: &String| {
            let place = specs.iter().position(|spec| spec.name == *name);
            place.ok_or_else(|| Error::plan(format!("the weight `{name}` is missing")))
        };
        let updated = updated.iter().map(place).collect::<Result<_>>()?;
        Ok((Self { step, inference, updated, options: options.clone(), batch }, weights))
    }

    /// Rows of a step.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How the network is trained.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// The plan of one step. Its inputs are those of the network, the labels, and public numbers.
    pub fn step_plan(&self) -> &Plan {
        &self.step
    }

    /// The plan that applies the network; [`TrainPlan::inference_weights`] are its weights.
    pub fn inference(&self) -> &Plan {
        &self.inference
    }

    /// The tensors that go from step to step, in the order of [`State`].
    pub fn state(&self) -> Vec<StateSpec> {
        let spec = |(i, WeightSpec { name, shape, frac }): (usize, WeightSpec)| StateSpec {
            name,
            shape,
            frac,
            trained: self.updated.contains(&i),
        };
        self.step.weights().into_iter().enumerate().map(spec).collect()
    }

    /// The words of a state, ready to be secret-shared.
    ///
    /// # Errors
    /// As [`Plan::encode_weights`].
    pub fn encode_state(&self, values: &[HostTensor]) -> Result<Vec<Tensor>> {
        self.step.encode_weights(values)
    }

    /// The numbers behind a state's words.
    ///
    /// # Errors
    /// [`Error::Plan`] if there are not as many as the state has.
    pub fn decode_state(&self, words: &[Tensor]) -> Result<Vec<HostTensor>> {
        state::decode_all(&self.state(), words)
    }

    /// A state of shares, in the order of [`TrainPlan::state`].
    ///
    /// # Errors
    /// [`Error::Plan`] or [`Error::Argument`] if their number or their shapes are not the state's.
    pub fn secret_state<P: Protocol>(&self, shares: Vec<P::Share>) -> Result<State<P>> {
        State::new(&self.state(), shares)
    }

    /// The words of a batch, the labels last, ready to be secret-shared.
    ///
    /// # Errors
    /// [`Error::Plan`] or [`Error::Argument`] if number, shapes or values do not fit.
    pub fn encode_batch(&self, batch: &[HostTensor]) -> Result<Vec<Tensor>> {
        self.check_batch(batch.len())?;
        let encode = |(i, x)| self.step.encode_input(i, self.batch, x);
        batch.iter().enumerate().map(encode).collect()
    }

    /// One step: the state becomes that after it. Returns what the options' metrics ask for, which stays
    /// shared. All parties call it alike, with the same `rate`: the learning rate for the mean of the
    /// batch's losses.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Invalid`] if the rate is not in the options' range.
    pub fn step<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        batch: &[Operand<P>],
        rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        self.check_batch(batch.len())?;
        let mut inputs = batch.to_vec();
        for (spec, value) in self.step.inputs()[batch.len()..].iter().zip(self.public(rate)?) {
            let frac = spec.frac.unwrap_or(self.step.frac());
            let words = encode(&HostTensor::new([1], vec![value])?, frac)?;
            let words = mpc.engine().upload(words)?;
            inputs.push(Operand::Public(PublicTensor::new(words, frac)));
        }
        let mut results = self.step.run(mpc, state.operands(), &inputs, observer)?;
        let metrics = results.split_off(self.updated.len());
        for (&place, value) in self.updated.iter().zip(results) {
            state.replace(place, value);
        }
        Ok(metrics)
    }

    /// [`TrainPlan::step`] in 64-bit floats.
    ///
    /// # Errors
    /// As [`Plan::evaluate`]; [`Error::Invalid`] if the rate is not in the options' range.
    pub fn step_in_the_clear(
        &self,
        state: &mut [HostTensor],
        batch: &[HostTensor],
        rate: f64,
    ) -> Result<Vec<HostTensor>> {
        self.check_batch(batch.len())?;
        let mut inputs = batch.to_vec();
        for value in self.public(rate)? {
            inputs.push(HostTensor::new([1], vec![value])?);
        }
        let mut results = self.step.evaluate(state, &inputs)?;
        let metrics = results.split_off(self.updated.len());
        for (&place, value) in self.updated.iter().zip(results) {
            state[place] = value;
        }
        Ok(metrics)
    }

    /// The weights of [`TrainPlan::inference`] out of a state's tensors, in order.
    ///
    /// # Errors
    /// [`Error::Argument`] naming a frozen weight that the planner has made into another for inference.
    pub fn inference_weights<T: Clone>(&self, state: &[T]) -> Result<Vec<T>> {
        let specs = self.step.weights();
        let find = |wanted: WeightSpec| {
            let place = specs.iter().position(|spec| *spec == wanted);
            place.and_then(|i| state.get(i).cloned()).ok_or_else(|| {
                let reason = "is not among the state's tensors".to_owned();
                Error::Argument { what: "weight", name: wanted.name, reason }
            })
        };
        self.inference.weights().into_iter().map(find).collect()
    }

    /// The numbers that everybody knows in a step: the learning rate for the sum of the losses, and that of
    /// the weights' decay.
    fn public(&self, rate: f64) -> Result<Vec<f64>> {
        let largest = self.options.largest_rate;
        if !(0.0..=largest).contains(&rate) {
            let reason = format!("{rate} is not within 0 to {largest}, the largest of the options");
            return Err(Error::invalid("learning rate", reason));
        }
        let decay = self.options.optimiser.decay();
        let decay = (decay > 0.0).then_some(rate * decay);
        Ok([rate / self.batch as f64].into_iter().chain(decay).collect())
    }

    fn check_batch(&self, given: usize) -> Result<()> {
        let public = 1 + usize::from(self.options.optimiser.decay() > 0.0);
        let wanted = self.step.inputs().len() - public;
        if given == wanted {
            return Ok(());
        }
        Err(Error::plan(format!("expected {wanted} tensors of a batch, labels last; got {given}")))
    }
}

/// The whole step as a graph, and the names of what it updates, in the order of its first results.
fn training_graph(forward: &Graph, options: &TrainOptions) -> Result<(Graph, Vec<String>)> {
    let mut graph = forward.clone();
    graph.fix_batch();
    let output = graph.outputs[0].1;
    let parameters = graph.parameters();
    let labels = options.loss.labels(&mut graph, output)?;
    let rate = graph.input_with_frac("learning rate", &[Dim::Fixed(1)], RATE_FRAC)?;
    let parts = options.loss.parts(&mut graph, output, labels)?;
    let product = Op::Binary(Binary::Mul);
    let seed = graph.add_as(Format::Gradient, "loss.grad", product, &[parts.slope, rate])?;
    let grads = graph.gradients(output, seed, &parameters)?;
    let updates = options.optimiser.update(&mut graph, options, &parameters, &grads)?;
    graph.outputs.clear();
    for (name, value) in &updates {
        graph.output(name, *value);
    }
    for metric in &options.metrics {
        let value = metric.value(&mut graph, output, labels, &parts, &options.loss)?;
        graph.output(metric.name(), value);
    }
    passes::optimise(&mut graph)?;
    Ok((graph, updates.into_iter().map(|(name, _)| name).collect()))
}

/// Gives every parameter a name of its own.
fn name_parameters(graph: &mut Graph) -> Result<()> {
    let parameters = graph.parameters();
    if parameters.is_empty() {
        return Err(Error::invalid("train", "no weight is trained; Graph::train says which are"));
    }
    let mut names = std::collections::HashSet::new();
    for id in parameters {
        let Op::Parameter(index) = graph.nodes[id.0].op else { continue };
        let constant = &mut graph.constants[index];
        let mut name = constant.name.clone();
        let mut n = 1;
        while !names.insert(name.clone()) {
            n += 1;
            name = format!("{}.{n}", constant.name);
        }
        constant.name = name;
    }
    Ok(())
}
