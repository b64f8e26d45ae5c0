//! Runs a plan on shares.

pub(crate) mod exec;
mod guard;
pub(super) mod inspect;
pub(super) mod observe;
pub(super) mod step;

use std::time::Instant;

use mpc_core::{Operand, Protocol, SecretTensor, Sums};
use ring_arith::Shape;

use self::guard::Guard;
use super::{Observer, Plan, StepInfo, shapes};
use crate::crew::{Alone, Crew};
use crate::graph::{Op, Sizes};
use crate::ops;
use crate::{Error, Result};

/// Sees each value of a running plan as soon as it is computed.
pub(super) trait Watch<P: Protocol> {
    /// A step begins; `shapes` are those of all nodes.
    fn begins(&mut self, group: &[usize], shapes: &[Shape]) {
        let _ = (group, shapes);
    }

    /// Sums of a node of this step that are needed as well as its value.
    fn sums(&self, node: usize) -> Option<Sums<'_>> {
        let _ = node;
        None
    }

    /// A node has been computed from its operands among `values`.
    fn made(
        &mut self,
        mpc: &mut P,
        node: usize,
        made: &exec::Made<P>,
        values: &[Option<Operand<P>>],
    ) -> Result<()>;
}

impl<P: Protocol> Watch<P> for () {
    fn made(
        &mut self,
        _: &mut P,
        _: usize,
        _: &exec::Made<P>,
        _: &[Option<Operand<P>>],
    ) -> Result<()> {
        Ok(())
    }
}

impl Plan {
    /// Runs the plan: `weights` in the order of [`Plan::weights`], `inputs` in that of
    /// [`Plan::inputs`], each secret or public. All parties call it alike. A value is dropped as
    /// soon as the last step that needs it has ended.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Plan`] if shapes or formats do not fit, before anything is
    /// sent; [`Error::Mpc`] if the protocol fails; [`Error::Node`] if the observer stops it.
    pub fn run<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        self.run_in_crew(mpc, &mut Alone, weights, inputs, observer)
    }

    /// [`Plan::run`] by the machines of each party together, each in a session with the same machines of the others: for
    /// the step of a training whose [`crate::train::TrainOptions::crew`] is their number. All machines call it alike.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Plan`] if the plan is for another number of machines, before anything is sent;
    /// [`Error::Crew`] if a machine is missing.
    pub fn run_in_crew<P: Protocol>(
        &self,
        mpc: &mut P,
        crew: &mut dyn Crew<P::Engine>,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        self.in_profile(mpc, |mpc| self.run_steps((mpc, crew), weights, inputs, observer, &mut ()))
    }

    /// [`Plan::run`] with a guard over the values of [`Plan::guarded`]. It also returns a word for each of
    /// them, which is 0 unless its values have left their range.
    ///
    /// All parties know `seed`. Those who choose weights or inputs should not know it before these are shared.
    /// Afterwards it need not be secret.
    ///
    /// # Cost
    /// That of [`Plan::run`] and 7 rounds. For each guarded value 3 products of one word and 6 comparisons;
    /// also a truncation of 3 words for each term of one of its sums (of one where it has one row). Two
    /// comparisons of each operand that can leave a function's domain, one for each end; two for each quotient that can
    /// be too large, and for each row that can be too small to be normalised.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Plan`] if nothing is guarded.
    pub fn run_guarded<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<(Vec<SecretTensor<P>>, SecretTensor<P>)> {
        self.run_guarding(mpc, weights, inputs, (&[], seed), observer)
    }

    /// [`Plan::run_guarded`] for several callers at once, whose examples lie one after the other: `callers` has
    /// the number of each. The guard returns a word of each value for each caller, in their order.
    ///
    /// # Cost
    /// As if there were as many guarded values as there are pairs of one and a caller.
    ///
    /// # Errors
    /// As [`Plan::run_guarded`]; [`Error::Plan`] unless the plan [keeps examples
    /// apart](Plan::keeps_examples_apart) and these are all its examples.
    pub fn run_joined<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        (callers, seed): (&[usize], u64),
        observer: &mut dyn Observer,
    ) -> Result<(Vec<SecretTensor<P>>, SecretTensor<P>)> {
        let shapes: Vec<_> = inputs.iter().map(ops::shape_of).collect();
        let all: usize = callers.iter().sum();
        if self.batch_of(&shapes)? != all || !self.keeps_examples_apart() {
            return Err(Error::plan("these examples cannot be run together"));
        }
        self.run_guarding(mpc, weights, inputs, (callers, seed), observer)
    }

    /// Runs the plan with a separate guard for each of `callers`, or with one for all if there are none.
    fn run_guarding<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        (callers, seed): (&[usize], u64),
        observer: &mut dyn Observer,
    ) -> Result<(Vec<SecretTensor<P>>, SecretTensor<P>)> {
        let mut guard = Guard::new(self, seed, callers)?;
        let results = self.run_watched(mpc, weights, inputs, observer, &mut guard)?;
        let left = self.in_profile(mpc, |mpc| guard.finish(mpc))?;
        Ok((results, left))
    }

    pub(super) fn run_watched<P: Protocol>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        observer: &mut dyn Observer,
        watch: &mut dyn Watch<P>,
    ) -> Result<Vec<SecretTensor<P>>> {
        self.in_profile(mpc, |mpc| {
            self.run_steps((mpc, &mut Alone), weights, inputs, observer, watch)
        })
    }

    /// Does something in the profile that the plan was made for.
    fn in_profile<P: Protocol, R>(&self, mpc: &mut P, run: impl FnOnce(&mut P) -> R) -> R {
        let usual = mpc.profile();
        mpc.set_profile(self.profile.unwrap_or(usual));
        let result = run(mpc);
        mpc.set_profile(usual);
        result
    }

    fn run_steps<P: Protocol>(
        &self,
        (mpc, crew): (&mut P, &mut dyn Crew<P::Engine>),
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        observer: &mut dyn Observer,
        watch: &mut dyn Watch<P>,
    ) -> Result<Vec<SecretTensor<P>>> {
        let (sizes, shapes) = self.check_operands(weights, inputs)?;
        self.check_crew(crew.size())?;
        let mut values = self.given(mpc, weights, inputs, sizes)?;
        let mut kept: Vec<_> = self.nodes.iter().map(|_| None).collect();
        for (index, group) in self.steps.iter().enumerate() {
            let Some(node) = group.first().map(|&i| &self.nodes[i]) else { continue };
            let step = StepInfo {
                index,
                of: self.steps.len(),
                name: &node.name,
                kind: node.op.name(),
                together: group.len(),
            };
            if let Some(reason) = observer.stops() {
                return Err(Error::Node { node: node.name.clone(), reason });
            }
            observer.started(&step);
            mpc.step(&node.name);
            let begun = Instant::now();
            watch.begins(group, &shapes);
            let sums = |node: usize| watch.sums(node);
            let values_and_kept = (&values[..], &kept[..]);
            let results =
                exec::run(self, (mpc, crew), group, values_and_kept, (sizes, &shapes), &sums)?;
            for (&i, made) in group.iter().zip(results) {
                self.check_result(i, &made.value, &shapes[i])?;
                watch.made(mpc, i, &made, &values)?;
                values[i] = Some(Operand::Secret(made.value));
                kept[i] = made.kept;
            }
            self.drops[index].iter().for_each(|&i| values[i] = None);
            self.kept.drops[index].iter().for_each(|&i| kept[i] = None);
            observer.ended(&step, begun.elapsed());
        }
        let result = |&(_, i): &(String, usize)| match &values[i] {
            Some(value) => ops::secret(mpc, value),
            None => Err(Error::plan("a result was not computed")),
        };
        self.outputs.iter().map(result).collect()
    }

    /// The number of machines of each party that run the plan together.
    pub fn crew(&self) -> usize {
        let sizes = self.nodes.iter().filter_map(|node| match &node.op {
            Op::Crew { size, .. } => Some(*size),
            Op::Linear(l) => l.scattered,
            _ => None,
        });
        sizes.max().unwrap_or(1)
    }

    /// Refuses another number of machines than the plan is for.
    fn check_crew(&self, size: usize) -> Result<()> {
        let wanted = self.crew();
        if wanted == size {
            return Ok(());
        }
        Err(Error::plan(format!(
            "it is a step of {wanted} machines of each party, and this crew has {size}"
        )))
    }

    /// Checks the caller's arguments; returns the sizes and the shapes of all values.
    fn check_operands<P: Protocol>(
        &self,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
    ) -> Result<(Sizes, Vec<Shape>)> {
        let own: Vec<_> = inputs.iter().map(ops::shape_of).collect();
        let sizes = self.sizes_of(&own)?;
        let shapes = shapes::shapes(self, sizes)?;
        for (i, (spec, x)) in self.inputs.iter().zip(inputs).enumerate() {
            check_frac("input", &spec.name, x, self.input_frac(i))?;
        }
        if weights.len() != self.weights.len() {
            let reason = format!("{} weights, the plan has {}", weights.len(), self.weights.len());
            return Err(Error::plan(reason));
        }
        for (&i, w) in self.weights.iter().zip(weights) {
            let spec = &self.constants[i];
            if ops::shape_of(w) != &spec.shape {
                let reason =
                    format!("has shape {:?}, the plan has {:?}", ops::shape_of(w), spec.shape);
                return Err(Error::Argument { what: "weight", name: spec.name.clone(), reason });
            }
            check_frac("weight", &spec.name, w, spec.frac)?;
        }
        Ok((sizes, shapes))
    }

    /// The values that are there from the start.
    fn given<P: Protocol>(
        &self,
        mpc: &P,
        weights: &[Operand<P>],
        inputs: &[Operand<P>],
        sizes: Sizes,
    ) -> Result<Vec<Option<Operand<P>>>> {
        let mut constants: Vec<Option<Operand<P>>> = vec![None; self.constants.len()];
        for (&i, w) in self.weights.iter().zip(weights) {
            constants[i] = Some(w.clone());
        }
        for (i, c) in self.constants.iter().enumerate() {
            if let Some(value) = &c.public {
                constants[i] = Some(Operand::Public(ops::public(mpc, value, c.frac)?));
            }
        }
        let value = |node: &super::PlanNode| match node.op {
            Op::Input(i) => Some(inputs[i].clone()),
            Op::Constant(i) => constants[i].clone(),
            _ => None,
        };
        let mut values: Vec<_> = self.nodes.iter().map(value).collect();
        for (i, value) in self.public_values(sizes)?.into_iter().enumerate() {
            if let Some(value) = value.filter(|_| self.public[i]) {
                let value = ops::public(mpc, &value, self.fracs[i]);
                values[i] = Some(Operand::Public(value.map_err(|e| e.at(&self.nodes[i].name))?));
            }
        }
        Ok(values)
    }

    /// A step that answers with another shape or format than planned would be a wrong number later.
    fn check_result<P: Protocol>(
        &self,
        i: usize,
        y: &SecretTensor<P>,
        shape: &Shape,
    ) -> Result<()> {
        if y.shape() == shape && y.frac() == self.fracs[i] {
            return Ok(());
        }
        let node = &self.nodes[i];
        let reason =
            format!("came as {y:?}, planned were {shape:?} and {} fraction bits", self.fracs[i]);
        Err(Error::Node { node: node.name.clone(), reason })
    }
}

fn check_frac<P: Protocol>(
    what: &'static str,
    name: &str,
    x: &Operand<P>,
    frac: u32,
) -> Result<()> {
    if ops::frac_of(x) == frac {
        return Ok(());
    }
    let reason = format!("has {} fraction bits, the plan has {frac}", ops::frac_of(x));
    Err(Error::Argument { what, name: name.to_owned(), reason })
}
