//! `trefoil train`: having the servers train a network, slice by slice.
//!
//! A slice is a job like any other, of about a second, so that inferences wait no longer than that. This side
//! says how many steps the next one has; the state stays on the servers, in memory, and now and then on disk. If
//! a server or a link fails, the run goes on from the state on disk.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use models::onnx::{self, ImportOptions};
use nn_layers::train::{
    Adam, Decay, Loss, Metric, Optimiser, Privacy, Schedule, Second, TrainOptions, TrainPlan,
    TrainRequest,
};
use ring_arith::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, Error, Preprocess, Result,
    cli::{Global, Train},
    client::{Client, Driven, Event, NewRun, Slice, Watch, agree_on_item},
    config::check_name,
    import,
    output::{Output, bytes, seconds},
    profile::Total,
    training::{Augment, Course, Openings, RunSpec, Training},
    wire::RunState,
};

/// The file that says what to train.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    name: String,
    start: PathBuf,
    data: Vec<Sets>,
    model: String,
    #[serde(default)]
    readers: Vec<String>,
    #[serde(default)]
    recipients: Vec<String>,
    labels: Option<PathBuf>,
    train: How,
}

/// A data set, or several that hold columns of the same rows.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Sets {
    One(String),
    Beside(Vec<String>),
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
    /// The largest norm of the batch's gradient; with noise, of each row's.
    clip: Option<f64>,
    /// The noise multiplier.
    noise: Option<f64>,
    /// At which epsilon is told.
    delta: Option<f64>,
    /// Rows whose mean gradient is clipped together.
    microbatch: Option<usize>,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    flip: bool,
    #[serde(default)]
    crop: usize,
    #[serde(default = "default_keep")]
    keep_seconds: u64,
    /// Metrics leave as sums over so many steps; an epoch's unless given.
    metrics_every: Option<u32>,
    /// Steps after which the weights leave besides the last.
    #[serde(default)]
    weights_after: Vec<u32>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
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
    /// What the run has told of a row, if it had noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    privacy: Option<Protected>,
    curve: Vec<Point>,
}

/// Epsilon of a run, and the delta at which it holds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Protected {
    epsilon: f64,
    delta: f64,
}

pub(super) fn run(arguments: &Train, global: &Global, output: Output) -> Result<()> {
    let config = Config::read(&arguments.file)?;
    let readers = super::model::named(&config.readers)?;
    let progress = output.progress("planning the training");
    let (request, plan, state) = config.plan()?;
    drop(progress);
    let mut client = super::connect(global)?;
    let begun = begin(&mut client, &config, arguments.replace, &request, &state, output)?;
    let training = Training::new(plan, &begun.run.spec, begun.run.rows)?;
    if arguments.prepare {
        let sets = client.data_sets()?;
        return super::runs::show(&begun, training.plan(), &sets, output);
    }
    let begun = wait_for_consent(&mut client, begun, output)?;
    let driven = Driven {
        name: config.name.clone(),
        fingerprint: begun.run.fingerprint,
        training,
        keep: Duration::from_secs(config.train.keep_seconds),
    };
    let mut report = train(&driven, client, begun.run.step, global, output)?;
    let mut client = super::connect(global)?;
    let progress = output.progress("making a model of it");
    let state = (config.name.as_str(), driven.fingerprint, driven.training.steps());
    let known = client.described(&config.model)?.iter().any(Result::is_ok);
    client.publish(state, &config.model, &readers, known && arguments.replace, &progress)?;
    drop(progress);
    report.model.clone_from(&config.model);
    output.result(&report, || {
        format!(
            "{}: {} steps in {}, {} between the servers, {} rounds{}; the network is model {}",
            report.run,
            report.steps - report.from,
            seconds(report.seconds),
            bytes(report.bytes),
            report.rounds,
            report.privacy.map_or(String::new(), |Protected { epsilon, delta }| format!(
                "; it tells of a row with epsilon {epsilon:.3} at delta {delta}"
            )),
            report.model
        )
    })
}

/// The run on the servers: the one that is there if it is this one, else a new one.
fn begin(
    client: &mut Client,
    config: &Config,
    replace: bool,
    request: &TrainRequest,
    state: &[Tensor],
    output: Output,
) -> Result<RunState> {
    let spec = config.spec(client)?;
    let written = serde_json::to_vec(request)
        .map_err(|cause| Error::Internal(format!("training request: {cause}")))?;
    let runs = client.runs()?;
    if !replace && runs.iter().flatten().any(|run| run.name == config.name) {
        let known = agree_on_item(&config.name, &runs)?;
        if known.run.spec == spec && known.run.request == Digest::of(&[&written]) {
            output
                .remark(format!("going on after step {} of run {}", known.run.step, known.name))?;
            return Ok(known);
        }
        let reason =
            "the servers have another run of that name; --replace begins anew, or use another name";
        return Err(Error::refused(format_args!("run `{}`", config.name), reason));
    }
    let progress = output.progress("sharing the network");
    let new = NewRun { name: &config.name, spec: &spec, request: &written, state, replace };
    client.put_run(&new, &progress)?;
    drop(progress);
    client.run(&config.name)
}

/// Waits until the owners of all data have consented.
fn wait_for_consent(client: &mut Client, state: RunState, output: Output) -> Result<RunState> {
    let mut told = None;
    let state = client.wait_for_consent(state, &mut |state| {
        let missing = state.run.missing(&state.owner).join(", ");
        told.get_or_insert_with(|| {
            output.remark(format!(
                "run {} waits for the consent of {missing}: trefoil run approve {0} {1}",
                state.name,
                super::runs::shown(state.run.fingerprint)
            ))
        })
        .is_ok()
    })?;
    told.unwrap_or(Ok(()))?;
    Ok(state)
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
        if config.groups().iter().all(Vec::is_empty) {
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
        how.privacy().map_err(bad)?;
        // Files are named as seen from this one.
        let folder = path.parent().unwrap_or(Path::new(""));
        config.start = folder.join(&config.start);
        config.labels = config.labels.map(|labels| folder.join(labels));
        Ok(config)
    }

    /// The data sets, those that stand side by side together.
    fn groups(&self) -> Vec<Vec<String>> {
        let group = |sets: &Sets| match sets {
            Sets::One(name) => vec![name.clone()],
            Sets::Beside(names) => names.clone(),
        };
        self.data.iter().map(group).collect()
    }

    /// The training request, the plan of a step, and the words of the state at the start.
    fn plan(&self) -> Result<(TrainRequest, TrainPlan, Vec<Tensor>)> {
        let what = self.start.display().to_string();
        let bad = |cause: nn_layers::Error| Error::input(&what, cause);
        let graph = import::checked(&what, || {
            onnx::import_file(&self.start, &ImportOptions::default().for_training())
        })?;
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
        let options = TrainOptions::default()
            .with_loss(loss)
            .with_optimiser(how.optimiser())
            .with_largest_rate(how.rate);
        let options = match (how.privacy().map_err(|reason| Error::input(&what, reason))?, how.clip)
        {
            // Metrics are sums over training rows, which no noise protects.
            (Some(privacy), _) => options.with_privacy(privacy),
            (None, Some(clip)) => options.with_clip(clip).with_metrics(how.metrics()),
            (None, None) => options.with_metrics(how.metrics()),
        };
        let (request, plan, start) =
            TrainPlan::with_request(&graph, output, &options).map_err(bad)?;
        let words = plan.encode_state(&start).map_err(bad)?;
        Ok((request, plan, words))
    }

    /// What is to be trained on what, with the versions of the data sets that are on the servers.
    fn spec(&self, client: &mut Client) -> Result<RunSpec> {
        let (data, rows) = client.used(&self.groups())?;
        let how = &self.train;
        let epoch = rows / how.batch;
        let steps = epoch.saturating_mul(how.epochs as usize);
        let openings = Openings::asked(epoch, how.epochs, how.metrics_every, &how.weights_after);
        let decay = match how.decay {
            Fall::None => Decay::None,
            Fall::Cosine => Decay::Cosine(u32::try_from(steps).unwrap_or(u32::MAX)),
        };
        let schedule = Schedule { rate: how.rate, decay, warm_up: how.warm_up };
        let augment = Augment { flip: how.flip, crop: how.crop };
        let course = Course { epochs: how.epochs, seed: how.seed, schedule, augment };
        let labels = self.labels.as_deref().map(super::model::labels).transpose()?;
        let preprocess = Preprocess::Scale { white: 1.0 };
        let recipients = self.recipients.clone();
        let labels = labels.unwrap_or_default();
        Ok(RunSpec { data, course, openings, preprocess, labels, recipients })
    }
}

impl How {
    /// How rows are protected, if they are.
    fn privacy(&self) -> std::result::Result<Option<Privacy>, String> {
        let Some(noise) = self.noise else {
            return match (self.delta, self.microbatch) {
                (None, None) => Ok(None),
                _ => Err("`delta` and `microbatch` belong to `noise`".to_owned()),
            };
        };
        let clip = self.clip.ok_or("`noise` needs `clip`, the largest norm of a row's gradient")?;
        if self.metrics_every.is_some() {
            return Err(
                "no metrics leave a training with `noise`: leave `metrics-every` out".to_owned()
            );
        }
        let privacy = Privacy::new(clip, noise).with_rows(self.microbatch.unwrap_or(1));
        Ok(Some(self.delta.map_or(privacy, |delta| privacy.with_delta(delta))))
    }

    /// What is seen of a training without noise.
    fn metrics(&self) -> Vec<Metric> {
        match self.loss {
            Kind::CrossEntropy => vec![Metric::Loss, Metric::Right],
            _ => vec![Metric::Loss],
        }
    }

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

/// Goes through a run's steps after `from`, and prints how it is.
fn train(
    driven: &Driven,
    client: Client,
    from: u32,
    global: &Global,
    output: Output,
) -> Result<Report> {
    let progress = output.progress("training");
    let mut curve = Vec::new();
    let mut cost: Option<Total> = None;
    let mut printed = Ok(());
    let mut told = |event: Event<'_>| {
        let slice = match event {
            Event::Failed(error) => {
                progress.word(&format!("{error}; looking whether that passes"));
                return true;
            }
            Event::Slice(slice) => slice,
        };
        let each = slice.total.seconds / f64::from(slice.steps);
        let left = f64::from(driven.training.steps() - slice.step) * each;
        let line = line(&driven.training, slice);
        progress.word(&format!("{line}, {} left", seconds(left)));
        match &mut cost {
            Some(sum) => sum.add(&slice.total),
            None => cost = Some(slice.total.clone()),
        }
        if slice.ends_epoch {
            // A run that fell back to an earlier epoch goes through some again.
            curve.retain(|before: &Point| before.epoch < slice.epoch);
            curve.push(point(slice));
            printed = output.remark(&line);
        }
        printed.is_ok()
    };
    let connect = || super::connect(global);
    driven.run(client, from, &connect, &progress, &mut told)?;
    printed?;
    let (seconds, bytes, rounds) =
        cost.map_or((0.0, 0, 0), |cost| (cost.seconds, cost.bytes, cost.rounds));
    let training = &driven.training;
    let privacy = match (training.privacy()?, training.plan().options().privacy) {
        (Some(cost), Some(privacy)) => {
            Some(Protected { epsilon: cost.epsilon(privacy.delta)?, delta: privacy.delta })
        }
        _ => None,
    };
    let (run, model, steps) = (driven.name.clone(), String::new(), training.steps());
    Ok(Report { run, model, steps, from, seconds, bytes, rounds, privacy, curve })
}

/// What an epoch was like.
fn point(slice: &Slice) -> Point {
    let of = |at: usize| slice.so_far.metrics.get(at).copied();
    Point { epoch: slice.epoch, loss: of(0), right: of(1), seconds: slice.so_far.seconds }
}

fn line(training: &Training, slice: &Slice) -> String {
    let Point { epoch, loss, right, .. } = point(slice);
    let loss = loss.map_or(String::new(), |loss| format!("  loss {loss:.4}"));
    let right = right.map_or(String::new(), |right| format!("  right {:.1} %", 100.0 * right));
    let (epochs, all, step) = (training.course().epochs, training.steps(), slice.step);
    let each = slice.so_far.seconds / f64::from(slice.so_far.steps.max(1));
    format!("epoch {epoch}/{epochs}  step {step}/{all}{loss}{right}  {} a step", seconds(each))
}
