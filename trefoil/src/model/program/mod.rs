//! The programs that run on the servers: plans over any protocol, and what they need.

mod describe;
mod run;
mod steps;

use std::sync::OnceLock;

use mpc_core::{
    Deal, Operand, Sharing,
    sharing::{Clear, check_words},
};
use nn_layers::{Plan, Sizes};
use ring_arith::{EngineTensor, Shape};

use super::Range;
use crate::{
    base::{Digest, Error, Result, Shares, memory},
    config::Limits,
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

/// Shapes of what is held of tensors.
pub(crate) fn shapes_of(shares: &Shares) -> Result<Vec<Shape>> {
    let shape = |held: &mpc_core::Held| held.first().map(|first| first.shape().clone());
    let missing = || Error::Internal("nothing is held of a secret".to_owned());
    shares.iter().map(|held| shape(held).ok_or_else(missing)).collect()
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::refused("model", reason)
}
