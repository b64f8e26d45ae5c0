//! A session: parties as threads of this process, or this process as one of three parties.

use std::{
    collections::HashMap,
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use gpu_kernels::{AnyEngine, EngineChoice};
use mpc_core::TruncationMode;
use net::{Meter, Metered, Report, Shaped, Stats, in_process};
use nn_layers::{Plan, train::StateSpec};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::{
    prelude::*,
    sync::MutexExt,
    types::{PyDict, PyList},
};
use ring_arith::{Engine, Generator, Shape, Tensor};
use rss_protocols::{Options, Rss};

use crate::{
    arrays::{ENCODED_WIDTH, Public},
    call::{Call, Operand, Param},
    check::Checker,
    errors::{Failure, Kind, Result},
    model::Model,
    party::{Command, Format, Gather, Hand, MOST_MADE, Reply, Stoppable, gathered},
    remote::Remote,
    saved,
    train::Training,
};

/// How often a waiting call looks for Ctrl-C.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How long an interrupted call waits for the parties to notice.
const GRACE: Duration = Duration::from_millis(250);

/// Secrets of at least this many numbers are forgotten at once, others with the next call.
const LARGE: usize = 1 << 14;

type Mpc = Rss<AnyEngine>;

/// Three parties, or one of three.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Numbers of secrets that Python has dropped.
    dropped: Mutex<Vec<u64>>,
    process: u32,
}

pub(crate) struct State {
    parties: Vec<Hand<Mpc>>,
    start: Start,
    options: Options,
    /// Each party's. What a party made stays where its engine computes, also when it starts afresh.
    engines: Vec<AnyEngine>,
    pub(crate) next: u64,
    /// A call that was interrupted and may still run.
    pending: Option<Receiver<()>>,
    /// Whether the parties must start afresh before the next call.
    broken: bool,
    stop: Arc<AtomicBool>,
    meters: Vec<Meter>,
    ledger: Ledger,
    pub(crate) checker: Option<Checker>,
    closed: bool,
}

/// How parties find each other.
enum Start {
    Local { network: Option<net::Shape> },
    Remote(Box<Remote>),
}

/// What was counted since somebody asked.
#[derive(Default)]
struct Ledger {
    /// Of sessions that ended since.
    past: Vec<Report>,
    seconds: f64,
    /// By step: seconds and calls.
    steps: HashMap<String, (f64, u64)>,
}

/// A secret array: its number, and what is public about it.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Handle {
    id: u64,
    format: Format,
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
        self.format.frac
    }

    #[getter]
    fn width(&self) -> u32 {
        self.format.width
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
    /// Three parties as threads of this process.
    #[staticmethod]
    #[pyo3(signature = (engine, truncation, network=None, threads=None))]
    fn local(
        py: Python<'_>,
        engine: &str,
        truncation: &str,
        network: Option<&str>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let network = match network {
            None => None,
            Some("lan") => Some(net::Shape::LAN_1G),
            Some("wan") => Some(net::Shape::WAN_100M),
            Some(other) => {
                let text = format!("network `{other}`: use \"lan\", \"wan\" or None");
                return Err(Failure::new(Kind::Config, text).into());
            }
        };
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(all.div_ceil(3)).max(1);
        let start = Start::Local { network };
        Ok(py.detach(|| Self::open(start, engine, truncation, threads, 3))?)
    }

    /// This process as the party of a configuration file.
    #[staticmethod]
    #[pyo3(signature = (path, engine, truncation))]
    fn party(py: Python<'_>, path: &str, engine: Option<&str>, truncation: &str) -> PyResult<Self> {
        let remote = py.detach(|| Remote::open(path))?;
        let threads = remote.threads();
        let engine = engine.map_or_else(|| remote.engine().to_string(), str::to_owned);
        let start = Start::Remote(Box::new(remote));
        Ok(py.detach(|| Self::open(start, &engine, truncation, threads, 1))?)
    }

    /// This party's number, or None where all three are here.
    #[getter]
    fn me(&self, py: Python<'_>) -> Option<usize> {
        match &self.lock(py).start {
            Start::Local { .. } => None,
            Start::Remote(remote) => Some(remote.me()),
        }
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
        let mut state = self.lock(py);
        let first = state.number();
        let command = Command::Call { first, call };
        state.check(py, self, &command, &ids)?;
        let replies = state.all(py, self, function, |_| command.clone())?;
        Ok(self.made(first, &replies))
    }

    /// Secret-shares arrays of the owner's; the others give shapes and formats alone.
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
            tensors.push(Format { shape, frac, width: ENCODED_WIDTH });
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
    ) -> PyResult<Option<Vec<Bound<'py, PyArray1<f64>>>>> {
        let ids = secrets.iter().map(|x| self.own(x)).collect::<PyResult<Vec<_>>>()?;
        if to.is_some_and(|party| party > 2) {
            return Err(Failure::input("`to` is a party: 0, 1 or 2").into());
        }
        let mut state = self.lock(py);
        let command = Command::Reveal { ids, to };
        let replies = state.all(py, self, "reveal", |_| command.clone())?;
        let opened = replies.into_iter().find_map(|reply| reply.opened);
        Ok(opened.map(|arrays| arrays.into_iter().map(|x| x.into_pyarray(py)).collect()))
    }

    /// The same array with a bound on its numbers that the caller knows.
    fn bound(&self, py: Python<'_>, secret: PyRef<'_, Handle>, bound: f64) -> PyResult<Handle> {
        let id = self.own(&secret)?;
        let mut state = self.lock(py);
        let first = state.number();
        let command = Command::Bound { first, id, bound };
        state.check(py, self, &command, &[id])?;
        let replies = state.all(py, self, "bound", |_| command.clone())?;
        one(self.made(first, &replies))
    }

    /// Writes each party's share to a file of its own. Returns the files.
    fn save(
        &self,
        py: Python<'_>,
        secret: PyRef<'_, Handle>,
        path: &str,
        dtype: &str,
    ) -> PyResult<Vec<String>> {
        let id = self.own(&secret)?;
        let mut state = self.lock(py);
        let replies = state.all(py, self, "save", |_| Command::Export { id })?;
        let numbers = state.numbers();
        let label = state.label()?;
        drop(state);
        let written = py.detach(|| {
            let each = numbers.into_iter().zip(&replies);
            let file = |(party, reply): (usize, &Reply)| {
                let share = reply.share.as_ref().zip(reply.made.first());
                let (share, format) =
                    share.ok_or_else(|| Failure::new(Kind::Failed, "a share did not come"))?;
                saved::write(path, party, &label, dtype, share, format)
            };
            each.map(file).collect::<Result<Vec<_>>>()
        });
        Ok(written?)
    }

    /// Reads what [`Session::save`] wrote: the array and its dtype.
    fn load(&self, py: Python<'_>, path: &str) -> PyResult<(Handle, String)> {
        let mut state = self.lock(py);
        let parties = state.numbers();
        let shares =
            py.detach(|| parties.iter().map(|&p| saved::read(path, p)).collect::<Result<Vec<_>>>());
        let mut shares = shares?;
        saved::same(&shares)?;
        let dtype = shares[0].dtype.clone();
        let id = state.number();
        let replies = state.all(py, self, "load", |at| {
            let saved = &mut shares[at];
            let format = saved.format.clone();
            Command::Import { id, format, mine: saved.mine.clone(), next: saved.next.clone() }
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
        let formats = formats
            .map(|spec| Format { shape: spec.shape, frac: spec.frac, width: ENCODED_WIDTH })
            .collect();
        let encoded = py.detach(|| compiled.plan.encode_weights(&compiled.weights));
        let encoded = encoded.map_err(Failure::from)?;
        self.share(py, owner, formats, Some(encoded))
    }

    /// Runs a model's plan on secret weights and inputs.
    fn run(
        &self,
        py: Python<'_>,
        model: PyRef<'_, Model>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        self.run_plan(py, model.plan(), weights, inputs)
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
        let specs = plan.state().into_iter();
        let format =
            |spec: StateSpec| Format { shape: spec.shape, frac: spec.frac, width: ENCODED_WIDTH };
        let start = training.start_values();
        let encoded = py.detach(|| plan.encode_state(start)).map_err(Failure::from)?;
        self.share(py, owner, specs.map(format).collect(), Some(encoded))
    }

    /// A step of a training: the new state, then what is seen of the step.
    fn train_step(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        state: Vec<PyRef<'_, Handle>>,
        batch: Vec<PyRef<'_, Handle>>,
        rate: f64,
    ) -> PyResult<Vec<Handle>> {
        let tensors = state.iter().map(|x| self.own(x)).collect::<PyResult<Vec<_>>>()?;
        let batch = batch.iter().map(|x| self.own(x)).collect::<PyResult<Vec<_>>>()?;
        let ids: Vec<_> = tensors.iter().chain(&batch).copied().collect();
        let plan = training.plan();
        let mut state = self.lock(py);
        let first = state.number();
        let command = Command::Train { first, plan, state: tensors, batch, rate };
        state.check(py, self, &command, &ids)?;
        let replies = state.all(py, self, "train", |_| command.clone())?;
        Ok(self.made(first, &replies))
    }

    /// Runs the network of a training on the weights of its state.
    fn train_apply(
        &self,
        py: Python<'_>,
        training: PyRef<'_, Training>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        let plan = Arc::new(training.plan().inference().clone());
        self.run_plan(py, plan, weights, inputs)
    }

    /// Whether the plaintext reference runs beside the parties from now on.
    fn set_check(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        let mut state = self.lock(py);
        if !on {
            state.checker = None;
        } else if let Start::Remote(_) = state.start {
            let text = "check() needs the numbers, which no party has: run the script with trefoil.local()";
            return Err(Failure::input(text).into());
        } else if state.checker.is_none() {
            state.checker = Some(Checker::new()?);
        }
        Ok(())
    }

    /// Bytes, messages, rounds, seconds and steps since the last call of this, and counts afresh.
    #[allow(clippy::type_complexity)]
    fn cost(&self, py: Python<'_>) -> (u64, u64, u32, f64, Vec<(String, u64, u32, f64, u64)>) {
        let mut state = self.lock(py);
        state.note_report();
        let ledger = std::mem::take(&mut state.ledger);
        let mut total = (0, 0, 0);
        let mut steps: Vec<(String, u64, u32, f64, u64)> = Vec::new();
        let place = |steps: &mut Vec<(String, u64, u32, f64, u64)>, name: &str| {
            steps.iter().position(|step| step.0 == name).unwrap_or_else(|| {
                let (seconds, calls) = ledger.steps.get(name).copied().unwrap_or_default();
                steps.push((name.to_owned(), 0, 0, seconds, calls));
                steps.len() - 1
            })
        };
        for report in &ledger.past {
            total.0 += report.bytes;
            total.1 += report.messages;
            total.2 += report.rounds;
            for step in report.steps.iter().filter(|step| step.messages > 0 || step.rounds > 0) {
                let at = place(&mut steps, &step.name);
                steps[at].1 += step.bytes;
                steps[at].2 += step.rounds;
            }
        }
        let mut names: Vec<_> = ledger.steps.keys().collect();
        names.sort_unstable();
        names.into_iter().for_each(|name| {
            place(&mut steps, name);
        });
        (total.0, total.1, total.2, ledger.seconds, steps)
    }

    /// Ends the parties. With `wait`, a party of three machines waits until the others have ended too.
    fn close(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        let mut state = self.lock(py);
        let remote = matches!(state.start, Start::Remote(_));
        let ended = if wait && remote && !state.closed && !state.broken {
            state.all(py, self, "close", |_| Command::Close).map(drop)
        } else {
            Ok(())
        };
        state.stop.store(true, Ordering::Relaxed);
        state.closed = true;
        state.parties.clear();
        state.checker = None;
        ended
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.lock(py).closed
    }
}

impl Session {
    fn open(
        start: Start,
        engine: &str,
        truncation: &str,
        threads: usize,
        parties: usize,
    ) -> Result<Self> {
        let choice: EngineChoice =
            engine.parse().map_err(|reason: String| Failure::new(Kind::Config, reason))?;
        let open = |_| match choice.open(threads) {
            Ok((engine, _)) => Ok(engine),
            Err(reason) => Err(Failure::new(Kind::Config, format!("engine `{choice}`: {reason}"))),
        };
        let engines = (0..parties).map(open).collect::<Result<_>>()?;
        let mode = match truncation {
            "default" => TruncationMode::Default,
            "early" => TruncationMode::Early,
            "exact" => TruncationMode::Exact,
            "dither" => TruncationMode::Dither,
            other => {
                let text = format!(
                    "truncation `{other}`: use \"default\", \"early\", \"exact\" or \"dither\""
                );
                return Err(Failure::new(Kind::Config, text));
            }
        };
        let afresh = matches!(start, Start::Local { .. });
        let hands = (0..parties).map(|party| Hand::new(&format!("trefoil party {party}"), afresh));
        let mut state = State {
            parties: hands.collect::<Result<_>>()?,
            start,
            options: Options::default().truncation(mode),
            engines,
            next: 0,
            pending: None,
            broken: false,
            stop: Arc::default(),
            meters: Vec::new(),
            ledger: Ledger::default(),
            checker: None,
            closed: false,
        };
        state.begin()?;
        let state = Mutex::new(state);
        Ok(Self(Arc::new(Inner { state, dropped: Mutex::default(), process: process::id() })))
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.0.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self, secret: &Handle) -> PyResult<u64> {
        if Arc::ptr_eq(&secret.session, &self.0) {
            return Ok(secret.id);
        }
        let text = "a secret array belongs to the session that made it; this is another session";
        Err(Failure::input(text).into())
    }

    fn run_plan(
        &self,
        py: Python<'_>,
        plan: Arc<Plan>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
    ) -> PyResult<Vec<Handle>> {
        let weights = weights.iter().map(|x| self.own(x)).collect::<PyResult<Vec<_>>>()?;
        let inputs = inputs.iter().map(|x| self.own(x)).collect::<PyResult<Vec<_>>>()?;
        let ids: Vec<_> = weights.iter().chain(&inputs).copied().collect();
        let mut state = self.lock(py);
        let first = state.number();
        let command = Command::Run { first, plan, weights, inputs };
        state.check(py, self, &command, &ids)?;
        let replies = state.all(py, self, "model", |_| command.clone())?;
        Ok(self.made(first, &replies))
    }

    fn made(&self, first: u64, replies: &[Reply]) -> Vec<Handle> {
        let formats = replies.first().map(|reply| reply.made.clone()).unwrap_or_default();
        let handle = |(id, format)| Handle { id, format, session: self.0.clone() };
        (first..).zip(formats).map(handle).collect()
    }

    fn share(
        &self,
        py: Python<'_>,
        owner: usize,
        tensors: Vec<Format>,
        words: Option<Vec<Tensor>>,
    ) -> PyResult<Vec<Handle>> {
        if owner > 2 {
            return Err(Failure::input("`owner` is a party: 0, 1 or 2").into());
        }
        let mut state = self.lock(py);
        let parties = state.numbers();
        if parties.contains(&owner) && words.is_none() {
            return Err(Failure::input(format!("party {owner} must give the numbers")).into());
        }
        let first = state.number();
        let replies = state.all(py, self, "input", |at| Command::Input {
            first,
            owner,
            tensors: tensors.clone(),
            words: words.clone().filter(|_| parties[at] == owner),
        })?;
        Ok(self.made(first, &replies))
    }
}

impl State {
    /// Numbers of the parties that are here.
    fn numbers(&self) -> Vec<usize> {
        match &self.start {
            Start::Local { .. } => vec![0, 1, 2],
            Start::Remote(remote) => vec![remote.me()],
        }
    }

    fn number(&mut self) -> u64 {
        self.next += MOST_MADE;
        self.next
    }

    /// A name for what is saved, the same at all parties.
    fn label(&self) -> PyResult<String> {
        Ok(match &self.start {
            Start::Local { .. } => format!("{:016x}", random()?),
            Start::Remote(remote) => remote.label(self.next),
        })
    }

    /// Starts the parties, each with fresh keys and links.
    fn begin(&mut self) -> Result<()> {
        self.note_report();
        self.meters.clear();
        self.stop = Arc::default();
        let sessions = match &mut self.start {
            Start::Local { .. } => in_process::sessions_from_seed(3, random()?),
            Start::Remote(remote) => {
                let agreed = format!("{} {:?}", env!("CARGO_PKG_VERSION"), self.options);
                let generators = self.engines.iter().flat_map(Engine::generators);
                vec![remote.session(&agreed, generators.map(Generator::name).collect())?]
            }
        };
        let network = match self.start {
            Start::Local { network } => network,
            Start::Remote(_) => None,
        };
        for ((hand, session), engine) in self.parties.iter().zip(sessions).zip(&self.engines) {
            let stop = self.stop.clone();
            let inner: Box<dyn net::Transport> = match network {
                Some(shape) => Box::new(Shaped::new(session.transport, shape)),
                None => session.transport,
            };
            let metered = Metered::new(Stoppable { inner, stop });
            self.meters.push(metered.meter());
            let engine = engine.clone();
            let own = engine.generators().first().map(|generator| generator.name().to_owned());
            let prg = session.prg.or(own);
            let session = net::Session { transport: Box::new(metered), prg, ..session };
            let options = self.options;
            hand.start(Box::new(move || Ok(Rss::with_options(session, engine, options)?)));
        }
        self.broken = false;
        Ok(())
    }

    fn note_report(&mut self) {
        let stats: Vec<Stats> = self.meters.iter().map(Meter::stats).collect();
        if !stats.is_empty() {
            self.ledger.past.push(Report::of(&stats));
            self.meters.iter().for_each(Meter::reset);
        }
    }

    fn forget(&mut self, ids: Vec<u64>) {
        if ids.is_empty() {
            return;
        }
        let (nobody, _) = Gather::new(0);
        for hand in &self.parties {
            hand.send(Command::Forget(ids.clone()), &nobody);
        }
        if let Some(checker) = &mut self.checker {
            checker.known.retain(|id| !ids.contains(id));
            checker.hand.send(Command::Forget(ids), &nobody);
        }
    }

    /// Makes the session ready for a call.
    fn ready(&mut self, py: Python<'_>, session: &Session) -> PyResult<()> {
        if session.0.process != process::id() {
            let text = "the session's parties are threads of another process: fork took none of them; \
                        start the session in the process that uses it";
            return Err(Failure::new(Kind::Failed, text).into());
        }
        if self.closed {
            return Err(Failure::new(Kind::Failed, "the session is closed").into());
        }
        if let Some(wait) = self.pending.clone() {
            while !py.detach(|| gathered(&wait, TICK)) {
                py.check_signals()?;
            }
            self.pending = None;
        }
        if self.broken {
            if let Start::Remote(_) = self.start {
                let text = "the session with the other parties is over; start the script again on all three";
                return Err(Failure::new(Kind::Failed, text).into());
            }
            self.begin()?;
        }
        let dropped =
            std::mem::take(&mut *session.0.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        self.forget(dropped);
        Ok(())
    }

    /// Has every party obey a command, and waits. Ctrl-C ends the wait and the command.
    pub(crate) fn all(
        &mut self,
        py: Python<'_>,
        session: &Session,
        step: &str,
        mut command: impl FnMut(usize) -> Command,
    ) -> PyResult<Vec<Reply>> {
        self.ready(py, session)?;
        let began = Instant::now();
        let (gather, wait) = Gather::new(self.parties.len());
        for (at, hand) in self.parties.iter().enumerate() {
            hand.send(command(at), &gather);
        }
        while !py.detach(|| gathered(&wait, TICK)) {
            if let Err(interrupt) = py.check_signals() {
                self.stop.store(true, Ordering::Relaxed);
                self.broken = true;
                if let Start::Remote(remote) = &self.start {
                    remote.cancel();
                }
                if !py.detach(|| gathered(&wait, GRACE)) {
                    self.pending = Some(wait);
                }
                self.undo();
                return Err(interrupt);
            }
        }
        let answers = gather.take();
        self.note(step, began.elapsed(), answers.as_deref().unwrap_or_default());
        Ok(answers.inspect_err(|failure| {
            self.broken = failure.echo || matches!(self.start, Start::Local { .. });
            self.undo();
        })?)
    }

    fn undo(&self) {
        let (nobody, _) = Gather::new(0);
        for hand in &self.parties {
            hand.send(Command::Undo { first: self.next }, &nobody);
        }
    }

    fn note(&mut self, step: &str, took: Duration, replies: &[Reply]) {
        self.ledger.seconds += took.as_secs_f64();
        let mut add = |name: &str, seconds: f64| {
            let entry = self.ledger.steps.entry(name.to_owned()).or_default();
            *entry = (entry.0 + seconds, entry.1 + 1);
        };
        let layers = replies.first().map(|reply| &reply.layers[..]).unwrap_or_default();
        if layers.is_empty() {
            return add(step, took.as_secs_f64());
        }
        for (index, (name, _)) in layers.iter().enumerate() {
            // A party that only sends in a layer is done with it at once.
            let each = replies.iter().filter_map(|reply| reply.layers.get(index));
            let slowest = each.map(|(_, took)| took.as_secs_f64()).fold(0.0, f64::max);
            add(name, slowest);
        }
    }
}

fn one(handles: Vec<Handle>) -> PyResult<Handle> {
    let first = handles.into_iter().next();
    Ok(first.ok_or_else(|| Failure::new(Kind::Failed, "the call made nothing"))?)
}

fn random() -> Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|cause| Failure::new(Kind::Failed, cause))?;
    Ok(u64::from_le_bytes(seed))
}

/// Keyword arguments as numbers.
fn numbers(params: &Bound<'_, PyDict>) -> PyResult<HashMap<String, Param>> {
    let mut all = HashMap::new();
    for (name, value) in params.iter() {
        // Arrays first: one of a single number is a number too.
        let number = if let Ok(values) = value.extract::<PyReadonlyArray1<'_, i64>>() {
            Param::Ints(values.as_array().to_vec())
        } else if let Ok(value) = value.extract::<i64>() {
            Param::Int(value)
        } else if let Ok(value) = value.extract::<f64>() {
            Param::Float(value)
        } else if let Ok(values) = value.extract::<Vec<i64>>() {
            Param::Ints(values)
        } else {
            Param::Floats(value.extract()?)
        };
        all.insert(name.extract()?, number);
    }
    Ok(all)
}
