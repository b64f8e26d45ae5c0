//! The training of a model: its plan of a step, its course, and the state at its start.

use std::sync::Arc;

use nn_layers::{
    Compiled, Graph, HostTensor,
    train::{
        Adam, Classes, Decay, Loss, Metric, Optimiser, Privacy, Role, Schedule, Second, Step,
        TrainOptions, TrainPlan, TrainRequest,
    },
};
use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::{prelude::*, types::PyDict};
use ring_arith::CpuEngine;

use crate::{
    errors::{Failure, Kind, Result},
    model::{Flat, Model, arrays, host_tensors},
};

/// The settings of a training, and the weights with which it begins.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Training {
    /// The request from which the plan is derived.
    request: Arc<TrainRequest>,
    plan: Arc<TrainPlan>,
    schedule: Schedule,
    start: Vec<HostTensor>,
    /// The network, with the weights that are trained as parameters.
    graph: Graph,
    frac: u32,
}

/// An input of a step: name, dimensions, fraction bits, whether it consists of integers.
type Input = (String, Vec<usize>, u32, bool);

/// A layer, and the value that left its range there.
type Refusal = (String, String);

/// A choice by its name, with its numbers.
type Choice<'py> = (String, Bound<'py, PyDict>);

#[pymethods]
impl Training {
    /// Plans the training of a model for batches of this size. Loss, optimiser and schedule are names with their
    /// numbers; `trained` names the weights that change, all of them unless it is given.
    #[new]
    #[pyo3(signature = (model, batch, loss, optimiser, schedule, metrics, *, trained=None, clip=None, seed=0, privacy=None, accumulate=1, standardize=false))]
    // The keyword arguments of Python's call.
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
        clip: Option<f64>,
        seed: u64,
        privacy: Option<(f64, f64, usize, f64)>,
        accumulate: u32,
        standardize: bool,
    ) -> PyResult<Self> {
        let graph = model.graph().ok_or_else(|| {
            Failure::input("this model is the result of a run; train the one it came from")
        })?;
        let schedule = schedule_of(&schedule)?;
        let mut options = TrainOptions::default()
            .with_loss(loss_of(&loss)?)
            .with_optimiser(optimiser_of(&optimiser)?)
            .with_largest_rate(schedule.rate)
            .with_seed(seed)
            .with_accumulate(accumulate)
            .with_standardize(standardize)
            .with_metrics(metrics.iter().map(|m| metric(m)).collect::<Result<Vec<_>>>()?);
        options.clip = clip;
        options.privacy = privacy.map(|(clip, noise, rows, delta)| {
            Privacy::new(clip, noise).with_rows(rows).with_delta(delta)
        });
        let graph = graph.clone();
        let planned = py.detach(move || {
            let mut graph = graph.for_batch(batch)?;
            let output = graph.only_output()?;
            let changed = graph.train(|name| match &trained {
                Some(names) => names.iter().any(|known| known == name),
                None => true,
            });
            let names: Vec<_> = changed.iter().filter_map(|&id| graph.name_of(id)).collect();
            let missing = trained.iter().flatten().find(|name| !names.contains(&name.as_str()));
            if let Some(name) = missing {
                let text = format!(
                    "`{name}` cannot be trained: the model has no weight of that name, or only numbers that were \
                     computed of it at the import"
                );
                return Err(Failure::input(text));
            }
            let (request, plan, start) = TrainPlan::with_request(&graph, output, &options)?;
            Ok((request, plan, start, graph))
        });
        let (request, plan, start, graph) = planned?;
        Ok(Self {
            request: Arc::new(request),
            plan: Arc::new(plan),
            schedule,
            start,
            graph,
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

    /// Fraction bits of each tensor of the state.
    fn state_fracs(&self) -> Vec<u32> {
        self.plan.state().iter().map(|spec| spec.frac).collect()
    }

    /// Rows of a step.
    #[getter]
    fn batch(&self) -> usize {
        self.plan.batch()
    }

    /// Epsilon of a row that takes part in `uses` steps, at the training's delta; None without privacy.
    fn epsilon(&self, uses: u32) -> PyResult<Option<f64>> {
        let privacy = &self.plan.options().privacy;
        let epsilon = privacy.as_ref().map(|privacy| privacy.epsilon(uses));
        Ok(epsilon.transpose().map_err(Failure::from)?)
    }

    /// The learning rate of a step, counted from 0. Steps whose gradients are added up have one in common.
    fn rate(&self, number: u32) -> f64 {
        self.schedule.at(number / self.plan.options().accumulate.max(1))
    }

    /// True if the weights follow their gradients in a step of this number.
    fn updates(&self, number: u32) -> bool {
        self.plan.updates(self.step(number, None))
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

    /// A step in 64-bit floats: the state after it, and what is seen of the step. The learning rates, of the step and
    /// of the one before, are the schedule's unless others are given.
    #[pyo3(signature = (state, batch, number, rates=None))]
    fn step_in_the_clear<'py>(
        &self,
        py: Python<'py>,
        state: Vec<PyReadonlyArrayDyn<'py, f64>>,
        batch: Vec<PyReadonlyArrayDyn<'py, f64>>,
        number: u32,
        rates: Option<(f64, f64)>,
    ) -> PyResult<(Vec<Flat<'py>>, Vec<Flat<'py>>)> {
        let mut state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let batch = host_tensors(&batch, self.plan.step_plan().inputs())?;
        let step = self.step(number, rates);
        let seen = py.detach(|| self.plan.step_in_the_clear(&mut state, &batch, step));
        let seen = seen.map_err(Failure::from)?;
        Ok((arrays(py, &state), arrays(py, &seen)))
    }

    /// A step in the clear in fixed point, with every range checked: the state after it, unless a value left its
    /// range; then the layer's name and the value that left its range.
    #[pyo3(signature = (state, batch, number, rates=None))]
    fn inspect<'py>(
        &self,
        py: Python<'py>,
        state: Vec<PyReadonlyArrayDyn<'py, f64>>,
        batch: Vec<PyReadonlyArrayDyn<'py, f64>>,
        number: u32,
        rates: Option<(f64, f64)>,
    ) -> PyResult<(Vec<Flat<'py>>, Option<Refusal>)> {
        let mut state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let batch = host_tensors(&batch, self.plan.step_plan().inputs())?;
        let step = self.step(number, rates);
        let seen = py.detach(|| self.plan.inspect(CpuEngine::new(0), &mut state, &batch, step));
        let refusal = seen.map_err(Failure::from)?.refusal;
        Ok((arrays(py, &state), refusal.map(|r| (r.name, r.reason))))
    }

    /// The names of the values that a guard over a step checks; empty without a guard.
    #[pyo3(signature = (number, rates=None))]
    fn guarded(&self, number: u32, rates: Option<(f64, f64)>) -> Vec<String> {
        self.plan.guarded(self.step(number, rates))
    }

    /// The model with the weights of a state in the clear.
    fn model(&self, py: Python<'_>, state: Vec<PyReadonlyArrayDyn<'_, f64>>) -> PyResult<Model> {
        let state = state.iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let made = py.detach(|| -> Result<Model> {
            let mut graph = self.graph.clone();
            for (spec, value) in self.plan.state().iter().zip(state) {
                if spec.trained && spec.role == Role::Network {
                    graph.set_start(&spec.name, value)?;
                }
            }
            Model::of(graph, self.frac)
        });
        Ok(made?)
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

    /// The step of a number, with a learning rate and that of the step before: the schedule's unless others are given.
    pub(crate) fn step(&self, number: u32, rates: Option<(f64, f64)>) -> Step {
        let given = |(rate, last)| Step::new(number, rate).after(last);
        rates.map_or_else(|| self.schedule.step(number), given)
    }

    /// The number of the step's inputs that come with a batch; the others are public numbers that the plan makes.
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

/// The error for an unknown choice.
fn unknown(what: &str, name: &str) -> PyErr {
    Failure::new(Kind::Config, format!("there is no {what} `{name}`")).into()
}

fn loss_of(choice: &Choice<'_>) -> PyResult<Loss> {
    Ok(match choice.0.as_str() {
        "cross_entropy" => Loss::CrossEntropy(classes_of(choice)?),
        "log_likelihood" => Loss::LogLikelihood(classes_of(choice)?),
        "binary_cross_entropy" => {
            Loss::BinaryCrossEntropy { positive: number(choice, "positive")? }
        }
        "probability_cross_entropy" => Loss::ProbabilityCrossEntropy,
        "mean_square" => Loss::MeanSquare,
        "absolute" => Loss::Absolute,
        "huber" => Loss::Huber(number(choice, "delta")?),
        "smooth_absolute" => Loss::SmoothAbsolute(number(choice, "beta")?),
        other => return Err(unknown("loss", other)),
    })
}

fn classes_of(choice: &Choice<'_>) -> PyResult<Classes> {
    Ok(Classes {
        smoothing: number(choice, "smoothing")?,
        weights: number(choice, "weights")?,
        ignore: number(choice, "ignore")?,
        soft: number(choice, "soft")?,
        axis: number(choice, "axis")?,
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
