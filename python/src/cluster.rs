//! A client's connection to a cluster's three servers.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use ring_arith::{FixedPoint, FracBits, Shape, Tensor};
use trefoil::{
    Preprocess,
    client::{Client, NewModel, Watch, agree_on_line},
    config::{ClientConfig, check_name},
    links,
    program::Program,
    store::{Range, Readers},
};

use crate::{
    errors::{Failure, Kind, Result},
    model::Model,
};

/// How often a waiting call looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// One connection. Calls of one connection come one after the other; after a failure, or if a call was
/// interrupted, the next one connects again.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Connection {
    config: ClientConfig,
    client: Arc<Mutex<Option<Client>>>,
}

/// What is listed of a model: name, owner, weights, input and output dimensions, state.
type Listed = (String, String, u64, Vec<Vec<usize>>, Vec<Vec<usize>>, String);

/// What an inference returns: for each output its name, numbers and dimensions; bytes, rounds, seconds.
type Answered<'py> = (Vec<(String, Bound<'py, PyArray1<f64>>, Vec<usize>)>, (u64, u32, f64));

#[pymethods]
impl Connection {
    /// Reads a client's file. The servers are met at the first call.
    #[new]
    fn new(path: &str) -> PyResult<Self> {
        let config = ClientConfig::read(Path::new(path)).map_err(Failure::from)?;
        Ok(Self { config, client: Arc::default() })
    }

    /// The client's name.
    #[getter]
    fn name(&self) -> String {
        self.config.name.clone()
    }

    /// Asks the servers whether they are there: round trips in seconds.
    fn ping(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        let told = self.with(py, |client| Ok(client.ping()?))?;
        Ok(told.iter().map(|(_, took)| took.as_secs_f64()).collect())
    }

    /// Secret-shares a model among the servers.
    #[pyo3(signature = (name, model, readers, ranges, labels, replace, progress=None))]
    // What Python names, in a row.
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        name: String,
        model: PyRef<'_, Model>,
        readers: Option<Vec<String>>,
        ranges: Vec<Option<(f64, f64)>>,
        labels: Vec<String>,
        replace: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        check_name("model", &name).map_err(Failure::input)?;
        let readers = readers.map_or(Readers::Everyone, Readers::Named);
        readers.check().map_err(Failure::from)?;
        let (compiled, plan) = (model.compiled().clone(), model.plan());
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        self.watched(py, progress.map(|progress| (progress, sent)), move |client| {
            let program = Program::new((*plan).clone())?;
            let about = program.about(Preprocess::default(), labels)?;
            about.check()?;
            let weights = compiled.plan.encode_weights(&compiled.weights)?;
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|range| range.map(|(low, high)| Range { low, high }))
                .collect();
            let plan = program.to_bytes()?;
            let new = NewModel {
                name: &name,
                about: &about,
                plan: &plan,
                weights: &weights,
                readers: &readers,
                ranges: &ranges,
                replace,
            };
            Ok(client.put(&new, &*watched)?)
        })
    }

    /// Runs a model on inputs, which are secret-shared here.
    #[pyo3(signature = (name, inputs, progress=None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        name: String,
        inputs: Vec<PyReadonlyArrayDyn<'py, f64>>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Answered<'py>> {
        let mut values = Vec::with_capacity(inputs.len());
        for array in &inputs {
            let slice = array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
            values.push((array.shape().to_vec(), slice.to_vec()));
        }
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        let progress = progress.map(|progress| (progress, sent));
        let (about, answer, examples) = self.watched(py, progress, move |client| {
            let public = client.model(&name)?;
            let about = public.about;
            if values.len() != about.inputs.len() {
                let takes: Vec<_> = about.inputs.iter().map(ToString::to_string).collect();
                let (given, takes) = (values.len(), takes.join(", "));
                let text = format!("{given} inputs are given; model `{name}` takes {takes}");
                return Err(Failure::input(text));
            }
            let code = FixedPoint(FracBits::new(about.fraction_bits)?);
            let mut words = Vec::with_capacity(values.len());
            for (index, ((dims, values), input)) in values.iter().zip(&about.inputs).enumerate() {
                if dims.get(1..) != Some(&input.dims[..]) {
                    let text = format!("input `{}` has shape {dims:?}; model `{name}` takes [batch, {}]",
                        input.name,
                        input.dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
                    return Err(Failure::input(text));
                }
                if let Some(Some(range)) = public.ranges.get(index)
                    && let Some(at) = range.outside(values)
                {
                    let text = format!(
                        "input `{}`: element {at} lies outside of {range}, for which its owner made the model",
                        input.name
                    );
                    return Err(Failure::new(Kind::Range, text));
                }
                let encoded = if input.integer {
                    values.iter().map(|&value| value as i64 as u64).collect()
                } else {
                    code.encode(values)?
                };
                words.push(Tensor::new(Shape::new(dims.clone())?, encoded)?);
            }
            let examples = values.first().and_then(|(dims, _)| dims.first().copied()).unwrap_or(0);
            let answer = client.infer(&name, public.version, &words, false, &*watched)?;
            Ok((about, answer, examples))
        })?;
        let decoded = about.decode(examples, &answer.outputs).map_err(Failure::from)?;
        let outputs = about.outputs.iter().zip(decoded).map(|(output, examples_of)| {
            let flat: Vec<f64> = examples_of.concat();
            let dims = [&[examples], output.dims.as_slice()].concat();
            (output.name.clone(), flat.into_pyarray(py), dims)
        });
        let costs = &answer.costs;
        let bytes = costs.iter().map(|cost| cost.bytes).sum();
        let rounds = costs.iter().map(|cost| cost.rounds).max().unwrap_or(0);
        let seconds = costs.iter().map(|cost| cost.seconds).fold(0.0, f64::max);
        Ok((outputs.collect(), (bytes, rounds, seconds)))
    }

    /// The models that this client may use.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let models = self.with(py, |client| Ok(client.models()?))?;
        let mut names: Vec<String> =
            models.iter().flatten().map(|model| model.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let listed = names.into_iter().filter_map(|name| {
            let found = models.iter().flatten().find(|model| model.name == name)?;
            let state = agree_on_line(&name, &models)
                .map_or_else(|error| error.to_string(), |_| "ready".to_owned());
            let (inputs, outputs) = (found.inputs.clone(), found.outputs.clone());
            Some((name, found.owner.clone(), found.weights, inputs, outputs, state))
        });
        Ok(listed.collect())
    }

    /// Removes a model of this client's.
    fn remove(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |client| Ok(client.remove(&name, &())?))
    }

    /// Lets others run a model of this client's: these, or everyone.
    fn share(&self, py: Python<'_>, name: String, readers: Option<Vec<String>>) -> PyResult<()> {
        let readers = readers.map_or(Readers::Everyone, Readers::Named);
        readers.check().map_err(Failure::from)?;
        self.with(py, move |client| Ok(client.share(&name, &readers, &())?))
    }
}

impl Connection {
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        talk: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        self.watched(py, None, talk)
    }

    /// Talks to the servers in a thread of its own, so that Ctrl-C ends the wait. `progress` is called now and then
    /// with the bytes that have left, and with all.
    fn watched<T: Send + 'static>(
        &self,
        py: Python<'_>,
        progress: Option<(Bound<'_, PyAny>, Arc<Sent>)>,
        talk: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (say, hear) = bounded(1);
        let (config, slot) = (self.config.clone(), self.client.clone());
        let run = move || {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome: Result<T> = (|| {
                let mut client = match slot.take() {
                    Some(client) => client,
                    None => links::connect(&config)?,
                };
                let value = talk(&mut client)?;
                // Only a connection that has not failed is used again.
                *slot = Some(client);
                Ok(value)
            })();
            // Nobody waits for a call that was interrupted.
            let _ = say.send(outcome);
        };
        thread::Builder::new()
            .name("trefoil client".to_owned())
            .spawn(run)
            .map_err(|cause| Failure::new(Kind::Failed, format!("a thread: {cause}")))?;
        let show = || match &progress {
            Some((progress, sent)) => progress.call1(sent.so_far()).map(drop),
            None => Ok(()),
        };
        loop {
            match py.detach(|| hear.recv_timeout(TICK)) {
                Ok(outcome) => {
                    let value = outcome?;
                    return show().map(|()| value);
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals().and_then(|()| show())?,
                Err(RecvTimeoutError::Disconnected) => {
                    let text = "the conversation with the servers was lost";
                    return Err(Failure::new(Kind::Failed, text).into());
                }
            }
        }
    }
}

/// Counts what leaves, for a progress bar.
#[derive(Default)]
struct Sent {
    bytes: AtomicU64,
    of: AtomicU64,
}

impl Sent {
    fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }
}

impl Watch for Sent {
    fn sent(&self, bytes: u64, of: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }
}
