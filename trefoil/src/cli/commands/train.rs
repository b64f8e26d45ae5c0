//! `trefoil train`: having the servers train a network, slice by slice.
//!
//! A slice is a job like any other, of about a second, so that inferences wait no longer than that. The client sets
//! the number of steps of each slice; the state stays on the servers, in memory, and now and then on disk. If a
//! server or a link fails, the run continues from the state on disk.

use std::{fs, time::Duration};

use nn_layers::train::TrainRequest;
use ring_arith::Tensor;
use serde::Serialize;
use serde_json::json;

use crate::{
    base::{
        Error, Result,
        format::{bytes, seconds},
    },
    cli::{
        arguments::{Global, Train},
        output::Output,
    },
    client::{Client, Driven, Event, NewRun, Slice, Total, Watch},
    training::{RunFile, Training, Work},
    wire::RunState,
};

/// The results of an epoch.
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
    /// The privacy that the run has spent for a row, if it had noise.
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
    let path = &arguments.file;
    let text = fs::read_to_string(path)
        .map_err(|cause| Error::input(path.display(), format_args!("cannot be read: {cause}")))?;
    let file = RunFile::parse(&text, path)?;
    let readers = super::model::named(&file.readers)?;
    let progress = output.progress("planning the training");
    let (request, plan, state) = file.plan()?;
    drop(progress);
    let mut client = super::connect(global)?;
    let taken = !arguments.replace && client.described(&file.model)?.iter().any(Result::is_ok);
    if taken && !client.runs()?.iter().flatten().any(|run| run.name == file.name) {
        return Err(model_taken(&file));
    }
    let begun = begin(&mut client, &file, arguments.replace, &request, &state, output)?;
    if taken && begun.run.step < begun.run.steps {
        return Err(model_taken(&file));
    }
    if taken {
        let done = json!({ "run": file.name, "model": file.model, "steps": begun.run.steps });
        return output.result(&done, || {
            let (run, model, steps) = (&file.name, &file.model, begun.run.steps);
            format!("{run}: all {steps} steps are done, and there is a model {model}")
        });
    }
    let training = Training::new(plan, &begun.run.spec, begun.run.rows)?;
    if arguments.prepare {
        let sets = client.data_sets()?;
        return super::runs::show_training(&begun, training.plan(), &sets, output);
    }
    let begun = wait_for_consent(&mut client, begun, output)?;
    let driven = Driven {
        name: file.name.clone(),
        fingerprint: begun.run.fingerprint,
        work: Work::Training(Box::new(training.clone())),
        keep: Duration::from_secs(file.keep_seconds()),
    };
    let mut report = train(&driven, &training, client, begun.run.step, global, output)?;
    let mut client = super::connect(global)?;
    let progress = output.progress("making a model of it");
    let state = (file.name.as_str(), driven.fingerprint, training.steps());
    let known = client.described(&file.model)?.iter().any(Result::is_ok);
    client.publish(state, &file.model, &readers, known && arguments.replace, &progress)?;
    drop(progress);
    report.model.clone_from(&file.model);
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

/// The name of the trained model is that of another one, of which a training would end in vain.
fn model_taken(file: &RunFile) -> Error {
    let reason = "there is one of that name, and the training would make another: write another name into the run's \
                  file, or remove that model";
    Error::refused(format_args!("model `{}`", file.model), reason)
}

/// The run on the servers: the one that exists if it is this one, else a new one.
fn begin(
    client: &mut Client,
    file: &RunFile,
    replace: bool,
    request: &TrainRequest,
    state: &[Tensor],
    output: Output,
) -> Result<RunState> {
    let labels = file.labels.as_deref().map(super::model::labels).transpose()?;
    let groups = file.groups().map_err(|reason| Error::input(&file.name, reason))?;
    let (data, sets) = client.used(&groups)?;
    let rows = sets.iter().map(|set| set.rows).sum();
    let spec = file.spec(data, rows, labels.unwrap_or_default());
    let written = serde_json::to_vec(request)
        .map_err(|cause| Error::Internal(format!("training request: {cause}")))?;
    let new = NewRun { name: &file.name, spec: &spec, request: &written, state, replace };
    let progress = output.progress("sharing the network");
    let begun = client.begin_run(&new, &progress)?;
    drop(progress);
    let step = begun.run.step;
    if step > 0 {
        output.remark(format!("going on after step {step} of run {}", begun.name))?;
    }
    Ok(begun)
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

/// Goes through a run's steps after `from`, and prints how it is.
fn train(
    driven: &Driven,
    training: &Training,
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
        let left = f64::from(training.steps() - slice.step) * each;
        let line = line(training, slice);
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
    let privacy = match (training.privacy()?, training.plan().options().privacy) {
        (Some(cost), Some(privacy)) => {
            Some(Protected { epsilon: cost.epsilon(privacy.delta)?, delta: privacy.delta })
        }
        _ => None,
    };
    let (run, model, steps) = (driven.name.clone(), String::new(), training.steps());
    Ok(Report { run, model, steps, from, seconds, bytes, rounds, privacy, curve })
}

/// The results of an epoch.
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
