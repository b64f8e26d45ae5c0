//! From an ONNX file to a plan and encoded weights, on the model owner's machine.

use std::{
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use models::onnx::{self, Answers, ImportOptions};
use nn_layers::{Compiled, Graph, HostTensor, PlanOptions};
use ring_arith::Tensor;

use crate::{About, Error, Preprocess, Result, program::Program};

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
        let program = Program::new(self.program.plan().clone().with_guard(false))?;
        let about = About { guard: Vec::new(), ..self.about };
        Ok(Self { program, about, ..self })
    }
}

/// Reads an ONNX file. `dims` gives dimensions that the file leaves open their size, by name; `answers` says what each step
/// of a language model returns.
///
/// # Errors
/// [`Error::Input`] that names the file, and the node that is not acceptable.
pub fn graph(path: &Path, dims: &[(String, usize)], answers: Answers) -> Result<Graph> {
    let sized =
        |options: ImportOptions, (name, size): &(String, usize)| options.with_dim(name, *size);
    let options = dims.iter().fold(ImportOptions::default().with_answers(answers), sized);
    checked(&path.display().to_string(), || onnx::import_file(path, &options))
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
