//! `trefoil train`: having the servers train a network, slice by slice.
//!
//! A slice is a job like any other, of about a second, so that inferences wait no longer than that. This side
//! says how many steps the next one has; the state stays on the servers, in memory, and now and then on disk. If
//! a server or a link fails, the run goes on from the state on disk.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use models::onnx::{self, ImportOptions};
use nn_layers::train::{
    Adam, Decay, Loss, Metric, Optimiser, Schedule, Second, TrainOptions, TrainPlan,
};
use ring_arith::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, Error, Preprocess, Result,
    cli::{Global, Train},
    client::{Client, NewRun, Watch, agree_on_item},
    config::check_name,
    import,
    output::{Output, Progress, bytes, seconds},
    profile::Total,
    training::{Course, RunSpec, Training, Used},
    wire::RunState,
};

/// How long a slice should take, in seconds.
const SLICE: f64 = 1.0;

/// The most steps of a slice.
const MOST: u32 = 10_000;

/// How long to wait between questions whether all have consented.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a run may stand still because servers cannot be reached or fail, before that is an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often linked servers refuse in the same words before that is taken for their last word.
const REFUSALS: u32 = 3;

/// The file that says what to train.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    name: String,
    start: PathBuf,
    data: Vec<String>,
    model: String,
    #[serde(default)]
    readers: Vec<String>,
    #[serde(default)]
    recipients: Vec<String>,
    labels: Option<PathBuf>,
    train: How,
}

/// How the network is trained.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct How {
    epochs: u32,
    batch: usize,
    rate: f64,
    #[serde(default)]
    warm_up: u32,
    #[serde(default)]
    decay: Fall,
    #[serde(default)]
    loss: Kind,
    #[serde(default)]
    optimiser: Follows,
    #[serde(default)]
    momentum: f64,
    #[serde(default)]
    nesterov: bool,
    #[serde(default)]
    weight_decay: f64,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    seed: u64,
    #[serde(default = "default_keep")]
    keep_seconds: u64,
}

/// How the rate falls.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fall {
    #[default]
    None,
    Cosine,
}

/// What is made small.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    CrossEntropy,
    BinaryCrossEntropy,
    MeanSquare,
}

/// How weights follow their gradients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Follows {
    #[default]
    Sgd,
    Adam,
    AdamByRow,
}

fn default_keep() -> u64 {
    120
}

/// What an epoch was like.
#[derive(Debug, Clone, Serialize)]
struct Point {
    epoch: u32,
    loss: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<f64>,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    model: String,
    steps: u32,
    /// Steps that were done again after a failure, or were done before.
    from: u32,
    seconds: f64,
    bytes: u64,
    rounds: u32,
    curve: Vec<Point>,
}

/// A run as this side knows it.
struct Task<'a> {
    config: &'a Config,
    training: Training,
    fingerprint: Digest,
}

pub(super) fn run(arguments: &Train, global: &Global, output: Output) -> Result<()> {
    let config = Config::read(&arguments.file)?;
    let readers = super::model::named(&config.readers)?;
    let progress = output.progress("planning the training");
    let (plan, state) = config.plan()?;
    drop(progress);
    let mut client = super::connect(global)?;
    let begun = begin(&mut client, &config, arguments.replace, &plan, &state, output)?;
    let training = Training::new(plan, begun.run.spec.course, begun.run.rows)?;
    let task = Task { config: &config, training, fingerprint: begun.run.fingerprint };
    if arguments.prepare {
        return super::runs::show(&begun, task.training.plan(), output);
    }
    let begun = wait_for_consent(&mut client, begun, output)?;
    let mut report = task.train(client, begun.run.step, global, output)?;
    let mut client = super::connect(global)?;
    let progress = output.progress("making a model of it");
    let state = (config.name.as_str(), task.fingerprint, task.training.steps());
    let known = client.described(&config.model)?.iter().any(Result::is_ok);
    client.publish(state, &config.model, &readers, known && arguments.replace, &progress)?;
    drop(progress);
    report.model.clone_from(&config.model);
    output.result(&report, || {
        format!(
            "{}: {} steps in {}, {} between the servers, {} rounds; the network is model {}",
            report.run,
            report.steps - report.from,
            seconds(report.seconds),
            bytes(report.bytes),
            report.rounds,
            report.model
        )
    })
}

/// The run on the servers: the one that is there if it is this one, else a new one.
fn begin(
    client: &mut Client,
    config: &Config,
    replace: bool,
    plan: &TrainPlan,
    state: &[Tensor],
    output: Output,
) -> Result<RunState> {
    let spec = config.spec(client)?;
    let written = serde_json::to_vec(plan)
        .map_err(|cause| Error::Internal(format!("training plan: {cause}")))?;
    let runs = client.runs()?;
    if !replace && runs.iter().flatten().any(|run| run.name == config.name) {
        let known = agree_on_item(&config.name, &runs)?;
        if known.run.spec == spec && known.run.plan == Digest::of(&[&written]) {
            output
                .remark(format!("going on after step {} of run {}", known.run.step, known.name))?;
            return Ok(known.clone());
        }
        let reason =
            "the servers have another run of that name; --replace begins anew, or use another name";
        return Err(Error::refused(format_args!("run `{}`", config.name), reason));
    }
    let progress = output.progress("sharing the network");
    let new = NewRun { name: &config.name, spec: &spec, plan: &written, state, replace };
    client.put_run(&new, &progress)?;
    drop(progress);
    client.run(&config.name)
}

/// Waits until the owners of all data have consented.
fn wait_for_consent(client: &mut Client, mut state: RunState, output: Output) -> Result<RunState> {
    let mut told = false;
    loop {
        let missing = state.run.missing(&state.owner).join(", ");
        if missing.is_empty() {
            return Ok(state);
        }
        if !told {
            output.remark(format!(
                "run {} waits for the consent of {missing}: trefoil run approve {0} {1}",
                state.name,
                super::runs::shown(state.run.fingerprint)
            ))?;
            told = true;
        }
        thread::sleep(PAUSE);
        state = client.run(&state.name)?;
    }
}

impl Config {
    fn read(path: &Path) -> Result<Self> {
        let bad = |reason: String| Error::input(path.display(), reason);
        let text =
            fs::read_to_string(path).map_err(|cause| bad(format!("cannot be read: {cause}")))?;
        let mut config: Self = toml::from_str(&text).map_err(|cause| {
            let at = cause.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..at].matches('\n').count() + 1;
            bad(format!("line {line}: {}", cause.message()))
        })?;
        for (what, name) in [("name", &config.name), ("model", &config.model)] {
            check_name(what, name).map_err(&bad)?;
        }
        if config.data.is_empty() {
            return Err(bad("`data` names no data set".to_owned()));
        }
        if config.train.epochs == 0 || config.train.batch == 0 {
            return Err(bad("`epochs` and `batch` must be 1 or more".to_owned()));
        }
        let how = &config.train;
        if how.optimiser != Follows::Sgd && (how.momentum != 0.0 || how.nesterov) {
            return Err(
                bad("`momentum` and `nesterov` belong to `optimiser = \"sgd\"`".to_owned()),
            );
        }
        // Files are named as seen from this one.
        let folder = path.parent().unwrap_or(Path::new(""));
        config.start = folder.join(&config.start);
        config.labels = config.labels.map(|labels| folder.join(labels));
        Ok(config)
    }

    /// The plan of a step, and the words of the state at the start.
    fn plan(&self) -> Result<(TrainPlan, Vec<Tensor>)> {
        let what = self.start.display().to_string();
        let bad = |cause: nn_layers::Error| Error::input(&what, cause);
        let graph =
            import::checked(&what, || onnx::import_file(&self.start, &ImportOptions::default()))?;
        let mut graph = graph.for_batch(self.train.batch).map_err(bad)?;
        let output = graph.only_output().map_err(bad)?;
        let only = &self.train.only;
        let trained =
            graph.train(|name| only.is_empty() || only.iter().any(|part| name.contains(part)));
        if trained.is_empty() {
            let reason = format!("no weight has one of {only:?} in its name");
            return Err(Error::input(&what, reason));
        }
        let how = &self.train;
        let loss = match how.loss {
            Kind::CrossEntropy => Loss::CrossEntropy { smoothing: 0.0 },
            Kind::BinaryCrossEntropy => Loss::BinaryCrossEntropy,
            Kind::MeanSquare => Loss::MeanSquare,
        };
        let metrics = match how.loss {
            Kind::CrossEntropy => vec![Metric::Loss, Metric::Right],
            _ => vec![Metric::Loss],
        };
        let options = TrainOptions::default()
            .with_loss(loss)
            .with_optimiser(how.optimiser())
            .with_largest_rate(how.rate)
            .with_metrics(metrics);
        let (plan, start) = TrainPlan::new(&graph, output, &options).map_err(bad)?;
        let words = plan.encode_state(&start).map_err(bad)?;
        Ok((plan, words))
    }

    /// What is to be trained on what, with the versions of the data sets that are on the servers.
    fn spec(&self, client: &mut Client) -> Result<RunSpec> {
        let sets = client.data_sets()?;
        let mut data = Vec::new();
        let mut rows = 0;
        for name in &self.data {
            let set = agree_on_item(name, &sets)?;
            rows += set.set.rows;
            data.push(Used { name: name.clone(), version: set.version });
        }
        let how = &self.train;
        let steps = (rows / how.batch).saturating_mul(how.epochs as usize);
        let decay = match how.decay {
            Fall::None => Decay::None,
            Fall::Cosine => Decay::Cosine(u32::try_from(steps).unwrap_or(u32::MAX)),
        };
        let schedule = Schedule { rate: how.rate, decay, warm_up: how.warm_up };
        let course = Course { epochs: how.epochs, seed: how.seed, schedule };
        let labels = self.labels.as_deref().map(super::model::labels).transpose()?;
        let preprocess = Preprocess::Scale { white: 1.0 };
        let recipients = self.recipients.clone();
        Ok(RunSpec { data, course, preprocess, labels: labels.unwrap_or_default(), recipients })
    }
}

impl How {
    /// Adam's weight decay is that of AdamW: it leaves the moments alone.
    fn optimiser(&self) -> Optimiser {
        let (momentum, nesterov, decay) = (self.momentum, self.nesterov, self.weight_decay);
        let adam = |second| Adam { decay, decoupled: decay > 0.0, second, ..Adam::default() };
        match self.optimiser {
            Follows::Sgd => Optimiser::Sgd { momentum, nesterov, decay },
            Follows::Adam => Optimiser::Adam(adam(Second::Weight)),
            Follows::AdamByRow => Optimiser::Adam(adam(Second::Row)),
        }
    }
}

/// What is known of the epoch under way.
#[derive(Default)]
struct Sums {
    steps: u32,
    metrics: Vec<f64>,
    seconds: f64,
}

impl Task<'_> {
    /// Goes through all steps from `from` on.
    fn train(&self, client: Client, from: u32, global: &Global, output: Output) -> Result<Report> {
        let progress = output.progress("training");
        let all = self.training.steps();
        let (mut client, mut step, mut slice) = (Some(client), from, 1);
        let (mut epoch, mut curve) = (Sums::default(), Vec::new());
        let mut cost: Option<Total> = None;
        let mut kept = Instant::now();
        let mut trouble = Trouble::default();
        while step < all {
            let end = (step / self.training.epoch_steps() + 1) * self.training.epoch_steps();
            let steps = slice.min(end - step);
            let keep =
                step + steps == all || kept.elapsed().as_secs() >= self.config.train.keep_seconds;
            let outcome = self.slice(&mut client, global, step, steps, keep, &progress);
            let (metrics, total) = match outcome {
                Ok(done) => done,
                Err(error) => {
                    progress.word(&format!("{error}; looking whether that passes"));
                    client = None;
                    thread::sleep(PAUSE);
                    let standing = self.standing(global)?;
                    trouble.check(error, standing.as_ref())?;
                    if let Some(standing) = standing {
                        (step, epoch) = (standing.step, Sums::default());
                    }
                    continue;
                }
            };
            trouble = Trouble::default();
            if keep {
                kept = Instant::now();
            }
            step += steps;
            let rate = f64::from(steps) / total.seconds.max(1e-6);
            slice = ((rate * SLICE) as u32).clamp(1, MOST);
            epoch.add(steps, &metrics, total.seconds);
            let left = f64::from(all - step) / rate;
            progress.word(&format!("{}, {} left", self.line(step, &epoch), seconds(left)));
            match &mut cost {
                Some(sum) => sum.add(&total),
                None => cost = Some(total),
            }
            if step == end {
                let point = epoch.point(step / self.training.epoch_steps());
                output.remark(self.line(step, &epoch))?;
                curve.push(point);
                epoch = Sums::default();
            }
        }
        let (seconds, bytes, rounds) =
            cost.map_or((0.0, 0, 0), |cost| (cost.seconds, cost.bytes, cost.rounds));
        let (run, model) = (self.config.name.clone(), String::new());
        Ok(Report { run, model, steps: all, from, seconds, bytes, rounds, curve })
    }

    /// One slice. Returns the sums of the metrics for each row, and what it took.
    fn slice(
        &self,
        client: &mut Option<Client>,
        global: &Global,
        from: u32,
        steps: u32,
        keep: bool,
        progress: &Progress,
    ) -> Result<(Vec<f64>, Total)> {
        let connected = match client {
            Some(client) => client,
            None => client.insert(super::connect(global)?),
        };
        let name = &self.config.name;
        let answer = connected.train(name, self.fingerprint, from, steps, keep, progress)?;
        let metrics = self.training.decode_metrics(&answer.outputs, from..from + steps)?;
        Ok((metrics, Total::of(&answer.costs)))
    }

    /// What the servers say of the run, if all three can be asked and say the same.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run cannot go on: it is not there any more, or another one, lacks consent, or was
    /// stopped.
    fn standing(&self, global: &Global) -> Result<Option<Standing>> {
        let name = &self.config.name;
        let Ok(mut client) = super::connect(global) else { return Ok(None) };
        let (Ok(runs), Ok(linked)) = (client.runs(), client.linked()) else { return Ok(None) };
        let gone = |reason: &str| Err(Error::refused(format_args!("run `{name}`"), reason));
        if !runs.iter().flatten().any(|run| run.name == *name) {
            return gone("was removed meanwhile");
        }
        // A server may be on its way from one kept state to the next.
        let Ok(state) = agree_on_item(name, &runs) else { return Ok(None) };
        if state.run.fingerprint != self.fingerprint {
            return gone("was replaced by another one meanwhile");
        }
        let missing = state.run.missing(&state.owner);
        if !missing.is_empty() {
            return gone(&format!("lacks the consent of {}", missing.join(", ")));
        }
        if state.run.stopped {
            return gone(&format!("was stopped; `trefoil run resume {name}` lets it go on"));
        }
        Ok(Some(Standing { step: state.run.step, linked }))
    }

    fn line(&self, step: u32, epoch: &Sums) -> String {
        let number = step.div_ceil(self.training.epoch_steps());
        let point = epoch.point(number);
        let right =
            point.right.map_or(String::new(), |right| format!("  right {:.1} %", 100.0 * right));
        let (epochs, all) = (self.training.course().epochs, self.training.steps());
        format!(
            "epoch {number}/{epochs}  step {step}/{all}  loss {:.4}{right}  {} a step",
            point.loss,
            seconds(epoch.seconds / f64::from(epoch.steps.max(1))),
        )
    }
}

/// A run as the servers have it.
struct Standing {
    /// After which step they have kept the state.
    step: u32,
    /// Whether each has a session with the two others.
    linked: bool,
}

/// What has gone wrong since the last slice that was done.
struct Trouble {
    since: Instant,
    /// What linked servers said last, and how often in a row.
    said: String,
    times: u32,
}

impl Default for Trouble {
    fn default() -> Self {
        Self { since: Instant::now(), said: String::new(), times: 0 }
    }
}

impl Trouble {
    /// Returns the error if it does not pass: it comes of this machine, or linked servers have said the same
    /// several times, or it has lasted too long.
    fn check(&mut self, error: Error, standing: Option<&Standing>) -> Result<()> {
        let refused = match &error {
            Error::Unreachable { .. } => false,
            Error::Refused { .. } => standing.is_some_and(|standing| standing.linked),
            _ => return Err(error),
        };
        let said = error.to_string();
        if refused && said == self.said {
            self.times += 1;
        } else {
            self.times = u32::from(refused);
            self.said = said;
        }
        if self.times >= REFUSALS || self.since.elapsed() >= PATIENCE {
            return Err(error);
        }
        Ok(())
    }
}

impl Sums {
    fn add(&mut self, steps: u32, metrics: &[f64], seconds: f64) {
        self.metrics.resize(metrics.len(), 0.0);
        for (sum, metric) in self.metrics.iter_mut().zip(metrics) {
            *sum += metric * f64::from(steps);
        }
        self.steps += steps;
        self.seconds += seconds;
    }

    fn point(&self, epoch: u32) -> Point {
        let of = |at: usize| Some(self.metrics.get(at)? / f64::from(self.steps.max(1)));
        let loss = of(0).unwrap_or(f64::NAN);
        Point { epoch, loss, right: of(1), seconds: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(linked: bool) -> Option<Standing> {
        Some(Standing { step: 0, linked })
    }

    #[test]
    fn what_linked_servers_say_three_times_is_their_last_word() {
        let mut trouble = Trouble::default();
        let refused = |reason: &str| Error::refused("party 1", reason);
        for _ in 0..5 {
            // While servers look for each other, or cannot be asked, anything may pass.
            trouble.check(refused("no room"), linked(false).as_ref()).unwrap();
            trouble.check(refused("no room"), None).unwrap();
        }
        let unreachable = || Error::Unreachable { server: "0".into(), reason: "gone".into() };
        (0..5).for_each(|_| trouble.check(unreachable(), linked(true).as_ref()).unwrap());
        for reason in ["no room", "no room", "another", "no room", "no room"] {
            trouble.check(refused(reason), linked(true).as_ref()).unwrap();
        }
        trouble.check(refused("no room"), linked(true).as_ref()).unwrap_err();
    }

    #[test]
    fn what_comes_of_this_machine_and_what_lasts_too_long_does_not_pass() {
        let mut trouble = Trouble::default();
        trouble.check(Error::input("a file", "is not there"), None).unwrap_err();
        let refused = || Error::refused("party 1", "busy");
        trouble.check(refused(), None).unwrap();
        trouble.since = Instant::now().checked_sub(PATIENCE).unwrap();
        trouble.check(refused(), None).unwrap_err();
    }
}
