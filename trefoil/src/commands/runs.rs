//! `trefoil run`: trainings, and the consent of those whose data they use.

use std::{fs, path::Path};

use models::{onnx::with_weights, weights::to_safetensors};
use nn_layers::train::Role;
use serde_json::json;

use super::model::remove_named;
use crate::{
    Digest, Error, Result,
    cli::{Global, Run},
    client::{Client, agree_on_item},
    images::read_file,
    output::{Output, table},
    wire::RunState,
};

/// The largest ONNX file that is read, in bytes.
const ONNX: u64 = 4 << 30;

/// Least letters of a fingerprint that are taken for the whole: 128 bits, for which nobody finds another run.
const LETTERS: usize = 32;

pub(super) fn run(command: Run, global: &Global, output: Output) -> Result<()> {
    let client = || super::connect(global);
    match command {
        Run::Script(words) => super::script::run(&words),
        Run::List => list(&mut client()?, output),
        Run::Show { name } => show(&client()?.run(&name)?, output),
        Run::Approve { name, fingerprint } => approve(&mut client()?, &name, &fingerprint, output),
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
        Ok(run) => progress(run),
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

/// How far a run is.
fn progress(state: &RunState) -> String {
    let missing = state.run.missing(&state.owner);
    if missing.is_empty() {
        return format!("kept after step {}", state.run.step);
    }
    format!("waits for the consent of {}", missing.join(", "))
}

pub(super) fn show(state: &RunState, output: Output) -> Result<()> {
    let (run, spec) = (&state.run, &state.run.spec);
    let value = json!({ "name": state.name, "owner": state.owner, "run": run });
    output.result(&value, || {
        let sets = spec.data.iter().zip(&run.owners);
        let sets: Vec<_> =
            sets.map(|(used, owner)| format!("{} of {owner}", used.name)).collect();
        format!(
            "run          {}\n\
             fingerprint  {}\n\
             data         {}: {} rows in all, each seen {} times\n\
             for          {}, who is told loss and accuracy of every second or so of training, and owns the\n\
             {:13}trained network; the servers learn neither data nor weights nor how well it goes\n\
             state        {}",
            state.name,
            shown(run.fingerprint),
            sets.join(", "),
            run.rows,
            spec.course.epochs,
            state.owner,
            "",
            progress(state),
        )
    })?;
    if run.missing(&state.owner).is_empty() {
        return Ok(());
    }
    output.remark(format!(
        "owners of its data consent with `trefoil run approve {} {}`",
        state.name,
        shown(run.fingerprint)
    ))
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
        format!("{name}: your consent is noted at all three servers")
    })
}

/// Writes the trained weights of a run, into an ONNX file or with what the optimiser keeps.
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
    let plan = client.run_plan(name)?;
    let progress = output.progress("adding up the weights");
    let words = client.release(name, state.run.fingerprint, state.run.step, &progress)?;
    drop(progress);
    let refused = |cause: &dyn std::fmt::Display| {
        Error::refused(format_args!("run `{name}`"), format_args!("its weights: {cause}"))
    };
    let values = plan.decode_state(&words).map_err(|cause| refused(&cause))?;
    let tensors = plan.state().into_iter().zip(values);
    let bytes = match original {
        Some((path, original)) => {
            // What an optimiser keeps beside the weights has no place in the file.
            let weights = tensors.filter(|(spec, _)| spec.trained && spec.role == Role::Network);
            let weights = weights.map(|(spec, value)| (spec.name, value)).collect();
            with_weights(&original, &weights)
                .map_err(|cause| Error::input(path.display(), cause))?
        }
        None => {
            let tensors = tensors.map(|(spec, value)| (spec.name, value)).collect();
            to_safetensors(&tensors).map_err(|cause| refused(&cause))?
        }
    };
    fs::write(file, bytes).map_err(|cause| Error::file(file, cause))?;
    let (file, step) = (file.display().to_string(), state.run.step);
    output.result(&json!({ "run": name, "step": step, "file": file }), || {
        format!("{name}: the weights after step {step} are in {file}")
    })
}

fn remove(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let runs = client.runs()?;
    if !runs.iter().flatten().any(|run| run.name == name) {
        return Err(Error::refused(format_args!("run `{name}`"), "there is none of that name"));
    }
    remove_named(client, name, output)
}
