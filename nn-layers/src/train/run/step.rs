//! Steps of a training: on shares, with a guard, in floats, and in fixed point in the clear.

use mpc_core::{Operand, Protocol, PublicTensor, SecretTensor, SplitMix64};
use ring_arith::{Engine, Shape};

use crate::crew::Crew;
use crate::host::encode;
use crate::plan::Observer;
use crate::train::options::optimiser::Optimiser;
use crate::train::plan::{TrainPlan, Variant};
use crate::train::schedule::Step;
use crate::train::state::State;
use crate::{Error, HostTensor, Inspection, Result};

impl TrainPlan {
    /// Runs one step: the state becomes that after it. Returns the options' metrics, which stay shared. All
    /// parties call it alike, with the same number and learning rate; a rate alone is enough for gradient
    /// descent.
    ///
    /// # Errors
    /// As [`crate::Plan::run`]; [`Error::Invalid`] if the rate is not in the options' range, or the optimiser needs the
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

    /// [`TrainPlan::step`] by the machines of each party together: this machine's part of it, on its rows of the batch
    /// ([`TrainPlan::batch_of_machine`]) and its state. Each machine is in a session with the same machines of the other
    /// parties. Afterwards all have the same weights and metrics, and each its stretch of the optimiser's tensors.
    ///
    /// # Cost
    /// Between the parties that of one machine's step on the whole batch. Inside a party each machine sends
    /// `24 (size - 1) / size` bytes a weight, and 32 where its gradient is a sum without a product.
    ///
    /// # Errors
    /// As [`TrainPlan::step`]; [`Error::Plan`] if the crew has not as many machines as the options say, and
    /// [`Error::Crew`] if one is missing.
    pub fn step_in_crew<P: Protocol>(
        &self,
        mpc: &mut P,
        crew: &mut dyn Crew<P::Engine>,
        state: &mut State<P>,
        batch: &[Operand<P>],
        step: impl Into<Step>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<P>>> {
        let step = step.into();
        let variant = self.variant(step);
        let inputs = self.inputs(mpc, batch, (step, crew.rank()), vec![])?;
        let weights = variant.operands(state.operands());
        let results = variant.plan.run_in_crew(mpc, crew, &weights, &inputs, observer)?;
        Ok(variant.settle(state, results))
    }

    /// [`TrainPlan::step`] with a guard over every product of the step. It also returns a word for each name of
    /// [`TrainPlan::guarded`]. The word is 0 unless values of that layer, or of its gradient, have left the
    /// range in which arithmetic is right. All parties know the seed.
    ///
    /// # Cost
    /// That of [`TrainPlan::step`] and of [`crate::Plan::run_guarded`]'s guard.
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
        if self.options.crew > 1 {
            let reason = "a guard computes products a second time on one machine, and gradients are sums over several: \
                          take TrainPlan::step_in_crew";
            return Err(Error::invalid("crew", reason));
        }
        if self.options.privacy.is_some() {
            let reason = "a guard tells exactly whether rows left the range, which no noise protects: take \
                          TrainPlan::step";
            return Err(Error::invalid("privacy", reason));
        }
        let variant = self.variant(step);
        let inputs = self.inputs(mpc, batch, (step, 0), vec![])?;
        let weights = variant.operands(state.operands());
        let plan = variant.plan.clone().with_guard(true);
        let (results, left) = plan.run_guarded(mpc, &weights, &inputs, seed, observer)?;
        Ok((variant.settle(state, results), left))
    }

    /// The names of the values that the guard of a step watches, in its order; none of a training with
    /// [`crate::train::Privacy`] or by several machines.
    pub fn guarded(&self, step: Step) -> Vec<String> {
        if self.is_unguarded() {
            return vec![];
        }
        let plan = self.variant(step).plan.clone().with_guard(true);
        plan.guarded().into_iter().map(str::to_owned).collect()
    }

    /// The most values that [`TrainPlan::guarded`] names for any step.
    pub fn most_guarded(&self) -> usize {
        let all = [Some(&self.full), self.light.as_ref()].into_iter().flatten();
        let counts = all.map(|variant| variant.plan.clone().with_guard(true).guarded().len());
        if self.is_unguarded() { 0 } else { counts.max().unwrap_or(0) }
    }

    fn is_unguarded(&self) -> bool {
        self.options.privacy.is_some() || self.options.crew > 1
    }

    /// A batch, the public numbers of a step at a machine, and its noise.
    pub(super) fn inputs<P: Protocol>(
        &self,
        mpc: &P,
        batch: &[Operand<P>],
        (step, rank): (Step, usize),
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
        for mask in self.masks(step, rank)? {
            let words = mpc.engine().upload(encode(&mask, 0)?)?;
            inputs.push(Operand::Public(PublicTensor::new(words, 0)));
        }
        inputs.extend(noise);
        Ok(inputs)
    }

    /// The masks of a step's dropouts at a machine: zeros and ones, from the options' seed and the step's number.
    fn masks(&self, step: Step, rank: usize) -> Result<Vec<HostTensor>> {
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
            let place = u64::from(number) << 32 | (rank as u64) << 20 | i as u64;
            // Seeds that are near each other give streams that are not.
            let mut coins = SplitMix64::new(self.options.seed ^ SplitMix64::new(place).next_u64());
            let limit = (part * f64::from(64).exp2()) as u64;
            let kept = (0..shape.len()).map(|_| i64::from(coins.next_u64() >= limit));
            masks.push(HostTensor::integers(shape.dims(), kept.collect())?);
        }
        Ok(masks)
    }

    /// [`TrainPlan::step`] in 64-bit floats; with [`crate::train::Privacy`] gradients are clipped, without noise. Weights
    /// follow their gradients by PyTorch's formula, also where fixed point takes another for numbers that are
    /// too small for it.
    ///
    /// # Errors
    /// As [`crate::Plan::evaluate`]; [`Error::Invalid`] if the rate is not in the options' range.
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
        if !self.updates(step) {
            return Ok(metrics);
        }
        if let (Optimiser::Adam(adam), Some(number)) = (&self.options.optimiser, step.number) {
            let number = number / self.options.accumulate;
            let updated = updated.iter().copied();
            adam.move_in_floats(&self.state(), updated, &before, state, (number, step.rate))?;
        }
        Ok(metrics)
    }

    /// Runs a step in the clear in fixed point with every check on, as well as in 64-bit floats. A value that
    /// leaves its range here would be a wrong number without an error on shares. If every value stays in its
    /// range, the state becomes that after the step. With [`crate::train::Privacy`] gradients get no noise.
    ///
    /// # Errors
    /// As [`TrainPlan::step_in_the_clear`], and [`crate::Plan::inspect`].
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
        inputs.extend(self.masks(step, 0)?);
        inputs.extend_from_slice(noise);
        Ok(inputs)
    }

    fn no_noise(&self) -> Result<Vec<HostTensor>> {
        let zeros = |shape: &Shape| HostTensor::new(shape.dims(), vec![0.0; shape.len()]);
        self.noise_shapes()?.iter().map(zeros).collect()
    }

    /// The computation of a step.
    pub(super) fn variant(&self, step: Step) -> &Variant {
        match &self.light {
            Some(light) if !self.updates(step) || !self.options.optimiser.is_full(step) => light,
            _ => &self.full,
        }
    }

    /// True if weights follow their gradients in a step, which is the last of those whose gradients are added up.
    pub fn updates(&self, step: Step) -> bool {
        let steps = self.options.accumulate;
        step.number.is_none_or(|number| number % steps == steps - 1)
    }

    /// The public numbers of a step.
    fn public(&self, step: Step) -> Result<Vec<f64>> {
        let largest = self.options.largest_rate;
        if !(0.0..=largest).contains(&step.rate) {
            let reason =
                format!("{} is not within 0 to {largest}, the largest of the options", step.rate);
            return Err(Error::invalid("learning rate", reason));
        }
        if self.options.accumulate > 1 && step.number.is_none() {
            let reason =
                "gradients that are added up need the number of a step: Step::new(number, rate)";
            return Err(Error::invalid("step", reason));
        }
        let mut numbers = self.options.optimiser.public(step, self.batch, &self.options)?;
        if let (Some(privacy), Optimiser::Sgd { .. }) =
            (&self.options.privacy, self.options.optimiser)
        {
            numbers[0] *= privacy.unit();
        }
        Ok(numbers)
    }
}
