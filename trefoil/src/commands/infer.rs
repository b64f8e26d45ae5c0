//! `trefoil infer`: running a model on images or other inputs.

use std::path::PathBuf;

use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use serde::Serialize;

use crate::{
    About, Error, Id, Input, OutputTensor, Result,
    cli::{Global, Infer},
    client::Client,
    images::{self, Image},
    output::{Output, table},
    profile::Total,
    store::Range,
    wire::PublicModel,
};

/// Most images in one job.
const BATCH: usize = 64;

/// The answer for one image.
#[derive(Debug, Serialize)]
struct Answer {
    image: String,
    /// The classes with the largest scores, best first.
    top: Vec<Class>,
    /// The true class, where the file told.
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<usize>,
    /// All that the model returned.
    outputs: Vec<Values>,
}

/// One output of the model, for one image.
#[derive(Debug, Serialize)]
struct Values {
    name: String,
    values: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Class {
    class: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    score: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    answers: Vec<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    cost: Total,
}

pub(super) fn run(arguments: &Infer, global: &Global, output: Output) -> Result<()> {
    if !(arguments.scale.is_finite() && arguments.scale != 0.0) {
        return Err(Error::input("--scale", "it must be a number other than 0"));
    }
    let mut client = super::connect(global)?;
    let PublicModel { version, about, ranges, .. } = client.model(&arguments.model)?;
    let inputs = read(arguments, &about)?;
    check_ranges(&about, &ranges, &inputs)?;
    check_classes(&about, &inputs[0])?;
    let batches = encode(&about, &inputs)?;
    let images = &inputs[0];
    let progress = output.progress("waiting for the servers");
    let mut cost: Option<Total> = None;
    let mut answers = Vec::new();
    for (index, (chunk, inputs)) in images.chunks(batch(&about)).zip(&batches).enumerate() {
        if batches.len() > 1 {
            progress.job(index, batches.len());
        }
        let (total, outputs) = infer(&mut client, arguments, version, &about, inputs, &progress)?;
        match &mut cost {
            Some(sum) => sum.add(&total),
            None => cost = Some(total),
        }
        for (i, image) in chunk.iter().enumerate() {
            let of_image = outputs.iter().map(|examples| examples[i].clone());
            answers.push(answer(image, of_image, &about, arguments.top));
        }
    }
    drop(progress);
    let cost = cost.ok_or_else(|| Error::input("IMAGE", "there is no image in these files"))?;
    let report =
        Report { model: arguments.model.clone(), accuracy: accuracy(&answers), answers, cost };
    output.result(&report, || text(&report))?;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if let [first, others @ ..] = about.outputs.as_slice()
        && !others.is_empty()
    {
        let names: Vec<_> = others.iter().map(|output| output.name.as_str()).collect();
        let (first, names) = (&first.name, names.join(", "));
        output.remark(format!("this is output {first}; --json prints {names} too"))?;
    }
    let (images, jobs) = (count(report.answers.len(), "image"), count(batches.len(), "job"));
    output.remark(format!("{images} in {jobs}: {}", report.cost.line()))?;
    if arguments.profile {
        output.remark(format!("\n{}", report.cost.layer_table()))?;
    }
    Ok(())
}

/// Refuses inputs for which the model was not made: its answers would be wrong without a sign of it.
fn check_ranges(about: &About, ranges: &[Option<Range>], inputs: &[Vec<Image>]) -> Result<()> {
    for ((input, range), images) in about.inputs.iter().zip(ranges).zip(inputs) {
        let Some(range) = range else { continue };
        for image in images {
            if let Some(at) = range.outside(&image.values) {
                let (value, name) = (image.values[at], &input.name);
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

/// Refuses true classes that the model does not have: the column was not meant as that.
fn check_classes(about: &About, images: &[Image]) -> Result<()> {
    let classes = about.outputs.first().map_or(0, |output| output.dims.iter().product());
    let known = |image: &&Image| image.label.is_some_and(|class| class >= classes);
    let Some(image) = images.iter().find(known) else { return Ok(()) };
    let class = image.label.unwrap_or_default();
    let reason = format!(
        "the number behind the image, {class}, would be its true class, and the model has {classes}"
    );
    Err(Error::input(&image.source, reason))
}

fn batch(about: &About) -> usize {
    about.batch.unwrap_or(BATCH).max(1)
}

/// The examples of each input of the model, as many for each.
fn read(arguments: &Infer, about: &About) -> Result<Vec<Vec<Image>>> {
    let read = |paths: &[&PathBuf], input: &Input| {
        let read = |path: &&PathBuf| images::read(path, input, &about.preprocess, arguments.scale);
        let files = paths.iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok::<_, Error>(files.concat())
    };
    let each: Vec<_> = about.inputs.iter().map(ToString::to_string).collect();
    let takes = format!("the model takes {}", each.join(", "));
    if let ([input], true) = (about.inputs.as_slice(), arguments.inputs.is_empty()) {
        return Ok(vec![read(&arguments.images.iter().collect::<Vec<_>>(), input)?]);
    }
    if arguments.inputs.is_empty() {
        return Err(Error::input("IMAGE", format!("{takes}; pass each as --input NAME=FILE")));
    }
    let known = |name: &String| about.inputs.iter().any(|input| input.name == *name);
    if let Some((name, _)) = arguments.inputs.iter().find(|(name, _)| !known(name)) {
        return Err(Error::input(format_args!("--input {name}"), takes.as_str()));
    }
    let mut inputs: Vec<Vec<Image>> = Vec::new();
    for input in &about.inputs {
        let files = arguments.inputs.iter().filter(|(name, _)| *name == input.name);
        let files: Vec<_> = files.map(|(_, path)| path).collect();
        let examples = read(&files, input)?;
        let (found, wanted) = (examples.len(), inputs.first().map_or(examples.len(), Vec::len));
        if found != wanted || found == 0 {
            let reason = format!("{found} examples; {takes}, as many examples of each");
            return Err(Error::input(format_args!("--input {}", input.name), reason));
        }
        inputs.push(examples);
    }
    Ok(inputs)
}

/// Encodes the examples as whole batches, a tensor for each input; the last batch is filled up with
/// zeros if the model takes one batch size alone.
fn encode(about: &About, inputs: &[Vec<Image>]) -> Result<Vec<Vec<Tensor>>> {
    let code = FixedPoint(FracBits::new(about.fraction_bits)?);
    let encode = |chunk: &[Image], input: &Input| {
        let size = about.batch.unwrap_or(chunk.len());
        let mut words = Vec::with_capacity(size * input.len());
        for image in chunk {
            if input.integer {
                words.extend(image.values.iter().map(|&value| value as i64 as u64));
            } else {
                let encoded = code.encode(&image.values);
                words.extend(encoded.map_err(|cause| Error::input(&image.source, cause))?);
            }
        }
        let shape = Shape::new([&[size], input.dims.as_slice()].concat())?;
        words.resize(shape.len(), 0);
        Ok(Tensor::new(shape, words)?)
    };
    let count = inputs.first().map_or(0, Vec::len);
    let starts = (0..count).step_by(batch(about));
    let whole = |start| {
        let end = count.min(start + batch(about));
        let pairs = inputs.iter().zip(&about.inputs);
        pairs.map(|(examples, input)| encode(&examples[start..end], input)).collect()
    };
    starts.map(whole).collect()
}

fn infer(
    client: &mut Client,
    arguments: &Infer,
    version: Id,
    about: &About,
    inputs: &[Tensor],
    progress: &crate::output::Progress,
) -> Result<(Total, Vec<Vec<Vec<f64>>>)> {
    let answer = client.infer(&arguments.model, version, inputs, arguments.profile, progress)?;
    let examples = inputs.first().map_or(0, |input| input.shape().dims()[0]);
    Ok((Total::of(&answer.costs), about.decode(examples, &answer.outputs)?))
}

/// The answer for an image of which every output is given; the first has the scores of the classes.
fn answer(
    image: &Image,
    outputs: impl Iterator<Item = Vec<f64>>,
    about: &About,
    top: usize,
) -> Answer {
    let named = |(spec, values): (&OutputTensor, _)| Values { name: spec.name.clone(), values };
    let outputs: Vec<_> = about.outputs.iter().zip(outputs).map(named).collect();
    let scores = outputs.first().map_or(&[][..], |first| &first.values);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let class = |&class: &usize| Class {
        class,
        label: about.labels.get(class).cloned(),
        score: scores[class],
    };
    let top = order.iter().take(top.max(1)).map(class).collect();
    Answer { image: image.source.clone(), top, truth: image.label, outputs }
}

fn accuracy(answers: &[Answer]) -> Option<f64> {
    let right = |answer: &Answer| Some(answer.top.first()?.class == answer.truth?);
    let judged: Vec<bool> = answers.iter().filter_map(right).collect();
    let hits = judged.iter().filter(|&&hit| hit).count();
    (!judged.is_empty()).then(|| hits as f64 / judged.len() as f64)
}

fn text(report: &Report) -> String {
    let judged = report.accuracy.is_some();
    let mut heading = vec!["image", "class", "score"];
    if judged {
        heading.push("truth");
    }
    let mut rows = Vec::new();
    for answer in &report.answers {
        for (place, class) in answer.top.iter().enumerate() {
            let name = class.label.clone().unwrap_or_else(|| class.class.to_string());
            let source = if place == 0 { answer.image.clone() } else { String::new() };
            let mut row = vec![source, name, format!("{:.4}", class.score)];
            if judged && place == 0 {
                row.push(answer.truth.map_or_else(String::new, |truth| truth.to_string()));
            }
            rows.push(row);
        }
    }
    let mut text = table(&heading, &rows);
    if let Some(accuracy) = report.accuracy {
        text += &format!("\n{:.1} % of the classes are the true ones", 100.0 * accuracy);
    }
    text
}
