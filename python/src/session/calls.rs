//! Calls of the parties that a session makes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mpc_core::{Format, Profile, Security, Settings, TruncationMode};
use nn_layers::Plan;
use numpy::PyReadonlyArray1;
use pyo3::{prelude::*, sync::MutexExt, types::PyDict};
use ring_arith::{Shape, Tensor};
use trefoil::{
    StoreKey,
    analysis::{Leaves, Param, Step},
    protocols::ProtocolChoice,
};

use super::{Handle, Inner, Session};
use crate::{
    arrays::ENCODED_WIDTH,
    errors::{Failure, Kind, Result},
    party::{Command, Reply, TensorFormat},
    state::{Start, State},
};

impl Session {
    pub(super) fn open(
        start: Start,
        protocol: ProtocolChoice,
        engine: &str,
        settings: Settings,
        threads: usize,
    ) -> Result<Self> {
        let state = Mutex::new(State::open(start, protocol, engine, settings, threads)?);
        Ok(Self(Arc::new(Inner { state, dropped: Mutex::default(), process: process::id() })))
    }

    /// The process in which the parties' threads are.
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }

    /// Numbers of secrets that Python has dropped since the last call of this.
    pub(crate) fn take_dropped(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.0.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn own(&self, secret: &Handle) -> PyResult<u64> {
        if Arc::ptr_eq(&secret.session, &self.0) {
            return Ok(secret.id);
        }
        let text = "a secret array belongs to the session that made it; this is another session";
        Err(Failure::input(text).into())
    }

    pub(super) fn ids(&self, secrets: &[PyRef<'_, Handle>]) -> PyResult<Vec<u64>> {
        secrets.iter().map(|secret| self.own(secret)).collect()
    }

    pub(super) fn run_plan(
        &self,
        py: Python<'_>,
        plan: Arc<Plan>,
        weights: Vec<PyRef<'_, Handle>>,
        inputs: Vec<PyRef<'_, Handle>>,
        guard: Option<u64>,
    ) -> PyResult<Vec<Handle>> {
        let weights = self.ids(&weights)?;
        let inputs = self.ids(&inputs)?;
        let ids = [&weights[..], &inputs].concat();
        self.make(py, "model", &ids, |first| Command::Run { first, plan, weights, inputs, guard })
    }

    /// Has the parties make arrays of others, and the reference after them if there is one. `command` gets the number
    /// of the first of them.
    pub(super) fn make(
        &self,
        py: Python<'_>,
        step: &str,
        operands: &[u64],
        command: impl FnOnce(u64) -> Command,
    ) -> PyResult<Vec<Handle>> {
        let mut state = self.lock(py);
        let first = state.number();
        let command = command(first);
        let replies = state.all(py, self, step, |_| command.clone())?;
        state.check(py, self, &command, operands)?;
        let made = self.made(first, &replies);
        if let Some(recorder) = &mut state.recorder {
            recorder.note(&command, made.iter().map(|handle| handle.id))?;
        }
        Ok(made)
    }

    /// The steps that this session has recorded, and the results of these names.
    pub(crate) fn recorded(
        &self,
        py: Python<'_>,
        results: &[(String, PyRef<'_, Handle>)],
    ) -> PyResult<(Vec<Step>, Vec<Leaves>)> {
        let named =
            |(name, handle): &(String, PyRef<'_, Handle>)| Ok((name.clone(), self.own(handle)?));
        let results = results.iter().map(named).collect::<PyResult<Vec<_>>>()?;
        let state = self.lock(py);
        let recorder = state.recorder.as_ref();
        let recorder =
            recorder.ok_or_else(|| Failure::input("this session records no analysis"))?;
        Ok(recorder.recorded(&results)?)
    }

    pub(super) fn made(&self, first: u64, replies: &[Reply]) -> Vec<Handle> {
        let formats = replies.first().map(|reply| reply.made.clone()).unwrap_or_default();
        let handle = |(id, format)| Handle { id, format, session: self.0.clone() };
        (first..).zip(formats).map(handle).collect()
    }

    pub(super) fn share(
        &self,
        py: Python<'_>,
        owner: usize,
        tensors: Vec<TensorFormat>,
        words: Option<Vec<Tensor>>,
    ) -> PyResult<Vec<Handle>> {
        let mut state = self.lock(py);
        state.check_party("owner", owner)?;
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

/// The protocol of a number of parties with a dealer.
pub(super) fn with_dealer(parties: usize, settings: Settings) -> Result<ProtocolChoice> {
    let config = |text: String| Failure::new(Kind::Config, text);
    let protocol = format!("dealt-{parties}").parse().map_err(|_| {
        config(format!(
            "parties is {parties}: 2 to 16 compute with a dealer; leave it out for three without one"
        ))
    })?;
    let lacks = |what: &str| {
        config(format!("{what} is for three parties without a dealer: leave out `parties`"))
    };
    if settings.security != Security::SemiHonest {
        return Err(lacks("security=\"checked\""));
    }
    if settings.profile == Profile::SlowLinks {
        return Err(lacks("profile=\"slow-links\""));
    }
    if settings.truncation == TruncationMode::Dither {
        return Err(lacks("truncation=\"dither\""));
    }
    Ok(protocol)
}

/// The inputs of a plan in its order, from those of a step and what stays from step to step.
pub(super) fn with_states<'py>(
    plan: &Plan,
    inputs: Vec<PyRef<'py, Handle>>,
    states: Vec<PyRef<'py, Handle>>,
) -> Result<Vec<PyRef<'py, Handle>>> {
    if plan.states().len() != states.len() {
        let (wanted, got) = (plan.states().len(), states.len());
        return Err(Failure::input(format!("{got} states are given; the model keeps {wanted}")));
    }
    if let Some((state, handle)) = plan.states().iter().zip(&states).next() {
        plan.check_past(handle.format.shape.dims().get(state.axis).copied().unwrap_or(0))?;
    }
    let mut places: Vec<_> = plan.step_inputs().zip(inputs).collect();
    places.extend(plan.states().iter().map(|state| state.input).zip(states));
    places.sort_by_key(|(place, _)| *place);
    Ok(places.into_iter().map(|(_, handle)| handle).collect())
}

/// The results of a plan: those of a step, what stays from step to step, and what a guard found.
pub(super) fn states_last(plan: &Plan, made: Vec<Handle>) -> Vec<Handle> {
    let order = plan.step_outputs().chain(plan.states().iter().map(|state| state.output));
    let order: Vec<_> = order.collect();
    let place = |at: usize| order.iter().position(|&output| output == at).unwrap_or(at);
    let mut placed: Vec<_> = made.into_iter().enumerate().map(|(at, h)| (place(at), h)).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, handle)| handle).collect()
}

/// The format of numbers that were encoded.
pub(super) fn encoded(shape: Shape, frac: u32) -> TensorFormat {
    TensorFormat { shape, numbers: Format { frac, width: ENCODED_WIDTH } }
}

/// The key in a file, if one is named.
pub(super) fn store_key(file: Option<PathBuf>) -> Result<Option<StoreKey>> {
    Ok(file.as_deref().map(StoreKey::read).transpose()?)
}

pub(super) fn one(handles: Vec<Handle>) -> PyResult<Handle> {
    let first = handles.into_iter().next();
    Ok(first.ok_or_else(|| Failure::new(Kind::Failed, "the call made nothing"))?)
}

/// Keyword arguments as numbers.
pub(super) fn numbers(params: &Bound<'_, PyDict>) -> PyResult<BTreeMap<String, Param>> {
    let mut all = BTreeMap::new();
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
