//! `trefoil demo`: handwritten digits, recognised privately within this process.

use std::time::Instant;

use nn_layers::HostTensor;
use ring_arith::{FixedPoint, FracBits, Shape, Tensor};
use serde::Serialize;

use crate::{
    Error, Preprocess, Result,
    cli::Demo,
    import::{self, Imported},
    local,
    output::{Output, seconds},
    profile::Total,
};

/// The shipped model, trained by `models/scripts/train_digits.py`.
const MODEL: &[u8] = include_bytes!("../../../models/data/digits.onnx");

/// The shipped images: UCI's handwritten digits, <https://doi.org/10.24432/C50P49>, CC BY 4.0.
const IMAGES: &[u8] = include_bytes!("../../../models/data/digits.csv.gz");

/// The images at the end of the file, which the model never saw in training.
const TEST: usize = 360;

/// Pixels of an image's side.
const SIDE: usize = 8;

/// Value of a full pixel in the file.
const FULL: f64 = 16.0;

/// Fraction bits, CryptGPU's default.
const FRACTION: u32 = 20;

/// Images side by side.
const COLUMNS: usize = 4;

/// An image and its digit.
struct Digit {
    pixels: Vec<f64>,
    digit: usize,
}

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
    let began = Instant::now();
    let digits = digits(arguments.images.unwrap_or(TEST))?;
    let preprocess = Preprocess::Scale { white: 1.0 };
    let model = import::from_bytes("the shipped model", MODEL, FRACTION, preprocess, Vec::new())?;
    output.remark(format!(
        "Three parties in this process share a model of {} weights and {} images of handwritten\n\
         digits. Each party sees random words only; the answers are added up at the end.\n",
        model.about.weights,
        digits.len()
    ))?;
    let progress = output.progress("computing on shares");
    let answer = local::infer(&model.program, &model.weights, &input(&digits)?)?;
    drop(progress);
    let outputs = answer.outputs.first().ok_or_else(|| Error::Internal("no output".to_owned()))?;
    let unit = (-f64::from(model.about.output_fraction_bits)).exp2();
    let private: Vec<f64> = outputs.words().iter().map(|&word| word as i64 as f64 * unit).collect();
    let plain = plaintext(&model, &digits)?;
    let total = Total::of(&answer.costs);
    let report = judge(&digits, &private, &plain, total, began.elapsed().as_secs_f64());
    output.remark(pictures(&digits, &report.predictions, arguments.show))?;
    output.result(&report, || text(&report))?;
    if arguments.profile {
        output.remark(format!("\n{}", report.cost.layer_table()))?;
    }
    Ok(())
}

/// The last images of the shipped file.
fn digits(count: usize) -> Result<Vec<Digit>> {
    let broken =
        |cause: &dyn std::fmt::Display| Error::Internal(format!("shipped images: {cause}"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(IMAGES), &mut text)
        .map_err(|cause| broken(&cause))?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let test = &lines[lines.len().saturating_sub(TEST)..];
    if count == 0 || count > test.len() {
        let reason = format!("there are 1 to {} test images", test.len());
        return Err(Error::input("--images", reason));
    }
    test[..count]
        .iter()
        .map(|line| {
            let numbers = line.split(',').map(|cell| cell.trim().parse::<f64>());
            let numbers: Vec<f64> = numbers.collect::<Result<_, _>>().map_err(|c| broken(&c))?;
            match numbers.split_last() {
                Some((&digit, pixels)) if pixels.len() == SIDE * SIDE => {
                    let pixels = pixels.iter().map(|pixel| pixel / FULL).collect();
                    Ok(Digit { pixels, digit: digit as usize })
                }
                _ => Err(broken(&"a line is not 64 pixels and a digit")),
            }
        })
        .collect()
}

fn input(digits: &[Digit]) -> Result<Tensor> {
    let pixels: Vec<f64> = digits.iter().flat_map(|digit| digit.pixels.clone()).collect();
    let words = FixedPoint(FracBits::new(FRACTION)?).encode(&pixels)?;
    Ok(Tensor::new(Shape::new([digits.len(), 1, SIDE, SIDE])?, words)?)
}

/// The same model in the clear, in 64-bit floats.
fn plaintext(model: &Imported, digits: &[Digit]) -> Result<Vec<f64>> {
    let pixels = digits.iter().flat_map(|digit| digit.pixels.clone()).collect();
    let input = HostTensor::new([digits.len(), 1, SIDE, SIDE], pixels)?;
    let outputs = model.program.plan().evaluate(&model.values, &[input])?;
    Ok(outputs[0].floats().into_owned())
}

fn judge(digits: &[Digit], private: &[f64], plain: &[f64], cost: Total, all: f64) -> Report {
    let classes = private.len() / digits.len();
    let best = |scores: &[f64]| {
        let better = |&a: &usize, &b: &usize| scores[a].total_cmp(&scores[b]).then(b.cmp(&a));
        (0..scores.len()).max_by(better).unwrap_or(0)
    };
    let predictions: Vec<usize> = private.chunks(classes).map(best).collect();
    let expected: Vec<usize> = plain.chunks(classes).map(best).collect();
    let share = |hits: usize| hits as f64 / digits.len() as f64;
    let right = |found: &[usize]| {
        share(found.iter().zip(digits).filter(|(found, digit)| **found == digit.digit).count())
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

/// Images as text, several side by side, over what they are and were taken for.
fn pictures(digits: &[Digit], predictions: &[usize], show: usize) -> String {
    let shown: Vec<_> = digits.iter().zip(predictions).take(show).collect();
    let mut text = String::new();
    for row in shown.chunks(COLUMNS) {
        for y in 0..SIDE {
            let line = row.iter().map(|(digit, _)| line(&digit.pixels[y * SIDE..][..SIDE]));
            text += line.collect::<Vec<_>>().join("   ").trim_end();
            text.push('\n');
        }
        let label = |(digit, found): &(&Digit, &usize)| {
            let mark = if digit.digit == **found { "" } else { " !" };
            format!("{:<16}", format!("is {}, read {found}{mark}", digit.digit))
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
         traffic            {} per image, three parties together\n\
         rounds             {} for all",
        report.images,
        100.0 * report.accuracy_private,
        100.0 * report.accuracy_plaintext,
        100.0 * report.agreement,
        report.largest_error_of_a_logit,
        seconds(report.cost.seconds),
        seconds(report.seconds_per_image),
        crate::output::bytes(report.bytes_per_image),
        report.cost.rounds,
    )
}
