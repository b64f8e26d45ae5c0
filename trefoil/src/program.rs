//! The programs that run on the servers: plans over any protocol.

mod steps;

use std::sync::OnceLock;

use mpc_core::{
    Deal, Linear, Operand, Protocol, ShareTensor, Sharing,
    deal::{Clear, check_words},
};
use nn_layers::{Observer, Plan, Sizes};
use ring_arith::{EngineTensor, Shape, Tensor, View};

use crate::{
    about::{self, About, Input, OutputTensor, Preprocess},
    base::{Digest, Error, Result, Shares, memory},
    config::Limits,
    store::Range,
};

pub use steps::{Given, Steps};

/// The positions before a step whose cost a model's owner learns.
const USUAL_PAST: usize = 127;

/// A plan that has been checked.
#[derive(Debug, Clone)]
pub struct Program {
    plan: Plan,
    digest: Digest,
    /// True if its inputs and outputs do not all begin with the batch, or an input has no other dimension: one example
    /// is all of them.
    whole: bool,
    /// The most examples that may run together, once that has been found out.
    together: OnceLock<usize>,
    /// The same network for steps of more positions, the longest first: a prompt goes in by those.
    longer: Vec<Self>,
}

impl Program {
    /// Reads a plan that a client sent, or a list of plans: one, and those for steps of more positions.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not a plan, or is not sound.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let unsound = |cause| refused(format_args!("its plan is not sound: {cause}"));
        if !bytes.starts_with(b"[") {
            return Self::new(serde_json::from_slice(bytes).map_err(unsound)?);
        }
        let plans: Vec<Plan> = serde_json::from_slice(bytes).map_err(unsound)?;
        let mut programs = plans.into_iter().map(Self::new);
        let first = programs.next().ok_or_else(|| refused("it has no plan"))??;
        first.with_longer(programs.collect::<Result<_>>()?)
    }

    /// Takes a plan.
    ///
    /// # Errors
    /// [`Error::Refused`] if the model returns nothing, its shapes do not fit together, or what it returns in a
    /// conversation grows.
    pub fn new(plan: Plan) -> Result<Self> {
        let mut program = Self {
            plan,
            digest: Digest::default(),
            whole: false,
            together: OnceLock::new(),
            longer: Vec::new(),
        };
        program.digest = Digest::of(&[&program.to_bytes()?]);
        if program.plan.outputs().next().is_none() {
            return Err(refused("it has no output"));
        }
        if program.keeps_state() {
            program.check_step()?;
            program.whole = true;
            return Ok(program);
        }
        program.whole = !match program.plan.fixed_batch() {
            Some(batch) => program.begins_with_batch(batch)?,
            // A size that is fixed does not follow both.
            None => program.begins_with_batch(1)? && program.begins_with_batch(2)?,
        };
        Ok(program)
    }

    /// True if it keeps values from step to step: keys and values of the positions so far, for instance. Then it runs
    /// in conversations, one example in each.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        !self.plan.states().is_empty()
    }

    /// The sizes for which a model's owner learns the cost: one batch; a step of a conversation behind 127 positions.
    #[must_use]
    pub fn usual_sizes(&self) -> Sizes {
        let most = self.plan.most_past().unwrap_or(USUAL_PAST);
        self.sizes_behind(if self.keeps_state() { most.min(USUAL_PAST) } else { 0 })
    }

    /// The sizes of one batch behind this number of cached positions.
    fn sizes_behind(&self, past: usize) -> Sizes {
        Sizes { batch: self.plan.fixed_batch().unwrap_or(1), past }
    }

    /// True if all inputs and outputs begin with the same number, and inputs have more dimensions.
    fn begins_with_batch(&self, batch: usize) -> Result<bool> {
        let inputs = self.plan.input_shapes(batch).map_err(refused)?;
        if inputs.iter().any(|shape| shape.dims().len() == 1) {
            return Ok(false);
        }
        let outputs = self.plan.output_shapes(batch).map_err(refused)?;
        let mut firsts = inputs.iter().chain(&outputs).map(|shape| shape.dims().first());
        let batch = inputs.first().and_then(|shape| shape.dims().first());
        Ok(batch.is_some() && firsts.all(|first| first == batch))
    }

    /// The ranges that an owner states, and of positions in tables those that are there: others would read zeros.
    #[must_use]
    pub fn within_tables(&self, mut ranges: Vec<Option<Range>>) -> Vec<Option<Range>> {
        let inputs = self.plan.inputs();
        let given: Vec<_> = self.plan.step_inputs().collect();
        for (at, &input) in given.iter().enumerate().filter(|(_, input)| inputs[**input].integer) {
            let Some(rows) = self.plan.table_rows(input) else { continue };
            ranges.resize(given.len(), None);
            let table = Range { low: 0.0, high: rows as f64 - 1.0 };
            let stated = ranges[at].unwrap_or(table);
            let both = Range { low: stated.low.max(table.low), high: stated.high.min(table.high) };
            ranges[at] = Some(if both.low <= both.high { both } else { table });
        }
        ranges
    }

    /// The plan, or a list of it and those for steps of more positions, written.
    ///
    /// # Errors
    /// [`Error::Internal`] if it cannot be written, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let written = if self.longer.is_empty() {
            serde_json::to_vec(&self.plan)
        } else {
            let longer = self.longer.iter().map(|program| &program.plan);
            serde_json::to_vec(&std::iter::once(&self.plan).chain(longer).collect::<Vec<_>>())
        };
        written.map_err(|cause| Error::Internal(format!("plan: {cause}")))
    }

    /// The same program with this guard over its answers, or without one.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn with_guard(&self, guard: bool) -> Result<Self> {
        self.with_plans(|plan| plan.with_guard(guard))
    }

    /// The same program with weights that every server has in the clear, or with secret ones.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn with_public_weights(&self, public: bool) -> Result<Self> {
        self.with_plans(|plan| plan.with_public_weights(public))
    }

    /// The same program with its plan and those for longer steps changed alike.
    fn with_plans(&self, change: impl Fn(Plan) -> Plan) -> Result<Self> {
        let changed = |program: &Self| Self::new(change(program.plan.clone()));
        let longer = self.longer.iter().map(changed).collect::<Result<_>>()?;
        changed(self)?.with_longer(longer)
    }

    /// A hash of the plan: equal where the same program would run the same steps.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The public description of a model of this plan.
    ///
    /// # Errors
    /// [`Error::Refused`] if the plan's shapes do not fit together.
    pub fn about(&self, preprocess: Preprocess, labels: Vec<String>) -> Result<About> {
        Ok(About {
            inputs: self.inputs()?,
            outputs: self.outputs()?,
            batch: self.fixed_batch()?,
            whole: self.whole,
            positions: self.plan.new_positions().unwrap_or(0) as u32,
            weights: self.plan.weights().iter().map(|weight| weight.shape.len() as u64).sum(),
            public_weights: self.plan.has_public_weights(),
            fraction_bits: self.plan.frac(),
            preprocess,
            labels,
            numbers: false,
            label: None,
            text: None,
            guard: self.guard(),
            longer: self.longer.iter().map(Self::longer_step).collect(),
        })
    }

    /// The layers under guard.
    fn guard(&self) -> Vec<String> {
        self.plan.guarded().into_iter().map(shortened).collect()
    }

    /// Shapes of the weights, in order.
    #[must_use]
    pub fn weight_shapes(&self) -> Vec<Shape> {
        self.plan.weights().into_iter().map(|weight| weight.shape).collect()
    }

    /// The way of its weights to servers of which clients share secrets by `secrets`.
    ///
    /// # Errors
    /// [`Error::Mpc`] if there are too many servers for weights in the clear.
    pub fn weight_sharing(&self, secrets: &'static dyn Sharing) -> Result<&'static dyn Sharing> {
        weight_sharing(self.plan.has_public_weights(), secrets)
    }

    /// The weights as the plan takes them, from what a server holds of them: shares, or words in the clear. A dealer
    /// holds nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] if the weights are in the clear, and a dealer would have to know them; [`Error::Mpc`] if what is
    /// held is incomplete.
    pub fn weights<P: Deal>(&self, mpc: &mut P, held: Shares) -> Result<Vec<Operand<P>>> {
        let shapes = self.weight_shapes();
        if !self.plan.has_public_weights() {
            return Ok(self.plan.secret_weights(mpc.accept(&shapes, held)?));
        }
        if held.is_empty() && !shapes.is_empty() {
            return Err(refused(NO_TAPES));
        }
        let words = held.into_iter().flatten().collect::<Vec<_>>();
        check_words(&words, &shapes)?;
        Ok(self.plan.public_weights(mpc, words)?)
    }

    /// Checks that weights of these shapes belong to this plan.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the first that does not.
    pub fn check_weights(&self, weights: &[Shape]) -> Result<()> {
        let specs = self.plan.weights();
        if specs.len() != weights.len() {
            let (planned, came) = (specs.len(), weights.len());
            return Err(refused(format_args!("{came} weights came, its plan has {planned}")));
        }
        for (spec, shape) in specs.iter().zip(weights) {
            if spec.shape != *shape {
                let (name, planned) = (&spec.name, &spec.shape);
                let reason = format!("weight `{name}` came as {shape:?}, planned is {planned:?}");
                return Err(refused(reason));
            }
        }
        Ok(())
    }

    /// Checks that a description belongs to this plan.
    ///
    /// # Errors
    /// [`Error::Refused`] if it does not.
    pub fn check_about(&self, about: &About) -> Result<()> {
        let mut own = self.about(about.preprocess.clone(), about.labels.clone())?;
        for (own, told) in own.inputs.iter_mut().zip(&about.inputs) {
            own.columns.clone_from(&told.columns);
        }
        let (label, text) = (about.label.clone(), about.text.clone());
        if *about == (About { numbers: about.numbers, label, text, ..own }) {
            return Ok(());
        }
        Err(refused("its description does not fit its plan; put it with the same program"))
    }

    /// Checks inputs of these shapes, and that a server with these limits can run the plan on them, behind `past`
    /// positions of a conversation. Returns the number of examples.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what the model takes.
    pub fn check_inputs(&self, inputs: &[Shape], past: usize, limits: &Limits) -> Result<u64> {
        self.check_memory(self.sizes(inputs, past)?, limits)?;
        let first = inputs.first().and_then(|shape| shape.dims().first());
        Ok(if self.whole { 1 } else { first.map_or(0, |&examples| examples as u64) })
    }

    /// Words of all results for inputs of these shapes.
    ///
    /// # Errors
    /// [`Error::Refused`] if the model takes others.
    pub fn answer_words(&self, inputs: &[Shape]) -> Result<u64> {
        let outputs = self.plan.output_shapes(self.sizes(inputs, 0)?).map_err(refused)?;
        Ok(self.plan.step_outputs().map(|at| outputs[at].len() as u64).sum())
    }

    /// The batch size of inputs of these shapes, as the plan counts it.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what the model takes.
    pub fn batch(&self, inputs: &[Shape]) -> Result<usize> {
        Ok(self.sizes(inputs, 0)?.batch)
    }

    /// The sizes of a run on inputs of these shapes behind `past` positions of a conversation.
    ///
    /// # Errors
    /// [`Error::Refused`] that states what the model takes.
    pub fn sizes(&self, inputs: &[Shape], past: usize) -> Result<Sizes> {
        let shapes: Vec<_> = inputs.iter().collect();
        let sizes = self.plan.step_sizes(&shapes, past).map_err(refused)?;
        if self.keeps_state() && sizes.batch != 1 {
            let reason = format!("{} examples; a conversation has one", sizes.batch);
            return Err(refused(reason));
        }
        Ok(sizes)
    }

    /// [`Program::batch`] of shared inputs.
    ///
    /// # Errors
    /// As [`Program::batch`].
    pub fn batch_of(&self, inputs: &Shares) -> Result<usize> {
        self.batch(&shapes_of(inputs)?)
    }

    /// Checks that a server with these limits can run the plan for a batch size: the largest result of
    /// a layer, and the memory in all.
    ///
    /// # Errors
    /// [`Error::Refused`] that names the limit.
    pub fn check_memory(&self, sizes: impl Into<Sizes>, limits: &Limits) -> Result<()> {
        let sizes = sizes.into();
        let largest = self.plan.largest_value(sizes).map_err(refused)? as u64;
        if largest > limits.activation_words() {
            return Err(refused(format_args!(
                "a layer's result of {} Mi words; this server computes with at most {} Mi \
                 (limits.activation_mwords); send fewer images at once",
                largest >> 20,
                limits.activation_mwords
            )));
        }
        let peak = self.peak_bytes(sizes)?;
        if peak > limits.job_bytes() {
            return Err(refused(format_args!(
                "it may need {} MiB of memory while it runs; this server gives a job {} MiB \
                 (limits.job_memory_mib); send fewer images at once, or raise the limit on all three \
                 servers",
                peak >> 20,
                limits.job_memory_mib
            )));
        }
        Ok(())
    }

    /// True if no example of a batch changes the result of another, so that a batch may have more examples.
    pub fn keeps_examples_apart(&self) -> bool {
        !self.whole && self.plan.keeps_examples_apart()
    }

    /// The most examples of several clients that a server with these limits can run as one batch: 1 if the
    /// plan does not keep them apart. The limits of a server stay as they are.
    pub fn most_together(&self, limits: &Limits) -> usize {
        *self.together.get_or_init(|| {
            if !self.keeps_examples_apart() {
                return 1;
            }
            // More examples take more memory.
            let (mut fits, mut beyond) = (1, limits.joined_examples + 1);
            while beyond - fits > 1 {
                let middle = usize::midpoint(fits, beyond);
                match self.check_memory(middle, limits) {
                    Ok(()) => fits = middle,
                    Err(_) => beyond = middle,
                }
            }
            fits
        })
    }

    /// Makes sure that this machine has the memory that the plan may need for a batch size.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has not.
    pub fn check_room(&self, sizes: impl Into<Sizes>) -> Result<()> {
        memory::check_room(self.peak_bytes(sizes)?)
    }

    fn peak_bytes(&self, sizes: impl Into<Sizes>) -> Result<u64> {
        Ok(self.plan.peak_words(sizes).map_err(refused)?.saturating_mul(8))
    }

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

    fn input_shapes(&self) -> Result<Vec<Shape>> {
        self.plan.input_shapes(self.sizes_behind(0)).map_err(refused)
    }

    fn output_shapes(&self) -> Result<Vec<Shape>> {
        self.plan.output_shapes(self.sizes_behind(0)).map_err(refused)
    }

    /// The only number of examples that the plan takes, if there is one.
    fn fixed_batch(&self) -> Result<Option<usize>> {
        if self.whole {
            return Ok(Some(1));
        }
        if self.plan.fixed_batch().is_none() {
            return Ok(None);
        }
        Ok(self.input_shapes()?.first().map(|shape| shape.dims()[0]))
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        let shapes = self.input_shapes()?;
        let named = self.plan.step_inputs().map(|at| {
            let spec = &self.plan.inputs()[at];
            Input {
                name: spec.name.clone(),
                dims: self.of_an_example(&shapes[at]),
                integer: spec.integer,
                fraction_bits: spec.frac,
                columns: Vec::new(),
            }
        });
        Ok(named.collect())
    }

    fn outputs(&self) -> Result<Vec<OutputTensor>> {
        let shapes = self.output_shapes()?;
        let names: Vec<_> = self.plan.outputs().collect();
        let named = self.plan.step_outputs().map(|at| OutputTensor {
            name: names[at].to_owned(),
            dims: self.of_an_example(&shapes[at]),
            fraction_bits: self.plan.output_frac(at),
        });
        Ok(named.collect())
    }

    /// The dimensions of one example.
    fn of_an_example(&self, shape: &Shape) -> Vec<usize> {
        shape.dims()[usize::from(!self.whole)..].to_vec()
    }
}

/// A layer's name as descriptions of models have room for it.
fn shortened(name: &str) -> String {
    let most = (0..=about::NAME).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    name.get(..most).unwrap_or(name).to_owned()
}

/// Why tapes give no answers of a model whose weights are in the clear.
pub(crate) const NO_TAPES: &str = "its weights are in the clear, and a dealer of tapes does not know them: put it with secret weights";

/// The way of a model's weights to servers of which clients share secrets by `secrets`.
///
/// # Errors
/// [`Error::Mpc`] if there are too many servers for weights in the clear.
pub(crate) fn weight_sharing(
    public: bool,
    secrets: &'static dyn Sharing,
) -> Result<&'static dyn Sharing> {
    Ok(if public { Clear::at(secrets.servers())? } else { secrets })
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

/// Shapes of what is held of tensors.
pub(crate) fn shapes_of(shares: &Shares) -> Result<Vec<Shape>> {
    let shape = |held: &mpc_core::Held| held.first().map(|first| first.shape().clone());
    let missing = || Error::Internal("nothing is held of a secret".to_owned());
    shares.iter().map(|held| shape(held).ok_or_else(missing)).collect()
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

/// The number of threads that each of `parties` parties in one process gets.
pub(crate) fn threads_each(parties: usize) -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    all.div_ceil(parties)
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::refused("model", reason)
}
