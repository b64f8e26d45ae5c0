//! `trefoil model`: putting, listing and removing models.

use std::{fmt::Display, fs, path::Path};

use serde_json::json;

use crate::{
    Error, Preprocess, Result,
    cli::{Global, Model, Prepare, Put},
    client::{NewModel, agree},
    config::check_name,
    import::{Imported, import},
    output::{Output, bytes, table},
    wire::ModelState,
};

pub(super) fn run(command: Model, global: &Global, output: Output) -> Result<()> {
    match command {
        Model::Put(arguments) => put(&arguments, global, output),
        Model::List => list(global, output),
        Model::Remove { name } => remove(&name, global, output),
    }
}

fn put(arguments: &Put, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    check_name("model", name).map_err(|reason| Error::input("NAME", reason))?;
    let labels = arguments.labels.as_deref().map(labels).transpose()?.unwrap_or_default();
    let preprocess = match arguments.preprocess {
        Prepare::Scale => Preprocess::Scale { white: arguments.white },
        Prepare::Imagenet => Preprocess::Imagenet,
    };
    let progress = output.progress("reading the model");
    // The model is looked at in full before anything is said to the servers.
    let (file, bits) = (&arguments.file, arguments.fraction_bits);
    let Imported { program, about, weights, .. } =
        import(file, &arguments.dims, bits, preprocess, labels)?;
    drop(progress);
    let mut client = super::connect(global)?;
    let progress = output.progress("sharing the model");
    let plan = program.to_bytes()?;
    let (about, replace) = (&about, arguments.replace);
    let new = NewModel { name, about, plan: &plan, weights: &weights, replace };
    client.put(&new, &progress)?;
    drop(progress);
    output.result(&json!({ "put": name, "about": about }), || {
        format!(
            "{name}: {} weights shared among three servers; {}, {}",
            about.weights,
            tensors("input", &about.inputs, |input| &input.dims),
            tensors("output", &about.outputs, |output| &output.dims)
        )
    })
}

fn remove(name: &str, global: &Global, output: Output) -> Result<()> {
    let mut client = super::connect(global)?;
    // What one server alone holds can be removed too, so that remains do not stay for ever.
    let held = client.models()?.iter().flatten().any(|model| model.name == name);
    if !held {
        return Err(Error::refused(format_args!("model `{name}`"), "there is no such model"));
    }
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

fn labels(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path)
        .map_err(|cause| Error::input(path.display(), format!("cannot be read: {cause}")))?;
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

fn list(global: &Global, output: Output) -> Result<()> {
    let models = super::connect(global)?.models()?;
    let mut names: Vec<&str> = models.iter().flatten().map(|model| model.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let state =
        |name: &str| agree(name, &models).map_or_else(|e| e.to_string(), |_| "ready".into());
    let found = |name: &str| models.iter().flatten().find(|model| model.name == name);
    let entries: Vec<_> =
        names.iter().filter_map(|name| Some((found(name)?, state(name)))).collect();
    let value: Vec<_> = entries
        .iter()
        .map(|(model, state)| {
            json!({
                "name": model.name, "state": state, "version": model.version,
                "owner": model.owner, "put_at": model.put_at, "about": model.about,
            })
        })
        .collect();
    output.result(&value, || {
        let heading = ["model", "weights", "share", "input", "output", "owner", "state"];
        let rows: Vec<_> = entries.iter().map(|(model, state)| row(model, state)).collect();
        if rows.is_empty() {
            "no models; put one with `trefoil model put`".into()
        } else {
            table(&heading, &rows)
        }
    })
}

fn row(model: &ModelState, state: &str) -> Vec<String> {
    let unknown = || "?".to_owned();
    let about = model.about.as_ref();
    let shape = |dims: &[usize]| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    vec![
        model.name.clone(),
        about.map_or_else(unknown, |about| about.weights.to_string()),
        about.map_or_else(unknown, |about| bytes(16 * about.weights)),
        about.map_or_else(unknown, |about| {
            let each: Vec<_> = about.inputs.iter().map(|input| shape(&input.dims)).collect();
            each.join(" ")
        }),
        about.map_or_else(unknown, |about| {
            let each: Vec<_> = about.outputs.iter().map(|output| shape(&output.dims)).collect();
            each.join(" ")
        }),
        model.owner.clone().unwrap_or_else(unknown),
        state.to_owned(),
    ]
}
