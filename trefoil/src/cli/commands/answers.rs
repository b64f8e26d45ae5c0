//! Answers as `trefoil infer` shows them: by the output's shape and kind.

use std::{fs, path::Path};

use models::data::to_npy;
use nn_layers::HostTensor;
use serde::Serialize;

use crate::{
    base::{Error, Result, format::table},
    inputs::Image,
    model::{About, OutputTensor},
};

/// Numbers of one example that are printed one by one.
const FEW: usize = 16;

/// The answer for one example.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub example: String,
    /// The classes with the largest scores, best first, if the model is a classifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<Class>,
    /// The true class or number, if the file states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<f64>,
    /// All that the model returned.
    pub outputs: Vec<Values>,
}

/// One output of the model, for one example.
#[derive(Debug, Serialize)]
pub(super) struct Values {
    pub name: String,
    pub values: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Class {
    pub class: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `None` if the model returns the class itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// The meaning of an output's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A score for each of this many classes.
    Scores(usize),
    /// The class itself.
    Label,
    /// Numbers that are not classes.
    Numbers,
}

impl Kind {
    /// The meaning of a model's first output. Scores are real numbers along one axis; an output with several
    /// positions, or with one number alone, is not a classifier's answer. The labels set the number of classes with
    /// scores.
    pub fn of(about: &About) -> Self {
        let Some(OutputTensor { dims, fraction_bits, .. }) = about.outputs.first() else {
            return Self::Numbers;
        };
        let one = dims.iter().product::<usize>() == 1;
        match dims.as_slice() {
            _ if about.numbers => Self::Numbers,
            _ if one && *fraction_bits == 0 => Self::Label,
            &[classes] if classes > 1 && *fraction_bits > 0 => Self::Scores(classes),
            _ => Self::Numbers,
        }
    }

    /// The number of classes, if that is known.
    pub fn classes(self, about: &About) -> Option<usize> {
        match self {
            Self::Scores(classes) => Some(classes),
            Self::Label if !about.labels.is_empty() => Some(about.labels.len()),
            Self::Label => None,
            Self::Numbers => Some(0),
        }
    }
}

/// The answer for an example of which every output is given.
pub(super) fn answer(
    image: &Image,
    outputs: impl Iterator<Item = Vec<f64>>,
    about: &About,
    top: usize,
) -> Answer {
    let named = |(spec, values): (&OutputTensor, _)| Values { name: spec.name.clone(), values };
    let outputs: Vec<_> = about.outputs.iter().zip(outputs).map(named).collect();
    let kind = Kind::of(about);
    let first = outputs.first().map_or(&[][..], |first| &first.values);
    let top = match (kind, first) {
        (Kind::Scores(_), scores) => best(scores, about, top.max(1)),
        (Kind::Label, [label]) if *label >= 0.0 => vec![class(*label as usize, None, about)],
        _ => Vec::new(),
    };
    Answer { example: image.source.clone(), top, truth: image.truth, outputs }
}

fn best(scores: &[f64], about: &About, top: usize) -> Vec<Class> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.iter().take(top).map(|&at| class(at, Some(scores[at]), about)).collect()
}

fn class(class: usize, score: Option<f64>, about: &About) -> Class {
    Class { class, label: about.labels.get(class).cloned(), score }
}

/// The part of the examples with a true class whose class is that one.
pub(super) fn accuracy(answers: &[Answer]) -> Option<f64> {
    let right = |answer: &Answer| Some(answer.top.first()?.class as f64 == answer.truth?);
    let judged: Vec<bool> = answers.iter().filter_map(right).collect();
    let hits = judged.iter().filter(|&&hit| hit).count();
    (!judged.is_empty()).then(|| hits as f64 / judged.len() as f64)
}

/// The mean distance of answers of one number from the true ones, if some are known.
pub(super) fn mean_error(answers: &[Answer]) -> Option<f64> {
    let error = |answer: &Answer| match answer.outputs.first()?.values.as_slice() {
        [value] if answer.top.is_empty() => Some((value - answer.truth?).abs()),
        _ => None,
    };
    let errors: Vec<f64> = answers.iter().filter_map(error).collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// The answers as a table, and the sums over all of them.
pub(super) fn text(answers: &[Answer], about: &About) -> String {
    [vec![rows(answers, about, 0)], together(answers, about)].concat().join("\n")
}

/// The answers as a table, in which names of examples take at least this many letters.
pub(super) fn rows(answers: &[Answer], about: &About, widest: usize) -> String {
    match Kind::of(about) {
        Kind::Numbers => numbers(answers, about, widest),
        kind => classes(answers, kind, about, widest),
    }
}

/// The lines of a table that follow its heading.
pub(super) fn without_heading(table: &str) -> String {
    table.split_once('\n').map_or_else(String::new, |(_heading, rows)| rows.to_owned())
}

/// The sums over all answers, each a line.
pub(super) fn together(answers: &[Answer], about: &About) -> Vec<String> {
    let mut lines = Vec::new();
    if matches!(Kind::of(about), Kind::Numbers) && about.outputs.first().is_some_and(is_long) {
        lines.push("--output FILE.npy writes all numbers, --json prints them".to_owned());
    }
    if let Some(accuracy) = accuracy(answers) {
        lines.push(format!("{:.1} % of the classes are the true ones", 100.0 * accuracy));
    }
    if let Some(error) = mean_error(answers) {
        lines.push(format!("mean absolute error {error:.4}"));
    }
    lines
}

/// True if its numbers are too many for a line.
fn is_long(output: &OutputTensor) -> bool {
    output.dims.iter().product::<usize>() > FEW
}

fn judged(answers: &[Answer]) -> bool {
    answers.iter().any(|answer| answer.truth.is_some())
}

fn classes(answers: &[Answer], kind: Kind, about: &About, widest: usize) -> String {
    let judged = judged(answers);
    let name = |class: usize| about.labels.get(class).cloned().unwrap_or_else(|| class.to_string());
    let mut heading = vec![about.example(), "class"];
    heading.extend(matches!(kind, Kind::Scores(_)).then_some("score"));
    heading.extend(judged.then_some("truth"));
    let mut rows = Vec::new();
    for answer in answers {
        for (place, class) in answer.top.iter().enumerate() {
            let source = if place == 0 { answer.example.as_str() } else { "" };
            let mut row = vec![format!("{source:widest$}"), name(class.class)];
            row.extend(class.score.map(|score| format!("{score:.4}")));
            if judged && place == 0 {
                row.push(answer.truth.map_or_else(String::new, |truth| name(truth as usize)));
            }
            rows.push(row);
        }
    }
    table(&heading, &rows)
}

/// The numbers of the first output if there are few, else between which they lie.
fn numbers(answers: &[Answer], about: &About, widest: usize) -> String {
    let Some(output) = about.outputs.first() else { return String::new() };
    let many = is_long(output);
    let shown = output.to_string();
    let judged = judged(answers);
    let row = |answer: &Answer| {
        let values = answer.outputs.first().map_or(&[][..], |first| &first.values);
        let each = values.iter().map(|value| number(*value, output)).collect::<Vec<_>>();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let cell = if many {
            format!("{} to {}", number(least, output), number(most, output))
        } else {
            each.join(" ")
        };
        let truth = answer.truth.map_or_else(String::new, |truth| number(truth, output));
        let source = format!("{:widest$}", answer.example);
        [vec![source, cell], if judged { vec![truth] } else { vec![] }].concat()
    };
    let rows: Vec<_> = answers.iter().map(row).collect();
    let heading = [about.example(), &shown, "truth"];
    table(&heading[..if judged { 3 } else { 2 }], &rows)
}

fn number(value: f64, output: &OutputTensor) -> String {
    if output.fraction_bits == 0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

/// Writes the numbers of one output of all examples: `.npy` in its shape, behind the number of examples unless the
/// model's tensors are whole and there is one; `.csv` with a line for each example.
///
/// # Errors
/// [`Error::Input`] for another ending, [`Error::File`] if it cannot be written.
pub(super) fn write(path: &Path, at: usize, answers: &[Answer], about: &About) -> Result<()> {
    let output = &about.outputs[at];
    let rows = || answers.iter().map(|answer| &answer.outputs[at].values);
    let bytes = match path.extension().and_then(|ending| ending.to_str()) {
        Some("npy") => {
            let dims = match answers {
                [_] if about.whole => output.dims.clone(),
                _ => [&[answers.len()], output.dims.as_slice()].concat(),
            };
            let values = rows().flatten().copied();
            let tensor = if output.fraction_bits == 0 {
                HostTensor::integers(dims, values.map(|value| value as i64).collect())?
            } else {
                HostTensor::new(dims, values.collect())?
            };
            to_npy(&tensor)
        }
        Some("csv") => {
            let line = |values: &Vec<f64>| {
                let cells: Vec<_> = values.iter().map(ToString::to_string).collect();
                cells.join(",") + "\n"
            };
            rows().map(line).collect::<String>().into_bytes()
        }
        _ => {
            return Err(Error::input(
                path.display(),
                "the ending of a file of numbers is .npy or .csv",
            ));
        }
    };
    fs::write(path, bytes).map_err(|cause| Error::file(path, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(dims: &[usize], fraction_bits: u32, labels: &[&str]) -> About {
        let output = OutputTensor { name: "y".to_owned(), dims: dims.to_vec(), fraction_bits };
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        About { outputs: vec![output], labels, ..About::default() }
    }

    fn shown(about: &About, values: &[f64], truth: Option<f64>) -> String {
        let image = Image { source: "x".to_owned(), values: vec![], truth };
        let answers = [answer(&image, std::iter::once(values.to_vec()), about, 1)];
        text(&answers, about)
    }

    #[test]
    fn only_scores_along_one_axis_and_labels_are_classes() {
        let scores = shown(&about(&[3], 20, &[]), &[0.5, 2.0, 1.0], Some(1.0));
        assert_eq!(
            scores,
            "example  class   score  truth\nx            1  2.0000      1\n100.0 % of the classes are the true ones"
        );
        // A model that returns the class itself.
        let label = shown(&about(&[1], 0, &["cat", "dog"]), &[1.0], Some(0.0));
        assert_eq!(
            label,
            "example  class  truth\nx        dog    cat\n0.0 % of the classes are the true ones"
        );
        // A regression, and one whose owner states that its outputs are not scores.
        let one = shown(&about(&[1], 20, &[]), &[2.5], Some(3.0));
        assert!(one.contains("y [1]") && one.contains("2.5000  3.0000"), "{one}");
        assert!(one.ends_with("mean absolute error 0.5000"), "{one}");
        let several = shown(&About { numbers: true, ..about(&[2], 20, &[]) }, &[2.5, -1.0], None);
        assert!(several.contains("y [2]") && several.ends_with("2.5000 -1.0000"), "{several}");
        // Scores at several positions are not one class.
        let positions = shown(&about(&[16, 500], 20, &[]), &vec![1.25; 8000], None);
        assert!(positions.starts_with("example"), "{positions}");
        assert!(
            positions.contains("1.2500 to 1.2500") && !positions.contains("class"),
            "{positions}"
        );
    }

    #[test]
    fn numbers_are_written_in_their_shape() {
        let folder = std::env::temp_dir().join(format!("trefoil-answers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let about = about(&[2, 2], 20, &[]);
        let image = Image { source: "x".to_owned(), values: vec![], truth: None };
        let one = |from: f64| {
            let values = vec![from, from + 0.5, -1.0, 0.0];
            answer(&image, std::iter::once(values), &about, 1)
        };
        let answers = [one(1.0), one(2.0)];
        let npy = folder.join("y.npy");
        write(&npy, 0, &answers, &about).unwrap();
        let read = models::data::read_npy(&npy).unwrap();
        assert_eq!(read.dims(), [2, 2, 2]);
        assert_eq!(read.floats().as_ref(), [1.0, 1.5, -1.0, 0.0, 2.0, 2.5, -1.0, 0.0]);
        let csv = folder.join("y.csv");
        write(&csv, 0, &answers, &about).unwrap();
        assert_eq!(fs::read_to_string(&csv).unwrap(), "1,1.5,-1,0\n2,2.5,-1,0\n");
        assert!(write(&folder.join("y.txt"), 0, &answers, &about).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
