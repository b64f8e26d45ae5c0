//! `trefoil data`: rows on which networks are trained.

use std::path::Path;

use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use serde_json::json;

use crate::{
    Error, Input, Preprocess, Result,
    cli::{Data, Global, Half, PutData},
    config::check_name,
    images::{self, Image},
    output::{Output, bytes, table},
    training::{Budget, Conditions, DELTA, DataSet, RowTensor},
    wire::DataState,
};

use super::model::{named, remove_named, share_with, shown};

/// The default of the rows' fraction bits, which is that of a training's values.
const FRACTION: u32 = 20;

pub(super) fn run(command: Data, global: &Global, output: Output) -> Result<()> {
    match command {
        Data::Put(arguments) => put(&arguments, global, output),
        Data::List => list(global, output),
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
    drop(progress);
    let (tensors, words): (Vec<RowTensor>, Vec<Tensor>) = tensors.into_iter().unzip();
    let conditions = Conditions {
        least_batch: arguments.least_batch,
        metric_rows: arguments.metric_rows,
        most_numbers_out: arguments.most_numbers_out,
        privacy: arguments.privacy_budget.map(|epsilon| Budget { epsilon, delta: arguments.delta }),
    };
    let set = DataSet { rows: words[0].shape().dims()[0], tensors, conditions };
    let mut client = super::connect(global)?;
    let progress = output.progress("sharing the rows");
    client.put_data(name, &set, &words, &readers, arguments.replace, &progress)?;
    drop(progress);
    output.result(&json!({ "put": name, "set": set, "readers": readers }), || {
        format!("{name}: {} rows of {} shared among the servers", set.rows, row_text(&set))
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

/// Values and labels of all rows.
fn whole(arguments: &PutData) -> Result<Vec<(RowTensor, Tensor)>> {
    let mut rows = read(&arguments.file, &arguments.dims, arguments.scale)?;
    if let Some(file) = &arguments.labels {
        label(file, &mut rows)?;
    }
    let labels = match &arguments.targets {
        Some(file) => targets(file, &rows)?,
        None => classes(arguments.classes.unwrap_or(0) as usize, &rows)?,
    };
    Ok(vec![real("values", &arguments.dims, &rows)?, labels])
}

/// The values of rows whose labels are in another data set.
fn values(arguments: &PutData) -> Result<(RowTensor, Tensor)> {
    if arguments.classes.is_some() {
        let reason = "classes are labels, which --only values leaves to another data set";
        return Err(Error::input("--classes", reason));
    }
    if arguments.dims.is_empty() {
        return Err(Error::input("--dims", "say the dimensions of a row's values, such as 1,8,8"));
    }
    let rows = read(&arguments.file, &arguments.dims, arguments.scale)?;
    real("values", &arguments.dims, &rows)
}

/// The labels of rows whose values are in another data set: classes, or the given number of numbers
/// for each.
fn labels(arguments: &PutData) -> Result<(RowTensor, Tensor)> {
    let PutData { file, dims, scale, .. } = arguments;
    match (arguments.classes, dims.as_slice()) {
        (Some(count), []) => {
            let row = |(at, class)| Image {
                source: format!("{}#{at}", file.display()),
                values: Vec::new(),
                label: Some(class),
            };
            let rows: Vec<_> =
                images::read_labels(file)?.into_iter().enumerate().map(row).collect();
            if rows.is_empty() {
                return Err(Error::input(file.display(), "holds no labels"));
            }
            classes(count as usize, &rows)
        }
        (None, [_]) => real("labels", dims, &read(file, dims, *scale)?),
        _ => {
            let reason = "labels are classes, --classes N, or N numbers for each row, --dims N";
            Err(Error::input("--only labels", reason))
        }
    }
}

/// The rows of a file.
fn read(file: &Path, dims: &[usize], scale: f64) -> Result<Vec<Image>> {
    let input = Input { name: "values".to_owned(), dims: dims.to_vec(), integer: false };
    let rows = images::read(file, &input, &Preprocess::Scale { white: 1.0 }, scale)?;
    if rows.is_empty() {
        return Err(Error::input(file.display(), "holds no rows"));
    }
    Ok(rows)
}

/// Gives each row its class out of a file.
fn label(file: &Path, rows: &mut [Image]) -> Result<()> {
    let labels = images::read_labels(file)?;
    if labels.len() != rows.len() {
        let reason = format!("{} labels for {} rows", labels.len(), rows.len());
        return Err(Error::input(file.display(), reason));
    }
    rows.iter_mut().zip(labels).for_each(|(row, label)| row.label = Some(label));
    Ok(())
}

/// A tensor of real numbers, with its words.
fn real(name: &str, dims: &[usize], rows: &[Image]) -> Result<(RowTensor, Tensor)> {
    let code = FixedPoint(FracBits::new(FRACTION)?);
    let mut words = Vec::with_capacity(rows.len() * dims.iter().product::<usize>());
    for row in rows {
        let encoded = code.encode(&row.values);
        words.extend(encoded.map_err(|cause| Error::input(&row.source, cause))?);
    }
    let shape = Shape::new([&[rows.len()], dims].concat())?;
    let (name, dims) = (name.to_owned(), dims.to_vec());
    Ok((RowTensor { name, dims, fraction_bits: FRACTION }, Tensor::new(shape, words)?))
}

/// The classes behind the rows, a one in the place of each.
fn classes(classes: usize, rows: &[Image]) -> Result<(RowTensor, Tensor)> {
    let mut words = vec![0; rows.len() * classes];
    for (at, row) in rows.iter().enumerate() {
        let class = row.label.ok_or_else(|| {
            let reason = "no class stands behind the numbers of the row; with --labels FILE classes come from a file, with --targets FILE numbers";
            Error::input(&row.source, reason)
        })?;
        if class >= classes {
            let reason =
                format!("its class is {class}; --classes {classes} allows 0 to {}", classes - 1);
            return Err(Error::input(&row.source, reason));
        }
        words[at * classes + class] = 1;
    }
    let tensor = RowTensor { name: "labels".to_owned(), dims: vec![classes], fraction_bits: 0 };
    Ok((tensor, Tensor::new(Shape::new([rows.len(), classes])?, words)?))
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
        source: format!("{}#{at}", file.display()),
        values: values.to_vec(),
        label: None,
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
