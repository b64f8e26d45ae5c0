//! `cargo xtask report`: charts, a page and the table of `docs/measured.md`, from the benchmarks' results.

pub(crate) mod chart;
mod front;
mod page;
mod published;
mod records;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::curve::Curve;
use crate::record::{OURS, Record};
use chart::{Bars, Dots, Lines, Series};
use page::Page;
use published::MARKS;
use records::Records;

/// The folder of the benchmarks' lines of JSON.
const RESULTS: &str = "bench/results";

/// The folder of whole trainings.
pub(crate) const CURVES: &str = "bench/results/curves";

/// The folder for charts and the page.
const BENCH: &str = "bench";

/// The page with the table of the main results.
const FRONT: &str = "docs/measured.md";

/// Convolutions and ReLU over size: cases, title, axis, and file.
const OVER_SIZE: &[[&str; 4]] = &[
    [
        "figures/conv-11x11",
        "Convolution with 64 filters of 11 x 11, stride 4, of one image n x n x 3",
        "n",
        "conv-11x11",
    ],
    [
        "figures/conv-11x11-batch",
        "Convolution with 64 filters of 11 x 11, stride 4, of a batch of images 32 x 32 x 3",
        "images",
        "conv-11x11-batch",
    ],
    [
        "figures/conv-3x3",
        "Convolution with 512 filters of 3 x 3 of one image n x n x 512",
        "n",
        "conv-3x3",
    ],
    ["figures/relu", "ReLU", "elements", "relu"],
];

/// Draws the charts, writes the page, and renews the table of `docs/measured.md`.
///
/// # Errors
/// If no results exist, or a file cannot be read or written.
pub fn main() -> Result<()> {
    let records = Records::read(Path::new(RESULTS))?;
    fs::create_dir_all(Path::new(BENCH).join("charts"))?;
    let mut page = Page::new(&records);
    over_size(&records, &mut page)?;
    beside_others(&records, &mut page)?;
    by_layer(&records, &mut page)?;
    by_network(&records, &mut page)?;
    trainings(&mut page)?;
    page.save(&Path::new(BENCH).join("README.md"))?;
    let page = fs::read_to_string(FRONT)?;
    Ok(fs::write(FRONT, front::update(&page, &records)?)?)
}

/// The name of a record's line in a legend.
fn label(record: &Record) -> String {
    if record.system != OURS {
        return record.system.clone();
    }
    let engine = record.engine.as_deref().unwrap_or("cpu");
    let network = record.network.as_deref().unwrap_or("");
    match record.threads {
        Some(threads) => format!("Trefoil, {engine}, {network}, threads per party: {threads}"),
        None => format!("Trefoil, {engine}, {network}"),
    }
}

/// Appends a point to the series of this name, which is made if it is not there.
fn add(series: &mut Vec<Series>, name: String, joined: bool, point: (f64, f64)) {
    match series.iter_mut().find(|known| known.name == name) {
        Some(known) => known.points.push(point),
        None => series.push(Series { name, points: vec![point], joined }),
    }
}

/// The number that ends a case's name.
fn size(case: &str) -> Option<f64> {
    case.rsplit('/').next()?.parse().ok()
}

fn over_size(records: &Records, page: &mut Page) -> Result<()> {
    if !OVER_SIZE.iter().any(|[cases, ..]| records.below(cases).next().is_some()) {
        return Ok(());
    }
    page.section(
        "Cost over size",
        "Figures 1 and 2 of CryptGPU with our systems: seconds of the whole protocol. Crosses are figures \
         that others published, measured on their machines.",
    );
    for [cases, title, axis, file] in OVER_SIZE {
        let mut series = Vec::new();
        for record in records.below(cases) {
            if let (Some(x), Some(y)) = (size(&record.case), record.seconds_median) {
                add(&mut series, label(record), true, (x, y));
            }
        }
        if series.is_empty() {
            continue;
        }
        for line in &mut series {
            line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for mark in MARKS {
            if let Some(place) =
                mark.case.strip_prefix(cases).and_then(|rest| rest.strip_prefix('/'))
                && let Some(x) = size(place)
            {
                add(&mut series, mark.system.to_owned(), false, (x, mark.seconds));
                page.cite(mark.source);
            }
        }
        let chart = Lines { title, x: axis, y: "seconds", series: &series };
        chart.save(&page.chart(file, title))?;
        page.rows(records.below(cases));
    }
    Ok(())
}

/// Operations and models, compared with other systems: time and bytes.
fn beside_others(records: &Records, page: &mut Page) -> Result<()> {
    let parts = [
        ("protocols", "Operations", "Operations on secret tensors; sizes are in the table."),
        (
            "models",
            "Models",
            "Inference, model and input secret, weights random. Networks for small images pool by means as \
             CryptGPU does, ResNets by maxima; the number behind a name is the batch.",
        ),
        (
            "training",
            "Training",
            "One step: forward pass, gradients and update, everything secret. Networks pool by means; the number \
             behind a name is the batch.",
        ),
    ];
    for (suite, title, text) in parts {
        let measured = || records.all().filter(|r| r.suite == suite && r.seconds_median.is_some());
        if measured().next().is_none() {
            continue;
        }
        page.section(title, text);
        let mut rows: Vec<String> = Vec::new();
        for record in measured().filter(|record| record.system == OURS) {
            if !rows.contains(&record.case) {
                rows.push(record.case.clone());
            }
        }
        type Value = fn(&Record) -> Option<f64>;
        let quantities: [(&str, &str, Value); 2] = [
            ("seconds", "seconds", |record| record.seconds_median),
            ("bytes", "bytes sent, three parties together", |record| {
                Some(3.0 * record.bytes_per_party? as f64)
            }),
        ];
        for (quantity, axis, value) in quantities {
            let mut series = Vec::new();
            for record in measured() {
                let row = rows.iter().position(|row| *row == record.case);
                if let (Some(row), Some(value)) = (row, value(record)) {
                    add(&mut series, label(record), true, (row as f64, value));
                }
            }
            for mark in MARKS {
                let row = rows.iter().position(|row| mark.case == format!("{suite}/{row}"));
                let value = if quantity == "seconds" { Some(mark.seconds) } else { mark.bytes };
                if let (Some(row), Some(value)) = (row, value) {
                    add(&mut series, mark.system.to_owned(), false, (row as f64, value));
                    page.cite(mark.source);
                }
            }
            let title = format!("{title}: {axis}");
            let chart = Dots { title: &title, x: axis, rows: &rows, series: &series };
            chart.save(&page.chart(&format!("{suite}-{quantity}"), &title))?;
        }
        page.rows(measured());
    }
    Ok(())
}

/// The models whose steps were measured, each layer by layer.
fn by_layer(records: &Records, page: &mut Page) -> Result<()> {
    let mut models: Vec<String> = Vec::new();
    for record in records.below("figures/profile") {
        if let Some((model, _)) = record.case.rsplit_once('/')
            && !models.iter().any(|known| known == model)
        {
            models.push(model.to_owned());
        }
    }
    if models.is_empty() {
        return Ok(());
    }
    page.section(
        "By layer",
        "Every bar is a step of the plan, which may hold several operations, in order.",
    );
    for model in models {
        let path = format!("figures/{model}");
        let steps: Vec<&Record> = records.below(&path).collect();
        let kind = |record: &Record| record.size.clone().unwrap_or_default();
        let seconds = steps.iter().map(|r| (kind(r), r.seconds_median.unwrap_or(0.0) * 1e3));
        let bytes = steps.iter().map(|r| (kind(r), r.bytes_per_party.unwrap_or(0) as f64));
        let name = model.trim_start_matches("profile/");
        let file = name.replace('/', "-");
        let [seconds, bytes]: [Vec<_>; 2] = [seconds.collect(), bytes.collect()];
        let bars = [
            ("milliseconds", format!("{name}: time of each step"), seconds),
            ("bytes sent by one party", format!("{name}: bytes of each step"), bytes),
        ];
        for (at, (axis, title, bars)) in bars.iter().enumerate() {
            let chart = Bars { title, x: "step", y: axis, bars };
            let file = format!("{file}-{}", ["seconds", "bytes"][at]);
            chart.save(&page.chart(&file, title))?;
        }
    }
    Ok(())
}

/// The same work over different networks.
fn by_network(records: &Records, page: &mut Page) -> Result<()> {
    let mut rows: Vec<String> = Vec::new();
    let mut series = Vec::new();
    for record in records.below("figures/network") {
        let case = record.case.trim_start_matches("network/");
        let Some((work, network)) = case.rsplit_once('/') else { continue };
        let row = rows.iter().position(|row| row == work).unwrap_or_else(|| {
            rows.push(work.to_owned());
            rows.len() - 1
        });
        let seconds = record.seconds_median.unwrap_or(0.0);
        add(&mut series, network.to_owned(), true, (row as f64, seconds));
    }
    if rows.is_empty() {
        return Ok(());
    }
    page.section(
        "By network",
        "`in-process` joins three threads by memory, `tcp` and `tls` three processes by the loopback device. \
         `lan` is TLS slowed down to 1 Gbit/s and a round trip of 1 ms, `wan` to 100 Mbit/s and 40 ms.",
    );
    let title = "The same work over different networks: seconds";
    let chart = Dots { title, x: "seconds", rows: &rows, series: &series };
    chart.save(&page.chart("networks", title))?;
    page.rows(records.below("figures/network"));
    Ok(())
}

/// Whole trainings, as `cargo xtask train` left them.
fn trainings(page: &mut Page) -> Result<()> {
    let Ok(listed) = fs::read_dir(CURVES) else { return Ok(()) };
    let mut files: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    if files.is_empty() {
        return Ok(());
    }
    page.section(
        "Whole trainings",
        "The same plan on shares and in 64-bit floats, from the same start, on the same batches: \
         `cargo xtask train NAME`.",
    );
    for file in &files {
        let curve: Curve =
            serde_json::from_slice(&fs::read(file)?).with_context(|| file.display().to_string())?;
        page.text(&curve.about());
        curve.draw(&page.chart(&format!("train-{}", curve.name), &curve.name))?;
        page.text(&curve.table());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_the_end_of_a_case() {
        assert_eq!(size("relu/256000"), Some(256_000.0));
        assert_eq!(size("relu"), None);
    }

    #[test]
    fn marks_belong_to_cases_and_have_sources() {
        for mark in MARKS {
            let known = ["figures/", "models/", "training/"];
            assert!(known.iter().any(|suite| mark.case.starts_with(suite)), "{}", mark.case);
            assert!(mark.source < published::SOURCES.len(), "{}", mark.case);
        }
    }

    #[test]
    fn points_of_one_name_are_one_series() {
        let mut series = Vec::new();
        add(&mut series, "a".into(), true, (1.0, 2.0));
        add(&mut series, "b".into(), false, (1.0, 3.0));
        add(&mut series, "a".into(), true, (2.0, 4.0));
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].points, [(1.0, 2.0), (2.0, 4.0)]);
    }
}
