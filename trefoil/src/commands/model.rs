//! `trefoil model`: putting, listing, sharing and removing models.

use std::{fmt::Display, path::Path};

use nn_layers::{HostTensor, Plan};
use rss_protocols::Options;
use serde_json::json;

use super::check;
use crate::{
    About, Error, Input, Preprocess, Result,
    cli::{Global, Model, Prepare, Put, Reading, Share},
    client::{Client, NewModel, agree_on_line, refused_by_all},
    config::check_name,
    images::{self, Image, read_file},
    import::{Imported, import},
    local,
    output::{Output, bytes, table},
    profile::Predicted,
    store::{Range, Readers},
    trial,
    wire::ModelState,
};

/// The largest file of labels, in bytes.
const LABELS: u64 = 16 << 20;

/// How much of itself a weight may change by rounding without a word.
const ROUNDED: f64 = 1e-3;

/// The word for every client.
const EVERYONE: &str = "everyone";

pub(super) fn run(command: Model, global: &Global, output: Output) -> Result<()> {
    match command {
        Model::Put(arguments) => put(&arguments, global, output),
        Model::Check(arguments) => check::run(&arguments, output),
        Model::List => list(global, output),
        Model::Share(arguments) => share(&arguments, global, output),
        Model::Remove { name } => remove(&name, global, output),
    }
}

fn put(arguments: &Put, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    check_name("model", name).map_err(|reason| Error::input("NAME", reason))?;
    let labels = arguments.labels.as_deref().map(labels).transpose()?.unwrap_or_default();
    let preprocess = preprocess(&arguments.model);
    let progress = output.progress("reading the model");
    // The model is looked at in full before anything is said to the servers.
    let (file, reading) = (&arguments.file, &arguments.model);
    let imported = import(file, &reading.dims, reading.fraction_bits, preprocess, labels)?;
    let imported = if arguments.no_guard { imported.without_guard()? } else { imported };
    let Imported { program, about, weights, values } = imported;
    let about = About { numbers: arguments.numbers, ..about };
    if about.preprocess == Preprocess::Imagenet && about.inputs.len() == 1 {
        images::as_imagenet(&about.inputs[0])
            .map_err(|reason| Error::input("--preprocess", reason))?;
    }
    let rounded = rounded(program.plan(), &values)?;
    let samples = samples_of(reading, &about)?;
    let ranges = within_tables(ranges_of(reading, &about, &samples)?, program.plan(), &about);
    let could_leave = check::could_leave(program.plan(), &values, &ranges, trial::QUICK)?;
    // What cannot run is found now, not by everybody who uses the model.
    let examples = program.plan().fixed_batch().unwrap_or(1);
    local::predict(&program, examples, Options::default()).map_err(|cause| {
        Error::input(file.display(), format_args!("the servers could not run it: {cause}"))
    })?;
    let sample = sample(&samples, &about)?;
    let what = file.display().to_string();
    let tried = trial::run(&what, program.plan(), &values, &ranges, sample.as_deref())?;
    drop(progress);
    let mut client = super::connect(global)?;
    let readers = readers(arguments, &mut client)?;
    let progress = output.progress("sharing the model");
    let plan = program.to_bytes()?;
    let (about, replace) = (&about, arguments.replace);
    let (readers, ranges) = (&readers, ranges.as_slice());
    let new = NewModel { name, about, plan: &plan, weights: &weights, readers, ranges, replace };
    client.put(&new, &progress)?;
    drop(progress);
    let predicted = predict(&mut client, name, program.plan(), examples).ok();
    let value = json!({
        "put": name, "about": about, "readers": readers, "ranges": ranges, "predicted": predicted,
        "could_leave": could_leave, "rounded": rounded, "tried": tried,
    });
    output.result(&value, || {
        format!(
            "{name}: {} weights shared among the servers; {}, {}",
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
        output.remark(predicted.line())?;
    }
    output.remark(range(program.plan()))?;
    if let Some(warning) = rounding(&rounded) {
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

/// The first samples that fill a batch, if there are some of every input.
fn sample(samples: &[Option<Vec<Image>>], about: &About) -> Result<Option<Vec<HostTensor>>> {
    let batch = about.batch.unwrap_or(1);
    let enough = |of: &Option<Vec<Image>>| of.as_ref().is_some_and(|of| of.len() >= batch);
    if !samples.iter().all(enough) {
        return Ok(None);
    }
    Ok(check::whole(samples, about, batch)?.into_iter().next())
}

/// What sums there may be, and what comes of larger ones.
fn range(plan: &Plan) -> String {
    let largest = (42.0 - f64::from(plan.frac())).exp2();
    let beyond = if plan.guarded().is_empty() {
        "where one goes beyond, nothing tells a wrong answer from a right one"
    } else {
        "an error comes where one goes beyond, and no answer"
    };
    format!("sums in its layers may reach {largest:.0}: {beyond}")
}

/// What the servers say that a job will take. Whoever may not run models here is not told.
fn predict(client: &mut Client, name: &str, plan: &Plan, examples: usize) -> Result<Predicted> {
    let shapes = plan.input_shapes(examples)?;
    let shapes: Vec<_> = shapes.iter().map(|shape| shape.dims().to_vec()).collect();
    let version = client.model(name)?.version;
    Ok(Predicted::of(&client.predict(name, version, &shapes)?, examples))
}

/// Who may run the new model: as the command line says, else as it is with the model it replaces.
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

/// The weights that rounding changes by more than a thousandth of themselves, and by how much.
pub(super) fn rounded(plan: &Plan, values: &[HostTensor]) -> Result<Vec<(String, f64)>> {
    let changes = plan.rounding(values)?;
    let named = plan.weights().into_iter().map(|weight| weight.name).zip(changes);
    Ok(named.filter(|(_, change)| *change > ROUNDED).collect())
}

/// What rounding does to weights, in a sentence.
pub(super) fn rounding(rounded: &[(String, f64)]) -> Option<String> {
    let (name, change) = rounded.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = match rounded.len() - 1 {
        0 => String::new(),
        others => format!("; {others} more change by more than 0.1 %"),
    };
    Some(format!(
        "rounding to fixed point changes a part of weight `{name}` by {:.1} % of itself{others}; where small \
         weights meet large inputs, normalise the inputs before they are shared",
        100.0 * change
    ))
}

/// How clients prepare images for the model.
pub(super) fn preprocess(arguments: &Reading) -> Preprocess {
    match arguments.preprocess {
        Prepare::Scale => Preprocess::Scale { white: arguments.white },
        Prepare::Imagenet => Preprocess::Imagenet,
    }
}

/// The samples of each input for which there are some.
pub(super) fn samples_of(arguments: &Reading, about: &About) -> Result<Vec<Option<Vec<Image>>>> {
    let mut samples: Vec<Option<Vec<Image>>> = vec![None; about.inputs.len()];
    for text in &arguments.inputs {
        let (at, path) = input_of("--inputs", text, about)?;
        let input = &about.inputs[at];
        let read = images::read(Path::new(path), input, &about.preprocess, arguments.scale)?;
        samples[at].get_or_insert_default().extend(read);
    }
    Ok(samples)
}

/// What the command line says of each input's values; nothing at all if it says nothing.
pub(super) fn ranges_of(
    arguments: &Reading,
    about: &About,
    samples: &[Option<Vec<Image>>],
) -> Result<Vec<Option<Range>>> {
    let mut ranges = vec![None; about.inputs.len()];
    for text in &arguments.ranges {
        let (at, text) = input_of("--range", text, about)?;
        let range = Range::parse(text).map_err(|reason| Error::input("--range", reason))?;
        ranges[at] = Some(range);
    }
    for ((range, samples), input) in ranges.iter_mut().zip(samples).zip(&about.inputs) {
        if let Some(samples) = samples {
            let values = samples.iter().flat_map(|sample| sample.values.iter().copied());
            *range = Range::of_samples(values, input.integer);
        }
    }
    if ranges.iter().all(Option::is_none) {
        ranges.clear();
    }
    Ok(ranges)
}

/// The same ranges, and of positions in tables those that are there: others would read zeros.
pub(super) fn within_tables(
    mut ranges: Vec<Option<Range>>,
    plan: &Plan,
    about: &About,
) -> Vec<Option<Range>> {
    for at in (0..about.inputs.len()).filter(|&at| about.inputs[at].integer) {
        let Some(rows) = plan.table_rows(at) else { continue };
        ranges.resize(about.inputs.len(), None);
        let table = Range { low: 0.0, high: rows as f64 - 1.0 };
        let stated = ranges[at].unwrap_or(table);
        let both = Range { low: stated.low.max(table.low), high: stated.high.min(table.high) };
        ranges[at] = Some(if both.low <= both.high { both } else { table });
    }
    ranges
}

/// The input that `NAME=VALUE` names, and the value; the name may be left out if there is one input.
fn input_of<'a>(flag: &str, text: &'a str, about: &About) -> Result<(usize, &'a str)> {
    let position = |name: &str| about.inputs.iter().position(|input| input.name == name);
    if let Some((name, value)) = text.split_once('=')
        && let Some(at) = position(name)
    {
        return Ok((at, value));
    }
    if about.inputs.len() == 1 {
        return Ok((0, text));
    }
    let each: Vec<_> = about.inputs.iter().map(Input::to_string).collect();
    let reason = format!("write NAME=VALUE; the model takes {}", each.join(", "));
    Err(Error::input(flag, reason))
}

fn share(arguments: &Share, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    let mut client = super::connect(global)?;
    let told = client.described(name)?;
    let before = told.iter().flatten().find_map(|public| public.readers.clone());
    share_with(&mut client, before, arguments, output)
}

/// Lets others use what has a name, or no longer. `before` may use it until now, where this client is told.
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

/// Who may run a model after a change of the list.
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
    // What one server alone holds can be removed too, so that remains do not stay for ever.
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
