//! `trefoil data`: rows on which networks are trained.

use std::{fs, path::Path};

use ring_arith::{EngineTensor, Tensor};
use serde_json::json;

use super::model::{named, remove_named, share_with, shown};
use crate::{
    base::{
        Error, Result,
        check::check_name,
        format::{bytes, table},
    },
    cli::{
        arguments::{Data, DataSchema, Global, Half, PutData},
        output::Output,
    },
    inputs::{self, Image, Schema, TableOptions},
    model::{Input, Preprocess, columns_text},
    training::{
        Budget, Conditions, DELTA, DataSet, KeySecret, RowTensor, Rows, classes_of, keys_of_table,
        real,
    },
    wire::DataState,
};

pub(super) fn run(command: Data, global: &Global, output: Output) -> Result<()> {
    match command {
        Data::Put(arguments) => put(&arguments, global, output),
        Data::Schema(arguments) => describe(&arguments, output),
        Data::List => list(global, output),
        Data::Show { name } => show(&name, global, output),
        Data::Share(arguments) => {
            let mut client = super::connect(global)?;
            let sets = client.data_sets()?;
            let mut mine = sets.iter().flatten().filter(|set| set.name == arguments.name);
            let before = mine.find_map(|set| set.readers.clone());
            share_with(&mut client, before, &arguments, output)
        }
        Data::Remove { name } => remove(&name, global, output),
    }
}

fn put(arguments: &PutData, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.name;
    check_name("data set", name).map_err(|reason| Error::input("NAME", reason))?;
    if !(arguments.scale.is_finite() && arguments.scale != 0.0) {
        return Err(Error::input("--scale", "it must be a number other than 0"));
    }
    let readers = named(&arguments.readers)?;
    let progress = output.progress("reading the rows");
    let tensors = match arguments.only {
        None => whole(arguments)?,
        Some(Half::Values) => vec![values(arguments)?],
        Some(Half::Labels) => vec![labels(arguments)?],
    };
    let keys = keys(arguments)?;
    drop(progress);
    let (tensors, mut words): (Vec<RowTensor>, Vec<Tensor>) = tensors.into_iter().unzip();
    words.extend(keys);
    let conditions = Conditions {
        least_batch: arguments.least_batch,
        metric_rows: arguments.metric_rows,
        most_numbers_out: arguments.most_numbers_out,
        privacy: arguments.privacy_budget.map(|epsilon| Budget { epsilon, delta: arguments.delta }),
    };
    let (rows, key) = (words[0].shape().dims()[0], arguments.key.clone());
    let set = DataSet { rows, tensors, conditions, key };
    let mut client = super::connect(global)?;
    let progress = output.progress("sharing the rows");
    client.put_data(name, &set, words, &readers, arguments.replace, &progress)?;
    drop(progress);
    output.result(&json!({ "put": name, "set": set, "readers": readers }), || {
        let key = if set.key.is_empty() { "" } else { ", and their keys," };
        format!("{name}: {} rows of {}{key} shared among the servers", set.rows, row_text(&set))
    })?;
    output.remark(format!(
        "{}; no run begins on it before you consent to that run",
        match &readers {
            crate::store::Readers::Named(names) if names.is_empty() =>
                format!("only you may name it in a run; `trefoil data share {name}` lets others"),
            readers => format!("you and {} may name it in a run", shown(readers)),
        }
    ))
}

/// The key of each row, if there are some.
fn keys(arguments: &PutData) -> Result<Option<Tensor>> {
    let PutData { file, key, key_secret: Some(secret), .. } = arguments else { return Ok(None) };
    if !inputs::is_table(file) {
        return Err(Error::input("--key", "a key is a column of a .csv or .parquet"));
    }
    let table = inputs::read_table(file, &arguments.tables.options())?;
    keys_of_table(file, &table, key, &KeySecret::read(secret)?).map(Some)
}

/// The way in which the table is read. Its key is not a value.
fn options(arguments: &PutData) -> TableOptions {
    let mut options = arguments.tables.options();
    options.drop.extend(arguments.key.iter().cloned());
    options
}

/// Values and labels of all rows.
fn whole(arguments: &PutData) -> Result<Vec<(RowTensor, Tensor)>> {
    let mut rows = read(arguments)?;
    if let Some(file) = &arguments.labels {
        label(file, &mut rows.rows)?;
    }
    let labels = match &arguments.targets {
        Some(file) => targets(file, &rows.rows)?,
        None => rows.labels(arguments.classes)?,
    };
    Ok(vec![rows.values()?, labels])
}

/// The values of rows whose labels are in another data set.
fn values(arguments: &PutData) -> Result<(RowTensor, Tensor)> {
    if arguments.classes.is_some() {
        let reason = "classes are labels, which --only values leaves to another data set";
        return Err(Error::input("--classes", reason));
    }
    read(arguments)?.values()
}

/// The labels of rows whose values are in another data set: classes, or the given number of numbers
/// for each.
fn labels(arguments: &PutData) -> Result<(RowTensor, Tensor)> {
    let PutData { file, dims, .. } = arguments;
    if arguments.tables.label.is_some() || arguments.schema.is_some() {
        return truths(arguments)?.labels(arguments.classes);
    }
    match (arguments.classes, dims.as_slice()) {
        (Some(count), []) => {
            let row = |(at, class)| Image {
                source: format!("{}#{}", file.display(), at + 1),
                values: Vec::new(),
                truth: Some(class as f64),
            };
            let rows: Vec<_> =
                inputs::read_labels(file)?.into_iter().enumerate().map(row).collect();
            if rows.is_empty() {
                return Err(Error::input(file.display(), "holds no labels"));
            }
            classes_of(count as usize, &rows)
        }
        (None, [_]) => {
            let rows = read(arguments)?;
            real("labels", dims, &rows.rows)
        }
        _ => {
            let reason = "labels are classes, --classes N, N numbers for each row, --dims N, or a column, --label";
            Err(Error::input("--only labels", reason))
        }
    }
}

/// The truth of the rows of a table, of which nothing else is wanted.
fn truths(arguments: &PutData) -> Result<Rows> {
    let path = &arguments.file;
    if !inputs::is_table(path) {
        return Err(Error::input(path.display(), "a column is one of a .csv or .parquet"));
    }
    let options = options(arguments);
    let table = inputs::read_table(path, &options)?;
    Rows::truths_of_table(path, &table, schema(arguments)?.label.as_ref(), &options)
}

/// The rows of a file.
fn read(arguments: &PutData) -> Result<Rows> {
    let PutData { file, dims, scale, .. } = arguments;
    let options = options(arguments);
    let schema = schema(arguments)?;
    if inputs::is_table(file) {
        let table = inputs::read_table(file, &options)?;
        return Rows::of_table(file, &table, schema, dims, (&options, *scale));
    }
    if dims.is_empty() {
        let reason = "say the dimensions of a row's values, such as 1,8,8";
        return Err(Error::input("--dims", reason));
    }
    let Schema { columns, label } = schema;
    let how = inputs::Reading {
        preprocess: &Preprocess::default(),
        scale: *scale,
        table: &options,
        label: None,
    };
    let (name, dims) = ("values".to_owned(), dims.clone());
    let input = Input { name, dims, columns, ..Input::default() };
    let rows = inputs::read(file, &input, &how)?;
    if rows.is_empty() {
        return Err(Error::input(file.display(), "holds no rows"));
    }
    Ok(Rows { rows, dims: input.dims, columns: input.columns, label })
}

/// The schema of the arguments, or one without columns.
fn schema(arguments: &PutData) -> Result<Schema> {
    Ok(arguments.schema.as_deref().map(Schema::read).transpose()?.unwrap_or_default())
}

/// Gives each row its class out of a file.
fn label(file: &Path, rows: &mut [Image]) -> Result<()> {
    let labels = inputs::read_labels(file)?;
    if labels.len() != rows.len() {
        let reason = format!("{} labels for {} rows", labels.len(), rows.len());
        return Err(Error::input(file.display(), reason));
    }
    rows.iter_mut().zip(labels).for_each(|(row, label)| row.truth = Some(label as f64));
    Ok(())
}

/// Numbers for each row out of a file.
fn targets(file: &Path, rows: &[Image]) -> Result<(RowTensor, Tensor)> {
    let found =
        models::data::read_input(file).map_err(|cause| Error::input(file.display(), cause))?;
    let (count, each) = (rows.len(), found.len() / rows.len());
    if found.len() != count * each || each == 0 {
        let reason = format!("{} numbers for {count} rows; each takes as many", found.len());
        return Err(Error::input(file.display(), reason));
    }
    let values = found.floats();
    let target = |(at, values): (usize, &[f64])| Image {
        source: format!("{}#{}", file.display(), at + 1),
        values: values.to_vec(),
        truth: None,
    };
    let targets: Vec<Image> = values.chunks(each).enumerate().map(target).collect();
    real("labels", &[each], &targets)
}

fn row_text(set: &DataSet) -> String {
    set.tensors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn list(global: &Global, output: Output) -> Result<()> {
    let sets = super::connect(global)?.data_sets()?;
    let mut names: Vec<&str> = sets.iter().flatten().map(|set| set.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let state = |name: &str| {
        let agreed = crate::client::agree_on_item(name, &sets);
        agreed.map_or_else(|error| error.to_string(), |_| "ready".to_owned())
    };
    let found = |name: &str| sets.iter().flatten().find(|set| set.name == name);
    let entries: Vec<(&DataState, String)> =
        names.iter().filter_map(|name| Some((found(name)?, state(name)))).collect();
    let value: Vec<_> = entries
        .iter()
        .map(|(set, state)| {
            json!({
                "name": set.name, "state": state, "version": set.version, "owner": set.owner,
                "readers": set.readers, "put_at": set.put_at, "set": set.set, "spent": set.spent,
            })
        })
        .collect();
    output.result(&value, || {
        let row = |(set, state): &(&DataState, String)| {
            vec![
                set.name.clone(),
                set.set.rows.to_string(),
                row_text(&set.set),
                bytes(16 * set.set.words().unwrap_or(0)),
                set.owner.clone(),
                set.readers.as_ref().map_or("you".to_owned(), shown),
                spent(set),
                state.clone(),
            ]
        };
        let rows: Vec<_> = entries.iter().map(row).collect();
        if rows.is_empty() {
            return "no data sets of yours, and none that is shared with you; put one with `trefoil data put`"
                .to_owned();
        }
        let heading = ["data set", "rows", "row", "share", "owner", "shared with", "privacy", "state"];
        table(&heading, &rows)
    })
}

/// The epsilon that runs have used for a row, and the budget.
fn spent(set: &DataState) -> String {
    let delta = set.set.conditions.privacy.map_or(DELTA, |budget| budget.delta);
    let told = set.spent.told(delta).unwrap_or_else(|error| error.to_string());
    match set.set.conditions.privacy {
        Some(budget) => format!("epsilon {told}, of {}", budget.epsilon),
        None => format!("epsilon {told}"),
    }
}

/// Writes the schema of tables.
fn describe(arguments: &DataSchema, output: Output) -> Result<()> {
    let options = arguments.tables.options();
    let read = |path| inputs::read_table(path, &options);
    let tables: Vec<_> = arguments.files.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let first = arguments.files[0].display();
    if tables[0].names().is_none() {
        let reason = "its columns have no names; write them into a first row";
        return Err(Error::input(first, reason));
    }
    let schema = Schema::of(&tables, &options, arguments.scale, false)
        .map_err(|reason| Error::input(first, reason))?;
    let text = schema.to_toml()?;
    let Some(path) = &arguments.output else {
        return output.result(&schema, || text.trim_end().to_owned());
    };
    if path.exists() {
        return Err(Error::input(path.display(), "is there already; name a file that is not"));
    }
    fs::write(path, &text).map_err(|cause| Error::file(path, cause))?;
    output.result(&schema, || format!("{}: {} columns", path.display(), schema.columns.len()))?;
    output.remark(
        "its ranges, means and categories are those of the rows: read it before you give it away",
    )
}

/// Prints what a data set holds.
fn show(name: &str, global: &Global, output: Output) -> Result<()> {
    let sets = super::connect(global)?.data_sets()?;
    let state = crate::client::agree_on_item(name, &sets)?;
    let DataSet { rows, tensors, conditions, key } = &state.set;
    let value = json!({
        "name": name, "owner": state.owner, "version": state.version, "put_at": state.put_at,
        "rows": rows, "tensors": tensors, "conditions": conditions, "key": key,
    });
    output.result(&value, || {
        let mut text =
            format!("{name}: {rows} rows of {}, put by {}", row_text(&state.set), state.owner);
        if !key.is_empty() {
            text += &format!(
                "\nevery row has a secret key, made of {}: runs can join it",
                key.join(", ")
            );
        }
        for tensor in tensors.iter().filter(|tensor| !tensor.columns.is_empty()) {
            text += &format!("\n\n{}\n{}", tensor.name, columns_text(&tensor.columns));
        }
        text
    })
}

fn remove(name: &str, global: &Global, output: Output) -> Result<()> {
    let mut client = super::connect(global)?;
    let sets = client.data_sets()?;
    if !sets.iter().flatten().any(|set| set.name == name) {
        return Err(Error::refused(
            format_args!("data set `{name}`"),
            "there is none of that name",
        ));
    }
    remove_named(&mut client, name, output)
}
