//! Models: a public plan and weights that only their owner has.

use std::sync::{Arc, OnceLock};

use models::onnx::{self, Answers, ImportOptions};
use nn_layers::{Compiled, Graph, HostTensor, InputSpec, Plan, PlanOptions, Sizes, StateSpec};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::{prelude::*, types::PyBytes};
use trefoil::model::{Program, import};

use crate::errors::{Failure, Kind, Result};

/// A model in the clear, at its owner.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Model {
    /// As it was imported, for training.
    graph: Option<Graph>,
    compiled: Arc<Compiled>,
    plan: Arc<Plan>,
    /// The plan with a guard, made when it is first run with one.
    guarded: OnceLock<Arc<Plan>>,
    frac: u32,
    /// The file of a language model that goes on from step to step, and the options.
    source: Option<(Source, ImportOptions)>,
}

/// A model's file, or its bytes.
#[derive(Clone)]
enum Source {
    File(std::path::PathBuf),
    Bytes(Arc<[u8]>),
}

/// A name, dimensions, fraction bits and the axis of positions.
type State = (String, Vec<usize>, u32, usize);

/// A name, dimensions and whether it consists of integers.
type Described = (String, Vec<usize>, bool);

impl Source {
    fn read(&self, options: &ImportOptions) -> models::Result<Graph> {
        match self {
            Self::File(path) => onnx::import_file(path, options),
            Self::Bytes(bytes) => onnx::import(bytes, options),
        }
    }
}

#[pymethods]
impl Model {
    /// Imports an ONNX model from a file or from memory. `dims` gives open dimensions their size; `answers` says
    /// what steps of a language model return: the next token, one that is drawn by the scores over a temperature, or the
    /// scores of all.
    #[staticmethod]
    fn from_onnx(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        frac: u32,
        dims: Vec<(String, usize)>,
        answers: &str,
        temperature: f64,
    ) -> PyResult<Self> {
        let answers = match answers {
            "token" => Answers::Token,
            "sample" => Answers::Sample { temperature },
            _ => Answers::Logits,
        };
        let options = import::options(&dims, answers);
        let of = |graph: models::Result<Graph>| Self::of(graph?, frac);
        let (model, source) = if let Ok(bytes) = source.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            let model = py.detach(|| of(onnx::import(bytes, &options)))?;
            let source = model.goes_on().then(|| Source::Bytes(bytes.into()));
            (model, source)
        } else {
            let path: std::path::PathBuf = source.extract()?;
            let model = py.detach(|| of(onnx::import_file(&path, &options)))?;
            let source = model.goes_on().then_some(Source::File(path));
            (model, source)
        };
        Ok(Self { source: source.map(|source| (source, options)), ..model })
    }

    /// Fraction bits of inputs and results.
    #[getter]
    pub(crate) fn frac(&self) -> u32 {
        self.frac
    }

    /// Inputs for a batch, but for what stays from step to step: name, dimensions, whether they are integers.
    fn inputs(&self, batch: usize) -> PyResult<Vec<Described>> {
        let shapes = self.plan.input_shapes(batch).map_err(Failure::from)?;
        let one = |at: usize| {
            let spec = &self.plan.inputs()[at];
            (spec.name.clone(), shapes[at].dims().to_vec(), spec.integer)
        };
        Ok(self.plan.step_inputs().map(one).collect())
    }

    /// Outputs for a batch, but for what stays from step to step: name, dimensions, whether they are integers.
    fn outputs(&self, batch: usize) -> PyResult<Vec<Described>> {
        let shapes = self.plan.output_shapes(batch).map_err(Failure::from)?;
        let names: Vec<_> = self.plan.outputs().collect();
        let one = |at: usize| {
            let integer = self.plan.output_frac(at) == 0;
            (names[at].to_owned(), shapes[at].dims().to_vec(), integer)
        };
        Ok(self.plan.step_outputs().map(one).collect())
    }

    /// The values that stay from step to step, before the first one: name, dimensions, fraction bits, and the axis of positions.
    fn states(&self) -> PyResult<Vec<State>> {
        let sizes = Sizes { batch: self.plan.fixed_batch().unwrap_or(1), past: 0 };
        let shapes = self.plan.input_shapes(sizes).map_err(Failure::from)?;
        let one = |state: &StateSpec| {
            let StateSpec { input, axis, .. } = *state;
            let name = self.plan.inputs()[input].name.clone();
            (name, shapes[input].dims().to_vec(), self.plan.input_frac(input), axis)
        };
        Ok(self.plan.states().iter().map(one).collect())
    }

    /// The positions that a step adds, 0 for a model that keeps nothing, and the most that a text may have.
    fn positions(&self) -> (usize, Option<usize>) {
        let new = self.plan.new_positions().unwrap_or(0);
        (new, self.plan.most_past().map(|past| past + new))
    }

    /// The only batch that the model takes, or None.
    #[getter]
    fn batch(&self) -> Option<usize> {
        self.plan.fixed_batch()
    }

    /// Number of weights.
    #[getter]
    fn parameters(&self) -> usize {
        self.plan.weights().iter().map(|spec| spec.shape.len()).sum()
    }

    /// For each of [`Model::inputs`] the rows of the smallest table in which it is looked up, if it is.
    #[getter]
    fn table_rows(&self) -> Vec<Option<usize>> {
        self.plan.step_inputs().map(|index| self.plan.table_rows(index)).collect()
    }

    /// The names of the values that a guard over a run checks.
    fn guarded(&self) -> Vec<String> {
        self.guarded_plan().guarded().into_iter().map(str::to_owned).collect()
    }

    /// True if each row of the results depends on its own row of the inputs alone.
    #[getter]
    fn keeps_rows_apart(&self) -> bool {
        self.plan.keeps_examples_apart()
    }

    /// Fraction bits of each of [`Model::inputs`].
    #[getter]
    fn input_fracs(&self) -> Vec<u32> {
        self.plan.step_inputs().map(|index| self.plan.input_frac(index)).collect()
    }

    /// The results for inputs in the clear, in 64-bit floats: flat arrays with their dimensions.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<PyReadonlyArrayDyn<'py, f64>>,
    ) -> PyResult<Vec<Flat<'py>>> {
        let values = host_tensors(&inputs, self.plan.inputs())?;
        let outputs = py.detach(|| self.plan.evaluate(&self.compiled.weights, &values));
        Ok(arrays(py, &outputs.map_err(Failure::from)?))
    }
}

/// An ONNX file with other numbers for some of its weights, by name. Numbers in other files of `folder` become part of
/// it.
#[pyfunction]
pub(crate) fn onnx_with_weights(
    py: Python<'_>,
    file: Vec<u8>,
    folder: Option<std::path::PathBuf>,
    weights: Vec<(String, PyReadonlyArrayDyn<'_, f64>)>,
) -> PyResult<Py<PyBytes>> {
    let mut values = std::collections::BTreeMap::new();
    for (name, array) in &weights {
        let slice = array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
        let value = HostTensor::new(array.shape().to_vec(), slice.to_vec());
        values.insert(name.clone(), value.map_err(Failure::from)?);
    }
    let written = onnx::with_weights(&file, folder.as_deref(), &values).map_err(Failure::from)?;
    Ok(PyBytes::new(py, &written).unbind())
}

/// A flat array with its dimensions.
pub(crate) type Flat<'py> = (Bound<'py, PyArray1<f64>>, Vec<usize>);

/// Arrays as tensors in the clear for a plan's inputs.
pub(crate) fn host_tensors(
    arrays: &[PyReadonlyArrayDyn<'_, f64>],
    inputs: &[InputSpec],
) -> Result<Vec<HostTensor>> {
    let mut values = Vec::with_capacity(arrays.len());
    for (array, spec) in arrays.iter().zip(inputs) {
        let slice = array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
        let dims = array.shape().to_vec();
        values.push(if spec.integer {
            HostTensor::integers(dims, whole(&spec.name, slice)?)?
        } else {
            HostTensor::new(dims, slice.to_vec())?
        });
    }
    Ok(values)
}

/// The numbers of an input that consists of integers.
pub(crate) fn whole(name: &str, values: &[f64]) -> Result<Vec<i64>> {
    let fits = |value: &f64| value.fract() == 0.0 && value.abs() < (1u64 << 62) as f64;
    if let Some(at) = values.iter().position(|value| !fits(value)) {
        let text = format!(
            "input `{name}` consists of integers below 2^62 in magnitude; element {at} is {}",
            values[at]
        );
        return Err(Failure::new(Kind::Range, text));
    }
    Ok(values.iter().map(|&value| value as i64).collect())
}

/// Tensors in the clear as flat arrays with their dimensions.
pub(crate) fn arrays<'py>(py: Python<'py>, tensors: &[HostTensor]) -> Vec<Flat<'py>> {
    tensors.iter().map(|x| flat(py, x)).collect()
}

/// A tensor in the clear as a flat array with its dimensions.
pub(crate) fn flat<'py>(py: Python<'py>, tensor: &HostTensor) -> Flat<'py> {
    (tensor.floats().into_owned().into_pyarray(py), tensor.dims().to_vec())
}

impl Model {
    pub(crate) fn of(graph: Graph, frac: u32) -> Result<Self> {
        if !(4..=28).contains(&frac) {
            let text = format!("frac_bits is {frac}: a model has 4 to 28 fraction bits");
            return Err(Failure::new(Kind::Config, text));
        }
        let compiled = Compiled::new(&graph, &PlanOptions::default().with_frac(frac))?;
        Ok(Self { graph: Some(graph), ..Self::ready(compiled, frac) })
    }

    /// A model that is planned already, which cannot be trained.
    pub(crate) fn ready(compiled: Compiled, frac: u32) -> Self {
        let plan = Arc::new(compiled.plan.clone());
        let (compiled, guarded) = (Arc::new(compiled), OnceLock::new());
        Self { graph: None, compiled, plan, guarded, frac, source: None }
    }

    /// The program for servers, with a guard. Of a language model that came from a file it also has steps of these numbers of
    /// positions, if it can: unless they are given, that is no error.
    pub(crate) fn program(&self, lengths: Option<&[usize]>) -> Result<Program> {
        let program = Program::new((*self.guarded_plan()).clone())?;
        let Some((source, options)) = &self.source else { return Ok(program) };
        let read = |positions| {
            let graph = source.read(&options.clone().with_positions(positions));
            graph.map_err(|cause| trefoil::Error::input("model", cause))
        };
        let plan = PlanOptions::default().with_frac(self.frac);
        let values = &self.compiled.weights;
        Ok(import::with_prompt_steps(program, values, lengths, &plan, read)?.0)
    }

    /// True if it keeps values from step to step.
    fn goes_on(&self) -> bool {
        !self.plan.states().is_empty()
    }

    pub(crate) fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    pub(crate) fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.plan.clone()
    }

    /// The plan with a guard.
    pub(crate) fn guarded_plan(&self) -> Arc<Plan> {
        let make = || Arc::new((*self.plan).clone().with_guard(true));
        self.guarded.get_or_init(make).clone()
    }
}
