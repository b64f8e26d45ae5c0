//! `trefoil run`: trainings, and the consent of those whose data they use.

use std::{fs, path::Path, thread, time::Duration};

use models::{onnx::with_weights, weights::to_safetensors};
use nn_layers::{
    LayerInfo, Plan,
    train::{Role, TrainPlan},
};
use serde_json::{Value, json};

use super::model::remove_named;
use crate::{
    Digest, Error, Result,
    cli::{Global, Run},
    client::{Client, agree_on_item},
    images::read_file,
    links,
    output::{Output, table},
    training::{Augment, Budget, DELTA, Decision, Flow, Halt, Training, tensors},
    wire::{DataState, RunState},
};

/// The largest ONNX file that is read, in bytes.
const ONNX: u64 = 4 << 30;

/// How long to wait between questions how far a run is.
const PAUSE: Duration = Duration::from_secs(1);

/// Least letters of a fingerprint that are taken for the whole: 128 bits, for which nobody finds another run.
const LETTERS: usize = 32;

pub(super) fn run(command: Run, global: &Global, output: Output) -> Result<()> {
    let client = || super::connect(global);
    match command {
        Run::Script(words) => super::script::run(&words),
        Run::List => list(&mut client()?, output),
        Run::Show { name } => {
            let mut client = client()?;
            let state = client.run(&name)?;
            let plan = client.run_plan(&state)?;
            let sets = client.data_sets()?;
            show(&state, &plan, &sets, output)
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

/// How far a run is.
fn progress(state: &RunState) -> String {
    let missing = state.run.missing(&state.owner);
    if state.run.stopped {
        return format!("stopped after step {}", state.run.step);
    }
    if missing.is_empty() {
        return format!("kept after step {}", state.run.step);
    }
    format!("waits for the consent of {}", missing.join(", "))
}

/// Prints how far a run is whenever that changes, until it has done all its steps.
fn follow(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let mut state = client.run(name)?;
    let plan = client.run_plan(&state)?;
    let all = Training::new(plan, &state.run.spec, state.run.rows)?.steps();
    let mut said = String::new();
    loop {
        let line = format!("{}: {} of {all}", state.name, progress(&state));
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

/// Halts a run at each server by itself. One that hears it is enough.
fn halt(global: &Global, name: &str, halt: Halt, said: &str, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let progress = output.progress("telling the servers");
    let told = links::halt(&config, name, halt)?;
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

/// Prints all that whoever consents to a run should know.
pub(super) fn show(
    state: &RunState,
    plan: &TrainPlan,
    sets: &[Vec<DataState>],
    output: Output,
) -> Result<()> {
    let run = &state.run;
    let training = Training::new(plan.clone(), &run.spec, run.rows)?;
    let network = layers(plan.inference(), plan.inference().fixed_batch().unwrap_or(1))?;
    let step = layers(plan.step_plan(), plan.batch())?;
    let flow = training.flow()?;
    let warnings = warnings(&training, &flow);
    let told = told(&training, run, sets)?;
    let value = json!({
        "name": state.name, "owner": state.owner, "run": run, "options": plan.options(),
        "batch": plan.batch(), "steps": training.steps(), "weights": flow.weights,
        "leaves": { "flow": flow, "to": getting(state), "numbers_out": flow.numbers_out() },
        "warnings": warnings, "privacy": told.iter().map(Told::json).collect::<Vec<_>>(),
        "network": network.iter().map(Shown::json).collect::<Vec<_>>(),
        "step": step.iter().map(Shown::json).collect::<Vec<_>>(),
    });
    output.result(&value, || {
        let heading = ["layer", "what", "result", "weights"];
        let rows: Vec<_> = network.iter().map(Shown::row).collect();
        let mut text = described(state, &training, step.len());
        text += &leaving(state, &training, &flow);
        text += &protection(&training);
        for told in &told {
            text += &told.line();
        }
        for warning in &warnings {
            text += &format!("WARNING      {warning}\n");
        }
        let table = table(&heading, &rows);
        format!(
            "{text}state        {}\n\nThe network, applied to one row:\n{table}",
            progress(state)
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

/// What is trained on what, and how.
fn described(state: &RunState, training: &Training, operations: usize) -> String {
    let (run, spec) = (&state.run, &state.run.spec);
    let plan = training.plan();
    let sets = spec.data.iter().zip(&run.owners).enumerate();
    let sets = sets.map(|(at, (used, owner))| {
        let between = match (at, used.beside) {
            (0, _) => "",
            (_, true) => " beside ",
            (_, false) => ", ",
        };
        format!("{between}{} of {owner}", used.name)
    });
    let sets: String = sets.collect();
    let row: Vec<_> = tensors(plan).iter().flatten().map(ToString::to_string).collect();
    let pictures = pictures(spec.course.augment);
    let options = plan.options();
    format!(
        "run          {}\n\
         fingerprint  {}\n\
         data         {sets}: {} rows in all, each seen {} times\n\
         a row        {}\n\
         training     {} steps of {} rows, rate up to {}, seed {}\n\
         {pictures}{:13}{:?}, {:?}\n\
         a step       {operations} operations on shares, derived on this machine: `--json` lists them all\n",
        state.name,
        shown(run.fingerprint),
        run.rows,
        spec.course.epochs,
        row.join(", "),
        training.steps(),
        plan.batch(),
        spec.course.schedule.rate,
        spec.course.seed,
        "",
        options.loss,
        options.optimiser,
    )
}

/// What leaves the servers, how often, to whom, and how much went in.
fn leaving(state: &RunState, training: &Training, flow: &Flow) -> String {
    let openings = training.openings();
    let (steps, all) = (&openings.weights, training.steps());
    let times = match steps.as_slice() {
        [one] => format!("once, after step {one} of {all}"),
        many => format!("{} times, after steps {many:?} of {all}", many.len()),
    };
    let metrics = &training.plan().options().metrics;
    let names: Vec<_> = metrics.iter().map(|metric| metric.name()).collect();
    let window = openings.window(0, all).len() as u32;
    format!(
        "leaves       {} numbers of the trained network, {times}, to {}\n\
         {:13}{}: {} numbers in all, each summed over {} rows or more, to {}\n\
         went in      {} numbers of {} rows\n",
        flow.weights,
        getting(state).join(", "),
        "",
        if names.is_empty() { "no metrics".to_owned() } else { names.join(" and ") },
        flow.metrics,
        training.rows_of(window),
        state.owner,
        flow.numbers_in,
        flow.rows,
    )
}

/// How a row is protected by noise.
fn protection(training: &Training) -> String {
    let Some(privacy) = &training.plan().options().privacy else {
        return "privacy      no noise: the weights may tell of single rows, and no epsilon holds\n".to_owned();
    };
    let unit = match privacy.rows {
        1 => "each row".to_owned(),
        rows => format!("each {rows} rows"),
    };
    format!(
        "privacy      the gradient of {unit} clipped to {}, noise {} times as much: epsilon {} at delta {} for a row, \
         which {} steps use. Everybody may know in which\n",
        privacy.clip,
        privacy.noise,
        epsilon(training, privacy.delta),
        privacy.delta,
        training.course().epochs,
    )
}

/// Epsilon of a run, in words.
pub(super) fn epsilon(training: &Training, delta: f64) -> String {
    let epsilon = training.privacy().and_then(|cost| match cost {
        Some(cost) => Ok(format!("{:.3}", cost.epsilon(delta)?)),
        None => Ok("unlimited".to_owned()),
    });
    epsilon.unwrap_or_else(|error| error.to_string())
}

/// What all runs on a data set have told of a row, and what they would have told after this one.
struct Told {
    set: String,
    budget: Option<Budget>,
    delta: f64,
    before: String,
    after: String,
}

impl Told {
    fn json(&self) -> Value {
        let Self { set, budget, delta, before, after } = self;
        json!({ "set": set, "budget": budget, "delta": delta, "before": before, "after": after })
    }

    fn line(&self) -> String {
        let budget = self.budget.map_or(String::new(), |budget| format!(", of {}", budget.epsilon));
        let Self { set, before, after, .. } = self;
        format!("{:13}of {set} epsilon is {before} so far, and {after} with this run{budget}\n", "")
    }
}

/// Of each data set that this client may see.
fn told(
    training: &Training,
    run: &crate::training::Run,
    sets: &[Vec<DataState>],
) -> Result<Vec<Told>> {
    let cost = training.privacy()?;
    let mut all = Vec::new();
    for used in &run.spec.data {
        let Ok(state) = agree_on_item::<DataState>(&used.name, sets) else { continue };
        let budget = state.set.conditions.privacy;
        let privacy = training.plan().options().privacy;
        let delta = budget.map(|budget| budget.delta).or(privacy.map(|privacy| privacy.delta));
        let delta = delta.unwrap_or(DELTA);
        let mut after = state.spent.clone();
        after.add(cost.as_ref());
        all.push(Told {
            set: used.name.clone(),
            budget,
            delta,
            before: state.spent.told(delta)?,
            after: after.told(delta)?,
        });
    }
    Ok(all)
}

/// What an owner of data should think about before consenting.
fn warnings(training: &Training, flow: &Flow) -> Vec<String> {
    let mut warnings = Vec::new();
    if flow.leaves_much() {
        warnings.push(format!(
            "{} numbers may leave and {} went in: a network can be made whose weights are rows of the data. Consent \
             only if you trust the run's owner with them, or ask for a smaller network or fewer openings",
            flow.numbers_out(),
            flow.numbers_in
        ));
    }
    let row = flow.numbers_in / flow.rows.max(1);
    let batch = training.plan().batch() as u64 * row;
    let wide: Vec<_> = training.learnt().filter(|spec| spec.shape.len() as u64 >= batch).collect();
    if !wide.is_empty() && flow.leaves_much() {
        let names: Vec<_> = wide.iter().map(|spec| format!("`{}`", spec.name)).collect();
        warnings.push(format!(
            "weights {} have as many numbers as a batch ({batch}) or more: each row can have weights of its own",
            names.join(", ")
        ));
    }
    let inference = training.plan().inference();
    if inference.fixed_batch().is_some() || !inference.keeps_examples_apart() {
        warnings.push(
            "the network treats the rows of a batch differently by their place: a weight can see a row alone"
                .to_owned(),
        );
    }
    warnings
}

/// How pictures are changed, if they are.
fn pictures(augment: Augment) -> String {
    let mut changes = Vec::new();
    if augment.flip {
        changes.push("half of them mirrored".to_owned());
    }
    if augment.crop > 0 {
        changes.push(format!("moved by up to {} pixels", augment.crop));
    }
    if changes.is_empty() {
        return String::new();
    }
    format!("{:13}pictures {} in each step, by coins of the seed\n", "", changes.join(" and "))
}

/// Who gets the trained weights.
fn getting(state: &RunState) -> Vec<&str> {
    let recipients = state.run.spec.recipients.iter().map(String::as_str);
    std::iter::once(state.owner.as_str()).chain(recipients).collect()
}

/// A layer as it is shown.
struct Shown {
    name: String,
    kind: &'static str,
    shape: Vec<usize>,
    /// Names and shapes.
    weights: Vec<(String, Vec<usize>)>,
}

/// What a plan does.
fn layers(plan: &Plan, batch: usize) -> Result<Vec<Shown>> {
    let weights = plan.weights();
    let shown = |layer: LayerInfo<'_>| {
        let of = |name: &&str| {
            let spec = weights.iter().find(|spec| spec.name == **name);
            ((*name).to_owned(), spec.map(|spec| spec.shape.dims().to_vec()).unwrap_or_default())
        };
        Shown {
            name: layer.name.to_owned(),
            kind: layer.kind,
            shape: layer.shape.dims().to_vec(),
            weights: layer.weights.iter().map(of).collect(),
        }
    };
    Ok(plan.layers(batch)?.into_iter().map(shown).collect())
}

impl Shown {
    fn row(&self) -> Vec<String> {
        let weights: Vec<_> =
            self.weights.iter().map(|(name, dims)| format!("{name} {dims:?}")).collect();
        let kind = self.kind.to_owned();
        vec![self.name.clone(), kind, format!("{:?}", self.shape), weights.join(", ")]
    }

    fn json(&self) -> Value {
        let weights: Vec<_> = self.weights.iter().map(|(name, _)| name).collect();
        json!({ "name": self.name, "kind": self.kind, "shape": self.shape, "weights": weights })
    }
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

/// Writes the trained weights of a run, into an ONNX file or as safetensors.
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
    let plan = client.run_plan(&state)?;
    let progress = output.progress("adding up the weights");
    let words = client.release(name, state.run.fingerprint, state.run.step, &progress)?;
    drop(progress);
    let refused = |cause: &dyn std::fmt::Display| {
        Error::refused(format_args!("run `{name}`"), format_args!("its weights: {cause}"))
    };
    let values = plan.decode_network(&words).map_err(|cause| refused(&cause))?;
    let tensors = plan.state().into_iter().zip(values);
    let tensors = tensors.filter(|(spec, _)| spec.role == Role::Network);
    let bytes = match original {
        Some((path, original)) => {
            let weights = tensors.filter(|(spec, _)| spec.trained);
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
