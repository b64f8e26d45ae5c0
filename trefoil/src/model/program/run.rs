//! Running a plan at one party: for one caller, filled up with zeros, or for several callers at once.

use mpc_core::{Deal, Linear, Operand, Protocol, ShareTensor};
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
        let inputs = mpc.accept(shapes, inputs)?;
        let inputs = self.plan.secret_inputs(inputs);
        let outputs = if self.plan.guarded().is_empty() {
            self.plan.run(mpc, weights, &inputs, observer)?
        } else {
            let seed = mpc.seed()?;
            let (mut outputs, left) =
                self.plan.run_guarded(mpc, weights, &inputs, seed, observer)?;
            outputs.push(left);
            outputs
        };
        Ok(outputs.iter().map(|output| output.share().clone()).collect())
    }

    /// [`Program::run`] on inputs of at most `examples` examples, which are filled up with zeros; the results are of
    /// those examples that were there.
    ///
    /// # Errors
    /// As [`Program::run`]; [`Error::Refused`] if there are more.
    pub fn run_filled<P: Deal>(
        &self,
        mpc: &mut P,
        weights: &[Operand<P>],
        inputs: Shares,
        examples: usize,
        observer: &mut dyn Observer,
    ) -> Result<Vec<P::Share>> {
        let given = self.batch_of(&inputs)?;
        if given == examples {
            return self.run(mpc, weights, inputs, observer);
        }
        let Some(missing) = examples.checked_sub(given) else {
            return Err(refused(format_args!(
                "{given} examples where there is room for {examples}"
            )));
        };
        let mut outputs = self.run(mpc, weights, fill(inputs, given, examples)?, observer)?;
        let of_examples = self.plan.outputs().count();
        for output in outputs.iter_mut().take(of_examples) {
            *output = cut(mpc, output, &[given, missing])?.swap_remove(0);
        }
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
        let examples = callers.iter().map(|inputs| self.batch_of(inputs));
        let examples = examples.collect::<Result<Vec<_>>>()?;
        let inputs = join(callers)?;
        let inputs = mpc.accept(&shapes_of(&inputs)?, inputs)?;
        let inputs = self.plan.secret_inputs(inputs);
        let (outputs, left) = if self.plan.guarded().is_empty() {
            (self.plan.run(mpc, weights, &inputs, observer)?, None)
        } else {
            let seed = mpc.seed()?;
            let callers = (examples.as_slice(), seed);
            let (outputs, left) = self.plan.run_joined(mpc, weights, &inputs, callers, observer)?;
            (outputs, Some(left))
        };
        let mut each: Vec<Vec<P::Share>> = examples.iter().map(|_| Vec::new()).collect();
        for output in &outputs {
            let parts = cut(mpc, output.share(), &examples)?;
            each.iter_mut().zip(parts).for_each(|(outputs, part)| outputs.push(part));
        }
        if let Some(left) = left {
            // The guard's words are ordered by value, then by caller.
            for (caller, outputs) in each.iter_mut().enumerate() {
                let end = left.shape().len();
                let view = View::Slice { axis: 0, start: caller, end, step: examples.len() };
                outputs.push(mpc.linear(&Linear::View(&view), left.share())?);
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

/// Cuts a result along its first axis into one part for each caller, by their numbers of examples.
fn cut<P: Protocol>(mpc: &P, all: &P::Share, examples: &[usize]) -> Result<Vec<P::Share>> {
    let rows = all.shape().dims()[0] / examples.iter().sum::<usize>();
    let mut end = 0;
    let piece = |&examples: &usize| {
        let start = end;
        end += rows * examples;
        let view = View::Slice { axis: 0, start, end, step: 1 };
        Ok(mpc.linear(&Linear::View(&view), all)?)
    };
    examples.iter().map(piece).collect()
}
