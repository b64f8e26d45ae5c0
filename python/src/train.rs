//! The training of a model: its plan of a step, and the state at its start.

use std::sync::Arc;

use nn_layers::{
    Compiled, HostTensor,
    train::{Loss, Metric, Optimiser, TrainOptions, TrainPlan},
};
use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    errors::{Failure, Kind, Result},
    model::{Flat, Model, arrays, host_tensors},
};

/// How a model is trained, and the weights with which it begins.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Training {
    plan: Arc<TrainPlan>,
    start: Vec<HostTensor>,
    frac: u32,
}

/// An input of a step: name, dimensions, fraction bits, whether it consists of integers.
type Input = (String, Vec<usize>, u32, bool);

#[pymethods]
impl Training {
    /// Plans the training of a model for batches of this size. `loss` and `optimiser` are names with their numbers;
    /// `trained` names the weights that change, all of them unless it is given.
    #[new]
    #[pyo3(signature = (model, batch, loss, optimiser, largest_rate, metrics, trained=None))]
    // What Python names, in a row.
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        model: PyRef<'_, Model>,
        batch: usize,
        loss: (String, Bound<'_, PyDict>),
        optimiser: (String, Bound<'_, PyDict>),
        largest_rate: f64,
        metrics: Vec<String>,
        trained: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let graph = model.graph().ok_or_else(|| {
            Failure::input("this model is the result of a training; train the one it came from")
        })?;
        let options = TrainOptions::default()
            .with_loss(loss_of(&loss.0, &loss.1)?)
            .with_optimiser(optimiser_of(&optimiser.0, &optimiser.1)?)
            .with_largest_rate(largest_rate)
            .with_metrics(metrics.iter().map(|m| metric(m)).collect::<Result<Vec<_>>>()?);
        let (graph, frac) = (graph.clone(), model.frac());
        let planned = py.detach(move || {
            let mut graph = graph.for_batch(batch)?;
            let output = graph.only_output()?;
            let changed = graph.train(|name| {
                trained.as_ref().is_none_or(|names| names.iter().any(|n| n == name))
            });
            if trained.as_ref().is_some_and(|names| names.len() != changed.len()) {
                let text = "`trained` names weights that the model does not have as such; a weight that is folded into \
                            another has no name of its own";
                return Err(Failure::input(text));
            }
            Ok(TrainPlan::new(&graph, output, &options)?)
        });
        let (plan, start) = planned?;
        Ok(Self { plan: Arc::new(plan), start, frac })
    }

    /// Tensors that go from step to step: name, dimensions, whether a step changes it.
    fn state(&self) -> Vec<(String, Vec<usize>, bool)> {
        let specs = self.plan.state().into_iter();
        specs.map(|spec| (spec.name, spec.shape.dims().to_vec(), spec.trained)).collect()
    }

    /// The inputs of a step, the labels last.
    fn inputs(&self) -> PyResult<Vec<Input>> {
        let step = self.plan.step_plan();
        let shapes = step.input_shapes(self.plan.batch()).map_err(Failure::from)?;
        let count = self.given();
        let each = step.inputs().iter().zip(shapes).enumerate().take(count);
        let input = each.map(|(index, (spec, shape))| {
            (spec.name.clone(), shape.dims().to_vec(), step.input_frac(index), spec.integer)
        });
        Ok(input.collect())
    }

    /// Fraction bits of the inference's inputs.
    fn inference_fracs(&self) -> Vec<u32> {
        let plan = self.plan.inference();
        (0..plan.inputs().len()).map(|index| plan.input_frac(index)).collect()
    }

    /// Places among the state of the weights with which the model is applied.
    fn applied(&self) -> PyResult<Vec<usize>> {
        let places: Vec<usize> = (0..self.start.len()).collect();
        Ok(self.plan.inference_weights(&places).map_err(Failure::from)?)
    }

    /// The state before the first step, in the clear.
    fn start<'py>(&self, py: Python<'py>) -> Vec<Flat<'py>> {
        arrays(py, &self.start)
    }

    /// A step in 64-bit floats: the state after it, and what is seen of the step.
    fn step_in_the_clear<'py>(
        &self,
        py: Python<'py>,
        state: Vec<PyReadonlyArrayDyn<'py, f64>>,
        batch: Vec<PyReadonlyArrayDyn<'py, f64>>,
        rate: f64,
    ) -> PyResult<(Vec<Flat<'py>>, Vec<Flat<'py>>)> {
        let mut state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let batch = host_tensors(&batch, self.plan.step_plan().inputs())?;
        let seen = py.detach(|| self.plan.step_in_the_clear(&mut state, &batch, rate));
        let seen = seen.map_err(Failure::from)?;
        Ok((arrays(py, &state), arrays(py, &seen)))
    }

    /// The model with the weights of a state in the clear.
    fn model(&self, state: Vec<PyReadonlyArrayDyn<'_, f64>>) -> PyResult<Model> {
        let state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let weights = self.plan.inference_weights(&state).map_err(Failure::from)?;
        Ok(Model::ready(Compiled { plan: self.plan.inference().clone(), weights }, self.frac))
    }
}

impl Training {
    pub(crate) fn plan(&self) -> Arc<TrainPlan> {
        self.plan.clone()
    }

    pub(crate) fn start_values(&self) -> &[HostTensor] {
        &self.start
    }

    /// How many of the step's inputs come with a batch; the others are public numbers that the plan makes.
    fn given(&self) -> usize {
        let inputs = self.plan.step_plan().inputs();
        inputs.iter().position(|spec| spec.name == "labels").map_or(inputs.len(), |at| at + 1)
    }
}

fn tensor(array: &PyReadonlyArrayDyn<'_, f64>) -> Result<HostTensor> {
    let slice = array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
    Ok(HostTensor::new(array.shape().to_vec(), slice.to_vec())?)
}

fn number(of: &str, numbers: &Bound<'_, PyDict>, name: &str) -> PyResult<f64> {
    let missing = || Failure::input(format!("{of} needs the number `{name}`"));
    numbers.get_item(name)?.ok_or_else(missing)?.extract()
}

fn loss_of(name: &str, numbers: &Bound<'_, PyDict>) -> PyResult<Loss> {
    Ok(match name {
        "cross_entropy" => Loss::CrossEntropy { smoothing: number(name, numbers, "smoothing")? },
        "binary_cross_entropy" => Loss::BinaryCrossEntropy,
        "mean_square" => Loss::MeanSquare,
        "huber" => Loss::Huber(number(name, numbers, "delta")?),
        other => {
            return Err(Failure::new(Kind::Config, format!("there is no loss `{other}`")).into());
        }
    })
}

fn optimiser_of(name: &str, numbers: &Bound<'_, PyDict>) -> PyResult<Optimiser> {
    Ok(match name {
        "sgd" => Optimiser::Sgd {
            momentum: number(name, numbers, "momentum")?,
            nesterov: number(name, numbers, "nesterov")? != 0.0,
            decay: number(name, numbers, "weight_decay")?,
        },
        other => {
            return Err(
                Failure::new(Kind::Config, format!("there is no optimiser `{other}`")).into()
            );
        }
    })
}

fn metric(name: &str) -> Result<Metric> {
    match name {
        "loss" => Ok(Metric::Loss),
        "right" => Ok(Metric::Right),
        other => Err(Failure::new(Kind::Config, format!("there is no metric `{other}`"))),
    }
}
