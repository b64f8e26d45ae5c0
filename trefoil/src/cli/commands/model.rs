//! `trefoil model`: putting, listing, sharing and removing models.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use cluster_protocols::Computing;
use nn_layers::{Operation, Plan};
use serde::Serialize;
use serde_json::json;

use super::{answers::Kind, check, reading};
use crate::{
    base::{
        Error, Result,
        check::check_name,
        format::{bytes, table},
    },
    cli::{
        arguments::{Global, Model, Put, Share},
        output::Output,
    },
    client::{Client, NewModel, Predicted, agree_on_line, refused_by_all},
    inputs::{read_file, text_of},
    local,
    model::{
        About, Program, columns_text, dry_run,
        import::{self, Imported},
    },
    store::Readers,
    wire::ModelState,
};

/// The largest file of labels, in bytes.
const LABELS: u64 = 16 << 20;

/// The word for every client.
const EVERYONE: &str = "everyone";

pub(super) fn run(command: Model, global: &Global, output: Output) -> Result<()> {
    match command {
        Model::Put(arguments) => put(&arguments, global, output),
        Model::Check(arguments) => check::run(&arguments, output),
        Model::List => list(global, output),
        Model::Show { name } => show(&name, global, output),
        Model::Share(arguments) => share(&arguments, global, output),
        Model::Remove { name } => remove(&name, global, output),
    }
}

fn put(arguments: &Put, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    check_name("model", name).map_err(|reason| Error::input("NAME", reason))?;
    let labels = arguments.labels.as_deref().map(labels).transpose()?.unwrap_or_default();
    let progress = output.progress("reading the model");
    // The model is checked in full before the servers are asked.
    let file = &arguments.file;
    let read = reading::File::open(file, &arguments.model, labels)?.read()?;
    let reading::Read { imported, ranges, rounded, tried, unusual, options, .. } = read;
    let imported = if arguments.no_guard { imported.without_guard()? } else { imported };
    let read = |positions| {
        import::graph(file, &reading::options(&arguments.model)?.with_positions(positions))
    };
    let (program, values) = (imported.program.clone(), &imported.values);
    let lengths = arguments.prompt_steps.as_deref();
    let (program, one_by_one) = import::with_prompt_steps(program, values, lengths, &options, read)
        .map_err(|error| Error::input("--prompt-steps", error))?;
    let program = program.with_public_weights(arguments.public_weights)?;
    let Imported { program, about, values } = imported.with_program(program)?;
    let text = |path: &PathBuf| {
        let form = arguments.form.replace("\\n", "\n");
        text_of(path, (form, &arguments.stops), &program)
    };
    let text = arguments.tokenizer.as_ref().map(text).transpose()?;
    let (text, tokenizer) = text.map_or((None, Vec::new()), |(text, file)| (Some(text), file));
    let about = About { numbers: arguments.numbers, text, ..about };
    about.check().map_err(|cause| Error::input(file.display(), cause))?;
    check_labels(&about)?;
    let could_leave = check::could_leave(program.plan(), &values, &ranges, dry_run::QUICK)?;
    // A model that cannot run is refused now, and not at each client that uses it.
    local::predict(&program, program.usual_sizes(), Computing::default()).map_err(|cause| {
        Error::input(file.display(), format_args!("the servers could not run it: {cause}"))
    })?;
    drop(progress);
    let mut client = super::connect(global)?;
    let readers = readers(arguments, &mut client)?;
    let progress = output.progress("sharing the model");
    let plan = program.to_bytes()?;
    let weights = program.plan().encode_weights(values)?;
    let (about, replace) = (&about, arguments.replace);
    let (readers, ranges) = (&readers, ranges.as_slice());
    let (plan, tokenizer) = (plan.as_slice(), tokenizer.as_slice());
    let new = NewModel { name, about, plan, weights, readers, ranges, tokenizer, replace };
    client.put(new, &progress)?;
    drop(progress);
    let predicted = predict(&mut client, name, &program).ok();
    let value = json!({
        "put": name, "about": about, "readers": readers, "ranges": ranges, "predicted": predicted,
        "could_leave": could_leave, "rounded": rounded, "tried": tried,
        "layers": limits(program.plan()), "fraction_bits": program.plan().frac(),
    });
    output.result(&value, || {
        let held = if about.public_weights {
            "in the clear at each server"
        } else {
            "shared among the servers"
        };
        format!(
            "{name}: {} weights {held}; {}, {}",
            about.weights,
            tensors("input", &about.inputs, |input| &input.dims),
            tensors("output", &about.outputs, |output| &output.dims)
        )
    })?;
    let usable = match readers {
        Readers::Everyone => "everyone may run it".to_owned(),
        Readers::Named(names) if names.is_empty() => {
            format!("only you may run it; `trefoil model share {name}` lets others")
        }
        Readers::Named(names) => format!("you and {} may run it", names.join(", ")),
    };
    output.remark(usable)?;
    if let Some(predicted) = predicted {
        let positions = program.usual_sizes().past;
        output.remark(match positions {
            0 => predicted.line(),
            _ => format!("behind {positions} positions of a conversation, {}", predicted.line()),
        })?;
    }
    if let (Some(past), Some(new)) = (program.plan().most_past(), program.plan().new_positions()) {
        output.remark(format!("a text has at most {} positions", past + new))?;
    }
    if let Some(error) = one_by_one {
        output.remark(format!("it reads prompts token by token, since {error}"))?;
    }
    if !limits(program.plan()).is_empty() {
        output.remark(range(program.plan()))?;
    }
    if let Some(reason) = &unusual {
        let bits = program.plan().frac();
        let usual = reading::USUAL;
        output.remark(if bits == usual {
            format!("some layers have fewer than {usual} fraction bits, since with {usual} at all of them {reason}")
        } else {
            format!("numbers have {bits} fraction bits, since with {usual} {reason}")
        })?;
    }
    if let Some(warning) = reading::rounding(&rounded) {
        output.remark(warning)?;
    }
    if let Some(warning) = could_leave.and_then(|layers| check::leaving(&layers)) {
        output.remark(warning)?;
    }
    if !tried {
        output.remark(
            "it is too large to be tried in the clear by the way; `trefoil model check --inputs` does that",
        )?;
    }
    if ranges.iter().all(Option::is_none) {
        output.remark(
            "clients do not know which inputs it was made for; --inputs or --range tells them",
        )?;
    }
    Ok(())
}

/// Refuses names for another number of classes: answers would be called by wrong ones.
fn check_labels(about: &About) -> Result<()> {
    let names = about.labels.len();
    match Kind::of(about) {
        Kind::Scores(classes) if names != 0 && names != classes => {
            let reason = format!(
                "it has {names} names, and the model {classes} classes; give a line for each, or --numbers if its \
                 outputs are no scores of classes"
            );
            Err(Error::input("--labels", reason))
        }
        _ => Ok(()),
    }
}

/// A layer that adds up products, and what its sums must stay below.
#[derive(Debug, PartialEq, Serialize)]
struct Limit {
    name: String,
    kind: &'static str,
    fraction_bits: u32,
    limit: f64,
}

fn limits(plan: &Plan) -> Vec<Limit> {
    let limit = |layer: Operation<'_>| {
        Some(Limit {
            name: layer.name.to_owned(),
            kind: layer.kind,
            fraction_bits: layer.frac,
            limit: layer.limit?,
        })
    };
    plan.operations().filter_map(limit).collect()
}

/// The largest sums of the layers, and the effect of larger ones.
fn range(plan: &Plan) -> String {
    let limits = limits(plan);
    let most = limits.iter().map(|layer| layer.limit).fold(0.0, f64::max);
    let least = limits.iter().map(|layer| layer.limit).fold(f64::INFINITY, f64::min);
    let beyond = if plan.guarded().is_empty() {
        "where one goes beyond, nothing tells a wrong answer from a right one"
    } else {
        "an error comes where one goes beyond, and no answer"
    };
    if most == least {
        return format!("sums in its layers may reach {most:.0}: {beyond}");
    }
    let row = |layer: &Limit| {
        let limit = format!("{}", layer.limit);
        vec![layer.name.clone(), layer.kind.to_owned(), layer.fraction_bits.to_string(), limit]
    };
    let rows: Vec<_> = limits.iter().map(row).collect();
    let table = table(&["layer", "operation", "fraction bits", "sums up to"], &rows);
    format!("sums in its layers may reach what this table says: {beyond}\n{table}")
}

/// The servers' prediction for a job. A client that may not run models here gets an error.
fn predict(client: &mut Client, name: &str, program: &Program) -> Result<Predicted> {
    let (plan, sizes) = (program.plan(), program.usual_sizes());
    let shapes = plan.input_shapes(sizes)?;
    let given = plan.step_inputs().map(|at| shapes[at].dims().to_vec());
    let version = client.model(name)?.version;
    let costs = client.predict(name, version, &given.collect::<Vec<_>>(), sizes.past as u64)?;
    Ok(Predicted::of(&costs, sizes.batch))
}

/// The clients that may run the new model: those of the command line, else those of the model it
/// replaces.
fn readers(arguments: &Put, client: &mut Client) -> Result<Readers> {
    if !arguments.readers.is_empty() {
        return named(&arguments.readers);
    }
    if arguments.replace {
        let told = client.described(&arguments.name)?;
        if let Some(readers) = told.into_iter().find_map(|told| told.ok()?.readers) {
            return Ok(readers);
        }
    }
    Ok(Readers::Named(Vec::new()))
}

pub(super) fn named(names: &[String]) -> Result<Readers> {
    if names.iter().any(|name| name == EVERYONE) {
        return Ok(Readers::Everyone);
    }
    let readers = Readers::Named(names.to_vec());
    readers.check().map_err(|error| Error::input("CLIENTS", error))?;
    Ok(readers)
}

fn share(arguments: &Share, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    let mut client = super::connect(global)?;
    let told = client.described(name)?;
    let before = told.iter().flatten().find_map(|public| public.readers.clone());
    share_with(&mut client, before, arguments, output)
}

/// Changes the clients that may use the model or data set of a name. `before` may use it until now, if this client
/// knows.
pub(super) fn share_with(
    client: &mut Client,
    before: Option<Readers>,
    arguments: &Share,
    output: Output,
) -> Result<()> {
    let name = &arguments.name;
    let readers = match before {
        _ if arguments.everyone => Readers::Everyone,
        Some(Readers::Everyone) if arguments.with.is_empty() => {
            let reason = "everyone may use it; name with --with those who may from now on";
            return Err(Error::input("--not-with", reason));
        }
        Some(Readers::Named(before)) => changed(before, arguments),
        // The servers refuse what is not this client's.
        Some(Readers::Everyone) | None => changed(Vec::new(), arguments),
    };
    readers.check().map_err(|error| Error::input("CLIENTS", error))?;
    let progress = output.progress("sharing");
    client.share(name, &readers, &progress)?;
    drop(progress);
    output.result(&json!({ "shared": name, "readers": readers }), || {
        format!("{name}: shared with {}", shown(&readers))
    })
}

/// The clients that may run a model after a change of the list.
fn changed(mut names: Vec<String>, arguments: &Share) -> Readers {
    names.extend(arguments.with.iter().cloned());
    names.retain(|name| !arguments.without.contains(name));
    names.sort_unstable();
    names.dedup();
    Readers::Named(names)
}

pub(super) fn shown(readers: &Readers) -> String {
    match readers {
        Readers::Everyone => EVERYONE.to_owned(),
        Readers::Named(names) if names.is_empty() => "nobody".to_owned(),
        Readers::Named(names) => names.join(", "),
    }
}

fn remove(name: &str, global: &Global, output: Output) -> Result<()> {
    let mut client = super::connect(global)?;
    // A model that only one server holds can be removed too, so that leftovers do not stay.
    let told = client.described(name)?;
    if let Some(reason) = refused_by_all(&told) {
        return Err(Error::refused("servers", reason));
    }
    remove_named(&mut client, name, output)
}

/// Removes what has this name at any server.
pub(super) fn remove_named(client: &mut Client, name: &str, output: Output) -> Result<()> {
    let progress = output.progress("removing");
    client.remove(name, &progress)?;
    drop(progress);
    output.result(&json!({ "removed": name }), || format!("removed {name}"))
}

/// A model's inputs or outputs, by their dimensions if there is one, else by what names each.
fn tensors<T: Display>(what: &str, all: &[T], dims: impl Fn(&T) -> &[usize]) -> String {
    match all {
        [one] => format!("{what} {:?}", dims(one)),
        several => {
            let each: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("{what}s {}", each.join(", "))
        }
    }
}

pub(super) fn labels(path: &Path) -> Result<Vec<String>> {
    let text = String::from_utf8(read_file(path, LABELS)?)
        .map_err(|_| Error::input(path.display(), "is not text in UTF-8"))?;
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

/// Prints what a model takes and returns.
fn show(name: &str, global: &Global, output: Output) -> Result<()> {
    let public = super::connect(global)?.model(name)?;
    let about = &public.about;
    let value = json!({
        "name": name, "owner": public.owner, "version": public.version, "readers": public.readers,
        "about": about, "ranges": public.ranges,
    });
    output.result(&value, || {
        let clear = if about.public_weights { " in the clear" } else { "" };
        let mut text = format!(
            "{name}: {} weights{clear}, put by {}; {}, {}",
            about.weights,
            public.owner,
            tensors("input", &about.inputs, |input| &input.dims),
            tensors("output", &about.outputs, |output| &output.dims)
        );
        for (input, range) in about.inputs.iter().zip(&public.ranges) {
            if let Some(range) = range {
                text += &format!("\ninput {} takes numbers from {range}", input.name);
            }
        }
        for input in about.inputs.iter().filter(|input| !input.columns.is_empty()) {
            text += &format!("\n\ninput {}\n{}", input.name, columns_text(&input.columns));
        }
        if let Some(label) = &about.label {
            text += &format!("\n\ntruth\n{}", columns_text(std::slice::from_ref(label)));
        }
        text
    })
}

fn list(global: &Global, output: Output) -> Result<()> {
    let models = super::connect(global)?.models()?;
    let mut names: Vec<&str> = models.iter().flatten().map(|model| model.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let state = |name: &str| {
        agree_on_line(name, &models).map_or_else(|e| e.to_string(), |_| "ready".into())
    };
    let found = |name: &str| models.iter().flatten().find(|model| model.name == name);
    let entries: Vec<_> =
        names.iter().filter_map(|name| Some((found(name)?, state(name)))).collect();
    let value: Vec<_> = entries
        .iter()
        .map(|(model, state)| {
            json!({
                "name": model.name, "state": state, "version": model.version,
                "owner": model.owner, "readers": model.readers, "put_at": model.put_at,
                "weights": model.weights, "inputs": model.inputs, "outputs": model.outputs,
            })
        })
        .collect();
    output.result(&value, || {
        let heading =
            ["model", "weights", "share", "input", "output", "owner", "shared with", "state"];
        let rows: Vec<_> = entries.iter().map(|(model, state)| row(model, state)).collect();
        if rows.is_empty() {
            "no models of yours, and none that is shared with you; put one with `trefoil model put`"
                .into()
        } else {
            table(&heading, &rows)
        }
    })
}

fn row(model: &ModelState, state: &str) -> Vec<String> {
    let shape =
        |dims: &Vec<usize>| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let shapes = |each: &[Vec<usize>]| each.iter().map(shape).collect::<Vec<_>>().join(" ");
    vec![
        model.name.clone(),
        model.weights.to_string(),
        bytes(16 * model.weights),
        shapes(&model.inputs),
        shapes(&model.outputs),
        model.owner.clone(),
        model.readers.as_ref().map_or("you".to_owned(), shown),
        state.to_owned(),
    ]
}
