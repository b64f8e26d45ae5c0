//! A session: parties as threads of this process, with or without a dealer, or this process as one of three parties.

mod calls;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use mpc_core::{Format, Settings};
use net::Shape as Network;
use nn_layers::train::{StateSpec, Step};
use numpy::IntoPyArray;
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use ring_arith::{Shape, Tensor};
use trefoil::{
    analysis::{Call, Operand},
    protocols::ProtocolChoice,
    store::saved::{self, SavedShare},
};

use crate::{
    arrays::Public,
    check::Checker,
    errors::{Failure, Kind, Result},
    ledger::Total,
    model::Model,
    party::{Command, Reply, Shown, TensorFormat},
    record::Recorder,
    remote::Remote,
    state::{self, Start, State},
    train::Training,
};
use calls::{encoded, numbers, one, states_last, store_key, with_dealer, with_states};

/// Secrets of at least this many numbers are forgotten at once, others with the next call.
const LARGE: usize = 1 << 14;

/// The members of a session that are here: all of a local one, or one of three parties.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Numbers of secrets that Python has dropped.
    dropped: Mutex<Vec<u64>>,
    process: u32,
}

/// A secret array: its number and its public properties.
#[pyclass(frozen, weakref, module = "trefoil._trefoil")]
pub(crate) struct Handle {
    id: u64,
    format: TensorFormat,
    session: Arc<Inner>,
}

#[pymethods]
impl Handle {
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.format.shape.dims().to_vec()
    }

    #[getter]
    fn frac(&self) -> u32 {
        self.format.numbers.frac
    }

    #[getter]
    fn width(&self) -> u32 {
        self.format.numbers.width
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.forget(self.id, self.format.shape.len());
    }
}

impl Inner {
    fn forget(&self, id: u64, numbers: usize) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.push(id);
        if numbers < LARGE {
            return;
        }
        // While a call runs it is left to the next one.
        if let Ok(mut state) = self.state.try_lock() {
            let ids = std::mem::take(&mut *dropped);
            drop(dropped);
            state.forget(ids);
        }
    }
}

#[pymethods]
impl Session {
    /// Three parties as threads of this process, or a number of them and their dealer. With `check` the plaintext
    /// reference computes every call too, and a number that leaves its range is an error.
    #[staticmethod]
    #[pyo3(signature = (engine, truncation, profile, security, check=true, network=None, threads=None, parties=None))]
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    fn local(
        py: Python<'_>,
        engine: &str,
        truncation: &str,
        profile: &str,
        security: &str,
        check: bool,
        network: Option<&str>,
        threads: Option<usize>,
        parties: Option<usize>,
    ) -> PyResult<Self> {
        let network = match network {
            None => None,
            Some("lan") => Some(Network::LAN_1G),
            Some("wan") => Some(Network::WAN_100M),
            Some(other) => {
                let text = format!("network `{other}`: use \"lan\", \"wan\" or None");
                return Err(Failure::new(Kind::Config, text).into());
            }
        };
        let settings = state::settings(truncation, profile, security)?;
        let protocol = match parties {
            None => ProtocolChoice::Rss,
            Some(parties) => with_dealer(parties, settings)?,
        };
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(all.div_ceil(protocol.servers())).max(1);
        let start = Start::Local { network };
        let session = py.detach(|| Self::open(start, protocol, engine, settings, threads))?;
        if check {
            session.lock(py).checker = Some(Checker::new()?);
        }
        Ok(session)
    }

    /// A session that records an analysis of rows of these shapes and fraction bits, and has no numbers. Returns the rows too.
    #[staticmethod]
    fn recording(
        py: Python<'_>,
        shapes: Vec<Vec<usize>>,
        fracs: Vec<u32>,
    ) -> PyResult<(Self, Vec<Handle>)> {
        let rss = ProtocolChoice::Rss;
        let session =
            py.detach(|| Self::open(Start::Shapes, rss, "cpu", Settings::default(), 1))?;
        let mut tensors = Vec::with_capacity(shapes.len());
        for (dims, frac) in shapes.into_iter().zip(fracs) {
            tensors.push(encoded(Shape::new(dims).map_err(Failure::from)?, frac));
        }
        let zeros = tensors.iter().map(|format| Tensor::zeros(format.shape.clone())).collect();
        let rows = session.share(py, 0, tensors, Some(zeros))?;
        session.lock(py).recorder = Some(Recorder::new(rows.iter().map(|handle| handle.id)));
        Ok((session, rows))
    }

    /// This process as the party of a configuration file.
    #[staticmethod]
    #[pyo3(signature = (path, engine, truncation, profile, security))]
    fn party(
        py: Python<'_>,
        path: &str,
        engine: Option<&str>,
        truncation: &str,
        profile: &str,
        security: &str,
    ) -> PyResult<Self> {
        let settings = state::settings(truncation, profile, security)?;
        let remote = py.detach(|| Remote::open(path))?;
        let threads = remote.threads();
        let engine = engine.map_or_else(|| remote.engine().to_string(), str::to_owned);
        let start = Start::Remote(Box::new(remote));
        Ok(py.detach(|| Self::open(start, ProtocolChoice::Rss, &engine, settings, threads))?)
    }

    /// Number of parties, and of dealers after them.
    #[getter]
    fn members(&self, py: Python<'_>) -> (usize, usize) {
        let protocol = self.lock(py).protocol();
        (protocol.parties(), protocol.servers() - protocol.parties())
    }

    /// This party's number, or None where all are here.
    #[getter]
    fn me(&self, py: Python<'_>) -> Option<usize> {
        self.lock(py).me()
    }

    /// Calls a function of `mpc_core::functions`.
    #[pyo3(signature = (function, operands, params=None))]
    fn call(
        &self,
        py: Python<'_>,
        function: &str,
        operands: &Bound<'_, PyList>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Handle>> {
        let mut taken = Vec::with_capacity(operands.len());
        for operand in operands.iter() {
            taken.push(if let Ok(secret) = operand.cast::<Handle>() {
                Operand::Secret(self.own(secret.get())?)
            } else {
                Operand::Known(operand.cast::<Public>()?.get().known.clone())
            });
        }
        let ids = taken.iter().filter_map(|operand| match operand {
            Operand::Secret(id) => Some(*id),
            Operand::Known(_) => None,
        });
        let ids: Vec<_> = ids.collect();
        let params = params.map(numbers).transpose()?.unwrap_or_default();
        let call = Arc::new(Call { function: function.to_owned(), operands: taken, params });
        self.make(py, function, &ids, |first| Command::Call { first, call })
    }

    /// Secret-shares arrays of the owner's; the other parties pass only shapes and formats.
    fn input(
        &self,
        py: Python<'_>,
        owner: usize,
        arrays: Vec<Option<PyRef<'_, Public>>>,
        shapes: Vec<Vec<usize>>,
        fracs: Vec<u32>,
    ) -> PyResult<Vec<Handle>> {
        let mut tensors = Vec::with_capacity(shapes.len());
        for (dims, frac) in shapes.into_iter().zip(fracs) {
            let shape = Shape::new(dims).map_err(Failure::from)?;
            tensors.push(encoded(shape, frac));
        }
        let words: Option<Vec<Tensor>> =
            arrays.iter().map(|array| Some(array.as_ref()?.known.words.clone())).collect();
        self.share(py, owner, tensors, words)
    }

    /// The numbers of secret arrays, or None at a party to which they are not shown.
    #[pyo3(signature = (secrets, to=None))]
    fn reveal<'py>(
        &self,
        py: Python<'py>,
        secrets: Vec<PyRef<'_, Handle>>,
        to: Option<usize>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let ids = self.ids(&secrets)?;
        let mut state = self.lock(py);
        to.map_or(Ok(()), |party| state.check_party("to", party))?;
        let command = Command::Reveal { ids, to };
        let replies = state.all(py, self, "reveal", |_| command.clone())?;
        let opened = replies.into_iter().find_map(|reply| reply.opened);
        let array = |shown| match shown {
            Shown::Real(numbers) => numbers.into_pyarray(py).into_any(),
            Shown::Whole(numbers) => numbers.into_pyarray(py).into_any(),
        };
        Ok(opened.map(|arrays| arrays.into_iter().map(array).collect()))
    }

    /// The same array with a bound on its numbers that the caller knows.
    fn bound(&self, py: Python<'_>, secret: PyRef<'_, Handle>, bound: f64) -> PyResult<Handle> {
        let id = self.own(&secret)?;
        one(self.make(py, "bound", &[id], |first| Command::Bound { first, id, bound })?)
    }

    /// Writes each party's share to a separate file, encrypted under the key in a file if one is named. Returns the
    /// files.
    #[pyo3(signature = (secret, path, dtype, key=None))]
    fn save(
        &self,
        py: Python<'_>,
        secret: PyRef<'_, Handle>,
        path: PathBuf,
        dtype: &str,
        key: Option<PathBuf>,
    ) -> PyResult<Vec<String>> {
        let id = self.own(&secret)?;
        let key = store_key(key)?;
        let mut state = self.lock(py);
        let replies = state.all(py, self, "save", |_| Command::Export { id })?;
        let numbers = state.numbers();
        let protocol = state.protocol();
        let label = state.label()?;
        drop(state);
        let written = py.detach(|| {
            let each = numbers.into_iter().zip(&replies);
            let file = |(party, reply): (usize, &Reply)| {
                let held = reply.held.as_ref().zip(reply.made.first());
                let (held, format) =
                    held.ok_or_else(|| Failure::new(Kind::Failed, "a share did not come"))?;
                let share = SavedShare {
                    party,
                    protocol,
                    label: label.clone(),
                    dtype: dtype.to_owned(),
                    frac: format.numbers.frac,
                    width: format.numbers.width,
                    held: held.clone(),
                };
                Ok(share.write(&path, key.as_ref())?.display().to_string())
            };
            each.map(file).collect::<Result<Vec<_>>>()
        });
        Ok(written?)
    }

    /// Reads the files of [`Session::save`]. Returns the array and its dtype.
    #[pyo3(signature = (path, key=None))]
    fn load(
        &self,
        py: Python<'_>,
        path: PathBuf,
        key: Option<PathBuf>,
    ) -> PyResult<(Handle, String)> {
        let key = store_key(key)?;
        let mut state = self.lock(py);
        let members = state.numbers();
        let protocol = state.protocol();
        let shares = py.detach(|| {
            let read = |&party: &usize| SavedShare::read(&path, party, key.as_ref());
            let shares = members.iter().map(read).collect::<trefoil::Result<Vec<_>>>()?;
            saved::same(&path, protocol, &shares)?;
            Ok::<_, trefoil::Error>(shares)
        });
        let mut shares = shares.map_err(Failure::from)?;
        let dtype = shares[0].dtype.clone();
        let id = state.number();
        let replies = state.all(py, self, "load", |at| {
            let saved = &mut shares[at];
            let numbers = Format { frac: saved.frac, width: saved.width };
            let format = TensorFormat { shape: saved.shape().clone(), numbers };
            Command::Import { id, format, held: std::mem::take(&mut saved.held) }
        })?;
        Ok((one(self.made(id, &replies))?, dtype))
    }

    /// Secret-shares a model's weights, which party 0 has.
    #[pyo3(signature = (model, owner=0))]
    fn weights(
        &self,
        py: Python<'_>,
        model: PyRef<'_, Model>,
        owner: usize,
    ) -> PyResult<Vec<Handle>> {
        let compiled = model.compiled();
        let formats = compiled.plan.weights().into_iter();
        let formats = formats.map(|spec| encoded(spec.shape, spec.frac)).collect();
        let words = py.detach(|| compiled.plan.encode_weights(&compiled.weights));
        self.share(py, owner, formats, Some(words.map_err(Failure::from)?))
    }

    /// Runs a model's plan on secret weights and inputs, and on what stays from step to step. What stays after it is behind
    /// the results. With a seed a guard checks the run, and its findings are the last result.
    #[pyo3(signature = (model, weights, inputs, guard=None, states=Vec::new()))]
    fn run(
        &self,
        py: Python<'_>,
        model: PyRef<'_, Model>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
        guard: Option<u64>,
        states: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        let plan = if guard.is_some() { model.guarded_plan() } else { model.plan() };
        let inputs = with_states(&plan, inputs, states)?;
        let made = self.run_plan(py, plan.clone(), weights, inputs, guard)?;
        Ok(states_last(&plan, made))
    }

    /// Secret-shares the state with which a training begins.
    #[pyo3(signature = (training, owner=0))]
    fn train_state(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        owner: usize,
    ) -> PyResult<Vec<Handle>> {
        let plan = training.plan();
        let format = |spec: StateSpec| encoded(spec.shape, spec.frac);
        let formats = plan.state().into_iter().map(format).collect();
        let start = training.start_values();
        let words = py.detach(|| plan.encode_state(start)).map_err(Failure::from)?;
        self.share(py, owner, formats, Some(words))
    }

    /// A step of a training: the new state, then the step's metrics, and with `guard` the guard's findings. The
    /// learning rates, of the step and of the one before, are the schedule's unless others are given.
    #[pyo3(signature = (training, state, batch, number, rates=None, guard=false))]
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    fn train_step(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        state: Vec<PyRef<'_, Handle>>,
        batch: Vec<PyRef<'_, Handle>>,
        number: u32,
        rates: Option<(f64, f64)>,
        guard: bool,
    ) -> PyResult<Vec<Handle>> {
        let state = self.ids(&state)?;
        let batch = self.ids(&batch)?;
        let plan = training.plan();
        let step: Step = training.step(number, rates);
        let ids = [&state[..], &batch].concat();
        // The signs are public, and others in every step.
        let guard = guard.then_some(number.into());
        let command = |first| Command::Train { first, plan, state, batch, step, guard };
        self.make(py, "train", &ids, command)
    }

    /// The weights with which the network of a training is applied, made of its state.
    fn train_finish(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        state: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        let state = self.ids(&state)?;
        let plan = training.plan();
        let ids = state.clone();
        self.make(py, "finish", &ids, |first| Command::Finish { first, plan, state })
    }

    /// Runs the network of a training on weights of [`Session::train_finish`].
    fn train_apply(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        let plan = Arc::new(training.plan().inference().clone());
        self.run_plan(py, plan, weights, inputs, None)
    }

    /// Bytes, messages, rounds, seconds and steps since the last call of this, and counts afresh.
    fn cost(&self, py: Python<'_>) -> Total {
        self.lock(py).cost()
    }

    /// Ends the parties. With `wait`, a party of three machines waits until the others have ended too.
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.lock(py).close(py, self, wait)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.lock(py).closed
    }
}
