//! `trefoil run`: trainings and analyses, and the consent of those whose data they use.

mod show;

use std::{fs, path::Path, thread, time::Duration};

use models::{onnx::with_weights, weights::to_safetensors};
use nn_layers::train::Role;
use serde_json::json;

use super::model::remove_named;
use crate::{
    base::{Digest, Error, Result, format::table},
    cli::{
        arguments::{Global, Run},
        output::Output,
    },
    client::{self, Client, agree_on_item},
    inputs::read_file,
    training::{Decision, Halt, Planned},
    wire::RunState,
};

/// The largest ONNX file that is read, in bytes.
const ONNX: u64 = 4 << 30;

/// The pause between checks of a run's progress.
const PAUSE: Duration = Duration::from_secs(1);

/// The least number of letters of a fingerprint that are taken for the whole: 128 bits, for which another run cannot
/// be found.
const LETTERS: usize = 32;

use show::show;
pub(super) use show::show_training;

pub(super) fn run(command: Run, global: &Global, output: Output) -> Result<()> {
    let client = || super::connect(global);
    match command {
        Run::Script(words) => super::script::run(&words),
        Run::List => list(&mut client()?, output),
        Run::Show { name } => {
            let mut client = client()?;
            let state = client.run(&name)?;
            let planned = client.run_plan(&state)?;
            let sets = client.data_sets()?;
            show(&state, &planned, &sets, output)
        }
        Run::Approve { name, fingerprint } => approve(&mut client()?, &name, &fingerprint, output),
        Run::Withdraw { name } => {
            let said = "your consent is withdrawn; it goes no step further on your data";
            halt(global, &name, Halt::Withdraw, said, output)
        }
        Run::Stop { name } => {
            let said = "stopped; the state that was kept last stays on the servers";
            halt(global, &name, Halt::Stop, said, output)
        }
        Run::Resume { name } => resume(&mut client()?, &name, output),
        Run::Follow { name } => follow(&mut client()?, &name, output),
        Run::Get { name, into, file } => get(&mut client()?, &name, into.as_deref(), &file, output),
        Run::Remove { name } => remove(&mut client()?, &name, output),
    }
}

fn list(client: &mut Client, output: Output) -> Result<()> {
    let runs = client.runs()?;
    let mut names: Vec<&str> = runs.iter().flatten().map(|run| run.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let state = |run: &RunState| match agree_on_item(&run.name, &runs) {
        Ok(run) => progress(&run),
        Err(error) => error.to_string(),
    };
    let found = |name: &&str| runs.iter().flatten().find(|run| run.name == *name);
    let entries: Vec<_> = names.iter().filter_map(found).map(|run| (run, state(run))).collect();
    let value: Vec<_> = entries
        .iter()
        .map(|(run, state)| {
            json!({ "name": run.name, "owner": run.owner, "state": state, "run": run.run })
        })
        .collect();
    output.result(&value, || {
        let row = |(run, state): &(&RunState, String)| {
            let data: Vec<_> = run.run.spec.data.iter().map(|used| used.name.as_str()).collect();
            vec![run.name.clone(), run.owner.clone(), data.join(" "), state.clone()]
        };
        let rows: Vec<_> = entries.iter().map(row).collect();
        if rows.is_empty() {
            return "no runs of yours, and none that uses your data".to_owned();
        }
        table(&["run", "owner", "data", "state"], &rows)
    })
}

/// The progress of a run.
fn progress(state: &RunState) -> String {
    let missing = state.run.missing(&state.owner);
    let (step, all) = (state.run.step, state.run.steps);
    match missing.is_empty() {
        _ if state.run.diverged => format!("diverged, and rests after step {step} of {all}"),
        _ if step == all => format!("finished after step {all}"),
        _ if state.run.stopped => format!("stopped after step {step} of {all}"),
        true => format!("kept after step {step} of {all}"),
        false => format!("waits for the consent of {}", missing.join(", ")),
    }
}

/// Prints how far a run is whenever that changes, until it has done all its steps.
fn follow(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let mut state = client.run(name)?;
    let all = state.run.steps;
    let mut said = String::new();
    loop {
        let line = format!("{}: {}", state.name, progress(&state));
        if line != said {
            output.remark(&line)?;
            said = line;
        }
        if state.run.step == all {
            return output.result(&json!({ "run": name, "step": all }), || {
                format!("{name}: all {all} steps are done")
            });
        }
        thread::sleep(PAUSE);
        let runs = client.runs()?;
        if !runs.iter().flatten().any(|run| run.name == name) {
            return Err(Error::refused(format_args!("run `{name}`"), "was removed"));
        }
        // A server may be on its way from one kept state to the next.
        if let Ok(now) = agree_on_item(name, &runs) {
            state = now;
        }
    }
}

/// Halts a run at each server separately. One server that gets it is enough.
fn halt(global: &Global, name: &str, halt: Halt, said: &str, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let progress = output.progress("telling the servers");
    let told = client::halt(&config, name, halt)?;
    drop(progress);
    let heard: Vec<_> = (0..told.len()).filter(|&party| told[party].is_ok()).collect();
    let failed = told.into_iter().enumerate();
    let failed: Vec<_> = failed.filter_map(|(party, told)| Some((party, told.err()?))).collect();
    if heard.is_empty() {
        let first = failed.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| Error::Internal("there are no servers".to_owned())));
    }
    output.result(&json!({ "run": name, "halt": halt, "heard": heard }), || {
        format!("{name}: {said}")
    })?;
    failed.iter().try_for_each(|(party, error)| {
        output.remark(format!(
            "party {party} has not heard it ({error}); the run needs all servers, so it is halted all the same"
        ))
    })
}

/// Lets a run go on, at all servers.
fn resume(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let fingerprint = client.run(name)?.run.fingerprint;
    let progress = output.progress("telling the servers");
    client.decide(name, fingerprint, Decision::Resume, &progress)?;
    drop(progress);
    output.result(&json!({ "run": name, "decision": Decision::Resume }), || {
        format!("{name}: may go on; `trefoil train` with its file does")
    })
}

/// A fingerprint as people see it.
pub(super) fn shown(fingerprint: Digest) -> String {
    fingerprint.letters()[..LETTERS].to_owned()
}

fn approve(client: &mut Client, name: &str, letters: &str, output: Output) -> Result<()> {
    let state = client.run(name)?;
    let whole = state.run.fingerprint.letters();
    if letters.len() < LETTERS || !whole.starts_with(letters) {
        let reason = format!(
            "the run `{name}` has another one, which `trefoil run show {name}` prints; give at least {LETTERS} \
             letters of it"
        );
        return Err(Error::input(format_args!("fingerprint {letters}"), reason));
    }
    let progress = output.progress("consenting");
    client.approve(name, state.run.fingerprint, &progress)?;
    drop(progress);
    output.result(&json!({ "approved": name, "fingerprint": whole }), || {
        format!("{name}: your consent is noted at all servers")
    })
}

/// Writes the trained weights of a run, into an ONNX file or as safetensors, or the results of an analysis.
fn get(
    client: &mut Client,
    name: &str,
    into: Option<&Path>,
    file: &Path,
    output: Output,
) -> Result<()> {
    if file.exists() {
        return Err(Error::input(file.display(), "is there already; name a file that is not"));
    }
    let original = into.map(|path| Ok::<_, Error>((path, read_file(path, ONNX)?))).transpose()?;
    let state = client.run(name)?;
    let planned = client.run_plan(&state)?;
    if into.is_some() {
        planned.train_plan(name)?;
    }
    let progress = output.progress("adding up what it learnt");
    let words = client.release(name, state.run.fingerprint, state.run.step, &progress)?;
    drop(progress);
    let refused = |cause: &dyn std::fmt::Display| {
        Error::refused(format_args!("run `{name}`"), format_args!("what it learnt: {cause}"))
    };
    let (what, tensors) = match &planned {
        Planned::Training(plan) => {
            let values = plan.decode_network(&words).map_err(|cause| refused(&cause))?;
            let tensors = plan.state().into_iter().zip(values);
            let network = tensors.filter(|(spec, _)| {
                spec.role == Role::Network && (spec.trained || original.is_none())
            });
            ("weights", network.map(|(spec, value)| (spec.name, value)).collect())
        }
        Planned::Analysis(analysis) => ("results", analysis.decode(&words)?.into_iter().collect()),
    };
    let bytes = match original {
        Some((path, original)) => with_weights(&original, path.parent(), &tensors)
            .map_err(|cause| Error::input(path.display(), cause))?,
        None => to_safetensors(&tensors).map_err(|cause| refused(&cause))?,
    };
    fs::write(file, bytes).map_err(|cause| Error::file(file, cause))?;
    let (file, step) = (file.display().to_string(), state.run.step);
    output.result(&json!({ "run": name, "step": step, "file": file }), || {
        format!("{name}: the {what} after step {step} are in {file}")
    })
}

fn remove(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let runs = client.runs()?;
    if !runs.iter().flatten().any(|run| run.name == name) {
        return Err(Error::refused(format_args!("run `{name}`"), "there is none of that name"));
    }
    remove_named(client, name, output)
}
