//! Plans that run step by step, on values that stay at the parties and grow.

use mpc_core::{Operand, Protocol, SecretTensor};
use ring_arith::{Shape, View};
use serde::{Deserialize, Serialize};

use crate::graph::{Dim, Op, Sizes, eval};
use crate::ops;
use crate::plan::{Observer, Plan};
use crate::{Error, HostTensor, Result};

/// A value that stays from step to step: an input of the plan, and the result that replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// The number of the input.
    pub input: usize,
    /// The number of the result.
    pub output: usize,
    /// The axis that has an entry for each cached position.
    pub axis: usize,
}

/// The values that a plan's steps have left, in the order of [`Plan::states`]: shares that a party keeps, or tensors
/// in the clear. Plans of the same network for other numbers of positions in a step can go on with them.
#[derive(Debug, Clone)]
pub struct Caches<T> {
    past: usize,
    /// Empty before the first step.
    tensors: Vec<T>,
}

impl<T> Default for Caches<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Caches<T> {
    /// No values, as before the first step.
    pub fn new() -> Self {
        Self { past: 0, tensors: vec![] }
    }

    /// The number of cached positions.
    pub fn past(&self) -> usize {
        self.past
    }

    /// The values, none before the first step.
    pub fn tensors(&self) -> &[T] {
        &self.tensors
    }

    /// A value of a plan's state.
    fn of(&self, state: usize, states: usize) -> Result<Option<&T>> {
        match (self.tensors.get(state), self.tensors.len()) {
            (None, 0) => Ok(None),
            (Some(tensor), len) if len == states => Ok(Some(tensor)),
            (_, len) => Err(Error::plan(format!("caches of {len} states, the plan has {states}"))),
        }
    }
}

impl Plan {
    /// The values that stay from step to step; none for a plan that runs once.
    pub fn states(&self) -> &[StateSpec] {
        &self.states
    }

    /// The inputs that a step is given, by their numbers: all but the states.
    pub fn step_inputs(&self) -> impl Iterator<Item = usize> {
        (0..self.inputs.len()).filter(|&i| self.states.iter().all(|state| state.input != i))
    }

    /// The results that a step returns, by their numbers: all but the states.
    pub fn step_outputs(&self) -> impl Iterator<Item = usize> {
        (0..self.outputs.len()).filter(|&i| self.states.iter().all(|state| state.output != i))
    }

    /// The sizes of a step on inputs of these shapes behind `past` cached positions. Without states these are the sizes
    /// of a run.
    ///
    /// # Errors
    /// [`Error::Argument`] that names the input that does not fit.
    pub fn step_sizes(&self, given: &[&Shape], past: usize) -> Result<Sizes> {
        if self.states.is_empty() {
            return self.sizes_of(given);
        }
        let wanted = self.step_inputs().count();
        if given.len() != wanted {
            return Err(Error::plan(format!("{} inputs, a step takes {wanted}", given.len())));
        }
        let mut shapes =
            self.input_shapes(Sizes { batch: self.batch_of_step(given.iter().copied()), past })?;
        for (i, shape) in self.step_inputs().zip(given) {
            shapes[i] = (*shape).clone();
        }
        self.sizes_of(&shapes.iter().collect::<Vec<_>>())
    }

    /// The batch size of a step's inputs, as the first that begins with it has it.
    fn batch_of_step<'a>(&self, given: impl Iterator<Item = &'a Shape>) -> usize {
        let mut sizes = self.step_inputs().zip(given).flat_map(|(i, shape)| {
            self.inputs[i].dims.iter().zip(shape.dims()).filter_map(|(dim, &n)| match dim {
                Dim::Batch(k) => n.checked_div(*k),
                _ => None,
            })
        });
        self.batch.or(sizes.next()).unwrap_or(1)
    }

    /// The number of positions that a step adds; `None` for a plan without states.
    pub fn new_positions(&self) -> Option<usize> {
        let state = self.states.first()?;
        let sizes = Sizes { batch: self.batch.unwrap_or(1), past: 0 };
        let shapes = self.output_shapes(sizes).ok()?;
        Some(shapes.get(state.output)?.dims()[state.axis])
    }

    /// The most cached positions that a step may follow, if there is a limit: behind more the model may be another one.
    pub fn most_past(&self) -> Option<usize> {
        self.most_past
    }

    /// Checks a number of cached positions.
    ///
    /// # Errors
    /// [`Error::Plan`] if it is above [`Plan::most_past`].
    pub fn check_past(&self, past: usize) -> Result<()> {
        match self.most_past.filter(|&most| past > most) {
            None => Ok(()),
            Some(most) => {
                let new = self.new_positions().unwrap_or(1);
                let reason = format!(
                    "a step behind {past} positions; a text has at most {}, for which the network was checked",
                    most + new
                );
                Err(Error::plan(reason))
            }
        }
    }

    /// Words of all states with this number of cached positions. A party of replicated sharing keeps two for each.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan does not serve the sizes.
    pub fn state_words(&self, sizes: Sizes) -> Result<usize> {
        let shapes = self.input_shapes(sizes)?;
        Ok(self.states.iter().map(|state| shapes[state.input].len()).sum())
    }

    /// Runs a step: the plan with its states from `caches`, which then have the step's positions too. `inputs` are
    /// the others, in the plan's order, and so are the results. The number of cached positions is public. There is
    /// no padding: a step computes with the positions that there are.
    ///
    /// # Cost
    /// That of [`Plan::run`] for so many cached positions. Caches are copied once, locally.
    ///
    /// # Errors
    /// Those of [`Plan::run`], and [`Error::Plan`] for caches of another network. The caches are then what they were.
    pub fn step<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        caches: &mut Caches<SecretTensor<P>>,
        inputs: &[Operand<P>],
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        let all = self.with_caches(mpc, caches, inputs)?;
        let results = self.run(mpc, weights, &all, observer)?;
        self.settle(caches, results)
    }

    /// [`Plan::step`] with a guard, as [`Plan::run_guarded`]: the word for each guarded value comes last.
    ///
    /// # Errors
    /// As [`Plan::step`]; [`Error::Plan`] if nothing is guarded.
    pub fn step_guarded<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        caches: &mut Caches<SecretTensor<P>>,
        (inputs, seed): (&[Operand<P>], u64),
        observer: &mut dyn Observer,
    ) -> Result<(Vec<SecretTensor<P>>, SecretTensor<P>)> {
        let all = self.with_caches(mpc, caches, inputs)?;
        let (results, left) = self.run_guarded(mpc, weights, &all, seed, observer)?;
        Ok((self.settle(caches, results)?, left))
    }

    /// The results of a step for weights, caches and inputs in the clear, in 64-bit floats.
    ///
    /// # Errors
    /// As [`Plan::evaluate`], and [`Error::Plan`] for caches of another network.
    pub fn evaluate_step(
        &self,
        weights: &[HostTensor],
        caches: &mut Caches<HostTensor>,
        inputs: &[HostTensor],
    ) -> Result<Vec<HostTensor>> {
        let states = self.states.len();
        let empty = |shape: &Shape| HostTensor::new(shape.dims(), vec![0.0; shape.len()]);
        let shapes: Vec<_> = inputs.iter().map(HostTensor::shape).collect();
        let all = self.arranged(inputs, &shapes, |state, shape| {
            Ok(match caches.of(state, states)? {
                Some(tensor) => tensor.clone(),
                None => empty(shape)?,
            })
        })?;
        let results = self.evaluate(weights, &all)?;
        self.settle(caches, results)
    }

    /// Forgets the positions from number `to` on. Local.
    ///
    /// # Errors
    /// [`Error::Plan`] if there are fewer, or the caches are another network's.
    pub fn rewind<P: Protocol>(
        &self,
        mpc: &P,
        caches: &mut Caches<SecretTensor<P>>,
        to: usize,
    ) -> Result<()> {
        if to > caches.past {
            let reason = format!("position {to} is behind the {} that are cached", caches.past);
            return Err(Error::plan(reason));
        }
        let mut kept = vec![];
        for (i, state) in self.states.iter().enumerate() {
            let Some(tensor) = caches.of(i, self.states.len())? else { continue };
            let view = View::Slice { axis: state.axis, start: 0, end: to, step: 1 };
            kept.push(mpc_core::functions::view(mpc, tensor, &view)?);
        }
        caches.tensors = if to == 0 { vec![] } else { kept };
        caches.past = to;
        Ok(())
    }

    fn with_caches<P: Protocol>(
        &self,
        mpc: &P,
        caches: &Caches<SecretTensor<P>>,
        inputs: &[Operand<P>],
    ) -> Result<Vec<Operand<P>>> {
        let shapes: Vec<_> = inputs.iter().map(ops::shape_of).collect();
        self.arranged(inputs, &shapes, |state, shape| {
            Ok(match caches.of(state, self.states.len())? {
                Some(tensor) => Operand::Secret(tensor.clone()),
                None => {
                    let empty = HostTensor::new(shape.dims(), vec![0.0; shape.len()])?;
                    let frac = self.input_frac(self.states[state].input);
                    Operand::Public(ops::public(mpc, &empty, frac)?)
                }
            })
        })
    }

    /// All inputs in order: those given, which have these shapes, and the states. A state is told the shape that it
    /// has before the first step.
    fn arranged<T: Clone>(
        &self,
        inputs: &[T],
        given: &[&Shape],
        mut state: impl FnMut(usize, &Shape) -> Result<T>,
    ) -> Result<Vec<T>> {
        let wanted = self.step_inputs().count();
        if self.states.is_empty() || inputs.len() != wanted {
            let states = self.states.len();
            let reason = format!(
                "{} inputs of a step, {wanted} besides {states} states are needed",
                inputs.len()
            );
            return Err(Error::plan(reason));
        }
        let batch = self.batch_of_step(given.iter().copied());
        let shapes = self.input_shapes(Sizes { batch, past: 0 })?;
        let mut given = inputs.iter();
        let mut all = Vec::with_capacity(self.inputs.len());
        for (i, shape) in shapes.iter().enumerate() {
            all.push(match self.states.iter().position(|state| state.input == i) {
                Some(at) => state(at, shape)?,
                None => given.next().cloned().ok_or_else(|| Error::plan("an input is missing"))?,
            });
        }
        Ok(all)
    }

    /// Puts the new states into the caches; returns the other results.
    fn settle<T>(&self, caches: &mut Caches<T>, results: Vec<T>) -> Result<Vec<T>> {
        let mut rest = vec![];
        let mut grown: Vec<Option<T>> = self.states.iter().map(|_| None).collect();
        for (i, result) in results.into_iter().enumerate() {
            match self.states.iter().position(|state| state.output == i) {
                Some(at) => grown[at] = Some(result),
                None => rest.push(result),
            }
        }
        let missing = || Error::plan("a state was not extended");
        caches.tensors = grown.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
        caches.past += self.new_positions().ok_or_else(missing)?;
        Ok(rest)
    }

    /// The values of the nodes that are computed in the clear, and of the public numbers that they need.
    pub(in crate::plan) fn public_values(&self, sizes: Sizes) -> Result<Vec<Option<HostTensor>>> {
        let mut values: Vec<Option<HostTensor>> = vec![None; self.nodes.len()];
        if !self.public.contains(&true) {
            return Ok(values);
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if let Op::Constant(at) = node.op {
                values[i].clone_from(&self.constants[at].public);
            }
            if !self.public[i] {
                continue;
            }
            let xs: Option<Vec<_>> = node.inputs.iter().map(|&x| values[x].as_ref()).collect();
            let xs = xs.ok_or_else(|| Error::plan("a public number is not known"))?;
            let value = eval::evaluate(&node.op, &xs, sizes).map_err(|e| e.at(&node.name))?;
            values[i] = Some(value);
        }
        Ok(values)
    }
}
