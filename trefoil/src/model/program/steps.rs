//! Steps of conversations: what a model reads, and what it writes, behind the positions that servers keep.

use mpc_core::{Deal, Format, Operand, SecretTensor};
use nn_layers::{Caches, Observer, Sizes};
use ring_arith::Shape;

use super::refused;
use crate::{
    base::{Digest, Result, Shares},
    model::{Longer, Program},
};

/// The most steps of a conversation in one job.
const MOST_STEPS: usize = 1024;

/// The most lengths of longer steps.
const MOST_LENGTHS: usize = 4;

/// Steps of a conversation that run in one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The positions before the first.
    pub at: usize,
    /// Their number.
    pub all: usize,
    /// Those with inputs, which come first. The input of another is the first result of the step before.
    pub given: usize,
    /// The positions behind the last.
    pub end: usize,
    /// Words of all answers.
    pub words: u64,
}

/// The inputs of a step.
#[derive(Debug)]
pub enum Given<'a, S> {
    /// Shared by a client, of these shapes.
    Shared(&'a [Shape], Shares),
    /// The first result of the step before.
    Result(S),
}

impl Program {
    /// Checks that clients send and get the same shapes at each step.
    pub(super) fn check_step(&self) -> Result<()> {
        if self.plan.fixed_batch().is_some_and(|batch| batch != 1) {
            return Err(refused("a conversation has one example; import it for batch 1"));
        }
        if self.plan.step_inputs().next().is_none() || self.plan.step_outputs().next().is_none() {
            return Err(refused("a step takes or returns nothing but what servers keep"));
        }
        if self.step_shapes(0)? != self.step_shapes(1)? {
            return Err(refused("what a step returns grows with the positions before it"));
        }
        Ok(())
    }

    /// The same network with programs for steps of more positions.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::base::Error::Refused) if one has other weights, keeps or takes other values, or if two have steps
    /// of the same length.
    pub fn with_longer(mut self, mut longer: Vec<Self>) -> Result<Self> {
        if longer.len() > MOST_LENGTHS {
            let reason = format!("{} lengths of steps; {MOST_LENGTHS} are the most", longer.len());
            return Err(refused(reason));
        }
        longer.sort_by_key(|program| std::cmp::Reverse(program.plan.new_positions()));
        let lengths = longer.iter().chain([&self]).map(|program| program.plan.new_positions());
        let lengths = lengths.collect::<Option<Vec<_>>>();
        let descend = |lengths: &[usize]| lengths.is_sorted_by(|a, b| a > b);
        if !longer.is_empty() && !lengths.is_some_and(|lengths| descend(&lengths)) {
            return Err(refused("its plans are not for steps of more and more positions"));
        }
        if let Some(reason) = longer.iter().find_map(|program| self.differs(program)) {
            return Err(refused(format_args!("its plans for longer steps {reason}")));
        }
        self.longer = longer;
        self.digest = Digest::of(&[&self.to_bytes()?]);
        Ok(self)
    }

    /// The way in which a program for longer steps is of another network, if it is.
    fn differs(&self, longer: &Self) -> Option<&'static str> {
        let (plan, other) = (&self.plan, &longer.plan);
        let given = |program: &Self| {
            let inputs = program.plan.inputs();
            let of = |at: usize| (inputs[at].name.clone(), inputs[at].integer, inputs[at].frac);
            program.plan.step_inputs().map(of).collect::<Vec<_>>()
        };
        let made = |program: &Self| {
            let fracs = program.plan.step_outputs().map(|at| program.plan.output_frac(at));
            fracs.collect::<Vec<_>>()
        };
        let kept = |program: &Self| {
            let shapes = program.plan.input_shapes(Sizes { batch: 1, past: 3 }).ok()?;
            let of = |input: usize| (shapes[input].clone(), program.plan.input_frac(input));
            Some(program.plan.states().iter().map(|state| of(state.input)).collect::<Vec<_>>())
        };
        if plan.weights() != other.weights() {
            Some("have other weights")
        } else if plan.has_public_weights() != other.has_public_weights() {
            Some("have secret weights where the others are in the clear, or the other way round")
        } else if kept(self).is_none() || kept(self) != kept(longer) {
            Some("keep other values")
        } else if given(self) != given(longer) {
            Some("take other inputs")
        } else if made(self) != made(longer)
            || plan.guarded().is_empty() != other.guarded().is_empty()
        {
            Some("return other results")
        } else {
            None
        }
    }

    /// A step of more positions, as descriptions of models have it.
    pub(super) fn longer_step(&self) -> Longer {
        Longer { positions: self.plan.new_positions().unwrap_or(0) as u32, guard: self.guard() }
    }

    /// The program for a step with inputs of these shapes: this one, unless they are those of a longer step.
    #[must_use]
    pub fn for_step(&self, inputs: &[Shape]) -> &Self {
        let shapes: Vec<_> = inputs.iter().collect();
        let fits = |program: &&Self| program.plan.step_sizes(&shapes, 0).is_ok();
        self.longer.iter().find(fits).unwrap_or(self)
    }

    /// Checks a client's steps behind `at` positions: `inputs` are the shapes of the inputs of the first steps, one step after
    /// the other. `goes_on` is true if the others may go on from results ([`goes_on`](crate::model::About::goes_on)).
    ///
    /// # Errors
    /// [`Error::Refused`](crate::base::Error::Refused) that states what a step takes.
    pub fn steps(&self, inputs: &[Shape], all: usize, at: usize, goes_on: bool) -> Result<Steps> {
        let each = self.plan.step_inputs().count();
        if !(1..=MOST_STEPS).contains(&all) {
            return Err(refused(format_args!("{all} steps; 1 to {MOST_STEPS} run in one job")));
        }
        let given = inputs.len() / each;
        if given * each != inputs.len() || given > all {
            let inputs = inputs.len();
            let reason = format!("{inputs} inputs for {all} steps; a step takes {each}");
            return Err(refused(reason));
        }
        if given < all && !goes_on {
            let reason = "what a step returns is not what the next one takes; give inputs for each";
            return Err(refused(reason));
        }
        if all > 1 && self.output_shapes()?.iter().any(|shape| shape.dims().is_empty()) {
            return Err(refused("a result without dimensions; its steps run one by one"));
        }
        let (mut end, mut words) = (at, 0u64);
        let mut last = self;
        for (step, shapes) in inputs.chunks(each).enumerate() {
            last = self.for_step(shapes);
            last.sizes(shapes, end)?;
            end = end.saturating_add(last.plan.new_positions().unwrap_or(0));
            words = if step + 1 < given { 0 } else { last.step_words()? };
        }
        if given < all && last.step_shapes(0)? != self.step_shapes(0)? {
            return Err(refused("what a longer step returns is not what the next one takes"));
        }
        let own = all - given;
        let new = self.plan.new_positions().unwrap_or(0);
        let end = end.saturating_add(own.saturating_mul(new));
        if own > 0 {
            self.plan.check_past(end.saturating_sub(new)).map_err(refused)?;
        }
        let words = words.saturating_add(self.step_words()?.saturating_mul(own as u64));
        Ok(Steps { at, all, given, end, words })
    }

    /// The programs that run steps with inputs of these shapes, and the sizes of the last step of each, which is the largest.
    #[must_use]
    pub fn largest(&self, inputs: &[Shape], steps: &Steps) -> Vec<(&Self, Sizes)> {
        let each = self.plan.step_inputs().count().max(1);
        let mut programs: Vec<&Self> =
            inputs.chunks(each).map(|step| self.for_step(step)).collect();
        if steps.given < steps.all {
            programs.push(self);
        }
        let length = |program: &Self| program.plan.new_positions().unwrap_or(0);
        programs.sort_by_key(|program| length(program));
        programs.dedup_by_key(|program| length(program));
        let sizes = |program| Sizes { batch: 1, past: steps.end.saturating_sub(length(program)) };
        programs.into_iter().map(|program| (program, sizes(program))).collect()
    }

    /// Shapes of what a step returns behind this number of positions.
    fn step_shapes(&self, past: usize) -> Result<Vec<Shape>> {
        let outputs = self.plan.output_shapes(self.sizes_behind(past)).map_err(refused)?;
        Ok(self.plan.step_outputs().map(|at| outputs[at].clone()).collect())
    }

    /// Words of the results of a step.
    fn step_words(&self) -> Result<u64> {
        Ok(self.step_shapes(0)?.iter().map(|shape| shape.len() as u64).sum())
    }

    /// Bytes that a server keeps of a conversation of this many positions, of shares with this number of components.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::base::Error::Refused) if the plan does not serve so many.
    pub fn kept_bytes(&self, positions: usize, components: usize) -> Result<u64> {
        let words = self.plan.state_words(self.sizes_behind(positions)).map_err(refused)?;
        // The components of a word, and their sum, which products keep.
        Ok(8 * (components as u64 + 1) * words as u64)
    }

    /// [`Program::run`] on a step's inputs, behind the positions of `caches`, which then have the step's too.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run_step<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        caches: &mut Caches<SecretTensor<P>>,
        inputs: Given<'_, P::Share>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<P::Share>> {
        let inputs = match inputs {
            Given::Shared(shapes, inputs) => mpc.accept(shapes, inputs)?,
            Given::Result(input) => vec![input],
        };
        let numbered = self.plan.step_inputs().zip(inputs);
        let inputs: Vec<_> = numbered
            .map(|(at, share)| {
                Operand::Secret(SecretTensor::new(share, Format::words(self.plan.input_frac(at))))
            })
            .collect();
        let outputs = if self.plan.guarded().is_empty() {
            self.plan.step(mpc, weights, caches, &inputs, observer)?
        } else {
            let seed = mpc.seed()?;
            let given = (inputs.as_slice(), seed);
            let (mut outputs, left) =
                self.plan.step_guarded(mpc, weights, caches, given, observer)?;
            outputs.push(left);
            outputs
        };
        Ok(outputs.iter().map(|output| output.share().clone()).collect())
    }
}
