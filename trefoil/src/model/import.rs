//! From an ONNX file to a plan and encoded weights, on the model owner's machine.

use std::{
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use models::onnx::{self, Answers, ImportOptions};
use nn_layers::{Caches, Compiled, Graph, HostTensor, Plan, PlanOptions};
use ring_arith::Tensor;

use super::{About, Preprocess, Program, dry_run};
use crate::base::{Error, Result};

/// Positions of the longer steps that language models take unless their owners say otherwise.
const PROMPT_STEPS: [usize; 2] = [4, 16];

/// A model ready to be shared.
pub struct Imported {
    /// The plan, which is public.
    pub program: Program,
    /// The public description.
    pub about: About,
    /// The weights. Secret.
    pub values: Vec<HostTensor>,
}

impl Imported {
    /// The weights, encoded. Secret.
    ///
    /// # Errors
    /// [`Error::Nn`] naming a weight that has no encoding.
    pub fn weights(&self) -> Result<Vec<Tensor>> {
        Ok(self.program.plan().encode_weights(&self.values)?)
    }

    /// The same model, whose answers come without a guard.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn without_guard(self) -> Result<Self> {
        let program = self.program.with_guard(false)?;
        self.with_program(program)
    }

    /// The same model by another program, whose guard, steps and secrecy the description then has.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are too many.
    pub fn with_program(self, program: Program) -> Result<Self> {
        let own = program.about(Preprocess::default(), Vec::new())?;
        let About { guard, longer, public_weights, .. } = own;
        let about = About { guard, longer, public_weights, ..self.about };
        about.check()?;
        Ok(Self { program, about, ..self })
    }
}

/// The options of an import: `dims` gives dimensions that a file leaves open their size, by name; `answers` says what each
/// step of a language model returns.
pub fn options(dims: &[(String, usize)], answers: Answers) -> ImportOptions {
    let sized =
        |options: ImportOptions, (name, size): &(String, usize)| options.with_dim(name, *size);
    dims.iter().fold(ImportOptions::default().with_answers(answers), sized)
}

/// Reads an ONNX file.
///
/// # Errors
/// [`Error::Input`] that names the file, and the node that is not acceptable.
pub fn graph(path: &Path, options: &ImportOptions) -> Result<Graph> {
    checked(&path.display().to_string(), || onnx::import_file(path, options))
}

/// Reads an ONNX file in memory and plans it. `what` names the model in errors.
///
/// # Errors
/// [`Error::Input`] that names the file, and the node or weight that is not acceptable.
pub fn from_bytes(
    what: &str,
    bytes: &[u8],
    fraction_bits: u32,
    preprocess: Preprocess,
    labels: Vec<String>,
) -> Result<Imported> {
    let options = PlanOptions::default().with_frac(fraction_bits);
    checked(what, || onnx::import(bytes, &ImportOptions::default()))
        .and_then(|graph| plan(what, &graph, &options, preprocess, labels))
}

/// Reads a graph; every failure is taken as the file's fault.
pub(crate) fn checked(what: &str, read: impl FnOnce() -> models::Result<Graph>) -> Result<Graph> {
    let read = || {
        read().map_err(|cause| match cause {
            models::Error::Io { path, source } => Error::input(path.display(), source),
            cause => Error::input(what, cause),
        })
    };
    // A file can be wrong in unforeseen ways; none may look like our fault.
    panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(Error::input(what, "this ONNX model is damaged in a way that was not foreseen"))
    })
}

/// Plans a graph, with a guard over its answers. `what` names it in errors.
///
/// # Errors
/// [`Error::Input`] that names the node or weight that is not acceptable.
pub fn plan(
    what: &str,
    graph: &Graph,
    options: &PlanOptions,
    preprocess: Preprocess,
    labels: Vec<String>,
) -> Result<Imported> {
    let bad = |cause: &dyn std::fmt::Display| Error::format(what, cause);
    let compiled = Compiled::new(graph, options).map_err(|cause| bad(&cause))?;
    let program = Program::new(compiled.plan.with_guard(true)).map_err(|cause| bad(&cause))?;
    let about = program.about(preprocess, labels).map_err(|cause| bad(&cause))?;
    about.check().map_err(|cause| bad(&cause))?;
    Ok(Imported { program, about, values: compiled.weights })
}

/// The program of a language model with longer steps, of `lengths` positions, or else of 4 and 16 if it can
/// take them: the reason comes too if it cannot. `values` are its weights, and `read` reads its graph for steps of a
/// number of positions. Lengths that its usual steps have already are left out. Other models have the same program.
///
/// # Errors
/// Those of `read`; [`Error::Refused`] if longer steps that were asked for are not of the same network.
pub fn with_prompt_steps(
    program: Program,
    values: &[HostTensor],
    lengths: Option<&[usize]>,
    options: &PlanOptions,
    read: impl Fn(usize) -> Result<Graph>,
) -> Result<(Program, Option<Error>)> {
    let steps = lengths.unwrap_or(&PROMPT_STEPS);
    match with_longer_steps(program.clone(), values, steps, options, read) {
        Err(reason) if lengths.is_none() => Ok((program, Some(reason))),
        made => Ok((made?, None)),
    }
}

/// [`with_prompt_steps`] of these lengths.
pub(crate) fn with_longer_steps(
    program: Program,
    values: &[HostTensor],
    lengths: &[usize],
    options: &PlanOptions,
    read: impl Fn(usize) -> Result<Graph>,
) -> Result<Program> {
    let Some(usual) = program.plan().new_positions() else { return Ok(program) };
    let guard = !program.plan().guarded().is_empty();
    let mut longer = Vec::new();
    for &length in lengths.iter().filter(|&&length| length > usual) {
        // One at a time: each has the weights once more.
        let Compiled { plan, weights } = Compiled::new(&read(length)?, options)?;
        if weights != values {
            let reason = format!("its weights differ in steps of {length} positions");
            return Err(Error::refused("model", reason));
        }
        if !alike(program.plan(), &plan, values)? {
            let reason = format!("steps of {length} positions do not give what single ones do");
            return Err(Error::refused("model", reason));
        }
        longer.push(Program::new(plan.with_guard(guard))?);
    }
    program.with_longer(longer)
}

/// True if a plan for longer steps gives in the clear what single steps do behind the last of the same positions: an
/// exporter may have left out the mask within a step. Large networks are not tried, nor those whose inputs are no tokens.
fn alike(single: &Plan, longer: &Plan, values: &[HostTensor]) -> Result<bool> {
    let (Some(one), Some(all)) = (single.new_positions(), longer.new_positions()) else {
        return Ok(true);
    };
    let input = single.step_inputs().next().filter(|&at| single.inputs()[at].integer);
    let rows = input.and_then(|at| single.table_rows(at));
    let (Some(rows), 1) = (rows, single.step_inputs().count()) else { return Ok(true) };
    let long = longer.multiplications(1)?.saturating_mul(4);
    if one != 1 || single.states().is_empty() || long > dry_run::QUICK {
        return Ok(true);
    }
    // Two longer steps: the second is behind the first.
    let tokens: Vec<i64> = (0..2 * all).map(|at| ((at * at + 5 * at + 1) % rows) as i64).collect();
    let last = |plan: &Plan, each: usize| -> Result<Vec<f64>> {
        let (mut caches, mut results) = (Caches::new(), Vec::new());
        for tokens in tokens.chunks(each) {
            let input = HostTensor::integers([1, each], tokens.to_vec())?;
            results = plan.evaluate_step(values, &mut caches, &[input])?;
        }
        Ok(results.first().map(|result| result.floats().to_vec()).unwrap_or_default())
    };
    let (single, longer) = (last(single, 1)?, last(longer, all)?);
    let behind = longer.get(longer.len().saturating_sub(single.len())..).unwrap_or_default();
    let largest = single.iter().fold(1.0, |most: f64, v| most.max(v.abs()));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * largest;
    Ok(single.len() == behind.len() && single.iter().zip(behind).all(near))
}
