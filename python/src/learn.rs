//! A client's operations on data sets, trainings and analyses.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use nn_layers::{
    HostTensor,
    train::{Role, TrainRequest},
};
use pyo3::prelude::*;
use ring_arith::{EngineTensor, Tensor};
use trefoil::{
    Preprocess,
    analysis::{AnalysisRequest, Leaves, Step},
    client::{self, Client, Driven, Event, Listed, NewRun, Slice, Watch, agree_on_item},
    config::ClientConfig,
    store::Readers,
    training::{
        Conditions, Course, DataSet, Group, Halt, Join, Openings, Planned, RowTensor, RunSpec,
        Task, Used, Work,
    },
    wire::{DataState, RunState},
};

use crate::{
    errors::{Failure, Kind, Result},
    model::Model,
    train::finished,
};

/// The time between two writes of a run's state to the servers' disks.
const KEEP: Duration = Duration::from_secs(120);

/// A data set in the servers' list: its rows, and the tensors of each row.
#[derive(IntoPyObject)]
pub(crate) struct DataInfo {
    name: String,
    owner: String,
    rows: usize,
    /// Name, dimensions and fraction bits of each tensor, the labels last.
    tensors: Vec<(String, Vec<usize>, u32)>,
    /// The columns from which the rows' keys were made.
    key: Vec<String>,
    /// None for everyone, and for clients other than the owner.
    readers: Option<Vec<String>>,
    state: String,
}

/// A run in the servers' list.
#[derive(IntoPyObject)]
pub(crate) struct RunInfo {
    name: String,
    owner: String,
    /// Names and owners of its data sets.
    data: Vec<(String, String)>,
    /// The joins: both data sets, the number of pairs of an inner one, and the kind.
    joins: Vec<(String, String, Option<usize>, &'static str)>,
    rows: usize,
    /// None of an analysis.
    epochs: Option<u32>,
    step: u32,
    /// Clients that get the trained weights as its owner does.
    recipients: Vec<String>,
    /// Owners of data who have not consented.
    missing: Vec<String>,
    fingerprint: String,
    state: String,
}

impl DataInfo {
    fn of(set: &DataState, state: String) -> Self {
        let tensor = |t: &RowTensor| (t.name.clone(), t.dims.clone(), t.fraction_bits);
        let readers = match &set.readers {
            Some(Readers::Named(names)) => Some(names.clone()),
            Some(Readers::Everyone) | None => None,
        };
        Self {
            name: set.name.clone(),
            owner: set.owner.clone(),
            rows: set.set.rows,
            tensors: set.set.tensors.iter().map(tensor).collect(),
            key: set.set.key.clone(),
            readers,
            state,
        }
    }
}

impl RunInfo {
    fn of(run: &RunState, state: String) -> Self {
        let sets = run.run.spec.data.iter().zip(&run.run.owners);
        let missing = run.run.missing(&run.owner);
        Self {
            name: run.name.clone(),
            owner: run.owner.clone(),
            data: sets.map(|(used, owner)| (used.name.clone(), owner.clone())).collect(),
            joins: run.run.spec.data.windows(2).filter_map(joined).collect(),
            rows: run.run.rows,
            epochs: match &run.run.spec.task {
                Task::Training { course, .. } => Some(course.epochs),
                Task::Analysis => None,
            },
            step: run.run.step,
            recipients: run.run.spec.recipients.clone(),
            missing: missing.into_iter().map(str::to_owned).collect(),
            fingerprint: run.run.fingerprint.letters(),
            state,
        }
    }
}

/// The second of two data sets as it is joined to the first, if it is.
fn joined(both: &[Used]) -> Option<(String, String, Option<usize>, &'static str)> {
    let [left, right] = both else { return None };
    let (rows, kind) = match right.position.join()? {
        Join::Inner { rows } => (Some(rows), "inner"),
        Join::Left => (None, "left"),
    };
    Some((left.name.clone(), right.name.clone(), rows, kind))
}

/// The data sets that the client may use.
pub(crate) fn data_sets(client: &mut Client) -> Result<Vec<DataInfo>> {
    Ok(listed(&client.data_sets()?, DataInfo::of))
}

/// The client's runs, and those that use its data.
pub(crate) fn runs(client: &mut Client) -> Result<Vec<RunInfo>> {
    Ok(listed(&client.runs()?, RunInfo::of))
}

/// Each name once, with whether the servers say the same of it.
fn listed<T: Listed, I>(lists: &[Vec<T>], info: fn(&T, String) -> I) -> Vec<I> {
    let mut items: Vec<&T> = lists.iter().flatten().collect();
    items.sort_by_key(|item| item.name());
    items.dedup_by_key(|item| item.name());
    let state = |item: &T| match agree_on_item::<T>(item.name(), lists) {
        Ok(_) => "ready".to_owned(),
        Err(error) => error.to_string(),
    };
    items.into_iter().map(|item| info(item, state(item))).collect()
}

/// The rows of a data set.
pub(crate) struct DataSetRows {
    /// Each tensor with the words of all rows.
    pub(crate) tensors: Vec<(RowTensor, Tensor)>,
    /// The columns of the key, and the key of each row, if they have one.
    pub(crate) keys: Option<(Vec<String>, Tensor)>,
}

/// Shares the tensors of all rows, and their keys, among the servers.
pub(crate) fn put_data(
    client: &mut Client,
    name: &str,
    DataSetRows { tensors, keys }: DataSetRows,
    conditions: Conditions,
    readers: &Readers,
    replace: bool,
    watch: &dyn Watch,
) -> Result<()> {
    let (tensors, mut words): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
    let (key, keys): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
    words.extend(keys);
    let counts: Vec<usize> = words.iter().map(|words| words.shape().dims()[0]).collect();
    let rows = counts.first().copied().unwrap_or(0);
    if counts.iter().any(|&count| count != rows) {
        return Err(Failure::input(format!("data and labels have {counts:?} rows, not the same")));
    }
    let set = DataSet { rows, tensors, conditions, key: key.concat() };
    set.check()?;
    Ok(client.put_data(name, &set, words, readers, replace, watch)?)
}

/// A run that a client wants.
pub(crate) struct Wanted {
    pub(crate) name: String,
    /// Its data sets.
    pub(crate) data: Vec<Group>,
    pub(crate) request: Arc<TrainRequest>,
    /// The state at the start, encoded.
    pub(crate) state: Vec<Tensor>,
    pub(crate) course: Course,
    pub(crate) labels: Vec<String>,
    /// Clients that get the trained weights as this one does.
    pub(crate) recipients: Vec<String>,
    /// The number of steps over which metrics are summed before they leave; an epoch's unless given.
    pub(crate) metrics_every: Option<u32>,
    /// Steps after which the weights leave, in addition to the last.
    pub(crate) weights_after: Vec<u32>,
    pub(crate) replace: bool,
}

/// Begins a run, or finds the one that is this one.
pub(crate) fn begin(client: &mut Client, run: &Wanted, watch: &dyn Watch) -> Result<RunInfo> {
    let (data, sets) = client.used(&run.data)?;
    let rows: usize = sets.iter().map(|set| set.rows).sum();
    let preprocess = Preprocess::Scale { white: 1.0 };
    let labels = run.labels.clone();
    let recipients = run.recipients.clone();
    let epoch = rows / run.request.batch();
    let openings = Openings::asked(epoch, run.course.epochs, run.metrics_every, &run.weights_after);
    let task = Task::Training { course: run.course, preprocess, labels };
    let spec = RunSpec { data, task, openings, recipients };
    let request =
        serde_json::to_vec(&*run.request).map_err(|cause| Failure::new(Kind::Failed, cause))?;
    let Wanted { name, state, replace, .. } = run;
    let new = NewRun { name, spec: &spec, request: &request, state, replace: *replace };
    let begun = client.begin_run(&new, watch)?;
    Ok(RunInfo::of(&begun, "ready".to_owned()))
}

/// Data sets in the versions that an analysis uses, and the rows that it gets: their number, and the tensors of each.
pub(crate) struct AnalysedRows {
    used: Vec<Used>,
    pub(crate) rows: usize,
    pub(crate) tensors: Vec<RowTensor>,
}

/// The rows that an analysis of these data sets gets.
pub(crate) fn rows_of(client: &mut Client, data: &[Group]) -> Result<AnalysedRows> {
    let (used, sets) = client.used(data)?;
    let rows = sets.iter().map(|set| set.rows).sum();
    let mut sets = sets.into_iter();
    let first = sets.next().ok_or_else(|| Failure::input("an analysis needs a data set"))?;
    for (other, group) in sets.zip(&data[1..]) {
        other.check_like(&group.names().join("`, `"), &first.tensors)?;
    }
    Ok(AnalysedRows { used, rows, tensors: first.tensors })
}

/// An analysis that a client wants.
pub(crate) struct Analysed {
    pub(crate) name: String,
    /// Its data sets.
    pub(crate) data: Vec<Group>,
    pub(crate) steps: Vec<Step>,
    pub(crate) results: Vec<Leaves>,
    /// Clients that get the results as this one does.
    pub(crate) recipients: Vec<String>,
    pub(crate) replace: bool,
}

/// Begins an analysis, or finds the one that is this one.
pub(crate) fn analyse(client: &mut Client, wanted: Analysed, watch: &dyn Watch) -> Result<RunInfo> {
    let Analysed { name, data, steps, results, recipients, replace } = wanted;
    let AnalysedRows { used: data, rows, tensors } = rows_of(client, &data)?;
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let inputs = tensors.into_iter().map(|tensor| RowTensor { columns: Vec::new(), ..tensor });
    let request = AnalysisRequest { inputs: inputs.collect(), rows, steps, results };
    let request =
        serde_json::to_vec(&request).map_err(|cause| Failure::new(Kind::Failed, cause))?;
    let openings = Openings::last(count, count);
    let spec = RunSpec { data, task: Task::Analysis, openings, recipients };
    let new = NewRun { name: &name, spec: &spec, request: &request, state: &[], replace };
    let begun = client.begin_run(&new, watch)?;
    Ok(RunInfo::of(&begun, "ready".to_owned()))
}

/// The state of a run in progress, for the thread that polls it.
#[derive(Default)]
pub(crate) struct Followed {
    news: Mutex<News>,
    stop: AtomicBool,
}

/// The events of a run since the last poll.
#[derive(Default)]
pub(crate) struct News {
    pub(crate) slices: Vec<Progress>,
    /// The reason why the last slice has failed.
    pub(crate) failed: Option<String>,
    /// The clients that have not consented, if that has changed.
    pub(crate) missing: Option<Vec<String>>,
}

/// The progress of a run after a slice.
#[derive(IntoPyObject)]
pub(crate) struct Progress {
    step: u32,
    steps: u32,
    epoch: u32,
    /// Means over the rows of the steps whose metrics left with this slice, if any did.
    metrics: Option<Vec<f64>>,
    seconds: f64,
    bytes: u64,
    rounds: u32,
}

impl Progress {
    fn of(slice: &Slice, steps: u32) -> Self {
        let total = &slice.total;
        Self {
            step: slice.step,
            steps,
            epoch: slice.epoch,
            metrics: slice.metrics.clone(),
            seconds: total.seconds,
            bytes: total.bytes,
            rounds: total.rounds,
        }
    }
}

impl Followed {
    /// Ends the run after a last step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The events since the last call of this.
    pub(crate) fn news(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes an event. Returns true if the run is to continue.
    fn note(&self, note: impl FnOnce(&mut News)) -> bool {
        note(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Goes through a run as soon as all have consented. Returns the step after which it stands.
pub(crate) fn drive(
    mut client: Client,
    config: &ClientConfig,
    name: String,
    followed: &Followed,
) -> Result<u32> {
    let begun = client.run(&name)?;
    let begun = client.wait_for_consent(begun, &mut |run| {
        let missing = run.run.missing(&run.owner).into_iter().map(str::to_owned).collect();
        followed.note(|news| news.missing = Some(missing))
    })?;
    if !begun.run.missing(&begun.owner).is_empty() {
        return Ok(begun.run.step);
    }
    followed.note(|news| news.missing = Some(Vec::new()));
    let planned = client.run_plan(&begun)?;
    let work = Work::new(planned, &begun.run.spec, begun.run.rows)?;
    let steps = work.steps();
    let driven = Driven { name, fingerprint: begun.run.fingerprint, work, keep: KEEP };
    let connect = || client::connect(config);
    let step = driven.run(client, begun.run.step, &connect, &(), &mut |event| match event {
        Event::Slice(slice) => followed.note(|news| news.slices.push(Progress::of(slice, steps))),
        Event::Failed(error) => followed.note(|news| news.failed = Some(error.to_string())),
    })?;
    Ok(step)
}

/// The result of a run.
pub(crate) struct Learnt {
    pub(crate) step: u32,
    /// Weights and running statistics that have changed, or the results of an analysis, by name. Those that are integers
    /// are marked.
    pub(crate) weights: Vec<(String, HostTensor, bool)>,
    /// None of an analysis.
    pub(crate) model: Option<Model>,
}

/// Adds up the weights or results of a run of this client's, or of one that names it among its recipients.
pub(crate) fn get(client: &mut Client, name: &str) -> Result<Learnt> {
    let state = client.run(name)?;
    let planned = client.run_plan(&state)?;
    let step = state.run.step;
    let words = client.release(name, state.run.fingerprint, step, &())?;
    let plan = match &planned {
        Planned::Training(plan) => plan,
        Planned::Analysis(analysis) => {
            let whole = analysis.results().map(|(_, made)| made.format.frac == 0);
            let weights = analysis.decode(&words)?.into_iter().zip(whole);
            let weights = weights.map(|((name, value), whole)| (name, value, whole)).collect();
            return Ok(Learnt { step, weights, model: None });
        }
    };
    let values = plan.decode_network(&words)?;
    let model = Some(finished(plan, &values, plan.inference().frac())?);
    let tensors = plan.state().into_iter().zip(values);
    let learnt = tensors.filter(|(spec, _)| spec.trained && spec.role == Role::Network);
    let weights = learnt.map(|(spec, value)| (spec.name, value, false)).collect();
    Ok(Learnt { step, weights, model })
}

/// Consents to a run whose fingerprint begins with these letters.
pub(crate) fn approve(client: &mut Client, name: &str, letters: &str) -> Result<()> {
    let fingerprint = client.run(name)?.run.fingerprint;
    // 128 bits: finding another run with the same ones is infeasible.
    if letters.len() < 32 || !fingerprint.letters().starts_with(letters) {
        let text = format!(
            "run `{name}` has another fingerprint than {letters:?}; look at it with runs(), and pass at least 32 \
             letters"
        );
        return Err(Failure::input(text));
    }
    Ok(client.approve(name, fingerprint, &())?)
}

/// Withdraws the consent to a run, at each server separately: one server that receives it is enough.
pub(crate) fn withdraw(config: &ClientConfig, name: &str) -> Result<()> {
    let told = client::halt(config, name, Halt::Withdraw)?;
    if told.iter().any(std::result::Result::is_ok) {
        return Ok(());
    }
    Ok(told.into_iter().collect::<trefoil::Result<()>>()?)
}

/// Makes a model of the state of a run.
pub(crate) fn publish(
    client: &mut Client,
    run: &str,
    name: &str,
    readers: &Readers,
    replace: bool,
) -> Result<()> {
    let state = client.run(run)?;
    let state = (run, state.run.fingerprint, state.run.step);
    Ok(client.publish(state, name, readers, replace, &())?)
}
