//! `trefoil infer`: running a model on images or other inputs.

use std::path::{Path, PathBuf};

use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use serde::Serialize;

use super::answers::{self, Answer, Kind, accuracy, answer, mean_error};
use crate::{
    base::{Error, Id, Result},
    cli::{
        arguments::{Global, Infer},
        output::{Output, Progress},
    },
    client::{Client, Predicted, Total},
    inputs::{self, Image},
    model::{About, Input, Range},
    wire::PublicModel,
};

/// The default for the most images in one job.
const BATCH: usize = 64;

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    answers: Vec<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    /// The mean distance from the true numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_error: Option<f64>,
    cost: Total,
    /// The servers' prediction, if a profile was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted: Option<Predicted>,
    /// Examples without an answer, after an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<usize>,
}

/// The output of `--dry-run`.
#[derive(Debug, Serialize)]
struct DryRun {
    model: String,
    jobs: usize,
    predicted: Predicted,
}

pub(super) fn run(arguments: &Infer, global: &Global, output: Output) -> Result<()> {
    if !(arguments.scale.is_finite() && arguments.scale != 0.0) {
        return Err(Error::input("--scale", "it must be a number other than 0"));
    }
    let mut client = super::connect(global)?;
    let PublicModel { version, about, ranges, .. } =
        super::patiently(global, &mut client, |client| client.model(&arguments.model))?;
    for text in &arguments.outputs {
        written_output(text, &about)?;
    }
    let (inputs, unmatched) = read(arguments, &about)?;
    check_ranges(&about, &ranges, &inputs)?;
    check_classes(&about, &inputs[0])?;
    let size = batch(arguments, &about);
    let batches = encode(&about, size, &inputs)?;
    let predicted = (arguments.dry_run || arguments.profile)
        .then(|| predict(&mut client, (&arguments.model, version, &about), &batches))
        .transpose()?;
    if let (true, Some(predicted)) = (arguments.dry_run, &predicted) {
        let (model, jobs) = (arguments.model.clone(), batches.len());
        let report = DryRun { model, jobs, predicted: predicted.clone() };
        return output.result(&report, || predicted.line());
    }
    let images = &inputs[0];
    if batches.len() > 1
        && super::client_config(global)?.protocol.plays_tapes()
        && let Some(left) = client.answers_on_tapes(&arguments.model, size.min(images.len()))?
        && left < batches.len() as u64
    {
        output.remark(format!(
            "the servers' tapes have {left} answers left for this model, and this takes up to {}",
            batches.len()
        ))?;
    }
    let progress = output.progress("waiting for the servers");
    let mut cost: Option<Total> = None;
    let mut answers = Vec::new();
    let mut ended = Ok(());
    let mut done = 0;
    // Answers of several jobs are printed as they come.
    let pieces = batches.len() > 1 && output.is_for_people();
    let widest = images.iter().map(|image| image.source.chars().count()).max().unwrap_or(0);
    for (index, (chunk, inputs)) in images.chunks(size).zip(&batches).enumerate() {
        if batches.len() > 1 {
            progress.job(index, batches.len());
        }
        let answered = super::patiently(global, &mut client, |client| {
            infer(client, arguments, version, &about, inputs, &progress)
        });
        let (total, outputs) = match answered {
            Ok(answered) => answered,
            // What was answered before is kept.
            Err(error) if !answers.is_empty() => {
                ended = Err(error);
                break;
            }
            Err(error) => return Err(error),
        };
        done += 1;
        match &mut cost {
            Some(sum) => sum.add(&total),
            None => cost = Some(total),
        }
        for (i, image) in chunk.iter().enumerate() {
            let of_image = outputs.iter().map(|examples| examples[i].clone());
            answers.push(answer(image, of_image, &about, arguments.top));
        }
        if pieces {
            let new = &answers[answers.len() - chunk.len()..];
            let rows = answers::rows(new, &about, widest);
            let rows = if index == 0 { rows } else { answers::without_heading(&rows) };
            progress.aside(|| output.piece(&(rows + "\n")))?;
        }
    }
    drop(progress);
    let cost = cost.ok_or_else(|| Error::input("IMAGE", "there is no example in these files"))?;
    let model = arguments.model.clone();
    let (accuracy, mean_error) = (accuracy(&answers), mean_error(&answers));
    let unanswered = ended.is_err().then(|| images.len() - answers.len());
    let report = Report { model, accuracy, mean_error, answers, cost, predicted, unanswered };
    if pieces {
        for line in answers::together(&report.answers, &about) {
            output.piece(&(line + "\n"))?;
        }
    } else {
        output.result(&report, || answers::text(&report.answers, &about))?;
    }
    if let Some(path) = unmatched {
        output.remark(format!(
            "{}: the model's columns have no names, so those of the file were taken in its order",
            path.display()
        ))?;
    }
    write(arguments, &report.answers, &about, output)?;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if let [first, others @ ..] = about.outputs.as_slice()
        && !others.is_empty()
    {
        let names: Vec<_> = others.iter().map(|output| output.name.as_str()).collect();
        let (first, names) = (&first.name, names.join(", "));
        output.remark(format!("this is output {first}; --json prints {names} too"))?;
    }
    let (examples, jobs) = (count(report.answers.len(), about.example()), count(done, "job"));
    output.remark(format!("{examples} in {jobs}: {}", report.cost.line()))?;
    if arguments.profile {
        output.remark(format!("\n{}", report.cost.layer_table(report.predicted.as_ref())))?;
    }
    if let Some(unanswered) = report.unanswered {
        let all = report.answers.len() + unanswered;
        output.remark(format!(
            "{unanswered} of {all} have no answer: an error came after the others"
        ))?;
    }
    ended
}

/// Refuses inputs for which the model was not made: its answers would be wrong without a sign of it.
fn check_ranges(about: &About, ranges: &[Option<Range>], inputs: &[Vec<Image>]) -> Result<()> {
    for ((input, range), images) in about.inputs.iter().zip(ranges).zip(inputs) {
        let Some(range) = range else { continue };
        for image in images {
            if let Some(at) = range.outside(&image.values) {
                let (value, name) = (image.values[at], &input.name);
                let at = at + 1;
                let reason = format!(
                    "number {at} is {value}; the model's input `{name}` takes {range}, as its owner \
                     says; --scale makes numbers of files smaller or larger"
                );
                return Err(Error::input(&image.source, reason));
            }
        }
    }
    Ok(())
}

/// Writes the outputs that are to be written.
fn write(arguments: &Infer, answers: &[Answer], about: &About, output: Output) -> Result<()> {
    for text in &arguments.outputs {
        let (at, path) = written_output(text, about)?;
        answers::write(path.as_ref(), at, answers, about)?;
        output.remark(format!(
            "{path}: output {} of {} examples",
            about.outputs[at],
            answers.len()
        ))?;
    }
    Ok(())
}

/// The place of the output that `[NAME=]FILE` means, and the file.
fn written_output<'a>(text: &'a str, about: &About) -> Result<(usize, &'a str)> {
    let Some((name, path)) = split_name(text) else { return Ok((0, text)) };
    match about.outputs.iter().position(|output| output.name == name) {
        Some(at) => Ok((at, path)),
        None => {
            let names: Vec<_> = about.outputs.iter().map(|output| output.name.as_str()).collect();
            let reason = format!(
                "the model has no output `{name}`, but {}; a file of that name is ./{text}",
                names.join(", ")
            );
            Err(Error::input("--output", reason))
        }
    }
}

/// Refuses true classes that the model does not have: the column was not meant as that.
fn check_classes(about: &About, images: &[Image]) -> Result<()> {
    let kind = Kind::of(about);
    if kind == Kind::Numbers {
        return Ok(());
    }
    for image in images {
        let Some(truth) = image.truth else { continue };
        let classes = kind.classes(about);
        match inputs::class(truth) {
            Some(class) if classes.is_none_or(|classes| class < classes) => {}
            _ => {
                let classes = classes.map_or_else(String::new, |all| format!(", of {all}"));
                let reason = format!("{truth} would be its true class, and is none{classes}");
                return Err(Error::input(&image.source, reason));
            }
        }
    }
    Ok(())
}

/// The most examples of a job.
fn batch(arguments: &Infer, about: &About) -> usize {
    about.batch.or(arguments.batch).unwrap_or(BATCH).max(1)
}

/// The examples of each input of the model, as many for each, and a file whose columns have names where the model's have
/// none.
fn read<'a>(arguments: &'a Infer, about: &About) -> Result<(Vec<Vec<Image>>, Option<&'a Path>)> {
    let options = arguments.tables.options();
    let how = inputs::Reading {
        preprocess: &about.preprocess,
        scale: arguments.scale,
        table: &options,
        label: about.label.as_ref(),
    };
    let named = about.inputs.iter().all(|input| !input.columns.is_empty());
    let alone = arguments.inputs.is_empty() && about.inputs.len() > 1;
    if named && alone && arguments.images.iter().all(|path| inputs::is_table(path)) {
        let mut inputs = vec![Vec::new(); about.inputs.len()];
        for path in &arguments.images {
            let table = inputs::read_table(path, &options)?;
            let examples = inputs::of_all_inputs(path, &table, about, &how)?;
            inputs.iter_mut().zip(examples).for_each(|(all, more)| all.extend(more));
        }
        return Ok((inputs, None));
    }
    let mut inputs: Vec<Vec<Image>> = Vec::new();
    let mut unmatched = None;
    for (input, files) in about.inputs.iter().zip(files(arguments, about)?) {
        let mut examples = Vec::new();
        for path in files {
            if !inputs::is_table(path) {
                examples.extend(inputs::read(path, input, &how)?);
                continue;
            }
            let table = inputs::read_table(path, &options)?;
            examples.extend(inputs::from_table(path, &table, input, &how)?);
            if input.columns.is_empty() && table.names().is_some() {
                unmatched.get_or_insert(path);
            }
        }
        let (found, wanted) = (examples.len(), inputs.first().map_or(examples.len(), Vec::len));
        if found != wanted || found == 0 {
            let reason = format!("{found} examples; {}, as many examples of each", taken(about));
            return Err(Error::input(format_args!("--input {}", input.name), reason));
        }
        inputs.push(examples);
    }
    Ok((inputs, unmatched))
}

/// The files with the examples of each input. Those that are given without a name are of the inputs that are not named, in
/// their order.
fn files<'a>(arguments: &'a Infer, about: &About) -> Result<Vec<Vec<&'a Path>>> {
    let mut files = vec![Vec::new(); about.inputs.len()];
    if arguments.inputs.is_empty() {
        let [all] = files.as_mut_slice() else {
            let reason = format!("{}; pass each as --input NAME=FILE", taken(about));
            return Err(Error::input("IMAGE", reason));
        };
        all.extend(arguments.images.iter().map(PathBuf::as_path));
        return Ok(files);
    }
    let mut unnamed = Vec::new();
    for text in &arguments.inputs {
        let Some((name, path)) = split_name(text) else {
            unnamed.push(text);
            continue;
        };
        let at = about.inputs.iter().position(|input| input.name == name);
        let at = at.ok_or_else(|| {
            let reason = format!("{}; a file of that name is ./{text}", taken(about));
            Error::input(format_args!("--input {name}"), reason)
        })?;
        files[at].push(Path::new(path));
    }
    let mut free = files.iter_mut().filter(|files| files.is_empty());
    for text in unnamed {
        let place = free.next().ok_or_else(|| {
            let reason = format!("it is of no input: {}, and each has a file", taken(about));
            Error::input(format_args!("--input {text}"), reason)
        })?;
        place.push(Path::new(text));
    }
    Ok(files)
}

/// The name and the file of `NAME=FILE`.
fn split_name(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, _)| !name.contains(['/', '\\']))
}

/// The inputs that the model takes, in words.
fn taken(about: &About) -> String {
    let each: Vec<_> = about.inputs.iter().map(ToString::to_string).collect();
    format!("the model takes {}", each.join(", "))
}

/// Encodes the examples as whole batches of this size, a tensor for each input; the last batch is filled up with
/// zeros if the model takes one batch size alone.
fn encode(about: &About, size: usize, inputs: &[Vec<Image>]) -> Result<Vec<Vec<Tensor>>> {
    let encode = |chunk: &[Image], input: &Input| {
        let size = about.batch.unwrap_or(chunk.len());
        let mut words = Vec::with_capacity(size * input.len());
        for image in chunk {
            if input.integer {
                words.extend(image.values.iter().map(|&value| value as i64 as u64));
            } else {
                let code = FixedPoint(FracBits::new(about.input_bits(input))?);
                let encoded = code.encode(&image.values);
                words.extend(encoded.map_err(|cause| Error::input(&image.source, cause))?);
            }
        }
        let shape = Shape::new(about.shape_of(size, &input.dims))?;
        words.resize(shape.len(), 0);
        Ok(Tensor::new(shape, words)?)
    };
    let count = inputs.first().map_or(0, Vec::len);
    let starts = (0..count).step_by(size);
    let whole = |start| {
        let end = count.min(start + size);
        let pairs = inputs.iter().zip(&about.inputs);
        pairs.map(|(examples, input)| encode(&examples[start..end], input)).collect()
    };
    starts.map(whole).collect()
}

/// The servers' prediction for these jobs; jobs of the same shapes send the same.
fn predict(
    client: &mut Client,
    (model, version, about): (&str, Id, &About),
    batches: &[Vec<Tensor>],
) -> Result<Predicted> {
    let mut known: Vec<(Vec<Vec<usize>>, Predicted)> = Vec::new();
    let mut sum = Predicted::default();
    for inputs in batches {
        let shapes: Vec<_> = inputs.iter().map(|input| input.shape().dims().to_vec()).collect();
        let found = known.iter().position(|(dims, _)| *dims == shapes);
        let at = match found {
            Some(at) => at,
            None => {
                let examples = shapes.first().map_or(0, |dims| about.examples(dims));
                let costs = client.predict(model, version, &shapes, 0)?;
                known.push((shapes, Predicted::of(&costs, examples)));
                known.len() - 1
            }
        };
        sum.add(&known[at].1);
    }
    Ok(sum)
}

fn infer(
    client: &mut Client,
    arguments: &Infer,
    version: Id,
    about: &About,
    inputs: &[Tensor],
    progress: &Progress,
) -> Result<(Total, Vec<Vec<Vec<f64>>>)> {
    let answer = client.infer(&arguments.model, version, inputs, arguments.profile, progress)?;
    let examples = inputs.first().map_or(0, |input| about.examples(input.shape().dims()));
    Ok((Total::of(&answer.costs), about.decode(examples, &answer.outputs)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OutputTensor;

    #[test]
    fn an_output_that_the_model_does_not_have_is_refused_and_never_a_file_called_so() {
        let output =
            |name: &str| OutputTensor { name: name.to_owned(), dims: vec![2], fraction_bits: 20 };
        let about = About { outputs: vec![output("a"), output("b")], ..About::default() };
        assert_eq!(written_output("y.npy", &about).unwrap(), (0, "y.npy"));
        assert_eq!(written_output("b=y.npy", &about).unwrap(), (1, "y.npy"));
        assert_eq!(written_output("./c=y.npy", &about).unwrap(), (0, "./c=y.npy"));
        let error = written_output("c=y.npy", &about).unwrap_err().to_string();
        assert!(
            error.contains("no output `c`, but a, b; a file of that name is ./c=y.npy"),
            "{error}"
        );
    }
}
