//! `trefoil demo`: handwritten digits, recognised or learnt privately within this process.

mod train;

use std::time::Instant;

use models::data::{DIGITS, DIGITS_MODEL, Dataset, TEST_DIGITS, digits_from_csv};
use ring_arith::{FixedPoint, FracBits, Tensor};
use serde::Serialize;

use crate::{
    base::{
        Error, Result,
        format::{bytes, seconds},
    },
    cli::{arguments::Demo, output::Output},
    client::Total,
    local,
    model::{
        Preprocess,
        import::{self, Imported},
    },
};

/// Pixels of an image's side.
const SIDE: usize = 8;

/// Fraction bits, CryptGPU's default.
const FRACTION: u32 = 20;

/// Images side by side.
const COLUMNS: usize = 4;

#[derive(Debug, Serialize)]
struct Report {
    images: usize,
    accuracy_private: f64,
    accuracy_plaintext: f64,
    agreement: f64,
    largest_error_of_a_logit: f64,
    seconds_all: f64,
    seconds_per_image: f64,
    bytes_per_image: u64,
    cost: Total,
    predictions: Vec<usize>,
}

pub(super) fn run(arguments: &Demo, output: Output) -> Result<()> {
    if arguments.train {
        return train::run(arguments, output);
    }
    let began = Instant::now();
    let digits = digits(arguments.images.unwrap_or(TEST_DIGITS))?;
    let preprocess = Preprocess::Scale { white: 1.0 };
    let model =
        import::from_bytes("the shipped model", DIGITS_MODEL, FRACTION, preprocess, Vec::new())?;
    output.remark(format!(
        "{} parties in this process share a model of {} weights and {} images of handwritten\n\
         digits. Each party sees random words only; the answers are added up at the end.\n",
        number(arguments.protocol.servers()),
        model.about.weights,
        digits.len()
    ))?;
    let progress = output.progress("computing on shares");
    let Demo { protocol, engine, .. } = *arguments;
    let answer =
        local::infer(protocol, &model.program, &model.weights()?, &input(&digits)?, engine)?;
    drop(progress);
    let logits = model.about.decode(digits.len(), &answer.outputs)?.swap_remove(0);
    let private = logits.concat();
    let plain = plaintext(&model, &digits)?;
    let total = Total::of(&answer.costs);
    let report = judge(&digits, &private, &plain, total, began.elapsed().as_secs_f64());
    if arguments.show > 0 {
        output.remark(pictures(&digits, &report.predictions, arguments.show))?;
    }
    output.result(&report, || text(&report))?;
    if arguments.profile {
        output.remark(format!("\n{}", report.cost.layer_table(None)))?;
    }
    Ok(())
}

/// A number at the beginning of a sentence.
fn number(parties: usize) -> String {
    match parties {
        2 => "Two".to_owned(),
        3 => "Three".to_owned(),
        more => more.to_string(),
    }
}

/// The first of the test images, which end the shipped file.
fn digits(count: usize) -> Result<Dataset> {
    let broken = |cause| Error::Internal(format!("shipped images: {cause}"));
    let all = digits_from_csv(DIGITS).map_err(broken)?;
    if count == 0 || count > TEST_DIGITS || all.len() < TEST_DIGITS {
        return Err(Error::input("--images", format!("there are 1 to {TEST_DIGITS} test images")));
    }
    let first = all.len() - TEST_DIGITS;
    all.range(first, first + count).map_err(broken)
}

fn input(digits: &Dataset) -> Result<Tensor> {
    let words = FixedPoint(FracBits::new(FRACTION)?).encode(&digits.images.floats())?;
    Ok(Tensor::new(digits.images.shape().clone(), words)?)
}

/// The same model in the clear, in 64-bit floats.
fn plaintext(model: &Imported, digits: &Dataset) -> Result<Vec<f64>> {
    let inputs = std::slice::from_ref(&digits.images);
    let outputs = model.program.plan().evaluate(&model.values, inputs)?;
    Ok(outputs[0].floats().into_owned())
}

fn judge(digits: &Dataset, private: &[f64], plain: &[f64], cost: Total, all: f64) -> Report {
    let classes = private.len() / digits.len();
    let predictions: Vec<usize> = private.chunks(classes).map(best).collect();
    let expected: Vec<usize> = plain.chunks(classes).map(best).collect();
    let share = |hits: usize| hits as f64 / digits.len() as f64;
    let right = |found: &[usize]| {
        share(found.iter().zip(&digits.labels).filter(|(found, digit)| found == digit).count())
    };
    let errors = private.iter().zip(plain).map(|(x, y)| (x - y).abs());
    Report {
        images: digits.len(),
        accuracy_private: right(&predictions),
        accuracy_plaintext: right(&expected),
        agreement: share(predictions.iter().zip(&expected).filter(|(x, y)| x == y).count()),
        largest_error_of_a_logit: errors.fold(0.0, f64::max),
        seconds_all: all,
        seconds_per_image: cost.seconds / digits.len() as f64,
        bytes_per_image: cost.bytes / digits.len() as u64,
        cost,
        predictions,
    }
}

/// The class with the largest score, the first of equal ones.
fn best(scores: &[f64]) -> usize {
    let better = |&a: &usize, &b: &usize| scores[a].total_cmp(&scores[b]).then(b.cmp(&a));
    (0..scores.len()).max_by(better).unwrap_or(0)
}

/// Images as text, several side by side, over what they are and were taken for.
fn pictures(digits: &Dataset, predictions: &[usize], show: usize) -> String {
    let pixels = digits.images.floats();
    let images = pixels.chunks_exact(SIDE * SIDE).zip(&digits.labels).zip(predictions);
    let shown: Vec<_> = images.take(show).collect();
    let mut text = String::new();
    for row in shown.chunks(COLUMNS) {
        for y in 0..SIDE {
            let line = row.iter().map(|((pixels, _), _)| line(&pixels[y * SIDE..][..SIDE]));
            text += line.collect::<Vec<_>>().join("   ").trim_end();
            text.push('\n');
        }
        let label = |((_, digit), found): &((&[f64], &usize), &usize)| {
            let mark = if digit == found { "" } else { " !" };
            format!("{:<16}", format!("is {digit}, read {found}{mark}"))
        };
        text += row.iter().map(label).collect::<Vec<_>>().join("   ").trim_end();
        text += "\n\n";
    }
    text.trim_end_matches('\n').to_owned() + "\n"
}

fn line(pixels: &[f64]) -> String {
    const SHADES: &[u8] = b" .:-=+*#%@";
    let shade = |&pixel: &f64| {
        let at = (pixel * (SHADES.len() - 1) as f64).round() as usize;
        char::from(SHADES[at.min(SHADES.len() - 1)])
    };
    pixels.iter().map(shade).flat_map(|shade| [shade, shade]).collect()
}

fn text(report: &Report) -> String {
    let bits = report.largest_error_of_a_logit.log2();
    format!(
        "images             {}\n\
         accuracy           {:.2} % private, {:.2} % in the clear\n\
         agreement          {:.2} % of the answers are the same\n\
         error of a logit   at most {:.1e} (2^{bits:.1})\n\
         time               {} for all, {} per image\n\
         traffic            {} per image, all parties together\n\
         rounds             {} for all",
        report.images,
        100.0 * report.accuracy_private,
        100.0 * report.accuracy_plaintext,
        100.0 * report.agreement,
        report.largest_error_of_a_logit,
        seconds(report.cost.seconds),
        seconds(report.seconds_per_image),
        bytes(report.bytes_per_image),
        report.cost.rounds,
    )
}
