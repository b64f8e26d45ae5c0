//! The training of a model: its plan of a step, its course, and the state at its start.

use std::sync::Arc;

use nn_layers::{
    Compiled, HostTensor,
    train::{
        Adam, Decay, Loss, Metric, Optimiser, Privacy, Role, Schedule, Second, Step, TrainOptions,
        TrainPlan, TrainRequest,
    },
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
    /// What the plan is derived from.
    request: Arc<TrainRequest>,
    plan: Arc<TrainPlan>,
    schedule: Schedule,
    start: Vec<HostTensor>,
    frac: u32,
}

/// An input of a step: name, dimensions, fraction bits, whether it consists of integers.
type Input = (String, Vec<usize>, u32, bool);

/// A choice by its name, with its numbers.
type Choice<'py> = (String, Bound<'py, PyDict>);

#[pymethods]
impl Training {
    /// Plans the training of a model for batches of this size. Loss, optimiser and schedule are names with their
    /// numbers; `trained` names the weights that change, all of them unless it is given, and `frozen` those that
    /// do not.
    #[new]
    #[pyo3(signature = (model, batch, loss, optimiser, schedule, metrics, *, trained=None, frozen=vec![], clip=None, seed=0, privacy=None))]
    // What Python names, in a row.
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        model: PyRef<'_, Model>,
        batch: usize,
        loss: Choice<'_>,
        optimiser: Choice<'_>,
        schedule: Choice<'_>,
        metrics: Vec<String>,
        trained: Option<Vec<String>>,
        frozen: Vec<String>,
        clip: Option<f64>,
        seed: u64,
        privacy: Option<(f64, f64, usize, f64)>,
    ) -> PyResult<Self> {
        let graph = model.graph().ok_or_else(|| {
            Failure::input("this model is the result of a training; train the one it came from")
        })?;
        let schedule = schedule_of(&schedule)?;
        let mut options = TrainOptions::default()
            .with_loss(loss_of(&loss)?)
            .with_optimiser(optimiser_of(&optimiser)?)
            .with_largest_rate(schedule.rate)
            .with_seed(seed)
            .with_metrics(metrics.iter().map(|m| metric(m)).collect::<Result<Vec<_>>>()?);
        options.clip = clip;
        options.privacy = privacy.map(|(clip, noise, rows, delta)| {
            Privacy::new(clip, noise).with_rows(rows).with_delta(delta)
        });
        let graph = graph.clone();
        let planned = py.detach(move || {
            let mut graph = graph.for_batch(batch)?;
            let output = graph.only_output()?;
            let is = |names: &[String], name: &str| names.iter().any(|known| known == name);
            let changed = graph.train(|name| match &trained {
                Some(names) => is(names, name),
                None => !is(&frozen, name),
            });
            if trained.as_ref().is_some_and(|names| names.len() != changed.len()) {
                let text = "`trained` names weights that the model does not have as such; a weight that is folded into \
                            another has no name of its own";
                return Err(Failure::input(text));
            }
            Ok(TrainPlan::with_request(&graph, output, &options)?)
        });
        let (request, plan, start) = planned?;
        Ok(Self {
            request: Arc::new(request),
            plan: Arc::new(plan),
            schedule,
            start,
            frac: model.frac(),
        })
    }

    /// Tensors that go from step to step: name, dimensions, whether it is a weight or running statistic of the
    /// network that a step changes.
    fn state(&self) -> Vec<(String, Vec<usize>, bool)> {
        let specs = self.plan.state().into_iter();
        let described = |spec: nn_layers::train::StateSpec| {
            let learnt = spec.trained && spec.role == Role::Network;
            (spec.name, spec.shape.dims().to_vec(), learnt)
        };
        specs.map(described).collect()
    }

    /// Rows of a step.
    #[getter]
    fn batch(&self) -> usize {
        self.plan.batch()
    }

    /// Epsilon of a row that takes part in so many steps, at the training's delta; none without privacy.
    fn epsilon(&self, uses: u32) -> PyResult<Option<f64>> {
        let privacy = &self.plan.options().privacy;
        let epsilon = privacy.as_ref().map(|privacy| privacy.epsilon(uses));
        Ok(epsilon.transpose().map_err(Failure::from)?)
    }

    /// The learning rate of a step, counted from 0.
    fn rate(&self, number: u32) -> f64 {
        self.schedule.at(number)
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

    /// The state before the first step, in the clear.
    fn start<'py>(&self, py: Python<'py>) -> Vec<Flat<'py>> {
        arrays(py, &self.start)
    }

    /// A step in 64-bit floats: the state after it, and what is seen of the step. The learning rate is the
    /// schedule's unless another is given.
    #[pyo3(signature = (state, batch, number, rate=None))]
    fn step_in_the_clear<'py>(
        &self,
        py: Python<'py>,
        state: Vec<PyReadonlyArrayDyn<'py, f64>>,
        batch: Vec<PyReadonlyArrayDyn<'py, f64>>,
        number: u32,
        rate: Option<f64>,
    ) -> PyResult<(Vec<Flat<'py>>, Vec<Flat<'py>>)> {
        let mut state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let batch = host_tensors(&batch, self.plan.step_plan().inputs())?;
        let step = self.step(number, rate);
        let seen = py.detach(|| self.plan.step_in_the_clear(&mut state, &batch, step));
        let seen = seen.map_err(Failure::from)?;
        Ok((arrays(py, &state), arrays(py, &seen)))
    }

    /// The model with the weights of a state in the clear.
    fn model(&self, state: Vec<PyReadonlyArrayDyn<'_, f64>>) -> PyResult<Model> {
        let state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        Ok(finished(&self.plan, &state, self.frac)?)
    }
}

impl Training {
    pub(crate) fn request(&self) -> Arc<TrainRequest> {
        self.request.clone()
    }

    pub(crate) fn plan(&self) -> Arc<TrainPlan> {
        self.plan.clone()
    }

    pub(crate) fn schedule(&self) -> Schedule {
        self.schedule
    }

    pub(crate) fn start_values(&self) -> &[HostTensor] {
        &self.start
    }

    /// The step of a number, with the schedule's learning rate or another.
    pub(crate) fn step(&self, number: u32, rate: Option<f64>) -> Step {
        rate.map_or_else(|| self.schedule.step(number), |rate| Step::new(number, rate))
    }

    /// How many of the step's inputs come with a batch; the others are public numbers that the plan makes.
    fn given(&self) -> usize {
        let inputs = self.plan.step_plan().inputs();
        inputs.iter().position(|spec| spec.name == "labels").map_or(inputs.len(), |at| at + 1)
    }
}

/// The network of a training with the weights of a state in the clear.
pub(crate) fn finished(plan: &TrainPlan, state: &[HostTensor], frac: u32) -> Result<Model> {
    let weights = plan.finish_in_the_clear(state)?;
    Ok(Model::ready(Compiled { plan: plan.inference().clone(), weights }, frac))
}

fn tensor(array: &PyReadonlyArrayDyn<'_, f64>) -> Result<HostTensor> {
    let slice = array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
    Ok(HostTensor::new(array.shape().to_vec(), slice.to_vec())?)
}

/// A number of a choice.
fn number<'py, T>((choice, numbers): &Choice<'py>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let missing = || Failure::input(format!("{choice} needs the number `{name}`"));
    numbers.get_item(name)?.ok_or_else(missing)?.extract()
}

/// That there is no such choice.
fn unknown(what: &str, name: &str) -> PyErr {
    Failure::new(Kind::Config, format!("there is no {what} `{name}`")).into()
}

fn loss_of(choice: &Choice<'_>) -> PyResult<Loss> {
    Ok(match choice.0.as_str() {
        "cross_entropy" => Loss::CrossEntropy { smoothing: number(choice, "smoothing")? },
        "binary_cross_entropy" => Loss::BinaryCrossEntropy,
        "mean_square" => Loss::MeanSquare,
        "huber" => Loss::Huber(number(choice, "delta")?),
        other => return Err(unknown("loss", other)),
    })
}

fn optimiser_of(choice: &Choice<'_>) -> PyResult<Optimiser> {
    Ok(match choice.0.as_str() {
        "sgd" => Optimiser::Sgd {
            momentum: number(choice, "momentum")?,
            nesterov: number(choice, "nesterov")?,
            decay: number(choice, "weight_decay")?,
        },
        "adam" => Optimiser::Adam(Adam {
            betas: number(choice, "betas")?,
            epsilon: number(choice, "eps")?,
            decay: number(choice, "weight_decay")?,
            decoupled: number(choice, "decoupled")?,
            second: if number(choice, "by_row")? { Second::Row } else { Second::Weight },
            every: number(choice, "every")?,
            amsgrad: number(choice, "amsgrad")?,
        }),
        other => return Err(unknown("optimiser", other)),
    })
}

fn schedule_of(choice: &Choice<'_>) -> PyResult<Schedule> {
    let decay = match choice.0.as_str() {
        "constant" => Decay::None,
        "cosine" => Decay::Cosine(number(choice, "steps")?),
        "steps" => {
            Decay::Steps { every: number(choice, "every")?, factor: number(choice, "gamma")? }
        }
        other => return Err(unknown("schedule", other)),
    };
    Ok(Schedule { rate: number(choice, "lr")?, decay, warm_up: number(choice, "warm_up")? })
}

fn metric(name: &str) -> Result<Metric> {
    match name {
        "loss" => Ok(Metric::Loss),
        "accuracy" => Ok(Metric::Right),
        other => Err(Failure::new(Kind::Config, format!("there is no metric `{other}`"))),
    }
}
