//! The plan of a training's step, and of the network that it trains.

use std::collections::{HashMap, HashSet};

use mpc_core::{Linear, Protocol, SecretTensor, ShareTensor};
use ring_arith::{Shape, Tensor, View};
use serde::Serialize;

use super::graphs::inference;
use super::graphs::standardized::{factor_of, mean_of};
use super::graphs::step::{Added, prepared, step_graph};
use super::options::TrainOptions;
use super::request::TrainRequest;
use super::state::{self, Role, State, StateSpec};
use crate::graph::norm::Expanded;
use crate::graph::{Graph, ValueId};
use crate::plan::{InputSpec, WeightSpec, compile::passes, encode_as};
use crate::{Compiled, Error, HostTensor, Plan, Result};

/// The step of a network's training as a plan. Inputs are those of the network and the labels, the weights
/// are the state.
///
/// No party takes a plan from another: each derives it from the [`TrainRequest`]. It is serialized only so that
/// parties can compare hashes of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainPlan {
    /// The computation of a step.
    pub(super) full: Variant,
    /// The computation of a step that reuses the inverse roots of an earlier step, or that only adds up gradients, if
    /// there are such steps.
    pub(super) light: Option<Variant>,
    /// From a state to the weights of `inference` that are made of several of its tensors.
    pub(super) finish: Option<Plan>,
    pub(super) inference: Plan,
    pub(super) options: TrainOptions,
    pub(super) batch: usize,
    /// The parts that dropouts leave out; their masks are the last inputs but the noise.
    pub(super) dropouts: Vec<f64>,
    /// Tensors of noise, the last inputs.
    pub(super) noises: usize,
}

/// A plan of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Variant {
    pub(super) plan: Plan,
    /// For each weight of the plan its place in the state.
    pub(super) weights: Vec<usize>,
    /// The places of the tensors that the plan's first results are the new values of.
    pub(super) updated: Vec<usize>,
}

/// The places in a state of the tensors that standardise an input: `(x - mean) * factor`.
pub(super) struct Standardized {
    /// The number of the input.
    pub(super) input: usize,
    pub(super) mean: usize,
    pub(super) factor: usize,
}

impl Variant {
    /// Finds the plan's weights and results among the tensors of a state, by name.
    fn new(plan: Plan, state: &[WeightSpec], metrics: usize) -> Result<Self> {
        let find = |wanted: &WeightSpec| {
            let place = state.iter().position(|spec| spec == wanted);
            place.ok_or_else(|| Error::plan(format!("`{}` is not part of the state", wanted.name)))
        };
        let weights = plan.weights().iter().map(find).collect::<Result<_>>()?;
        let count = plan.outputs().count();
        let shapes = plan.output_shapes(plan.fixed_batch().unwrap_or(1))?;
        let mut updated = vec![];
        for (i, name) in plan.outputs().enumerate().take(count.saturating_sub(metrics)) {
            let (shape, frac) = (shapes[i].clone(), plan.output_frac(i));
            updated.push(find(&WeightSpec { name: name.to_owned(), shape, frac })?);
        }
        let different: HashSet<_> = updated.iter().collect();
        if count < metrics || different.len() != updated.len() {
            return Err(Error::plan(
                "a step's results are not one for each tensor that it changes",
            ));
        }
        Ok(Self { plan, weights, updated })
    }

    /// Replaces the state's tensors by their new values among a step's results; the other results are metrics.
    pub(super) fn settle<P: Protocol>(
        &self,
        state: &mut State<P>,
        mut results: Vec<SecretTensor<P>>,
    ) -> Vec<SecretTensor<P>> {
        let metrics = results.split_off(self.updated.len());
        for (&place, value) in self.updated.iter().zip(results) {
            state.replace(place, value);
        }
        metrics
    }

    /// The tensors of a state in the plan's order.
    pub(super) fn operands<T: Clone>(&self, state: &[T]) -> Vec<T> {
        self.weights.iter().map(|&place| state[place].clone()).collect()
    }
}

impl TrainPlan {
    /// The plan of a step for the batch size of `graph`, and the state at its start. The loss compares `output`
    /// with the labels: logits of shape `[batch, classes]` for [`crate::train::Loss::CrossEntropy`].
    ///
    /// # Errors
    /// [`Error::Node`] naming an operation without a gradient or a format that does not fit; [`Error::Invalid`]
    /// if nothing is trained, or the options are out of their range.
    pub fn new(
        graph: &Graph,
        output: ValueId,
        options: &TrainOptions,
    ) -> Result<(Self, Vec<HostTensor>)> {
        let (_, plan, start) = Self::with_request(graph, output, options)?;
        Ok((plan, start))
    }

    /// [`TrainPlan::new`] with the request that others derive the same plan from.
    ///
    /// # Errors
    /// As [`TrainPlan::new`].
    pub fn with_request(
        graph: &Graph,
        output: ValueId,
        options: &TrainOptions,
    ) -> Result<(TrainRequest, Self, Vec<HostTensor>)> {
        let (request, numbers) = TrainRequest::new(graph, output, options)?;
        let (plan, mut start) = Self::of_request(&request)?;
        for (spec, value) in plan.state().into_iter().zip(&mut start) {
            if let Some(numbers) = numbers.get(&spec.name) {
                *value = numbers.clone();
            }
        }
        Ok((request, plan, start))
    }

    /// The plan of a request, and the state at the start with zeros for the numbers of the network.
    fn of_request(request: &TrainRequest) -> Result<(Self, Vec<HostTensor>)> {
        let mut forward = prepared(request)?;
        let (batch, options) = (forward.batch(), request.options());
        let formats = options.plan_formats(batch);
        let (step, added) = step_graph(&mut forward, options, true)?;
        let Compiled { plan, weights } = Compiled::of_optimised(&step, formats)?;
        let state = plan.weights();
        let metrics = options.metrics.len();
        let light = if options.optimiser.varies() || options.accumulate > 1 {
            let (step, _) = step_graph(&mut forward, options, false)?;
            let plan = Compiled::of_optimised(&step, formats)?.plan;
            Some(Variant::new(plan, &state, metrics)?)
        } else {
            None
        };
        let (finish, inference) = inference::plans(&forward, formats)?;
        let full = Variant::new(plan, &state, metrics)?;
        let Added { dropouts, noises } = added;
        let options = options.clone();
        let plan = Self { full, light, finish, inference, options, batch, dropouts, noises };
        // Every weight of inference is one of the state's, or made of them.
        let made = plan.finish.as_ref().map_or(0, |finish| finish.outputs().count());
        plan.assembled(&vec![(); plan.full.weights.len()], vec![(); made])?;
        plan.standardized()?;
        Ok((plan, weights))
    }

    /// Rows of a step; of several machines' step those of one machine.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The places of a machine's rows in a batch of all machines.
    pub fn rows_of_machine(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        (rank..self.batch * self.options.crew).step_by(self.options.crew)
    }

    /// A machine's rows of a batch of all machines. Local.
    ///
    /// # Errors
    /// [`Error::Plan`] if a tensor has not a row for each.
    pub fn batch_of_machine<P: Protocol>(
        &self,
        mpc: &P,
        rank: usize,
        batch: &[P::Share],
    ) -> Result<Vec<P::Share>> {
        let rows = self.batch * self.options.crew;
        let mut own = Vec::with_capacity(batch.len());
        for share in batch {
            if share.shape().dims().first() != Some(&rows) || rank >= self.options.crew {
                let (shape, machines) = (share.shape(), self.options.crew);
                return Err(Error::plan(format!(
                    "machine {rank} of {machines} takes its rows of {rows}, not of {shape:?}"
                )));
            }
            let view = View::Slice { axis: 0, start: rank, end: rows, step: self.options.crew };
            own.push(mpc.linear(&Linear::View(&view), share)?);
        }
        Ok(own)
    }

    /// The training options.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// The plan of one step. Its inputs are those of the network, the labels, and public numbers.
    pub fn step_plan(&self) -> &Plan {
        &self.full.plan
    }

    /// The plan that applies the network; [`TrainPlan::finish`] makes its weights.
    pub fn inference(&self) -> &Plan {
        &self.inference
    }

    /// The tensors that standardise the inputs, in the order of the inputs; none unless the options ask for it.
    pub(super) fn standardized(&self) -> Result<Vec<Standardized>> {
        if !self.options.standardize {
            return Ok(vec![]);
        }
        let state = self.full.plan.weights();
        let inputs = self.batch_shapes()?;
        let specs = self.full.plan.inputs();
        let mut found = vec![];
        for (input, shape) in inputs.iter().enumerate().take(inputs.len().saturating_sub(1)) {
            let InputSpec { name, integer, .. } = &specs[input];
            if *integer {
                continue;
            }
            let [mean, factor] = [mean_of(name), factor_of(name)].map(|wanted| {
                let place = state.iter().position(|spec| spec.name == wanted);
                let place =
                    place.filter(|&at| Some(state[at].shape.dims()) == shape.dims().get(1..));
                place.ok_or_else(|| {
                    Error::plan(format!("no tensor `{wanted}` standardises input `{name}`"))
                })
            });
            found.push(Standardized { input, mean: mean?, factor: factor? });
        }
        match found.is_empty() {
            true => Err(Error::plan("no input of real numbers is there to standardise")),
            false => Ok(found),
        }
    }

    /// The tensors that go from step to step, in the order of [`State`].
    pub fn state(&self) -> Vec<StateSpec> {
        let standardized = self.standardized().unwrap_or_default();
        let standardizes = |i| standardized.iter().any(|one| one.mean == i || one.factor == i);
        let applied = self.inference.weights().into_iter();
        let network: HashSet<String> = applied
            .chain(self.finish.iter().flat_map(Plan::weights))
            .map(|spec| spec.name)
            .collect();
        let spec = |(i, WeightSpec { name, shape, frac }): (usize, WeightSpec)| StateSpec {
            role: if network.contains(&name) { Role::Network } else { Role::Optimiser },
            name,
            shape,
            frac,
            trained: self.full.updated.contains(&i) || standardizes(i),
        };
        self.full.plan.weights().into_iter().enumerate().map(spec).collect()
    }

    /// The words of a state, ready to be secret-shared.
    ///
    /// # Errors
    /// As [`Plan::encode_weights`].
    pub fn encode_state(&self, values: &[HostTensor]) -> Result<Vec<Tensor>> {
        self.full.plan.encode_weights(values)
    }

    /// The numbers that a state's words encode.
    ///
    /// # Errors
    /// [`Error::Plan`] if there are not as many as the state has.
    pub fn decode_state(&self, words: &[Tensor]) -> Result<Vec<HostTensor>> {
        state::decode_all(&self.state(), words)
    }

    /// The places of the network's tensors in a state: its weights and running statistics, without the
    /// optimiser's tensors. Only these tensors leave at the end.
    pub fn network_places(&self) -> Vec<usize> {
        let state = self.state().into_iter().enumerate();
        state.filter(|(_, spec)| spec.role == Role::Network).map(|(place, _)| place).collect()
    }

    /// The numbers that the words of the network's tensors encode, as a state whose optimiser has kept nothing.
    ///
    /// # Errors
    /// As [`TrainPlan::decode_state`].
    pub fn decode_network(&self, words: &[Tensor]) -> Result<Vec<HostTensor>> {
        let specs = self.state();
        let places = self.network_places();
        let network: Vec<_> = places.iter().map(|&place| specs[place].clone()).collect();
        let decoded = state::decode_all(&network, words)?;
        let zeros =
            |spec: &StateSpec| HostTensor::new(spec.shape.dims(), vec![0.0; spec.shape.len()]);
        let mut values = specs.iter().map(zeros).collect::<Result<Vec<_>>>()?;
        for (place, value) in places.into_iter().zip(decoded) {
            values[place] = value;
        }
        Ok(values)
    }

    /// A state of shares, in the order of [`TrainPlan::state`].
    ///
    /// # Errors
    /// [`Error::Plan`] or [`Error::Argument`] if their number or their shapes are not the state's.
    pub fn secret_state<P: Protocol>(&self, shares: Vec<P::Share>) -> Result<State<P>> {
        State::new(&self.state(), shares)
    }

    /// Shapes of a batch's tensors, the labels last.
    ///
    /// # Errors
    /// As [`Plan::input_shapes`].
    pub fn batch_shapes(&self) -> Result<Vec<Shape>> {
        let mut shapes = self.full.plan.input_shapes(self.batch)?;
        shapes.truncate(self.batch_tensors());
        Ok(shapes)
    }

    /// The numbers that the words of the options' metrics encode, in their order.
    ///
    /// # Errors
    /// [`Error::Plan`] if there is not a word for each.
    pub fn decode_metrics(&self, words: &[Tensor]) -> Result<Vec<f64>> {
        let metrics = self.options.metrics.len();
        if words.len() != metrics || words.iter().any(|word| word.words().len() != 1) {
            return Err(Error::plan(format!("expected a word for each of {metrics} metrics")));
        }
        let decode = |(at, word): (usize, &Tensor)| {
            let place = self.full.updated.len() + at;
            Ok(self.full.plan.decode_output(place, word)?.floats().iter().sum())
        };
        words.iter().enumerate().map(decode).collect()
    }

    /// The words of a batch, the labels last, ready to be secret-shared.
    ///
    /// # Errors
    /// [`Error::Plan`] or [`Error::Argument`] if number, shapes or values do not fit.
    pub fn encode_batch(&self, batch: &[HostTensor]) -> Result<Vec<Tensor>> {
        self.check_batch(batch.len())?;
        let encode = |(i, x)| self.full.plan.encode_input(i, self.batch, x);
        batch.iter().enumerate().map(encode).collect()
    }

    /// The words of all rows of one of a batch's tensors, ready to be secret-shared; steps take some of them.
    ///
    /// # Errors
    /// As [`TrainPlan::encode_batch`].
    pub fn encode_rows(&self, index: usize, rows: &HostTensor) -> Result<Tensor> {
        let shapes = self.batch_shapes()?;
        let shape = shapes.get(index).ok_or_else(|| {
            Error::plan(format!("a batch has {} tensors, not {}", shapes.len(), index + 1))
        })?;
        let count = rows.dims().first().copied().unwrap_or(0);
        let shape = Shape::new([&[count], &shape.dims()[1..]].concat())?;
        let plan = &self.full.plan;
        encode_as("rows of", &plan.inputs()[index].name, &shape, plan.input_frac(index), rows)
    }

    /// The number of tensors in a batch: the network's inputs and the labels.
    fn batch_tensors(&self) -> usize {
        let public =
            self.options.optimiser.public_inputs(&self.options) + self.dropouts.len() + self.noises;
        self.full.plan.inputs().len().saturating_sub(public)
    }

    /// Tensors of a state.
    pub(super) fn taken<T: Clone>(&self, wanted: &[WeightSpec], state: &[T]) -> Result<Vec<T>> {
        let specs = self.full.plan.weights();
        let find = |wanted: &WeightSpec| {
            let place = specs.iter().position(|spec| spec == wanted);
            place.and_then(|i| state.get(i).cloned()).ok_or_else(|| missing(&wanted.name))
        };
        wanted.iter().map(find).collect()
    }

    /// The weights for inference: the tensors in `made`, and for the rest the state's tensors.
    pub(super) fn assembled<T: Clone>(&self, state: &[T], made: Vec<T>) -> Result<Vec<T>> {
        let names: Vec<_> = self.finish.iter().flat_map(Plan::outputs).collect();
        let made: HashMap<_, _> = names.into_iter().zip(made).collect();
        let mut weights = vec![];
        for spec in self.inference.weights() {
            weights.push(match made.get(spec.name.as_str()) {
                Some(value) => value.clone(),
                None => self.taken(std::slice::from_ref(&spec), state)?.remove(0),
            });
        }
        Ok(weights)
    }

    pub(super) fn check_batch(&self, given: usize) -> Result<()> {
        let wanted = self.batch_tensors();
        if given == wanted {
            return Ok(());
        }
        Err(Error::plan(format!("expected {wanted} tensors of a batch, labels last; got {given}")))
    }

    pub(super) fn check_state(&self, given: usize) -> Result<()> {
        let wanted = self.full.weights.len();
        if given == wanted {
            return Ok(());
        }
        Err(Error::plan(format!("expected {wanted} tensors of a state, got {given}")))
    }
}

impl TrainRequest {
    /// The plan of a step.
    ///
    /// # Errors
    /// [`Error::Node`] naming an operation without a gradient or a format that does not fit, [`Error::Invalid`] or
    /// [`Error::Plan`] if the request does not hold together.
    pub fn derive(&self) -> Result<TrainPlan> {
        Ok(TrainPlan::of_request(self)?.0)
    }
}

/// The forward pass of a training alone, with the batch's statistics, as a reference for a step. Masks of
/// dropouts are its last inputs.
///
/// # Errors
/// As [`TrainPlan::new`].
pub fn forward(graph: &Graph, output: ValueId, options: &TrainOptions) -> Result<Compiled> {
    let (request, numbers) = TrainRequest::new(graph, output, options)?;
    let Expanded { mut graph, .. } = prepared(&request)?.with_batch_statistics()?;
    for constant in &mut graph.constants {
        if let Some(value) = numbers.get(&constant.name).filter(|_| constant.secret) {
            constant.value = value.clone();
        }
    }
    graph.fix_batch();
    passes::optimise(&mut graph)?;
    Compiled::of_optimised(&graph, options.plan_formats(graph.batch()))
}

fn missing(name: &str) -> Error {
    let reason = "is not among the state's tensors".to_owned();
    Error::Argument { what: "weight", name: name.to_owned(), reason }
}
