//! `trefoil model check`: what a model will do on shares, tried out on its owner's machine.

use std::collections::{HashMap, HashSet};

use cluster_protocols::Computing;
use gpu_kernels::EngineChoice;
use nn_layers::{Excess, Graph, HostTensor, Inspected, Plan};
use serde::Serialize;

use super::reading::{self, FORMATS, Read, rounding, whole};
use crate::{
    base::{Error, Result, format::table},
    cli::{arguments::Check, output::Output},
    client::{Predicted, Total},
    local,
    model::{Range, import::Imported},
};

/// Bits by which the fullest value should still be able to grow: other inputs are not quite those that were tried.
const MARGIN: f64 = 2.0;

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    fraction_bits: u32,
    layers: Vec<Layer>,
    /// Operations of the file that are part of others, or of the weights.
    folded: Vec<String>,
    predicted: Predicted,
    /// Examples that were run in the clear.
    examples: usize,
    /// The layer at which they left the range of numbers, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
    /// Values that could leave it for some input of the stated range, by bounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    could_leave: Vec<CouldLeave>,
    /// Weights that rounding changes by more than a thousandth, and by how much.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rounded: Vec<(String, f64)>,
    /// Fraction bits with which all values that were seen have room; none if no format is right, or nothing
    /// was run.
    recommended: Option<u32>,
}

/// One operation of the plan.
#[derive(Debug, Serialize)]
struct Layer {
    name: String,
    kind: &'static str,
    exactness: String,
    /// Bytes that the servers send each other and rounds: those of a node of the file, or of several that run
    /// together, at the first of its operations.
    bytes: u64,
    rounds: u32,
    #[serde(flatten)]
    seen: Option<Seen>,
}

/// The values of an operation over the samples.
#[derive(Debug, Clone, Copy, Serialize)]
struct Seen {
    largest: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_bits: Option<f64>,
    error: f64,
}

#[derive(Debug, Serialize)]
struct Refused {
    layer: String,
    reason: String,
}

/// A value that bounds alone do not keep in range.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CouldLeave {
    pub layer: String,
    pub largest: f64,
    pub fits_at: Option<u32>,
}

/// The result of running samples.
#[derive(Default)]
struct Tried {
    examples: usize,
    seen: HashMap<String, Seen>,
    refused: Option<Refused>,
}

impl Tried {
    /// Bits that the fullest value had left; less than none if one did not fit.
    fn room(&self) -> f64 {
        let least =
            self.seen.values().filter_map(|seen| seen.room_bits).fold(f64::INFINITY, f64::min);
        if self.refused.is_some() { f64::NEG_INFINITY } else { least }
    }

    fn add(&mut self, value: &Inspected) {
        let now = Seen { largest: value.largest, room_bits: value.room, error: value.error };
        let most = self.seen.entry(value.name.clone()).or_insert(now);
        most.largest = most.largest.max(now.largest);
        most.error = most.error.max(now.error);
        most.room_bits = [most.room_bits, now.room_bits].into_iter().flatten().reduce(f64::min);
    }
}

pub(super) fn run(arguments: &Check, output: Output) -> Result<()> {
    let progress = output.progress("reading the model");
    let asked = arguments.model.fraction_bits.unwrap_or(reading::USUAL);
    let file = reading::File::open(&arguments.file, &arguments.model, Vec::new())?;
    let Read { imported, samples, ranges, rounded, .. } = file.planned(asked)?;
    let about = &imported.about;
    drop(progress);
    let progress = output.progress("running it in the clear");
    let samples = whole(&samples, about, arguments.examples)?;
    let tried = tried(&imported, &samples)?;
    let plan = imported.program.plan();
    let could_leave = could_leave(plan, &imported.values, &ranges, u64::MAX)?.unwrap_or_default();
    let recommended = recommended(&file, asked, &tried, &samples)?;
    drop(progress);
    let examples = plan.fixed_batch().unwrap_or(1);
    let costs =
        local::predict(&imported.program, imported.program.usual_sizes(), Computing::default())
            .map_err(|cause| {
                let reason = format_args!("the servers could not run it: {cause}");
                Error::input(arguments.file.display(), reason)
            })?;
    let report = Report {
        model: arguments.file.display().to_string(),
        fraction_bits: plan.frac(),
        layers: layers(plan, &Total::of(&costs), &tried),
        folded: folded(file.graph(), plan),
        predicted: Predicted::of(&costs, examples),
        examples: tried.examples,
        refused: tried.refused,
        could_leave,
        rounded,
        recommended,
    };
    output.result(&report, || text(&report))
}

fn tried(imported: &Imported, batches: &[Vec<HostTensor>]) -> Result<Tried> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut tried = Tried::default();
    for batch in batches {
        let (engine, _) = EngineChoice::Cpu.open(threads)?;
        let seen = imported.program.plan().inspect(engine, &imported.values, batch)?;
        seen.values.iter().for_each(|value| tried.add(value));
        let outside = seen.values.iter().find_map(|value| {
            let reason = format!("{}: {}", value.kind, value.outside.as_ref()?);
            Some(Refused { layer: value.name.clone(), reason })
        });
        if outside.is_some() {
            tried.refused = outside;
            break;
        }
        tried.examples += batch.first().map_or(0, |input| imported.about.examples(input.dims()));
        if let Some(refusal) = seen.refusal {
            tried.refused = Some(Refused { layer: refusal.name, reason: refusal.reason });
            break;
        }
    }
    Ok(tried)
}

/// The format asked for if its values have room, else the nearest below or above in which they have.
fn recommended(
    file: &reading::File<'_>,
    asked: u32,
    first: &Tried,
    batches: &[Vec<HostTensor>],
) -> Result<Option<u32>> {
    if batches.is_empty() {
        return Ok(None);
    }
    if first.room() >= MARGIN {
        return Ok(Some(asked));
    }
    let fewer = (*FORMATS.start()..asked).rev();
    for bits in fewer.chain(asked + 1..=*FORMATS.end()) {
        // Skips a format in which weights cannot be encoded.
        let Ok(other) = file.planned(bits) else { continue };
        if tried(&other.imported, batches)?.room() >= MARGIN {
            return Ok(Some(bits));
        }
    }
    Ok(None)
}

/// The values that could leave their range for some input of the stated ranges; `None` if they are not all stated, or
/// to find out takes more than `most` products.
pub(super) fn could_leave(
    plan: &Plan,
    weights: &[HostTensor],
    ranges: &[Option<Range>],
    most: u64,
) -> Result<Option<Vec<CouldLeave>>> {
    let stated: Option<Vec<_>> =
        ranges.iter().map(|range| range.map(|range| (range.low, range.high))).collect();
    let Some(stated) = stated.filter(|stated| stated.len() == plan.inputs().len()) else {
        return Ok(None);
    };
    if plan.multiplications(plan.fixed_batch().unwrap_or(1))? > most {
        return Ok(None);
    }
    let known = |excess: Excess| CouldLeave {
        layer: excess.name,
        largest: excess.largest,
        fits_at: excess.fits_at,
    };
    Ok(Some(plan.excesses(weights, &stated)?.into_iter().map(known).collect()))
}

fn layers(plan: &Plan, total: &Total, tried: &Tried) -> Vec<Layer> {
    // Costs are counted by name, and a node of the file may have become several operations.
    let mut told = HashSet::new();
    let layer = |operation: nn_layers::Operation<'_>| {
        let first = told.insert(operation.name.to_owned());
        let cost = total.layers.iter().find(|layer| first && layer.name == operation.name);
        Layer {
            name: operation.name.to_owned(),
            kind: operation.kind,
            exactness: operation.exactness.to_string(),
            bytes: cost.map_or(0, |cost| cost.bytes.iter().sum()),
            rounds: cost.map_or(0, |cost| cost.rounds),
            seen: tried.seen.get(operation.name).copied(),
        }
    };
    let mut layers: Vec<_> = plan.operations().map(layer).collect();
    let guard =
        total.layers.iter().find(|layer| !plan.guarded().is_empty() && layer.name == "guard");
    layers.extend(guard.map(|guard| Layer {
        name: guard.name.clone(),
        kind: "guard",
        exactness: "exact".to_owned(),
        bytes: guard.bytes.iter().sum(),
        rounds: guard.rounds,
        seen: None,
    }));
    layers
}

/// Operations of the file without a separate name in the plan.
fn folded(graph: &Graph, plan: &Plan) -> Vec<String> {
    let kept: HashSet<_> = plan.operations().map(|operation| operation.name).collect();
    let gone = graph.operations().filter(|(name, _)| !kept.contains(name));
    gone.map(|(name, kind)| format!("{name} ({kind})")).collect()
}

fn text(report: &Report) -> String {
    let mut heading = vec!["layer", "operation", "result", "bytes", "rounds"];
    if report.examples > 0 {
        heading.extend(["largest", "room", "error"]);
    }
    let row = |layer: &Layer| {
        let mut row = vec![
            layer.name.clone(),
            layer.kind.to_owned(),
            layer.exactness.clone(),
            layer.bytes.to_string(),
            layer.rounds.to_string(),
        ];
        if let Some(seen) = &layer.seen {
            let room = seen.room_bits.filter(|room| room.is_finite());
            row.extend([
                format!("{:.4}", seen.largest),
                room.map_or_else(String::new, |room| format!("{room:.1} bits")),
                format!("{:.1e}", seen.error),
            ]);
        }
        row
    };
    let rows: Vec<_> = report.layers.iter().map(row).collect();
    let mut lines = vec![table(&heading, &rows), String::new()];
    if !report.folded.is_empty() {
        lines.push(format!("folded into others, or into weights: {}", report.folded.join(", ")));
    }
    lines.push(report.predicted.line());
    if let Some(refused) = &report.refused {
        lines.push(format!(
            "values leave the range of numbers at layer `{}`: {}",
            refused.layer, refused.reason
        ));
    }
    lines.extend(leaving(&report.could_leave));
    lines.extend(rounding(&report.rounded));
    lines.push(match (report.examples, report.recommended) {
        (0, _) => "no samples were tried; --inputs FILE runs some in the clear, with every check on".to_owned(),
        (n, Some(bits)) if bits == report.fraction_bits => {
            format!("{n} examples were tried: {bits} fraction bits leave all values room")
        }
        (n, Some(bits)) => format!(
            "{n} examples were tried: values have too little room; put it with --fraction-bits {bits}"
        ),
        (n, None) => format!(
            "{n} examples were tried: no number of fraction bits leaves their values room; make inputs or \
             weights smaller, for instance by a normalisation"
        ),
    });
    lines.join("\n")
}

/// The result of the bounds for layers, in a sentence.
pub(super) fn leaving(could_leave: &[CouldLeave]) -> Option<String> {
    let first = could_leave.first()?;
    let names: Vec<_> = could_leave.iter().take(3).map(|one| format!("`{}`", one.layer)).collect();
    let others = match could_leave.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let fits = could_leave.iter().map(|one| one.fits_at).min().flatten();
    let remedy = match fits {
        Some(bits) => format!("with --fraction-bits {bits} none could"),
        None => "fewer fraction bits do not rule it out".to_owned(),
    };
    Some(format!(
        "as far as bounds tell, some input of this range takes {}{others} out of the range of numbers \
         (`{}` to {:.3e}); {remedy}, and `trefoil model check --inputs` shows what real inputs do",
        names.join(", "),
        first.layer,
        first.largest
    ))
}
