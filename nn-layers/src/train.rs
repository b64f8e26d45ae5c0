//! Training: forward pass, gradients and update in one [`Plan`], run step after step on shares.
//!
//! [`Graph::train`] selects the weights to train, [`TrainPlan::new`] makes the plan of a step, and
//! [`TrainPlan::step`] runs it; weights go from step to step as shares. [`TrainPlan::step_in_the_clear`]
//! computes the same in 64-bit floats, as a reference for private training.
//!
//! Gradients are those of the *sum* of the batch's losses times the learning rate, which divides by the batch
//! size. This factor is part of the slope with which the backward pass begins, so that it costs nothing later.
//! Gradients are not divided by the batch size separately, which would only lose bits.

mod accountant;
mod adam;
mod finish;
mod loss;
mod metric;
mod noise;
mod optimiser;
mod options;
mod privacy;
mod request;
mod running;
mod schedule;
mod state;

use std::collections::HashSet;

use mpc_core::{Operand, Protocol, PublicTensor, SecretTensor, SplitMix64};
use ring_arith::{Engine, Shape, Tensor};
use serde::Serialize;

pub use accountant::{Accountant, multiplier_for};
pub use adam::{Adam, Second};
pub use loss::{Classes, Loss};
pub use metric::Metric;
pub use optimiser::Optimiser;
pub use options::{Formats, TrainOptions};
pub use privacy::Privacy;
pub use request::TrainRequest;
pub use schedule::{Decay, Schedule, Step};
pub use state::{Role, State, StateSpec};

use crate::graph::norm::{Expanded, Running};
use crate::graph::{Binary, Dim, Format, Graph, Op, ValueId};
use crate::plan::{Observer, WeightSpec, encode, encode_as, passes};
use crate::{Compiled, Error, HostTensor, Inspection, Plan, Result};

/// Fraction bits of the learning rate for a single row.
const RATE_FRAC: u32 = 30;

/// The step of a network's training as a plan. Inputs are those of the network and the labels, the weights
/// are the state.
///
/// No party takes a plan from another: each derives it from the [`TrainRequest`]. It is serialized only so that
/// parties can compare hashes of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainPlan {
    /// The computation of a step.
    full: Variant,
    /// The computation of a step that reuses the inverse roots of an earlier step, if there are such steps.
    light: Option<Variant>,
    /// From a state to the weights of `inference` that are made of several of its tensors.
    finish: Option<Plan>,
    inference: Plan,
    options: TrainOptions,
    batch: usize,
    /// The parts that dropouts leave out; their masks are the last inputs but the noise.
    dropouts: Vec<f64>,
    /// Tensors of noise, the last inputs.
    noises: usize,
}

/// A plan of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Variant {
    plan: Plan,
    /// For each weight of the plan its place in the state.
    weights: Vec<usize>,
    /// The places of the tensors that the plan's first results are the new values of.
    updated: Vec<usize>,
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
    fn settle<P: Protocol>(
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
    fn operands<T: Clone>(&self, state: &[T]) -> Vec<T> {
        self.weights.iter().map(|&place| state[place].clone()).collect()
    }
}

impl TrainPlan {
    /// The plan of a step for the batch size of `graph`, and the state at its start. The loss compares `output`
    /// with the labels: logits of shape `[batch, classes]` for [`Loss::CrossEntropy`].
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
        let (step, added) = training_graph(&mut forward, options, true)?;
        let Compiled { plan, weights } = Compiled::of_optimised(&step, formats)?;
        let state = plan.weights();
        let metrics = options.metrics.len();
        let light = if options.optimiser.varies() {
            let (step, _) = training_graph(&mut forward, options, false)?;
            let plan = Compiled::of_optimised(&step, formats)?.plan;
            Some(Variant::new(plan, &state, metrics)?)
        } else {
            None
        };
        let (finish, inference) = finish::plans(&forward, formats)?;
        let full = Variant::new(plan, &state, metrics)?;
        let Added { dropouts, noises } = added;
        let options = options.clone();
        let plan = Self { full, light, finish, inference, options, batch, dropouts, noises };
        // Every weight of inference is one of the state's, or made of them.
        let made = plan.finish.as_ref().map_or(0, |finish| finish.outputs().count());
        plan.assembled(&vec![(); plan.full.weights.len()], vec![(); made])?;
        Ok((plan, weights))
    }

    /// Rows of a step.
    pub fn batch(&self) -> usize {
        self.batch
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

    /// The tensors that go from step to step, in the order of [`State`].
    pub fn state(&self) -> Vec<StateSpec> {
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
            trained: self.full.updated.contains(&i),
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

    /// Runs one step: the state becomes that after it. Returns the options' metrics, which stay shared. All
    /// parties call it alike, with the same number and learning rate; a rate alone is enough for gradient
    /// descent.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Invalid`] if the rate is not in the options' range, or the optimiser needs the
    /// step's number.
    pub fn step<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        batch: &[Operand<P>],
        step: impl Into<Step>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        let noise = self.noise(mpc)?;
        self.step_with_noise(mpc, state, batch, step, noise, observer)
    }

    /// [`TrainPlan::step`] with a guard over every product of the step. It also returns a word for each name of
    /// [`TrainPlan::guarded`]. The word is 0 unless values of that layer, or of its gradient, have left the
    /// range in which arithmetic is right. All parties know the seed.
    ///
    /// # Cost
    /// That of [`TrainPlan::step`] and of [`Plan::run_guarded`]'s guard.
    ///
    /// # Errors
    /// As [`TrainPlan::step`].
    pub fn step_guarded<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        batch: &[Operand<P>],
        step: Step,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<(Vec<SecretTensor<P>>, SecretTensor<P>)> {
        if self.options.privacy.is_some() {
            let reason = "a guard tells exactly whether rows left the range, which no noise protects: take \
                          TrainPlan::step";
            return Err(Error::invalid("privacy", reason));
        }
        let variant = self.variant(step);
        let inputs = self.inputs(mpc, batch, step, vec![])?;
        let weights = variant.operands(state.operands());
        let plan = variant.plan.clone().with_guard(true);
        let (results, left) = plan.run_guarded(mpc, &weights, &inputs, seed, observer)?;
        Ok((variant.settle(state, results), left))
    }

    /// The names of the values that the guard of a step watches, in its order; none of a training with [`Privacy`].
    pub fn guarded(&self, step: Step) -> Vec<String> {
        if self.options.privacy.is_some() {
            return vec![];
        }
        let plan = self.variant(step).plan.clone().with_guard(true);
        plan.guarded().into_iter().map(str::to_owned).collect()
    }

    /// The most values that [`TrainPlan::guarded`] names for any step.
    pub fn most_guarded(&self) -> usize {
        let all = [Some(&self.full), self.light.as_ref()].into_iter().flatten();
        let counts = all.map(|variant| variant.plan.clone().with_guard(true).guarded().len());
        if self.options.privacy.is_some() { 0 } else { counts.max().unwrap_or(0) }
    }

    /// A batch, the public numbers of a step and its noise.
    fn inputs<P: Protocol>(
        &self,
        mpc: &P,
        batch: &[Operand<P>],
        step: Step,
        noise: Vec<Operand<P>>,
    ) -> Result<Vec<Operand<P>>> {
        self.check_batch(batch.len())?;
        self.check_noise(noise.len())?;
        let plan = &self.full.plan;
        let mut inputs = batch.to_vec();
        for (spec, value) in plan.inputs()[batch.len()..].iter().zip(self.public(step)?) {
            let frac = spec.frac.unwrap_or(plan.frac());
            let words = encode(&HostTensor::new([1], vec![value])?, frac)?;
            let words = mpc.engine().upload(words)?;
            inputs.push(Operand::Public(PublicTensor::new(words, frac)));
        }
        for mask in self.masks(step)? {
            let words = mpc.engine().upload(encode(&mask, 0)?)?;
            inputs.push(Operand::Public(PublicTensor::new(words, 0)));
        }
        inputs.extend(noise);
        Ok(inputs)
    }

    /// The masks of a step's dropouts: zeros and ones, from the options' seed and the step's number.
    fn masks(&self, step: Step) -> Result<Vec<HostTensor>> {
        if self.dropouts.is_empty() {
            return Ok(vec![]);
        }
        let number = step.number.ok_or_else(|| {
            Error::invalid("step", "dropout needs the number of a step: Step::new(number, rate)")
        })?;
        let mut shapes = self.full.plan.input_shapes(self.batch)?;
        shapes.truncate(shapes.len() - self.noises);
        let first = shapes.len() - self.dropouts.len();
        let mut masks = vec![];
        for (i, (part, shape)) in self.dropouts.iter().zip(&shapes[first..]).enumerate() {
            let place = u64::from(number) << 32 | i as u64;
            // Seeds that are near each other give streams that are not.
            let mut coins = SplitMix64::new(self.options.seed ^ SplitMix64::new(place).next_u64());
            let limit = (part * f64::from(64).exp2()) as u64;
            let kept = (0..shape.len()).map(|_| i64::from(coins.next_u64() >= limit));
            masks.push(HostTensor::integers(shape.dims(), kept.collect())?);
        }
        Ok(masks)
    }

    /// [`TrainPlan::step`] in 64-bit floats; with [`Privacy`] gradients are clipped, without noise. Weights
    /// follow their gradients by PyTorch's formula, also where fixed point takes another for numbers that are
    /// too small for it.
    ///
    /// # Errors
    /// As [`Plan::evaluate`]; [`Error::Invalid`] if the rate is not in the options' range.
    pub fn step_in_the_clear(
        &self,
        state: &mut [HostTensor],
        batch: &[HostTensor],
        step: impl Into<Step>,
    ) -> Result<Vec<HostTensor>> {
        self.step_in_the_clear_with_noise(state, batch, step, &self.no_noise()?)
    }

    /// [`TrainPlan::step_with_noise`] in 64-bit floats, with the numbers that the noise's words encode.
    ///
    /// # Errors
    /// As [`TrainPlan::step_in_the_clear`]; [`Error::Plan`] if the noise is not that of a step.
    pub fn step_in_the_clear_with_noise(
        &self,
        state: &mut [HostTensor],
        batch: &[HostTensor],
        step: impl Into<Step>,
        noise: &[HostTensor],
    ) -> Result<Vec<HostTensor>> {
        let step = step.into();
        let inputs = self.inputs_in_the_clear(state, batch, step, noise)?;
        let variant = self.variant(step);
        let Variant { plan, updated, .. } = variant;
        let mut results = plan.evaluate(&variant.operands(state), &inputs)?;
        let metrics = results.split_off(updated.len());
        let before = state.to_vec();
        for (&place, value) in updated.iter().zip(results) {
            state[place] = value;
        }
        if let (Optimiser::Adam(adam), Some(number)) = (&self.options.optimiser, step.number) {
            let updated = updated.iter().copied();
            adam.move_in_floats(&self.state(), updated, &before, state, (number, step.rate))?;
        }
        Ok(metrics)
    }

    /// Runs a step in the clear in fixed point with every check on, as well as in 64-bit floats. A value that
    /// leaves its range here would be a wrong number without an error on shares. If every value stays in its
    /// range, the state becomes that after the step. With [`Privacy`] gradients get no noise.
    ///
    /// # Errors
    /// As [`TrainPlan::step_in_the_clear`], and [`Plan::inspect`].
    pub fn inspect<E: Engine>(
        &self,
        engine: E,
        state: &mut [HostTensor],
        batch: &[HostTensor],
        step: impl Into<Step>,
    ) -> Result<Inspection> {
        let step = step.into();
        let inputs = self.inputs_in_the_clear(state, batch, step, &self.no_noise()?)?;
        let variant = self.variant(step);
        let seen = variant.plan.inspect(engine, &variant.operands(state), &inputs)?;
        for (&place, value) in variant.updated.iter().zip(&seen.results) {
            state[place] = value.clone();
        }
        Ok(seen)
    }

    /// All that a step's plan is applied to, in the clear.
    fn inputs_in_the_clear(
        &self,
        state: &[HostTensor],
        batch: &[HostTensor],
        step: Step,
        noise: &[HostTensor],
    ) -> Result<Vec<HostTensor>> {
        self.check_batch(batch.len())?;
        self.check_noise(noise.len())?;
        self.check_state(state.len())?;
        let mut inputs = batch.to_vec();
        for value in self.public(step)? {
            inputs.push(HostTensor::new([1], vec![value])?);
        }
        inputs.extend(self.masks(step)?);
        inputs.extend_from_slice(noise);
        Ok(inputs)
    }

    fn no_noise(&self) -> Result<Vec<HostTensor>> {
        let zeros = |shape: &Shape| HostTensor::new(shape.dims(), vec![0.0; shape.len()]);
        self.noise_shapes()?.iter().map(zeros).collect()
    }

    /// The computation of a step.
    fn variant(&self, step: Step) -> &Variant {
        match &self.light {
            Some(light) if !self.options.optimiser.is_full(step) => light,
            _ => &self.full,
        }
    }

    /// The public numbers of a step.
    fn public(&self, step: Step) -> Result<Vec<f64>> {
        let largest = self.options.largest_rate;
        if !(0.0..=largest).contains(&step.rate) {
            let reason =
                format!("{} is not within 0 to {largest}, the largest of the options", step.rate);
            return Err(Error::invalid("learning rate", reason));
        }
        let mut numbers = self.options.optimiser.public(step, self.batch)?;
        if let (Some(privacy), Optimiser::Sgd { .. }) =
            (&self.options.privacy, self.options.optimiser)
        {
            numbers[0] *= privacy.unit();
        }
        Ok(numbers)
    }

    /// The number of tensors in a batch: the network's inputs and the labels.
    fn batch_tensors(&self) -> usize {
        let public = self.options.optimiser.public_inputs() + self.dropouts.len() + self.noises;
        self.full.plan.inputs().len().saturating_sub(public)
    }

    fn check_batch(&self, given: usize) -> Result<()> {
        let wanted = self.batch_tensors();
        if given == wanted {
            return Ok(());
        }
        Err(Error::plan(format!("expected {wanted} tensors of a batch, labels last; got {given}")))
    }

    fn check_state(&self, given: usize) -> Result<()> {
        let wanted = self.full.weights.len();
        if given == wanted {
            return Ok(());
        }
        Err(Error::plan(format!("expected {wanted} tensors of a state, got {given}")))
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

/// The network as a step takes it, with pools where they cost least.
fn prepared(request: &TrainRequest) -> Result<Graph> {
    let mut forward = request.network()?;
    passes::pools::pool_before_relu(&mut forward)?;
    // The gradients of each example are those of the trained tensors themselves.
    if request.options().privacy.is_none() {
        passes::pools::merge_averages(&mut forward)?;
    }
    Ok(forward)
}

/// The inputs of a step in addition to a batch and public numbers.
struct Added {
    /// The parts that dropouts leave out.
    dropouts: Vec<f64>,
    /// Tensors of noise.
    noises: usize,
}

/// The whole step as a graph, whose first results are the new values of the state's tensors, by name. The
/// parameters of `forward` get the formats that they have in the step.
fn training_graph(
    forward: &mut Graph,
    options: &TrainOptions,
    full: bool,
) -> Result<(Graph, Added)> {
    let Expanded { mut graph, norms, running, masks } = forward.with_batch_statistics()?;
    graph.fix_batch();
    let output = options.loss.compared(&graph, graph.outputs[0].1)?;
    let followed: HashSet<_> = running.iter().flat_map(|r| r.running).collect();
    let mut parameters = graph.parameters();
    parameters.retain(|id| !followed.contains(id));
    let labels = options.loss.labels(&mut graph, output)?;
    let parts = options.loss.parts(&mut graph, output, labels)?;
    let rate_frac = match options.optimiser {
        Optimiser::Sgd { .. } => RATE_FRAC,
        Optimiser::Adam(_) => Adam::rate_frac(options),
    };
    let rate = graph.input_with_frac("learning rate", &[Dim::Fixed(1)], rate_frac)?;
    let seed = seed(&mut graph, options, parts.slope, rate)?;
    let mut noise = vec![];
    let pairs = if let Some(privacy) = &options.privacy {
        refuse_batch_statistics(&running)?;
        let units = privacy.units(graph.batch());
        let each = graph.gradients_of_each(output, seed, &parameters, units)?;
        let each: Vec<_> = parameters.iter().copied().zip(each).collect();
        let noisy = privacy::noisy_gradients(&mut graph, privacy, &options.optimiser, rate, &each)?;
        noise = noisy.inputs;
        noisy.gradients
    } else {
        let grads = graph.gradients_with(&norms, output, seed, &parameters)?;
        parameters.iter().copied().zip(grads).collect()
    };
    let mut updates = options.optimiser.update(&mut graph, options, rate, &pairs, full)?;
    for norm in &running {
        updates.extend(running::follow(&mut graph, norm)?);
    }
    let followed = forward.running_statistics(|_| true);
    let own = forward.parameters().into_iter().filter(|id| !followed.contains(id));
    for (id, of) in own.zip(parameters) {
        forward.nodes[id.0].format = graph.nodes[of.0].format;
    }
    graph.outputs.clear();
    for (name, value) in &updates {
        graph.output(name, *value);
    }
    for metric in &options.metrics {
        let value = metric.value(&mut graph, output, labels, &parts, &options.loss)?;
        graph.output(metric.name(), value);
    }
    // A batch's tensors come first, then the inputs that a step adds to them.
    let last: Vec<_> = masks.iter().map(|mask| mask.0).chain(noise.iter().copied()).collect();
    graph.move_inputs_last(&last);
    passes::optimise(&mut graph)?;
    let dropouts = masks.into_iter().map(|mask| mask.1).collect();
    Ok((graph, Added { dropouts, noises: noise.len() }))
}

/// The statistics of a batch mix its examples.
fn refuse_batch_statistics(running: &[Running]) -> Result<()> {
    let Some(norm) = running.first() else { return Ok(()) };
    let reason = "a batch normalisation that is trained mixes the examples of a batch, so that none can be clipped: \
                  leave its scale and shift out of what Graph::train trains, or put a layer normalisation in its \
                  place";
    Err(Error::Node { node: norm.name.clone(), reason: reason.to_owned() })
}

/// The slope with which the backward pass begins.
fn seed(
    graph: &mut Graph,
    options: &TrainOptions,
    slope: ValueId,
    rate: ValueId,
) -> Result<ValueId> {
    let (op, operands) = match (&options.privacy, options.optimiser) {
        (Some(privacy), _) => (Op::Scale(1.0 / privacy.unit()), vec![slope]),
        (None, Optimiser::Sgd { .. }) => (Op::Binary(Binary::Mul), vec![slope, rate]),
        (None, Optimiser::Adam(adam)) => {
            (Op::Scale(adam.unit() / graph.batch() as f64), vec![slope])
        }
    };
    graph.add_as(Format::Gradient, "loss.grad", op, &operands)
}
