//! Running a plan at one party: for one caller, for several callers at once, or at a place of a tape.

use std::ops::Range;

use mpc_core::{Deal, Linear, Operand, Protocol, SecretTensor, ShareTensor};
use nn_layers::Observer;
use ring_arith::{EngineTensor, Shape, Tensor, View};

use super::{Program, refused, shapes_of};
use crate::base::{Error, Result, Shares};

impl Program {
    /// Runs the model at one party, of whose weights the engine holds the shares. Returns this party's share of each
    /// result, followed by the share of the plan's guard, if it has one. The guard's signs come from a seed that the
    /// servers know, and no client before it has shared its inputs.
    ///
    /// # Errors
    /// [`Error::Nn`] if a step or the network fails, [`Error::Ring`] if a device does.
    pub fn run<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: Shares,
        observer: &mut dyn Observer,
    ) -> Result<Vec<P::Share>> {
        let shapes = shapes_of(&inputs)?;
        self.run_on(mpc, weights, &shapes, inputs, observer)
    }

    /// [`Program::run`] where what is held of the inputs is of these shapes, or nothing is, as at a dealer.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run_on<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        shapes: &[Shape],
        inputs: Shares,
        observer: &mut dyn Observer,
    ) -> Result<Vec<P::Share>> {
        let Batch { mut outputs, left } =
            self.run_batch(mpc, weights, (shapes, inputs), &[], observer)?;
        outputs.extend(left);
        Ok(outputs)
    }

    /// [`Program::run`] for several callers at once, whose examples run as one batch: returns what each would get
    /// alone. Each caller's guard is about its examples only.
    ///
    /// # Errors
    /// As [`Program::run`]; [`Error::Nn`] if the plan does not [keep examples
    /// apart](nn_layers::Plan::keeps_examples_apart).
    pub fn run_joined<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        callers: Vec<Shares>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Vec<P::Share>>> {
        let examples = self.examples_of(&callers)?;
        let inputs = join(callers)?;
        let shapes = shapes_of(&inputs)?;
        let batch = self.run_batch(mpc, weights, (&shapes, inputs), &examples, observer)?;
        batch.split(mpc, &examples, &vec![1; examples.len()])
    }

    /// [`Program::run_joined`] at a place of a tape, whose whole batch is of these shapes. Examples that are missing are
    /// zeros. At the dealer there are no callers, and nothing is returned.
    ///
    /// The dealer does not know how many examples a caller will have. So the guard checks each example separately, and
    /// a caller gets the sums over its examples. A plan that does not [keep examples
    /// apart](Program::keeps_examples_apart) has one caller, who fills the place, and one guard.
    ///
    /// # Errors
    /// As [`Program::run`]; [`Error::Refused`] if the callers' examples do not fit the place.
    pub fn run_place<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        shapes: &[Shape],
        callers: Vec<Shares>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Vec<P::Share>>> {
        let number = callers.len();
        if !self.keeps_examples_apart() {
            if number > 1 {
                return Err(refused(
                    "the examples of several callers, which it does not keep apart",
                ));
            }
            let inputs = callers.into_iter().next().unwrap_or_default();
            let outputs = self.run_on(mpc, weights, shapes, inputs, observer)?;
            return Ok(vec![outputs; number]);
        }
        let room = self.batch(shapes)?;
        let mut examples = self.examples_of(&callers)?;
        let given = examples.iter().sum();
        let Some(missing) = room.checked_sub(given) else {
            let reason = format!("{given} examples where there is room for {room}");
            return Err(refused(reason));
        };
        let inputs = if given > 0 { fill(join(callers)?, given, room)? } else { Vec::new() };
        let guards = vec![1; room];
        let batch = self.run_batch(mpc, weights, (shapes, inputs), &guards, observer)?;
        if missing > 0 {
            examples.push(missing);
        }
        let mut each = batch.split(mpc, &examples, &examples)?;
        each.truncate(number);
        Ok(each)
    }

    /// Runs the plan on a batch, with a separate guard for each of these numbers of examples, or with one for all if
    /// there are none.
    fn run_batch<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        (shapes, inputs): (&[Shape], Shares),
        guards: &[usize],
        observer: &mut dyn Observer,
    ) -> Result<Batch<P::Share>> {
        let inputs = mpc.accept(shapes, inputs)?;
        let inputs = self.plan.secret_inputs(inputs);
        let (outputs, left) = if self.plan.guarded().is_empty() {
            (self.plan.run(mpc, weights, &inputs, observer)?, None)
        } else {
            let seed = mpc.seed()?;
            let (outputs, left) = match guards {
                [] => self.plan.run_guarded(mpc, weights, &inputs, seed, observer)?,
                guards => self.plan.run_joined(mpc, weights, &inputs, (guards, seed), observer)?,
            };
            (outputs, Some(left))
        };
        let share = |result: SecretTensor<P>| result.share().clone();
        let outputs = outputs.into_iter().map(share).collect();
        Ok(Batch { outputs, left: left.map(share) })
    }

    /// The number of examples of each caller.
    fn examples_of(&self, callers: &[Shares]) -> Result<Vec<usize>> {
        callers.iter().map(|inputs| self.batch_of(inputs)).collect()
    }
}

/// The results of a batch.
struct Batch<S> {
    outputs: Vec<S>,
    /// The words of the guards, ordered by value, then by guard.
    left: Option<S>,
}

impl<S: ShareTensor> Batch<S> {
    /// Cuts the results into those of each caller, by their numbers of examples and of guards. A guard counts failed
    /// checks, so the sums of a caller's counts are those of one guard over all its examples.
    fn split<P: Protocol<Share = S>>(
        &self,
        mpc: &P,
        examples: &[usize],
        guards: &[usize],
    ) -> Result<Vec<Vec<S>>> {
        let mut each: Vec<Vec<S>> = examples.iter().map(|_| Vec::new()).collect();
        for output in &self.outputs {
            let rows = output.shape().dims()[0] / examples.iter().sum::<usize>();
            for (range, outputs) in ranges(examples).zip(&mut each) {
                let [start, end] = [rows * range.start, rows * range.end];
                let view = View::Slice { axis: 0, start, end, step: 1 };
                outputs.push(mpc.linear(&Linear::View(&view), output)?);
            }
        }
        if let Some(left) = &self.left {
            let all = guards.iter().sum::<usize>();
            let values = left.shape().len() / all;
            let by_value = View::Reshape(Shape::new([values, all])?);
            let by_value = mpc.linear(&Linear::View(&by_value), left)?;
            for (Range { start, end }, outputs) in ranges(guards).zip(&mut each) {
                let own = View::Slice { axis: 1, start, end, step: 1 };
                let own = mpc.linear(&Linear::View(&own), &by_value)?;
                let sums = mpc.linear(&Linear::Sum(&[1]), &own)?;
                let flat = View::Reshape(Shape::new([values])?);
                outputs.push(mpc.linear(&Linear::View(&flat), &sums)?);
            }
        }
        Ok(each)
    }
}

/// The inputs of several callers, one after the other.
fn join(callers: Vec<Shares>) -> Result<Shares> {
    let mut joined: Vec<Vec<(Vec<u64>, Vec<usize>)>> = Vec::new();
    for inputs in callers {
        for (at, held) in inputs.into_iter().enumerate() {
            if joined.len() == at {
                joined.push(vec![Default::default(); held.len()]);
            }
            for ((words, dims), tensor) in joined[at].iter_mut().zip(held) {
                words.extend_from_slice(tensor.words());
                match dims.as_mut_slice() {
                    [first, ..] => *first += tensor.shape().dims()[0],
                    [] => *dims = tensor.shape().dims().to_vec(),
                }
            }
        }
    }
    let tensor = |(words, dims)| Ok::<_, Error>(Tensor::new(Shape::new(dims)?, words)?);
    joined.into_iter().map(|held| held.into_iter().map(tensor).collect()).collect()
}

/// Inputs of `given` examples, filled up with zeros to `examples` examples.
fn fill(inputs: Shares, given: usize, examples: usize) -> Result<Shares> {
    if given == examples {
        return Ok(inputs);
    }
    let filled = |component: Tensor| {
        let mut dims = component.shape().dims().to_vec();
        dims[0] = dims[0] / given * examples;
        let shape = Shape::new(dims)?;
        let mut words = component.words().to_vec();
        words.resize(shape.len(), 0);
        Ok(Tensor::new(shape, words)?)
    };
    inputs.into_iter().map(|held| held.into_iter().map(filled).collect()).collect()
}

/// The positions of parts of these lengths, one after the other.
fn ranges(lengths: &[usize]) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    lengths.iter().map(move |length| {
        let start = end;
        end += length;
        start..end
    })
}
